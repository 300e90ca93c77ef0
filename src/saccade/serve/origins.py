"""Whether a request was meant for this service: by the name it was sent to, and by the page it came from."""

import ipaddress
import re

from saccade.serve.errors import ApiError
from saccade.serve.settings import Settings

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")


def check_host(host: str, settings: Settings) -> None:
    """A hostile page may have pointed a name of its own here. A bare address cannot be pointed anywhere."""
    found = _HOST.fullmatch(host)
    name = (found[1] or found[2]).lower() if found else ""
    ours = {name.lower() for name in ("localhost", settings.host, *settings.allowed_host)}
    if name not in ours and not _is_address(name):
        text = "this service is not known by that name; start it with --allowed-host NAME to change that"
        raise ApiError(421, text, reason="host")


def check_origin(method: str, origin: str, host: str, settings: Settings) -> None:
    """Pages of other origins may look, but not make us work, unless they were asked in."""
    ours = origin.partition("://")[2].lower() == host.lower() or {origin, "*"} & {*settings.cors}
    if method not in SAFE_METHODS and not ours:
        text = "pages of other origins may not call this service; start it with --cors ORIGIN to change that"
        raise ApiError(403, text, reason="origin")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
