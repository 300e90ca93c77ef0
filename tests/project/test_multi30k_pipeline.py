"""recipes/multi30k/pipeline.py on a few lines: two teachers, synthetic pairs, a student, a test score."""

import gzip
import io
import runpy
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import BinaryIO

import pytest

from saccade.cli import main

SCRIPT = Path(__file__).parents[2] / "recipes" / "multi30k" / "pipeline.py"
OVERRIDES = ["train.updates=3", "train.validate_every=3", "data.tokenizer.size=60", "model.dim=16"]
NOUNS = (("Man", "Mann"), ("Dog", "Hund"), ("Child", "Kind"))
VERBS = (("Runs", "läuft"), ("Sleeps", "schläft"), ("Sings", "singt"), ("Sees", "sieht"))
PAIRS = [(f"a {noun} {verb}", f"ein {nomen} {tut}") for noun, nomen in NOUNS for verb, tut in VERBS]


def arguments(*words: object) -> list[str]:
    return [*map(str, words), *(word for override in OVERRIDES for word in ("--set", override))]


class InProcessPopen:
    """Runs a command in this process, which saves the import of torch, with the interface of `subprocess.Popen`."""

    def __init__(self, command: list[str], stdout: BinaryIO, stderr: BinaryIO, env: dict[str, str]):
        log = io.StringIO()
        with redirect_stdout(log), redirect_stderr(log):
            self.returncode = run_in_process(command)
        stdout.write(log.getvalue().encode())

    def poll(self) -> int:
        return self.returncode

    wait = poll

    def terminate(self) -> None: ...


def run_in_process(command: list[str], check: bool = False) -> int:
    """`command` begins with the Python interpreter, followed by `-m saccade` or a script."""
    if command[1:3] == ["-m", "saccade"]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["saccade", *command[3:]])
            code = main(command[3:])
    else:
        run_script(command[1:])
        code = 0
    assert code == 0 or not check
    return code


def run_script(command: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", command)
        runpy.run_path(command[0], run_name="__main__")


def write_multi30k(folder: Path, suffix: str) -> None:
    """Write the files of all splits. `suffix` is ".lc.norm.tok" for lowercased text and "" for cased text."""
    for split in ("train", "val", "test_2016_flickr"):
        for side, language in enumerate(("en", "de")):
            with gzip.open(folder / f"{split}{suffix}.{language}.gz", "wt", encoding="utf-8") as file:
                file.writelines(f"{pair[side].lower() if suffix else pair[side]}\n" for pair in PAIRS)


def assert_complete(runs: Path, suffix: str, original: list[tuple[str, str]]) -> None:
    """The student's training text begins with the original pairs; the teachers are trained on the original text."""
    sides = [(runs / "diversified" / f"train.{side}").read_text("utf-8").split("\n")[:-1] for side in ("src", "tgt")]
    assert [*zip(*sides, strict=True)][: len(PAIRS)] == original
    assert len(sides[0]) > len(PAIRS), "there are no synthetic pairs"
    for teacher, source in (("forward", f"train{suffix}.en.gz"), ("backward", f"train{suffix}.de.gz")):
        config = (runs / teacher / "config.toml").read_text("utf-8")
        assert source in config
        assert "seed = 3" in config


@pytest.mark.slow
def test_pipeline_trains_teachers_and_student_and_prints_bleu(tmp_path: Path) -> None:
    suffix = ".lc.norm.tok"
    write_multi30k(tmp_path, suffix)
    command = [sys.executable, *arguments(SCRIPT, tmp_path, tmp_path / "runs", "--seed", 3)]
    finished = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "bleu" in finished.stdout.lower()
    assert_complete(tmp_path / "runs", suffix, [(source.lower(), target.lower()) for source, target in PAIRS])


@pytest.mark.slow
def test_cased_pipeline_keeps_capitals_and_skips_finished_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_multi30k(tmp_path, "")
    monkeypatch.setattr(subprocess, "Popen", InProcessPopen)
    monkeypatch.setattr(subprocess, "run", run_in_process)
    command: list[object] = [SCRIPT, tmp_path, tmp_path / "runs", "--cased", "--seed", 3]
    run_script(arguments(*command))
    assert_complete(tmp_path / "runs", "", PAIRS)
    first = capsys.readouterr().out
    run_script(arguments(*command))
    second = capsys.readouterr().out
    for output in (first, second):
        assert "bleu" in output.lower()
    assert "generating synthetic pairs" in first
    assert "generating synthetic pairs" not in second


@pytest.mark.slow
def test_error_names_the_log_of_the_failed_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_multi30k(tmp_path, "")
    (tmp_path / "train.de.gz").unlink()
    monkeypatch.setattr(subprocess, "Popen", InProcessPopen)
    with pytest.raises(SystemExit) as caught:
        run_script(arguments(SCRIPT, tmp_path, tmp_path / "runs", "--cased"))
    message = str(caught.value.code)
    logs = [tmp_path / "runs" / f"{teacher}.log" for teacher in ("forward", "backward")]
    named = [log for log in logs if str(log) in message]
    assert named  # both teachers need the file; the one that ends first is named
    assert all("train.de.gz" in log.read_text("utf-8") for log in named)
