"""Request bodies: read completely, with limits on size, time and the bytes of all bodies in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from saccade.serve.errors import ApiError, Message
from saccade.serve.settings import Settings

Receive = Callable[[], Awaitable[Message]]

DISCARD_SECONDS = 2.0  # how long the rest of a refused body is received and discarded


class ClientDisconnected(Exception):
    """The client has closed the connection."""


class BodyReader:
    """Reads request bodies and counts the bytes of those that are being handled."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self._bytes_held = 0

    @asynccontextmanager
    async def read(self, receive: Receive, declared: int) -> AsyncIterator[bytes]:
        """The body of one request. Its bytes count as held until the `with` block ends. `declared` is its
        Content-Length, or 0."""
        body = bytearray()
        self._check(declared)
        try:
            try:
                async with asyncio.timeout(self._settings.body_timeout):
                    async for chunk in _chunks(receive):
                        self._check(len(body) + len(chunk))
                        self._bytes_held += len(chunk)
                        body += chunk
            except TimeoutError:
                raise ApiError(408, "timeout while receiving the request body", reason="body_timeout") from None
            yield bytes(body)
        finally:
            self._bytes_held -= len(body)

    def _check(self, size: int) -> None:
        if size > self._settings.body_bytes:
            raise ApiError(
                413, f"the request body is longer than {self._settings.body_bytes:,} bytes", reason="body_too_large"
            )
        if self._bytes_held + size > self._settings.all_bodies_bytes:
            raise ApiError(503, "too many request bodies are in memory; try again later", 1, "bodies_too_large")


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        more = message.get("more_body", False)
        yield message.get("body", b"")


async def discard_body(receive: Receive) -> None:
    """Receive the rest of a body without keeping it: many clients read the response only after they have sent all."""
    with suppress(ClientDisconnected, TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            async for _ in _chunks(receive):
                pass
