"""Translation: text → text. The loss is the cross-entropy of the target tokens; the metrics score decoded outputs."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from saccade.aligners.statistical import align_both_ways
from saccade.aligners.symmetrize import graded
from saccade.config import NotNegative, Rate, build
from saccade.console import track
from saccade.data.batches import COLLATE_PAIRS, COLLATE_PROMPTED, Batch, Collate, Corpus
from saccade.data.codecs import Codecs, file_of
from saccade.data.flat_rows import FlatRows
from saccade.data.links import GradedLinks
from saccade.data.masking import MaskSources
from saccade.data.sources.rows import Pair
from saccade.data.tokenizers import Tokenizer, TokenizerKind
from saccade.decode.engine import DecodeConfig, changed_decode_config, in_order
from saccade.decode.torch_engine import torch_engine
from saccade.errors import ConfigError, DataError, RunError
from saccade.metrics.translation import TITLES, bleu, chrf, exact_match, score, score_lines
from saccade.models.assemble import Model, ModelConfig, Reads, shares_embeddings
from saccade.parts.token_costs import TokenCost
from saccade.tasks.evaluation import (
    Evaluation,
    MetricScore,
    ScoredRow,
    best_and_worst,
    bootstrap_interval,
    scores_by_length,
)
from saccade.tasks.guides import GuidedHead, GuideSlot, Unguided
from saccade.tasks.losses import Loss, next_token_loss, r_drop_loss
from saccade.tasks.task import (
    DIVERGED,
    LOSS,
    Encoded,
    EvaluationOptions,
    Metric,
    PairTask,
    Side,
    TrainedModel,
    Validation,
    ValidationSample,
    counts_of,
    kept_rows,
    sample_rows,
    summed_cost,
)

Tokenizers = Codecs[Tokenizer, Tokenizer]

NO_LIMIT = 10**9  # tokens: more than any row has
MAX_ALIGNMENT_CELLS = 10**9  # source tokens × target tokens, summed over all pairs; 8 bytes each
POSSIBLE_LINK_WEIGHT = 0.5  # a sure link weighs 1
BLEU = Metric("bleu", TITLES["bleu"])
CHRF = Metric("chrf", TITLES["chrf"])
EXACT_MATCH = Metric("exact_match", "exact match")


class Translation(PairTask[Pair, Tokenizers]):
    """Raw text in one language → raw text in another. `r_drop` is the weight of R-Drop's KL divergence between two
    forward passes with different dropout masks (Liang et al. 2021); `mask_sources` is the share of source tokens that
    `<unk>` replaces in training. A model without an encoder reads the source as the beginning of the target."""

    command = "translate"
    does = "translates"
    text_to_text = True
    row_score = "sentence-level chrF"
    rows: tuple[type, ...] = (Pair,)
    expects = "pairs of texts"
    unit = "pairs"
    reads: Reads = "decoder"
    metrics: tuple[Metric, ...] = (LOSS, BLEU, CHRF, EXACT_MATCH)
    best_metric = BLEU

    def __init__(
        self,
        has_encoder: bool = True,
        *,
        smoothing: Rate = 0.1,
        guide: GuideSlot = Unguided,
        r_drop: NotNegative = 0.0,
        mask_sources: Rate = 0.0,
    ):
        collate: Collate = COLLATE_PAIRS if has_encoder else COLLATE_PROMPTED
        self.collate: Collate = MaskSources(collate, mask_sources) if mask_sources else collate
        self.guide = build(guide, "guide")
        self.token_cost = TokenCost(smoothing, r_drop)

    @property
    def penalties(self) -> tuple[GuidedHead, ...]:
        return (self.guide,) if isinstance(self.guide, GuidedHead) else ()

    @property
    def encodes_text_alone(self) -> bool:
        return not self.penalties

    def tokenizers(self, codecs: Tokenizers) -> dict[Side, Tokenizer]:
        return {"source": codecs.source, "target": codecs.target}

    def check(self, model: Model, config: ModelConfig, joint: bool) -> None:
        """Refuse two tokenizers where the model has one table of embeddings, and a guide for an attention head that the
        model does not have."""
        if model.encoder is None and not joint:
            raise ConfigError(
                "data.joint: a model without an encoder reads both languages with one tokenizer, but data.joint is "
                "false; set it to true"
            )
        if shares_embeddings(config) and not joint:
            raise ConfigError(
                "model.shared_embeddings: needs one vocabulary for both languages, but data.joint is false; set "
                "data.joint=true or model.shared_embeddings=false"
            )
        for guide in self.penalties:
            guide.path(model)

    def row(self, codecs: Tokenizers, source: str, target: str | None, location: str) -> Pair:
        return Pair(source, "" if target is None else target, location)

    def learn(self, rows: Iterable[Pair], kind: TokenizerKind, joint: bool) -> Tokenizers:
        if joint:
            shared = kind.learn(text for pair in rows for text in (pair.source, pair.target))
            return Codecs(shared, shared)
        return Codecs(kind.learn(pair.source for pair in rows), kind.learn(pair.target for pair in rows))

    def files(self, codecs: Tokenizers) -> dict[str, bytes]:
        if codecs.source is codecs.target:
            return {"joint.model": codecs.source.dump()}
        return {"source.model": codecs.source.dump(), "target.model": codecs.target.dump()}

    def read(self, files: Mapping[str, bytes], kind: TokenizerKind, joint: bool) -> Tokenizers:
        if joint:
            shared = kind.read(file_of(files, "joint.model"))
            return Codecs(shared, shared)
        return Codecs(kind.read(file_of(files, "source.model")), kind.read(file_of(files, "target.model")))

    def describe(self, codecs: Tokenizers) -> str:
        return f"{codecs.source.size:,} source and {codecs.target.size:,} target tokens"

    def encode(self, rows: Sequence[Pair], codecs: Tokenizers, longest: int) -> Encoded:
        """Pairs with an empty side or with more than `longest` tokens on a side are left out."""
        sources = FlatRows.of(codecs.source.encode([pair.source for pair in rows]))
        targets = FlatRows.of(codecs.target.encode([pair.target for pair in rows]))
        left_out = self.left_out(sources, targets, longest)
        kept = kept_rows(left_out)
        pairs = [rows[i] for i in np.flatnonzero(kept).tolist()]
        guided = self.penalties and all(row.links is not None for row in rows)  # development rows may have none
        links = [_piece_links(pair, codecs) for pair in pairs] if guided else None
        corpus = Corpus(sources.take(kept), targets.take(kept), self.collate, links)
        return Encoded(corpus, tuple(pair.location for pair in pairs), counts_of(left_out))

    def left_out(self, sources: FlatRows, targets: FlatRows, longest: int) -> dict[str, np.ndarray]:
        return {
            "with an empty side": (sources.lengths == 0) | (targets.lengths == 0),
            "too long": (sources.lengths > longest) | (targets.lengths > longest),
        }

    def prepare(self, encoded: Encoded, report: Callable[[str], None]) -> None:
        """Align the tokens of the training pairs if a head is guided and the data has no links."""
        corpus = encoded.corpus
        if not self.penalties or corpus.links is not None:
            return
        cells = int((corpus.source_lengths * corpus.target_lengths).sum())
        if cells > MAX_ALIGNMENT_CELLS:
            raise DataError(
                f"task.guide: aligning the training tokens would take {8 * cells / 1e9:,.0f} GB of memory; align "
                "parts of the text with `saccade align statistical --symmetrize graded`, concatenate the outputs, and "
                'set data.train.links = FILE (the source must be "pairs")'
            )
        rows = range(len(corpus))
        sources, targets = [corpus.source(row).tolist() for row in rows], [corpus.target(row).tolist() for row in rows]
        aligned = align_both_ways(sources, targets, lambda line: report(f"aligning the training tokens, {line}"))
        corpus.links = [_as_array(_link_weights(graded(*directions))) for directions in aligned]

    def loss(self, model: Model, batch: Batch) -> Loss:
        loss = r_drop_loss if self.token_cost.r_drop else next_token_loss
        return loss(model, batch, self.token_cost, self.penalties)

    def validate(
        self, model: Model, codecs: Tokenizers, rows: Sequence[Pair], longest: int, decode: DecodeConfig
    ) -> Validation:
        """Cross-entropy per token without label smoothing, and scores of decoded outputs."""
        cost, count = teacher_forced_cost(model, self.encode(rows, codecs, longest).corpus, decode.batch_tokens)
        if not math.isfinite(cost):
            raise RunError(DIVERGED)
        results = torch_engine(model, codecs.source, codecs.target).generate([pair.source for pair in rows], decode)
        texts = [outputs[0].text for outputs in in_order(results)]
        references = [pair.target for pair in rows]
        scores = {
            LOSS.key: cost / max(1, count),
            BLEU.key: bleu(texts, references),
            CHRF.key: chrf(texts, references),
            EXACT_MATCH.key: exact_match(texts, references),
        }
        samples = (ValidationSample(rows[i].source, references[i], texts[i]) for i in sample_rows(len(rows)))
        return Validation(scores, tuple(samples))

    def predict_lines(self, run: TrainedModel[Tokenizers], rows: Sequence[Pair]) -> list[str]:
        decode = changed_decode_config(run.decode, {"scores": False})
        results = run.engine().generate([row.source for row in rows], decode)
        return [outputs[0].text.replace("\n", " ") for outputs in in_order(results)]

    def evaluate(
        self, run: TrainedModel[Tokenizers], rows: Sequence[Pair], options: EvaluationOptions
    ) -> dict[str, Any]:
        """BLEU, chrF and exact match of the outputs, the perplexity of the references, and the speed."""
        engine, began = run.engine(), time.monotonic()
        results = engine.generate([row.source for row in rows], options.decode)
        best = [outputs[0] for outputs in in_order(track(results, len(rows), "translating"))]
        seconds = time.monotonic() - began
        scores = score([output.text for output in best], [row.target for row in rows])
        pairs = [Pair(row.source, row.target, row.location) for row in rows]  # without links, which are not needed
        corpus = self.encode(pairs, run.codecs, longest=NO_LIMIT).corpus
        cost, count = teacher_forced_cost(run.model, corpus, run.decode.batch_tokens)
        return scores.plain() | {
            "perplexity": math.exp(min(700.0, cost / max(1, count))),
            "tokens_per_second": sum(len(output.ids) for output in best) / seconds,
            "sentences_per_second": len(best) / seconds,
        }

    def score_lines(self, scores: Mapping[str, Any]) -> list[str]:
        return score_lines(scores)

    def signature(self, metric: Metric) -> str:
        return score(["a"], ["a"]).signatures.get(metric.key, "")

    def evaluate_for_report(self, run: TrainedModel[Tokenizers], rows: Sequence[Pair], split: str) -> Evaluation:
        results = run.engine().generate([row.source for row in rows], run.decode)
        texts = [best[0].text for best in in_order(track(results, len(rows), "translating"))]
        return self.evaluate_outputs(split, rows, texts, run.codecs.source)

    def evaluate_outputs(
        self, split: str, rows: Sequence[Pair], outputs: Sequence[str], codec: Tokenizer
    ) -> Evaluation:
        """Evaluate given translations; `codec` is the source's."""
        lengths = [len(ids) for ids in codec.encode([row.source for row in rows])]
        references = [row.target for row in rows]
        scored = [
            ScoredRow(row.source, row.target, output, chrf([output], [row.target]), length)
            for row, output, length in zip(rows, outputs, lengths, strict=True)
        ]

        def scores(chosen: Sequence[int]) -> dict[str, float]:
            texts = [outputs[i] for i in chosen], [references[i] for i in chosen]
            return {CHRF.title: chrf(*texts), BLEU.title: bleu(*texts)}

        best, worst = best_and_worst(scored)
        return Evaluation(
            split=split,
            rows=len(rows),
            length_unit="tokens",
            scores=_corpus_scores(outputs, references),
            best=best,
            worst=worst,
            lengths=scores_by_length(lengths, scores),
        )


def _corpus_scores(outputs: Sequence[str], references: Sequence[str]) -> tuple[MetricScore, ...]:
    result = score(outputs, references)
    matches = np.array([[output == reference, 1] for output, reference in zip(outputs, references, strict=True)])
    return (
        *(
            MetricScore(
                title, getattr(result, key), (result.interval[key][0], result.interval[key][1]), result.signatures[key]
            )
            for key, title in TITLES.items()
        ),
        MetricScore(
            "Exact match, %",
            result.exact_match,
            bootstrap_interval(matches, lambda sums: 100 * float(sums[0] / sums[1])),
        ),
    )


def _piece_links(pair: Pair, codecs: Tokenizers) -> np.ndarray:
    """The links of a pair between its tokens [n 3]: source token, target token, weight. If two words
    are linked, every token of one is linked to every token of the other."""
    sources, targets = _token_ranges(codecs.source, pair.source), _token_ranges(codecs.target, pair.target)
    assert pair.links is not None
    return _as_array(
        (s, t, weight) for i, j, weight in _link_weights(pair.links) for s in sources[i] for t in targets[j]
    )


def _link_weights(links: GradedLinks) -> Iterator[tuple[int, int, float]]:
    """Each link with its weight: 1 for a sure link, less for a possible one."""
    weights = dict.fromkeys(links.possible, POSSIBLE_LINK_WEIGHT) | dict.fromkeys(links.sure, 1.0)
    return ((*link, weight) for link, weight in sorted(weights.items()))


def _as_array(links: Iterable[tuple[int, int, float]]) -> np.ndarray:
    return np.array([*links], dtype=np.float32).reshape(-1, 3)


def _token_ranges(tokenizer: Tokenizer, text: str) -> list[range]:
    """The positions of the tokens of each word."""
    ends = [0, *accumulate(len(ids) for ids in tokenizer.encode_words(text.split()))]
    return [range(start, end) for start, end in pairwise(ends)]


def teacher_forced_cost(
    model: Model, corpus: Corpus, batch_tokens: int, rows: Sequence[int] | None = None
) -> tuple[float, int]:
    """The summed cross-entropy of the target tokens of some rows (default: all), and the number of tokens. Perplexity
    is exp(cost / count)."""
    return summed_cost(model, corpus, batch_tokens, next_token_loss, rows)
