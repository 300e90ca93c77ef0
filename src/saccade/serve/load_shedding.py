"""Turning away, before it is parsed, what would be refused anyway.

Under a load far beyond what the models can carry most requests are refused. Parsed, routed and checked first, a refusal
costs more than a millisecond of the very cores that the models need, and those who were let in would pay for it.
"""

import re
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus

from saccade.serve.errors import ApiError
from saccade.serve.headers import NO_STORE, SECURITY_HEADERS
from saccade.serve.log import new_request_id
from saccade.serve.metrics import Metrics

MODEL_PATHS = ("/translate", "/v1/translate")  # the paths that ask for a model's time
_ASKS = tuple(f"POST {path} HTTP/1.1\r\n".encode() for path in MODEL_PATHS)
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*(?=\r\n|$)")
_SPECIAL = re.compile(  # a refusal to a page of another origin needs headers of its own, as CORS has it
    rb"\r\n(?:connection:(?![ \t]*keep-alive[ \t]*(?:\r\n|$))|transfer-encoding:|expect:|upgrade:|origin:)"
)


def asks_for_work(data: bytes) -> bool:
    """Whether these bytes are one whole request for a translation, without anything that needs a parser's care."""
    if not data.startswith(_ASKS):
        return False
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = _LENGTH.findall(head := head.lower())
    return len(lengths) == 1 and int(lengths[0]) == len(body) and not _SPECIAL.search(head)


class LoadShedder:
    """In front of the parser. `turn_away` raises `Refused` when there is no room for even the smallest request."""

    def __init__(self, turn_away: Callable[[], None], metrics: Metrics):
        self._turn_away, self._metrics = turn_away, metrics

    def refusal(self, data: bytes) -> bytes | None:
        """The answer to these bytes, if they are a request that is to be turned away."""
        if asks_for_work(data):
            try:
                self._turn_away()
            except ApiError as refused:
                path = data[5 : data.index(b" ", 5)].decode()
                self._metrics.answered(path, refused.status, 0.0, refused.reason)
                return _written(refused)
        return None


def _written(refused: ApiError) -> bytes:
    fixed = {"date": formatdate(usegmt=True), **SECURITY_HEADERS, **NO_STORE, "x-request-id": new_request_id()}
    lines = [f"{name}: {value}\r\n" for name, value in {**fixed, **refused.headers}.items()]
    status = f"HTTP/1.1 {refused.status} {HTTPStatus(refused.status).phrase}\r\n"
    return "".join([status, *lines, "\r\n"]).encode() + refused.body
