"""Scores of translations by sacreBLEU (Post 2018), always on raw text and always with their signatures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from saccade.errors import DataError

RESAMPLES = 1000


class Chrf(CHRF):
    """sacreBLEU 2.6 gives float or float32 by the case, and its own bootstrap cannot average a mixture of them."""

    def _compute_f_score(self, statistics: list[int]) -> float:
        return float(super()._compute_f_score(statistics))


@dataclass(frozen=True)
class TranslationScores:
    """What `saccade evaluate --json` prints of a list of translations."""

    bleu: float  # cased, detokenised, 13a
    chrf: float
    bleu_lc_tok: float  # lower-cased, tokenised by 13a
    exact_match: float  # per cent
    sentences: int
    signatures: dict[str, str]
    interval: dict[str, list[float]]  # 95 %, by bootstrap resampling

    def plain(self) -> dict[str, Any]:
        return dict(self.__dict__)


def _bleu(lowercase: bool = False) -> BLEU:
    """Without the advice to detokenise: there is text that is published in words, and scored as it is."""
    return BLEU(lowercase=lowercase, force=True)


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Cased, detokenised BLEU, as `score` gives it."""
    return _bleu().corpus_score(hypotheses, [references]).score


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    return Chrf().corpus_score(hypotheses, [references]).score


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    same = sum(h == r for h, r in zip(hypotheses, references, strict=True))
    return 100 * same / max(1, len(references))


def score(hypotheses: Sequence[str], references: Sequence[str], resamples: int = RESAMPLES) -> TranslationScores:
    """All scores of a corpus, with signatures and bootstrap intervals (Koehn 2004)."""
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses)} translations cannot be scored by {len(references)} references")
    if not references:
        raise DataError("there is nothing to score: the reference is empty")
    metrics = {"bleu": _bleu(), "chrf": Chrf(), "bleu_lc_tok": _bleu(lowercase=True)}
    resamples = resamples if len(references) > 1 else 1
    results = {
        name: metric.corpus_score(hypotheses, [references], n_bootstrap=resamples) for name, metric in metrics.items()
    }
    interval = {name: _interval(result, resamples) for name, result in results.items()}
    return TranslationScores(
        bleu=results["bleu"].score,
        chrf=results["chrf"].score,
        bleu_lc_tok=results["bleu_lc_tok"].score,
        exact_match=exact_match(hypotheses, references),
        sentences=len(references),
        signatures={name: str(metric.get_signature()) for name, metric in metrics.items()},
        interval=interval,
    )


def _interval(result: Any, resamples: int) -> list[float]:
    spread = result._ci if resamples > 1 else 0.0  # one sentence cannot be resampled
    middle = result._mean if resamples > 1 else result.score
    return [float(middle - spread), float(middle + spread)]
