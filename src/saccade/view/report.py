"""A run's report: one HTML file with all that is known of a training, that asks nothing of the network."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import saccade
from saccade.config import plain
from saccade.console import clock
from saccade.data.sources import Frames
from saccade.errors import RunError
from saccade.recipe import SPLITS, Recipe, kind_of, part_of, row_types
from saccade.runs.files import read_json
from saccade.runs.folder import CONFIG, DATA, RunFolder
from saccade.runs.history import History, ValidationRecord
from saccade.tasks.evaluation import Evaluation
from saccade.tasks.task import LOSS
from saccade.view.charts import MIN_RELIABLE_ROWS, Curve, bar_chart, line_chart
from saccade.view.confusion import confusion_table, label_table
from saccade.view.document import html_document, write_atomically
from saccade.view.maps import AttentionMaps
from saccade.view.markup import escape, missing, paragraph, scroll_area, table
from saccade.view.page import viewer_data
from saccade.view.sentences import best_and_worst, samples

REPORT_FILE = "report.html"
SPLIT_NAMES = {"dev": "development data", "test": "test data"}


@dataclass(frozen=True)
class ReportData:
    """All that a report tells. What is not known is empty, and the report says so."""

    run: RunFolder
    recipe: Recipe
    history: History
    checkpoint: str | None  # its name
    manifest: Mapping[str, Any]  # what it says of itself
    parameters: int | None
    sizes: str  # of what is read and written, in words
    training: bool  # by another process, now
    evaluation: Evaluation | None
    no_evaluation_reason: str
    maps: Sequence[AttentionMaps]
    no_maps_reason: str

    def sums(self, split: str) -> dict[str, str]:
        """The checksum of each file of a split, by the option that names it."""
        try:
            found = read_json(self.run.path / DATA)["sha256"]
        except (RunError, KeyError, TypeError):
            return {}
        return {name.rpartition(".")[2]: str(found[name]) for name in found if name.startswith(f"data.{split}.")}

    def best_step(self) -> int | None:
        marked = self.run.checkpoints.marked("best")
        number = marked.name.removeprefix("step-") if marked else ""
        return int(number) if number.isdecimal() else None


def write_report(facts: ReportData, path: Path) -> Path:
    """Write the report, whole or not at all."""
    write_atomically(path, report(facts))
    return path


def report(facts: ReportData) -> bytes:
    """The whole page."""
    name = facts.run.path.resolve().name
    sections = {
        "Scores": _scores(facts),
        "Curves": _curves(facts),
        "Best and worst": _best_and_worst(facts),
        "Length": _length(facts),
        "Attention": _attention(facts),
        "Config": _config(facts),
        "Environment": _environment(facts),
        "Repeat": _repeat(facts),
    }
    parts = {
        "name": escape(name),
        "summary": _summary(facts),
        "notes": "".join(map(paragraph, _notes(facts))),
        "figures": _key_figures(facts),
        "contents": "".join(f'<li><a href="#{_slug(each)}">{each}</a></li>' for each in sections),
        "sections": "".join(
            f'<section id="{_slug(each)}"><h2>{each}</h2>{content}</section>' for each, content in sections.items()
        ),
    }
    styles = ("base.css", "attention.css", "report.css")
    return html_document("report.html", "report.js", styles, f"{name}: report", viewer_data(facts.maps), parts)


def _slug(title: str) -> str:
    return title.lower().replace(" ", "-")


# ── what it is ──


def _summary(facts: ReportData) -> str:
    """The run in a sentence, and which of its checkpoints is shown."""
    model, writes = plain(facts.recipe)["model"], facts.recipe.built_task.has_decoder
    sides = [_side(side, model[side]) for side in ("encoder", "decoder") if side == "encoder" or writes]
    size = "as yet unknown parameters" if facts.parameters is None else f"{facts.parameters:,} parameters"
    learned = f"learned from {_source(facts, 'train')}" + (f" with {facts.sizes}" if facts.sizes else "")
    told = f"{kind_of(facts.recipe.task).capitalize()}, {learned}, by {' and '.join(sides)} with {size}."
    return escape(f"{told} {_checkpoint(facts)}.")


def _side(name: str, options: Mapping[str, Any]) -> str:
    return f"a {options['kind']} {name}" + (f" of depth {options['depth']}" if "depth" in options else "")


def _source(facts: ReportData, split: str) -> str:
    """Where rows come from, in words: the files, or how rows are made."""
    options = dict(plain(facts.recipe.data)[split])
    files = [str(options[name]) for name in facts.sums(split) if name in options]
    if files:
        return " and ".join(files)
    kind = options.pop("kind")
    words = [f"{name} {value}" for name, value in options.items() if value not in ("", [], None)]
    return f"{kind} ({', '.join(words)})" if words else kind


def _checkpoint(facts: ReportData) -> str:
    """Which one is shown, and which is the best."""
    if facts.checkpoint is None:
        return "There is no finished checkpoint yet"
    metric, best = facts.recipe.best_metric, facts.best_step()
    value = facts.history.validation_curve(metric.key).get(best) if best is not None else None
    known = f" ({metric.title} {value:.2f} on the development data)" if value is not None else ""
    if best is not None and facts.checkpoint == facts.run.checkpoints.at(best).name:
        return f"Shown is {_shown(facts)}, the best one{known}"
    return f"Shown is {_shown(facts)}" + (f"; the best is that of update {best:,}{known}" if best is not None else "")


def _shown(facts: ReportData) -> str:
    averaged = facts.manifest.get("averaged")
    if isinstance(averaged, list):
        return f"the average of the checkpoints of updates {', '.join(map(str, averaged))}"
    return f"the checkpoint of update {facts.manifest.get('step', 0):,}"


def _metric_titles(facts: ReportData) -> dict[str, str]:
    """The metrics of validations in the order of the task: key → title."""
    return {metric.key: metric.title for metric in facts.recipe.built_task.metrics}


def _notes(facts: ReportData) -> Iterator[str]:
    """What a reader should know before the numbers."""
    if facts.training:
        yield "This run is being trained while this is drawn: everything below is what is there so far."
    if facts.checkpoint is None:
        yield "There is no finished checkpoint yet, so there are no scores on test data and no attention."
    if facts.history.unreadable_lines:
        yield f"{facts.history.unreadable_lines:,} lines of metrics.jsonl or timing.jsonl could not be read and are left out."


def _key_figures(facts: ReportData) -> str:
    """The numbers that people look for first."""
    tiles: list[tuple[str, str, str]] = []
    if facts.evaluation:
        for each in facts.evaluation.scores[:2]:
            spread = f"{each.interval[0]:.1f} to {each.interval[1]:.1f}" if each.interval else ""
            tiles.append((each.name, f"{each.value:.1f}", spread or SPLIT_NAMES[facts.evaluation.split]))
    elif (last := _validated(facts)) is not None and (metric := facts.recipe.best_metric).key in last.scores:
        tiles.append((metric.title, f"{last.scores[metric.key]:.2f}", SPLIT_NAMES["dev"]))
    if facts.parameters is not None:
        tiles.append(("Parameters", _short(facts.parameters), f"width {facts.recipe.model.dim}"))
    epoch = f", epoch {facts.history.epoch + 1}" if facts.history.epoch is not None else ""
    tiles.append(("Updates", f"{facts.history.step:,}", f"of at most {facts.recipe.train.updates:,}{epoch}"))
    if facts.history.seconds is not None:
        tiles.append(("Training time", clock(facts.history.seconds), "validations included"))
    return "".join(
        f'<div><dt>{escape(name)}</dt><dd class="figure">{escape(value)}</dd><dd>{escape(about)}</dd></div>'
        for name, value, about in tiles
    )


def _short(number: int) -> str:
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return str(number)


def _validated(facts: ReportData) -> ValidationRecord | None:
    """The validation that the shown checkpoint is known by; the last one where there is none."""
    return facts.history.validation_at(facts.manifest.get("step", facts.history.step))


# ── scores ──


def _scores(facts: ReportData) -> str:
    evaluation = facts.evaluation
    if evaluation is None:
        return f"<p>{missing(facts.no_evaluation_reason)}</p>{_validation_table(facts)}"
    told = f"On the {evaluation.rows:,} rows of the {SPLIT_NAMES[evaluation.split]}"
    told += "" if evaluation.split == "test" else ", because the recipe names no test data"
    told += f", by {_shown(facts)}. Intervals are by bootstrap resampling of rows."
    rows = [
        [escape(each.name), f"{each.value:.2f}", _interval(each.interval), f"<code>{escape(each.signature)}</code>"]
        for each in evaluation.scores
    ]
    heads = ["measure", "score", "95 % interval", "" if evaluation.labels else "signature"]
    labels = label_table(evaluation.confusion) + confusion_table(evaluation.confusion) if evaluation.confusion else ""
    return paragraph(told) + table("scores", "Scores", heads, rows) + labels


def _interval(interval: tuple[float, float] | None) -> str:
    return f"{interval[0]:.2f} to {interval[1]:.2f}" if interval else missing("none")


def _validation_table(facts: ReportData) -> str:
    last = _validated(facts)
    if last is None:
        return f"<p>{missing('No validation has been finished yet.')}</p>"
    titles = _metric_titles(facts)
    rows = [[escape(titles.get(key, key)), f"{score:.3f}"] for key, score in last.scores.items()]
    told = f"On the development data, at the validation after update {last.step:,}; without intervals."
    return paragraph(told) + table("values", "Scores of the validation", ["measure", "score"], rows)


# ── curves ──


def _curves(facts: ReportData) -> str:
    history, best = facts.history, facts.best_step()
    recorded = {key for validation in history.validations for key in validation.scores}
    metrics = {key: title for key, title in _metric_titles(facts).items() if key in recorded and key != LOSS.key}
    extra = [name for name in history.curves if name.startswith("parts.")]
    charts = [
        line_chart(
            "Loss",
            [
                Curve("training", history.curve("loss")),
                Curve("validation", history.validation_curve(LOSS.key), dots=True),
            ],
            lambda value: f"{value:.3f}",
            best=best,
        ),
        line_chart(
            "Validation scores",
            [Curve(title, history.validation_curve(key), dots=True) for key, title in metrics.items()],
            lambda value: f"{value:.2f}",
            best=best,
            from_zero=True,
        ),
        line_chart(
            "Learning rate", [Curve("rate", history.curve("rate"))], lambda value: f"{value:.2e}", from_zero=True
        ),
        line_chart(
            "Tokens a second",
            [
                Curve("source", history.curve("source_tokens_per_second")),
                Curve("target", history.curve("target_tokens_per_second")),
            ],
            lambda value: f"{value:,.0f}",
            from_zero=True,
        ),
    ]
    if extra:
        curves = [Curve(name.removeprefix("parts."), history.curve(name)) for name in extra]
        charts.append(line_chart("What parts add to the loss", curves, lambda value: f"{value:.4f}"))
    mark = "The vertical line is the best checkpoint. " if best is not None else ""
    return f'<p>Against updates. {mark}Point at a curve for its values.</p><div class="charts">{"".join(charts)}</div>'


# ── sentences ──


def _best_and_worst(facts: ReportData) -> str:
    words = row_types(part_of(facts.recipe.data.train)) != {Frames}
    judged = (
        best_and_worst(facts.evaluation, words) if facts.evaluation else f"<p>{missing(facts.no_evaluation_reason)}</p>"
    )
    return judged + samples(facts.history.validations, words)


def _length(facts: ReportData) -> str:
    evaluation = facts.evaluation
    if evaluation is None:
        return f"<p>{missing(facts.no_evaluation_reason)}</p>"
    heading = f"source length in {evaluation.length_unit}"
    bars = {name: [each.scores[name] for each in evaluation.lengths] for name in evaluation.lengths[0].scores}
    labels, counts = [str(each) for each in evaluation.lengths], [each.count for each in evaluation.lengths]
    chart = bar_chart(f"{' and '.join(bars)} by {heading}", heading, labels, counts, bars)
    rows = f"Rows of the {SPLIT_NAMES[evaluation.split]} by their {heading}"
    told = f"{rows}; under each group how many they are, and pale where they are fewer than {MIN_RELIABLE_ROWS}."
    return f'{paragraph(told)}<div class="charts">{chart}</div>'


def _attention(facts: ReportData) -> str:
    if not facts.maps:
        return f"<p>{missing(facts.no_maps_reason)}</p>"
    told = paragraph("Of the samples of the validations, over the output that the shown checkpoint had for them.")
    without = "The maps are drawn with JavaScript, which is switched off here."
    return f'{told}<noscript>{without}</noscript><div id="view"></div>'


# ── to do it again ──


def _config(facts: ReportData) -> str:
    text = (facts.run.path / CONFIG).read_text("utf-8", errors="replace")
    told = f"All {text.count(chr(10)):,} lines of {CONFIG}, every default written out"
    return (
        f"<details><summary>{told}</summary>{scroll_area(f'<pre><code>{escape(text)}</code></pre>', CONFIG)}</details>"
    )


def _environment(facts: ReportData) -> str:
    """What the checkpoint says it was trained with, beside what this report was drawn with."""
    trained = {name: facts.manifest.get(name.lower()) for name in ("Saccade", "torch", "Threads")}
    now = {
        "Saccade": saccade.__version__,
        "torch": torch.__version__,
        "Threads": torch.get_num_threads(),
        "Python": platform.python_version(),
        "NumPy": metadata.version("numpy"),
        "sacreBLEU": metadata.version("sacrebleu"),
        "System": f"{platform.system()} {platform.machine()}",
        "Cores": os.cpu_count(),
    }
    rows = [[name, _known(trained.get(name)), _known(now[name])] for name in now]
    return table("facts", "Environment", ["", "trained with", "this report drawn with"], rows)


def _known(value: Any) -> str:
    return missing("not stored") if value is None else escape(str(value))


def _repeat(facts: ReportData) -> str:
    path, threads = facts.run.path, facts.manifest.get("threads")
    again = os.path.normpath(path / ".." / f"{path.resolve().name}-again")
    command = shlex.join(["saccade", "train", str(path / CONFIG), "--run", again])
    command = f"OMP_NUM_THREADS={threads} {command}" if isinstance(threads, int) else command
    told = (
        "From the folder where the run was trained, with the same text. With the same versions, threads and processor "
        "it ends with the same weights, bit for bit."
    )
    rows = [[split, escape(_source(facts, split)), _sums(facts.sums(split))] for split in SPLITS]
    data = table("facts", "Data", ["data", "source", "sha256"], rows)
    return f"<pre><code>{escape(command)}</code></pre>{paragraph(told)}{data}"


def _sums(sums: Mapping[str, str]) -> str:
    each = [f"{escape(name)} <code>{escape(value)}</code>" for name, value in sums.items()]
    return "<br>".join(each) or missing("no files")
