"""What a client is told when a request is not answered. The text never repeats what the client sent in bulk."""

import json
import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]


class ApiError(Exception):
    """An answer other than 200: its status, one sentence, after how many seconds to try again, and what it is counted
    under."""

    def __init__(self, status: int, text: str, retry_after: float | None = None, reason: str = ""):
        super().__init__(text)
        self.status, self.reason = status, reason
        self.body = json.dumps({"error": text}).encode()
        self.headers = {"content-type": "application/json", "content-length": str(len(self.body))}
        if retry_after is not None:
            self.headers["retry-after"] = str(max(1, min(60, math.ceil(retry_after))))

    def start(self, **more: str) -> Message:
        """The first ASGI message of the answer."""
        headers = [(name.encode(), value.encode()) for name, value in {**self.headers, **more}.items()]
        return {"type": "http.response.start", "status": self.status, "headers": headers}


def internal_error(number: str) -> ApiError:
    return ApiError(500, f"the request failed; the service's log has more under {number}")
