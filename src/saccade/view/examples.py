"""The examples of a report: the best and the worst outputs, and the samples of the validations."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from saccade.runs.history import ValidationRecord
from saccade.tasks.evaluation import Evaluation, ScoredRow
from saccade.view.markup import definition, escape, missing, paragraph

VALIDATIONS_SHOWN = 5  # outputs shown for each sample, evenly spaced from the first validation to the last
UNDERLINE_NOTE = "Underlined words differ from the reference."


def best_and_worst_rows(evaluation: Evaluation, row_score: str, compare_words: bool) -> str:
    """The rows with the best and the worst scores; `row_score` says what the score is. With `compare_words`, words that
    differ are underlined."""
    if not evaluation.best:
        return f"<p>{missing('This task has no scores of single rows.')}</p>"
    caption = f"Sorted by {row_score}; of equal scores, longer rows come first."
    caption += f" {UNDERLINE_NOTE}" if compare_words else ""
    worst = _scored_rows(evaluation.worst, compare_words) or paragraph("All other rows are perfect.")
    return (
        f'{paragraph(caption)}<div class="columns"><div><h3>Best</h3>{_scored_rows(evaluation.best, compare_words)}'
        f"</div><div><h3>Worst</h3>{worst}</div></div>"
    )


def validation_samples(validations: Sequence[ValidationRecord], compare_words: bool) -> str:
    """The outputs for the same few rows, at up to VALIDATIONS_SHOWN validations."""
    sampled = [validation for validation in validations if validation.samples]
    heading = "<h3>Samples during training</h3>"
    if not sampled:
        return f"{heading}<p>{missing('No validation has recorded samples yet.')}</p>"
    last = VALIDATIONS_SHOWN - 1
    shown = [sampled[i] for i in sorted({round(k * (len(sampled) - 1) / last) for k in range(VALIDATIONS_SHOWN)})]
    articles = []
    for number, sample in enumerate(sampled[-1].samples):
        outputs = [
            definition(
                f"update {validation.step:,}",
                _output(validation.samples[number].output, sample.reference, compare_words),
            )
            for validation in shown
            if number < len(validation.samples)
        ]
        articles.append(_article("sample", sample.source, sample.reference, "".join(outputs)))
    caption = "From the development data; the same rows at every validation."
    return f"{heading}{paragraph(caption)}{''.join(articles)}"


def _scored_rows(rows: Sequence[ScoredRow], compare_words: bool) -> str:
    return "".join(
        _article(
            "scored",
            row.source,
            row.reference,
            definition("output", _output(row.output, row.reference, compare_words)),
            f"{row.score:.1f}",
        )
        for row in rows
    )


def _article(css_class: str, source: str, reference: str, outputs: str, score: str = "") -> str:
    texts = definition("source", escape(source)) + definition("reference", escape(reference))
    first = f'<p class="score">{score}</p>' if score else ""
    return f'<article class="{css_class}">{first}<dl>{texts}{outputs}</dl></article>'


def _output(output: str, reference: str, compare_words: bool) -> str:
    if not output.strip():
        return missing("empty")
    return _underline_differences(output.split(), reference.split()) if compare_words else escape(output)


def _underline_differences(words: Sequence[str], reference: Sequence[str]) -> str:
    """The words as HTML; those that do not match the reference are in <mark> elements."""
    pieces = []
    for operation, _, _, start, end in SequenceMatcher(None, reference, words, autojunk=False).get_opcodes():
        if start < end:
            text = escape(" ".join(words[start:end]))
            pieces.append(text if operation == "equal" else f"<mark>{text}</mark>")
    return " ".join(pieces)
