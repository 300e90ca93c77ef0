"""Results go to stdout and messages to stderr: pages, color, closed pipes, and input lines that are translated as they
arrive."""

import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.program import ENVIRONMENT, PROGRAM

Call = Callable[..., Any]


def test_view_writes_one_page_and_prints_the_translation(
    call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    result = call("view", run, "c b a", "-o", "page.html")
    assert result.code == 0
    assert result.out == call("translate", run, stdin=b"c b a\n").out
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "decoder.layers.0.cross" in page
    assert not re.search(r"(src|href)=[\"']https?:", page)
    assert "wrote page.html: open it in a browser" in result.err
    assert "\x1b" not in result.err


def test_view_target_replaces_the_translation(call: Call, run: Path, tmp_path: Path):
    result = call("view", run, "c b a", "--target", "h h", "-o", tmp_path / "page.html")
    assert (result.code, result.out) == (0, "h h\n")


def test_view_to_stdout_writes_only_the_page(call: Call, run: Path):
    result = call("view", run, "a b", "-o", "-")
    assert result.code == 0
    assert result.out.startswith("<!doctype html>")
    assert result.out.rstrip().endswith("</html>")


@pytest.mark.parametrize(("variable", "color"), [("NO_COLOR", False), ("FORCE_COLOR", True)])
def test_color_follows_the_environment_variables(
    variable: str, color: bool, call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv(variable, "1")
    result = call("view", run, "b a", "-o", tmp_path / "page.html")
    assert result.code == 0
    assert bool(re.search(r"\x1b\[[\d;]*[34]\d", result.err)) == color
    assert "\x1b" not in result.out


# ── processes and pipes ───────────────────────────────────────────────────────────────────────────


def test_each_line_is_translated_before_stdin_is_closed(run: Path, call: Call):
    expected = call("translate", run, stdin=b"c b a\nb\n").out.splitlines()
    with subprocess.Popen(
        [*PROGRAM, "translate", str(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        text=True,
    ) as process:
        timeout = threading.Timer(60, process.kill)
        timeout.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            for source, translation in zip(("c b a", "b"), expected, strict=True):
                process.stdin.write(f"{source}\n")
                process.stdin.flush()
                assert process.stdout.readline() == f"{translation}\n"
            process.stdin.close()
            assert process.stdout.read() == ""
            assert process.stderr.read() in ("", "engine: ctranslate2-float32\n")
            assert process.wait() == 0
        finally:
            timeout.cancel()
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("command", "lines"), [(["translate", "RUN"], 1), (["config", "show", "demo"], 0)])
def test_closed_stdout_ends_the_program_without_a_message(command: list[str], lines: int, run: Path, tmp_path: Path):
    source = tmp_path / "in"
    source.write_text("c b a\n" * 20_000, "utf-8")
    with (
        source.open("rb") as stdin,
        subprocess.Popen(
            [*PROGRAM, *[str(run) if word == "RUN" else word for word in command]],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(lines):
            assert process.stdout.readline().endswith(b"\n")
        process.stdout.close()
        assert process.stderr.read() in (b"", b"engine: ctranslate2-float32\n")
        assert process.wait(60) in (0, 141)
