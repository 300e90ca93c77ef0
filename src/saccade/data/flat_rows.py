"""Rows of different lengths in one array: a million sentences need little more memory than their tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np


@dataclass(frozen=True)
class FlatRows:
    """All rows concatenated in `values`, ids [N] or frames [N F]; row i is `values[starts[i] : starts[i + 1]]`. The
    arrays may be memory-mapped files."""

    values: np.ndarray
    lengths: np.ndarray  # [rows]
    starts: np.ndarray  # [rows + 1]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int] | np.ndarray]) -> "FlatRows":
        """Rows of ids, as int32, or of frames [T F], as float32."""
        lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
        if any(isinstance(row, np.ndarray) and row.ndim == 2 for row in rows):
            return cls.split(np.concatenate([np.asarray(row, dtype=np.float32) for row in rows]), lengths)
        ids = chain.from_iterable(rows)
        return cls.split(np.fromiter(ids, dtype=np.int32, count=int(lengths.sum())), lengths)

    @classmethod
    def split(cls, values: np.ndarray, lengths: np.ndarray) -> "FlatRows":
        """Split values into rows of these lengths."""
        return cls(values, lengths, np.concatenate([[0], np.cumsum(lengths)]))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[self.starts[row] : self.starts[row + 1]]

    def take(self, kept: np.ndarray) -> "FlatRows":
        """The rows for which `kept` [rows] is True."""
        return FlatRows.split(self.values[np.repeat(kept, self.lengths)], self.lengths[kept])
