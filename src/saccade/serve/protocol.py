"""The HTTP protocol below the application: timeouts for slow clients, a limit on connections, and load shedding.

uvicorn itself waits without limit for a request head, and for a client to read its response.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from saccade.serve.errors import ApiError, Send
from saccade.serve.load_shedding import LoadShedder
from saccade.serve.settings import Settings

REJECTED_HEAD_TIMEOUT = 1.0  # seconds in which a connection over the limit may send the head of its only request


def protocol_class(settings: Settings, load_shedder: LoadShedder) -> type[H11Protocol]:
    """The protocol class with these settings, for uvicorn's option `http`."""

    class Protocol(GuardedProtocol):
        limits, shedder = settings, load_shedder

    return Protocol


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol with timeouts for request heads and for reading responses, and a limit on connections."""

    limits: Settings
    shedder: LoadShedder
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] - as in uvicorn
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # pause_writing is called as soon as the client does not read
        timeout = self.limits.head_timeout
        if len(self.connections) > self.limits.connections:
            # If we closed at once, a client that is still sending might never read the response.
            self.app, timeout = _reject_connection, REJECTED_HEAD_TIMEOUT
        self._head_timer = self.loop.call_later(timeout, self._head_timed_out)

    def data_received(self, data: bytes) -> None:
        if self._is_between_requests() and (refusal := self.shedder.refusal(data)):
            self.transport.write(refusal)
            self._start_keep_alive()
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head_timer = _cancel(self._head_timer)
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.head_timeout, self._head_timed_out)

    def _is_between_requests(self) -> bool:
        """Whether a new request may begin. A connection over the limit is closed after its first request, so it does
        not count."""
        rejected = self.app is _reject_connection
        return not rejected and self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

    def _start_keep_alive(self) -> None:
        """Wait for the next request, as uvicorn does after a complete response."""
        self._head_timer = _cancel(self._head_timer)
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _head_timed_out(self) -> None:
        self._send_error(ApiError(408, "timeout while receiving the request head"))

    def send_400_response(self, msg: str) -> None:
        if len(self.conn.trailing_data[0]) > self.limits.head_bytes:
            self._send_error(ApiError(431, f"the request head is longer than {self.limits.head_bytes:,} bytes"))
        else:
            self._send_error(ApiError(400, "this is not a valid HTTP/1.1 request"))

    def _send_error(self, error: ApiError) -> None:
        """Send an error without the application, and close the connection."""
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [*error.headers.items(), ("connection", "close")]
            response = h11.Response(status_code=error.status, headers=headers)
            for event in (response, h11.Data(data=error.body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    # ── responses that the client does not read ──

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.write_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_timer = _cancel(self._write_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer, self._write_timer = _cancel(self._head_timer), _cancel(self._write_timer)
        super().connection_lost(exc)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    """Cancel a timer; returns None, its new value."""
    if timer is not None:
        timer.cancel()


async def _reject_connection(scope: Any, receive: Any, send: Send) -> None:
    """The ASGI application of a connection over the limit."""
    error = ApiError(503, "too many connections are open; try again later", 1)
    await send(error.start_message(connection="close"))
    await send({"type": "http.response.body", "body": error.body})
