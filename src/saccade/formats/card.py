"""The model card of an exported folder: what the model is, how it scored, how to use it."""

import json
from typing import Any

import saccade
from saccade.errors import SaccadeError
from saccade.formats.exported import ExportableRun
from saccade.runs.files import read_json
from saccade.view.findings import Figure, cache_key, cached_evaluation
from saccade.view.history import read_history


def card(run: ExportableRun, name: str) -> str:
    """Markdown with YAML front matter, as the hub reads it."""
    split, figures = scores(run)
    parameters = sum(each.numel() for each in run.model.parameters())
    rows = [f"| {each.name} | {each.value:.2f} | {_interval(each)} | {each.signature} |" for each in figures]
    table = ["| score | value | 95 % | signature |", "|---|---|---|---|", *rows] if rows else ["No scores are stored."]
    return "\n".join(
        [
            "---",
            "library_name: transformers",
            "pipeline_tag: translation",
            "tags: [translation, saccade]",
            *_index(name, split, figures),
            "---",
            "",
            f"# {name}",
            "",
            f"A Transformer of {parameters:,} parameters, trained with Saccade {saccade.__version__} "
            f"(checkpoint {run.checkpoint.name}).",
            "",
            f"## Scores{f' on the {split} data' if rows else ''}",
            "",
            *table,
            "",
            *_USE,
            "",
        ]
    )


_USE = [
    "## Use",
    "",
    "```python",
    "from transformers import AutoModelForSeq2SeqLM, MarianTokenizer",
    "",
    "tokenizer, model = MarianTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder)",
    'found = model.generate(**tokenizer(["A text."], return_tensors="pt", padding=True))',
    "print(tokenizer.batch_decode(found, skip_special_tokens=True))",
    "```",
    "",
    "Where sacremoses is installed, MarianTokenizer changes some punctuation before it reads; Saccade does not.",
]


def scores(run: ExportableRun) -> tuple[str, tuple[Figure, ...]]:
    """What `saccade report` found on the test data; else the last validation of the checkpoint."""
    try:
        manifest = read_json(run.checkpoint / "manifest.json")
        findings = cached_evaluation(run.folder, cache_key(run.folder, run.recipe, manifest))
    except (SaccadeError, KeyError, TypeError, AttributeError):
        return "test", ()
    if findings is not None:
        return findings.split, tuple(each for each in findings.figures if each.signature)
    step = manifest.get("step")
    validated = read_history(run.folder).at(step) if type(step) is int else None
    names = {"bleu": "BLEU", "chrf": "chrF"}
    figures = validated.figures if validated else {}
    return "development", tuple(
        Figure(label, figures[key], signature=signature(key)) for key, label in names.items() if key in figures
    )


def signature(name: str) -> str:
    """What sacreBLEU calls a score that a validation has worked out."""
    from saccade.metrics.translation import score

    return score(["a"], ["a"]).signatures[name]


def _interval(figure: Figure) -> str:
    return f"{figure.interval[0]:.2f} to {figure.interval[1]:.2f}" if figure.interval else ""


def _index(name: str, split: str, figures: tuple[Figure, ...]) -> list[str]:
    """Scores as the hub shows them. Every text is quoted as JSON, which is YAML."""
    if not figures:
        return []
    metrics: list[Any] = [
        {"type": each.name.lower(), "name": each.name, "value": round(each.value, 2), "args": each.signature}
        for each in figures
    ]
    data = {"name": "own data", "type": "own", "split": split}
    results = [{"task": {"type": "translation"}, "dataset": data, "metrics": metrics}]
    return [f"model-index: {json.dumps([{'name': name, 'results': results}], ensure_ascii=False)}"]
