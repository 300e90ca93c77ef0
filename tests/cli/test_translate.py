"""`saccade translate`: one output line per input line, options, prefixes, sampling, and errors."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


INPUTS = {
    "plain": b"b a c\nc b\n",
    "no newline at the end": b"b a\nc b",
    "empty lines": b"\nb a\n\n\nc\n\n",
    "only empty lines": b"\n\n\n",
    "no input": b"",
    "only spaces": b"   \nb a\n\t\n",
    "Unicode line separators": "b\u2028a\nc\u0085b\nd\x0be\x0cf\n".encode(),
    "a carriage return without a newline": b"b\ra\nc\n",
    "CRLF": b"b a\r\nc b\r\n\r\n",
    "unknown words": "x y z\n\U0001f642 \u05e9\u05dc\u05d5\u05dd\n".encode(),
    "a NUL byte": b"b \0 a\nc\n",
    "a byte order mark": b"\xef\xbb\xbfb a\nc\n",
    "decomposed accents": "e\u0301 b\nc\n".encode(),
}


def messages(result: Any) -> list[str]:
    """The lines on stderr, except those that name the engine or report that a model is exported for it."""
    return [line for line in result.err.splitlines() if not line.startswith(("engine: ", "exporting to "))]


def line_count(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


@pytest.mark.parametrize("case", INPUTS)
def test_number_of_output_lines_equals_number_of_input_lines(case: str, call: Call, run: Path):
    result = call("translate", run, stdin=INPUTS[case])
    assert (result.code, messages(result)) == (0, [])
    assert result.out.count("\n") == line_count(INPUTS[case])
    assert result.out.endswith("\n") or not result.out


@pytest.mark.parametrize("case", INPUTS)
def test_file_and_stdin_give_the_same_output(case: str, call: Call, run: Path, tmp_path: Path):
    (tmp_path / "in").write_bytes(INPUTS[case])
    result = call("translate", run, tmp_path / "in")
    assert (result.code, messages(result)) == (0, [])
    assert result.out == call("translate", run, stdin=INPUTS[case]).out


def test_empty_lines_stay_empty(call: Call, run: Path):
    lines = call("translate", run, stdin=b"b a\n\nc b a\n\n").out.split("\n")
    assert [bool(line) for line in lines] == [True, False, True, False, False]


def test_output_order_is_the_input_order(call: Call, run: Path, recipe: Path):
    sources = [" ".join("abcdefgh"[(n * k) % 8] for k in range(1, 2 + n % 6)) for n in range(40)]
    at_once = call("translate", run, stdin="".join(f"{s}\n" for s in sources).encode()).out.splitlines()
    one_by_one = [call("translate", run, stdin=f"{s}\n".encode()).out.rstrip("\n") for s in sources]
    assert at_once == one_by_one
    assert len(set(at_once)) > 10


def test_very_long_line_does_not_change_the_other_lines(call: Call, run: Path):
    long = b" ".join([b"b a c"] * 1000)
    result = call("translate", run, "--ratio", "0.01", stdin=b"b a\n" + long + b"\nc\n")
    assert (result.code, result.out.count("\n")) == (0, 3)
    short = call("translate", run, "--ratio", "0.01", stdin=b"b a\nc\n").out.splitlines()
    assert [result.out.splitlines()[n] for n in (0, 2)] == short


def test_gzipped_file_is_decompressed(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"b a\nc\n"))
    assert call("translate", run, tmp_path / "in.gz").out == call("translate", run, stdin=b"b a\nc\n").out


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("in.gz", b"b a\n", "is not gzip data"),
        ("in.gz", gzip.compress(b"b a\n")[:-4], "is damaged"),
        ("in", gzip.compress(b"b a\n"), "contains gzip data; decompress it"),
    ],
    ids=["not gzip", "truncated", "without .gz"],
)
def test_wrong_or_damaged_gzip_is_refused(
    name: str, content: bytes, reason: str, call: Call, run: Path, tmp_path: Path
):
    (tmp_path / name).write_bytes(content)
    result = call("translate", run, tmp_path / name)
    assert result.code == 1
    assert f"{tmp_path / name}: {reason}" in result.err


@pytest.mark.parametrize("command", ["translate", "tag", "view"])
def test_missing_output_folder_is_refused(command: str, call: Call, run: Path, tmp_path: Path):
    arguments = ["a"] if command == "view" else []
    result = call(command, run, *arguments, "-o", tmp_path / "none" / "out", stdin=b"a\n")
    assert result.code == 2
    assert f"{tmp_path}/none/out: the folder {tmp_path}/none does not exist; create it" in result.err


def test_output_option_writes_to_a_file(call: Call, run: Path, tmp_path: Path):
    expected = call("translate", run, stdin=b"b a\nc\n").out
    result = call("translate", run, "-o", tmp_path / "out", stdin=b"b a\nc\n")
    assert (result.code, result.out, messages(result)) == (0, "", [])
    assert (tmp_path / "out").read_bytes() == expected.encode()


@pytest.mark.parametrize("arguments", [["-"], ["-o", "-"], ["-", "-o", "-"]], ids=" ".join)
def test_hyphen_means_stdin_or_stdout(arguments: list[str], call: Call, run: Path):
    result = call("translate", run, *arguments, stdin=b"b a\nc\n")
    assert (result.code, messages(result)) == (0, [])
    assert result.out == call("translate", run, stdin=b"b a\nc\n").out


def test_input_file_cannot_be_the_output_file(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "in").write_text("a b\n", "utf-8")
    result = call("translate", run, tmp_path / "in", "-o", tmp_path / "in")
    assert result.code == 2
    assert (tmp_path / "in").read_text("utf-8") == "a b\n"


# ── options ───────────────────────────────────────────────────────────────────────────────────────


def test_json_contains_source_translation_score_and_tokens(call: Call, run: Path):
    result = call("translate", run, "--json", stdin=b"b a\n\nc\xe2\x80\xa8d\n")
    records = [json.loads(line) for line in result.out.split("\n")[:-1]]
    assert [record["source"] for record in records] == ["b a", "", "c\u2028d"]
    assert records[0]["translation"] == call("translate", run, stdin=b"b a\n").out.rstrip("\n")
    for record in records:
        assert {"source", "translation", "score", "tokens"} <= record.keys()
        assert isinstance(record["score"], float)
        assert record["score"] <= 0
    assert records[0]["tokens"][-1] == "</s>"
    assert "".join(records[0]["tokens"][:-1]).strip() == records[0]["translation"]
    assert records[1]["translation"] == ""


def test_best_gives_distinct_alternatives_in_order_of_score(call: Call, run: Path):
    result = call("translate", run, "--json", "--beam", "4", "--best", "3", stdin=b"c b a\nb\n")
    for record in map(json.loads, result.out.splitlines()):
        scores = [record["score"], *[other["score"] for other in record["alternatives"]]]
        texts = [record["translation"], *[other["translation"] for other in record["alternatives"]]]
        assert len(texts) == len(set(texts)) == 3
        assert scores == sorted(scores, reverse=True)
        assert {"translation", "score", "tokens"} <= record["alternatives"][0].keys()


INVALID_OPTIONS = [
    ["--json", "--best", "9"],  # the beam of the recipe is smaller
    ["--json", "--best", "4", "--beam", "2"],
    ["--sample", "--top-p", "1.5"],
]


@pytest.mark.parametrize("option", INVALID_OPTIONS, ids=" ".join)
def test_invalid_options_are_refused_with_one_message(option: list[str], call: Call, run: Path):
    result = call("translate", run, *option, stdin=b"c b a\n")
    assert (result.code in (1, 2), result.out) == (True, "")
    assert result.err.startswith("saccade: ")


@pytest.mark.parametrize("option", [["--beam", "0"], ["--length-penalty", "-1"], ["--ratio", "-1"]])
def test_option_out_of_range_is_refused_with_its_bound(option: list[str], call: Call, run: Path):
    result = call("translate", run, *option, stdin=b"c b a\n")
    assert result.code in (1, 2)
    assert "must be greater than" in result.err


def test_prefix_begins_every_nonempty_translation(call: Call, run: Path):
    lines = call("translate", run, "--prefix", "h g", stdin=b"a b\n\nc\n").out.split("\n")
    assert lines[0].startswith("h g")
    assert lines[1] == ""
    assert lines[2].startswith("h g")


def test_prefixes_file_gives_each_line_its_prefix(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "prefixes").write_text("h\n\ng f\n\n", "utf-8")
    lines = call("translate", run, "--prefixes", tmp_path / "prefixes", stdin=b"a b\na b\na b\na b\n").out.splitlines()
    assert lines[0].startswith("h")
    assert lines[2].startswith("g f")
    assert lines[1] == lines[3] == call("translate", run, stdin=b"a b\n").out.rstrip("\n")


def test_too_few_prefixes_are_refused(call: Call, run: Path, tmp_path: Path):
    (tmp_path / "prefixes").write_text("h\n", "utf-8")
    result = call("translate", run, "--prefixes", tmp_path / "prefixes", stdin=b"a b\na b\n")
    assert (result.code, result.out) == (1, "")
    assert "has fewer lines than" in result.err


def test_samples_depend_on_the_seed(call: Call, run: Path):
    text = b"c b a d\nb e\nf a b c d e\n" * 3

    def samples(*options: str) -> str:
        return call("translate", run, "--sample", "--temperature", "2", *options, stdin=text).out

    first = samples("--seed", "7")
    assert first == samples("--seed", "7")
    assert first != samples("--seed", "8")
    assert samples("--top-k", "1", "--seed", "7") == samples("--top-k", "1", "--seed", "8")


def test_samples_do_not_depend_on_when_lines_arrive(call: Call, run: Path, monkeypatch: pytest.MonkeyPatch):
    options = ["--sample", "--temperature", "2", "--seed", "7"]
    text = b"c b a d\nb e\nf a b c d e\nh g f\n"
    at_once = call("translate", run, *options, stdin=text).out
    monkeypatch.setattr("saccade.lines.LINES_PER_GROUP", 1)
    assert call("translate", run, *options, stdin=text).out == at_once


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


def test_invalid_utf8_is_refused_with_its_line(call: Call, run: Path, tmp_path: Path):
    result = call("translate", run, stdin=b"a\n\xff\nb\n")
    assert result.code == 1
    assert [line[:14] for line in messages(result)] == ["saccade: -:2: "]
    (tmp_path / "in").write_bytes(b"a\nb\n\xe4\n")
    result = call("translate", run, tmp_path / "in")
    assert result.code == 1
    assert messages(result)[0].startswith(f"saccade: {tmp_path}/in:3: ")


def test_missing_run_is_answered_with_the_runs_beside_it(call: Call, run: Path):
    result = call("translate", run.with_name("tinny"), stdin=b"a\n")
    assert (result.code, result.out) == (2, "")
    assert "is not a run" in result.err
    assert "tiny" in result.err.partition("(available in ")[2]


def test_unknown_checkpoint_is_answered_with_the_existing_ones(call: Call, run: Path):
    result = call("translate", run, "--checkpoint", "bset", stdin=b"a\n")
    assert (result.code, result.out) == (1, "")
    assert "there is no checkpoint 'bset' (available: best, latest, step-0000030, step-0000060)" in result.err
