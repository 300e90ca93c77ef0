"""Encoded pairs as files of plain arrays: written block by block, then memory-mapped."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, overload

import numpy as np

from saccade.data.batches import Collate, Corpus
from saccade.data.codecs import AnyCodecs
from saccade.data.flat_rows import FlatRows
from saccade.data.sources import LineSource, Pair
from saccade.data.sources.rows import line_of
from saccade.data.tokenizers import Tokenizer
from saccade.encoding.tokenizer_pool import TokenizerPool
from saccade.errors import RunError
from saccade.tasks.task import Encoded, PairTask, Side, counts_of, kept_rows

# The type of each file. Rows start at `starts` in `ids`; `lines` are line numbers of the first data file.
SIDE_TYPES = {"ids": "<i4", "lengths": "<i4", "starts": "<i8"}
LINES, LINES_TYPE = "lines", "<i8"
BLOCK_ROWS = 16_384
BLOCK_CHARACTERS = 2_000_000


@dataclass(frozen=True)
class PairBlock:
    """Consecutive pairs: their line numbers, the columns that are tokenized, and the labels, if the task has labels."""

    lines: list[int]
    columns: list[bytes]
    labels: FlatRows | None

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(frozen=True)
class PairEncoder:
    """Cuts pairs into blocks and decides which are kept, as the task does for rows in memory."""

    task: PairTask
    codecs: AnyCodecs
    longest: int

    @cached_property
    def tokenizers(self) -> dict[Side, Tokenizer]:
        return self.task.tokenizers(self.codecs)

    def blocks(self, pairs: Iterable[Pair]) -> Iterator[PairBlock]:
        block: list[Pair] = []
        characters = 0
        for pair in pairs:
            block.append(pair)
            characters += len(pair.source) + len(pair.target)
            if len(block) == BLOCK_ROWS or characters > BLOCK_CHARACTERS:
                yield self._block(block)
                block, characters = [], 0
        if block:
            yield self._block(block)

    def _block(self, pairs: Sequence[Pair]) -> PairBlock:
        columns = ["\n".join([getattr(pair, side) for pair in pairs]).encode() for side in self.tokenizers]
        return PairBlock([line_of(pair) for pair in pairs], columns, self.task.encode_labels(pairs, self.codecs))

    def write(self, blocks: Iterable[tuple[PairBlock, list[FlatRows]]], folder: Path) -> dict[str, Any]:
        """Write the arrays of the kept pairs, and return the number of rows that were left out for each reason."""
        left_out: Counter[str] = Counter()
        with ExitStack() as stack:
            sides = [_SideWriter(folder, side, stack) for side in ("source", "target")]
            lines = stack.enter_context((folder / LINES).open("wb"))
            for block, encoded in blocks:
                sources, targets = encoded if block.labels is None else (*encoded, block.labels)
                reasons = self.task.left_out(sources, targets, self.longest)
                kept = kept_rows(reasons)
                left_out.update(counts_of(reasons))
                for side, rows in zip(sides, (sources, targets), strict=True):
                    side.append(rows.take(kept))
                lines.write(np.array(block.lines, dtype=LINES_TYPE)[kept].tobytes())
        return dict(left_out)


class _SideWriter:
    """Appends the rows of one side to its files."""

    def __init__(self, folder: Path, side: str, stack: ExitStack):
        self._files: dict[str, BinaryIO] = {
            name: stack.enter_context((folder / f"{side}_{name}").open("wb")) for name in SIDE_TYPES
        }
        self._end = 0
        self._write("starts", np.zeros(1))

    def append(self, rows: FlatRows) -> None:
        self._write("ids", rows.values)
        self._write("lengths", rows.lengths)
        self._write("starts", self._end + rows.starts[1:])
        self._end += len(rows.values)

    def _write(self, name: str, values: np.ndarray) -> None:
        self._files[name].write(values.astype(SIDE_TYPES[name]).tobytes())


def encode_blocks(
    blocks: Iterable[PairBlock], encoder: PairEncoder, kind: str, processes: int, folder: Path
) -> dict[str, int]:
    """Encode pairs into the files of a folder, and return the number of rows left out for each reason."""
    with TokenizerPool[PairBlock](kind, [*encoder.tokenizers.values()], processes) as pool:
        return encoder.write(pool.encoded(blocks), folder)


def map_pairs(folder: Path, left_out: Mapping[str, int], collate: Collate, source: LineSource) -> Encoded:
    """The pairs in the files of a folder, memory-mapped. RunError if the arrays do not fit together."""
    sources, targets = _map_side(folder, "source"), _map_side(folder, "target")
    lines = _map(folder / LINES, LINES_TYPE)
    if not len(sources) == len(targets) == len(lines):
        raise RunError(f"{folder}: is damaged: its arrays have different numbers of rows")
    return Encoded(Corpus(sources, targets, collate), LineLocations(source, lines), dict(left_out))


def _map_side(folder: Path, side: str) -> FlatRows:
    values, lengths, starts = (_map(folder / f"{side}_{name}", dtype) for name, dtype in SIDE_TYPES.items())
    if len(starts) != len(lengths) + 1 or starts[0] != 0 or starts[-1] != len(values):
        raise RunError(f"{folder}: is damaged: the arrays of the {side} side do not fit together")
    return FlatRows(values, lengths, starts)


def _map(path: Path, dtype: str) -> np.ndarray:
    try:
        if not path.stat().st_size:
            return np.zeros(0, dtype)  # an empty file cannot be mapped
        return np.asarray(np.memmap(path, dtype, mode="r"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be mapped: {error}") from None


class LineLocations(Sequence[str]):
    """The locations of rows, made from their line numbers when they are needed."""

    def __init__(self, source: LineSource, lines: np.ndarray):
        self._source, self._lines = source, lines

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "LineLocations": ...
    def __getitem__(self, index: int | slice) -> "str | LineLocations":
        if isinstance(index, slice):
            return LineLocations(self._source, self._lines[index])
        return self._source.location(int(self._lines[index]))
