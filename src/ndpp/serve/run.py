"""Serve a model: in this process, or in several that share a port."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging.config
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import threadpoolctl
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ndpp.answers.changes import check_in_common
from ndpp.answers.records import names_of
from ndpp.errors import InvalidInputError
from ndpp.laws.files import load_header
from ndpp.serve import problems
from ndpp.serve.app import create_app
from ndpp.serve.gate import Entrance, read_token
from ndpp.serve.limits import DISCARD_SECONDS, HEAD_BYTES, HEAD_LINES, HEADER_SECONDS
from ndpp.serve.model import Settings
from ndpp.serve.operations import CONFIG, FOLDER, event

SETTINGS = "NDPP_SERVE"
"""Environment variable by which the first process tells the others what to serve."""
LAST_SECONDS = 5
"""How long refusals may take after that, and the process to end after its last answer."""
SWITCH_SECONDS = 0.0005
"""How long a thread that draws may hold the interpreter while others, with quick answers, wait for it."""
START_SECONDS = 60
"""How long one of several processes may take until it can say that it is alive."""
GRACE_SECONDS = 20
"""How long requests may go on after the signal to stop; then they are refused. The process ends within half a minute of the signal."""


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits and without delay.

    A request line and headers that are too long are refused before they are kept. A connection that brings no complete request within some
    seconds is closed. Answers go out at once: asyncio does not switch Nagle's algorithm off for sockets made by hand, and with it the body
    of each answer waits some 40 ms for the client to acknowledge the headers.
    """

    _seen: object = None
    _head, _lines, _parts = 0, 0, 0
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._look_later()

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived. What gives the parser nothing to tell, such as a header without an end, it keeps: that counts, too."""
        parts = self._parts
        if not self._refused:
            super().data_received(data)
            with contextlib.suppress(ValueError):
                self._count(n_bytes=len(data) if self._parts == parts else 0)

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be parsed; the parser also stops at what was refused, which has its answer."""
        if not self._refused:
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        """Begin a request, and let the application cut the connection."""
        super().on_message_begin()
        self._head, self._lines = 0, 0
        self.scope["ndpp.abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]

    def on_url(self, url: bytes) -> None:
        """Count a part of the request line."""
        self._count(n_bytes=len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header, and keep it unless there are too many."""
        self._count(n_bytes=len(name) + len(value), n_lines=1)
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body, which has a limit of its own."""
        self._parts, self._head = self._parts + 1, 0
        super().on_body(body)

    def _count(self, *, n_bytes: int, n_lines: int = 0) -> None:
        """Count what has arrived; refuse the request, and stop the parser, where it is too much."""
        self._parts, self._head, self._lines = self._parts + 1, self._head + n_bytes, self._lines + n_lines
        if self._refused or (self._head <= HEAD_BYTES and self._lines <= HEAD_LINES):
            return
        self._refused = True
        detail = f"a request may have {HEAD_LINES} headers, and {HEAD_BYTES:,} bytes of them"
        body = bytes(problems.reply(problems.of_status(431, detail)).body)
        head = (
            "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
            f"content-type: {problems.MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        with contextlib.suppress(OSError):  # the client has gone
            self.transport.write_eof()
        self.loop.call_later(DISCARD_SECONDS, self.transport.close)  # until then the rest is read: the answer arrives
        raise ValueError(detail)

    def shutdown(self) -> None:
        """Let a request end, or refuse it."""
        super().shutdown()
        self.loop.call_later(GRACE_SECONDS, self.app_state["close"])

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


def app_of(settings: Settings, refused: Callable[[Exception], None] | None = None) -> Entrance:
    """Return the application, with a thread for each core that is its share; ``refused`` is told of a file that cannot be loaded."""
    threadpoolctl.threadpool_limits(1, user_api="blas")  # requests run side by side instead
    logging.captureWarnings(True)  # into the log, as JSON
    sys.setswitchinterval(SWITCH_SECONDS)
    settings = settings._replace(threads=max(1, joblib.cpu_count() // settings.workers))
    return create_app(settings, at_end=_end_soon, refused=refused)


def _end_soon() -> None:
    """End the process in some seconds, even if a thread does not look whether to stop: only Ctrl-C, unlike SIGTERM, waits for threads."""
    last = threading.Timer(LAST_SECONDS, os._exit, [128 + signal.SIGINT])
    last.daemon = True
    last.start()


def worker_app() -> Entrance:
    """Return the application of one of several processes."""
    return app_of(Settings(**json.loads(os.environ[SETTINGS])))


def run(settings: Settings) -> None:
    """Serve until a signal says stop. What is wrong with the address, the token or the file is raised before; the model is loaded after."""
    common: dict[str, Any] = {
        "http": PatientProtocol,
        "log_config": CONFIG,
        "ws": "none",
        "access_log": False,  # the application writes its own
        "server_header": False,
        "timeout_graceful_shutdown": GRACE_SECONDS + LAST_SECONDS,
        "timeout_worker_healthcheck": START_SECONDS,
    }
    for own in settings.by_name().values():
        load_header(Path(own.path))  # what is no model at all is an error now, not when all of it is read
    if settings.since is not None:
        both = (load_header(Path(path)) for path in (settings.path, settings.since))
        check_in_common(*(names_of(one.labels, range(one.n_items)) for one in both))
    if settings.token_file is not None:
        read_token(Path(settings.token_file))
    for path in settings.files:
        os.stat(path)
    if settings.pictures is not None and not os.path.isdir(settings.pictures):
        raise InvalidInputError(f"names a folder; {str(settings.pictures)!r} is none", argument="pictures")
    bound, failures = _listening(settings), list[Exception]()
    if settings.workers == 1:

        def end(error: Exception) -> None:
            failures.append(error)
            server.should_exit = True

        with bound:
            server = uvicorn.Server(uvicorn.Config(app_of(settings, end), **common))
            server.run(sockets=[bound])
        if failures:
            raise failures[0]
        return
    with bound:  # an address that is taken is an error here, not in the log of a worker
        port = bound.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ndpp-serve-") as folder:
        os.environ |= {SETTINGS: json.dumps(settings._asdict(), default=str), FOLDER: folder}
        where = {"host": settings.host, "port": port, "workers": settings.workers}
        uvicorn.run("ndpp.serve.run:worker_app", factory=True, **where, **common)


def _listening(settings: Settings) -> socket.socket:
    """Return a socket that listens at the address; log where."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    shown = f"[{settings.host}]" if family == socket.AF_INET6 else settings.host
    try:
        bound = socket.create_server((settings.host, settings.port), family=family, backlog=512)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "the port is in use by another program; choose another with --port, or 0 for any that is free"
        raise OSError(
            f"cannot listen at {shown}:{settings.port}: {why if taken else error.strerror or error}"
        ) from None
    logging.config.dictConfig(CONFIG)
    about: dict[str, Any] = {"url": f"http://{shown}:{bound.getsockname()[1]}/", "model": str(settings.path)}
    about |= {"more": list(map(str, settings.more))} if settings.more else {}
    event("listening", **about, workers=settings.workers)
    return bound
