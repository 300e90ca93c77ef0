"""Sentences of a report: the best and the worst, and the samples of the validations on their way."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from saccade.view.findings import Evaluation, ScoredRow
from saccade.view.history import ValidationRecord
from saccade.view.markup import entry, escape, missing, paragraph

STEPS_SHOWN = 5  # of a sample's way
UNDERLINED = "Underlined is what the reference does not have at that place."


def best_and_worst(findings: Evaluation, words: bool) -> str:
    """`words`: whether outputs can be compared with references word by word."""
    measure = "the share of labels that are right" if findings.labels else "sentence-level chrF"
    told = f"By {measure}, of equal ones the longest first." + (f" {UNDERLINED}" if words else "")
    worst = _judged(findings.worst, words) or paragraph("None of the other rows has a fault.")
    return (
        f'{paragraph(told)}<div class="columns"><div><h3>Best</h3>{_judged(findings.best, words)}</div>'
        f"<div><h3>Worst</h3>{worst}</div></div>"
    )


def samples(validations: Sequence[ValidationRecord], words: bool) -> str:
    """The same few rows at every validation, as they came to be."""
    told = [each for each in validations if each.samples]
    heading = "<h3>Samples while it learned</h3>"
    if not told:
        return f"{heading}<p>{missing('No validation has shown samples yet.')}</p>"
    spaced = sorted({round(i * (len(told) - 1) / (STEPS_SHOWN - 1)) for i in range(STEPS_SHOWN)})
    articles = []
    for number, sample in enumerate(told[-1].samples):
        shown = [told[i] for i in spaced if number < len(told[i].samples)]
        outputs = [
            entry(f"update {each.step:,}", _output(each.samples[number].output, sample.reference, words))
            for each in shown
        ]
        articles.append(_article("sample", sample.source, sample.reference, "".join(outputs)))
    return f"{heading}{paragraph('Of the development data, the same at each validation.')}{''.join(articles)}"


def _judged(rows: Sequence[ScoredRow], words: bool) -> str:
    return "".join(
        _article(
            "judged",
            row.source,
            row.reference,
            entry("output", _output(row.output, row.reference, words)),
            f"{row.score:.1f}",
        )
        for row in rows
    )


def _article(kind: str, source: str, reference: str, outputs: str, score: str = "") -> str:
    texts = entry("source", escape(source)) + entry("reference", escape(reference))
    first = f'<p class="score">{score}</p>' if score else ""
    return f'<article class="{kind}">{first}<dl>{texts}{outputs}</dl></article>'


def _output(output: str, reference: str, words: bool) -> str:
    if not output.strip():
        return missing("none")
    return _marked(output.split(), reference.split()) if words else escape(output)


def _marked(words: Sequence[str], reference: Sequence[str]) -> str:
    """An output with the words marked that the reference has not at that place."""
    pieces = []
    for kind, _, _, first, end in SequenceMatcher(None, reference, words, autojunk=False).get_opcodes():
        if first < end:
            text = escape(" ".join(words[first:end]))
            pieces.append(text if kind == "equal" else f"<mark>{text}</mark>")
    return " ".join(pieces)
