"""Help, version and usage errors: exit codes, streams, and that the large libraries are not imported for them."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from cli.program import ENVIRONMENT, PROGRAM

# case: arguments, exit code, and text that stdout or stderr contains
CASES = {
    "--help": (["--help"], 0, "Commands"),
    "--version": (["--version"], 0, "saccade "),
    "train --help": (["train", "--help"], 0, "--dry-run"),
    "translate --help": (["translate", "--help"], 0, "--length-penalty"),
    "evaluate --help": (["evaluate", "--help"], 0, "--hyp"),
    "view --help": (["view", "--help"], 0, "--output"),
    "demo --help": (["demo", "--help"], 0, "--from"),
    "config show --help": (["config", "show", "--help"], 0, "--set"),
    "data check --help": (["data", "check", "--help"], 0, "--set"),
    "an unknown command": (["trian", "r.toml"], 2, "train"),
    "an unknown command of a group": (["config", "shwo", "r.toml"], 2, "show"),
    "an unknown option": (["train", "r.toml", "--dry-rum"], 2, "--dry-run"),
    "a missing argument": (["train"], 2, "RECIPE"),
    "text for a number": (["translate", "r", "--beam", "wide"], 2, "wide"),
    "a missing file": (["translate", "r", "no/such/file"], 2, "no/such/file: no such file; check the path"),
    "a folder in place of a file": (["translate", "r", "."], 2, ".: is a folder; give a file"),
    "evaluate without arguments": (["evaluate"], 2, "either a RUN, or --hyp FILE and --ref FILE"),
    "evaluate with a run and a hypothesis": (["evaluate", "r", "--hyp", "h", "--ref", "f"], 2, "either a RUN"),
    "evaluate with --src only": (["evaluate", "r", "--src", "s"], 2, "takes --src FILE and --ref FILE together"),
    "evaluate with a missing file": (["evaluate", "--hyp", "nope", "--ref", "nope"], 2, "nope: no such file"),
    "sampling without --sample": (["translate", "r", "--top-k", "3"], 2, "--top-k needs --sample"),
    "sampling with a beam": (["translate", "r", "--sample", "--beam", "3"], 2, "--sample draws one output per line"),
    "several outputs per line without --json": (["translate", "r", "--best", "3"], 2, "add --json"),
    "--prefix with --prefixes": (
        ["translate", "r", "--prefix", "a", "--prefixes", "f"],
        2,
        "--prefix and --prefixes cannot be combined",
    ),
    "a missing recipe": (["train", "nope.toml"], 2, "nope.toml: no such recipe or preset"),
    "--set without a value": (["train", "demo", "--set", "train.updates"], 2, "expected KEY=VALUE"),
    "a folder that is not a run": (["translate", "nowhere"], 2, "nowhere: is not a run"),
    "view without a sentence": (["view", "r"], 2, "view needs a sentence"),
    "align --help": (["align", "--help"], 0, "--symmetrize"),
    "align with --src only": (["align", "r", "--src", "f"], 2, "--tgt"),
    "align score of a missing file": (
        ["align", "score", "--gold", "nope", "--system", "nope"],
        2,
        "nope: no such file",
    ),
    "report --help": (["report", "--help"], 0, "--quick"),
    "serve --help": (["serve", "--help"], 0, "--port"),
    "serve without a run": (["serve"], 2, "saccade serve RUN"),
    "serve of a folder that is not a run": (["serve", "nowhere"], 2, "nowhere: is not a run"),
    "view of a missing file": (["view", "r", "--file", "nope"], 2, "nope: no such file"),
    "view of two sentences with one target": (
        ["view", "r", "a", "b", "--target", "c"],
        2,
        "--target needs exactly one sentence",
    ),
}
HEAVY_LIBRARIES = ("torch", "numpy", "transformers", "ctranslate2")

RUN_COMMANDS = f"""
import contextlib, io, json, sys
from saccade.cli import main

results = []
for command in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command)
    imported = [name for name in {HEAVY_LIBRARIES} if name in sys.modules]
    results.append([code, out.getvalue(), err.getvalue(), imported])
print(json.dumps(results))
"""


class StartupResult(NamedTuple):
    code: int
    out: str
    err: str
    imported: list[str]  # heavy libraries


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StartupResult]:
    commands = json.dumps([command for command, _, _ in CASES.values()])
    done = subprocess.run(
        [sys.executable, "-c", RUN_COMMANDS, commands],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "COLUMNS": "100"},
        cwd=tmp_path_factory.mktemp("nowhere"),
    )
    assert done.returncode == 0, done.stderr
    return {case: StartupResult(*result) for case, result in zip(CASES, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize("case", CASES)
def test_command_ends_with_its_exit_code_and_message_without_heavy_imports(
    case: str, results: dict[str, StartupResult]
):
    code, out, err, imported = results[case]
    _, expected, message = CASES[case]
    assert code == expected
    assert imported == []
    assert message in (err if expected else out)
    assert (out if expected else err) == ""
    assert "Traceback" not in err
    assert "\x1b" not in out + err
    if expected:
        assert err.startswith("saccade: ")


def test_typo_is_answered_with_the_nearest_word(results: dict[str, StartupResult]):
    for case in ("an unknown command", "an unknown command of a group", "an unknown option"):
        assert "did you mean" in results[case].err.lower(), case


def test_version_names_torch_and_python(results: dict[str, StartupResult]):
    version = r"saccade \d+\.\d+\.\d+\S* \(torch \d+\.\d+\S*, Python \d+\.\d+\.\d+\)\n"
    assert re.fullmatch(version, results["--version"].out)


@pytest.mark.parametrize("command", [["--help"], ["--version"], ["trian"]])
def test_python_m_saccade_equals_the_installed_script(command: list[str]):
    script = Path(sys.executable).with_name("saccade")
    if not script.exists():
        pytest.skip("the package is not installed")
    module, installed = [
        subprocess.run([*program, *command], capture_output=True, text=True, env=ENVIRONMENT)
        for program in (PROGRAM, [str(script)])
    ]
    assert module.returncode == installed.returncode == (2 if command == ["trian"] else 0)
    assert (module.stdout, module.stderr) == (installed.stdout, installed.stderr)


@pytest.mark.parametrize("command", [["--help"], ["train", "--hlep"]])
def test_help_and_typos_do_not_import_heavy_libraries(command: list[str]):
    script = (
        "import sys; from saccade.cli import main; main(sys.argv[1:]); "
        f"print([name for name in {HEAVY_LIBRARIES} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script, *command], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
