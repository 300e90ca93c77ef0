"""Sorting rows by length and cutting them into batches, for many millions of rows: vectorized, with 16 bytes of
memory per row."""

from collections.abc import Callable

import numpy as np

CHUNK_ROWS = 1 << 18  # rows whose sort keys are computed at once
MAX_SORT_KEY = 2**63 - 1


def shuffled_rows(count: int, random: np.random.Generator) -> np.ndarray:
    """`random.permutation(count)`, but of 4 bytes a row where that is enough."""
    order = np.arange(count, dtype=np.int32 if count <= np.iinfo(np.int32).max else np.int64)
    random.shuffle(order)
    return order


def sorted_by_length(order: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Sort the row numbers `order` by the length `first` and then `second` of each row; of rows with equal lengths, the
    order stays. Equal to `order[np.lexsort((second[order], first[order]))]`.

    One sort of the integers (first · width + second) · rows + position is several times as fast as a lexsort.
    """
    count = len(order)
    if not count:
        return order
    width = int(second.max()) + 1
    if (int(first.max()) + 1) * width * count > MAX_SORT_KEY:
        return order[np.lexsort((second[order], first[order]))]
    keys = np.empty(count, dtype=np.int64)
    for start in range(0, count, CHUNK_ROWS):
        rows = order[start : start + CHUNK_ROWS]
        lengths = first[rows].astype(np.int64) * width + second[rows]
        keys[start : start + CHUNK_ROWS] = lengths * count + np.arange(start, start + len(rows))
    keys.sort()
    result = np.empty_like(order)
    for start in range(0, count, CHUNK_ROWS):
        result[start : start + CHUNK_ROWS] = order[keys[start : start + CHUNK_ROWS] % count]
    return result


def cut_by_tokens(order: np.ndarray, lengths_of: Callable[[np.ndarray], np.ndarray], tokens: int) -> list[np.ndarray]:
    """Cut sorted rows into batches, each with as many rows as fit: rows × longest row ≤ `tokens`, or a single row.
    `lengths_of` gives the lengths of some rows."""
    batches, first = [], 0
    while first < len(order):
        size = _batch_size(order[first:], lengths_of, tokens)
        batches.append(order[first : first + size])
        first += size
    return batches


def _batch_size(order: np.ndarray, lengths_of: Callable[[np.ndarray], np.ndarray], tokens: int) -> int:
    """The number of rows in the first batch of `order`."""
    window = (
        tokens // max(1, int(lengths_of(order[:1])[0])) + 1
    )  # enough, because no batch is narrower than its first row
    while True:
        lengths = lengths_of(order[:window])
        padded = np.maximum.accumulate(lengths) * np.arange(1, len(lengths) + 1)
        size = int(np.searchsorted(padded, tokens, side="right"))
        if size < len(lengths) or window >= len(order):
            return max(1, size)
        window *= 2  # only rows of length 0 need more
