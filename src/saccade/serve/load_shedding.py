"""Load shedding: a request that would be refused anyway is refused before it is parsed.

Under a load far above capacity most requests are refused. A refusal after parsing, routing and checking costs more than
a millisecond of CPU time on the same cores that the models need, and would slow down the accepted requests.
"""

import re
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus

from saccade.serve.errors import ApiError
from saccade.serve.headers import NO_STORE, SECURITY_HEADERS
from saccade.serve.log import new_request_id
from saccade.serve.metrics import Metrics

MODEL_PATHS = ("/translate", "/v1/translate")  # the paths whose requests need a model
_REQUEST_LINES = tuple(f"POST {path} HTTP/1.1\r\n".encode() for path in MODEL_PATHS)
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*(?=\r\n|$)")
_NEEDS_PARSER = re.compile(  # `origin`: a refusal to a page of another origin needs CORS headers
    rb"\r\n(?:connection:(?![ \t]*keep-alive[ \t]*(?:\r\n|$))|transfer-encoding:|expect:|upgrade:|origin:)"
)


def is_translation_request(data: bytes) -> bool:
    """Whether these bytes are exactly one complete translation request with no header that needs a full HTTP parser."""
    if not data.startswith(_REQUEST_LINES):
        return False
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = _CONTENT_LENGTH.findall(head := head.lower())
    return len(lengths) == 1 and int(lengths[0]) == len(body) and not _NEEDS_PARSER.search(head)


class LoadShedder:
    """Refuses requests before the parser. `check_capacity` raises `ApiError` if even the smallest request has no
    room."""

    def __init__(self, check_capacity: Callable[[], None], metrics: Metrics):
        self._check_capacity, self._metrics = check_capacity, metrics

    def refusal(self, data: bytes) -> bytes | None:
        """The response to these bytes if they are a request that must be refused, else None."""
        if is_translation_request(data):
            try:
                self._check_capacity()
            except ApiError as error:
                path = data[5 : data.index(b" ", 5)].decode()
                self._metrics.count_response(path, error.status, 0.0, error.reason)
                return _response_bytes(error)
        return None


def _response_bytes(error: ApiError) -> bytes:
    fixed = {"date": formatdate(usegmt=True), **SECURITY_HEADERS, **NO_STORE, "x-request-id": new_request_id()}
    lines = [f"{name}: {value}\r\n" for name, value in {**fixed, **error.headers}.items()]
    status = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
    return "".join([status, *lines, "\r\n"]).encode() + error.body
