"""Serve a model: in this process, or in several that share a port."""

from __future__ import annotations

import asyncio
import json
import logging.config
import os
import socket
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import threadpoolctl
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

import ndpp
from ndpp.serve.app import create_app
from ndpp.serve.gate import Gate, read_token
from ndpp.serve.limits import HEADER_SECONDS, Limits
from ndpp.serve.operations import CONFIG, FOLDER, event

SETTINGS = "NDPP_SERVE"
"""Environment variable by which the first process tells the others what to serve."""
GRACE_SECONDS = 30
"""How long requests may go on after the signal to stop."""


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with patience and without delay.

    A connection that brings no complete request within some seconds is closed. Answers go out at once: asyncio does not switch Nagle's
    algorithm off for sockets made by hand, and with it the body of each answer waits some 40 ms for the client to acknowledge the headers.
    """

    _seen: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._look_later()

    def _look_later(self) -> None:
        self._seen = self.cycle
        self.loop.call_later(HEADER_SECONDS, self._look)

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self.cycle is self._seen:
            self.transport.close()
        else:
            self._look_later()


class Settings(NamedTuple):
    """What to serve, and where."""

    path: str
    host: str = "127.0.0.1"
    port: int = 8000
    token_file: str | None = None
    workers: int = 1
    seconds: float = 10.0

    def app(self) -> Gate:
        """Return the application, with a thread for each core that is its share."""
        threadpoolctl.threadpool_limits(1, user_api="blas")  # requests run side by side instead
        token = None if self.token_file is None else read_token(Path(self.token_file))
        threads = max(1, joblib.cpu_count() // self.workers)
        return create_app(self.path, token=token, host=self.host, limits=Limits(self.seconds, threads))


def worker_app() -> Gate:
    """Return the application of one of several processes."""
    return Settings(**json.loads(os.environ[SETTINGS])).app()


def run(settings: Settings) -> None:
    """Serve until a signal says stop. What is wrong with the model, the token or the address is raised before."""
    common: dict[str, Any] = {
        "http": PatientProtocol,
        "log_config": CONFIG,
        "access_log": False,  # the application writes its own
        "server_header": False,
        "timeout_graceful_shutdown": GRACE_SECONDS,
    }
    if settings.workers == 1:
        app = settings.app()
        with _listening(settings) as bound:
            uvicorn.Server(uvicorn.Config(app, **common)).run(sockets=[bound])
        return
    ndpp.load(settings.path)
    if settings.token_file is not None:
        read_token(Path(settings.token_file))
    with _listening(settings) as tried:  # an address that is taken is an error here, not in the log of a worker
        port = tried.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ndpp-serve-") as folder:
        os.environ |= {SETTINGS: json.dumps(settings._asdict()), FOLDER: folder}
        where = {"host": settings.host, "port": port, "workers": settings.workers}
        uvicorn.run("ndpp.serve.run:worker_app", factory=True, **where, **common)


def _listening(settings: Settings) -> socket.socket:
    """Return a socket that listens at the address; log where."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    bound = socket.create_server((settings.host, settings.port), family=family, backlog=512)
    shown = f"[{settings.host}]" if family == socket.AF_INET6 else settings.host
    logging.config.dictConfig(CONFIG)
    event("listening", url=f"http://{shown}:{bound.getsockname()[1]}/", model=settings.path, workers=settings.workers)
    return bound
