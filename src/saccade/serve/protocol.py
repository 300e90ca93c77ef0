"""The wire below the application: clients that are slow, silent or long-winded are let go.

uvicorn waits for ever for a head, and for ever for an answer to be read; here both have their time.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from saccade.serve.errors import ApiError, Send
from saccade.serve.load_shedding import LoadShedder
from saccade.serve.settings import Settings


def protocol(settings: Settings, gate: LoadShedder) -> type[H11Protocol]:
    """The protocol with these limits, for uvicorn's `http`."""

    class Protocol(GuardedProtocol):
        limits, shedder = settings, gate

    return Protocol


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol with time-outs for the head and for reading the answer, and a limit on connections."""

    limits: Settings
    shedder: LoadShedder
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] - as in uvicorn
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # so that we hear of every byte that is not taken
        patience = self.limits.header_timeout
        if len(self.connections) > self.limits.connections:
            # To close at once could take the answer away from a client that is still sending.
            self.app, patience = _turn_away, 1.0
        self._head_timer = self.loop.call_later(patience, self._head_is_late)

    def data_received(self, data: bytes) -> None:
        if self._may_ask_again() and (refusal := self.shedder.refusal(data)):
            self.transport.write(refusal)
            self._wait_for_next()
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head_timer = _cancelled(self._head_timer)
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.header_timeout, self._head_is_late)

    def _may_ask_again(self) -> bool:
        """Whether no request is under way, and the connection is not one too many, which is closed after its first."""
        return self.app is not _turn_away and self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

    def _wait_for_next(self) -> None:
        """As uvicorn does when an answer is complete."""
        self._head_timer = _cancelled(self._head_timer)
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _head_is_late(self) -> None:
        self._refuse(ApiError(408, "the head of the request did not come in time"))

    def send_400_response(self, msg: str) -> None:
        if len(self.conn.trailing_data[0]) > self.limits.header:
            self._refuse(ApiError(431, f"the head of a request may have {self.limits.header:,} bytes"))
        else:
            self._refuse(ApiError(400, "this is not a valid HTTP/1.1 request"))

    def _refuse(self, refusal: ApiError) -> None:
        """Answer below the application, and close."""
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [*refusal.headers.items(), ("connection", "close")]
            response = h11.Response(status_code=refusal.status, headers=headers)
            for event in (response, h11.Data(data=refusal.body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    # ── answers that nobody reads ──

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.write_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_timer = _cancelled(self._write_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer, self._write_timer = _cancelled(self._head_timer), _cancelled(self._write_timer)
        super().connection_lost(exc)


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


async def _turn_away(scope: Any, receive: Any, send: Send) -> None:
    refusal = ApiError(503, "too many connections are open; try again later", 1)
    await send(refusal.start(connection="close"))
    await send({"type": "http.response.body", "body": refusal.body})
