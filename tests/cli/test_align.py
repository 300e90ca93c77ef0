"""`saccade align`: links out, scores, searches, counting, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from saccade.data.links import Gold, parse

Call = Callable[..., Any]
SOURCES = ["d a c", "b", "", "c  a b"]
TARGETS = ["a c d", "b", "a", "a b c"]


@pytest.fixture
def text(tmp_path: Path) -> tuple[Path, Path]:
    for name, lines in (("src", SOURCES), ("tgt", TARGETS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return tmp_path / "src", tmp_path / "tgt"


def linked_words(line: str) -> set[int]:
    return {target for _, target in parse(line, "out").sure}


def test_a_line_of_links_for_every_pair(call: Call, run: Path, text: tuple[Path, Path]) -> None:
    src, tgt = text
    said = call("align", run, "--src", src, "--tgt", tgt)
    assert said.code == 0
    assert [linked_words(line) for line in said.out.split("\n")] == [{0, 1, 2}, {0}, set(), {0, 1, 2}, set()]


def test_two_directions_are_made_one(call: Call, run: Path, text: tuple[Path, Path], tmp_path: Path) -> None:
    src, tgt = text
    out = tmp_path / "links"
    command = ("align", run, "--src", src, "--tgt", tgt, "--back", run, "-o", out)
    found = {}
    for rule in ("intersection", "union", "grow-diag", "grow-diag-final-and"):
        assert call(*command, "--symmetrise", rule).code == 0
        found[rule] = [parse(line, rule).sure for line in out.read_text("utf-8").splitlines()]
    for each in zip(*found.values(), strict=True):
        assert each[0] <= each[2] <= each[3] <= each[1]
    assert found["intersection"] != found["union"]


def test_layers_heads_and_steps_may_be_chosen(call: Call, run: Path, text: tuple[Path, Path]) -> None:
    src, tgt = text
    command = ("align", run, "--src", src, "--tgt", tgt)
    outs = {
        flags: call(*command, *flags).out
        for flags in (("--head", "0"), ("--head", "1"), ("--layer", "0", "--head", "0", "1", "--step", "output"))
    }
    assert len(set(outs.values())) > 1
    assert "heads 0 to 1" in call(*command, "--head", "2").err
    assert "are 0 to 0" in call(*command, "--layer", "1").err


def test_the_search_keeps_what_it_found(call: Call, run: Path, text: tuple[Path, Path], tmp_path: Path) -> None:
    src, tgt = text
    gold = tmp_path / "gold"
    wanted = call("align", run, "--src", src, "--tgt", tgt, "--head", "1", "--step", "output", "--end", "null").out
    gold.write_text(wanted, "utf-8")
    said = call("align", "search", run, "--src", src, "--tgt", tgt, "--gold", gold, "--base", "0", "--json")
    assert said.code == 0, said.err
    best = json.loads(said.out)[0]
    assert best["aer"] == pytest.approx(0)
    stored = json.loads((run / "alignment.json").read_text("utf-8"))
    assert {key: stored[key] for key in ("heads", "step", "end")} == {
        key: best[key] for key in ("heads", "step", "end")
    }
    try:
        assert call("align", run, "--src", src, "--tgt", tgt).out == wanted, "what was found is used from now on"
        (run / "alignment.json").write_text('{"heads": 3}', "utf-8")
        said = call("align", run, "--src", src, "--tgt", tgt)
        assert (said.code, said.err.count("\n")) == (1, 1)
        assert "alignment.json: is no reading of alignments; search anew" in said.err
    finally:
        (run / "alignment.json").unlink()


def test_translations_come_with_links(call: Call, run: Path, tmp_path: Path) -> None:
    links = tmp_path / "links"
    said = call("translate", run, "--alignments", links, stdin=b"d a c\n\nb\n")
    assert said.code == 0, said.err
    outputs = said.out.split("\n")[:-1]
    lines = links.read_text("utf-8").split("\n")[:-1]
    assert len(outputs) == len(lines) == 3
    assert [linked_words(line) for line in lines] == [{*range(len(output.split()))} for output in outputs]
    said = call("translate", run, "--alignments", links, "--json", stdin=b"d a c\n")
    assert json.loads(said.out)["alignment"] == lines[0]


def test_scores_are_told(call: Call, tmp_path: Path) -> None:
    (tmp_path / "gold").write_text("1-1 2p2\n3-3\n", "utf-8")
    (tmp_path / "system").write_text("0-0 1-1\n1-1\n", "utf-8")
    command = ("align", "score", "--gold", tmp_path / "gold", "--system", tmp_path / "system")
    said = call(*command)
    assert said.code == 1
    assert "gold: no link has a 0" in said.err
    assert "base" in said.err
    said = call(*command, "--gold-base", "1", "--json")
    figures = json.loads(said.out)
    assert {"aer", "precision", "recall", "f1"} <= figures.keys()
    assert figures["precision"] == pytest.approx(200 / 3)
    assert figures["recall"] == pytest.approx(50)
    assert figures["aer"] == pytest.approx(100 * (1 - 3 / 5))
    assert call(*command, "--gold-base", "1").out.startswith("AER 40.00  precision 66.67  recall 50.00  F1 57.14\n")


def test_words_are_linked_by_counting(call: Call, tmp_path: Path) -> None:
    pairs = [("The house", "la maison"), ("the blue house", "la maison bleue"), ("the flower", "la fleur")] * 5
    pairs += [("the potato", "la pomme de terre")] * 5  # in one direction many words are of one, in the other one is
    for side, name in enumerate(("src", "tgt")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8")
    said = call("align", "count", "--src", tmp_path / "src", "--tgt", tmp_path / "tgt")
    assert said.code == 0, said.err
    first, second, third = (parse(line, "out").sure for line in said.out.split("\n")[:3])
    assert first == third == {(0, 0), (1, 1)}
    assert {(0, 0), (1, 2)} <= second  # "blue" is "bleue", though it stands elsewhere
    found: dict[str, list[Gold]] = {}
    for one in ("forward", "backward", "graded"):
        said = call("align", "count", "--src", tmp_path / "src", "--tgt", tmp_path / "tgt", "--symmetrise", one)
        assert said.out.count("\n") == len(pairs)
        found[one] = [parse(line, "out") for line in said.out.split("\n")]
    for forward, backward, graded in zip(*found.values(), strict=True):
        assert graded.sure == forward.sure & backward.sure
        assert graded.possible == forward.sure | backward.sure
    assert any(graded.sure < graded.possible for graded in found["graded"])


@pytest.mark.parametrize("symmetrise", ["forward", "backward", "graded", "union"])
def test_of_nothing_there_are_no_links(symmetrise: str, tmp_path: Path, call: Call) -> None:
    (tmp_path / "none").write_text("", "utf-8")
    files = ("--src", tmp_path / "none", "--tgt", tmp_path / "none")
    said = call("align", "count", *files, "--symmetrise", symmetrise)
    assert (said.code, said.out) == (0, "")


def test_what_does_not_fit_is_said_in_a_line(call: Call, run: Path, text: tuple[Path, Path], tmp_path: Path) -> None:
    src, tgt = text
    short = tmp_path / "short"
    short.write_text("a\n", "utf-8")
    said = call("align", run, "--src", src, "--tgt", short)
    assert (said.code, said.err.strip()) == (1, f"saccade: {src} has 4 lines but {short} has 1")
    said = call("align", "score", "--gold", short, "--system", short)
    assert "short:1: 'a' is not a link" in said.err
    (tmp_path / "gold").write_text("0-0\n0-9\n\n0-0\n", "utf-8")
    said = call("align", "search", run, "--src", src, "--tgt", tgt, "--gold", tmp_path / "gold")
    assert "gold:2: 0-9 links a word that is not there: there are 1 and 1" in said.err
    said = call("translate", run, "--alignments", "-", "-o", "-", stdin=b"a\n")
    assert said.code == 2
