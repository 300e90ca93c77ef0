"""Metrics of word alignments: alignment error rate (Och & Ney 2003), precision, recall and F1."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from saccade.data.links import GradedLinks, Links
from saccade.errors import DataError, plural


@dataclass(frozen=True)
class AlignmentScores:
    """Scores in percent over all links A of a corpus, with sure gold links S and possible gold links P ⊇ S:

    precision = |A∩P| / |A|, recall = |A∩S| / |S|, AER = 1 − (|A∩S| + |A∩P|) / (|A| + |S|)
    """

    aer: float
    precision: float
    recall: float
    f1: float
    links: int
    sure: int
    possible: int
    sentences: int

    def plain(self) -> dict[str, float]:
        return asdict(self)


def score_alignments(system: Sequence[Links], gold: Sequence[GradedLinks]) -> AlignmentScores:
    """Score the links of a system; both sequences have one entry for each sentence pair."""
    if len(system) != len(gold):
        raise DataError(f"got links for {plural(len(system), 'sentence pair')}, but gold links for {len(gold):,}")
    in_possible = sum(len(links & reference.possible) for links, reference in zip(system, gold, strict=True))
    in_sure = sum(len(links & reference.sure) for links, reference in zip(system, gold, strict=True))
    links, sure = sum(map(len, system)), sum(len(reference.sure) for reference in gold)
    if not sure:
        raise DataError(
            "the gold alignment has no sure link, so the recall is undefined; write sure links as 1-2 (1p2 is a "
            "possible link)"
        )
    precision = 100 * in_possible / links if links else 0.0
    recall = 100 * in_sure / sure
    return AlignmentScores(
        aer=100 * (1 - (in_possible + in_sure) / (links + sure)),
        precision=precision,
        recall=recall,
        f1=2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        links=links,
        sure=sure,
        possible=sum(len(reference.possible) for reference in gold),
        sentences=len(gold),
    )
