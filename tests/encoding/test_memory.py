"""Encoding a text, ordering an epoch and checking the data take little memory for each row."""

import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from contracts.checks.cached_pairs import small_blocks
from saccade.data import check, findings, length_order
from saccade.data.batches import Corpus, epoch_batches
from saccade.data.codecs import Codecs
from saccade.data.flat_rows import FlatRows
from saccade.data.sources import Pair
from saccade.data.tokenizers import ByteKind, _consumed, _sample
from saccade.encoding.pair_arrays import PairEncoder, encode_blocks
from saccade.tasks.translation import Translation


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_encoding_needs_no_memory_for_each_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch, 200)
    codec = ByteKind().learn([])
    encoder = PairEncoder(Translation(), Codecs(codec, codec), 99)

    def encode(rows: int) -> None:
        folder = tmp_path / str(rows)
        folder.mkdir()
        pairs = (Pair(f"a {n}", f"b {n}", f"t:{n}") for n in range(1, rows + 1))
        encode_blocks(encoder.blocks(pairs), encoder, "bytes", 1, folder)

    encode(400)  # what is loaded at the first call does not count
    assert peak_bytes(lambda: encode(8_000)) - peak_bytes(lambda: encode(2_000)) < 4 * 6_000


def test_order_of_an_epoch_takes_16_bytes_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(length_order, "CHUNK_ROWS", 1000)
    rows = 200_000
    lengths = np.random.default_rng(0).integers(1, 40, rows, dtype=np.int32)
    side = FlatRows(np.zeros(1, np.int32), lengths, np.zeros(1, np.int64))
    corpus = Corpus(side, side)
    assert (
        peak_bytes(lambda: epoch_batches(corpus, 4096, 1, 0)) < (16 + 2) * rows
    )  # the list of batches takes 1 of the 2


class NumberedPairs:
    """A source of this many different pairs."""

    def __init__(self, rows: int):
        self._rows = rows

    def files(self) -> dict[str, Path]:
        return {}

    def rows(self) -> Iterator[Pair]:
        return (Pair(f"source text {n}", "a target text", f"t:{n}") for n in range(1, self._rows + 1))


def test_report_of_a_data_check_takes_11_bytes_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_PAIRS_COMPARED", 1000)
    monkeypatch.setattr(findings, "_HASHES_COMPARED", 1000)
    small, large = (check._read(NumberedPairs(rows), 256) for rows in (20_000, 60_000))
    check._report(small, None)  # what is loaded at the first call does not count
    assert peak_bytes(lambda: check._report(large, None)) - peak_bytes(lambda: check._report(small, None)) < 11 * 40_000


# ── the sample from which sentencepiece learns ────────────────────────────────────────────────────


def texts(count: int) -> Iterator[str]:
    return map(str, range(count))


def test_sample_of_few_texts_is_all_of_them_in_order() -> None:
    for count in (0, 9, 10):
        assert [*_consumed(_sample(texts(count), 10))] == [*texts(count)]


def test_sample_of_many_texts_is_always_the_same_and_even() -> None:
    assert _sample(texts(1000), 10) == _sample(texts(1000), 10)
    tenths = Counter(int(text) // 1000 for text in _sample(texts(10_000), 1000))
    assert len({*_sample(texts(10_000), 1000)}) == 1000
    assert all(60 < tenths[tenth] < 150 for tenth in range(10))
