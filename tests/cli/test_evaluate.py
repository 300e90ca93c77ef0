"""`saccade evaluate`, of two files and of a run."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = Callable[..., Any]


JSON_KEYS = {"bleu", "chrf", "bleu_lowercase", "exact_match", "sentences", "signatures", "interval"}


def test_two_files_are_scored_without_a_run(call: Call, tmp_path: Path):
    (tmp_path / "hyp").write_text("The cat sat on the mat .\nA dog ran over there\n", "utf-8")
    (tmp_path / "ref").write_text("The cat sat on the mat .\nA dog runs over there\n", "utf-8")
    result = call("evaluate", "--hyp", tmp_path / "hyp", "--ref", tmp_path / "ref", "--json")
    scores = json.loads(result.out)
    assert (result.code, result.err) == (0, "")
    assert scores.keys() == JSON_KEYS
    assert (scores["sentences"], scores["exact_match"]) == (2, 50.0)
    for name in ("bleu", "chrf", "bleu_lowercase"):
        assert 0 < scores[name] < 100
        low, high = scores["interval"][name]
        assert low < high
        assert "version:" in scores["signatures"][name]
    assert "case:mixed" in scores["signatures"]["bleu"]
    assert "case:lc" in scores["signatures"]["bleu_lowercase"]


def test_files_of_unequal_length_are_refused(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "two").write_text("a\nb\n", "utf-8")
    (tmp_path / "three").write_text("a\nb\nc\n", "utf-8")
    result = call("evaluate", "--hyp", tmp_path / "two", "--ref", tmp_path / "three")
    assert (result.code, result.out) == (1, "")
    assert f"{tmp_path}/two: has 2 lines, but {tmp_path}/three has 3; both need" in result.err
    result = call("evaluate", run, "--src", tmp_path / "three", "--ref", tmp_path / "two")
    assert (result.code, result.out) == (1, "")
    assert f"{tmp_path}/three: has 3 lines, but {tmp_path}/two has 2; both need" in result.err


def test_empty_files_are_refused(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "empty").touch()
    for command in (["--hyp", tmp_path / "empty"], [run, "--src", tmp_path / "empty"]):
        result = call("evaluate", *command, "--ref", tmp_path / "empty")
        assert (result.code, result.out) == (1, "")
        assert f"{tmp_path / 'empty'}: the file is empty; write one reference per line" in result.err


def test_run_is_evaluated_on_its_test_data(call: Call, run: Path):
    result = call("evaluate", run, "--json", "--beam", "2")
    scores = json.loads(result.out)
    assert result.code == 0
    assert scores.keys() >= JSON_KEYS | {"perplexity", "tokens_per_second"}
    assert scores["sentences"] == 12
    assert 1 < scores["perplexity"] < 12
    assert scores["tokens_per_second"] > 0


def test_run_is_evaluated_on_other_files(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "src").write_text("b a\nc d\nc\n", "utf-8")
    (tmp_path / "ref").write_text(call("translate", run, "--engine", "torch", stdin=b"b a\nc d\nc\n").out, "utf-8")
    scores = json.loads(call("evaluate", run, "--src", tmp_path / "src", "--ref", tmp_path / "ref", "--json").out)
    assert (scores["sentences"], scores["exact_match"]) == (3, 100.0)
    readable = call("evaluate", run, "--src", tmp_path / "src", "--ref", tmp_path / "ref").out
    assert re.search(r"^exact match +100\.00 %$", readable, re.MULTILINE)
    assert re.search(r"^perplexity +\d", readable, re.MULTILINE)


def test_run_without_test_data_is_refused_with_the_options_to_give(call: Call, run: Path, tmp_path: Path):
    shutil.copytree(run, tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    text = re.sub(r"\[data\.test\]\n(.+\n)+", '[data.test]\nkind = "none"\n', config.read_text("utf-8"))
    config.write_text(text, "utf-8")
    result = call("evaluate", tmp_path / "run")
    assert result.code == 1
    assert "data.test: the recipe has no test data; give --src FILE and --ref FILE" in result.err


def test_missing_test_data_of_a_run_is_refused_without_advice_to_change_the_recipe(
    call: Call, run: Path, tmp_path: Path
):
    shutil.copytree(run, tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    pairs = '[data.test]\nkind = "pairs"\nsrc = "no.en"\ntgt = "no.de"\n'
    config.write_text(re.sub(r"\[data\.test\]\n(.+\n)+", pairs, config.read_text("utf-8")), "utf-8")
    result = call("evaluate", tmp_path / "run")
    assert result.code == 1
    assert "no.en: no such file; run this command in the folder in which the run was trained" in result.err


def test_empty_test_data_is_told_from_no_test_data(call: Call, run: Path, tmp_path: Path):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "empty").touch()
    config = tmp_path / "run" / "config.toml"
    pairs = f'[data.test]\nkind = "pairs"\nsrc = "{tmp_path}/empty"\ntgt = "{tmp_path}/empty"\n'
    config.write_text(re.sub(r"\[data\.test\]\n(.+\n)+", pairs, config.read_text("utf-8")), "utf-8")
    stored = json.loads((tmp_path / "run" / "data.json").read_text("utf-8"))
    checksum = hashlib.sha256(b"").hexdigest()
    stored["sha256"] |= {"data.test.src": checksum, "data.test.tgt": checksum}
    (tmp_path / "run" / "data.json").write_text(json.dumps(stored), "utf-8")
    result = call("evaluate", tmp_path / "run")
    assert result.code == 1
    assert "data.test: its files have no usable rows; give --src FILE and --ref FILE, or call" in result.err
