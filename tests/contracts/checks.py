"""The contracts, as plain functions that raise AssertionError where a promise is broken.

`test_*.py` beside this file hold every member of every table to them; `test_planted.py` shows that each of them fails
on a defect it should catch.
"""

import copy
import itertools
import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import create_model
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from contracts.variants import B, D, S, T, Table, options
from saccade.config import Config, Slot, python_layer, resolve, to_toml, wiring
from saccade.data import batches, tokenizers
from saccade.data.batches import Batch, Corpus, SamplerState
from saccade.data.tokenizers import END, PAD, SPECIAL, START, UNKNOWN, Tokenizer
from saccade.decode.loops import ScoredTokens
from saccade.decode.rules import Constraints
from saccade.decode.search import Search
from saccade.decode.torch_engine import UnfusedModel
from saccade.errors import BuildError, SaccadeError
from saccade.models.assemble import Model
from saccade.notes import capture
from saccade.parts import Hard, MultiHead, Unprojected
from saccade.parts.mixers.attend import KeyValueCache, MemoryKeys
from saccade.parts.mixers.unprojected import CoverageState
from saccade.places import Memory, PerSentence, Places, select
from saccade.runs.weights import load_weights, write_checkpoint
from saccade.tasks.losses import next_token

SOURCE_LENGTHS, TARGET_LENGTHS = (S, 3, 1), (T, 4, 1)
STEPS = ((0, 3), (3, 4), (4, 5), (5, 7))  # a forced prefix, two single steps, a chunk


def shaken(module: nn.Module, seed: int = 0, by: float = 0.3) -> Any:
    """The module with all weights perturbed, so that nothing holds only because a bias is zero or a gain one."""
    dice = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight += by * torch.randn(weight.shape, generator=dice)
    return module


def close(found: Tensor, wanted: Tensor, what: str, tolerance: float = 1e-4) -> None:
    assert found.shape == wanted.shape, f"{what}: {tuple(found.shape)} is not {tuple(wanted.shape)}"
    bad = ~torch.isclose(found, wanted, rtol=tolerance, atol=tolerance)
    assert not bad.any(), f"{what}: {int(bad.sum())} numbers differ, by up to {(found - wanted).abs().max():.2g}"


def differs(found: Tensor, other: Tensor, what: str) -> None:
    assert not torch.allclose(found, other, rtol=1e-3, atol=1e-3), f"{what} makes no difference: nothing was tested"


# ── what a model is shown ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Shown:
    """Three sources and three targets of different lengths."""

    source: Tensor
    source_keep: Tensor | None
    target: Tensor
    target_keep: Tensor | None

    def at(self, rows: Sequence[int]) -> "Shown":
        rows = list(rows)
        return Shown(self.source[rows], _rows(self.source_keep, rows), self.target[rows], _rows(self.target_keep, rows))

    def alone(self, row: int) -> "Shown":
        """A row without its padding."""
        source, target = SOURCE_LENGTHS[row], TARGET_LENGTHS[row]
        return Shown(self.source[[row], :source], None, self.target[[row], :target], None)


def _rows(keep: Tensor | None, rows: Sequence[int]) -> Tensor | None:
    return None if keep is None else keep[list(rows)]


def keeps(lengths: Sequence[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def vocabularies(model: Model) -> tuple[int, int]:
    """How many words each side knows, as the variant that made the model wrote it down."""
    return model.words


def shown(model: Model, seed: int = 0) -> Shown:
    dice = torch.Generator().manual_seed(seed)
    source, target = (
        torch.randint(len(SPECIAL), words, shape, generator=dice)
        for words, shape in zip(vocabularies(model), ((B, S), (B, T)), strict=True)
    )
    return Shown(source, keeps(SOURCE_LENGTHS), target, keeps(TARGET_LENGTHS))


@dataclass(frozen=True)
class Answer:
    """What a model made of it."""

    memory: Memory
    hidden: Tensor
    maps: dict[str, Tensor]


def answer(model: Model, given: Shown, listening: bool = False) -> Answer:
    with capture(model) if listening else nullcontext({}) as maps:
        memory = model.encoder.encode(given.source, given.source_keep)
        state = model.decoder.start(memory, given.target.shape[0])
        hidden, _ = model.decoder.step(given.target, state, given.target_keep)
        return Answer(memory, hidden, dict(maps))


def draws(part: nn.Module) -> bool:
    """Whether something in it chooses by lot while training."""
    return any(isinstance(inner, Hard) for inner in part.modules())


@contextmanager
def steady(model: nn.Module) -> Iterator[None]:
    """What is drawn by lot is not the same twice: here it is the likeliest, and baselines stay where they are."""
    normalizers = [part for part in model.modules() if isinstance(part, Hard)]
    for normalizer in normalizers:
        normalizer.sample = lambda p: p.argmax(-1, keepdim=True)
        normalizer._remember = lambda cost, count: None
    try:
        yield
    finally:
        for normalizer in normalizers:
            del normalizer.sample, normalizer._remember


def looks(model: Model) -> bool:
    """Whether there is any attention in it."""
    return any(isinstance(inner, (MultiHead, Unprojected)) for inner in model.modules())


def keys_of(name: str) -> str:
    """Which side an attention looks at follows from its name."""
    return "source" if name.startswith("encoder.") or name.partition("@")[0].endswith(".cross") else "target"


def queries_of(name: str) -> str:
    return "source" if name.startswith("encoder.") else "target"


# ── models ────────────────────────────────────────────────────────────────────────────────────────


def check_shapes(model: Model) -> None:
    """Every annotation holds in training and in use, heard or not, padded, unpadded or alone, and for hypotheses that
    share a memory: here they are checked on every path, so that other contracts need not check them again."""
    given = shown(model)
    kinds = (given, Shown(given.source, None, given.target, None), given.alone(1))
    for listening, kind in itertools.product((True, False), kinds):
        answer(model.train(not listening), kind, listening)
    found = answer(model.eval(), given)
    _, state = model.decoder.step(given.target[:, :3], model.decoder.start(found.memory, B))
    for rows in ([0, 0, 1, 1, 2, 2], [1, 0, 2, 2, 5, 4]):
        tokens = given.target[[0, 0, 1, 1, 2, 2], 3:4]
        hidden, state = model.decoder.step(tokens, select(state, torch.tensor(rows)))
        assert hidden.shape == (2 * B, 1, D)
    words = vocabularies(model)[1]
    states = found.memory.states
    assert (states.shape[0], states.shape[2]) == (B, D)
    assert found.memory.places.keep.shape == found.memory.places.at.shape == states.shape[:2]
    assert found.hidden.shape == (B, T, D)
    log_probs = model.head.log_probs(found.hidden)
    assert log_probs.shape == (B, T, words)
    close(log_probs.exp().sum(-1), torch.ones(B, T), "probabilities sum to one")


def check_gradients(model: Model) -> None:
    """Every weight hears from the loss, and what it hears is a number."""
    model.train().zero_grad()
    next_token(model, corpus_for(model).batch(range(4)), 0.1).total.backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, f"{name} hears nothing"
        assert weight.grad.isfinite().all(), f"{name} hears NaN"
        assert weight.grad.any(), f"{name} hears only zeros"


def check_save_and_load(make: Callable[[int], Model], folder: Path) -> None:
    saved, loaded = shaken(make(1)).eval(), make(2).eval()
    given = shown(saved)
    wanted = answer(saved, given)
    differs(answer(loaded, given).hidden, wanted.hidden, "another seed")
    write_checkpoint(folder / "checkpoint", saved, {}, None)
    load_weights(loaded, folder / "checkpoint")
    found = answer(loaded, given)
    assert torch.equal(found.hidden, wanted.hidden), "a loaded model is another model"
    log_probs = [model.head.log_probs(found.hidden) for model in (saved, loaded)]
    assert torch.equal(*log_probs), "a loaded head is another head"


def check_causal(model: Model) -> None:
    """Change the future: the past stays still."""
    model.eval()
    given = shown(model)
    words = vocabularies(model)[1]
    other = given.target.clone()
    other[:, 5:] = (other[:, 5:] + 1) % words
    for listening, keep in itertools.product((False, True), (None, keeps((T, 6, T)))):
        before, after = (
            answer(model, Shown(given.source, given.source_keep, target, keep), listening).hidden
            for target in (given.target, other)
        )
        close(before[:, :5], after[:, :5], "the past, when the future changes")
        differs(before[:, 5], after[:, 5], "a changed token")


def check_blind_to_padding(model: Model) -> None:
    """A row of a padded batch is what it is alone: states, hidden states and attention, in training too."""
    given = shown(model)
    noise = Shown(
        given.source.masked_fill(~keeps(SOURCE_LENGTHS), UNKNOWN),
        given.source_keep,
        given.target.masked_fill(~keeps(TARGET_LENGTHS), UNKNOWN),
        given.target_keep,
    )
    for training, listening in itertools.product((False, True), (False, True)):
        model.train(training)
        with steady(model), torch.set_grad_enabled(training):
            together = [answer(model, padded, listening) for padded in (given, noise)]
            alone = [answer(model, given.alone(row), listening) for row in range(B)]
        for found, row in itertools.product(together, range(B)):
            same_row(found, row, alone[row])


def same_row(together: Answer, row: int, alone: Answer) -> None:
    states, hidden = alone.memory.states[0], alone.hidden[0]
    close(together.memory.states[row, : len(states)], states, f"the memory of row {row}")
    close(together.memory.summary[row], alone.memory.summary[0], f"the summary of row {row}")
    close(together.hidden[row, : len(hidden)], hidden, f"the hidden states of row {row}")
    for name, wanted in alone.maps.items():
        queries, keys = wanted.shape[-2:]
        close(together.maps[name][row, :, :queries, :keys], wanted[0], f"{name} of row {row}")
        assert not together.maps[name][row, :, :queries, keys:].any(), f"{name} looks at padding"


def check_blind_to_batch_order(model: Model) -> None:
    model.eval()
    given, order = shown(model), [2, 0, 1]
    for listening in (False, True):
        straight, mixed = answer(model, given, listening), answer(model, given.at(order), listening)
        close(mixed.hidden, straight.hidden[order], "rows in another order")
        for name, weights in mixed.maps.items():
            close(weights, straight.maps[name][order], name)


def check_weights(model: Model) -> None:
    """Attention is a distribution over what may be seen; every map is called as its weights are."""
    model.eval()
    given = shown(model)
    maps = answer(model, given, listening=True).maps
    names = dict(model.named_modules())
    assert not looks(model) or any(keys_of(name) == "source" for name in maps), "nothing looks at the source"
    real = {"source": keeps(SOURCE_LENGTHS), "target": keeps(TARGET_LENGTHS)}
    for name, weights in maps.items():
        assert name.partition("@")[0] in names, f"{name} is not the name of a part"
        queries, keys = real[queries_of(name)], real[keys_of(name)]
        may_look = keys[:, None, None, :].expand_as(weights)
        if queries_of(name) == keys_of(name) == "target":
            may_look = may_look & torch.ones(T, T, dtype=torch.bool).tril()
        assert (weights >= 0).all(), f"{name} has weights below zero"
        assert not weights[~may_look & queries[:, None, :, None]].any(), f"{name} looks at what is hidden"
        sums = weights.sum(-1).transpose(1, 2)[queries]
        close(sums, torch.ones_like(sums), f"the weights of {name} sum to one")


def check_step_by_step(model: Model) -> None:
    """A prefix, single steps and a chunk give what one long step gives."""
    model.eval()
    given = shown(model)
    memory = model.encoder.encode(given.source, given.source_keep)
    whole, last = model.decoder.step(given.target, model.decoder.start(memory, B))
    for listening in (False, True):
        with capture(model) if listening else nullcontext():
            state, pieces = model.decoder.start(memory, B), []
            for first, end in STEPS:
                hidden, state = model.decoder.step(given.target[:, first:end], state)
                pieces.append(hidden)
        close(torch.cat(pieces, 1), whole, "step by step")
    for found, wanted in zip(tensors(state), tensors(last), strict=True):
        close(found.float(), wanted.float(), "the state after all steps")


def check_capture_over_time(model: Model) -> None:
    """What is heard step by step is joined to the maps of one long step."""
    model.eval()
    given = shown(model)
    memory = model.encoder.encode(given.source, given.source_keep)
    heard = []
    for steps in (((0, T),), STEPS):
        with capture(model) as maps:
            state = model.decoder.start(memory, B)
            for first, end in steps:
                _, state = model.decoder.step(given.target[:, first:end], state)
            heard.append(dict(maps))
    whole, joined = heard
    assert joined.keys() == whole.keys()
    for name, weights in whole.items():
        close(joined[name], weights, name)


def check_fused_equals_explicit(model: Model) -> None:
    """Listening changes no result."""
    model.eval()
    given = shown(model)
    fused, explicit = answer(model, given), answer(model, given, listening=True)
    assert explicit.maps or not looks(model), "nobody spoke"
    real = fused.memory.places.keep
    close(fused.memory.states[real], explicit.memory.states[real], "the memory")
    close(fused.hidden[given.target_keep], explicit.hidden[given.target_keep], "the hidden states")


def check_nothing_to_look_at(model: Model) -> None:
    """A source that is all padding gives no NaN, forward or backward, on either path."""
    given, empty = shown(model), 2
    keep = keeps(SOURCE_LENGTHS)
    keep[empty] = False
    given = Shown(given.source, keep, given.target, given.target_keep)
    for listening in (False, True):
        model.train().zero_grad()
        found = answer(model, given, listening)
        assert found.hidden.isfinite().all(), "hidden states are NaN"
        for name, weights in found.maps.items():
            assert weights.isfinite().all(), f"{name} is NaN"
            if keys_of(name) == "source":
                assert not weights[empty].any(), f"{name} looks at nothing, yet has weights"
        (found.hidden.square().sum() + found.memory.states.square().sum()).backward()
        for name, weight in model.named_parameters():
            assert weight.grad is None or weight.grad.isfinite().all(), f"the gradient of {name} is NaN"


def check_select(model: Model) -> None:
    """Hypotheses move, sentences stay; the hypotheses of a sentence share its one row of memory."""
    model.eval()
    given = shown(model)
    memory = model.encoder.encode(given.source, given.source_keep)
    words = vocabularies(model)[1]

    alone = [model.encoder.encode(given.alone(row).source, None) for row in range(B)]

    def forced(sentence: int, tokens: Tensor) -> Tensor:
        state = model.decoder.start(alone[sentence], 1)
        return model.decoder.step(tokens[None], state)[0][0, -1]

    _, state = model.decoder.step(given.target[:, :4], model.decoder.start(memory, B))
    sentences, written = torch.arange(B), given.target[:, :4]
    moves = [
        (torch.tensor([0, 0, 1, 1, 2, 2]), None),  # a beam of two opens
        (torch.tensor([1, 0, 2, 2, 5, 4]), None),  # hypotheses swap, one takes another's place
        (torch.tensor([4, 5, 0, 1]), torch.tensor([2, 0])),  # sentences leave and change places
        (torch.tensor([2, 1]), torch.tensor([1, 0])),  # the beam closes
    ]
    for number, (rows, staying) in enumerate(moves):
        state = select(state, rows, staying)
        sentences, written = sentences[rows], written[rows]
        count = len(set(sentences.tolist()))
        for fixed in fixed_parts(state):
            assert {len(tensor) for tensor in tensors(fixed)} == {count}, "a memory has one row a sentence"
        tokens = (torch.arange(len(rows)) * 3 + number + len(SPECIAL)) % words
        written = torch.cat([written, tokens[:, None]], 1)
        hidden, state = model.decoder.step(tokens[:, None], state)
        for row, sentence in enumerate(sentences.tolist()):
            close(hidden[row, 0], forced(sentence, written[row]), f"hypothesis {row} after move {number}")


def check_state_matters(model: Model) -> None:
    """All that a state carries has a say in the next step: what nobody reads was forgotten on the way."""
    model.eval()
    given, dice = shown(model), torch.Generator().manual_seed(0)
    memory = model.encoder.encode(given.source, given.source_keep)
    _, state = model.decoder.step(given.target[:, :3], model.decoder.start(memory, B))
    wanted, _ = model.decoder.step(given.target[:, 3:4], state)
    for number, carried in enumerate(carried_by(state)):
        other = {id(old): old + 9 * torch.randn(old.shape, generator=dice) for old in carried}
        found, _ = model.decoder.step(given.target[:, 3:4], exchanged(state, other))
        differs(found, wanted, f"number {number} of the state, {[tuple(old.shape) for old in carried]},")


def carried_by(state: Any) -> Iterator[list[Tensor]]:
    """The numbers of a state. Keys and values go together: a value counts for nothing where its key is weak."""
    if isinstance(state, (Tensor, KeyValueCache, MemoryKeys)):
        if numbers := [tensor for tensor in tensors(state) if tensor.is_floating_point()]:
            yield numbers
    else:
        for inner in _inside(state):
            yield from carried_by(inner)


def exchanged(state: Any, other: Mapping[int, Tensor]) -> Any:
    """The state with other tensors in place of some."""
    if isinstance(state, Tensor):
        return other.get(id(state), state)
    if isinstance(state, Mapping):
        return {key: exchanged(value, other) for key, value in state.items()}
    if isinstance(state, tuple):
        return tuple(exchanged(value, other) for value in state)
    if is_dataclass(state) and not isinstance(state, type):
        return replace(state, **{f.name: exchanged(getattr(state, f.name), other) for f in fields(state)})
    return state


def check_coverage(model: Model) -> None:
    """What was covered is the sum of all weights so far, begins at nothing, and padding covers nothing."""
    model.eval()
    given = shown(model)
    memory = model.encoder.encode(given.source, given.source_keep)
    for steps, keep in ((STEPS, None), (((0, T),), given.target_keep)):
        with capture(model) as maps:
            state = model.decoder.start(memory, B)
            assert not any(covered.so_far.any() for covered in covered_parts(state)), "covered before the first look"
            for first, end in steps:
                _, state = model.decoder.step(given.target[:, first:end], state, keep)
        real = torch.ones(B, 1, T, 1) if keep is None else keep[:, None, :, None]
        looked = [(w * real).sum(2) for name, w in maps.items() if counts(model.get_submodule(name))]
        found = [covered.so_far for covered in covered_parts(state)]
        assert found, "nothing covers anything"
        for so_far, wanted in zip(found, looked, strict=True):
            close(so_far, wanted, "what was covered")
            assert (so_far.amax(-1) > 1.2).any(), "nothing was looked at twice: nothing was tested"


def counts(part: nn.Module) -> bool:
    return isinstance(part, Unprojected) and part.coverage_weight is not None


def covered_parts(state: Any) -> Iterator[CoverageState]:
    if isinstance(state, CoverageState):
        yield state
    else:
        for inner in _inside(state):
            yield from covered_parts(inner)


def fixed_parts(state: Any) -> Iterator[Any]:
    if isinstance(state, PerSentence):
        yield state.value
    else:
        for inner in _inside(state):
            yield from fixed_parts(inner)


def tensors(state: Any) -> list[Tensor]:
    if isinstance(state, Tensor):
        return [state]
    return [tensor for inner in _inside(state) for tensor in tensors(inner)]


def _inside(state: Any) -> list[Any]:
    if isinstance(state, Mapping):
        return list(state.values())
    if isinstance(state, tuple):
        return list(state)
    return [getattr(state, f.name) for f in fields(state)] if is_dataclass(state) else []


def corpus_for(model: Model) -> Corpus:
    dice = np.random.default_rng(5)
    drawn = [
        [dice.integers(len(SPECIAL), words, length).tolist() for length in lengths]
        for words, lengths in zip(vocabularies(model), ((2, 4, 1, 3), (5, 1, 2, 6)), strict=True)
    ]
    return Corpus(*drawn)


def check_losses_are_sums(model: Model) -> None:
    """A batch cut in two costs the same and teaches the same: only the loop may divide. The cost is −log p. While
    training that holds for all that parts add, too; in use they add nothing."""
    adding = {
        name for name, part in model.named_modules() if isinstance(part, Hard) or getattr(part, "coverage_loss", 0)
    }
    for part in model.modules():
        if isinstance(part, Hard):
            part.baseline.fill_(0.7)
    for training in (False, True) if adding else (False,):
        model.train(training)
        with steady(model):
            losses_are_sums(model, {"cost"} | (adding if training else set()))


def losses_are_sums(model: Model, names: set[str]) -> None:
    corpus = corpus_for(model)
    totals, counts, costs, gradients = [], [], [], []
    for parts in ([[0, 1, 2, 3]], [[2, 0], [3, 1]]):
        model.zero_grad()
        losses = [next_token(model, corpus.batch(rows), 0.1) for rows in parts]
        for loss in losses:
            loss.total.backward()
        for loss in losses:
            assert set(loss.shown) == names, f"{sorted(loss.shown)} are shown, not {sorted(names)}"
        totals.append(sum(loss.total.detach() for loss in losses))
        counts.append(sum(loss.count for loss in losses))
        costs.append(sum(loss.shown["cost"] for loss in losses))
        gradients.append({n: w.grad.clone() for n, w in model.named_parameters() if w.grad is not None})
    assert counts == [5 + 1 + 2 + 6 + 4] * 2, "the real target tokens and their ends are counted"
    close(totals[1], totals[0], "the loss of two halves")
    assert math.isclose(*costs, rel_tol=1e-4), "the cost of two halves"
    alone = [forced_log_prob(model, corpus.source(row), [*corpus.target(row), END]) for row in range(4)]
    assert math.isclose(costs[0], -sum(alone), rel_tol=1e-4), "the cost is not that of the targets"
    for name, gradient in gradients[0].items():
        scale = max(1.0, float(gradient.abs().max()))
        close(gradients[1][name] / scale, gradient / scale, f"the gradient of {name}")


def check_inference_leaves_no_trace(model: Model) -> None:
    """A long sentence read without gradients does not spoil training afterwards."""
    dice = torch.Generator().manual_seed(0)
    words = vocabularies(model)[0]
    with torch.inference_mode():
        long = torch.randint(len(SPECIAL), words, (1, 600), generator=dice)
        refused(lambda: model.encoder.encode(long, None))
    try:
        check_gradients(model)
    except RuntimeError as error:
        raise AssertionError("training is spoilt by what inference left") from error


def refused(act: Callable[[], Any]) -> bool:
    """Whether something is too long; then the error names the key."""
    try:
        act()
    except SaccadeError as limit:
        reason = str(limit)
    else:
        return False
    assert "position." in reason, "a limit of length names its key"
    return True


def check_precision(model: Model) -> None:
    """In double precision it is the same model: nothing on the way is rounded to float or left behind."""
    model.eval()
    given = shown(model)
    for listening in (False, True):
        rough, fine = answer(model.float(), given, listening), answer(model.double(), given, listening)
        assert fine.hidden.dtype == fine.memory.states.dtype == torch.float64, "rounded on the way"
        close(rough.hidden[given.target_keep].double(), fine.hidden[given.target_keep], "double precision")


def check_notes_before_dropout(model: Model) -> None:
    """What a model looked at is told whole, though training drops some of it. `model` drops attention."""
    model.train()
    for name, weights in answer(model, shown(model), listening=True).maps.items():
        sums = weights.sum(-1)[:, :, 0]  # the first place is always real
        close(sums, torch.ones_like(sums), name)


def check_dropout_rates_are_used(make: Callable[[dict[str, float]], Model], place: str) -> None:
    """Each rate of the config makes training random, and nothing else does."""
    for rate in (0.0, 0.5):
        model = shaken(make({place: rate}))
        given = shown(model)
        model.train()
        torch.manual_seed(1)
        once, again = answer(model, given).hidden, answer(model, given).hidden
        assert torch.equal(once, again) == (rate == 0), f"dropout.{place} = {rate} while training"
        model.eval()
        assert torch.equal(answer(model, given).hidden, answer(model, given).hidden), "dropout in use"


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────


def check_mixer(make: Callable[[bool], nn.Module]) -> None:
    """Both verbs, alone and with a memory; a row that may look at nothing gives zeros."""
    dice = torch.Generator().manual_seed(0)
    x, states = torch.randn(B, T, D, generator=dice), torch.randn(B, S, D, generator=dice)
    for causal in (False, True):
        mixer = shaken(make(causal)).eval()
        y, state = mixer(x, Places.of(x, None), mixer.start(None, B))
        assert y.shape == x.shape
        later, _ = mixer(x[:, :2], Places.of(x[:, :2], None, torch.full((B,), T)), state)
        assert later.shape == (B, 2, D)
    keep = keeps(SOURCE_LENGTHS)
    keep[1] = False
    mixer = shaken(make(False))
    for listening in (False, True):
        mixer.train().zero_grad()
        leaf, memory_leaf = x.clone().requires_grad_(), states.clone().requires_grad_()
        with capture(mixer) if listening else nullcontext():
            memory = Memory(memory_leaf, Places.of(states, keep), memory_leaf[:, 0])
            y, _ = mixer(leaf, Places.of(leaf, None), mixer.start(memory, B))
        zeros = mixer.out(torch.zeros(T, D))  # the last projection of every part is `out`
        close(y[1], zeros, "nothing to look at")
        differs(y[0], zeros, "something to look at")
        y.square().sum().backward()
        learns = {"memory": memory_leaf.grad} | ({} if draws(mixer) else {"x": leaf.grad})
        for name, gradient in learns.items():
            assert gradient is not None, f"no gradient reaches {name}"
            assert gradient.isfinite().all(), f"the gradient of {name} is NaN"
        assert not memory_leaf.grad[1].any(), "what nobody saw learns nothing"


def check_score(score: Any, normalizer: Any) -> None:
    """`join` of what was prepared are scores that hang on both sides; where `dot` is claimed, the fused kernel gives
    the same result."""
    dice = torch.Generator().manual_seed(0)
    heads, width = 2, 11
    q, k, v = (torch.randn(B, heads, n, width, generator=dice) for n in (T, S, S))
    query, key = score.query(q), score.key(k)
    scores = score.join(query, key)
    assert scores.shape == (B, heads, T, S)
    assert key.shape == (B, heads, S, score.prepared), "the width of what a key is prepared to"
    keep = keeps(SOURCE_LENGTHS)[:, None, None]
    weights = normalizer(scores, keep)
    if score.dot and normalizer.is_softmax:
        fused = F.scaled_dot_product_attention(query, key, v, keep, scale=1.0)
        close(fused, weights @ v, "the fused kernel")
    for row, head in itertools.product(range(B), range(heads)):
        alone = score.join(query[row : row + 1, :, 3:4], key[row : row + 1, :, 2:4])
        close(alone[0, :, 0], scores[row, :, 3, 2:4], "a query and two keys by themselves")
        spread = scores[row, head] - scores[row, head].mean(-1, keepdim=True)
        differs(spread[0], spread[1], f"the query in head {head}")
        differs(scores[row, head, :, 0], scores[row, head, :, 1], f"the key in head {head}")
    if list(score.parameters()):
        crossed = score.join(score.query(q.flip(1)), score.key(k.flip(1))).flip(1)
        differs(crossed, scores, "which head it is")


def check_pick(normalizer: Any) -> None:
    """Weights over what may be seen, of sum one; where there is nothing to see, nothing, and no NaN backward."""
    dice = torch.Generator().manual_seed(0)
    scores = (2 * torch.randn(B, 2, T, S, generator=dice)).requires_grad_()
    keep = keeps(SOURCE_LENGTHS)[:, None, None].repeat(1, 1, T, 1)
    keep[0, :, 3] = False
    sums = keep.any(-1).float().expand(B, 2, T)
    for training in (True, False):
        normalizer.train(training)
        weights = normalizer(scores, keep)
        close(weights.sum(-1), sums, "weights sum to one, or to nothing where nothing may be seen", 1e-5)
        assert (weights >= 0).all(), "weights below zero"
        assert not weights[~keep.expand_as(weights)].any(), "what is hidden has weight"
        everything = normalizer(scores, None)
        close(everything.sum(-1), torch.ones(B, 2, T), "weights over everything", 1e-5)
    assert torch.equal(everything.argmax(-1), scores.argmax(-1)), "in use the best score has the most weight"
    for offset in (-50.0, 50.0):
        close(normalizer(scores + offset, keep), weights, "what is added to all scores changes nothing")
    if draws(normalizer):
        assert not weights.requires_grad, "a choice has no gradient"
        assert set(weights.unique().tolist()) <= {0.0, 1.0}, "one place or none"
        return
    weights.square().sum().backward()
    assert scores.grad.isfinite().all(), "a row without anything to look at has a gradient of NaN"
    assert not scores.grad[~keep.expand_as(scores)].any(), "what is hidden learns"


def check_wagers(normalizer: Any) -> None:
    """A choice is settled by what followed, less what was expected before it; padding wagers nothing."""
    dice = torch.Generator().manual_seed(0)
    keep, heads = keeps(TARGET_LENGTHS), 2
    cost, count = torch.rand(B, T, generator=dice) + 1, torch.randint(1, 5, (B, T), generator=dice).float()
    real = keep[:, None].expand(B, heads, T)
    expected = torch.zeros(())
    for _ in range(3):
        wager = torch.randn(B, heads, T, 2, generator=dice).requires_grad_()
        log_p, entropy = wager.detach().unbind(-1)
        advantage = normalizer.reward * (cost - expected * count)[:, None].expand(B, heads, T)
        total = normalizer.policy_loss(wager, cost, count, keep)
        close(total.detach(), (advantage * log_p - normalizer.entropy * entropy)[real].sum(), "what a wager costs")
        total.backward()
        close(wager.grad[..., 0], advantage * real, "what a choice hears")
        close(wager.grad[..., 1], -normalizer.entropy * real, "what its indecision hears")
        mean = cost[keep].sum() / count[keep].sum()
        expected = mean if not expected else expected + (1 - normalizer.baseline_decay) * (mean - expected)
        close(normalizer.baseline, expected, "the moving mean of the cost a token")
        cost = cost + 1
    before = normalizer.baseline.clone()
    normalizer.policy_loss(torch.zeros(B, heads, T, 2), cost, count, torch.zeros_like(keep))
    assert torch.equal(normalizer.baseline, before), "nothing was wagered, yet something was learned"


# ── parts of recurrent models ─────────────────────────────────────────────────────────────────────


def check_cell(make: Callable[..., Any], depth: int, bidirectional: bool) -> None:
    """A padded row is what it is alone; in pieces it is what it is in one; a row of nothing gives no NaN."""
    dice = torch.Generator().manual_seed(0)
    x, inputs = torch.randn(B, T, 5, generator=dice), 5
    cell = shaken(make(inputs=inputs, dim=D, depth=depth, bidirectional=bidirectional, dropout=0.0), by=0.1)
    assert cell.backward_width == (D // 2 if bidirectional else 0)
    states, keep = begun(cell, depth, dice), keeps(TARGET_LENGTHS)
    for start in (None, states):
        y, _ = cell.whole(x, Places.of(x, keep), start)
        noisy, _ = cell.whole(x.masked_fill(~keep[..., None], 9.0), Places.of(x, keep), start)
        for row, length in enumerate(TARGET_LENGTHS):
            own = x[[row], :length]
            wanted, _ = cell.whole(own, Places.of(own, None), select(start, torch.tensor([row])))
            close(y[row, :length], wanted[0], f"row {row}")
            close(noisy[row, :length], wanted[0], f"row {row} beside noise")
    nothing = keep.clone()
    nothing[1] = False
    y, last = cell.whole(x, Places.of(x, nothing))
    assert all(found.isfinite().all() for found in (y, *tensors(last))), "nothing to read gives NaN"
    if not bidirectional:
        check_cell_steps(cell, x, states)


def check_cell_steps(cell: Any, x: Tensor, start: Any) -> None:
    """Step by step, and in two pieces, it is what it is in one; the state says where to go on."""
    whole, last = cell.whole(x, Places.of(x, None), start)
    pieces, state = [], start
    for piece in (x[:, :3], x[:, 3:]):
        y, state = cell.whole(piece, Places.of(piece, None), state)
        pieces.append(y)
    close(torch.cat(pieces, 1), whole, "in two pieces")
    steps, state = [], start
    for t in range(T):
        apart = cell.input_gates(x[:, t, :2]) + cell.input_gates(x[:, t, 2:], 2)
        close(apart, cell.input_gates(x)[:, t], "what the input says, by columns")
        y, state = cell.step(apart, state)
        assert y is state[-1][0], "what is said is the state of the last layer"
        steps.append(y)
    close(torch.stack(steps, 1), whole, "step by step")
    for found, wanted in zip(tensors(state), tensors(last), strict=True):
        close(found, wanted, "the state after all steps")
    order = torch.tensor([2, 0])
    moved, _ = cell.step(cell.input_gates(x[order, 0]), select(start, order))
    close(moved, steps[0][order], "rows in another order")


def begun(cell: Any, depth: int, dice: torch.Generator) -> Any:
    """A state made of one vector: layer after layer, and nothing of it is lost."""
    directions = 2 if cell.backward_width else 1
    width = D // directions
    start = torch.randn(B, depth * directions * cell.state_vectors * width, generator=dice).tanh()
    state = cell.initial_state(start)
    assert [len(layer) for layer in state] == [cell.state_vectors] * depth * directions
    assert torch.equal(torch.cat(tensors(state), -1), start), "a state is another than what it was made of"
    return state


def check_pool(pool: Any) -> None:
    """One vector a sequence; padding has no part in it; nothing gives zeros."""
    dice = torch.Generator().manual_seed(0)
    states = torch.randn(B, T, D, generator=dice)
    keep = keeps(TARGET_LENGTHS)
    noise = states.masked_fill(~keep[..., None], 9.0)
    for given in (states, noise):
        leaf = given.clone().requires_grad_()
        found = pool(leaf, Places.of(given, keep))
        assert found.shape == (B, D)
        for row, length in enumerate(TARGET_LENGTHS):
            own = states[[row], :length]
            close(found[row], pool(own, Places.of(own, None))[0], f"row {row}", 1e-6)
        found.square().sum().backward()
        assert not leaf.grad[~keep].any(), "padding learns"
    nothing = keep.clone()
    nothing[1] = False
    leaf = states.clone().requires_grad_()
    found = pool(leaf, Places.of(states, nothing))
    assert not found[1].any(), "nothing gives something"
    differs(found[0], torch.zeros(D), "something")
    found.square().sum().backward()
    assert leaf.grad.isfinite().all(), "a gradient of NaN where there is nothing"
    close(
        pool(states, Places.of(states, torch.ones(B, T, dtype=torch.bool))), pool(states, Places.of(states, None)), ""
    )


def check_pool_values(pool: Any, wanted: list[list[float]]) -> None:
    """Of two sequences of two columns, [1 8] [3 4] and [−5 −7]; all else is padding."""
    states = torch.tensor([[[1.0, 8.0], [3.0, 4.0], [100.0, 200.0]], [[-5.0, -7.0], [9.0, 9.0], [9.0, 9.0]]])
    assert pool(states, Places.of(states, keeps((2, 1, 3))[:2])).tolist() == wanted


def check_readout(make: Callable[[int], Any]) -> None:
    """Each place by itself, from the state and whatever else it reads; a context may have no columns."""
    dice = torch.Generator().manual_seed(0)
    for width in (0, 7, D):
        readout = make(width)
        state, word = (torch.randn(B, T, D, generator=dice) for _ in range(2))
        context = torch.randn(B, T, width, generator=dice)
        said = readout(state, context, word)
        assert said.shape == state.shape
        differs(readout(state.flip(1), context, word), said, "the state")
        for row, place in itertools.product(range(B), range(T)):
            alone = [x[row : row + 1, place : place + 1] for x in (state, context, word)]
            close(readout(*alone)[0, 0], said[row, place], "a place by itself")


def check_context(context: Any) -> None:
    """`width` numbers a step; who asks matters where it looks, and only there; hypotheses share a sentence's row."""
    dice = torch.Generator().manual_seed(0)
    x, states, summary = (torch.randn(B, *shape, generator=dice) for shape in ((T, D), (S, D), (D,)))
    memory = Memory(states, Places.of(states, keeps(SOURCE_LENGTHS)), summary)
    start = context.start(memory, B)
    told, after = context(x, Places.of(x, None), start)
    assert told.shape == (B, T, context.width)
    if context.attends:
        differs(context(x.flip(0), Places.of(x, None), start)[0], told, "who asks")
    else:
        assert torch.equal(context(x.flip(0), Places.of(x, None), start)[0], told), "it looks, and says it does not"
    pieces, state = [], start
    for first, end in STEPS:
        piece, at = x[:, first:end], torch.full((B,), first)
        found, state = context(piece, Places.of(piece, None, at), state)
        pieces.append(found)
    close(torch.cat(pieces, 1), told, "step by step")
    for found, wanted in zip(tensors(state), tensors(after), strict=True):
        close(found.float(), wanted.float(), "the state after all steps")
    check_context_of_hypotheses(context, memory)


def check_context_of_hypotheses(context: Any, memory: Memory) -> None:
    rows = torch.tensor([0, 0, 1, 1, 2, 2])
    asking = torch.randn(len(rows), 2, D, generator=torch.Generator().manual_seed(1))
    state = select(context.start(memory, B), rows)
    found, _ = context(asking, Places.of(asking, None), state)
    for number, sentence in enumerate(rows.tolist()):
        states, alone = memory.states[[sentence], : SOURCE_LENGTHS[sentence]], asking[[number]]
        own = Memory(states, Places.of(states, None), memory.summary[[sentence]])
        wanted, _ = context(alone, Places.of(alone, None), context.start(own, 1))
        close(found[number], wanted[0], f"hypothesis {number}")


def check_position(position: Any) -> None:
    """A place means the same however it is reached; any length works, or the error names the limit and the key."""
    dice = torch.Generator().manual_seed(0)
    x = torch.randn(B, T, D, generator=dice)
    whole = position.embed(x, Places.of(x, None))
    assert whole.shape == x.shape
    for first, end in STEPS:
        piece = x[:, first:end]
        start = torch.full((B,), first)
        close(position.embed(piece, Places.of(piece, None, start)), whole[:, first:end], f"places {first} to {end}")
    differs(whole[:, 1] - x[:, 1], whole[:, 2] - x[:, 2], "the place")
    long = torch.randn(1, 1000, D, generator=dice)
    if not refused(lambda: position.embed(long, Places.of(long, None))):
        assert position.embed(long, Places.of(long, None)).shape == long.shape


def check_embedding(embedding: Any, values: Tensor, words: int) -> None:
    """Values [B T …] become vectors at the places they stand at, and padding has no part in them; turned round, a
    table of `words` gives one number a word (0: it has no table, and says what to do)."""
    dice = torch.Generator().manual_seed(0)
    keep, starts = keeps(TARGET_LENGTHS), [0, 2, 5]
    x, places = embedding(values, keep, torch.tensor(starts))
    assert x.shape == (B, T, D)
    assert torch.equal(places.keep, keep)
    assert places.padded
    assert places.at.tolist() == [list(range(start, start + T)) for start in starts]
    assert not embedding(values, None)[1].padded
    noisy, _ = embedding(torch.where(keep.view(B, T, *[1] * (values.dim() - 2)), values, 3), keep)
    for row, length in enumerate(TARGET_LENGTHS):
        alone, _ = embedding(values[[row], :length], None)
        close(x[row, :length], alone[0], f"row {row}")
        close(noisy[row, :length], alone[0], f"row {row} beside noise")
    differs(x[0, 0], x[0, 1], "the value")
    hidden = torch.randn(11, D, generator=dice)
    if words:
        folded, rows = embedding.tied_weight(hidden)
        assert (folded @ rows.T).shape == (11, words)
        return
    with pytest.raises(BuildError, match=r"model\.head"):
        embedding.tied_weight(hidden)


def check_pointwise(part: Callable[[Tensor], Tensor]) -> None:
    """Norms, feed-forwards and connections treat each place by itself."""
    x = torch.randn(B, T, D, generator=torch.Generator().manual_seed(0))
    y = part(x)
    assert y.shape == x.shape
    assert y.isfinite().all()
    for row, place in itertools.product(range(B), range(T)):
        close(part(x[row : row + 1, place : place + 1])[0, 0], y[row, place], "a place by itself")


def check_head_loss(whole: nn.Module, head: Any, rows: int, words: int, smoothing: float, r_drop: float = 0.0) -> None:
    """The loss is that of the textbook, in value and gradient; each token's cost is without smoothing.
    `whole` holds every weight that the head uses."""
    dice = torch.Generator().manual_seed(rows)
    target = torch.randint(words, (rows,), generator=dice)
    start = torch.randn(rows, D, generator=dice)
    gradients = []
    for own in (True, False):
        whole.zero_grad()
        hidden = start.clone().requires_grad_()
        if own:
            total, each = head.loss(hidden, target, smoothing, r_drop)
        else:
            log_probs = head.log_probs(hidden)
            wanted = F.cross_entropy(log_probs, target, reduction="sum", label_smoothing=smoothing)
            if r_drop:
                wanted = wanted + r_drop * apart(log_probs[::2], log_probs[1::2])
            close(total.detach(), wanted.detach(), "the loss", 1e-5)
            close(each, F.nll_loss(log_probs, target, reduction="none").detach(), "each token's cost", 1e-5)
            total = wanted
        (0.37 * total).backward()  # the loop may scale before it differentiates
        gradients.append({"hidden": hidden.grad} | {name: w.grad for name, w in whole.named_parameters()})
    assert not each.requires_grad, "each token's cost is only to look at"
    for name, gradient in gradients[1].items():
        found = gradients[0][name]
        assert (found is None) == (gradient is None), f"{name} hears of the loss, or not"
        if gradient is not None:
            close(found, gradient, f"the gradient of {name}", 1e-5)


def apart(first: Tensor, second: Tensor) -> Tensor:
    """(KL(p‖q) + KL(q‖p)) / 2, summed over rows of log-probabilities."""
    both = F.kl_div(second, first, reduction="sum", log_target=True) + F.kl_div(
        first, second, reduction="sum", log_target=True
    )
    return both / 2


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor that anything returns."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.numel = max([self.numel, *(t.numel() for t in tree_leaves(out) if isinstance(t, Tensor))])
        return out


def check_head_memory(head: Any, rows: int, words: int) -> None:
    """No tensor of the loss is nearly as large as all logits."""
    hidden = torch.randn(rows, D).requires_grad_()
    with Largest() as largest:
        head.loss(hidden, torch.randint(words, (rows,)), 0.1)[0].backward()
    assert largest.numel >= rows * D, "nothing was seen"
    assert largest.numel < rows * words / 2, f"a tensor of {largest.numel} numbers; all logits are {rows * words}"


class Products(TorchDispatchMode):
    """Counts matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += any(name in str(func) for name in ("mm", "linear"))
        return func(*args, **(kwargs or {}))


def check_head_without_gradients(head: Any, words: int, chunk: int) -> None:
    """Where nothing is learned nothing is computed for it: one product a chunk."""
    with torch.inference_mode(), Products() as products:
        head.loss(torch.randn(5 * chunk, D), torch.randint(words, (5 * chunk,)), 0.0)
    assert products.count == 5, f"{products.count} products for 5 chunks"


def check_dropout(make: Callable[[float], Any], rate: float) -> None:
    """Zeros as often as the rate says, in 256ths; the mean stays; nothing happens in use."""
    torch.manual_seed(0)
    numbers = 1 << 17
    x = torch.full((8, numbers // 8), 3.0, requires_grad=True)
    dropout = make(rate)
    passed = dropout.train()(x)
    y = passed.detach()
    exact = round(rate * 256) / 256
    noise = 5 * math.sqrt(max(exact * (1 - exact), 1e-9) / numbers)
    assert abs(float((y == 0).float().mean()) - exact) <= noise, "the share of zeros"
    assert abs(float(y.mean()) / 3 - 1) <= noise / (1 - exact) + 1e-6, "the mean"
    close(y[y != 0], torch.full_like(y[y != 0], 3 / (1 - exact)), "what is left, scaled by the rounded rate", 1e-6)
    eights = (y == 0).float().view(-1, 8)  # eight numbers are drawn from one word
    assert (eights.mean(0) - exact).abs().max() <= 3 * noise + 1e-9, "one byte of a word is not like another"
    if exact:
        spread = float(eights.sum(1).var()) / (8 * exact * (1 - exact))
        assert 0.9 < spread < 1.1, "the bytes of a word hang together"
    passed.sum().backward()
    close(x.grad, y / 3, "the gradient passes where the number passed")
    if exact:
        assert not torch.equal(y, dropout(x)), "two draws are alike"
    assert torch.equal(dropout.eval()(x), x), "dropout in use"
    odd = torch.ones(3, 7, 5)
    assert dropout.train()(odd).shape == odd.shape


def check_schedule(schedule: Callable[[int], float], rate: float, warmup: int, updates: int) -> None:
    """Up in a line to `rate`, never above it, never below zero, and the same whenever it is asked."""
    rates = [schedule(step) for step in range(1, updates + 50)]
    assert all(math.isfinite(r) and 0 <= r <= rate * (1 + 1e-9) for r in rates), "from 0 to the rate"
    assert math.isclose(max(rates), rate, rel_tol=1e-9), "the rate is reached"
    for step in range(1, warmup + 1):
        assert math.isclose(schedule(step), rate * step / max(1, warmup), rel_tol=1e-9), "up in a line"
    after = rates[max(1, warmup) - 1 :]
    assert all(b <= a * (1 + 1e-9) for a, b in itertools.pairwise(after)), "never up again"
    assert rates == [schedule(step) for step in range(1, updates + 50)], "a pure function"


def check_optimizer(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    """It goes downhill, and all it remembers are tensors, which a checkpoint can hold."""
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    optimizer = make(model)
    x, y = torch.randn(11, 5), torch.randn(11, 3)
    for group in optimizer.param_groups:
        group["lr"] = 0.05
    costs = []
    for _ in range(30):
        optimizer.zero_grad()
        cost = F.mse_loss(model(x), y)
        cost.backward()
        optimizer.step()
        costs.append(cost.item())
    assert costs[-1] < 0.7 * costs[0], "it does not go downhill"
    known = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert known == {id(p) for p in model.parameters()}, "every weight learns"
    for state in optimizer.state.values():
        assert all(isinstance(value, Tensor) for value in state.values()), "its memory is more than tensors"


def check_optimizer_goes_on(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    """A fresh one that is given the memories back, as a resumed training does, takes the same steps to the bit."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    x, y = torch.randn(11, 5), torch.randn(11, 3)

    def learn(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            group["lr"] = 0.05
        for _ in range(3):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()

    first = make(model)
    learn(model, first)
    again = copy.deepcopy(model)
    second = make(again)
    for old, new in zip(model.parameters(), again.parameters(), strict=True):
        for key, value in first.state[old].items():
            second.state[new][key] = value.clone()
    learn(model, first)
    learn(again, second)
    for old, new in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(old, new), "it goes on otherwise"


# ── config ────────────────────────────────────────────────────────────────────────────────────────


def check_wiring(part: Callable[..., Any], given: Iterable[str]) -> None:
    """A part asks for wiring by name: a name that its site does not give would never come."""
    unknown = set(wiring(part)) - set(given)
    assert not unknown, f"{part} asks for {sorted(unknown)}, but is given {sorted(given)}"


def check_toml(table: Table, tree: dict[str, Any]) -> None:
    """Every option of a choice is written, and comes back as it was."""
    root: Any = create_model("Root", __base__=Config, slot=(Annotated[Any, Slot(table)], ...))
    first = resolve(root, [python_layer({"slot": tree})]).config
    text = to_toml(first)
    written = tomllib.loads(text)
    assert set(written["slot"]) == {"kind", *options(table, tree["kind"])}, "an option is not written"
    assert resolve(root, [python_layer(written)]).config == first, "TOML gives back something else"


# ── searches ──────────────────────────────────────────────────────────────────────────────────────


def searched(
    search: Search,
    model: Model,
    sources: Sequence[Sequence[int]],
    longest: Sequence[int],
    prefixes: Sequence[Sequence[int]] | None = None,
    names: Sequence[int] | None = None,
) -> list[list[ScoredTokens]]:
    """What a search finds for each source, in order; each must be given once."""
    side = batches.Padded.of([np.array([*source, END]) for source in sources])
    rules = Constraints.of(list(longest), prefixes)
    names = list(range(len(sources)) if names is None else names)
    with torch.inference_mode():
        memory = model.encoder.encode(side.values, side.keep)
        found = list(search(UnfusedModel(model), memory, rules, names))
    assert sorted(row for row, _ in found) == list(range(len(sources))), "each sentence is given once"
    return [hypotheses for _, hypotheses in sorted(found, key=lambda pair: pair[0])]


def forced_log_prob(model: Model, source: Sequence[int], tokens: Sequence[int]) -> float:
    """log p of tokens (the end included), by one forced pass and no search."""
    with torch.inference_mode():
        memory = model.encoder.encode(torch.tensor([[*source, END]]), None)
        inputs = torch.tensor([[START, *tokens[:-1]]])
        hidden, _ = model.decoder.step(inputs, model.decoder.start(memory, 1))
        log_probs = model.head.log_probs(hidden)[0].double()
    return float(log_probs.gather(1, torch.tensor(tokens)[:, None]).sum())


def check_search(make: Callable[[], Search], model: Model) -> None:
    """Every output ends, keeps the rules, and is as likely as a forced pass says; a second search finds the same."""
    model.eval()
    sources, longest = [[4, 5, 6], [5], [6, 4]], [5, 3, 4]
    prefixes = [[], [6, 4, 5, 4], [5]]
    assert make().width >= 1, "how many hypotheses of a sentence are held at a time"
    for forced in (None, prefixes):
        found = searched(make(), model, sources, longest, forced)
        assert found == searched(make(), model, sources, longest, forced), "another answer to the same question"
        for row, hypotheses in enumerate(found):
            assert hypotheses
            first = tuple(prefixes[row]) if forced else ()
            for best in hypotheses:
                tokens = best.tokens
                assert tokens[-1] == END, "it does not end"
                assert not {PAD, START, END} & set(tokens[:-1]), "it writes what nobody may"
                assert len(tokens) <= max(longest[row], len(first) + 1), "it is too long"
                assert tokens[: len(first)] == first, "it does not begin as it must"
                wanted = forced_log_prob(model, sources[row], tokens)
                assert math.isclose(best.log_prob, wanted, rel_tol=1e-4, abs_tol=1e-4), "its score is another's"


# ── tokenizers ────────────────────────────────────────────────────────────────────────────────────

# folded and composed already, so that every normaliser leaves it alone
TEXTS = ["the cat sat on the mat", "grüne äpfel aus köln", "a b c d e", "日本語 テキスト", "3.14 is not 22/7", "x"] * 5


def check_tokenizer(tokenizer: Tokenizer, read: Callable[[bytes], Tokenizer]) -> None:
    """Text it has seen comes back; special ids are where they always are; a copy read from a file is the same."""
    specials = [PAD, UNKNOWN, START, END]
    assert specials == [0, 1, 2, 3]
    assert tuple(tokenizer.pieces(specials)) == SPECIAL
    assert tokenizer.encode([]) == []
    assert tokenizer.encode([""]) == [[]]
    assert tokenizer.decode([PAD, START, END]) == ""
    copy = read(tokenizer.dump())
    assert copy.size == tokenizer.size
    encoded = tokenizer.encode(TEXTS)
    assert copy.encode(TEXTS) == encoded
    for text, ids in zip(TEXTS, encoded, strict=True):
        assert all(len(SPECIAL) <= i < tokenizer.size for i in ids), "seen text is known"
        check_round_trip(tokenizer, text)
        assert tokenizer.decode([START, *ids, END, PAD]) == text, "special ids leave no trace"
        assert copy.decode(ids) == text
        pieces = tokenizer.pieces(ids)
        assert len(pieces) == len(ids)
        check_word_of(pieces, len(text.split()))
        check_words(tokenizer, text.split())


def check_words(tokenizer: Tokenizer, words: list[str]) -> None:
    """Word by word is the same as the whole sentence, so every piece knows its word."""
    by_word = tokenizer.encode_words(words)
    assert len(by_word) == len(words)
    assert [i for ids in by_word for i in ids] == tokenizer.encode([" ".join(words)])[0]


def check_round_trip(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode([text])[0]) == text


def check_word_of(pieces: Sequence[str], words: int) -> None:
    numbers = tokenizers.word_of(pieces)
    assert len(numbers) == len(pieces)
    assert all(b - a in (0, 1) for a, b in itertools.pairwise(numbers)), "words follow each other"
    assert not numbers or (numbers[0], numbers[-1] + 1) == (0, words), f"{numbers[-1] + 1} words, not {words}"


# ── batches ───────────────────────────────────────────────────────────────────────────────────────


def random_corpus(rows: int, longest: int = 40, seed: int = 0) -> Corpus:
    """Targets about as long as their sources, as in translation."""
    dice = np.random.default_rng(seed)
    sources = dice.integers(1, longest + 1, rows)
    targets = np.maximum(1, sources + dice.integers(-2, 3, rows))
    return Corpus(*([dice.integers(4, 90, n).tolist() for n in lengths] for lengths in (sources, targets)))


BEGINNING = SamplerState()


def some_updates(
    corpus: Corpus, tokens: int, count: int, start: SamplerState = BEGINNING, gather: int = 0, seed: int = 1
) -> list[tuple[list[Batch], SamplerState]]:
    return list(itertools.islice(batches.updates(corpus, tokens, gather, seed, start), count))


def check_resume(corpus: Corpus, tokens: int, gather: int = 0) -> None:
    """From any position the rest is the same, to the last id."""
    straight = some_updates(corpus, tokens, 12, gather=gather)
    assert straight[-1][1].epoch > 0, "no epoch ended: nothing was tested"
    for done, (_, position) in enumerate(straight[:-1], 1):
        again = some_updates(corpus, tokens, len(straight) - done, position, gather)
        for (wanted, after), (found, then) in zip(straight[done:], again, strict=True):
            assert (after, [b.rows for b in wanted]) == (then, [b.rows for b in found]), f"resumed at {position}"
            for one, other in zip(wanted, found, strict=True):
                assert torch.equal(one.source.values, other.source.values)
                assert torch.equal(one.outputs.values, other.outputs.values)


def epoch_rows(corpus: Corpus, tokens: int, epoch: int = 0, seed: int = 1) -> list[tuple[int, ...]]:
    rows = []
    for group, position in batches.updates(corpus, tokens, 0, seed, SamplerState(epoch)):
        rows += [batch.rows for batch in group]
        if position.epoch > epoch:
            return rows
    raise AssertionError("an epoch without end")


def check_once_an_epoch(corpus: Corpus, tokens: int) -> None:
    orders = [epoch_rows(corpus, tokens, epoch, seed) for epoch, seed in ((0, 1), (1, 1), (0, 2))]
    for order in orders:
        assert sorted(itertools.chain(*order)) == list(range(len(corpus))), "every row once an epoch"
    if len(orders[0]) > 5:
        assert orders[0] != orders[1], "two epochs are alike"
        assert orders[0] != orders[2], "two seeds are alike"


def check_budget(corpus: Corpus, tokens: int, gather: int = 0) -> None:
    """At most so many padded tokens a batch, unless one row alone has more; at least so many real ones an update."""
    for group, position in some_updates(corpus, tokens, 20, gather=gather):
        for batch in group:
            for side in (batch.source, batch.inputs, batch.outputs):
                assert side.values.numel() <= tokens or len(batch.rows) == 1, "over the budget"
        real = [batch.target_tokens for batch in group]
        assert sum(real) >= gather or position.batch == 0, "an update of too few tokens"
        assert sum(real[:-1]) < max(1, gather), "an update of more batches than it needs"


def check_batch_content(corpus: Corpus, tokens: int) -> None:
    """Sources end, targets are what is read and what should be said, padding is marked as such."""
    for group, _ in some_updates(corpus, tokens, 5):
        for batch in group:
            for place, row in enumerate(batch.rows):
                source, target = corpus.source(row).tolist(), corpus.target(row).tolist()
                for side, wanted in (
                    (batch.source, [*source, END]),
                    (batch.inputs, [START, *target]),
                    (batch.outputs, [*target, END]),
                ):
                    keep = torch.ones_like(side.values, dtype=torch.bool) if side.keep is None else side.keep
                    assert side.values[place][keep[place]].tolist() == wanted
                    assert keep[place, : len(wanted)].all(), "padding stands on the right"
                    assert (side.values[place, len(wanted) :] == PAD).all()


def check_little_padding(corpus: Corpus, tokens: int) -> None:
    whole = [batch for group, _ in some_updates(corpus, tokens, 30) for batch in group]
    real = sum(batch.source_tokens + batch.target_tokens for batch in whole)
    share = 1 - real / sum(batch.padded_tokens for batch in whole)
    assert share < 0.1, f"{share:.0%} of all places are padding"
