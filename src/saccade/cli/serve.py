"""`saccade serve`: translators behind an address."""

import ipaddress
import os
from pathlib import Path

from cyclopts.config import Env

from saccade.cli.app import UsageError, app, must_be_run
from saccade.serve.language_pairs import parse_run_argument
from saccade.serve.settings import DEFAULT_SETTINGS, Settings

API_KEY_VARIABLE = "SACCADE_API_KEY"


@app.command(config=Env("SACCADE_", command=False))
def serve(*runs: str, settings: Settings = DEFAULT_SETTINGS) -> None:
    """Serve translators: a page, the LibreTranslate API and one that says more. Any option may be an environment
    variable, such as SACCADE_PORT.

    Parameters
    ----------
    runs: str
        Folders of trained runs; en-de=FOLDER says the languages where the run does not.
    """
    if not runs:
        raise UsageError("serve needs a run: saccade serve RUN")
    for argument in runs:
        must_be_run(parse_run_argument(argument)[1])
    keys = _keys(settings.api_keys)
    if not _is_local(settings.host) and not keys and not settings.insecure:
        raise UsageError(
            f"--host {settings.host}: others could reach this; give keys with --api-keys FILE, or say --insecure"
        )
    try:
        from saccade.serve.server import serve as run_server
    except ImportError as error:
        raise UsageError(f"serve needs more packages ({error.name}): pip install 'saccade[serve]'") from None
    run_server(runs, settings, keys)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _keys(file: str) -> list[str]:
    """From a file or the environment: what stands in a command line can be seen by everyone on the machine."""
    keys = [os.environ[API_KEY_VARIABLE]] if os.environ.get(API_KEY_VARIABLE) else []
    if file:
        try:
            lines = Path(file).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--api-keys {file}: cannot be read: {error}") from None
        keys += [line.strip() for line in lines if line.strip()]
        if not keys:
            raise UsageError(f"--api-keys {file}: holds no key; write one a line")
    return keys
