"""The outermost ASGI layer: checks on every request, headers of every response, metrics, and cancellation.

A body is read completely before the application is called, so all limits on bodies are enforced here. When a client
disconnects, its request is cancelled.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from saccade.serve.bodies import BodyReader, ClientDisconnected, Receive, discard_body
from saccade.serve.errors import ApiError, Message, Send, internal_error, shutting_down
from saccade.serve.headers import NO_STORE, SECURITY_HEADERS
from saccade.serve.log import log_failure, new_request_id
from saccade.serve.metrics import Metrics
from saccade.serve.origins import check_host, check_origin
from saccade.serve.settings import Settings

Scope = MutableMapping[str, Any]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

CLIENT_CLOSED_REQUEST = 499  # the status, as in nginx, under which a disconnected client's request is counted


class TrackedResponse:
    """Sends a response with the headers common to all, and records how much of it has been sent."""

    def __init__(self, send: Send, request_id: str):
        self._send = send
        self._headers = {**SECURITY_HEADERS, "x-request-id": request_id}
        self.status = 0
        self.complete = False
        self.body_received = False  # of the request

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name.lower() for name, _ in message["headers"]}
            common = {**NO_STORE, **self._headers}.items()
            added = [(name.encode(), value.encode()) for name, value in common if name.encode() not in present]
            message = {**message, "headers": [*message["headers"], *added]}
        else:
            self.complete = not message.get("more_body", False)
        await self._send(message)

    async def send_error(self, error: ApiError, receive: Receive) -> None:
        """Send an error unless a response has begun, discard the rest of the request and close the connection."""
        if not self.status:
            await self.send(error.start_message(connection="close"))
            await self.send({"type": "http.response.body", "body": error.body, "more_body": True})
            if not self.body_received and error.status != 408:  # 408: the body has already timed out
                await discard_body(receive)
            await self.send({"type": "http.response.body", "body": b""})


class Middleware:
    """An ASGI application around another one. `endpoints` are the paths that have their own label in the metrics."""

    def __init__(self, inner: Application, settings: Settings, metrics: Metrics, endpoints: frozenset[str]):
        self._inner, self._settings, self._metrics, self._endpoints = inner, settings, metrics, endpoints
        self._bodies = BodyReader(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        start = time.monotonic()
        state = scope["state"] = {**scope.get("state", {}), "request_id": new_request_id(), "reason": ""}
        response = TrackedResponse(send, state["request_id"])
        try:
            await self._handle(scope, receive, response)
        except ApiError as error:
            state["reason"] = error.reason
            await response.send_error(error, receive)
        except ClientDisconnected:
            pass  # counted under CLIENT_CLOSED_REQUEST
        except asyncio.CancelledError:  # the grace period of the shutdown is over
            await response.send_error(shutting_down(), receive)
        except Exception as error:
            log_failure(state["request_id"], error)
            await response.send_error(internal_error(state["request_id"]), receive)
        finally:
            endpoint = scope["path"] if scope["path"] in self._endpoints else "other"
            status = response.status or CLIENT_CLOSED_REQUEST
            self._metrics.count_response(endpoint, status, time.monotonic() - start, state["reason"])

    async def _handle(self, scope: Scope, receive: Receive, response: TrackedResponse) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        head = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if head + len(scope["raw_path"]) + len(scope["query_string"]) > self._settings.head_bytes:
            raise ApiError(
                431, f"the request head is longer than {self._settings.head_bytes:,} bytes", reason="head_too_large"
            )
        host = headers.get("host", "")
        if host:
            check_host(host, self._settings)
        if "origin" in headers:
            check_origin(scope["method"], headers["origin"], host, self._settings)
        if headers.get("content-encoding", "identity") != "identity":
            raise ApiError(
                415, "compressed request bodies are not supported; send the body uncompressed", reason="encoding"
            )
        async with self._bodies.read(receive, int(headers.get("content-length", 0))) as body:
            response.body_received = True
            await self._run_application(scope, body, receive, response)

    async def _run_application(self, scope: Scope, body: bytes, receive: Receive, response: TrackedResponse) -> None:
        """Call the application with the received body, and cancel it if the client disconnects."""
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        disconnect = asyncio.ensure_future(receive())

        async def replay() -> Message:
            return messages.pop() if messages else await asyncio.shield(disconnect)

        application = asyncio.ensure_future(self._inner(scope, replay, response.send))
        try:
            await asyncio.wait((application, disconnect), return_when=asyncio.FIRST_COMPLETED)
            if not application.done() and not response.complete:
                application.cancel()
                with suppress(asyncio.CancelledError):
                    await application
                raise ClientDisconnected
            await application
        finally:
            disconnect.cancel()
            application.cancel()
