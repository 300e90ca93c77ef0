"""The run folder: config, codecs, data checksums, checkpoints, metrics."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from saccade.attention_alignment import AlignmentSettings
from saccade.config import Choice, build, leaves, plain, python_layer, resolve, to_toml, wiring
from saccade.data.codecs import AnyCodecs
from saccade.data.sources import Row, Source, load_rows
from saccade.data.sources.rows import MissingFile
from saccade.errors import ConfigError, DataError, RunError, remedy
from saccade.models.assemble import Model, assemble
from saccade.recipe import Recipe
from saccade.runs.checkpoints import FORMAT, Checkpoints
from saccade.runs.files import locked, read_json, sha256, to_json, verify, write_bytes, write_folder

ALIGNMENT_FILE, CONFIG_FILE, DATA_FILE, PARENT_FILE, METRICS_FILE, TIMING_FILE, LOCK_FILE, CODECS_FOLDER = (
    "alignment.json",
    "config.toml",
    "data.json",
    "parent.json",
    "metrics.jsonl",
    "timing.jsonl",
    "lock",
    "codecs",
)
RESTORE = "restore the file from a copy of the run, or train again"
# Settings that an existing run may change on request, because the weights trained so far do not depend on them.
CHANGEABLE_KEYS = {
    "data.folder",
    "data.cache",
    "train.updates",
    "train.minutes",
    "train.stop_at",
    "train.patience",
    "train.keep",
    "train.average",
    "train.log_every",
    "train.parallelism",
    "train.device",
    "train.precision",
}


@dataclass(frozen=True)
class RunFolder:
    """The files of a run, and how they are read and written."""

    path: Path

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.path / "checkpoints")

    @property
    def metrics(self) -> Path:
        return self.path / METRICS_FILE

    @property
    def timing(self) -> Path:
        return self.path / TIMING_FILE

    def started(self) -> bool:
        """Whether the run has a checkpoint, so that config, data and codecs are fixed."""
        # damaged-step-… counts too: the codecs stay fixed if only damaged checkpoints are left
        return (self.path / CONFIG_FILE).is_file() and any(self.checkpoints.folder.glob("*step-*"))

    def config(self) -> Recipe:
        """The resolved config of the run."""
        try:
            tree = tomllib.loads((self.path / CONFIG_FILE).read_text("utf-8"))
        except FileNotFoundError:
            raise RunError(f"{self.path}: is not a run: it has no {CONFIG_FILE}") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise RunError(f"{self.path / CONFIG_FILE}: is damaged: {error}; {RESTORE}") from None
        if not tree:
            raise RunError(f"{self.path / CONFIG_FILE}: is damaged: it is empty; {RESTORE}")
        try:
            return resolve(Recipe, [python_layer(tree, CONFIG_FILE)]).config
        except ConfigError as error:
            raise RunError(
                f"{self.path / CONFIG_FILE}: does not fit this version of Saccade; use the version that wrote it, or "
                f"train again:\n{error}"
            ) from None

    # ── codecs ──

    def _write_codecs(self, config: Recipe, codecs: AnyCodecs) -> None:
        files = config.built_task.files(codecs)
        writers = {name: lambda path, data=data: _write(path, data) for name, data in files.items()}
        write_folder(self.path / CODECS_FOLDER, writers, {"format": FORMAT}, sum(map(len, files.values())))

    def codecs(self, config: Recipe) -> AnyCodecs | None:
        """The stored tokenizers, labels or scaling of the run; None before training has written them."""
        folder = self.path / CODECS_FOLDER
        if not folder.is_dir():
            return None
        kind = build(config.data.tokenizer, "data.tokenizer")
        with remedy(RESTORE):
            files = {name: (folder / name).read_bytes() for name in verify(folder)["files"]}
            try:
                return config.built_task.read(files, kind, config.data.joint)
            except RunError as error:
                raise RunError(f"{folder}: {error}") from None

    def model(self, config: Recipe, codecs: AnyCodecs) -> Model:
        """The model with its initial weights, which depend only on the config (with its seed) and the codecs' sizes.
        Seeds torch's global random generator."""
        torch.manual_seed(config.seed)
        task = config.built_task
        return assemble(config.model, codecs.source.input, codecs.target.size, task.reads, task.has_labels)

    # ── settings for word alignment by attention ──

    def alignment_settings(self) -> AlignmentSettings | None:
        """The settings that `saccade align search` found; None if there was no search."""
        path = self.path / ALIGNMENT_FILE
        if not path.is_file():
            return None
        try:
            return AlignmentSettings.of(read_json(path))
        except ValueError as error:
            raise RunError(f"{path}: {error}; run `saccade align search` again") from None

    def store_alignment_settings(self, settings: AlignmentSettings, found_on: dict[str, Any]) -> None:
        write_bytes(self.path / ALIGNMENT_FILE, to_json(settings.plain() | {"found_on": found_on}))

    # ── the lock, and checks that config and data are unchanged ──

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run's lock, or refuse if another process trains it."""

        def refuse(pid: str) -> NoReturn:
            raise RunError(f"{self.path}: is being trained by process {pid}; wait until it ends, or stop it")

        with ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(self.path / LOCK_FILE, refuse))
            except OSError as error:
                raise RunError(f"{self.path}: cannot be written: {error.strerror}") from None
            yield

    def store(
        self,
        config: Recipe,
        checksums: dict[str, str],
        codecs: AnyCodecs,
        parent: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the config, the data checksums and, in a new run, the codecs and the facts about the run whose weights
        it starts with."""
        if not self.started():
            self._write_codecs(config, codecs)
            if parent is None:
                (self.path / PARENT_FILE).unlink(missing_ok=True)
            else:
                write_bytes(self.path / PARENT_FILE, to_json(parent))
        write_bytes(self.path / DATA_FILE, to_json({"format": FORMAT, "sha256": checksums}))
        write_bytes(self.path / CONFIG_FILE, to_toml(config).encode())

    def parent(self) -> dict[str, Any] | None:
        """The facts about the run whose weights this run started with; None if it started with random weights."""
        if not (self.path / PARENT_FILE).is_file():
            return None
        with remedy(RESTORE):
            facts = read_json(self.path / PARENT_FILE)
            needed = ("run", "name", "checkpoint")
            if not isinstance(facts, dict) or not all(isinstance(facts.get(key), str) for key in needed):
                raise RunError(f"{self.path / PARENT_FILE}: is damaged: it names no run")
        return facts

    def data_checksums(self) -> dict[str, str]:
        """Option name, such as data.train.src → SHA-256 of the file that the run was trained with."""
        with remedy(RESTORE):
            tree = read_json(self.path / DATA_FILE)
            stored = tree.get("sha256") if isinstance(tree, dict) else None
            if not isinstance(stored, dict):
                raise RunError(f"{self.path / DATA_FILE}: is damaged: it lists no checksums")
        return {str(key): str(checksum) for key, checksum in stored.items()}

    def check_same_data(self, splits: dict[str, Source]) -> None:
        """Refuse data files whose checksums differ from those the run was trained with."""
        stored = self.data_checksums()
        try:
            current = checksums(splits)
        except MissingFile as error:
            raise DataError(
                f"{error.path}: no such file; run this command in the folder in which the run was trained, or restore "
                "the file"
            ) from None
        for key, checksum in current.items():
            if stored.get(key) != checksum:
                other_files = (
                    f", or evaluate on other files with `saccade evaluate {self.path} --src FILE --ref FILE`"
                    if self.config().built_task.text_to_text
                    else ""
                )
                raise DataError(f"{key}: the file has changed since the run was trained; restore it{other_files}")

    def check_unchanged(self, config: Recipe, checksums: dict[str, str], allow_change: bool) -> None:
        """Refuse a config or data files that differ from those the run was trained with, and list all differences. With
        `allow_change`, the values of CHANGEABLE_KEYS may differ."""
        old, new = _values(self.config()), _values(config)
        differing = {key for key in {*old, *new} if old.get(key) != new.get(key)}
        stored = self.data_checksums()
        if differing <= {"data.folder"} and stored == checksums:
            return  # the same files in another folder
        changeable = CHANGEABLE_KEYS - set(_scheduled(config))
        refused = sorted(differing - changeable if allow_change else differing)
        files = [key for key in sorted({*stored, *checksums}) if stored.get(key) != checksums.get(key)]
        lines = [f"  {key}: {_show(old, key)} → {_show(new, key)}" for key in refused]
        lines += [f"  {key}: {_file_change(key in stored, key in checksums)}" for key in files]
        if not lines:
            return
        allow = (
            ""
            if files or allow_change or differing - changeable
            else "continue with the new ones with --allow-change (command line only), "
        )
        restored = " and ".join(["values"] * bool(refused) + ["files"] * bool(files))
        raise RunError(
            "\n".join(
                [
                    f"{self.path}: was trained with another config or other data:",
                    *lines,
                    f"restore the old {restored}, {allow}or train a new run with --run DIR, in Python run=DIR",
                ]
            )
        )


def _values(config: Recipe) -> dict[str, Any]:
    """Dotted key → value. `best_by = "auto"` equals the metric that it stands for."""
    return leaves(plain(config)) | {"train.best_by": config.best_metric.key}


def _scheduled(config: Recipe) -> list[str]:
    """["train.updates"] if the schedule depends on it, so that changing it would change the learning rate; else []."""
    schedule = config.train.schedule
    return ["train.updates"] if isinstance(schedule, Choice) and "updates" in wiring(schedule.factory) else []


def _show(values: dict[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "none"


def _file_change(was_used: bool, is_used: bool) -> str:
    return "the file has changed" if was_used and is_used else "is no longer used" if was_used else "is new"


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def checksums(splits: dict[str, Source]) -> dict[str, str]:
    """Option name, such as data.train.src → SHA-256 of its file."""
    return {
        f"data.{split}.{option}": sha256(path)
        for split, source in splits.items()
        for option, path in source.files().items()
    }


def load_split(splits: dict[str, Source], split: str, skip_bad: bool) -> tuple[Sequence[Row], int]:
    """The usable rows of a split, and the number of bad ones."""
    loaded = load_rows(splits[split], skip_bad=skip_bad)
    return loaded.rows, loaded.bad_rows


def learn_codecs(config: Recipe, rows: Iterable[Row]) -> AnyCodecs:
    """Learn the codecs from the training rows."""
    return config.built_task.learn(rows, build(config.data.tokenizer, "data.tokenizer"), config.data.joint)
