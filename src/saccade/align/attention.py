"""Word alignments read from attention: each target word is linked to the source word it looked at most.

A model may look at a word when it is about to write it (the step whose output is the word) or when it has just read it
(the step whose input is the word; Chen et al. 2020 found this the better one in Transformers). Which heads say it best
differs from model to model (Garg et al. 2019), so `search` finds out.
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
from saccade.data.links import Gold, Links
from saccade.data.tokenizers import Tokenizer
from saccade.errors import RunError
from saccade.metrics.alignment import AlignmentScores, score_alignments
from saccade.models.assemble import Model, cross_attentions, is_cross_attention
from saccade.notes import capture
from saccade.shapes import Float, Int
from saccade.tasks.guides import last_but_one
from saccade.tasks.losses import teacher_forced_hidden
from saccade.tasks.translation import Translation

HeadName = tuple[str, int]  # the name of an attention, as in the model, and the number of a head of it
Step = Literal["input", "output"]
End = Literal["ignore", "null"]
NO_ATTENTION = "the model has no attention to its source, so it cannot say which words belong together"


@dataclass(frozen=True)
class AlignmentSettings:
    """How links are read: the average of these `heads`, at the step whose input or output is the word. Much of what is
    looked at is the end symbol: `ignore` takes the best real word all the same, `null` leaves a target word without a
    link when the end symbol is what it looked at most."""

    heads: tuple[HeadName, ...]
    step: Step = "input"
    end: End = "ignore"

    def __str__(self) -> str:
        return f"{named(self.heads)}, {self.step} step, end symbol: {self.end}"

    def plain(self) -> dict[str, Any]:
        return {"heads": [list(head) for head in self.heads], "step": self.step, "end": self.end}

    @classmethod
    def of(cls, stored: Any) -> "AlignmentSettings":
        """From what `plain` gave, which may come from a file; ValueError if it did not."""
        match stored:
            case {"heads": [*heads], "step": "input" | "output" as step, "end": "ignore" | "null" as end}:
                if heads and all(_is_head(head) for head in heads):
                    return cls(tuple((name, number) for name, number in heads), step, end)
        raise ValueError("is no reading of alignments")


def _is_head(head: Any) -> bool:
    match head:
        case [str(), int(number)]:
            return number >= 0
    return False


def named(heads: Sequence[HeadName]) -> str:
    """`decoder.layers.1.cross[0,2]` and so on, by attention."""
    names = dict.fromkeys(name for name, _ in heads)
    return " ".join(f"{name}[{','.join(str(h) for n, h in heads if n == name)}]" for name in names)


@dataclass(frozen=True)
class WordPairs:
    """The two sides of pairs: the ids of each word, so that a piece knows its word."""

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
        """The pairs with something to link on both sides."""
        return np.array(
            [i for i, (s, t) in enumerate(zip(self.source, self.target, strict=True)) if any(s) and any(t)], np.int64
        )


def cross_attention_maps(
    model: Model, words: WordPairs, batch_tokens: int
) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Batches of pairs, longest last, with the weights [B H T S] of every attention to the source, by name."""
    corpus = words.corpus()
    for rows in by_length(corpus, words.linkable(), batch_tokens):
        with torch.inference_mode(), capture(model) as captured:
            teacher_forced_hidden(model, corpus.batch(rows.tolist()))
            maps = {name: weights for name, weights in captured.items() if is_cross_attention(name)}
        if not maps:
            raise RunError(NO_ATTENTION)
        yield rows.tolist(), maps


def default_settings(model: Model, task: Translation) -> AlignmentSettings:
    """The reading of a run for which none was searched: the head that was guided; else all heads of the last but one
    attention, at the step whose output is the word (in shallow models the better guess)."""
    for guide in task.penalties:
        return AlignmentSettings(((guide.path(model), guide.head),), guide.step, "null")
    there = cross_attentions(model)
    if not there:
        raise RunError(NO_ATTENTION)
    name = last_but_one(there)
    return AlignmentSettings(tuple((name, head) for head in range(there[name])), "output")


def with_heads(model: Model, base: AlignmentSettings, layers: Sequence[int], heads: Sequence[int]) -> AlignmentSettings:
    """`base` with all heads of some layers, or some heads of them (of those of `base`, if no layer is given)."""
    there = cross_attentions(model)
    names = [*there]
    for layer in layers:
        if layer >= len(names):
            raise RunError(f"--layer {layer}: the attentions to the source are 0 to {len(names) - 1}")
    wanted = [names[layer] for layer in layers] or [*dict.fromkeys(name for name, _ in base.heads)]
    for name in wanted:
        for head in heads:
            if head >= there.get(name, 0):
                raise RunError(f"--head {head}: {name} has heads 0 to {there.get(name, 0) - 1}")
    return replace(base, heads=tuple((name, head) for name in wanted for head in heads or range(there[name])))


def align(model: Model, words: WordPairs, reading: AlignmentSettings, batch_tokens: int) -> Iterator[tuple[int, Links]]:
    """The number of each pair and its links, as they are found; a pair with an empty side has none."""
    linkable = {*words.linkable().tolist()}
    yield from ((row, frozenset()) for row in range(len(words.source)) if row not in linkable)
    for rows, maps in cross_attention_maps(model, words, batch_tokens):
        yield from zip(rows, _links(words, rows, maps, reading), strict=True)


# ── from weights to links ─────────────────────────────────────────────────────────────────────────


def _links(words: WordPairs, rows: list[int], maps: Mapping[str, Tensor], reading: AlignmentSettings) -> list[Links]:
    weights = torch.stack([maps[name][:, head] for name, head in reading.heads]).mean(0)
    steps = weights[:, 1:] if reading.step == "input" else weights[:, :-1]
    sources = [words.source[row] for row in rows]
    targets = [words.target[row] for row in rows]
    by_word = _merged(_merged(steps, _numbers(sources, steps.shape[2])).mT, _numbers(targets, steps.shape[1])).mT
    return [_linked(each, s, t, reading.end) for each, s, t in zip(by_word.numpy(), sources, targets, strict=True)]


def _numbers(sides: list[list[list[int]]], places: int) -> Int[Tensor, "B S"]:
    """The number of each piece's word. The end symbol (and padding, whose weight is none) counts as one word more."""
    numbers = np.empty((len(sides), places), np.int64)
    for row, side in zip(numbers, sides, strict=True):
        real = np.repeat(np.arange(len(side)), [len(ids) for ids in side])
        row[: len(real)], row[len(real) :] = real, len(side)
    return torch.from_numpy(numbers)


def _merged(weights: Float[Tensor, "B T S"], numbers: Int[Tensor, "B S"]) -> Float[Tensor, "B T W"]:
    """Columns summed by word."""
    merged = weights.new_zeros(*weights.shape[:2], int(numbers.max()) + 1)
    return merged.scatter_add_(2, numbers[:, None].expand_as(weights), weights)


def _linked(weights: np.ndarray, source: list[list[int]], target: list[list[int]], end: End) -> Links:
    """For each target word that has pieces, the source word with the most weight."""
    own = weights[: len(target), : len(source) + (end == "null")]
    best = own.argmax(1)
    return frozenset((int(s), t) for t, s in enumerate(best) if target[t] and s < len(source) and source[s])


# ── which reading is best ─────────────────────────────────────────────────────────────────────────


def candidates(heads: Mapping[str, int]) -> list[AlignmentSettings]:
    """Every head alone, the average of every layer, and of all; each at both steps, with and without null links."""
    single = [((name, head),) for name, count in heads.items() for head in range(count)]
    layers = [tuple((name, head) for head in range(count)) for name, count in heads.items() if count > 1]
    every = [tuple(each for layer in single for each in layer)] if len(heads) > 1 else []
    return [
        AlignmentSettings(chosen, step, end)
        for chosen in [*single, *layers, *every]
        for step in ("input", "output")
        for end in ("ignore", "null")
    ]


def search(
    model: Model, words: WordPairs, gold: Sequence[Gold], batch_tokens: int
) -> list[tuple[AlignmentSettings, AlignmentScores]]:
    """Every candidate with its scores on pairs whose links are known, the best first."""
    found: dict[AlignmentSettings, list[Links]] = {}
    for rows, maps in cross_attention_maps(model, words, batch_tokens):
        if not found:
            heads = {name: weights.shape[1] for name, weights in maps.items()}
            found = {reading: [frozenset()] * len(gold) for reading in candidates(heads)}
        for reading, links in found.items():
            for row, each in zip(rows, _links(words, rows, maps, reading), strict=True):
                links[row] = each
    scored = [(reading, score_alignments(links, gold)) for reading, links in found.items()]
    return sorted(scored, key=lambda each: each[1].aer)
