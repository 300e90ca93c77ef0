"""The border of the application: limits on what comes in, and what every answer carries.

A body is read whole before the application sees the request, so all limits on it stand here. A client that goes away
cancels its request.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from saccade.serve.bodies import Bodies, ClientDisconnected, Receive, throw_away
from saccade.serve.errors import ApiError, Message, Send, internal_error
from saccade.serve.headers import NO_STORE, SECURITY_HEADERS
from saccade.serve.log import log_failure, new_request_id
from saccade.serve.metrics import Metrics
from saccade.serve.origins import check_host, check_origin
from saccade.serve.settings import Settings

Scope = MutableMapping[str, Any]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

CLIENT_CLOSED = 499  # the client had gone


class TrackedResponse:
    """What goes back: with the headers that every answer has, and a memory of how far it is."""

    def __init__(self, send: Send, number: str):
        self._send = send
        self._headers = {**SECURITY_HEADERS, "x-request-id": number}
        self.status = 0
        self.whole = False
        self.heard_all = False  # of the request

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = {name.lower() for name, _ in message["headers"]}
            more = {**NO_STORE, **self._headers}.items()
            added = [(name.encode(), value.encode()) for name, value in more if name.encode() not in given]
            message = {**message, "headers": [*message["headers"], *added]}
        else:
            self.whole = not message.get("more_body", False)
        await self._send(message)

    async def refuse(self, refusal: ApiError, receive: Receive) -> None:
        """Say why not, and close; whatever still comes in is thrown away first."""
        if not self.status:
            await self.send(refusal.start(connection="close"))
            await self.send({"type": "http.response.body", "body": refusal.body, "more_body": True})
            if not self.heard_all and refusal.status != 408:  # which has had its time
                await throw_away(receive)
            await self.send({"type": "http.response.body", "body": b""})


class Middleware:
    """An ASGI application round another. `endpoints` are the paths that are counted by name."""

    def __init__(self, inner: Application, settings: Settings, metrics: Metrics, endpoints: frozenset[str]):
        self._inner, self._settings, self._metrics, self._endpoints = inner, settings, metrics, endpoints
        self._bodies = Bodies(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        began = time.monotonic()
        state = scope["state"] = {**scope.get("state", {}), "number": new_request_id(), "reason": ""}
        answer = TrackedResponse(send, state["number"])
        try:
            await self._visit(scope, receive, answer)
        except ApiError as refusal:
            state["reason"] = refusal.reason
            await answer.refuse(refusal, receive)
        except ClientDisconnected:
            state["reason"] = "gone"
        except asyncio.CancelledError:  # the server's grace is over
            await answer.refuse(ApiError(503, "the service is shutting down", 1), receive)
        except Exception as error:
            log_failure(state["number"], error)
            await answer.refuse(internal_error(state["number"]), receive)
        finally:
            endpoint = scope["path"] if scope["path"] in self._endpoints else "other"
            seconds = time.monotonic() - began
            self._metrics.answered(endpoint, answer.status or CLIENT_CLOSED, seconds, state["reason"])

    async def _visit(self, scope: Scope, receive: Receive, answer: TrackedResponse) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        head = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if head + len(scope["raw_path"]) + len(scope["query_string"]) > self._settings.header:
            raise ApiError(431, f"the head of a request may have {self._settings.header:,} bytes", reason="head")
        host = headers.get("host", "")
        if host:
            check_host(host, self._settings)
        if "origin" in headers:
            check_origin(scope["method"], headers["origin"], host, self._settings)
        if headers.get("content-encoding", "identity") != "identity":
            raise ApiError(415, "the body must not be compressed", reason="encoding")
        async with self._bodies.read(receive, int(headers.get("content-length", 0))) as body:
            answer.heard_all = True
            await self._answered(scope, body, receive, answer)

    async def _answered(self, scope: Scope, body: bytes, receive: Receive, answer: TrackedResponse) -> None:
        """Let the application answer for as long as the client is there."""
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        gone = asyncio.ensure_future(receive())

        async def replay() -> Message:
            return messages.pop() if messages else await asyncio.shield(gone)

        work = asyncio.ensure_future(self._inner(scope, replay, answer.send))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not answer.whole:
                work.cancel()
                with suppress(asyncio.CancelledError):
                    await work
                raise ClientDisconnected
            await work
        finally:
            gone.cancel()
            work.cancel()
