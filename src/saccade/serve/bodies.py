"""Bodies of requests: read whole, within a size and a time, and never too many at once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from saccade.serve.errors import ApiError, Message
from saccade.serve.settings import Settings

Receive = Callable[[], Awaitable[Message]]

DISCARD_SECONDS = 2.0  # seconds in which the rest of a refused body is thrown away, so that its sender can read why


class ClientDisconnected(Exception):
    """The client has closed the connection."""


class Bodies:
    """The bodies that are held at a time."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self._held = 0  # bytes

    @asynccontextmanager
    async def read(self, receive: Receive, declared: int) -> AsyncIterator[bytes]:
        """The body of one request, counted for as long as the block runs."""
        body = bytearray()
        self._check(declared)
        try:
            try:
                async with asyncio.timeout(self._settings.body_timeout):
                    async for chunk in _chunks(receive):
                        self._check(len(body) + len(chunk))
                        self._held += len(chunk)
                        body += chunk
            except TimeoutError:
                raise ApiError(408, "the body of the request did not come in time", reason="slow") from None
            yield bytes(body)
        finally:
            self._held -= len(body)

    def _check(self, size: int) -> None:
        if size > self._settings.body:
            raise ApiError(413, f"a request may have {self._settings.body:,} bytes", reason="body")
        if self._held + size > self._settings.bodies:
            raise ApiError(503, "too many requests are being read; try again later", 1, "bodies")


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        more = message.get("more_body", False)
        yield message.get("body", b"")


async def throw_away(receive: Receive) -> None:
    with suppress(ClientDisconnected, TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            async for _ in _chunks(receive):
                pass
