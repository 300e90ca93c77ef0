"""The training rows of a recipe: in memory, or (large texts) encoded once into the cache and memory-mapped. The batches
are the same."""

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import sentencepiece

from saccade.config import build, factory_of, kind_of, plain
from saccade.console import track, track_fast
from saccade.data.codecs import AnyCodecs
from saccade.data.source_codecs import SOURCE_CODECS
from saccade.data.sources import LineSource, Loaded, Pair, Row, RowStream, Source
from saccade.data.sources.rows import line_total
from saccade.encoding.cache import Cache, key_of, usable_folder
from saccade.encoding.cores import cores
from saccade.encoding.learning import LearnedInProcess
from saccade.encoding.pair_arrays import PairEncoder, encode_blocks, map_pairs
from saccade.errors import ConfigError, DataError
from saccade.recipe import Recipe
from saccade.runs.folder import learn_codecs
from saccade.tasks.task import Encoded, PairTask, Task
from saccade.training.ranks import Ranks

ARRAYS_FORMAT = 1  # part of every key: raise it when the arrays of the same data would differ
CACHED_FROM_BYTES = 16_000_000  # size of the data files from which `data.cache = "auto"` uses the cache

Say = Callable[[str], None]  # takes a progress message


class TrainingRows(Protocol):
    """The training rows. `bad_rows` is the number of bad rows, after `encode`."""

    bad_rows: int

    def iterate(self) -> Iterable[Row]:
        """All rows, one after the other."""
        ...

    def learn(self) -> AnyCodecs:
        """Learn the codecs."""
        ...

    def encode(self, codecs: AnyCodecs, ranks: Ranks) -> Encoded:
        """Encode the rows; all ranks call it."""
        ...


class LoadedRows:
    """Rows in memory. Every rank encodes them."""

    def __init__(self, recipe: Recipe, loaded: Loaded, report: Say):
        self.recipe, self.rows, self.bad_rows, self.report = recipe, loaded.rows, loaded.bad_rows, report

    def iterate(self) -> Iterable[Row]:
        return self.rows

    def learn(self) -> AnyCodecs:
        self.report(SOURCE_CODECS[type(self.rows[0])].learning)
        return learn_codecs(self.recipe, self.rows)

    def encode(self, codecs: AnyCodecs, ranks: Ranks) -> Encoded:
        return self.recipe.built_task.encode(self.rows, codecs, self.recipe.data.longest)


@dataclass
class CachedPairs:
    """Pairs of text that are read as a stream, never held in memory. Codecs and arrays are in the cache."""

    recipe: Recipe
    task: PairTask  # of the recipe
    source: LineSource
    checksums: Mapping[str, str]  # of the data files
    cache: Cache
    bad_rows: int = field(default=0, init=False)

    def iterate(self) -> Iterable[Row]:
        return self.stream()

    def learn(self) -> AnyCodecs:
        task, data = self.task, self.recipe.data
        kind = build(data.tokenizer, "data.tokenizer")
        settings = {"tokenizer": plain(data.tokenizer), "joint": data.joint}

        def make(folder: Path) -> dict[str, Any]:
            self.cache.report("learning the tokenizer")
            lines = line_total(self.source)
            rows = _Repeated(lambda: track_fast(self.stream(), lines, "reading the training text"))
            codecs = task.learn(rows, LearnedInProcess(kind, plain(data.tokenizer)), data.joint)
            for name, content in task.files(codecs).items():
                (folder / name).write_bytes(content)
            return {}

        entry = self.cache.entry(key_of({"codecs": settings, **self._facts()}), make)
        files = {name: (entry.folder / name).read_bytes() for name in entry.manifest["files"]}
        return task.read(files, kind, data.joint)

    def encode(self, codecs: AnyCodecs, ranks: Ranks) -> Encoded:
        """Rank 0 encodes first. The others find its arrays in the cache, unless they are on another machine."""
        encoded = self._encode(codecs) if ranks.is_main else None
        ranks.broadcast(None)
        return encoded or self._encode(codecs)

    def _encode(self, codecs: AnyCodecs) -> Encoded:
        encoder = PairEncoder(self.task, codecs, self.recipe.data.longest)
        kind = kind_of(self.recipe.data.tokenizer)
        stored = {name: key_of({"": content.hex()}) for name, content in self.task.files(codecs).items()}
        settings = {"longest": encoder.longest, "tokenizer": kind, "files": stored}

        def make(folder: Path) -> dict[str, Any]:
            stream = self.stream()
            blocks = encoder.blocks(cast("Iterable[Pair]", stream))
            blocks = track(blocks, line_total(self.source), "encoding the training text", size=len)
            left_out = encode_blocks(blocks, encoder, kind, cores(), folder)
            return {"left_out": left_out, "bad_rows": stream.bad_rows}

        entry = self.cache.entry(key_of({"arrays": settings, **self._facts()}), make)
        self.bad_rows = entry.manifest["bad_rows"]
        return map_pairs(entry.folder, entry.manifest["left_out"], self.task.collate, self.source)

    def stream(self) -> RowStream:
        """The usable pairs, read from the files."""
        return RowStream(self.source, skip_bad=self.recipe.data.skip_bad)

    def _facts(self) -> dict[str, Any]:
        """What the rows depend on, the kind of the task, which decides how they are encoded and which are left out, and
        the versions of what encodes them. Files count by content, not by name."""
        options = plain(self.recipe.data.train)
        versions = [ARRAYS_FORMAT, sentencepiece.__version__, unicodedata.unidata_version]
        return {
            "data": {option: self.checksums[f"data.train.{option}"] for option in self.source.files()},
            "source": {name: value for name, value in options.items() if name not in self.source.files()},
            "skip_bad": self.recipe.data.skip_bad,
            "task": kind_of(self.recipe.task),
            "versions": versions,
        }


def cached_pairs(
    recipe: Recipe, source: Source, checksums: Mapping[str, str], run: Path, report: Say
) -> CachedPairs | None:
    """The training rows in the cache; None if they should be in memory."""
    if not uses_cache(recipe, source):
        return None
    task = recipe.built_task
    assert isinstance(task, PairTask)
    assert isinstance(source, LineSource)
    rows = CachedPairs(recipe, task, source, checksums, Cache(usable_folder(run / "cache", report), report))
    if next(iter(rows.stream()), None) is None:
        raise no_rows("train")
    return rows


def uses_cache(recipe: Recipe, source: Source) -> bool:
    """Whether the training rows are encoded into the cache. ConfigError if they must be and cannot."""
    reason, wish = why_not_cached(recipe, recipe.built_task, source), recipe.data.cache
    if reason and wish == "always":
        raise ConfigError(f'data.cache: "always" is not possible, because {reason}; set it to "auto"')
    if reason or wish == "never":
        return False
    return wish == "always" or sum(path.stat().st_size for path in source.files().values()) >= CACHED_FROM_BYTES


def why_not_cached(recipe: Recipe, task: Task, source: Source) -> str:
    """Why the training rows cannot be in the cache; "" if they can. The key of an entry covers the version of Saccade's
    own classes, not of others."""
    if not isinstance(source, LineSource):
        return f"the source '{kind_of(recipe.data.train)}' does not read pairs of text from lines of files"
    if not isinstance(task, PairTask):
        return f"the task '{kind_of(recipe.task)}' does not train on pairs of text"
    if not task.encodes_text_alone:
        return "task.guide needs the words of the pairs"
    choices = {"task": recipe.task, "data.train": recipe.data.train, "data.tokenizer": recipe.data.tokenizer}
    for key, choice in choices.items():
        if not factory_of(choice).__module__.startswith("saccade."):
            return f"{key} is a class outside of Saccade"
    return ""


def no_rows(split: str) -> DataError:
    """The error for a split without usable rows."""
    return DataError(
        f"data.{split}: there are no rows; set data.{split} as docs/config.md shows, and check that its files are not "
        "empty"
    )


class _Repeated:
    """Iterates over a new stream of rows each time."""

    def __init__(self, rows: Callable[[], Iterator[Any]]):
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        return self._rows()
