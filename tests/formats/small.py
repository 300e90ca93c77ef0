"""Run folders with small random models: enough to test whether two engines give the same outputs."""

from pathlib import Path
from typing import Any

import torch

from contracts.checks.common import perturbed
from saccade.api import Run
from saccade.config import build, python_layer, resolve
from saccade.data.codecs import Codecs
from saccade.recipe import Recipe, expand_shorthands
from saccade.runs.folder import RunFolder
from saccade.runs.weights import write_checkpoint

SOURCES = [
    "ein Haus am See",
    "der Hund läuft schnell über die Straße",
    "ein Kind",
    "die Katze schläft auf dem alten Sofa im Haus",
    "",
    "Hund und Katze 日本",
    "</s> <s> <pad> am See",
]
TARGETS = [
    "a house at the lake",
    "the dog runs fast over the street",
    "a child",
    "the cat sleeps on the old sofa in the house",
    "dog and cat",
]
POST = {"block": {"connection": "post"}}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    if over.get("kind", base.get("kind")) != base.get("kind"):
        return over
    nested = {key: merged(base[key], value) for key, value in over.items() if isinstance(base.get(key), dict)}
    return base | over | {key: value for key, value in nested.items() if isinstance(over[key], dict)}


def recipe(model: dict[str, Any] | None = None, **rest: Any) -> Recipe:
    heads = {"heads": 2}
    block = {"self": heads, "cross": heads, "feed_forward": {"inner": 24}}
    tiny = {"dim": 16, "encoder": {"depth": 2}, "decoder": {"depth": 1}, "block": block}
    tree = {
        "data": {"tokenizer": {"kind": "sentencepiece", "size": 60}},
        "model": merged(tiny, model or {}),
        "decode": {"search": "greedy"},
    }
    layer = python_layer(merged(tree, rest))
    return resolve(Recipe, expand_shorthands([layer])).config


def with_varied_outputs(model: Any) -> Any:
    """Scale the weights so that outputs depend on the source: a large embedding table repeats the last token, and a
    large bias always generates the same token."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight *= 0.3 if "embedding" in name else 0.1 if name.endswith("bias") else 1.0
    return model


def make_run(path: Path, model: dict[str, Any] | None = None, seed: int = 0, by: float = 0.8, **rest: Any) -> Run:
    """A run folder like one written by training."""
    config = recipe(model, **rest)
    kind = build(config.data.tokenizer, "data.tokenizer")
    if config.data.joint:
        joint = kind.learn([*SOURCES[:4], *TARGETS])
        codecs = Codecs(joint, joint)
    else:
        codecs = Codecs(kind.learn(SOURCES[:4]), kind.learn(TARGETS))
    folder = RunFolder(path)
    path.mkdir(parents=True)
    torch.manual_seed(seed)
    model_with_weights = with_varied_outputs(perturbed(folder.model(config, codecs), by=by))
    folder.store(config, {}, codecs)
    write_checkpoint(folder.checkpoints.at(1), model_with_weights, {}, None, step=1)
    for mark in ("latest", "best"):
        folder.checkpoints.mark(mark, 1)
    return Run(path)


def outputs_of(engine: Any, decode: Any, sources: list[str] = SOURCES, **more: Any) -> list[Any]:
    from saccade.decode.engine import in_order

    return list(in_order(engine.generate(sources, decode, **more)))
