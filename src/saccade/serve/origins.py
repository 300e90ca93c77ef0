"""Checks of the Host and Origin headers, against DNS rebinding and cross-site requests."""

import ipaddress
import re

from saccade.serve.errors import ApiError
from saccade.serve.settings import Settings

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")


def check_host(host: str, settings: Settings) -> None:
    """Refuse host names that are not ours: a hostile page can point its own domain at this address (DNS rebinding).
    IP addresses are accepted, since no DNS record can redirect them."""
    match = _HOST.fullmatch(host)
    name = (match[1] or match[2]).lower() if match else ""
    allowed = {name.lower() for name in ("localhost", settings.host, *settings.allowed_host)}
    if name not in allowed and not _is_ip_address(name):
        text = "the Host header is not an allowed name; start the service with --allowed-host NAME to allow it"
        raise ApiError(421, text, reason="host")


def check_origin(method: str, origin: str, host: str, settings: Settings) -> None:
    """Refuse requests that change or compute anything if they come from a page of another origin that `--cors` does not
    allow."""
    allowed = origin.partition("://")[2].lower() == host.lower() or {origin, "*"} & {*settings.cors}
    if method not in SAFE_METHODS and not allowed:
        text = "pages of this origin may not call the service; start it with --cors ORIGIN to allow them"
        raise ApiError(403, text, reason="origin")


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
