"""`saccade serve`: errors before the server starts, and settings from environment variables."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from saccade.cli import app, main
from saccade.serve.settings import DEFAULT_SETTINGS, Settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that looks like a run until it is loaded."""
    (tmp_path / "config.toml").write_text("", "utf-8")
    return tmp_path


def serve_error(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """The exit code and stderr of `saccade serve`."""
    code = main(["serve", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert not out
    return code, err


def test_missing_run_argument_and_path_without_run_are_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve_error(capsys) == (2, "saccade: serve needs a run: saccade serve RUN\n")
    code, text = serve_error(capsys, "en-de=/no/such/run")
    assert code == 2
    assert text.startswith("saccade: /no/such/run: is not a run")


def test_non_loopback_address_requires_keys(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SACCADE_API_KEY", raising=False)
    for host in ("0.0.0.0", "::", "192.168.0.7", "example.org"):
        code, text = serve_error(capsys, folder, "--host", host)
        assert code == 2
        assert f"--host {host}" in text
        assert "--api-keys" in text
        assert "--insecure" in text


@pytest.mark.parametrize("content", [None, b"", b"\n \n", b"\xff\xfe"])
def test_unreadable_or_empty_key_file_is_an_error(
    capsys: pytest.CaptureFixture[str], folder: Path, content: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SACCADE_API_KEY", raising=False)
    keys = folder / "keys"
    if content is not None:
        keys.write_bytes(content)
    code, text = serve_error(capsys, folder, "--api-keys", keys)
    assert code == 2
    assert f"--api-keys {keys}" in text


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--port", "65536"),
        ("--port", "-1"),
        ("--batch", "0"),
        ("--deadline", "0"),
        ("--head-bytes", "1"),
        ("--body-bytes", "x"),
    ],
)
def test_error_names_the_option_or_variable_of_an_invalid_value(
    capsys: pytest.CaptureFixture[str], folder: Path, option: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = serve_error(capsys, folder, f"{option}={value}")
    assert code == 2
    assert option in text
    variable = f"SACCADE_{option[2:].upper().replace('-', '_')}"
    monkeypatch.setenv(variable, value)
    code, text = serve_error(capsys, folder)
    assert code == 2
    assert variable in text


def test_every_setting_has_an_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in dataclasses.fields(Settings):
        default = field.default
        value = "1" if isinstance(default, bool) else "700" if isinstance(default, int) else "0.5"
        value = {"engine": "auto", "device": "cpu"}.get(field.name, value)
        monkeypatch.setenv(f"SACCADE_{field.name.upper()}", value)
    _, bound, _ = app.parse_args(["serve", "run"], print_error=False, exit_on_error=False)
    settings = bound.arguments["settings"]
    for field in dataclasses.fields(Settings):
        assert getattr(settings, field.name) != getattr(DEFAULT_SETTINGS, field.name), field.name


def test_help_and_usage_errors_do_not_import_torch_or_fastapi() -> None:
    code = "import sys; from saccade.cli import main; main(['serve', '--help']); main(['serve']);" + (
        "assert not {'torch', 'fastapi', 'uvicorn', 'py3langid'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env={**os.environ})
