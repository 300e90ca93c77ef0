"""The run directory: config, tokenizers, data checksums, checkpoints, metrics."""

import fcntl
import os
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from saccade.config import Choice, build, leaves, plain, python_layer, resolve, to_toml, wiring
from saccade.data.sources import Pair, Source, load
from saccade.data.tokenizers import Tokenizer
from saccade.errors import ConfigError, DataError, RunError
from saccade.models.assemble import Model, assemble
from saccade.recipe import Recipe
from saccade.runs.checkpoints import FORMAT, Checkpoints
from saccade.runs.files import read_json, sha256, to_json, verify, write_bytes, write_folder
from saccade.tasks.translation import Tokenizers

CONFIG, DATA, METRICS, TIMING, LOCK, TOKENIZER = (
    "config.toml",
    "data.json",
    "metrics.jsonl",
    "timing.jsonl",
    "lock",
    "tokenizer",
)
# What may change in a run that exists, if asked: none of it changes the meaning of what was learned.
HARMLESS = {
    "data.folder",
    "train.updates",
    "train.minutes",
    "train.enough",
    "train.patience",
    "train.keep",
    "train.average",
    "train.log_every",
}


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run and what is read from and written to them."""

    path: Path

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.path / "checkpoints")

    @property
    def metrics(self) -> Path:
        return self.path / METRICS

    @property
    def timing(self) -> Path:
        return self.path / TIMING

    def started(self) -> bool:
        """Something was learned here, so config, text and tokenizers are settled."""
        return (self.path / CONFIG).is_file() and any(self.checkpoints.folder.glob("*step-*"))

    def config(self) -> Recipe:
        """The resolved config, as trained."""
        try:
            tree = tomllib.loads((self.path / CONFIG).read_text("utf-8"))
        except FileNotFoundError:
            raise RunError(f"{self.path}: is not a run: it has no {CONFIG}") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise RunError(f"{self.path / CONFIG}: is damaged: {error}") from None
        try:
            return resolve(Recipe, [python_layer(tree, CONFIG)]).config
        except ConfigError as error:
            raise RunError(f"{self.path / CONFIG}: is not of this version of Saccade:\n{error}") from None

    # ── tokenizers ──

    def _write_tokenizers(self, tokenizers: Tokenizers) -> None:
        sides = {"source": tokenizers.source, "target": tokenizers.target}
        if tokenizers.source is tokenizers.target:
            sides = {"joint": tokenizers.source}
        data = {f"{side}.model": tokenizer.dump() for side, tokenizer in sides.items()}
        writers = {name: lambda path, text=text: _write(path, text) for name, text in data.items()}
        write_folder(self.path / TOKENIZER, writers, {"format": FORMAT}, sum(map(len, data.values())))

    def tokenizers(self, config: Recipe) -> Tokenizers | None:
        """The tokenizers of the run, once they are written."""
        folder = self.path / TOKENIZER
        if not folder.is_dir():
            return None
        files = verify(folder)["files"]
        kind = build(config.data.tokenizer, "data.tokenizer")

        def read(name: str) -> Tokenizer:
            if name not in files:
                raise RunError(f"{folder}: has no {name}")
            return kind.read((folder / name).read_bytes())

        if config.data.joint:
            joint = read("joint.model")
            return Tokenizers(joint, joint)
        return Tokenizers(read("source.model"), read("target.model"))

    def model(self, config: Recipe, tokenizers: Tokenizers) -> Model:
        """The model with its first weights, a pure function of the seed."""
        torch.manual_seed(config.seed)
        return assemble(config.model, tokenizers.source.size, tokenizers.target.size)

    # ── one trainer, one config, one text ──

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Refuse a second trainer. The system lets go of the lock when a process ends, however it ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise RunError(f"{self.path}: cannot be written: {error.strerror}") from None
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                pid = os.read(handle, 20).decode(errors="replace").strip() or "unknown"
                raise RunError(f"{self.path}: is being trained by process {pid}; wait for it, or stop it") from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(handle)

    def store(self, config: Recipe, checksums: dict[str, str], tokenizers: Tokenizers) -> None:
        """Write down what the run is about."""
        if not self.started():
            self._write_tokenizers(tokenizers)
        write_bytes(self.path / DATA, to_json({"format": FORMAT, "sha256": checksums}))
        write_bytes(self.path / CONFIG, to_toml(config).encode())

    def same_text(self, splits: dict[str, Source]) -> None:
        """Refuse text that is not the one the run was made with, such as another file of the same name."""
        stored = read_json(self.path / DATA).get("sha256", {})
        for key, found in checksums(splits).items():
            if stored.get(key) != found:
                raise DataError(f"{key}: is not the text of this run; give --src FILE and --ref FILE to score it")

    def compare(self, config: Recipe, checksums: dict[str, str], allow_change: bool) -> None:
        """Refuse another config or text than the run was trained with, and list what differs."""
        old, new = leaves(plain(self.config())), leaves(plain(config))
        differing = {key for key in {*old, *new} if old.get(key) != new.get(key)}
        stored = read_json(self.path / DATA).get("sha256", {})
        if differing <= {"data.folder"} and stored == checksums:
            return  # the same text at another place
        free = HARMLESS - set(_scheduled(config))
        refused = sorted(differing - free if allow_change else differing)
        lines = [f"  {key}: {_show(old, key)} → {_show(new, key)}" for key in refused]
        lines += [
            f"  {key}: its text has changed"
            for key in sorted({*stored, *checksums})
            if stored.get(key) != checksums.get(key)
        ]
        if not lines:
            return
        hint = f"\nwith --allow-change these may differ: {', '.join(sorted(free))}" if not allow_change else ""
        raise RunError(
            f"{self.path}: was trained with another config or text:\n"
            + "\n".join(lines)
            + f"{hint}\ngive back the old values, or train elsewhere with --run DIR"
        )


def _scheduled(config: Recipe) -> list[str]:
    """A schedule that ends at the last update is another one when that moves."""
    schedule = config.train.schedule
    return ["train.updates"] if isinstance(schedule, Choice) and "updates" in wiring(schedule.part) else []


def _show(values: dict[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "nothing"


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def checksums(splits: dict[str, Source]) -> dict[str, str]:
    """`data.train.src` → sha256 of that file."""
    return {
        f"data.{split}.{option}": sha256(path)
        for split, source in splits.items()
        for option, path in source.files().items()
    }


def pairs_of(splits: dict[str, Source], split: str, skip_bad: bool) -> tuple[Sequence[Pair], int]:
    loaded = load(splits[split], skip_bad=skip_bad)
    return loaded.rows, loaded.faults


def learn_tokenizers(config: Recipe, pairs: Sequence[Pair]) -> Tokenizers:
    """From the training text: one for both sides, or one for each."""
    kind = build(config.data.tokenizer, "data.tokenizer")
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    if config.data.joint:
        joint = kind.learn(text for pair in pairs for text in (pair.source, pair.target))
        return Tokenizers(joint, joint)
    return Tokenizers(kind.learn(sources), kind.learn(targets))
