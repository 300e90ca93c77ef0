"""`saccade view`: sentences, files, and forced translations."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


def page_sentences(path: Path) -> list[dict[str, Any]]:
    match = re.search(r'id="data">(.*?)</script>', path.read_text("utf-8"))
    assert match
    return json.loads(match.group(1))["sentences"]


def test_page_has_one_sentence_per_line_of_a_file(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "lines.txt").write_bytes("c b a\n\nb\u2028a\n".encode())
    result = call("view", run, "--file", tmp_path / "lines.txt", "-o", tmp_path / "page.html")
    assert result.code == 0
    assert result.out == call("translate", run, tmp_path / "lines.txt").out
    assert [sentence["source"] for sentence in page_sentences(tmp_path / "page.html")] == ["c b a", "", "b\u2028a"]
    assert result.err.splitlines() == [f"wrote {tmp_path / 'page.html'}: open it in a browser"]  # no heat maps


def test_targets_file_forces_the_translations(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "targets.txt").write_text("h h\nb\n", "utf-8")
    result = call(
        "view", run, "--file", "-", "--targets", tmp_path / "targets.txt", "-o", tmp_path / "page.html",
        stdin=b"c b a\na b\n",
    )  # fmt: skip
    assert (result.code, result.out) == (0, "h h\nb\n")
    first, _ = page_sentences(tmp_path / "page.html")
    cross = next(stored for stored in first["levels"]["pieces"] if stored["kind"] == "cross")
    assert (cross["rows"]["labels"], cross["columns"]["labels"]) == (["h", "h", "</s>"], ["c", "b", "a", "</s>"])


def test_the_forced_translation_may_be_empty(call: Call, run: Path, tmp_path: Path):
    result = call("view", run, "c b a", "--target", "", "-o", tmp_path / "page.html")
    assert (result.code, result.out) == (0, "\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--file", "-"], "view needs a sentence or a file"),
        (["--file", "-", "--target", "x"], "for the lines of a --file use --targets FILE"),
        (["a", "--targets", "-"], "--targets needs --file"),
        (["--file", "-", "--targets", "-"], "cannot both be stdin"),
        (["--file", "no/such"], "no/such: no such file"),
        (["--file", "-", "--targets", "no/such"], "no/such: no such file"),
    ],
)
def test_invalid_combinations_of_options_are_rejected(call: Call, run: Path, arguments: list[str], message: str):
    result = call("view", run, *arguments)
    assert result.code == 2
    assert message in result.err


def test_files_of_different_lengths_and_empty_files_are_rejected(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "one").write_text("a\n", "utf-8")
    (tmp_path / "none").write_text("", "utf-8")
    result = call(
        "view", run, "--file", "-", "--targets", tmp_path / "one", "-o", tmp_path / "page.html", stdin=b"a\nb\n"
    )
    assert (result.code, (tmp_path / "page.html").exists()) == (1, False)
    assert f"{tmp_path / 'one'}: has 1 lines, but - has 2" in result.err
    result = call("view", run, "--file", tmp_path / "none")
    assert result.code == 1
    assert f"{tmp_path / 'none'}: the file is empty" in result.err


def test_a_model_without_attention_is_an_error(call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from saccade.api import Run
    from saccade.view.maps import AttentionMaps

    monkeypatch.setattr(Run, "attention", lambda *_, **__: AttentionMaps("a", "b", {}))
    result = call("view", run, "a", "-o", tmp_path / "page.html")
    assert (result.code, result.out, (tmp_path / "page.html").exists()) == (1, "", False)
    assert f"{run}: the model has no attention to show" in result.err
