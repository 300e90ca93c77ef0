"""Translation: pairs of texts; the loss is the cost of the next token, the measure is BLEU of real decoding."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from saccade.aligners.statistical import align_both_ways
from saccade.aligners.symmetrize import graded
from saccade.config import NotNegative, Rate, build
from saccade.data.batches import COLLATE_PAIRS, Batch, Collate, Corpus
from saccade.data.codecs import Codecs
from saccade.data.links import Gold
from saccade.data.sources.rows import Pair, Row
from saccade.data.tokenizers import Tokenizer, TokenizerKind
from saccade.decode.engine import DecodeConfig, in_order
from saccade.decode.torch_engine import torch_engine
from saccade.errors import DataError, RunError
from saccade.metrics.translation import bleu, chrf, exact_match
from saccade.models.assemble import Model
from saccade.tasks.guides import GuidedHead, GuideSlot, Unguided
from saccade.tasks.losses import Loss, next_token, next_token_r_drop
from saccade.tasks.task import Encoded, Validation, ValidationSample, chosen, file_of, summed_cost

Tokenizers = Codecs[Tokenizer, Tokenizer]

MAX_ALIGNMENT_CELLS = 10**9  # source places × target places of all pairs; 8 bytes each
POSSIBLE_LINK_WEIGHT = 0.5  # how much of a sure link one that is only possible counts


class Translation:
    """Raw text in one language → raw text in another. With `agreement` each pair is gone through twice, with other
    draws of dropout, and the two answers are drawn to each other so much (R-Drop: Liang et al. 2021)."""

    command = "translate"
    rows: tuple[type, ...] = (Pair,)
    expects = "pairs of texts"
    unit = "pairs"
    writes = True
    collate: Collate = COLLATE_PAIRS
    figures: tuple[str, ...] = ("loss", "bleu", "chrf", "exact_match")
    best_figure = "bleu"

    def __init__(self, *, smoothing: Rate = 0.1, guide: GuideSlot = Unguided, r_drop: NotNegative = 0.0):
        self.smoothing, self.guide, self.r_drop = smoothing, build(guide, "guide"), r_drop

    @property
    def penalties(self) -> tuple[GuidedHead, ...]:
        return (self.guide,) if isinstance(self.guide, GuidedHead) else ()

    def check(self, model: Model) -> None:
        """Refuse a guide for what the model does not have."""
        for guide in self.penalties:
            guide.path(model)

    def accepts(self, row: Row) -> bool:
        return isinstance(row, Pair)

    def learn(self, rows: Sequence[Pair], kind: TokenizerKind, joint: bool) -> Tokenizers:
        if joint:
            both = kind.learn(text for pair in rows for text in (pair.source, pair.target))
            return Codecs(both, both)
        return Codecs(kind.learn([pair.source for pair in rows]), kind.learn([pair.target for pair in rows]))

    def files(self, codecs: Tokenizers) -> dict[str, bytes]:
        if codecs.source is codecs.target:
            return {"joint.model": codecs.source.dump()}
        return {"source.model": codecs.source.dump(), "target.model": codecs.target.dump()}

    def read(self, files: Mapping[str, bytes], kind: TokenizerKind, joint: bool) -> Tokenizers:
        if joint:
            both = kind.read(file_of(files, "joint.model"))
            return Codecs(both, both)
        return Codecs(kind.read(file_of(files, "source.model")), kind.read(file_of(files, "target.model")))

    def describe(self, codecs: Tokenizers) -> str:
        return f"{codecs.source.size:,} source and {codecs.target.size:,} target tokens"

    def drop_unknown_labels(self, rows: Sequence[Pair], codecs: Tokenizers, skip_bad: bool) -> list[Pair]:
        return list(rows)  # a tokenizer takes any text

    def encode(self, rows: Sequence[Pair], codecs: Tokenizers, longest: int) -> Encoded:
        """Ids of the pairs with something on both sides and at most `longest` tokens on each."""
        sources = codecs.source.encode([pair.source for pair in rows])
        targets = codecs.target.encode([pair.target for pair in rows])
        empty = [not s or not t for s, t in zip(sources, targets, strict=True)]
        long = [max(len(s), len(t)) > longest for s, t in zip(sources, targets, strict=True)]
        kept = [i for i in range(len(rows)) if not empty[i] and not long[i]]
        guided = self.penalties and all(row.links is not None for row in rows)  # rows to judge by need none
        links = [_piece_links(rows[i], codecs) for i in kept] if guided else None
        corpus = Corpus([sources[i] for i in kept], [targets[i] for i in kept], self.collate, links)
        left_out = {"with an empty side": sum(empty), "too long": sum(long)}
        return Encoded(corpus, tuple(rows[i].location for i in kept), left_out)

    def prepare(self, encoded: Encoded, say: Callable[[str], None]) -> None:
        """Count which pieces belong together, if a head is to be told and no one has said it."""
        corpus = encoded.corpus
        if not self.penalties or corpus.links is not None:
            return
        places = int((corpus.source_lengths * corpus.target_lengths).sum())
        if places > MAX_ALIGNMENT_CELLS:
            raise DataError(
                f"task.guide: counting which pieces belong together would take {8 * places / 1e9:,.0f} GB; count words "
                "with `saccade align count --symmetrise graded` in parts and give them with data.train.links = FILE"
            )
        rows = range(len(corpus))
        sides = [corpus.source(row).tolist() for row in rows], [corpus.target(row).tolist() for row in rows]
        found = align_both_ways(*sides, lambda line: say(f"counting which pieces belong together, {line}"))
        corpus.links = [_as_array(_link_weights(graded(*both))) for both in found]

    def loss(self, model: Model, batch: Batch) -> Loss:
        if self.r_drop:
            return next_token_r_drop(model, batch, self.smoothing, self.penalties, self.r_drop)
        return next_token(model, batch, self.smoothing, self.penalties)

    def validate(
        self, model: Model, codecs: Tokenizers, rows: Sequence[Pair], longest: int, decode: DecodeConfig
    ) -> Validation:
        """Cost per token without smoothing, and scores of what the model really writes."""
        cost, count = teacher_forced_cost(model, self.encode(rows, codecs, longest).corpus, decode.batch_tokens)
        if not math.isfinite(cost):
            raise RunError("the model's probabilities are not finite; train anew with a lower train.schedule.rate")
        found = torch_engine(model, codecs.source, codecs.target).generate([pair.source for pair in rows], decode)
        texts = [outputs[0].text for outputs in in_order(found)]
        references = [pair.target for pair in rows]
        figures = {
            "loss": cost / max(1, count),
            "bleu": bleu(texts, references),
            "chrf": chrf(texts, references),
            "exact_match": exact_match(texts, references),
        }
        samples = (ValidationSample(rows[i].source, references[i], texts[i]) for i in chosen(len(rows)))
        return Validation(figures, tuple(samples))


def _piece_links(pair: Pair, codecs: Tokenizers) -> np.ndarray:
    """The links [n 3] of a pair between its pieces, and how surely: all of a word's with all of the other's."""
    places = [_places(codecs.source, pair.source), _places(codecs.target, pair.target)]
    assert pair.links is not None
    return _as_array(
        (s, t, much) for i, j, much in _link_weights(pair.links) for s in places[0][i] for t in places[1][j]
    )


def _link_weights(links: Gold) -> Iterator[tuple[int, int, float]]:
    """Each link, and how surely it is one."""
    trust = dict.fromkeys(links.possible, POSSIBLE_LINK_WEIGHT) | dict.fromkeys(links.sure, 1.0)
    return ((*link, much) for link, much in sorted(trust.items()))


def _as_array(links: Iterable[tuple[int, int, float]]) -> np.ndarray:
    return np.array([*links], dtype=np.float32).reshape(-1, 3)


def _places(tokenizer: Tokenizer, text: str) -> list[range]:
    """Where the pieces of each word stand."""
    ends = [0, *accumulate(len(ids) for ids in tokenizer.encode_words(text.split()))]
    return [range(start, end) for start, end in pairwise(ends)]


def teacher_forced_cost(
    model: Model, corpus: Corpus, batch_tokens: int, rows: Sequence[int] | None = None
) -> tuple[float, int]:
    """The summed cost of the target tokens of some rows, and their number: perplexity is exp(cost / number)."""
    return summed_cost(model, corpus, batch_tokens, next_token, rows)
