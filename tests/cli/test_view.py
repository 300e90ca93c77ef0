"""`saccade view`: sentences, a file, or translations of the user's own."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


def shown(path: Path) -> list[dict[str, Any]]:
    found = re.search(r'id="data">(.*?)</script>', path.read_text("utf-8"))
    assert found
    return json.loads(found.group(1))["sentences"]


def test_a_file_is_viewed_line_by_line(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "lines.txt").write_bytes("c b a\n\nb\u2028a\n".encode())
    said = call("view", run, "--file", tmp_path / "lines.txt", "-o", tmp_path / "page.html")
    assert said.code == 0
    assert said.out == call("translate", run, tmp_path / "lines.txt").out
    assert [each["source"] for each in shown(tmp_path / "page.html")] == ["c b a", "", "b\u2028a"]
    assert said.err.splitlines() == [f"wrote {tmp_path / 'page.html'}: open it in a browser"]  # and no maps


def test_a_file_with_translations_of_its_own(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "targets.txt").write_text("h h\nb\n", "utf-8")
    said = call(
        "view", run, "--file", "-", "--targets", tmp_path / "targets.txt", "-o", tmp_path / "page.html",
        stdin=b"c b a\na b\n",
    )  # fmt: skip
    assert (said.code, said.out) == (0, "h h\nb\n")
    first, _ = shown(tmp_path / "page.html")
    cross = next(each for each in first["levels"]["pieces"] if each["kind"] == "cross")
    assert (cross["rows"]["labels"], cross["columns"]["labels"]) == (["h", "h", "</s>"], ["c", "b", "a", "</s>"])


def test_an_empty_translation_can_be_forced(call: Call, run: Path, tmp_path: Path):
    said = call("view", run, "c b a", "--target", "", "-o", tmp_path / "page.html")
    assert (said.code, said.out) == (0, "\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["a", "--file", "-"], "view needs a sentence or a file"),
        (["--file", "-", "--target", "x"], "for the lines of a --file give --targets FILE"),
        (["a", "--targets", "-"], "--targets goes with --file"),
        (["--file", "-", "--targets", "-"], "cannot both be stdin"),
        (["--file", "no/such"], "no/such: there is no such file"),
        (["--file", "-", "--targets", "no/such"], "no/such: there is no such file"),
    ],
)
def test_what_does_not_go_together_is_refused(call: Call, run: Path, arguments: list[str], complaint: str):
    said = call("view", run, *arguments)
    assert said.code == 2
    assert complaint in said.err


def test_files_that_do_not_match_are_refused(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "one").write_text("a\n", "utf-8")
    (tmp_path / "none").write_text("", "utf-8")
    said = call(
        "view", run, "--file", "-", "--targets", tmp_path / "one", "-o", tmp_path / "page.html", stdin=b"a\nb\n"
    )
    assert (said.code, (tmp_path / "page.html").exists()) == (1, False)
    assert f"{tmp_path / 'one'}: has 1 lines, but - has 2" in said.err
    said = call("view", run, "--file", tmp_path / "none")
    assert said.code == 1
    assert "has no lines to look at" in said.err


def test_a_model_without_attention_says_so(call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from saccade.api import Run
    from saccade.view.maps import AttentionMaps

    monkeypatch.setattr(Run, "attention", lambda *_, **__: AttentionMaps("a", "b", {}))
    said = call("view", run, "a", "-o", tmp_path / "page.html")
    assert (said.code, said.out, (tmp_path / "page.html").exists()) == (1, "", False)
    assert f"{run}: the model has no attention to look at" in said.err
