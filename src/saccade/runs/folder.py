"""The run directory: config, codecs, data checksums, checkpoints, metrics."""

import fcntl
import os
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from saccade.align.attention import AlignmentSettings
from saccade.config import Choice, build, leaves, plain, python_layer, resolve, to_toml, wiring
from saccade.data.codecs import Codecs, Scaling
from saccade.data.sources import Row, Source, load
from saccade.errors import ConfigError, DataError, RunError
from saccade.models.assemble import Model, assemble
from saccade.recipe import Recipe, best_by, task_of
from saccade.runs.checkpoints import FORMAT, Checkpoints
from saccade.runs.files import read_json, sha256, to_json, verify, write_bytes, write_folder

ALIGNMENT, CONFIG, DATA, METRICS, TIMING, LOCK, TOKENIZER = (
    "alignment.json",
    "config.toml",
    "data.json",
    "metrics.jsonl",
    "timing.jsonl",
    "lock",
    "tokenizer",
)
# What may change in a run that exists, if asked: none of it changes the meaning of what was learned.
CHANGEABLE_KEYS = {
    "data.folder",
    "train.updates",
    "train.minutes",
    "train.stop_at",
    "train.patience",
    "train.keep",
    "train.average",
    "train.log_every",
    "train.ranks",
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
        """Something was learned here, so config, data and codecs are settled."""
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

    # ── codecs ──

    def _write_codecs(self, config: Recipe, codecs: Codecs[Any, Any]) -> None:
        files = task_of(config).files(codecs)
        writers = {name: lambda path, data=data: _write(path, data) for name, data in files.items()}
        write_folder(self.path / TOKENIZER, writers, {"format": FORMAT}, sum(map(len, files.values())))

    def codecs(self, config: Recipe) -> Codecs[Any, Any] | None:
        """The tokenizers, labels or scaling of the run, once they are written."""
        folder = self.path / TOKENIZER
        if not folder.is_dir():
            return None
        files = {name: (folder / name).read_bytes() for name in verify(folder)["files"]}
        kind = build(config.data.tokenizer, "data.tokenizer")
        try:
            return task_of(config).read(files, kind, config.data.joint)
        except RunError as error:
            raise RunError(f"{folder}: {error}") from None

    def model(self, config: Recipe, codecs: Codecs[Any, Any]) -> Model:
        """The model with its first weights, a pure function of the seed."""
        torch.manual_seed(config.seed)
        frames, writes = isinstance(codecs.source, Scaling), task_of(config).writes
        return assemble(config.model, codecs.source.size, codecs.target.size, frames=frames, writes=writes)

    # ── how word alignments are read from it ──

    def alignment_settings(self) -> AlignmentSettings | None:
        """The reading that was searched for, if one was."""
        path = self.path / ALIGNMENT
        if not path.is_file():
            return None
        try:
            return AlignmentSettings.of(read_json(path))
        except ValueError as error:
            raise RunError(f"{path}: {error}; search anew with `saccade align search`") from None

    def store_alignment_settings(self, reading: AlignmentSettings, found_on: dict[str, Any]) -> None:
        write_bytes(self.path / ALIGNMENT, to_json(reading.plain() | {"found_on": found_on}))

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

    def store(self, config: Recipe, checksums: dict[str, str], codecs: Codecs[Any, Any]) -> None:
        """Write down what the run is about."""
        if not self.started():
            self._write_codecs(config, codecs)
        write_bytes(self.path / DATA, to_json({"format": FORMAT, "sha256": checksums}))
        write_bytes(self.path / CONFIG, to_toml(config).encode())

    def check_same_data(self, splits: dict[str, Source]) -> None:
        """Refuse text that is not the one the run was made with, such as another file of the same name."""
        stored = read_json(self.path / DATA).get("sha256", {})
        for key, found in checksums(splits).items():
            if stored.get(key) != found:
                hint = "give --src FILE and --ref FILE to score it" if task_of(self.config()).writes else "put it back"
                raise DataError(f"{key}: is not the text of this run; {hint}")

    def compare(self, config: Recipe, checksums: dict[str, str], allow_change: bool) -> None:
        """Refuse another config or text than the run was trained with, and list what differs."""
        old, new = _values(self.config()), _values(config)
        differing = {key for key in {*old, *new} if old.get(key) != new.get(key)}
        stored = read_json(self.path / DATA).get("sha256", {})
        if differing <= {"data.folder"} and stored == checksums:
            return  # the same text at another place
        free = CHANGEABLE_KEYS - set(_scheduled(config))
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


def _values(config: Recipe) -> dict[str, Any]:
    """Dotted key → value; two ways to say the same are one."""
    return leaves(plain(config)) | {"train.best_by": best_by(config)}


def _scheduled(config: Recipe) -> list[str]:
    """A schedule that ends at the last update is another one when that moves."""
    schedule = config.train.schedule
    return ["train.updates"] if isinstance(schedule, Choice) and "updates" in wiring(schedule.part) else []


def _show(values: dict[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "none"


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def checksums(splits: dict[str, Source]) -> dict[str, str]:
    """`data.train.src` → sha256 of that file."""
    return {
        f"data.{split}.{option}": sha256(path)
        for split, source in splits.items()
        for option, path in source.files().items()
    }


def rows_of(splits: dict[str, Source], split: str, skip_bad: bool) -> tuple[Sequence[Any], int]:
    """The usable rows of a split, and how many are bad."""
    loaded = load(splits[split], skip_bad=skip_bad)
    return loaded.rows, loaded.faults


def learn_codecs(config: Recipe, rows: Sequence[Row]) -> Codecs[Any, Any]:
    """From the training rows, as the task says."""
    return task_of(config).learn(rows, build(config.data.tokenizer, "data.tokenizer"), config.data.joint)
