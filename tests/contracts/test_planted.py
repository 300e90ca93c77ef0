"""Each contract fails on a defect that it should catch: a check that nothing can break proves nothing."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from contracts import checks
from contracts.checks import TEXTS, random_corpus, shaken
from contracts.variants import DEFAULT, NO_DROPOUT, B, D, T, V, filled, named, small
from saccade.config import build
from saccade.data import batches
from saccade.data.batches import Corpus, SamplerState
from saccade.data.tokenizers import SPECIAL, Symbols, WordVocabulary
from saccade.decode.rules import Constraints
from saccade.decode.search import SEARCHES
from saccade.models.recurrent import RecurrentDecoder
from saccade.models.stacked import Stacked
from saccade.notes import Notes, Part
from saccade.optim.schedules import InverseRoot
from saccade.parts import (
    Additive,
    Deep,
    Dropout,
    EveryStep,
    Hard,
    Last,
    LayerNorm,
    Learned,
    LinearHead,
    Mean,
    MultiHead,
    RecurrentNet,
    ScaledDot,
    Sinusoidal,
    Softmax,
    Sparsemax,
    TiedHead,
    Unprojected,
    gru,
    lstm,
)
from saccade.parts import TokenEmbedding as Table
from saccade.parts import heads as heads_module
from saccade.parts.heads import ChunkedCrossEntropy
from saccade.parts.mixers import attend
from saccade.parts.normalizers import masked_scores
from saccade.places import PerSentence, Places, attention_mask, select
from saccade.runs import weights as weights_module
from saccade.tasks import losses

Patch = pytest.MonkeyPatch
Check = Callable[[], None]


@dataclass(frozen=True)
class Plant:
    """A defect, how it is planted, and the contracts that must not survive it."""

    name: str
    plant: Callable[[Patch], None]
    checks: tuple[Check, ...]


def on_model(check: Callable[[Any], None], label: str = "default") -> Check:
    return lambda: check(shaken(named(label).fresh()))


def sdpa(
    keep: Callable[..., Any], whole: Callable[..., bool], **options: Any
) -> Callable[..., torch.Tensor]:  # attend._fused with other ideas about what may be seen
    def fused(part: Any, query: Any, key: Any, value: Any, queries: Any, keys: Any) -> torch.Tensor:
        causal = whole(part, query, queries, keys)
        mask = None if causal else keep(part, queries, keys)
        return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, **options)

    return fused


def right_keep(part: Any, queries: Places, keys: Places) -> Any:
    return attention_mask(queries, keys, part.causal)


def right_whole(part: Any, query: torch.Tensor, queries: Places, keys: Places) -> bool:
    return part.causal and keys is queries and query.shape[2] > 1


def patched(target: Any, name: str, value: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(target, name, value)


# ── attention ─────────────────────────────────────────────────────────────────────────────────────


def shifted_back(self: Places, count: int) -> Places:
    places = BACK(self, count)
    return places if places is self else replace(places, at=places.at + 1)


def forgetful_step(self: Any, tokens: Any, state: Any, keep: Any = None) -> Any:
    hidden, after = STEP(self, tokens, state, keep)
    return hidden, after | {"at": state["at"]}


def rounded_step(self: Any, tokens: Any, state: Any, keep: Any = None) -> Any:
    hidden, after = STEP(self, tokens, state, keep)
    return hidden.float(), after


def keys_without_gradient(self: Any, x: torch.Tensor) -> Any:
    key, value = KEYS(self, x)
    return key.detach(), value


def first_row_for_all(queries: Places, keys: Places, causal: bool) -> Any:
    keep = attention_mask(queries, keys, causal)
    return keep if keep is None else keep[:1]


def half_said(self: Part, kind: str, value: torch.Tensor, queries: Places) -> None:
    NOTE(self, kind, 0.5 * value, queries)


def added(self: Softmax, scores: torch.Tensor, keep: Any, queries: Any = None) -> torch.Tensor:
    """The same weights, but a mask that is added lets the NaN of an empty row through to the scores."""
    if keep is None:
        return scores.softmax(-1)
    hidden = torch.zeros_like(scores).masked_fill(~keep, -math.inf)
    return (scores + hidden).softmax(-1).masked_fill(~keep, 0.0)


BACK, STEP, KEYS, NOTE = Places.last, Stacked.step, MultiHead._keys, Part.note
STEPS, CAUSAL = on_model(checks.check_step_by_step), on_model(checks.check_causal)
PADDING, WEIGHTS = on_model(checks.check_blind_to_padding), on_model(checks.check_weights)
ORDER, NOTHING = on_model(checks.check_blind_to_batch_order), on_model(checks.check_nothing_to_look_at)
PICK = lambda: checks.check_pick(Softmax())  # noqa: E731
MIXER = lambda: checks.check_mixer(lambda causal: MultiHead(D, causal, heads=2))  # noqa: E731

ATTENTION = [
    Plant(
        "no causal mask",
        patched(attend, "attention_mask", lambda queries, keys, causal: attention_mask(queries, keys, False)),
        (CAUSAL, STEPS, WEIGHTS),
    ),
    Plant(
        "the fused whole pass sees the future",
        patched(
            attend,
            "_fused",
            sdpa(lambda part, q, k: attention_mask(q, k, False), lambda *_: False, scale=1.0),
        ),
        (CAUSAL, STEPS),
    ),
    Plant(
        "is_causal with a cache",
        patched(attend, "_fused", sdpa(right_keep, lambda self, q, *_: self.causal and q.shape[2] > 1, scale=1.0)),
        (STEPS,),
    ),
    Plant("a cache is at the wrong places", patched(Places, "last", shifted_back), (STEPS,)),
    Plant("the state forgets where it is", patched(Stacked, "step", forgetful_step), (STEPS,)),
    Plant(
        "fused attention forgets padding",
        patched(attend, "_fused", sdpa(lambda *_: None, right_whole, scale=1.0)),
        (PADDING, on_model(checks.check_fused_equals_explicit)),
    ),
    Plant(
        "explicit attention forgets padding",
        patched(attend, "attention_mask", lambda q, k, causal: attention_mask(q, replace(k, padded=False), causal)),
        (PADDING, WEIGHTS, NOTHING),
    ),
    Plant(
        "what is hidden still counts a little",
        patched(
            Softmax,
            "forward",
            lambda self, s, keep, queries=None: s.softmax(-1) if keep is None else (s - 9.0 * ~keep).softmax(-1),
        ),
        (WEIGHTS, PADDING, PICK),
    ),
    Plant(
        "softmax over nothing is NaN",
        patched(Softmax, "forward", lambda self, scores, keep, queries=None: masked_scores(scores, keep).softmax(-1)),
        (NOTHING, PICK, MIXER),
    ),
    Plant("a gradient of NaN where nothing may be seen", patched(Softmax, "forward", added), (NOTHING, PICK)),
    Plant("the notes tell half", patched(Part, "note", half_said), (WEIGHTS,)),
    Plant(
        "the kernel scales once more",
        patched(attend, "_fused", sdpa(right_keep, right_whole)),
        (on_model(checks.check_fused_equals_explicit),),
    ),
    Plant(
        "a score says dot but is not",
        patched(ScaledDot, "join", lambda self, q, k: q @ k.transpose(-1, -2) / 2),
        (lambda: checks.check_score(ScaledDot(11), Softmax()), on_model(checks.check_fused_equals_explicit)),
    ),
    Plant("the first row's mask for all", patched(attend, "attention_mask", first_row_for_all), (ORDER, PADDING)),
    Plant("keys hear nothing", patched(MultiHead, "_keys", keys_without_gradient), (on_model(checks.check_gradients),)),
]

# ── other parts ───────────────────────────────────────────────────────────────────────────────────


def by_batch(self: nn.LayerNorm, x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean((0, 1))) * self.weight + self.bias


def from_the_start(self: Any, x: torch.Tensor, places: Places) -> torch.Tensor:
    return EMBED(self, x, replace(places, at=torch.arange(x.shape[1]).expand(x.shape[:2])))


def learned_from_the_start(self: Any, x: torch.Tensor, places: Places) -> torch.Tensor:
    return x + self.table(torch.arange(x.shape[1]))


def remembered(self: Any, x: torch.Tensor, places: Places) -> torch.Tensor:
    """Grows where it stands, without gradients too, and multiplies by its table, which backward needs."""
    if x.shape[1] > len(self.table):
        self.table = torch.cat([self.table] * 3)
    return x * self.table[: x.shape[1]]


def head_loss(head: str, rows: int = 37, r_drop: float = 0.0) -> Check:
    def check() -> None:
        whole = HeadAndTable(head)
        checks.check_head_loss(whole, whole.head, rows, V, 0.1, r_drop)

    return check


class HeadAndTable(nn.Module):
    def __init__(self, kind: str, words: int = V) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = Table(words, D)
        self.head = TiedHead(tied_weight=self.embedding.tied_weight) if kind == "tied" else LinearHead(words, D)


def all_logits(hidden: Any, weight: Any, bias: Any, target: Any, smoothing: float, r_drop: float) -> Any:
    logits = F.linear(hidden, weight, bias)
    total = F.cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing)
    return total, F.cross_entropy(logits, target, reduction="none").detach()


def unscaled(ctx: Any, *grads: torch.Tensor) -> Any:
    return (*ctx.saved_tensors, None, None, None, None)


def last_chunk(hidden: Any, weight: Any, bias: Any, target: Any, smoothing: float, r_drop: float) -> Any:
    first = CROSS_ENTROPY(hidden[:8], weight.detach(), bias, target[:8], smoothing, r_drop)
    rest = CROSS_ENTROPY(hidden[8:], weight, bias, target[8:], smoothing, r_drop)
    return first[0] + rest[0], torch.cat([first[1], rest[1]])


def one_way(p: torch.Tensor, q: torch.Tensor, between: torch.Tensor, much: float) -> torch.Tensor:
    """Only the first of two answers is drawn to the other."""
    kept = q.clone()
    found = DRAW_TOGETHER(p, q, between, much)
    q.copy_(kept)
    return found


def mask(self: Dropout, x: torch.Tensor) -> torch.Tensor:
    return torch.randint(256, x.shape) >= self.threshold


def one_for_eight(self: Dropout, x: torch.Tensor) -> torch.Tensor:
    if not self.training or not self.threshold:
        return x
    keep = mask(self, x.flatten()[::8]).repeat_interleave(8)[: x.numel()].view(x.shape)
    return x * keep * (256 / (256 - self.threshold))


def in_use(self: Dropout, x: torch.Tensor) -> torch.Tensor:
    return x * mask(self, x) * (256 / (256 - self.threshold))


EMBED, CROSS_ENTROPY = Sinusoidal.embed, heads_module.cross_entropy
DRAW_TOGETHER = heads_module._symmetric_kl
IDS = torch.randint(V, (B, T), generator=torch.Generator().manual_seed(0))
DROPOUT = lambda: checks.check_dropout(Dropout, 0.1)  # noqa: E731

PARTS = [
    Plant(
        "a norm over the batch",
        patched(LayerNorm, "forward", by_batch),
        (PADDING, lambda: checks.check_pointwise(LayerNorm(D))),
    ),
    Plant(
        "the sinusoid begins anew at each step",
        patched(Sinusoidal, "embed", from_the_start),
        (STEPS, lambda: checks.check_position(Sinusoidal(D))),
    ),
    Plant(
        "learned positions begin anew at each step",
        patched(Learned, "embed", learned_from_the_start),
        (lambda: checks.check_position(Learned(D)),),
    ),
    Plant(
        "a table made by inference is needed backward",
        patched(Sinusoidal, "embed", remembered),
        (on_model(checks.check_inference_leaves_no_trace),),
    ),
    Plant(
        "places begin at zero wherever they start",
        patched(Places, "of", lambda like, keep, start=None: OF(like, keep)),
        (lambda: checks.check_embedding(Table(V, D), IDS, V), STEPS),
    ),
    Plant(
        "a decoder that rounds what it gives",
        patched(Stacked, "step", rounded_step),
        (on_model(checks.check_precision),),
    ),
    Plant(
        "a head that gives logits",
        patched(TiedHead, "log_probs", lambda self, hidden: hidden @ self.tied_weight(hidden)[1].T),
        (on_model(checks.check_shapes),),
    ),
    Plant(
        "a head forgets smoothing",
        patched(heads_module, "cross_entropy", lambda h, w, b, t, s, a: CROSS_ENTROPY(h, w, b, t, 0.0, a)),
        (head_loss("tied"), head_loss("linear")),
    ),
    Plant(
        "a head draws one of two answers to the other",
        patched(heads_module, "_symmetric_kl", one_way),
        (head_loss("tied", 38, 1.7), head_loss("linear", 38, 1.7)),
    ),
    Plant(
        "a head's gradient ignores how the loss was scaled",
        patched(ChunkedCrossEntropy, "backward", staticmethod(unscaled)),
        (head_loss("tied"), head_loss("linear")),
    ),
    Plant(
        "a head's weights hear of some chunks only",
        patched(heads_module, "cross_entropy", last_chunk),
        (head_loss("tied"),),
    ),
    Plant(
        "a head holds all logits",
        patched(heads_module, "cross_entropy", all_logits),
        (lambda: checks.check_head_memory(HeadAndTable("tied", 211).head, 101, 211),),
    ),
    Plant(
        "dropout that shrinks",
        patched(Dropout, "forward", lambda self, x: x * mask(self, x) if self.training else x),
        (DROPOUT,),
    ),
    Plant(
        "dropout scaled by the rate as it was asked for",
        patched(Dropout, "forward", lambda self, x: x * mask(self, x) / 0.9 if self.training else x),
        (DROPOUT,),
    ),
    Plant("dropout in use", patched(Dropout, "forward", in_use), (DROPOUT,)),
    Plant("dropout that takes eight at once", patched(Dropout, "forward", one_for_eight), (DROPOUT,)),
    Plant(
        "a rate of the config that nobody uses",
        patched(Dropout, "forward", lambda self, x: x),
        (
            lambda: checks.check_dropout_rates_are_used(
                lambda rates: DEFAULT.changed(dropout=NO_DROPOUT | rates).fresh(), "attention"
            ),
            DROPOUT,
        ),
    ),
    Plant(
        "a schedule without warmup",
        patched(InverseRoot, "__call__", lambda self, step: self.rate * min(1.0, math.sqrt(self.warmup / step))),
        (lambda: checks.check_schedule(InverseRoot(rate=0.003, warmup=10), 0.003, 10, 100),),
    ),
]
OF = Places.of

# ── state, losses, files ──────────────────────────────────────────────────────────────────────────


def copied_memory(state: Any, rows: Any, sentences: Any = None) -> Any:
    if isinstance(state, PerSentence):
        return PerSentence(select(state.value, rows))
    if isinstance(state, dict):
        return {key: copied_memory(value, rows, sentences) for key, value in state.items()}
    if isinstance(state, tuple):
        return tuple(copied_memory(value, rows, sentences) for value in state)
    return select(state, rows, sentences)


def without_biases(model: nn.Module) -> Any:
    tensors, aliases = NAMED(model)
    return {name: tensor for name, tensor in tensors.items() if not name.endswith("bias")}, aliases


def mean_loss(model: Any, batch: Any, smoothing: float) -> Any:
    loss = losses.next_token(model, batch, smoothing)
    return replace(loss, total=loss.total / loss.count)


def with_padding(model: Any, batch: Any) -> Any:
    hidden, target = HIDDEN(model, replace(batch, outputs=replace(batch.outputs, keep=None)))
    return hidden, target


def repeating(model: Any, batch: Any) -> Any:
    return HIDDEN(model, replace(batch, outputs=replace(batch.outputs, values=batch.inputs.values)))


NAMED, HIDDEN = weights_module.named_tensors, losses.teacher_forced_hidden
SELECT, SUMS = on_model(checks.check_select), on_model(checks.check_losses_are_sums)

STATE = [
    Plant("a memory is copied for each hypothesis", patched(checks, "select", copied_memory), (SELECT,)),
    Plant(
        "a memory stays when sentences leave",
        patched(checks, "select", lambda state, rows, sentences=None: select(state, rows)),
        (SELECT,),
    ),
    Plant(
        "a memory's mask stays when sentences leave",
        lambda patch: patch.setattr(
            "saccade.places.is_dataclass",
            lambda value: not isinstance(value, Places) and hasattr(value, "__dataclass_fields__"),
        ),
        (SELECT,),
    ),
    Plant(
        "hypotheses take each other's places",
        patched(checks, "select", lambda state, rows, sentences=None: select(state, rows.flip(0), sentences)),
        (SELECT,),
    ),
    Plant("a loss that is a mean", patched(checks, "next_token", mean_loss), (SUMS,)),
    Plant(
        "a model that learns to repeat what it reads",
        patched(losses, "teacher_forced_hidden", repeating),
        (SUMS,),
    ),
    Plant("padding costs something", patched(losses, "teacher_forced_hidden", with_padding), (SUMS,)),
]

# ── recurrent models ──────────────────────────────────────────────────────────────────────────────


def unpacked(self: RecurrentNet, x: Any, places: Places, state: Any = None) -> Any:
    return WHOLE(self, x, replace(places, padded=False), state)


def wrong_way(self: RecurrentNet, start: torch.Tensor) -> Any:
    return tuple(tuple(reversed(layer)) for layer in BEGIN(self, start))


def flat(self: RecurrentNet, given: Any, state: Any) -> Any:
    """All layers but the first are forgotten."""
    after = ONE_STEP(self, given, state)[1]
    return after[0][0], after


def cell_stays(state: Any, rows: Any, sentences: Any = None) -> Any:
    moved = select(state, rows, sentences)
    return moved | {"cell": select(state["cell"], torch.arange(len(rows)) % len(state["at"]))}


def cover_stays(state: Any, rows: Any, sentences: Any = None) -> Any:
    moved = select(state, rows, sentences)
    still = state["memory"].so_far[torch.arange(len(rows)) % len(state["at"])]
    return moved | {"memory": replace(moved["memory"], so_far=still)}


def unfed(self: Any, x: Any, places: Any, state: Any) -> Any:
    """Within a call what was said is read again, and the next call begins from nothing."""
    hidden, after = BY_STEPS(self, x, places, state)
    return hidden, after | {"fed": torch.zeros_like(after["fed"])}


def deaf(self: Any, given: Any, context: Any, fed: Any) -> Any:
    """What was said is never read again."""
    return TOLD(self, given, context, None if fed is None else torch.zeros_like(fed))


def unheard(self: Unprojected, query: Any, memory: Any, here: Any, so_far: Any) -> Any:
    return COVER(self, query, memory, here, torch.zeros_like(so_far))


def only_the_last(self: Unprojected, x: Any, places: Any, state: Any) -> Any:
    y, after = COVERING(self, x, places, state)
    return y, replace(after, so_far=after.so_far - state.so_far)


def padding_covers(self: Unprojected, x: Any, places: Any, state: Any) -> Any:
    return COVERING(self, x, replace(places, keep=torch.ones_like(places.keep)), state)


def one_step_late(self: Deep, state: Any, context: Any, word: Any) -> Any:
    return DEEP(self, state, context.roll(1, 1), word)


def shared_in_turn(self: Any, x: Any, places: Any, state: Any) -> Any:
    """The beam's rows of a sentence lie side by side, not one from each."""
    summary = state.value
    each = summary.repeat(x.shape[0] // len(summary), 1)
    return each[:, None].expand(-1, x.shape[1], -1), state


def always_by_lot(self: Hard, scores: Any, keep: Any, queries: Any = None) -> Any:
    was, self.training = self.training, True
    try:
        return CHOOSE(self, scores, keep, queries)
    finally:
        self.training = was


def remembered_first(self: Hard, wager: Any, cost: Any, count: Any, keep: Any) -> Any:
    self._remember(cost[keep], count[keep])
    return SETTLE(self, wager, cost, count, keep)


def forgets_heads(self: Hard, wager: Any, cost: Any, count: Any, keep: Any) -> Any:
    return SETTLE(self, wager[:, :1], cost, count, keep)


def wrong_sign(self: Hard, wager: Any, cost: Any, count: Any, keep: Any) -> Any:
    return -SETTLE(self, wager, cost, count, keep)


def less_than_one(self: Sparsemax, scores: Any, keep: Any, queries: Any = None) -> Any:
    return (SPARSE(self, scores, keep, queries) - 0.01).clamp(min=0)


def all_real(batch: Any, side: str) -> torch.Tensor:
    return torch.ones_like(REAL(batch, side))


def over_padding(self: Mean, states: torch.Tensor, places: Places) -> torch.Tensor:
    return states.mean(1)


def at_the_end(self: Last, states: torch.Tensor, places: Places) -> torch.Tensor:
    return states[:, -1]


def one_way(self: Last, states: torch.Tensor, places: Places) -> torch.Tensor:
    """The backward columns, too, at the last place: there they have read one word."""
    last = (places.keep.sum(1) - 1).clamp(min=0)
    return states[torch.arange(len(states)), last] * places.keep[:, :1]


WHOLE, BEGIN, ONE_STEP = RecurrentNet.whole, RecurrentNet.initial_state, RecurrentNet.step
BY_STEPS, TOLD, DEEP = RecurrentDecoder._step_by_step, RecurrentDecoder._gates, Deep.forward
COVERING, COVER = Unprojected._step_by_step, Unprojected._covering
CHOOSE, SETTLE, SPARSE, REAL = Hard.forward, Hard.policy_loss, Sparsemax.forward, losses._real

FED, COVERS, CHOOSES = "recurrent-lstm-after-True", "coverage", "hard-additive"
CELL = lambda: checks.check_cell(lstm, 2, False)  # noqa: E731
BOTH_WAYS = lambda: checks.check_cell(gru, 2, True)  # noqa: E731
ADDITIVE = lambda: checks.check_score(shaken(Additive(2, 11)), Softmax())  # noqa: E731
SUMMARY = on_model(checks.check_blind_to_padding, "encoder=recurrent.pool=mean")

RECURRENT = [
    Plant(
        "an encoder that is not packed",
        patched(RecurrentNet, "whole", unpacked),
        (on_model(checks.check_blind_to_padding, "encoder=recurrent"), BOTH_WAYS),
    ),
    Plant("a state that begins the wrong way round", patched(RecurrentNet, "initial_state", wrong_way), (CELL,)),
    Plant(
        "a step of the first layer only",
        patched(RecurrentNet, "step", flat),
        (CELL, on_model(checks.check_step_by_step, "recurrent-gru-after-False")),
    ),
    Plant(
        "a cell's state that stays when hypotheses move",
        patched(checks, "select", cell_stays),
        (on_model(checks.check_select, FED),),
    ),
    Plant(
        "coverage that stays when hypotheses move",
        patched(checks, "select", cover_stays),
        (on_model(checks.check_select, COVERS),),
    ),
    Plant(
        "what was said is forgotten between calls",
        patched(RecurrentDecoder, "_step_by_step", unfed),
        (on_model(checks.check_step_by_step, FED), on_model(checks.check_select, FED)),
    ),
    Plant(
        "what was said is never read",
        patched(RecurrentDecoder, "_gates", deaf),
        (on_model(checks.check_state_matters, FED),),
    ),
    Plant(
        "coverage that does not add up",
        patched(Unprojected, "_step_by_step", only_the_last),
        (on_model(checks.check_coverage, COVERS), on_model(checks.check_coverage, "coverage-after")),
    ),
    Plant(
        "padding covers the source",
        patched(Unprojected, "_step_by_step", padding_covers),
        (on_model(checks.check_coverage, COVERS), on_model(checks.check_coverage, "coverage-after")),
    ),
    Plant(
        "coverage that the score does not hear of",
        patched(Unprojected, "_covering", unheard),
        (on_model(checks.check_state_matters, COVERS),),
    ),
    Plant(
        "a context one step late",
        patched(Deep, "forward", one_step_late),
        (
            on_model(checks.check_step_by_step, "recurrent-gru-before-False"),
            on_model(checks.check_causal, "recurrent-gru-after-False"),
            lambda: checks.check_readout(lambda context: Deep(D, context)),
        ),
    ),
    Plant(
        "a summary that goes to the wrong hypothesis",
        patched(EveryStep, "forward", shared_in_turn),
        (on_model(checks.check_select, "no-attention-every-step"), lambda: checks.check_context(EveryStep(D))),
    ),
    Plant(
        "a choice by lot in use",
        patched(Hard, "forward", always_by_lot),
        (lambda: checks.check_pick(Hard()), on_model(checks.check_step_by_step, CHOOSES)),
    ),
    Plant(
        "a baseline that has seen what it should foretell",
        patched(Hard, "policy_loss", remembered_first),
        (lambda: checks.check_wagers(Hard()),),
    ),
    Plant(
        "a wager of one head only", patched(Hard, "policy_loss", forgets_heads), (lambda: checks.check_wagers(Hard()),)
    ),
    Plant(
        "a wager that rewards cost", patched(Hard, "policy_loss", wrong_sign), (lambda: checks.check_wagers(Hard()),)
    ),
    Plant(
        "padding wagers, too",
        patched(losses, "_real", all_real),
        (
            on_model(checks.check_losses_are_sums, CHOOSES),
            on_model(checks.check_losses_are_sums, "encoder.block.self.normalizer=hard"),
        ),
    ),
    Plant(
        "padding pays for attend twice",
        patched(losses, "_real", all_real),
        (on_model(checks.check_losses_are_sums, COVERS),),
    ),
    Plant(
        "sparsemax of a sum below one",
        patched(Sparsemax, "forward", less_than_one),
        (
            lambda: checks.check_pick(Sparsemax()),
            on_model(checks.check_weights, "decoder=recurrent.cross.normalizer=sparsemax"),
        ),
    ),
    Plant(
        "a join that ignores the query",
        patched(Additive, "join", lambda self, q, k: JOIN(self, torch.zeros_like(q), k)),
        (ADDITIVE, on_model(checks.check_gradients, "decoder=recurrent.cross.score=additive")),
    ),
    Plant("a mean over padding", patched(Mean, "forward", over_padding), (SUMMARY, lambda: checks.check_pool(Mean()))),
    Plant(
        "the last place, be it padding",
        patched(Last, "forward", at_the_end),
        (on_model(checks.check_blind_to_padding, "encoder.pool=last"), lambda: checks.check_pool(Last())),
    ),
    Plant(
        "backward columns taken where they begin",
        patched(Last, "forward", one_way),
        (lambda: checks.check_pool_values(Last(backward_width=1), [[3, 8], [-5, -7]]),),
    ),
]
JOIN = Additive.join

# ── search ────────────────────────────────────────────────────────────────────────────────────────


def on_search(kind: str) -> Check:
    tree = small(SEARCHES, kind)
    return lambda: checks.check_search(lambda: build(filled(SEARCHES, tree), "search"), shaken(DEFAULT.fresh()))


def free_of_prefixes(self: Constraints, log_probs: Any, step: int) -> Any:
    return ALLOWED(replace(self, prefix=self.prefix[:, :0]), log_probs, step)


def free_of_specials(self: Constraints, log_probs: Any, step: int) -> Any:
    before = log_probs.clone()
    allowed = ALLOWED(self, log_probs, step)
    allowed[..., :3] = before[..., :3] + 9
    return allowed


ALLOWED = Constraints.apply
EVERY_SEARCH = tuple(on_search(kind) for kind in SEARCHES)

SEARCH = [
    Plant(
        "states go to the wrong sentence",
        lambda patch: patch.setattr(
            "saccade.decode.loops.select", lambda state, rows, sentences=None: select(state, rows.flip(0), sentences)
        ),
        EVERY_SEARCH,
    ),
    Plant("forced prefixes are forgotten", patched(Constraints, "apply", free_of_prefixes), EVERY_SEARCH),
    Plant("padding may be written", patched(Constraints, "apply", free_of_specials), EVERY_SEARCH),
]

# ── tokenizers and batches ────────────────────────────────────────────────────────────────────────


def words_tokenizer() -> None:
    kind = WordVocabulary()
    checks.check_tokenizer(kind.learn(TEXTS), kind.read)


def mixed_by_chance(corpus: Corpus, tokens: int, seed: int, epoch: int) -> list[np.ndarray]:
    plan = batches.by_length(corpus, np.random.permutation(len(corpus)), tokens)
    return [plan[i] for i in np.random.permutation(len(plan))]


def always_the_same(corpus: Corpus, tokens: int, seed: int, epoch: int) -> list[np.ndarray]:
    return EPOCH(corpus, tokens, 1, 0)


def late(corpus: Corpus, tokens: int, gather: int, seed: int, start: SamplerState) -> Any:
    for group, position in UPDATES(corpus, tokens, gather, seed, start):
        yield group, replace(position, batch=max(0, position.batch - 1))


def by_last_length(corpus: Corpus, order: np.ndarray, tokens: int) -> list[np.ndarray]:
    """Sorted by source alone and measured by the source alone."""
    order = order[np.argsort(corpus.source_lengths[order], kind="stable")]
    plan: list[list[int]] = [[]]
    for row in order.tolist():
        if (len(plan[-1]) + 1) * (corpus.source_lengths[row] + 1) > tokens and plan[-1]:
            plan.append([])
        plan[-1].append(row)
    return [np.array(rows) for rows in plan]


def unsorted(corpus: Corpus, order: np.ndarray, tokens: int) -> list[np.ndarray]:
    widest = 2 + max(corpus.source_lengths.max(), corpus.target_lengths.max())
    return np.array_split(order, max(1, math.ceil(len(order) * widest / tokens)))


def without_end(self: Corpus, rows: Any) -> Any:
    batch = BATCH(self, rows)
    return replace(batch, outputs=replace(batch.outputs, values=batch.outputs.values.clamp(max=2)))


EPOCH, UPDATES, BATCH, BY_LENGTH = batches.epoch_batches, batches.updates, Corpus.batch, batches.by_length
RESUME = lambda: checks.check_resume(random_corpus(40), 200)  # noqa: E731
ONCE = lambda: checks.check_once_an_epoch(random_corpus(100), 200)  # noqa: E731

DATA = [
    Plant(
        "words run together",
        patched(Symbols, "decode", lambda self, ids: "".join(self._symbols[i] for i in ids if i >= len(SPECIAL))),
        (words_tokenizer,),
    ),
    Plant(
        "a file without the last symbol",
        patched(Symbols, "dump", lambda self: DUMP(Symbols(self._symbols[len(SPECIAL) : -1], str.split, " "))),
        (words_tokenizer,),
    ),
    Plant(
        "special ids are shown as text",
        patched(Symbols, "decode", lambda self, ids: " ".join(self._symbols[i] for i in ids)),
        (words_tokenizer,),
    ),
    Plant(
        "words never begin",
        lambda patch: patch.setattr("saccade.data.tokenizers.word_of", lambda pieces: [0] * len(pieces)),
        (words_tokenizer,),
    ),
    Plant("batches drawn from the global generator", patched(batches, "epoch_batches", mixed_by_chance), (RESUME,)),
    Plant("every epoch alike", patched(batches, "epoch_batches", always_the_same), (ONCE,)),
    Plant("a position one batch late", patched(batches, "updates", late), (RESUME,)),
    Plant(
        "the last batch is forgotten",
        patched(batches, "by_length", lambda corpus, order, tokens: BY_LENGTH(corpus, order, tokens)[:-1]),
        (ONCE,),
    ),
    Plant(
        "a budget of source tokens only",
        patched(batches, "by_length", by_last_length),
        (lambda: checks.check_budget(random_corpus(100), 200),),
    ),
    Plant(
        "lengths are mixed",
        patched(batches, "by_length", unsorted),
        (lambda: checks.check_little_padding(random_corpus(1000), 1000),),
    ),
    Plant(
        "targets without an end",
        patched(Corpus, "batch", without_end),
        (lambda: checks.check_batch_content(random_corpus(40), 200),),
    ),
]
DUMP = Symbols.dump


def dropped_first(part: Any, query: Any, key: Any, value: Any, queries: Any, keys: Any) -> torch.Tensor:
    weights = part.dropout(part.normalizer(part.score.join(query, key), attention_mask(queries, keys, part.causal)))
    part.note("weights", weights, queries)
    return weights @ value


def dropping(label: str) -> Check:
    variant = named(label).changed(dropout=NO_DROPOUT | {"attention": 0.5})
    return lambda: checks.check_notes_before_dropout(shaken(variant.fresh()))


def first_visit_only(self: Notes, name: str, value: torch.Tensor, queries: Places) -> None:
    if name not in self._heard:
        HEAR(self, name, value, queries)


HEAR = Notes.record

NOTES = [
    Plant("notes taken after dropout", patched(attend, "attend", dropped_first), (dropping("default"),)),
    Plant(
        "notes of the first step only",
        patched(Notes, "record", first_visit_only),
        (on_model(checks.check_capture_over_time), on_model(checks.check_coverage, "coverage")),
    ),
]

PLANTS = [*NOTES, *ATTENTION, *PARTS, *STATE, *RECURRENT, *SEARCH, *DATA]
CASES = [(plant, check) for plant in PLANTS for check in plant.checks]


@pytest.mark.parametrize(
    ("plant", "check"),
    CASES,
    ids=[f"{plant.name}-{number}" for plant in PLANTS for number in range(len(plant.checks))],
)
def test_the_contract_fails_on_a_planted_defect(plant: Plant, check: Check, monkeypatch: Patch) -> None:
    monkeypatch.setattr("saccade.parts.heads.LOGIT_CHUNK_ROWS", 8)
    check()  # sound without the defect
    plant.plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()


def test_a_checkpoint_without_biases_is_noticed(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setattr(weights_module, "named_tensors", without_biases)
    with pytest.raises(AssertionError):
        checks.check_save_and_load(DEFAULT.fresh, tmp_path)


def test_an_optimizer_that_leaves_biases_out_is_noticed() -> None:
    with pytest.raises(AssertionError):
        checks.check_optimizer(lambda model: torch.optim.AdamW(itertools.islice(model.parameters(), 1)))


def test_an_optimizer_that_remembers_more_than_tensors_is_noticed() -> None:
    with pytest.raises(AssertionError):
        checks.check_optimizer(lambda model: Forgetful(model.parameters()))


def test_an_optimizer_that_does_not_go_on_is_noticed() -> None:
    with pytest.raises(AssertionError):
        checks.check_optimizer_goes_on(Counting)


class Counting:
    """It shrinks its rate by a count of its own, which nobody gives back."""

    def __init__(self, model: nn.Module):
        self.inner, self.count = torch.optim.AdamW(model.parameters()), 0
        self.state, self.param_groups, self.zero_grad = self.inner.state, self.inner.param_groups, self.inner.zero_grad

    def step(self) -> None:
        self.count += 1
        for group in self.param_groups:
            group["lr"] /= self.count
        self.inner.step()


class Forgetful(torch.optim.AdamW):
    """It counts in a plain number, which no checkpoint holds."""

    def step(self, closure: Any = None) -> Any:
        done = super().step(closure)
        for state in self.state.values():
            state["seen"] = 1
        return done


class Asking:
    """A part that asks for wiring nobody gives."""

    def __init__(self, dim: int, depht: int = 0) -> None: ...


def test_wiring_that_nobody_gives_is_noticed() -> None:
    with pytest.raises(AssertionError):
        checks.check_wiring(Asking, {"dim", "depth"})


def test_an_option_lost_on_the_way_to_toml_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(checks, "to_toml", lambda config: '[slot]\nkind = "layer"\n')
    with pytest.raises(AssertionError):
        checks.check_toml({"layer": LayerNorm}, {"kind": "layer", "eps": 0.5})
