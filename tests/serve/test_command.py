"""`saccade serve` as it is typed: what is refused before anything listens, and settings from the environment."""

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
    """What looks like a run until it is opened."""
    (tmp_path / "config.toml").write_text("", "utf-8")
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main(["serve", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert not out
    return code, err


def test_no_run_and_a_path_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys) == (2, "saccade: serve needs a run: saccade serve RUN\n")
    code, text = said(capsys, "en-de=/no/such/run")
    assert code == 2
    assert text.startswith("saccade: /no/such/run: is not a run")


def test_an_open_address_wants_keys(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SACCADE_API_KEY", raising=False)
    for host in ("0.0.0.0", "::", "192.168.0.7", "example.org"):
        code, text = said(capsys, folder, "--host", host)
        assert code == 2
        assert f"--host {host}" in text
        assert "--api-keys" in text
        assert "--insecure" in text


@pytest.mark.parametrize("content", [None, b"", b"\n \n", b"\xff\xfe"])
def test_keys_that_cannot_be_read(
    capsys: pytest.CaptureFixture[str], folder: Path, content: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SACCADE_API_KEY", raising=False)
    keys = folder / "keys"
    if content is not None:
        keys.write_bytes(content)
    code, text = said(capsys, folder, "--api-keys", keys)
    assert code == 2
    assert f"--api-keys {keys}" in text


@pytest.mark.parametrize(
    ("option", "value"),
    [("--port", "65536"), ("--port", "-1"), ("--batch", "0"), ("--deadline", "0"), ("--header", "1"), ("--body", "x")],
)
def test_a_wrong_value_is_named_with_its_option_or_variable(
    capsys: pytest.CaptureFixture[str], folder: Path, option: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = said(capsys, folder, f"{option}={value}")
    assert code == 2
    assert option in text
    variable = f"SACCADE_{option[2:].upper()}"
    monkeypatch.setenv(variable, value)
    code, text = said(capsys, folder)
    assert code == 2
    assert variable in text


def test_every_setting_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in dataclasses.fields(Settings):
        default = field.default
        value = "1" if isinstance(default, bool) else "700" if isinstance(default, int) else "0.5"
        value = "auto" if field.name == "engine" else value
        monkeypatch.setenv(f"SACCADE_{field.name.upper()}", value)
    _, bound, _ = app.parse_args(["serve", "run"], print_error=False, exit_on_error=False)
    settings = bound.arguments["settings"]
    for field in dataclasses.fields(Settings):
        assert getattr(settings, field.name) != getattr(DEFAULT_SETTINGS, field.name), field.name


def test_help_and_typos_wait_for_nothing_heavy() -> None:
    code = "import sys; from saccade.cli import main; main(['serve', '--help']); main(['serve']);" + (
        "assert not {'torch', 'fastapi', 'uvicorn', 'py3langid'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env={**os.environ})
