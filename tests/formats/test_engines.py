"""`--engine`: the fastest suitable engine is chosen; its export is made once, is never outdated, and needs no torch."""

import importlib.util
import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch

from formats.small import make_run
from saccade.api import Run, load
from saccade.distribution import install_command
from saccade.errors import ConfigError
from saccade.formats.export import FORMATS
from saccade.runs.weights import write_checkpoint

pytest.importorskip("ctranslate2")

LINES = "ein Haus am See\n\nder Hund\n"
FOLDER = "exports/ctranslate2-float32"


@pytest.fixture(scope="module", autouse=True)
def without_shape_checks() -> Iterator[None]:
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "run")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    from saccade.cli import main

    def called(*arguments: Any, stdin: str = LINES) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return called


def test_auto_exports_once_and_reports_the_engine(run: Run, call: Any) -> None:
    path = run.folder.path
    first, again = call("translate", path), call("translate", path)
    assert first[0] == again[0] == 0
    assert f"exporting to {path / FOLDER}" in first[2]
    assert again[2] == "engine: ctranslate2-float32\n"
    with_torch = call("translate", path, "--engine", "torch")
    assert with_torch == (0, first[1], "")
    assert first[1] == again[1]


def test_translate_with_an_export_does_not_import_torch(run: Run, call: Any) -> None:
    expected = call("translate", run.folder.path)[1]
    code = (
        "import sys; from saccade.cli import main; main(sys.argv[1:]);"
        "sys.exit(bool({'torch', 'transformers', 'sacrebleu', 'numpy', 'safetensors'} & {*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "translate", str(run.folder.path)],
        input=LINES,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_hidden_modules_cannot_be_imported() -> None:
    code = (
        "import sys; from saccade.formats.ctranslate2_engine import hide_modules\n"
        "with hide_modules('torch'):\n"
        "    try: import torch\n"
        "    except ImportError: print('hidden')\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "hidden\n")


def test_export_of_other_weights_is_never_used(run: Run, call: Any) -> None:
    path = run.folder.path
    before = call("translate", path)[1]
    with torch.no_grad():
        for weight in run.model.parameters():
            weight += torch.randn(weight.shape)
    write_checkpoint(run.folder.checkpoints.at(2), run.model, {}, None, step=2)
    run.folder.checkpoints.mark("best", 2)
    _, after, stderr = call("translate", path)
    assert f"exporting to {path / FOLDER}" in stderr
    assert after == call("translate", path, "--engine", "torch")[1] != before
    assert call("translate", path, "--checkpoint", "step-1")[1] == before


def test_changed_config_is_exported_again(run: Run, call: Any) -> None:
    path = run.folder.path
    call("translate", path)
    config = path / "config.toml"
    config.write_text(config.read_text("utf-8").replace("extra = 10", "extra = 1"), "utf-8")
    assert "exporting" in call("translate", path)[2]


@pytest.mark.parametrize("name", ["model.bin", "saccade.json", "joint.model", "manifest.json"])
def test_damaged_export_is_exported_again(name: str, run: Run, call: Any) -> None:
    path = run.folder.path
    expected = call("translate", path)[1]
    file = path / FOLDER / name
    file.write_bytes(file.read_bytes()[:-5])
    code, out, stderr = call("translate", path)
    assert (code, out) == (0, expected)
    assert "exporting" in stderr
    assert ("warning: an earlier export cannot be used and is replaced: " in stderr) == (name != "manifest.json")
    assert "run `saccade export` again" not in stderr
    assert call("translate", path)[2] == "engine: ctranslate2-float32\n"


@pytest.mark.parametrize(
    ("kind", "hidden"), [(kind, package) for kind, form in FORMATS.items() for package in form.write_packages]
)
@pytest.mark.parametrize(("command", "flag"), [("export", "--to"), ("translate", "--engine")])
def test_missing_package_is_named_with_its_install_command(
    command: str, flag: str, kind: str, hidden: str, run: Run, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == hidden else find(name, *rest))
    code, out, stderr = call(command, run.folder.path, flag, kind)
    assert (code, out) == (1, "")
    assert f"{hidden} is not installed; run {install_command(FORMATS[kind].extra)}" in stderr


def test_load_takes_a_quantization(run: Run) -> None:
    path = run.folder.path
    opened = load(path, engine="ctranslate2", quantization="int8")
    assert len(opened.translate(["ein Haus am See"])) == 1
    assert (path / "exports/ctranslate2-int8/model.bin").is_file()
    with pytest.raises(ConfigError, match="quantization: unknown quantization 'int7'; did you mean 'int8'"):
        load(path, engine="ctranslate2", quantization="int7")
    with pytest.raises(ConfigError, match='quantization: "int8" needs engine = "ctranslate2", got engine = "torch"'):
        load(path, quantization="int8")


def test_auto_uses_torch_if_the_export_cannot_be_written(run: Run, call: Any) -> None:
    (run.folder.path / "exports").write_text("a file\n", "utf-8")
    code, out, stderr = call("translate", run.folder.path)
    assert code == 0
    assert out.count("\n") == LINES.count("\n")
    assert stderr.startswith("engine: torch (")
    assert call("translate", run.folder.path, "--engine", "ctranslate2")[0] == 1


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--sample"], "samples with its own random generator"),
        (["--prefix", "a", "--beam", "2"], "does not score a prefix"),
    ],
)
def test_auto_uses_torch_for_searches_that_ctranslate2_cannot_run(
    flags: list[str], reason: str, run: Run, call: Any
) -> None:
    path = run.folder.path
    code, out, stderr = call("translate", path, *flags)
    assert (code, reason in stderr) == (0, True)
    assert out == call("translate", path, *flags, "--engine", "torch")[1]
    refused = call("translate", path, *flags, "--engine", "ctranslate2")
    assert (refused[0], refused[1], reason in refused[2]) == (1, "", True)
    assert refused[2].endswith("; or use the torch engine (--engine torch)\n")


def test_auto_uses_torch_for_models_that_ctranslate2_cannot_run(tmp_path: Path, call: Any) -> None:
    sides = {"encoder": {"kind": "recurrent", "depth": 1}, "decoder": {"kind": "recurrent", "depth": 1}}
    run = make_run(tmp_path / "run", {"dim": 16, **sides, "block": {}})
    code, _, stderr = call("translate", run.folder.path)
    reason = "model.encoder: CTranslate2 does not support \"recurrent\"; train with model.encoder = 'stacked'"
    assert (code, stderr) == (0, f"engine: torch ({reason})\n")
    assert not (run.folder.path / "exports").exists()


def test_contradictory_flags_are_refused(run: Run, call: Any, tmp_path: Path) -> None:
    path = run.folder.path
    for flags in (
        ["--engine", "torch", "--quantization", "int8"],
        ["--engine", "ctranslate2", "--alignments", tmp_path / "links"],
        ["--quantization", "int4"],
        ["--engine", "fortran"],
    ):
        assert call("translate", path, *flags)[0] == 2
    code, out, stderr = call("translate", path, "--quantization", "int8")
    assert (code, out.count("\n"), "ctranslate2-int8" in stderr) == (0, 3, True)


def test_export_writes_a_complete_folder_and_does_not_overwrite_others(run: Run, call: Any, tmp_path: Path) -> None:
    from saccade.formats import ctranslate2

    path = run.folder.path
    assert call("export", path, "--to", "ctranslate2", "-o", tmp_path / "out")[0] == 0
    assert len([*ctranslate2.open(tmp_path / "out").generate(["ein Haus"], run.recipe.decode)]) == 1
    assert call("export", path, "--to", "ctranslate2", "-o", tmp_path / "out")[0] == 0, "an export must be replaceable"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear", "utf-8")
    code, _, stderr = call("export", path, "--to", "ctranslate2", "-o", tmp_path / "mine")
    assert (code, "was not written by `saccade export`" in stderr) == (2, True)
    assert (tmp_path / "mine" / "letter.txt").exists()
    assert call("export", path, "--to", "hf", "--quantization", "int8")[0] == 2
