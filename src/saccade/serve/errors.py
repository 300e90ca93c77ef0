"""Error responses. Their text repeats at most short parts of what the client sent."""

import json
import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]


class ApiError(Exception):
    """A response other than 200: the HTTP status, one sentence, the seconds for the header Retry-After, and the label
    `reason` under which the metric of rejected requests counts it (empty: not counted)."""

    def __init__(self, status: int, text: str, retry_after: float | None = None, reason: str = ""):
        super().__init__(text)
        self.status, self.reason = status, reason
        self.body = json.dumps({"error": text}).encode()
        self.headers = {"content-type": "application/json", "content-length": str(len(self.body))}
        if retry_after is not None:
            self.headers["retry-after"] = str(max(1, min(60, math.ceil(retry_after))))

    def start_message(self, **more_headers: str) -> Message:
        """The ASGI message `http.response.start` of this response."""
        headers = [(name.encode(), value.encode()) for name, value in {**self.headers, **more_headers}.items()]
        return {"type": "http.response.start", "status": self.status, "headers": headers}


def internal_error(request_id: str) -> ApiError:
    """A 500 that names the request under which the log has the traceback."""
    return ApiError(500, f"internal error; the service's log has the details of request {request_id}")


def shutting_down(reason: str = "") -> ApiError:
    """The 503 for requests that a stopping service does not answer."""
    return ApiError(503, "the service is shutting down; try again later", 1, reason)
