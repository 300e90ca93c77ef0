"""`saccade align`: alignments from attention, the search for settings, scores, the statistical aligner, and errors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from saccade.data.links import GradedLinks, parse

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


def test_output_has_one_line_per_sentence_pair(call: Call, run: Path, text: tuple[Path, Path]) -> None:
    src, tgt = text
    result = call("align", run, "--src", src, "--tgt", tgt)
    assert result.code == 0
    assert [linked_words(line) for line in result.out.split("\n")] == [{0, 1, 2}, {0}, set(), {0, 1, 2}, set()]


def test_alignments_of_two_directions_are_symmetrized(
    call: Call, run: Path, text: tuple[Path, Path], tmp_path: Path
) -> None:
    src, tgt = text
    out = tmp_path / "links"
    command = ("align", run, "--src", src, "--tgt", tgt, "--back", run, "-o", out)
    links = {}
    for method in ("intersection", "union", "grow-diag", "grow-diag-final-and"):
        assert call(*command, "--symmetrize", method).code == 0
        links[method] = [parse(line, method).sure for line in out.read_text("utf-8").splitlines()]
    for intersection, union, grow_diag, grow_diag_final_and in zip(*links.values(), strict=True):
        assert intersection <= grow_diag <= grow_diag_final_and <= union
    assert links["intersection"] != links["union"]


def test_layer_head_and_step_options_change_the_alignment(call: Call, run: Path, text: tuple[Path, Path]) -> None:
    src, tgt = text
    command = ("align", run, "--src", src, "--tgt", tgt)
    outs = {
        flags: call(*command, *flags).out
        for flags in (("--head", "0"), ("--head", "1"), ("--layer", "0", "--head", "0", "1", "--step", "output"))
    }
    assert len(set(outs.values())) > 1
    assert "heads 0 to 1" in call(*command, "--head", "2").err
    assert "--layer 1: the model has cross-attention layers 0 to 0" in call(*command, "--layer", "1").err


def test_search_stores_the_best_settings_in_the_run(
    call: Call, run: Path, text: tuple[Path, Path], tmp_path: Path
) -> None:
    src, tgt = text
    gold = tmp_path / "gold"
    expected = call("align", run, "--src", src, "--tgt", tgt, "--head", "1", "--step", "output", "--end", "null").out
    gold.write_text(expected, "utf-8")
    result = call("align", "search", run, "--src", src, "--tgt", tgt, "--gold", gold, "--base", "0", "--json")
    assert result.code == 0, result.err
    best = json.loads(result.out)[0]
    assert best["aer"] == pytest.approx(0)
    stored = json.loads((run / "alignment.json").read_text("utf-8"))
    assert {key: stored[key] for key in ("heads", "step", "end")} == {
        key: best[key] for key in ("heads", "step", "end")
    }
    try:
        assert call("align", run, "--src", src, "--tgt", tgt).out == expected, "the stored settings must be used"
        (run / "alignment.json").write_text('{"heads": 3}', "utf-8")
        result = call("align", run, "--src", src, "--tgt", tgt)
        assert (result.code, result.err.count("\n")) == (1, 1)
        assert (
            "alignment.json: not alignment settings: expected heads, step and end; run `saccade align search` again"
            in result.err
        )
    finally:
        (run / "alignment.json").unlink()


def test_translate_writes_alignments(call: Call, run: Path, tmp_path: Path) -> None:
    links = tmp_path / "links"
    result = call("translate", run, "--alignments", links, stdin=b"d a c\n\nb\n")
    assert result.code == 0, result.err
    outputs = result.out.split("\n")[:-1]
    lines = links.read_text("utf-8").split("\n")[:-1]
    assert len(outputs) == len(lines) == 3
    assert [linked_words(line) for line in lines] == [{*range(len(output.split()))} for output in outputs]
    result = call("translate", run, "--alignments", links, "--json", stdin=b"d a c\n")
    assert json.loads(result.out)["alignment"] == lines[0]


@pytest.fixture
def score_command(tmp_path: Path) -> tuple[object, ...]:
    """`saccade align score` for gold links that are counted from 1, and system links that are counted from 0."""
    (tmp_path / "gold").write_text("1-1 2p2\n3-3\n", "utf-8")
    (tmp_path / "system").write_text("0-0 1-1\n1-1\n", "utf-8")
    return "align", "score", "--gold", tmp_path / "gold", "--system", tmp_path / "system"


def test_score_refuses_links_counted_from_1_unless_gold_base_is_1(
    call: Call, score_command: tuple[object, ...]
) -> None:
    result = call(*score_command)
    assert result.code == 1
    assert "gold: no link has a 0" in result.err
    assert "base" in result.err
    assert call(*score_command, "--gold-base", "1").code == 0


def test_score_prints_alignment_error_rate_precision_and_recall(call: Call, score_command: tuple[object, ...]) -> None:
    result = call(*score_command, "--gold-base", "1", "--json")
    scores = json.loads(result.out)
    assert {"aer", "precision", "recall", "f1"} <= scores.keys()
    assert scores["precision"] == pytest.approx(200 / 3)
    assert scores["recall"] == pytest.approx(50)
    assert scores["aer"] == pytest.approx(100 * (1 - 3 / 5))
    assert call(*score_command, "--gold-base", "1").out.startswith(
        "AER 40.00  precision 66.67  recall 50.00  F1 57.14\n"
    )


def test_statistical_alignment_links_words(call: Call, tmp_path: Path) -> None:
    pairs = [("The house", "la maison"), ("the blue house", "la maison bleue"), ("the flower", "la fleur")] * 5
    pairs += [
        ("the potato", "la pomme de terre")
    ] * 5  # "potato" has four words in French, so the two directions differ
    for side, name in enumerate(("src", "tgt")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8")
    result = call("align", "statistical", "--src", tmp_path / "src", "--tgt", tmp_path / "tgt")
    assert result.code == 0, result.err
    first, second, third = (parse(line, "out").sure for line in result.out.split("\n")[:3])
    assert first == third == {(0, 0), (1, 1)}
    assert {(0, 0), (1, 2)} <= second  # "blue" and "bleue" have different positions
    alignments: dict[str, list[GradedLinks]] = {}
    for method in ("forward", "backward", "graded"):
        result = call(
            "align", "statistical", "--src", tmp_path / "src", "--tgt", tmp_path / "tgt", "--symmetrize", method
        )
        assert result.out.count("\n") == len(pairs)
        alignments[method] = [parse(line, "out") for line in result.out.split("\n")]
    for forward, backward, graded in zip(*alignments.values(), strict=True):
        assert graded.sure == forward.sure & backward.sure
        assert graded.possible == forward.sure | backward.sure
    assert any(graded.sure < graded.possible for graded in alignments["graded"])


@pytest.mark.parametrize("symmetrize", ["forward", "backward", "graded", "union"])
def test_statistical_alignment_of_empty_files_writes_nothing(symmetrize: str, tmp_path: Path, call: Call) -> None:
    (tmp_path / "none").write_text("", "utf-8")
    files = ("--src", tmp_path / "none", "--tgt", tmp_path / "none")
    result = call("align", "statistical", *files, "--symmetrize", symmetrize)
    assert (result.code, result.out) == (0, "")


def test_mismatched_files_give_a_one_line_error(call: Call, run: Path, text: tuple[Path, Path], tmp_path: Path) -> None:
    src, _ = text
    short = tmp_path / "short"
    short.write_text("a\n", "utf-8")
    result = call("align", run, "--src", src, "--tgt", short)
    expected = f"saccade: {src}: has 4 lines, but {short} has 1; both need one line for each sentence pair"
    assert (result.code, result.err.strip()) == (1, expected)


def test_invalid_link_and_link_out_of_range_are_refused_with_their_line(
    call: Call, run: Path, text: tuple[Path, Path], tmp_path: Path
) -> None:
    src, tgt = text
    short = tmp_path / "short"
    short.write_text("a\n", "utf-8")
    result = call("align", "score", "--gold", short, "--system", short)
    assert "short:1: 'a' is not a link" in result.err
    (tmp_path / "gold").write_text("0-0\n0-9\n\n0-0\n", "utf-8")
    result = call("align", "search", run, "--src", src, "--tgt", tgt, "--gold", tmp_path / "gold")
    assert (
        "gold:2: the link 0-9 is out of range: the pair has 1 source and 1 target words, counted from 0; correct"
        in result.err
    )


def test_translations_and_alignments_cannot_both_go_to_stdout(call: Call, run: Path) -> None:
    result = call("translate", run, "--alignments", "-", "-o", "-", stdin=b"a\n")
    assert result.code == 2
