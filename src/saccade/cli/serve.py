"""`saccade serve`: a translation server."""

import ipaddress
import os
from pathlib import Path

from cyclopts.config import Env

from saccade.cli.app import UsageError, app, must_be_run
from saccade.distribution import install_command
from saccade.serve.language_pairs import parse_run_argument
from saccade.serve.settings import DEFAULT_SETTINGS, Settings

API_KEY_VARIABLE = "SACCADE_API_KEY"


@app.command(config=Env("SACCADE_", command=False))
def serve(*runs: str, settings: Settings = DEFAULT_SETTINGS) -> None:
    """Serve translation models: a web page, a LibreTranslate-compatible API, and a more detailed API.

    The detailed API also returns scores, alternatives, alignments and
    attention. Each option can also be set by an environment variable, such as
    SACCADE_PORT.

    Parameters
    ----------
    runs: str
        Folders of trained runs; en-de=FOLDER sets the languages, which by default come from the recipe's data.
    """
    if not runs:
        raise UsageError("serve needs a run: saccade serve RUN")
    for argument in runs:
        must_be_run(parse_run_argument(argument)[1])
    keys = _api_keys(settings.api_keys)
    if not _is_local(settings.host) and not keys and not settings.insecure:
        raise UsageError(
            f"--host {settings.host}: other machines could use this server; require API keys with --api-keys FILE, "
            "or allow access without keys with --insecure"
        )
    try:
        from saccade.serve.server import serve as run_server
    except ImportError as error:
        raise UsageError(f"{error.name}, which serve needs, is not installed; run {install_command('serve')}") from None
    run_server(runs, settings, keys)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _api_keys(file: str) -> list[str]:
    """API keys from a file and the environment. They are not command-line options, because all users of a machine can
    see the command lines of its processes."""
    keys = [os.environ[API_KEY_VARIABLE]] if os.environ.get(API_KEY_VARIABLE) else []
    if file:
        try:
            lines = Path(file).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--api-keys {file}: cannot be read: {getattr(error, 'strerror', error)}") from None
        keys += [line.strip() for line in lines if line.strip()]
        if not keys:
            raise UsageError(f"--api-keys {file}: contains no keys; write one key per line")
    return keys
