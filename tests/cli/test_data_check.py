"""`saccade data check`, and the progress lines of `saccade train`."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


@pytest.fixture
def bad_text_flags(tmp_path: Path) -> list[str]:
    """Flags that set data.train to text files with two bad lines."""
    (tmp_path / "t.en").write_bytes(b"a b\nb\r\nc \xff\nd\n")
    (tmp_path / "t.de").write_bytes(b"b a\nb\nc\nd\n")
    flags = [f'data.folder="{tmp_path}"', 'data.train={kind="pairs", src="t.en", tgt="t.de"}']
    return [part for flag in flags for part in ("--set", flag)]


def test_data_check_lists_bad_lines_and_fails(call: Call, recipe: Path, bad_text_flags: list[str]):
    result = call("data", "check", recipe, *bad_text_flags)
    assert (result.code, result.err) == (1, "")
    assert "train: 2 pairs, 2 bad rows" in result.out
    assert re.search(r"^t\.en:2: the line ends in CRLF", result.out, re.MULTILINE)
    assert re.search(r"^t\.en:3: byte 0xff", result.out, re.MULTILINE)
    assert "dev: 8 pairs, 0 bad rows" in result.out


def test_data_check_accepts_bad_lines_with_skip_bad(call: Call, recipe: Path, bad_text_flags: list[str]):
    result = call("data", "check", recipe, *bad_text_flags, "--set", "data.skip_bad=true")
    assert result.code == 0
    assert "train: 2 pairs, 2 bad rows" in result.out


def test_data_check_of_valid_data_succeeds(call: Call, recipe: Path):
    result = call("data", "check", recipe, "--json")
    report = json.loads(result.out)
    assert result.code == 0
    assert not report["bad"]
    assert {name: split["pairs"] for name, split in report["splits"].items()} == {"train": 400, "dev": 8, "test": 12}


def test_data_check_names_a_missing_file(call: Call, recipe: Path, tmp_path: Path):
    result = call("data", "check", recipe, "--set", f'data.train={{kind="tsv", file="{tmp_path}/gone.tsv"}}')
    assert result.code == 1
    assert "gone.tsv: no such file" in result.out + result.err
    assert "Traceback" not in result.err


# ── saccade train ─────────────────────────────────────────────────────────────────────────────────


def test_training_on_a_pipe_writes_plain_lines_to_stderr(call: Call, recipe: Path, tmp_path: Path):
    result = call("train", recipe, "--run", tmp_path / "run")
    assert (result.code, result.out) == (0, "")
    assert "\x1b" not in result.err
    assert "\r" not in result.err
    lines = result.err.splitlines()
    values = r"loss \d+\.\d+ · ppl \d+\.\d+ · [\d,]+ source and [\d,]+ target tokens/s · padding \d+%"
    progress = [line for line in lines if line.startswith("step ")]
    assert len(progress) == 3
    for line in progress:
        assert re.fullmatch(rf"step \d+/60 · epoch \d+ · {values} · rate \d\.\d\de-\d\d · \d+:\d\d left", line)
    validations = [number for number, line in enumerate(lines) if line.startswith("── validation at step ")]
    assert len(validations) == 2
    samples = [[line for line in lines[at + 1 : at + 10] if not line.startswith("   →")] for at in validations]
    assert samples[0] == samples[1]  # the same three sentences in each validation
    assert lines[-1] == f"Translate with: saccade translate {tmp_path / 'run'} FILE"
