"""The pairs source with word alignments in a third file."""

from pathlib import Path

import numpy as np
import pytest

from saccade.data.batches import Corpus
from saccade.data.links import GradedLinks
from saccade.data.sources import BadRow, Pair, load_rows
from saccade.data.sources.pairs import Pairs
from saccade.errors import DataError


def linked(folder: Path, links: str, src: str = "a b\nc\n", tgt: str = "x\ny z\n") -> Pairs:
    for name, text in (("src", src), ("tgt", tgt), ("links", links)):
        (folder / name).write_text(text, "utf-8")
    return Pairs(folder, src="src", tgt="tgt", links="links")


def test_pairs_have_their_links(tmp_path: Path) -> None:
    source = linked(tmp_path, "0-0 1p0\n\n")
    assert [*source.rows()] == [
        Pair("a b", "x", "src:1", GradedLinks(frozenset({(0, 0)}), frozenset({(0, 0), (1, 0)}))),
        Pair("c", "y z", "src:2", GradedLinks(frozenset(), frozenset())),
    ]
    assert [*source.files()] == ["src", "tgt", "links"]


@pytest.mark.parametrize(
    ("links", "reason"),
    [
        (
            "0-0\n0-2\n",
            "links:2: the link 0-2 is out of range: the pair has 1 source and 2 target words, counted from 0",
        ),
        ("0-0\n0=1\n", "links:2: '0=1' is not a link; write source-target"),
        ("0-0\n", "src:2: has no counterpart: links has 1 line but src has 2"),
        ("0-0\n0-0\n0-0\n0-0\n", "links:3: has no counterpart: src has 2 lines but links has 4"),
    ],
)
def test_bad_links_are_reported_with_their_line(tmp_path: Path, links: str, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        load_rows(linked(tmp_path, links), skip_bad=False)
    assert reason in str(caught.value)


def test_bad_pair_is_one_bad_row(tmp_path: Path) -> None:
    source = linked(tmp_path, "0-0\n0-0\n")
    (tmp_path / "src").write_bytes(b"\xff\nc\n")
    rows = [*source.rows()]
    assert isinstance(rows[0], BadRow)
    assert rows[1] == Pair("c", "y z", "src:2", GradedLinks(frozenset({(0, 0)}), frozenset({(0, 0)})))


def test_links_of_a_target_word_become_weights_that_sum_to_their_highest_confidence() -> None:
    two_links = np.array([[0, 1, 1], [1, 1, 1]])  # output 1 with source positions 0 and 1
    unsure = np.array([[0, 0, 1], [2, 0, 0.5], [1, 1, 0.5]])
    links = [two_links, unsure, np.zeros((0, 3))]
    batch = Corpus([[5, 6, 7], [5, 6, 7], [5]], [[8, 9], [8, 9], [8]], links=links).batch([0, 1, 2])
    assert batch.links is not None
    assert batch.links.shape == (3, 3, 4)  # both with their end symbols
    assert batch.links[0].tolist() == [[0, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0, 0]]
    weights = [[2 / 3, 0, 1 / 3, 0], [0, 0.5, 0, 0], [0, 0, 0, 0]]  # sum to the highest confidence: 1, 0.5
    assert batch.links[1].tolist() == [pytest.approx(row) for row in weights]
    assert not batch.links[2].any()
    assert Corpus([[5]], [[8]]).batch([0]).links is None
