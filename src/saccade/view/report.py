"""The report of a run: one HTML file with scores, curves, examples, attention, config and environment. It loads nothing
from the network.

The "update" of a checkpoint or a validation in the texts of the report is its step: the number of updates before it."""

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
from saccade.config import kind_of, plain
from saccade.console import clock
from saccade.errors import RunError
from saccade.recipe import SPLITS, Recipe, placeholder_input
from saccade.runs.folder import CONFIG_FILE, RunFolder
from saccade.runs.history import AUXILIARY_CURVE, History, ValidationRecord
from saccade.tasks.evaluation import Evaluation
from saccade.tasks.task import LOSS
from saccade.view.charts import MIN_RELIABLE_ROWS, Curve, bar_chart, line_chart
from saccade.view.confusion import confusion_table, label_table
from saccade.view.document import html_document, write_atomically
from saccade.view.examples import best_and_worst_rows, validation_samples
from saccade.view.maps import AttentionMaps
from saccade.view.markup import escape, missing, paragraph, scroll_area, table
from saccade.view.page import viewer_data

REPORT_FILE = "report.html"
SPLIT_NAMES = {"dev": "development data", "test": "test data"}


@dataclass(frozen=True)
class ReportData:
    """The content of a report. The report says which values are missing, and why."""

    run: RunFolder
    recipe: Recipe
    history: History
    checkpoint: str | None  # the name of its folder; None if there is no checkpoint yet
    manifest: Mapping[str, Any]  # of the checkpoint
    parameters: int | None
    vocabulary_sizes: str  # as `Task.describe` returns them
    being_trained: bool
    evaluation: Evaluation | None
    no_evaluation_reason: str
    maps: Sequence[AttentionMaps]
    no_maps_reason: str

    def checksums(self, split: str) -> dict[str, str]:
        """The checksum of each file of a split, by the config key that names the file."""
        try:
            stored = self.run.data_checksums()
        except RunError:
            return {}
        return {key.rpartition(".")[2]: stored[key] for key in stored if key.startswith(f"data.{split}.")}

    def best_step(self) -> int | None:
        """The step (number of updates) of the best checkpoint."""
        best = self.run.checkpoints.marked("best")
        number = best.name.removeprefix("step-") if best else ""
        return int(number) if number.isdecimal() else None


def write_report(data: ReportData, path: Path) -> Path:
    """Write the report atomically; returns its path."""
    write_atomically(path, report(data))
    return path


def report(data: ReportData) -> bytes:
    """The HTML file that `write_report` writes."""
    name = data.run.path.resolve().name
    sections = {
        "Scores": _scores(data),
        "Curves": _curves(data),
        "Best and worst": _best_and_worst(data),
        "Length": _length(data),
        "Attention": _attention(data),
        "Config": _config(data),
        "Environment": _environment(data),
        "Reproduce": _reproduce(data),
    }
    fragments = {
        "name": escape(name),
        "summary": _summary(data),
        "notices": "".join(map(paragraph, _notices(data))),
        "tiles": _tiles(data),
        "contents": "".join(f'<li><a href="#{_slug(title)}">{title}</a></li>' for title in sections),
        "sections": "".join(
            f'<section id="{_slug(title)}"><h2>{title}</h2>{content}</section>' for title, content in sections.items()
        ),
    }
    styles = ("base.css", "attention.css", "report.css")
    return html_document("report.html", "report.js", styles, f"{name}: report", viewer_data(data.maps), fragments)


def _slug(title: str) -> str:
    return title.lower().replace(" ", "-")


# ── header ──


def _summary(data: ReportData) -> str:
    """The task, the training data, the model, and the checkpoint that is shown."""
    model, task = plain(data.recipe)["model"], kind_of(data.recipe.task).capitalize()
    sides = [side for side in ("encoder", "decoder") if model[side]["kind"] != "none"]
    networks = " and ".join(_network(side, model[side]) for side in sides)
    trained_on = f"trained on {_source(data, 'train')}"
    trained_on += f" with {data.vocabulary_sizes}" if data.vocabulary_sizes else ""
    count = "number of parameters not known yet" if data.parameters is None else f"{data.parameters:,} parameters"
    return escape(f"{task}, {trained_on}. Model: {networks}; {count}. {_parent(data)}{_checkpoint(data)}.")


def _parent(data: ReportData) -> str:
    """The run whose weights the training started with."""
    try:
        parent = data.run.parent()
    except RunError:
        return ""
    return f"Fine-tuned from {parent['run']} ({parent['checkpoint']}). " if parent else ""


def _network(side: str, options: Mapping[str, Any]) -> str:
    return f"a {options['kind']} {side}" + (f" of depth {options['depth']}" if "depth" in options else "")


def _source(data: ReportData, split: str) -> str:
    """Where the rows of a split come from: the names of the files, or the options of the generator."""
    options = dict(plain(data.recipe.data)[split])
    files = [str(options[key]) for key in data.checksums(split) if key in options]
    if files:
        return " and ".join(files)
    kind = options.pop("kind")
    settings = [f"{key} {value}" for key, value in options.items() if value not in ("", [], None)]
    return f"{kind} ({', '.join(settings)})" if settings else kind


def _checkpoint(data: ReportData) -> str:
    """Which checkpoint is shown, and which one is the best."""
    if data.checkpoint is None:
        return "There is no finished checkpoint yet"
    metric, best = data.recipe.best_metric, data.best_step()
    score = data.history.validation_curve(metric.key).get(best) if best is not None else None
    by = f" ({metric.title} {score:.2f} on the development data)" if score is not None else ""
    if best is not None and data.checkpoint == data.run.checkpoints.at(best).name:
        return f"The report shows {_shown(data)}, the best one{by}"
    other = f"; the best checkpoint is that of update {best:,}{by}" if best is not None else ""
    return f"The report shows {_shown(data)}{other}"


def _shown(data: ReportData) -> str:
    averaged = data.manifest.get("averaged")
    if isinstance(averaged, list):
        return f"the average of the checkpoints of updates {', '.join(map(str, averaged))}"
    return f"the checkpoint of update {data.manifest.get('step', 0):,}"


def _notices(data: ReportData) -> Iterator[str]:
    """Why the report may be incomplete."""
    if data.being_trained:
        yield "This run was being trained when this report was written; the report shows its state at that time."
    if data.checkpoint is None:
        yield "There is no finished checkpoint yet, so there are no scores on test data and no attention."
    if data.history.unreadable_lines:
        yield f"{data.history.unreadable_lines:,} damaged lines of metrics.jsonl or timing.jsonl are left out."


def _tiles(data: ReportData) -> str:
    """The most important values in large type."""
    tiles: list[tuple[str, str, str]] = []  # name, value, comment
    if data.evaluation:
        for score in data.evaluation.scores[:2]:
            interval = f"{score.interval[0]:.1f} to {score.interval[1]:.1f}" if score.interval else ""
            tiles.append((score.name, f"{score.value:.1f}", interval or SPLIT_NAMES[data.evaluation.split]))
    elif (last := _validation(data)) is not None and (metric := data.recipe.best_metric).key in last.scores:
        tiles.append((metric.title, f"{last.scores[metric.key]:.2f}", SPLIT_NAMES["dev"]))
    if data.parameters is not None:
        tiles.append(("Parameters", _abbreviated(data.parameters), f"width {data.recipe.model.dim}"))
    epoch = f", epoch {data.history.epoch + 1}" if data.history.epoch is not None else ""
    tiles.append(("Updates", f"{data.history.step:,}", f"of at most {data.recipe.train.updates:,}{epoch}"))
    if data.history.seconds is not None:
        tiles.append(("Training time", clock(data.history.seconds), "including validations"))
    return "".join(
        f'<div><dt>{escape(name)}</dt><dd class="value">{escape(value)}</dd><dd>{escape(comment)}</dd></div>'
        for name, value, comment in tiles
    )


def _abbreviated(number: int) -> str:
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return str(number)


def _validation(data: ReportData) -> ValidationRecord | None:
    """The last validation up to the shown checkpoint, or the last of all if there is no checkpoint."""
    return data.history.validation_at(data.manifest.get("step", data.history.step))


# ── scores ──


def _scores(data: ReportData) -> str:
    evaluation = data.evaluation
    if evaluation is None:
        return f"<p>{missing(data.no_evaluation_reason)}</p>{_validation_table(data)}"
    caption = f"On the {evaluation.rows:,} rows of the {SPLIT_NAMES[evaluation.split]}"
    caption += "" if evaluation.split == "test" else ", because the recipe has no test data"
    caption += f", with {_shown(data)}. Intervals are computed by bootstrap resampling of rows."
    rows = [
        [escape(score.name), f"{score.value:.2f}", _interval(score.interval), f"<code>{escape(score.signature)}</code>"]
        for score in evaluation.scores
    ]
    has_signatures = any(score.signature for score in evaluation.scores)
    headers = ["metric", "score", "95 % interval", "signature" if has_signatures else ""]
    labels = label_table(evaluation.confusion) + confusion_table(evaluation.confusion) if evaluation.confusion else ""
    return paragraph(caption) + table("scores", "Scores", headers, rows) + labels


def _interval(interval: tuple[float, float] | None) -> str:
    return f"{interval[0]:.2f} to {interval[1]:.2f}" if interval else missing("none")


def _metric_titles(data: ReportData) -> dict[str, str]:
    """The metrics of the task's validations: key → title."""
    return {metric.key: metric.title for metric in data.recipe.built_task.metrics}


def _validation_table(data: ReportData) -> str:
    validation = _validation(data)
    if validation is None:
        return f"<p>{missing('No validation has finished yet.')}</p>"
    titles = _metric_titles(data)
    rows = [[escape(titles.get(key, key)), f"{score:.3f}"] for key, score in validation.scores.items()]
    caption = f"On the development data, at the validation after update {validation.step:,}; without intervals."
    return paragraph(caption) + table("values", "Scores of the validation", ["metric", "score"], rows)


# ── curves ──


def _curves(data: ReportData) -> str:
    history, best = data.history, data.best_step()
    recorded = {key for validation in history.validations for key in validation.scores}
    metrics = {key: title for key, title in _metric_titles(data).items() if key in recorded and key != LOSS.key}
    auxiliary = [name for name in history.curves if name.startswith(AUXILIARY_CURVE)]
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
            "Tokens per second",
            [
                Curve("source", history.curve("source_tokens_per_second")),
                Curve("target", history.curve("target_tokens_per_second")),
            ],
            lambda value: f"{value:,.0f}",
            from_zero=True,
        ),
    ]
    if auxiliary:
        curves = [Curve(name.removeprefix(AUXILIARY_CURVE), history.curve(name)) for name in auxiliary]
        charts.append(line_chart("Auxiliary losses", curves, lambda value: f"{value:.4f}"))
    best_note = "The vertical line marks the best checkpoint. " if best is not None else ""
    caption = f"The horizontal axis counts updates. {best_note}Point at a curve to see its values."
    return f'{paragraph(caption)}<div class="charts">{"".join(charts)}</div>'


# ── examples, length, attention ──


def _best_and_worst(data: ReportData) -> str:
    compare_words = placeholder_input(data.recipe).is_text
    samples = validation_samples(data.history.validations, compare_words)
    if data.evaluation is None:
        return f"<p>{missing(data.no_evaluation_reason)}</p>{samples}"
    return best_and_worst_rows(data.evaluation, data.recipe.built_task.row_score, compare_words) + samples


def _length(data: ReportData) -> str:
    evaluation = data.evaluation
    if evaluation is None:
        return f"<p>{missing(data.no_evaluation_reason)}</p>"
    buckets = evaluation.lengths
    if not buckets:
        return f"<p>{missing('This task has no scores by length.')}</p>"
    heading = f"source length in {evaluation.length_unit}"
    bars = {name: [bucket.scores[name] for bucket in buckets] for name in buckets[0].scores}
    labels, counts = [str(bucket) for bucket in buckets], [bucket.count for bucket in buckets]
    chart = bar_chart(f"{' and '.join(bars)} by {heading}", heading, labels, counts, bars)
    caption = (
        f"Rows of the {SPLIT_NAMES[evaluation.split]}, grouped by {heading}. The number of rows is below each group; "
        f"bars of fewer than {MIN_RELIABLE_ROWS} rows are pale."
    )
    return f'{paragraph(caption)}<div class="charts">{chart}</div>'


def _attention(data: ReportData) -> str:
    if not data.maps:
        return f"<p>{missing(data.no_maps_reason)}</p>"
    caption = paragraph("The validation samples, each with the output that the shown checkpoint gave for it.")
    noscript = "The maps are drawn with JavaScript, which is disabled."
    return f'{caption}<noscript>{noscript}</noscript><div id="view"></div>'


# ── reproduction ──


def _config(data: ReportData) -> str:
    text = (data.run.path / CONFIG_FILE).read_text("utf-8", errors="replace")
    summary = f"All {text.count(chr(10)):,} lines of {CONFIG_FILE}, including defaults"
    content = scroll_area(f"<pre><code>{escape(text)}</code></pre>", CONFIG_FILE)
    return f"<details><summary>{summary}</summary>{content}</details>"


def _environment(data: ReportData) -> str:
    """The versions and machine of the training, as far as the checkpoint stores them, and those of this report."""
    training = {name: data.manifest.get(name.lower()) for name in ("Saccade", "torch", "Threads")}
    current = {
        "Saccade": saccade.__version__,
        "torch": torch.__version__,
        "Threads": torch.get_num_threads(),
        "Python": platform.python_version(),
        "NumPy": metadata.version("numpy"),
        "sacreBLEU": metadata.version("sacrebleu"),
        "System": f"{platform.system()} {platform.machine()}",
        "Cores": os.cpu_count(),
    }
    rows = [[name, _stored(training.get(name)), _stored(current[name])] for name in current]
    return table("facts", "Environment", ["", "training", "this report"], rows)


def _stored(value: Any) -> str:
    return missing("not stored") if value is None else escape(str(value))


def _reproduce(data: ReportData) -> str:
    path, threads = data.run.path, data.manifest.get("threads")
    new_run = os.path.normpath(path / ".." / f"{path.resolve().name}-again")
    command = shlex.join(["saccade", "train", str(path / CONFIG_FILE), "--run", new_run])
    command = f"OMP_NUM_THREADS={threads} {command}" if isinstance(threads, int) else command
    caption = (
        "Run this in the folder in which the run was trained, with the same data files. With the same versions, number "
        "of threads and processor, training gives bit-identical weights."
    )
    rows = [[split, escape(_source(data, split)), _checksum_list(data.checksums(split))] for split in SPLITS]
    files = table("facts", "Data", ["data", "source", "sha256"], rows)
    return f"<pre><code>{escape(command)}</code></pre>{paragraph(caption)}{files}"


def _checksum_list(checksums: Mapping[str, str]) -> str:
    lines = [f"{escape(key)} <code>{escape(checksum)}</code>" for key, checksum in checksums.items()]
    return "<br>".join(lines) or missing("no files")
