"""`saccade serve`: load the runs, listen, and shut down gracefully after a signal."""

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
from saccade.devices import DeviceName
from saccade.errors import RunError
from saccade.serve.app import create_app
from saccade.serve.language_pairs import parse_run_argument
from saccade.serve.languages import language_pair_of
from saccade.serve.load_shedding import LoadShedder
from saccade.serve.models import ServedModel
from saccade.serve.protocol import protocol_class
from saccade.serve.service import Service
from saccade.serve.settings import Settings

LISTEN_BACKLOG = 2048


def serve(runs: Sequence[str], settings: Settings, keys: Sequence[str]) -> None:
    """Serve runs until SIGINT or SIGTERM."""
    listener = bind_socket(settings)
    listen(Service(load_models(runs, settings.engine, settings.device), settings, keys), listener)


def listen(service: Service, listener: socket.socket) -> None:
    """Run the server on a bound socket until SIGINT or SIGTERM."""
    logging.basicConfig(format="saccade: %(message)s", stream=sys.stderr)
    settings = service.settings
    config = uvicorn.Config(
        create_app(service),
        http=protocol_class(settings, LoadShedder(service.queue.check_capacity, service.metrics)),
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
        h11_max_incomplete_event_size=settings.head_bytes,
    )
    gc.collect()
    gc.freeze()  # the loaded models are never garbage: exclude them from every later collection
    server = Server(config, service)
    server.run([listener])
    if server.interrupted:  # the event loop may swallow the KeyboardInterrupt
        raise KeyboardInterrupt


def load_models(runs: Sequence[str], engine: str = "torch", device: DeviceName = "auto") -> list[ServedModel]:
    """Load the runs of the command line: a path, or `en-de=PATH`."""
    models: list[ServedModel] = []
    for argument in runs:
        pair, path = parse_run_argument(argument)
        run = Run(Path(path), engine=engine, device=device)
        pair = pair or language_pair_of(run.recipe)
        if pair is None:
            raise RunError(f"{path}: the languages of this run are unknown; give them, for example en-de={path}")
        name = run.folder.path.resolve().name
        if any(model.name == name for model in models):
            raise RunError(f"{path}: another run is also named {name}; rename one of the folders")
        models.append(ServedModel(run, name, *pair))
    return models


def bind_socket(settings: Settings) -> socket.socket:
    """Bind the socket before the models are loaded, so that a wrong address fails at once."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        port_problem = error.errno in (errno.EADDRINUSE, errno.EACCES)
        hint = "choose another port with --port" if port_problem else "choose another address with --host"
        raise RunError(f"{settings.host}:{settings.port}: cannot listen: {error.strerror}; {hint}") from None
    return listener


class Server(uvicorn.Server):
    """uvicorn with draining: after a signal it finishes the queued requests and answers new ones with 503, for at most
    `grace` seconds."""

    def __init__(self, config: uvicorn.Config, service: Service):
        super().__init__(config)
        self._service = service
        self._stop_time: float | None = None
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
        print(f"saccade: serving {models} at {address} (Ctrl-C to stop)", file=sys.stderr, flush=True)
        if not ipaddress.ip_address(host).is_loopback:
            key = " with an API key" if self._service.requires_key else ""
            print(
                f"saccade: warning: anyone{key} who can reach this address can translate", file=sys.stderr, flush=True
            )

    async def on_tick(self, counter: int) -> bool:
        if not await super().on_tick(counter):
            return False
        now = time.monotonic()
        if self._stop_time is None:
            self._stop_time = now + self._service.settings.grace
            self._service.queue.draining = True
        self.config.timeout_graceful_shutdown = max(1, round(self._stop_time - now))
        return self._service.queue.empty or now >= self._stop_time or self.force_exit
