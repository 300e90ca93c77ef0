"""The model card of an exported folder: the model, its scores, and how to use it."""

import json
from typing import Any

import saccade
from saccade.errors import SaccadeError
from saccade.formats.exported import ExportableRun
from saccade.runs.evaluations import evaluation_key, load_evaluation
from saccade.runs.files import MANIFEST, read_json
from saccade.runs.history import read_history
from saccade.tasks.evaluation import MetricScore


def card(run: ExportableRun, name: str) -> str:
    """Markdown with YAML front matter, in the format of the Hugging Face hub."""
    split, scores = stored_scores(run)
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    rows = [f"| {score.name} | {score.value:.2f} | {_interval(score)} | {score.signature} |" for score in scores]
    header = ["| score | value | 95 % confidence interval | signature |", "|---|---|---|---|"]
    table = [*header, *rows] if rows else ["No scores are stored."]
    return "\n".join(
        [
            "---",
            "library_name: transformers",
            "pipeline_tag: translation",
            "tags: [translation, saccade]",
            *_model_index(name, split, scores),
            "---",
            "",
            f"# {name}",
            "",
            f"A Transformer of {parameters:,} parameters, trained with Saccade {saccade.__version__} "
            f"(checkpoint {run.checkpoint.name}){_parent(run)}.",
            "",
            f"## Scores{f' on the {split} data' if rows else ''}",
            "",
            *table,
            "",
            *_USE,
            "",
        ]
    )


def _parent(run: ExportableRun) -> str:
    """The name of the run whose weights the training started with."""
    parent = run.folder.parent()
    return f", fine-tuned from {parent['name']} ({parent['checkpoint']})" if parent else ""


_USE = [
    "## Use",
    "",
    "```python",
    "from transformers import AutoModelForSeq2SeqLM, MarianTokenizer",
    "",
    "tokenizer, model = MarianTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder)",
    'outputs = model.generate(**tokenizer(["A text."], return_tensors="pt", padding=True))',
    "print(tokenizer.batch_decode(outputs, skip_special_tokens=True))",
    "```",
    "",
    "If sacremoses is installed, MarianTokenizer normalizes some punctuation before it tokenizes; Saccade does not.",
]


def stored_scores(run: ExportableRun) -> tuple[str, tuple[MetricScore, ...]]:
    """The split and the scores: those stored by `saccade report`, or else those of the checkpoint's last validation."""
    try:
        manifest = read_json(run.checkpoint / MANIFEST)
        evaluation = load_evaluation(run.folder, evaluation_key(run.folder, run.recipe, manifest))
    except (SaccadeError, KeyError, TypeError, AttributeError):
        return "test", ()
    if evaluation is not None:
        return evaluation.split, tuple(score for score in evaluation.scores if score.signature)
    step = manifest.get("step")
    validation = read_history(run.folder).validation_at(step) if type(step) is int else None
    values = validation.scores if validation else {}
    return "development", tuple(
        MetricScore(metric.title, values[metric.key], signature=signature)
        for metric in run.task.metrics
        if metric.key in values and (signature := run.task.signature(metric))
    )


def _interval(score: MetricScore) -> str:
    return f"{score.interval[0]:.2f} to {score.interval[1]:.2f}" if score.interval else ""


def _model_index(name: str, split: str, scores: tuple[MetricScore, ...]) -> list[str]:
    """The scores as the hub shows them. Strings are quoted as JSON, which is valid YAML."""
    if not scores:
        return []
    metrics: list[Any] = [
        {"type": score.name.lower(), "name": score.name, "value": round(score.value, 2), "args": score.signature}
        for score in scores
    ]
    data = {"name": "own data", "type": "own", "split": split}
    results = [{"task": {"type": "translation"}, "dataset": data, "metrics": metrics}]
    return [f"model-index: {json.dumps([{'name': name, 'results': results}], ensure_ascii=False)}"]
