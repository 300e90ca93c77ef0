"""The REINFORCE gradient of hard attention, checked exactly: on tiny models every sequence of choices is enumerated, so
the expectation of the estimator is known. It must equal the gradient of the expected cost."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from contracts.checks.common import perturbed
from saccade.config import python_layer, resolve
from saccade.data.batches import Batch, Corpus
from saccade.inputs import Tokens
from saccade.models.assemble import Model, ModelConfig, assemble
from saccade.parts import Hard
from saccade.runs.weights import load_weights, write_checkpoint
from saccade.tasks.losses import next_token_loss, teacher_forced_hidden

pytestmark = pytest.mark.usefixtures("without_shape_checks")

WORDS, DIM = 7, 4
HARD: dict[str, Any] = {"kind": "hard", "entropy_weight": 0.0}
ONE_HEAD = {"heads": 1, "normalizer": "softmax"}
RECURRENT = {"kind": "recurrent"}


def stacked(**mixers: Any) -> dict[str, Any]:
    block = {"self": ONE_HEAD, "cross": ONE_HEAD, "feed_forward": {"inner": 3}} | mixers
    return {"kind": "stacked", "depth": 1, "block": block}


# encoder and decoder of each model. Exactly one of its attentions is hard; the name says which.
MODELS: dict[str, dict[str, Any]] = {
    "recurrent, before": {
        "encoder": RECURRENT,
        "decoder": RECURRENT | {"cross": {"score": "additive", "normalizer": HARD}},
    },
    "recurrent, after, input feeding": {
        "encoder": RECURRENT,
        "decoder": RECURRENT
        | {
            "cell": "lstm",
            "attend": "after",
            "input_feeding": True,
            "cross": {"score": "multiplicative", "normalizer": HARD},
        },
    },
    "recurrent, coverage": {
        "encoder": RECURRENT,
        "decoder": RECURRENT | {"cross": {"score": "additive", "normalizer": HARD, "coverage": True}},
    },
    "transformer, cross-attention": {
        "encoder": stacked(),
        "decoder": stacked(cross={"heads": 1, "normalizer": HARD}),
    },
    "transformer, cross-attention, two heads": {
        "encoder": stacked(),
        "decoder": stacked(cross={"heads": 2, "normalizer": HARD}),
    },
    "transformer, decoder self-attention": {
        "encoder": stacked(),
        "decoder": stacked(self={"heads": 1, "normalizer": HARD}),
    },
    "encoder self-attention": {"encoder": stacked(self={"heads": 1, "normalizer": HARD}), "decoder": RECURRENT},
    "encoder self-attention, two heads": {
        "encoder": stacked(self={"heads": 2, "normalizer": HARD}),
        "decoder": stacked(),
    },
}
every_model = pytest.mark.parametrize("name", MODELS)

# sources and targets; the end symbol is added to each
PADDED = Corpus([[4], []], [[5], []])


def one_row(name: str) -> Batch:
    """Three source and two target positions; two source positions where there would be too many choices to
    enumerate."""
    many_choices = name.startswith("encoder") or "two heads" in name
    return (Corpus([[4]], [[5]]) if many_choices else Corpus([[4, 5]], [[6]])).batch([0])


def two_rows(name: str) -> Batch:
    """Two rows, one of them with padding in source and target."""
    return PADDED.batch([0, 1])


def tiny(name: str) -> Model:
    config = resolve(ModelConfig, [python_layer(MODELS[name] | {"dim": DIM, "dropout": NO_DROPOUT})]).config
    torch.manual_seed(3)
    return perturbed(assemble(config, Tokens(WORDS), WORDS), by=0.5).double().train()


NO_DROPOUT = {"residual": 0.0, "embedding": 0.0}


def hard_normalizer(model: Model) -> Hard:
    (normalizer,) = (part for part in model.modules() if isinstance(part, Hard))
    return normalizer


# ── enumeration of all choices ────────────────────────────────────────────────────────────────────


@dataclass
class Script:
    """Prescribed choices of a hard attention: replaces its sampling, and records log-probability and entropy."""

    choices: Tensor  # [B H T]: the index of the key that each query chooses
    real: Tensor  # [B T]: False = padding, whose choices do not count
    used: int = 0  # choices are requested step by step: the number of steps so far
    log_p: list[Tensor] = field(default_factory=list)
    entropy: list[Tensor] = field(default_factory=list)

    def next(self, steps: int) -> Tensor:
        self.used += steps
        return self.choices[:, :, self.used - steps : self.used, None]

    def forward(self, scores: Tensor, keep: Tensor | None, queries: Any = None) -> Tensor:
        """An independent implementation of `Hard.forward`: softmax, then the prescribed choice."""
        visible = scores if keep is None else scores.masked_fill(~keep, -1e9)
        p = visible.softmax(-1)
        chosen = self.next(scores.shape[2])
        real = self.real[:, None, self.used - scores.shape[2] : self.used]
        self.log_p.append((p.gather(-1, chosen)[..., 0].log() * real).sum())
        self.entropy.append((-(p * p.clamp(min=1e-300).log()).sum(-1) * real).sum())
        return torch.zeros_like(p).scatter(-1, chosen, 1.0)


def scripts(model: Model, batch: Batch, name: str) -> Iterator[Script]:
    """All sequences of choices. A query can choose any visible key; a padding query has one arbitrary choice."""
    queries = batch.source if name.startswith("encoder") else batch.inputs
    assert queries is not None
    real = torch.ones(queries.values.shape, dtype=torch.bool) if queries.keep is None else queries.keep
    is_causal = name == "transformer, decoder self-attention"
    source_lengths = (
        batch.source.keep.sum(1).tolist()
        if batch.source.keep is not None
        else [batch.source.values.shape[1]] * len(real)
    )
    heads = 2 if "two heads" in name else 1
    options = [
        range((t + 1 if is_causal else source_lengths[row]) if real[row, t] else 1)
        for row, _, t in itertools.product(range(len(real)), range(heads), range(real.shape[1]))
    ]
    for choices in itertools.product(*options):
        yield Script(torch.tensor(choices).view(len(real), heads, -1), real)


def gradients(model: Model) -> Tensor:
    """The gradients of all parameters, concatenated."""
    return torch.cat([(torch.zeros_like(w) if w.grad is None else w.grad).flatten() for w in model.parameters()])


def largest_by_name(model: Model, vector: Tensor) -> dict[str, float]:
    """The largest absolute entry per parameter of a vector as returned by `gradients`, for messages."""
    sizes = [weight.numel() for weight in model.parameters()]
    names = [name for name, _ in model.named_parameters()]
    return {name: float(part.abs().max()) for name, part in zip(names, vector.split(sizes), strict=True) if part.any()}


@dataclass(frozen=True)
class ChoiceResult:
    """One sequence of choices: its probability, the estimator's gradient, and the gradient of the entropy."""

    probability: float
    estimate: Tensor
    entropy_gradient: Tensor


def exact_gradient(model: Model, batch: Batch, name: str) -> Tensor:
    """The gradient of the expected cost Σ p(choices) · cost(choices), by autograd through p and cost."""
    normalizer, expected_cost, total_p = hard_normalizer(model), torch.zeros((), dtype=torch.float64), 0.0
    for script in scripts(model, batch, name):
        normalizer.forward = script.forward
        hidden, target = teacher_forced_hidden(model, batch)
        cost, _ = model.head.loss(hidden, target)
        p = torch.stack(script.log_p).sum().exp()
        expected_cost, total_p = expected_cost + p * cost, total_p + float(p.detach())
    del normalizer.forward
    assert total_p == pytest.approx(1, abs=1e-9), "some choices were not enumerated"
    model.zero_grad()
    expected_cost.backward()
    return gradients(model)


def estimates(
    model: Model, batch: Batch, name: str, baseline: float = 0.0, entropy_weight: float = 0.0
) -> list[ChoiceResult]:
    """The gradient of the real training loss for each sequence of choices."""
    normalizer, results = hard_normalizer(model), []
    for script in scripts(model, batch, name):
        normalizer.forward = script.forward
        teacher_forced_hidden(model, batch)
        del normalizer.forward
        model.zero_grad()
        torch.stack(script.entropy).sum().backward()
        entropy_gradient = gradients(model)
        replay = Script(script.choices, script.real)
        normalizer.sample = lambda p, script=replay: script.next(p.shape[2])
        normalizer.baseline.fill_(baseline)
        normalizer.baseline_ready.fill_(1.0)
        normalizer.entropy_weight = entropy_weight
        model.zero_grad()
        next_token_loss(model, batch).total.backward()
        del normalizer.sample
        probability = float(torch.stack(script.log_p).sum().exp().detach())
        results.append(ChoiceResult(probability, gradients(model), entropy_gradient))
    return results


def mean(results: list[ChoiceResult]) -> Tensor:
    return torch.stack([result.probability * result.estimate for result in results]).sum(0)


def variance(results: list[ChoiceResult]) -> float:
    center = mean(results)
    return sum(result.probability * float((result.estimate - center).square().sum()) for result in results)


def assert_same_gradient(model: Model, actual: Tensor, expected: Tensor) -> None:
    assert expected.abs().max() > 1e-3, "the gradient is zero, so the comparison would test nothing"
    error = actual - expected
    assert error.abs().max() < 1e-9, f"off by {largest_by_name(model, error.where(error.abs() > 1e-9, 0))}"


# ── mean and variance of the estimator ────────────────────────────────────────────────────────────


@every_model
@pytest.mark.parametrize("rows", [one_row, two_rows])
def test_mean_of_the_estimator_is_the_gradient_of_the_expected_cost(name: str, rows: Callable[[str], Batch]) -> None:
    model, batch = tiny(name), rows(name)
    expected = exact_gradient(model, batch, name)
    assert_same_gradient(model, mean(estimates(model, batch, name)), expected)
    assert_same_gradient(model, mean(estimates(model, batch, name, baseline=2.3)), expected)


@every_model
def test_without_policy_loss_the_estimator_is_biased(name: str) -> None:
    """With policy_weight = 0 only the direct path through the chosen values has a gradient, and the score has none."""
    model, batch = tiny(name), one_row(name)
    expected = exact_gradient(model, batch, name)
    hard_normalizer(model).policy_weight = 0.0
    error = (mean(estimates(model, batch, name)) - expected).abs().max()
    assert error > 1e-3


@every_model
def test_policy_weight_scales_the_policy_gradient(name: str) -> None:
    model, batch = tiny(name), one_row(name)
    means = []
    for policy_weight in (0.0, 0.3, 1.0):
        hard_normalizer(model).policy_weight = policy_weight
        means.append(mean(estimates(model, batch, name)))
    zero, partial, full = means
    torch.testing.assert_close(partial, zero + 0.3 * (full - zero))


@pytest.mark.slow
@every_model
def test_learned_baseline_reduces_the_variance_of_the_estimator(name: str) -> None:
    model, batch = tiny(name), one_row(name)
    normalizer = hard_normalizer(model)
    estimates(model, batch, name)
    normalizer.baseline_ready.fill_(0.0)
    next_token_loss(model, batch)
    learned = float(normalizer.baseline)
    assert learned > 0.5
    variances = {baseline: variance(estimates(model, batch, name, baseline)) for baseline in (0.0, learned, -5.0)}
    assert variances[learned] < variances[0.0] < variances[-5.0]


@every_model
@pytest.mark.parametrize("rows", [one_row, two_rows])
def test_entropy_bonus_counts_positions_that_are_not_padding(name: str, rows: Callable[[str], Batch]) -> None:
    model, batch = tiny(name), rows(name)
    without_bonus, with_bonus = (estimates(model, batch, name, entropy_weight=weight) for weight in (0.0, 0.7))
    assert any(result.entropy_gradient.abs().max() > 1e-3 for result in with_bonus)
    for without, result in zip(without_bonus, with_bonus, strict=True):
        torch.testing.assert_close(result.estimate - without.estimate, -0.7 * result.entropy_gradient)


# ── the baseline, and when nothing is sampled ─────────────────────────────────────────────────────


def update_baseline(normalizer: Hard, cost: float) -> None:
    """One update with a single token of this cost."""
    normalizer.policy_loss(
        torch.zeros(1, 1, 1, 2), torch.tensor([[cost]]), torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool)
    )


def test_baseline_is_a_moving_average_that_starts_at_the_first_mean() -> None:
    normalizer = Hard(baseline_decay=0.75)
    update_baseline(normalizer, 8.0)
    assert normalizer.baseline.item() == 8.0
    update_baseline(normalizer, 4.0)
    assert normalizer.baseline.item() == 0.75 * 8 + 0.25 * 4
    update_baseline(normalizer, 7.0)
    assert normalizer.baseline.item() == 0.75 * 7 + 0.25 * 7


def test_baseline_with_decay_zero_is_the_last_cost() -> None:
    normalizer = Hard(baseline_decay=0.0)
    for cost in (8.0, 4.0):
        update_baseline(normalizer, cost)
        assert normalizer.baseline.item() == cost


def test_baseline_averages_over_tokens_that_are_not_padding() -> None:
    """Two choices: the first influences three tokens with a total cost of 6, the second one token with a cost of 4."""
    normalizer, keep = Hard(), torch.tensor([[True, True, False]])
    normalizer.policy_loss(
        torch.zeros(1, 1, 3, 2), torch.tensor([[6.0, 4.0, 99.0]]), torch.tensor([[3.0, 1.0, 5.0]]), keep
    )
    assert normalizer.baseline.item() == (6 + 4) / (3 + 1)


def test_baseline_is_saved_in_checkpoints(tmp_path: Path) -> None:
    name = "recurrent, before"
    first, second = tiny(name), tiny(name)
    next_token_loss(first, one_row(name))
    assert hard_normalizer(first).baseline.item() > 0
    assert {"decoder.cross.normalizer.baseline", "decoder.cross.normalizer.baseline_ready"} <= first.state_dict().keys()
    write_checkpoint(tmp_path / "checkpoint", first, {}, None)
    load_weights(second, tmp_path / "checkpoint")
    for buffer in ("baseline", "baseline_ready"):
        assert torch.equal(getattr(hard_normalizer(first), buffer), getattr(hard_normalizer(second), buffer))


@pytest.mark.parametrize("use", [lambda model: model.eval(), lambda model: model.train()], ids=["eval", "no gradients"])
def test_without_training_there_is_no_policy_loss(use: Callable[[Model], Any]) -> None:
    model = tiny("recurrent, before")
    use(model)
    with torch.set_grad_enabled(not model.training):
        loss = next_token_loss(model, one_row(""))
    assert set(loss.logged) == {"cost"}
    assert hard_normalizer(model).baseline_ready.item() == 0


def test_cost_of_a_choice_is_that_of_all_tokens_it_can_influence() -> None:
    """A choice of the decoder influences the tokens from its own position on, one of the encoder the whole row."""
    costs: dict[str, list[Tensor]] = {}
    for name in ("recurrent, before", "encoder self-attention"):
        model, batch = tiny(name), PADDED.batch([0, 1])
        normalizer, arguments = hard_normalizer(model), costs.setdefault(name, [])
        normalizer.policy_loss = lambda sampled, cost, count, keep, arguments=arguments: (
            arguments.extend([cost, count, keep]) or sampled.sum()
        )
        hidden, target = teacher_forced_hidden(model.eval(), batch)
        normalizer.sample = lambda p: p.argmax(-1, keepdim=True)  # as in evaluation, so that both passes choose alike
        next_token_loss(model.train(), batch)
        _, token_costs = model.head.loss(hidden, target)
        costs[name].append(token_costs)
    cost, count, keep, (a, b, c) = costs["recurrent, before"]
    torch.testing.assert_close(cost[keep], torch.stack([a + b, b, c]).detach())
    assert count[keep].tolist() == [2, 1, 1]
    cost, count, keep, (a, b, c) = costs["encoder self-attention"]
    torch.testing.assert_close(cost[keep], torch.stack([a + b, a + b, c]).detach())
    assert count[keep].tolist() == [2, 2, 1]
