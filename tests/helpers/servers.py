"""Servers to ask: the command in a process of its own, or an application in a thread of this one."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import ndpp
from command import ENVIRONMENT, spawn
from ndpp.datasets import shelf_kernel
from patience import HANG_SECONDS, serve_patiently, until

ODD = ("<script>alert(1)</script>", "\"quoted\" & 'single'", "🧀 Käse", "خبز عربي", "a/b?c=d#e", "crème brûlée")
"""Labels that break pages, addresses and alphabets."""


def odd_kernel() -> ndpp.LowRankKernel:
    """The shelf of groceries, and items with odd names that are independent of the others."""
    shelf = shelf_kernel()
    n, d, more = *shelf.X.shape, len(ODD)
    X, W = np.zeros((n + more, d + more)), np.eye(d + more)
    X[:n, :d], W[:d, :d] = shelf.X, shelf.W
    X[n:, d:] = 0.5 * np.eye(more)
    return ndpp.LowRankKernel(X, W, labels=[*(shelf.labels or ()), *ODD])


BREAKFAST = ["bread", "rolls", "butter", "jam", "coffee", "tea"]


def trips() -> ndpp.Mixture:
    """Two missions on the shelf of groceries, one with an odd name."""
    shelf = shelf_kernel()
    early = np.isin(shelf.labels, BREAKFAST)[:, None]
    kernels = [
        ndpp.LowRankKernel(shelf.X * np.where(early == wanted, 1.5, 0.3), shelf.W, labels=shelf.labels)
        for wanted in (True, False)
    ]
    return ndpp.Mixture(kernels, [0.4, 0.6], names=["breakfast", "<b>dinner</b>"])


def request(method: str, url: str, **options: Any) -> httpx.Response:
    """Ask once, over a connection of its own. Certificates, which take a while to read, are not needed here."""
    with httpx.Client(verify=False, trust_env=False, timeout=HANG_SECONDS) as client:
        return client.request(method, url, **options)


def get(url: str, **options: Any) -> httpx.Response:
    """Ask once."""
    return request("GET", url, **options)


def post(url: str, **options: Any) -> httpx.Response:
    """Ask once."""
    return request("POST", url, **options)


def assert_same_answer(found: Any, expected: Any) -> None:
    """Assert that two answers agree: words and order exactly, numbers up to rounding."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_same_answer(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            assert_same_answer(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    else:
        assert found == expected


class Server:
    """The command ``ndpp serve`` in a process of its own."""

    def __init__(
        self, *arguments: Any, env: dict[str, str] | None = None, first: Callable[[], None] = serve_patiently
    ) -> None:
        options: dict[str, Any] = {"env": env or ENVIRONMENT, "stdout": subprocess.DEVNULL}
        if hasattr(os, "fork"):
            options["preexec_fn"] = first
        words = ("--port", 0, "--seconds", HANG_SECONDS)
        self.process = spawn("serve", *arguments, *words, cwd=Path.cwd(), **options)
        self.lines: list[str] = []
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()
        if not self._listening.wait(HANG_SECONDS) or not self.url:
            self.process.kill()
            pytest.fail("the server did not start:\n" + "".join(self.lines))
        self.await_ready()

    def _drain(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.lines.append(line.decode())
                if b'"listening"' in line:
                    self._listening.set()
        self._listening.set()

    @property
    def url(self) -> str:
        """Where it listens."""
        return next((event["url"] for event in self.events if event["event"] == "listening"), "").rstrip("/")

    @property
    def events(self) -> list[dict[str, Any]]:
        """What it has logged; every line must be JSON."""
        return [json.loads(line) for line in list(self.lines)]

    def await_ready(self) -> None:
        """Wait until it answers."""

        def is_ready() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return get(f"{self.url}/ready").status_code == 200
            return False

        until(is_ready, pause=0.05)

    def stop(self) -> int:
        """End it as a service manager would; return its exit code."""
        self.process.terminate()
        code = self.process.wait(HANG_SECONDS)
        self._thread.join(HANG_SECONDS)
        return code


@contextmanager
def serving(app: Any, *, loading: bool = False) -> Iterator[str]:
    """Serve an application in a thread; give its address once it is ready, or at once, while it is ``loading``.

    An answer may take as long as it needs on a busy machine, unless the application has limits of its own.
    """
    import uvicorn

    from ndpp.serve.model import Settings
    from ndpp.serve.run import PatientProtocol

    work = app.app.state.work
    if work.seconds == Settings("").seconds:
        work.seconds = HANG_SECONDS
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = uvicorn.Server(uvicorn.Config(app, http=PatientProtocol, log_config=None, server_header=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        until(lambda: server.started, pause=0.01)
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        try:
            if not loading:
                until(lambda: get(f"{url}/ready").status_code == 200)
            yield url
        finally:
            server.should_exit = True
            thread.join(HANG_SECONDS)
