"""The offline page: one file that loads nothing, and in which text from the data is never executed."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.view.document import bundle
from saccade.view.maps import AttentionMap, AttentionMaps, Axis
from saccade.view.page import write_page
from view.examples import HOSTILE, example


def embedded(path: Path) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    assert match
    return json.loads(match.group(1))


def test_page_contains_all_weights_and_texts(tmp_path: Path) -> None:
    maps = example(HOSTILE)
    data = embedded(maps.save(tmp_path / "page.html"))
    (sentence,) = data["sentences"]
    assert (sentence["source"], sentence["target"]) == (maps.source, maps.target)
    for level, expected in (("pieces", maps), ("words", maps.words())):
        assert [stored_map["name"] for stored_map in sentence["levels"][level]] == list(expected)
        for stored_map in sentence["levels"][level]:
            original = expected[stored_map["name"]]
            assert stored_map["kind"] == original.kind
            assert tuple(stored_map["rows"]["labels"]) == original.rows.labels
            assert tuple(stored_map["columns"]["words"]) == original.columns.words
            stored = np.array(stored_map["weights"]) / data["scale"]
            np.testing.assert_allclose(stored, original.weights, atol=0.5 / data["scale"] + 1e-9)


def test_page_loads_nothing_from_the_network(tmp_path: Path) -> None:
    text = example().save(tmp_path / "page.html").read_text("utf-8")
    text = text.replace("http://www.w3.org/2000/svg", "")  # a namespace, which is not loaded
    assert list(tmp_path.iterdir()) == [tmp_path / "page.html"]
    assert not re.search(r"https?:|//[a-z]|\b(src|href)=|@import|url\(|<link|fetch\(|XMLHttp|import\(", text)


def test_policy_allows_only_the_embedded_script_and_style(tmp_path: Path) -> None:
    text = example().save(tmp_path / "page.html").read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert policy.group(1).startswith("default-src 'none';")
    assert "unsafe" not in policy.group(1)
    for tag, opening in (("script", '<script type="module">'), ("style", "<style>")):
        (body,) = re.findall(f"{opening}(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy.group(1)


def test_markup_in_sentences_is_escaped(tmp_path: Path) -> None:
    text = write_page([example(HOSTILE)], tmp_path / "page.html", HOSTILE).read_text("utf-8")
    assert "<img" not in text
    assert "<!--" not in text
    assert text.count("</script>") == 2
    assert text.count("<script") == 2
    data = text.split('id="data">')[1].split("</script>")[0]
    assert not set(data) & set("<>&\u2028\u2029")


def test_lone_surrogates_do_not_prevent_writing_the_page(tmp_path: Path) -> None:
    path = write_page([example("\ud800")], tmp_path / "page.html", "\ud800 title")
    assert "? title" in path.read_text("utf-8")
    assert embedded(path)["sentences"][0]["source"] == "Hal\ud800 Welt"


def test_nan_and_infinite_weights_are_stored_as_null(tmp_path: Path) -> None:
    axis = Axis(("a", "b"), (0, 1))
    broken = AttentionMap(np.array([[[np.nan, np.inf], [0.25, 0.75]]], np.float32), axis, axis, "encoder")
    data = embedded(AttentionMaps("a b", "", {"encoder.layers.0.self": broken}).save(tmp_path / "page.html"))
    (level,) = data["sentences"][0]["levels"].values()  # no word has several pieces, so there is one level
    assert level[0]["weights"] == [[[None, None], [2500, 7500]]]


def test_a_failed_write_keeps_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "page.html"
    assert example().save(str(path)) == path
    before = path.read_bytes()

    def refuse(*_: object) -> None:
        raise OSError("disk is gone")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk is gone"):
        example("other").save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


WEB = Path(__file__).parents[2] / "src/saccade/view/web"


@pytest.mark.parametrize("entry", ["page.js", "report.js"])
def test_names_in_a_bundle_are_unique(entry: str) -> None:
    script = bundle(entry)
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    declared = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", script, re.MULTILINE)
    assert len(declared) == len(set(declared)) > 50


def test_bundle_contains_each_module_after_its_imports() -> None:
    script = bundle("page.js")
    positions = [script.index(f"function {name}(") for name in ("make", "weightTable", "heatMap", "attentionView")]
    assert positions == sorted(positions)
    assert script.index("class Viewer") < script.index("attentionView(document")


def test_modules_are_short_and_imports_do_not_rename() -> None:
    for path in WEB.glob("*.js"):
        text = path.read_text("utf-8")
        assert len(text.splitlines()) < 250, path
        assert max(map(len, text.splitlines())) <= 120, path
        for line in re.findall(r"^import .*?;$", text, re.MULTILINE | re.DOTALL):
            assert " as " not in line, path
            assert re.search(r'from "\./\w+\.js";$', line), path


def test_scripts_never_insert_html() -> None:
    for path in WEB.glob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(", path.read_text("utf-8")
        )
