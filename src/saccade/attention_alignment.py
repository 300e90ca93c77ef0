"""Word alignment from cross-attention: each target word is linked to the source word with the highest attention weight.

The weights of a target word may be taken from the decoder step whose output is the word, or from the step whose input
is the word; Chen et al. (2020) found the latter better for Transformers. Which heads align best differs from model to
model (Garg et al. 2019); `rank_settings` compares them on gold links.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from saccade.data.batches import Corpus, by_length
from saccade.data.codecs import Codecs
from saccade.data.links import GradedLinks, Links
from saccade.data.tokenizers import Tokenizer
from saccade.devices import device_of
from saccade.errors import RunError
from saccade.metrics.alignment import AlignmentScores, score_alignments
from saccade.models.assemble import Model, cross_attentions, is_cross_attention
from saccade.notes import capture
from saccade.shapes import Float, Int
from saccade.tasks.guides import penultimate
from saccade.tasks.losses import teacher_forced_hidden
from saccade.tasks.translation import Translation

HeadName = tuple[str, int]  # module name of a cross-attention, number of one of its heads
Step = Literal["input", "output"]
End = Literal["ignore", "null"]
NO_ATTENTION = (
    "the model has no cross-attention, so it cannot align words; use `saccade align statistical`, which needs no model"
)


@dataclass(frozen=True)
class AlignmentSettings:
    """How to extract links: average the weights of `heads`, at the decoder step whose input or output is the word.
    Attention often goes to the end symbol: with `end = "ignore"`, the best real word is linked all the same; with
    `"null"`, a target word whose highest weight is on the end symbol has no link."""

    heads: tuple[HeadName, ...]
    step: Step = "input"
    end: End = "ignore"

    def __str__(self) -> str:
        return f"{format_heads(self.heads)}, {self.step} step, end symbol: {self.end}"

    def plain(self) -> dict[str, Any]:
        return {"heads": [list(head) for head in self.heads], "step": self.step, "end": self.end}

    @classmethod
    def of(cls, stored: Any) -> "AlignmentSettings":
        """The inverse of `plain`. ValueError if `stored`, which may come from a file, is something else."""
        match stored:
            case {"heads": [*heads], "step": "input" | "output" as step, "end": "ignore" | "null" as end}:
                if heads and all(_is_head(head) for head in heads):
                    return cls(tuple((name, number) for name, number in heads), step, end)
        raise ValueError("not alignment settings: expected heads, step and end")


def _is_head(head: Any) -> bool:
    match head:
        case [str(), int(number)]:
            return number >= 0
    return False


def format_heads(heads: Sequence[HeadName]) -> str:
    """The heads by module, such as `decoder.layers.1.cross[0,2]`."""
    names = dict.fromkeys(name for name, _ in heads)
    return " ".join(f"{name}[{','.join(str(h) for n, h in heads if n == name)}]" for name in names)


@dataclass(frozen=True)
class WordPairs:
    """Tokenized sentence pairs: for each sentence, the ids of each word."""

    source: list[list[list[int]]]
    target: list[list[list[int]]]

    @classmethod
    def of(cls, codecs: Codecs[Tokenizer, Tokenizer], pairs: Sequence[tuple[str, str]]) -> "WordPairs":
        return cls(
            [codecs.source.encode_words(source.split()) for source, _ in pairs],
            [codecs.target.encode_words(target.split()) for _, target in pairs],
        )

    def corpus(self) -> Corpus:
        return Corpus([[*chain(*words)] for words in self.source], [[*chain(*words)] for words in self.target])

    def linkable(self) -> np.ndarray:
        """The indices of the pairs that have tokens on both sides."""
        return np.array(
            [i for i, (s, t) in enumerate(zip(self.source, self.target, strict=True)) if any(s) and any(t)], np.int64
        )


def cross_attention_maps(
    model: Model, words: WordPairs, batch_tokens: int
) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """For batches of pairs, shortest first: their row numbers, and the weights [B H T S] of each cross-attention by
    module name."""
    corpus, device = words.corpus(), device_of(model)
    for rows in by_length(corpus, words.linkable(), batch_tokens):
        with torch.inference_mode(), capture(model) as captured:
            teacher_forced_hidden(model, corpus.batch(rows.tolist()).to(device))
            maps = {name: weights.cpu() for name, weights in captured.items() if is_cross_attention(name)}
        if not maps:
            raise RunError(NO_ATTENTION)
        yield rows.tolist(), maps


def default_settings(model: Model, task: Translation) -> AlignmentSettings:
    """The settings of a run without a stored search result: the guided head; without one, all heads of the second to
    last cross-attention, at the step whose output is the word (the better default for shallow models)."""
    for guide in task.penalties:
        return AlignmentSettings(((guide.path(model), guide.head),), guide.step, "null")
    heads = cross_attentions(model)
    if not heads:
        raise RunError(NO_ATTENTION)
    name = penultimate(heads)
    return AlignmentSettings(tuple((name, head) for head in range(heads[name])), "output")


def with_heads(model: Model, base: AlignmentSettings, layers: Sequence[int], heads: Sequence[int]) -> AlignmentSettings:
    """`base` with other heads: those numbered `heads` (default: all) in `layers` (default: the layers of `base`)."""
    head_counts = cross_attentions(model)
    names = [*head_counts]
    for layer in layers:
        if layer >= len(names):
            raise RunError(f"--layer {layer}: the model has cross-attention layers 0 to {len(names) - 1}")
    selected = [names[layer] for layer in layers] or [*dict.fromkeys(name for name, _ in base.heads)]
    for name in selected:
        for head in heads:
            if head >= head_counts.get(name, 0):
                raise RunError(f"--head {head}: {name} has heads 0 to {head_counts.get(name, 0) - 1}")
    return replace(base, heads=tuple((name, head) for name in selected for head in heads or range(head_counts[name])))


def align_by_attention(
    model: Model, words: WordPairs, settings: AlignmentSettings, batch_tokens: int
) -> Iterator[tuple[int, Links]]:
    """The index of each pair with its links, in the order of computation. A pair with an empty side has no links."""
    linkable = {*words.linkable().tolist()}
    yield from ((row, frozenset()) for row in range(len(words.source)) if row not in linkable)
    for rows, maps in cross_attention_maps(model, words, batch_tokens):
        yield from zip(rows, _links(words, rows, maps, settings), strict=True)


# ── from weights to links ─────────────────────────────────────────────────────────────────────────


def _links(words: WordPairs, rows: list[int], maps: Mapping[str, Tensor], settings: AlignmentSettings) -> list[Links]:
    weights = torch.stack([maps[name][:, head] for name, head in settings.heads]).mean(0)
    # The decoder input begins with <s>: token t of the target is the output of step t and the input of step t + 1.
    steps = weights[:, 1:] if settings.step == "input" else weights[:, :-1]
    sources = [words.source[row] for row in rows]
    targets = [words.target[row] for row in rows]
    by_source_word = _sum_by_word(steps, _word_numbers(sources, steps.shape[2]))
    by_word = _sum_by_word(by_source_word.mT, _word_numbers(targets, steps.shape[1])).mT.numpy()
    return [_best_links(pair, s, t, settings.end) for pair, s, t in zip(by_word, sources, targets, strict=True)]


def _word_numbers(sentences: list[list[list[int]]], width: int) -> Int[Tensor, "B S"]:
    """The word number of each token. The end symbol and the padding count as one more word: that of a source has the
    weight of the end symbol, because padding has weight 0."""
    numbers = np.empty((len(sentences), width), np.int64)
    for row, words in zip(numbers, sentences, strict=True):
        tokens = np.repeat(np.arange(len(words)), [len(ids) for ids in words])
        row[: len(tokens)], row[len(tokens) :] = tokens, len(words)
    return torch.from_numpy(numbers)


def _sum_by_word(weights: Float[Tensor, "B T S"], numbers: Int[Tensor, "B S"]) -> Float[Tensor, "B T words"]:
    """Sum the columns of each word."""
    sums = weights.new_zeros(*weights.shape[:2], int(numbers.max()) + 1)
    return sums.scatter_add_(2, numbers[:, None].expand_as(weights), weights)


def _best_links(weights: np.ndarray, source: list[list[int]], target: list[list[int]], end: End) -> Links:
    """Link each target word that has tokens to the source word with the highest weight."""
    best = weights[: len(target), : len(source) + (end == "null")].argmax(1)
    return frozenset((int(s), t) for t, s in enumerate(best) if target[t] and s < len(source) and source[s])


# ── the search for the best settings ──────────────────────────────────────────────────────────────


def candidates(heads: Mapping[str, int]) -> list[AlignmentSettings]:
    """All settings to compare: each head, the average of each layer and of all layers; each with both steps and both
    treatments of the end symbol."""
    single = [((name, head),) for name, count in heads.items() for head in range(count)]
    layers = [tuple((name, head) for head in range(count)) for name, count in heads.items() if count > 1]
    average = [tuple(head for heads in single for head in heads)] if len(heads) > 1 else []
    return [
        AlignmentSettings(selection, step, end)
        for selection in [*single, *layers, *average]
        for step in ("input", "output")
        for end in ("ignore", "null")
    ]


def rank_settings(
    model: Model, words: WordPairs, gold: Sequence[GradedLinks], batch_tokens: int
) -> list[tuple[AlignmentSettings, AlignmentScores]]:
    """Score all candidates on pairs with gold links; the best (lowest AER) first."""
    links: dict[AlignmentSettings, list[Links]] = {}
    for rows, maps in cross_attention_maps(model, words, batch_tokens):
        if not links:
            heads = {name: weights.shape[1] for name, weights in maps.items()}
            links = {settings: [frozenset()] * len(gold) for settings in candidates(heads)}
        for settings, links_of_rows in links.items():
            for row, row_links in zip(rows, _links(words, rows, maps, settings), strict=True):
                links_of_rows[row] = row_links
    scored = [(settings, score_alignments(links_of_rows, gold)) for settings, links_of_rows in links.items()]
    return sorted(scored, key=lambda candidate: candidate[1].aer)
