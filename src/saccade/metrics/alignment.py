"""How good a word alignment is: the error rate of Och & Ney (2003), precision, recall and F1."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from saccade.data.links import Gold, Links
from saccade.errors import DataError


@dataclass(frozen=True)
class AlignmentScores:
    """In per cent, over all links of all sentences. `precision` counts possible links as right, `recall` asks for the
    sure ones: AER = 1 − (|A∩S| + |A∩P|) / (|A| + |S|)."""

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


def score_alignments(system: Sequence[Links], gold: Sequence[Gold]) -> AlignmentScores:
    """Sentence by sentence the links of a system against gold ones."""
    if len(system) != len(gold):
        raise DataError(f"{len(system):,} lines of links do not go with {len(gold):,} gold ones")
    right = sum(len(found & wanted.possible) for found, wanted in zip(system, gold, strict=True))
    hit = sum(len(found & wanted.sure) for found, wanted in zip(system, gold, strict=True))
    links, sure = sum(map(len, system)), sum(len(wanted.sure) for wanted in gold)
    if not sure:
        raise DataError("the gold alignment has no sure link, so nothing can be scored")
    precision = 100 * right / links if links else 0.0
    recall = 100 * hit / sure
    return AlignmentScores(
        aer=100 * (1 - (right + hit) / (links + sure)),
        precision=precision,
        recall=recall,
        f1=2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        links=links,
        sure=sure,
        possible=sum(len(wanted.possible) for wanted in gold),
        sentences=len(gold),
    )
