"""Translation metrics by sacreBLEU (Post 2018), computed on raw text and reported with their signatures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from saccade.errors import DataError, plural

RESAMPLES = 1000  # of the bootstrap
TITLES = {"bleu": "BLEU", "chrf": "chrF", "bleu_lowercase": "BLEU, lowercased"}  # the scores that have a signature


class Chrf(CHRF):
    """chrF whose scores are always Python floats. sacreBLEU 2.6 returns float or np.float32, and its bootstrap fails on
    a mixture of them."""

    def _compute_f_score(self, statistics: list[int]) -> float:
        return float(super()._compute_f_score(statistics))


@dataclass(frozen=True)
class TranslationScores:
    """The scores of a list of translations, as `saccade evaluate --json` prints them."""

    bleu: float  # cased, detokenized, tokenizer 13a
    chrf: float
    bleu_lowercase: float  # lowercased; otherwise as `bleu`
    exact_match: float  # percent
    sentences: int
    signatures: dict[str, str]
    interval: dict[str, list[float]]  # 95 %, by bootstrap resampling

    def plain(self) -> dict[str, Any]:
        return dict(self.__dict__)


def _bleu(lowercase: bool = False) -> BLEU:
    """`force` turns off the warning about tokenized text: some test sets are published and scored in that form."""
    return BLEU(lowercase=lowercase, force=True)


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Cased BLEU on detokenized text, as in `score`."""
    return _bleu().corpus_score(hypotheses, [references]).score


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    return Chrf().corpus_score(hypotheses, [references]).score


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    equal = sum(h == r for h, r in zip(hypotheses, references, strict=True))
    return 100 * equal / max(1, len(references))


def score(hypotheses: Sequence[str], references: Sequence[str], resamples: int = RESAMPLES) -> TranslationScores:
    """All corpus scores, with signatures and bootstrap intervals (Koehn 2004)."""
    if len(hypotheses) != len(references):
        raise DataError(
            f"there are {plural(len(hypotheses), 'translation')}, but {plural(len(references), 'reference')}"
        )
    if not references:
        raise DataError("the reference is empty; there is nothing to score")
    metrics = {"bleu": _bleu(), "chrf": Chrf(), "bleu_lowercase": _bleu(lowercase=True)}
    resamples = resamples if len(references) > 1 else 1
    results = {
        name: metric.corpus_score(hypotheses, [references], n_bootstrap=resamples) for name, metric in metrics.items()
    }
    interval = {name: _interval(result, resamples) for name, result in results.items()}
    return TranslationScores(
        bleu=results["bleu"].score,
        chrf=results["chrf"].score,
        bleu_lowercase=results["bleu_lowercase"].score,
        exact_match=exact_match(hypotheses, references),
        sentences=len(references),
        signatures={name: str(metric.get_signature()) for name, metric in metrics.items()},
        interval=interval,
    )


def score_lines(scores: Mapping[str, Any]) -> list[str]:
    """What `saccade evaluate` prints of `TranslationScores.plain`, and of the perplexity and the speed of a run."""
    interval = scores["interval"]
    lines = [
        f"{title:<30} {scores[key]:6.2f}   95 % {interval[key][0]:.2f} to {interval[key][1]:.2f}"
        f"   {scores['signatures'][key]}"
        for key, title in TITLES.items()
    ]
    lines.append(f"{'exact match':<30} {scores['exact_match']:6.2f} %")
    for key in ("perplexity", "tokens_per_second", "sentences_per_second"):
        if key in scores:
            lines.append(f"{key.replace('_', ' '):<30} {scores[key]:6.2f}")
    return [*lines, f"{'sentences':<30} {scores['sentences']:6,}"]


def _interval(result: Any, resamples: int) -> list[float]:
    margin = result._ci if resamples > 1 else 0.0  # a single sentence cannot be resampled
    center = result._mean if resamples > 1 else result.score
    return [float(center - margin), float(center + margin)]
