"""The service's log: failed requests on stderr, under the request id that the client received. Texts are never
logged."""

import logging
import secrets

_LOG = logging.getLogger("saccade.serve")


def new_request_id() -> str:
    """A random id that stands in the response header X-Request-Id, in a 500 and in the log."""
    return secrets.token_hex(8)


def log_failure(request_id: str, error: BaseException) -> None:
    _LOG.error("request %s failed", request_id, exc_info=error)
