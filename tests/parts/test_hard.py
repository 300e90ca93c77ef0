"""REINFORCE without chance: on tiny models every choice is tried, so what the estimator gives on average is known
exactly. It must be the gradient of the expected cost."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from contracts.checks import shaken
from saccade.config import python_layer, resolve
from saccade.data.batches import Batch, Corpus
from saccade.models.assemble import Model, ModelConfig, assemble
from saccade.parts import Hard
from saccade.runs.weights import load_weights, write_checkpoint
from saccade.tasks.losses import next_token, teacher_forced_hidden

pytestmark = pytest.mark.usefixtures("unchecked")

WORDS, DIM = 7, 4
HARD: dict[str, Any] = {"kind": "hard", "entropy": 0.0}
ONE_LAYER = {"heads": 1, "normalizer": "softmax"}
RECURRENT = {"kind": "recurrent"}


def stacked(**mixers: Any) -> dict[str, Any]:
    block = {"self": ONE_LAYER, "cross": ONE_LAYER, "feed_forward": {"inner": 3}} | mixers
    return {"kind": "stacked", "depth": 1, "block": block}


# by name: the sides of the model; how its one hard attention's choices [B H T] are numbered follows from the side
MODELS: dict[str, dict[str, Any]] = {
    "recurrent, before": {
        "encoder": RECURRENT,
        "decoder": RECURRENT | {"cross": {"score": "additive", "normalizer": HARD}},
    },
    "recurrent, after, fed": {
        "encoder": RECURRENT,
        "decoder": RECURRENT
        | {
            "cell": "lstm",
            "attend": "after",
            "input_feeding": True,
            "cross": {"score": "multiplicative", "normalizer": HARD},
        },
    },
    "recurrent, covering": {
        "encoder": RECURRENT,
        "decoder": RECURRENT | {"cross": {"score": "additive", "normalizer": HARD, "coverage": True}},
    },
    "transformer, to the memory": {
        "encoder": stacked(),
        "decoder": stacked(cross={"heads": 1, "normalizer": HARD}),
    },
    "transformer, to the memory, two heads": {
        "encoder": stacked(),
        "decoder": stacked(cross={"heads": 2, "normalizer": HARD}),
    },
    "transformer, to itself": {"encoder": stacked(), "decoder": stacked(self={"heads": 1, "normalizer": HARD})},
    "encoder, to itself": {"encoder": stacked(self={"heads": 1, "normalizer": HARD}), "decoder": RECURRENT},
    "encoder, to itself, two heads": {"encoder": stacked(self={"heads": 2, "normalizer": HARD}), "decoder": stacked()},
}
every_model = pytest.mark.parametrize("name", MODELS)

# sources and targets; an end is added to each
PADDED = Corpus([[4], []], [[5], []])


def one_row(name: str) -> Batch:
    """Three places and two steps; two places where there are more choices than steps."""
    several = name.startswith("encoder") or "two heads" in name
    return (Corpus([[4]], [[5]]) if several else Corpus([[4, 5]], [[6]])).batch([0])


def two_rows(name: str) -> Batch:
    """One of them padded on both sides."""
    return PADDED.batch([0, 1])


def tiny(name: str) -> Model:
    config = resolve(ModelConfig, [python_layer(MODELS[name] | {"dim": DIM, "dropout": NO_DROPOUT})]).config
    torch.manual_seed(3)
    return shaken(assemble(config, WORDS, WORDS), by=0.5).double().train()


NO_DROPOUT = {"residual": 0.0, "embedding": 0.0}


def the_normalizer(model: Model) -> Hard:
    (normalizer,) = (part for part in model.modules() if isinstance(part, Hard))
    return normalizer


# ── all choices ───────────────────────────────────────────────────────────────────────────────────


@dataclass
class Script:
    """Which place each query is to choose, [B H T], and what that was worth, as it is asked for step by step."""

    choices: Tensor
    real: Tensor  # [B T]: whose choice counts
    told: int = 0
    log_p: list[Tensor] = field(default_factory=list)
    entropy: list[Tensor] = field(default_factory=list)

    def next(self, steps: int) -> Tensor:
        self.told += steps
        return self.choices[:, :, self.told - steps : self.told, None]

    def heard(self, scores: Tensor, keep: Tensor | None, queries: Any = None) -> Tensor:
        """A hard normalizer written anew: softmax, the scripted choice, and nothing else."""
        seen = scores if keep is None else scores.masked_fill(~keep, -1e9)
        p = seen.softmax(-1)
        chosen = self.next(scores.shape[2])
        real = self.real[:, None, self.told - scores.shape[2] : self.told]
        self.log_p.append((p.gather(-1, chosen)[..., 0].log() * real).sum())
        self.entropy.append((-(p * p.clamp(min=1e-300).log()).sum(-1) * real).sum())
        return torch.zeros_like(p).scatter(-1, chosen, 1.0)


def scripts(model: Model, batch: Batch, name: str) -> Iterator[Script]:
    """One for each way to choose. A query has as many ways as it sees places; padding has one."""
    queries = batch.source if name.startswith("encoder") else batch.inputs
    assert queries is not None
    real = torch.ones(queries.values.shape, dtype=torch.bool) if queries.keep is None else queries.keep
    to_itself = name.startswith("transformer, to itself")
    places = (
        batch.source.keep.sum(1).tolist()
        if batch.source.keep is not None
        else [batch.source.values.shape[1]] * len(real)
    )
    heads = 2 if "two heads" in name else 1
    ways = [
        range((t + 1 if to_itself else places[row]) if real[row, t] else 1)
        for row, _, t in itertools.product(range(len(real)), range(heads), range(real.shape[1]))
    ]
    for chosen in itertools.product(*ways):
        yield Script(torch.tensor(chosen).view(len(real), heads, -1), real)


def gradients(model: Model) -> Tensor:
    """All gradients in one long vector."""
    return torch.cat([(torch.zeros_like(w) if w.grad is None else w.grad).flatten() for w in model.parameters()])


def in_words(model: Model, long: Tensor) -> dict[str, float]:
    """The largest number of the vector for each weight, for messages."""
    sizes = [weight.numel() for weight in model.parameters()]
    names = [name for name, _ in model.named_parameters()]
    return {name: float(part.abs().max()) for name, part in zip(names, long.split(sizes), strict=True) if part.any()}


@dataclass(frozen=True)
class Tried:
    """One way to choose: how probable it is, what the estimator said, and what indecision was worth."""

    p: float
    estimate: Tensor
    entropy_gradient: Tensor


def exactly(model: Model, batch: Batch, name: str) -> Tensor:
    """The gradient of Σ p(choices) · cost(choices), all of it differentiated."""
    normalizer, expected, total = the_normalizer(model), torch.zeros((), dtype=torch.float64), 0.0
    for script in scripts(model, batch, name):
        normalizer.forward = script.heard
        hidden, target = teacher_forced_hidden(model, batch)
        cost, _ = model.head.loss(hidden, target, 0.0)
        p = torch.stack(script.log_p).sum().exp()
        expected, total = expected + p * cost, total + float(p.detach())
    del normalizer.forward
    assert total == pytest.approx(1, abs=1e-9), "not every way to choose was tried"
    model.zero_grad()
    expected.backward()
    return gradients(model)


def tried(model: Model, batch: Batch, name: str, baseline: float = 0.0, entropy: float = 0.0) -> list[Tried]:
    """What the real estimator says of each way to choose."""
    normalizer, found = the_normalizer(model), []
    for script in scripts(model, batch, name):
        normalizer.forward = script.heard
        teacher_forced_hidden(model, batch)
        del normalizer.forward
        model.zero_grad()
        torch.stack(script.entropy).sum().backward()
        of_entropy = gradients(model)
        again = Script(script.choices, script.real)
        normalizer.sample = lambda p, script=again: script.next(p.shape[2])
        normalizer.baseline.fill_(baseline)
        normalizer.baseline_ready.fill_(1.0)
        normalizer.entropy = entropy
        model.zero_grad()
        next_token(model, batch, 0.0).total.backward()
        del normalizer.sample
        found.append(Tried(float(torch.stack(script.log_p).sum().exp().detach()), gradients(model), of_entropy))
    return found


def mean(found: list[Tried]) -> Tensor:
    return torch.stack([one.p * one.estimate for one in found]).sum(0)


def variance(found: list[Tried]) -> float:
    middle = mean(found)
    return sum(one.p * float((one.estimate - middle).square().sum()) for one in found)


def same(model: Model, found: Tensor, wanted: Tensor) -> None:
    assert wanted.abs().max() > 1e-3, "nothing is learned: nothing was tested"
    off = found - wanted
    assert off.abs().max() < 1e-9, f"off by {in_words(model, off.where(off.abs() > 1e-9, 0))}"


# ── the mean ──────────────────────────────────────────────────────────────────────────────────────


@every_model
@pytest.mark.parametrize("rows", [one_row, two_rows])
def test_the_mean_of_the_estimator_is_the_gradient_of_the_expected_cost(
    name: str, rows: Callable[[str], Batch]
) -> None:
    model, batch = tiny(name), rows(name)
    wanted = exactly(model, batch, name)
    same(model, mean(tried(model, batch, name)), wanted)
    same(model, mean(tried(model, batch, name, baseline=2.3)), wanted)


@every_model
def test_without_the_wager_the_mean_is_another(name: str) -> None:
    """The choice itself teaches: without its reward the score would learn nothing at all."""
    model, batch = tiny(name), one_row(name)
    wanted = exactly(model, batch, name)
    the_normalizer(model).reward = 0.0
    off = (mean(tried(model, batch, name)) - wanted).abs().max()
    assert off > 1e-3


@every_model
def test_a_reward_scales_what_the_choice_learns(name: str) -> None:
    model, batch = tiny(name), one_row(name)
    means = []
    for reward in (0.0, 0.3, 1.0):
        the_normalizer(model).reward = reward
        means.append(mean(tried(model, batch, name)))
    nothing, some, whole = means
    torch.testing.assert_close(some, nothing + 0.3 * (whole - nothing))


@every_model
def test_a_sensible_baseline_quiets_the_estimator(name: str) -> None:
    model, batch = tiny(name), one_row(name)
    normalizer = the_normalizer(model)
    tried(model, batch, name)
    normalizer.baseline_ready.fill_(0.0)
    next_token(model, batch, 0.0)
    usual = float(normalizer.baseline)  # what it learns by itself
    assert usual > 0.5
    noise = {baseline: variance(tried(model, batch, name, baseline)) for baseline in (0.0, usual, -5.0)}
    assert noise[usual] < noise[0.0] < noise[-5.0]


@every_model
@pytest.mark.parametrize("rows", [one_row, two_rows])
def test_the_entropy_of_real_places_is_paid_for(name: str, rows: Callable[[str], Batch]) -> None:
    model, batch = tiny(name), rows(name)
    without, paid = (tried(model, batch, name, entropy=entropy) for entropy in (0.0, 0.7))
    assert any(one.entropy_gradient.abs().max() > 1e-3 for one in paid)
    for before, after in zip(without, paid, strict=True):
        torch.testing.assert_close(after.estimate - before.estimate, -0.7 * after.entropy_gradient)


# ── around it ─────────────────────────────────────────────────────────────────────────────────────


def settle(normalizer: Hard, cost: float) -> None:
    normalizer.policy_loss(
        torch.zeros(1, 1, 1, 2), torch.tensor([[cost]]), torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool)
    )


def test_the_baseline_is_a_moving_mean_whose_first_counts_in_full() -> None:
    normalizer = Hard(baseline_decay=0.75)
    settle(normalizer, 8.0)
    assert normalizer.baseline.item() == 8.0
    settle(normalizer, 4.0)
    assert normalizer.baseline.item() == 0.75 * 8 + 0.25 * 4
    settle(normalizer, 7.0)
    assert normalizer.baseline.item() == 0.75 * 7 + 0.25 * 7


def test_without_a_memory_the_baseline_is_the_last_cost() -> None:
    normalizer = Hard(baseline_decay=0.0)
    for cost in (8.0, 4.0):
        settle(normalizer, cost)
        assert normalizer.baseline.item() == cost


def test_the_baseline_is_a_mean_over_tokens() -> None:
    """Two choices: one is followed by three tokens of a cost of 6, the other by one token of a cost of 4."""
    normalizer, keep = Hard(), torch.tensor([[True, True, False]])
    normalizer.policy_loss(
        torch.zeros(1, 1, 3, 2), torch.tensor([[6.0, 4.0, 99.0]]), torch.tensor([[3.0, 1.0, 5.0]]), keep
    )
    assert normalizer.baseline.item() == (6 + 4) / (3 + 1)


def test_the_baseline_is_saved_and_resumed(tmp_path: Path) -> None:
    name = "recurrent, before"
    first, second = tiny(name), tiny(name)
    next_token(first, one_row(name), 0.0)
    assert the_normalizer(first).baseline.item() > 0
    assert {"decoder.cross.normalizer.baseline", "decoder.cross.normalizer.baseline_ready"} <= first.state_dict().keys()
    write_checkpoint(tmp_path / "checkpoint", first, {}, None)
    load_weights(second, tmp_path / "checkpoint")
    for buffer in ("baseline", "baseline_ready"):
        assert torch.equal(getattr(the_normalizer(first), buffer), getattr(the_normalizer(second), buffer))


@pytest.mark.parametrize("use", [lambda model: model.eval(), lambda model: model.train()], ids=["eval", "no gradients"])
def test_in_use_nothing_is_wagered(use: Callable[[Model], Any]) -> None:
    model = tiny("recurrent, before")
    use(model)
    with torch.set_grad_enabled(not model.training):
        loss = next_token(model, one_row(""), 0.0)
    assert set(loss.shown) == {"cost"}
    assert the_normalizer(model).baseline_ready.item() == 0


def test_what_a_choice_costs_is_what_follows_it() -> None:
    """A decoder's first choice answers for all tokens, its last for one; an encoder's for all of its row."""
    costs: dict[str, list[Tensor]] = {}
    for name in ("recurrent, before", "encoder, to itself"):
        model, batch = tiny(name), PADDED.batch([0, 1])
        normalizer, settled = the_normalizer(model), costs.setdefault(name, [])
        normalizer.policy_loss = lambda wager, cost, count, keep, settled=settled: (
            settled.extend([cost, count, keep]) or wager.sum()
        )
        hidden, target = teacher_forced_hidden(model.eval(), batch)
        normalizer.sample = lambda p: p.argmax(-1, keepdim=True)  # as in use, so that costs are those of `eval`
        next_token(model.train(), batch, 0.0)
        _, each = model.head.loss(hidden, target, 0.0)
        costs[name].append(each)
    cost, count, keep, (a, b, c) = costs["recurrent, before"]
    torch.testing.assert_close(cost[keep], torch.stack([a + b, b, c]).detach())
    assert count[keep].tolist() == [2, 1, 1]
    cost, count, keep, (a, b, c) = costs["encoder, to itself"]
    torch.testing.assert_close(cost[keep], torch.stack([a + b, a + b, c]).detach())
    assert count[keep].tolist() == [2, 2, 1]
