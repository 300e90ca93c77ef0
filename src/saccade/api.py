"""What Python users call: `load` a run, `train` one, and use it."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from saccade.config import build, plain, python_layer, resolve
from saccade.console import track
from saccade.data.batches import Corpus
from saccade.data.sources import Pair
from saccade.data.tokenizers import END, SPECIAL, START, Tokenizer, word_of
from saccade.decode.engine import DecodeConfig, Engine, Output, TorchEngine, in_order
from saccade.errors import ConfigError, DataError, Refusal, RunError
from saccade.measures.translation import score
from saccade.models.assemble import Model
from saccade.notes import capture
from saccade.recipe import Recipe, recipe_of, sources_of
from saccade.runs.checkpoints import load_weights
from saccade.runs.folder import RunFolder, pairs_of
from saccade.tasks.losses import forced_hidden
from saccade.tasks.translation import Tokenizers, encode, forced_cost
from saccade.training.loop import train as run_training
from saccade.training.progress import ConsoleReporter, Reporter
from saccade.view.maps import AttentionMaps, Axis, Map


def load(path: str | Path, checkpoint: str = "auto") -> "Run":
    """Open a trained run. `checkpoint`: auto, average, best, latest or step-N."""
    return Run(Path(path), checkpoint)


def train(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    run: str | Path | None = None,
    *,
    set: Mapping[str, Any] | None = None,  # noqa: A002 - the same word as on the command line
    report: Reporter | None = None,
) -> "Run":
    """Train a recipe (its file, a nested dict, or a Recipe); calling it again goes on where it stopped."""
    name = Path(recipe).stem if isinstance(recipe, (str, Path)) else "run"
    if isinstance(recipe, Recipe):
        if set:
            raise ConfigError("set: a Recipe is whole already; give a file or nested dicts to change values")
        config = recipe
    else:
        config = recipe_of({"extends": str(recipe)} if isinstance(recipe, (str, Path)) else recipe, set or {})
    folder = run_training(config, Path(run or Path("runs") / name), report or ConsoleReporter())
    return Run(folder.path)


def search_settings(base: DecodeConfig, changes: Mapping[str, Any]) -> DecodeConfig:
    """Decode settings with some of them replaced: nested keys as in a recipe's [decode]."""
    decode = resolve(DecodeConfig, [python_layer(plain(base)), python_layer(changes)]).config
    try:
        build(decode.search, "decode.search")
    except Refusal as refusal:
        raise ConfigError(str(refusal)) from None
    return decode


class Run:
    """A trained model with its tokenizers: raw text in, raw text out."""

    def __init__(self, path: Path, checkpoint: str = "auto"):
        self.folder = RunFolder(path)
        self.recipe = self.folder.config()
        self.checkpoint = self.folder.checkpoints.find(checkpoint)

    @cached_property
    def tokenizers(self) -> Tokenizers:
        found = self.folder.tokenizers(self.recipe)
        if found is None:
            raise RunError(f"{self.folder.path}: has no tokenizer yet; train it first")
        return found

    @cached_property
    def model(self) -> Model:
        with torch.random.fork_rng():
            model = self.folder.model(self.recipe, self.tokenizers)
        load_weights(model, self.checkpoint)
        return model.eval()

    @cached_property
    def engine(self) -> Engine:
        return TorchEngine(self.model, self.tokenizers.source, self.tokenizers.target)

    def outputs(
        self,
        texts: Sequence[str],
        decode: DecodeConfig | None = None,
        prefixes: Sequence[str] | None = None,
        first: int = 0,
    ) -> Iterator[list[Output]]:
        """For each text, in order, its outputs with scores and pieces, best first."""
        return in_order(self.engine.find(texts, decode or self.recipe.decode, prefixes, first))

    def translate(self, texts: Sequence[str], *, beam: int | None = None) -> list[str]:
        """The best translation of each text; `beam` overrides the recipe's search."""
        return [best[0].text for best in self.outputs(texts, self._with_beam(beam))]

    def _with_beam(self, beam: int | None) -> DecodeConfig:
        return search_settings(self.recipe.decode, {"search": {"kind": "beam", "size": beam}} if beam else {})

    def attention(self, text: str, target: str | None = None, *, beam: int | None = None) -> AttentionMaps:
        """What every attention of the model looks at while it reads `text` and writes `target` (or its own choice)."""
        source_ids = self.tokenizers.source.encode([text])[0]
        if target is None:
            chosen = next(self.outputs([text], self._with_beam(beam)))[0]
            target, target_ids = chosen.text, list(chosen.ids[:-1])  # the very pieces that were written
        else:
            target_ids = self.tokenizers.target.encode([target])[0]
        batch = Corpus([source_ids], [target_ids]).batch([0])
        with torch.inference_mode(), capture(self.model) as captured:
            forced_hidden(self.model, batch)
            weights = {name: tensor[0].numpy().astype(np.float32) for name, tensor in captured.items()}
        axes = {
            "source": _axis(self.tokenizers.source, [*source_ids, END]),
            "inputs": _axis(self.tokenizers.target, [START, *target_ids]),
            "outputs": _axis(self.tokenizers.target, [*target_ids, END]),
        }
        return AttentionMaps(text, target, {name: _map(name, w, axes) for name, w in weights.items()})

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """log p(target | source) of each pair, the end symbol included."""
        sources = self.tokenizers.source.encode([source for source, _ in pairs])
        targets = self.tokenizers.target.encode([target for _, target in pairs])
        corpus = Corpus(sources, targets)
        return [
            -forced_cost(self.model, corpus, self.recipe.decode.batch_tokens, [row])[0] for row in range(len(pairs))
        ]

    def evaluate(
        self, pairs: Sequence[tuple[str, str]] | None = None, *, decode: DecodeConfig | None = None
    ) -> dict[str, Any]:
        """Scores on the recipe's test text, or on pairs of source and reference."""
        pairs = self.test_pairs() if pairs is None else pairs
        began = time.monotonic()
        found = self.engine.find([source for source, _ in pairs], decode or self.recipe.decode)
        best = [outputs[0] for outputs in in_order(track(found, len(pairs), "translating"))]
        seconds = time.monotonic() - began
        scores = score([output.text for output in best], [reference for _, reference in pairs]).plain()
        rows = [Pair(source, reference, "") for source, reference in pairs]
        encoded = encode(rows, self.tokenizers, longest=10**9)
        cost, count = forced_cost(self.model, encoded.corpus, self.recipe.decode.batch_tokens)
        return scores | {
            "perplexity": math.exp(min(700.0, cost / max(1, count))),
            "tokens_per_second": sum(len(output.ids) for output in best) / seconds,
            "sentences_per_second": len(best) / seconds,
            "checkpoint": self.checkpoint.name,
        }

    def test_pairs(self) -> list[tuple[str, str]]:
        """The sources and references of the recipe's test text."""
        splits = sources_of(self.recipe)
        self.folder.same_text({"test": splits["test"]})
        pairs, _ = pairs_of(splits, "test", self.recipe.data.skip_bad)
        if not pairs:
            raise DataError("data.test: the recipe names no test text; give --src FILE and --ref FILE")
        return [(pair.source, pair.target) for pair in pairs]


def _axis(tokenizer: Tokenizer, ids: list[int]) -> Axis:
    pieces = tokenizer.pieces(ids)
    return Axis(tuple(p if p in SPECIAL else p.strip() for p in pieces), tuple(word_of(pieces)))


def _map(name: str, weights: np.ndarray, axes: dict[str, Axis]) -> Map:
    """Which side is on which axis follows from where the attention stands."""
    if name.startswith("encoder."):
        return Map(weights, axes["source"], axes["source"], "encoder")
    if name.partition("@")[0].endswith(".memory"):
        return Map(weights, axes["outputs"], axes["source"], "cross")
    return Map(weights, axes["inputs"], axes["inputs"], "decoder")
