"""`saccade serve`: from runs to a listening server, and back again when it is told to stop."""

import errno
import gc
import ipaddress
import logging
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import uvicorn

from saccade.api import Run
from saccade.errors import RunError
from saccade.serve.app import application
from saccade.serve.language_pairs import parse_run_argument
from saccade.serve.languages import pair_of
from saccade.serve.load_shedding import LoadShedder
from saccade.serve.models import ServedModel
from saccade.serve.protocol import protocol
from saccade.serve.service import Service
from saccade.serve.settings import Settings

LISTEN_BACKLOG = 2048


def serve(runs: Sequence[str], settings: Settings, keys: Sequence[str]) -> None:
    """Serve runs until a signal comes."""
    listener = bind_socket(settings)
    listen(Service(load_models(runs, settings.engine), settings, keys), listener)


def listen(service: Service, listener: socket.socket) -> None:
    """Answer what comes in at a socket until a signal comes."""
    logging.basicConfig(format="saccade: %(message)s", stream=sys.stderr)
    settings = service.settings
    config = uvicorn.Config(
        application(service),
        http=protocol(settings, LoadShedder(service.queue.check_capacity, service.metrics)),
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=LISTEN_BACKLOG,
        timeout_keep_alive=max(1, round(settings.keep_alive)),
        h11_max_incomplete_event_size=settings.header,
    )
    gc.collect()
    gc.freeze()  # what was loaded is never garbage: not looked through again, neither while serving nor at the exit
    server = Server(config, service)
    server.run([listener])
    if server.interrupted:  # by two signals, of which the event loop may swallow both
        raise KeyboardInterrupt


def load_models(runs: Sequence[str], engine: str = "torch") -> list[ServedModel]:
    """The models of runs as they were typed."""
    models: list[ServedModel] = []
    for argument in runs:
        pair, path = parse_run_argument(argument)
        run = Run(Path(path), engine=engine)
        pair = pair or pair_of(run.recipe)
        if pair is None:
            raise RunError(f"{path}: does not say which languages it translates; write them, such as en-de={path}")
        name = run.folder.path.resolve().name
        if any(model.name == name for model in models):
            raise RunError(f"{path}: there is already a run called {name}; give one of them another name")
        models.append(ServedModel(run, name, *pair))
    return models


def bind_socket(settings: Settings) -> socket.socket:
    """A socket at the address, before anything slow is done."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
        hint = "choose another with --port" if taken else "choose another with --host"
        raise RunError(f"{settings.host}:{settings.port}: cannot listen there: {error.strerror}; {hint}") from None
    return listener


class Server(uvicorn.Server):
    """uvicorn, with a drain: after a signal it still answers, 503 to new work, until the work in hand is done."""

    def __init__(self, config: uvicorn.Config, service: Service):
        super().__init__(config)
        self._service = service
        self._stop_by: float | None = None
        self.interrupted = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.interrupted |= sig == signal.SIGINT
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        assert sockets
        host, port = sockets[0].getsockname()[:2]
        models = ", ".join(f"{m.name} ({m.source} → {m.target})" for m in self._service.registry.models.values())
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        print(f"saccade: serving {models} at {address} (Ctrl-C stops it)", file=sys.stderr, flush=True)
        if not ipaddress.ip_address(host).is_loopback:
            whom = "anyone with a key who" if self._service.requires_key else "anyone who"
            print(f"saccade: warning: {whom} can reach this address may translate here", file=sys.stderr, flush=True)

    async def on_tick(self, counter: int) -> bool:
        if not await super().on_tick(counter):
            return False
        now = time.monotonic()
        if self._stop_by is None:
            self._stop_by = now + self._service.settings.grace
            self._service.queue.draining = True
        self.config.timeout_graceful_shutdown = max(1, round(self._stop_by - now))
        return self._service.queue.empty or now >= self._stop_by or self.force_exit
