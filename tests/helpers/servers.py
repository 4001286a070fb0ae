"""Servers to ask: the command in a process of its own, or an application in a thread of this one."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import ndpp
from command import ENVIRONMENT, spawn
from ndpp.datasets import shelf_kernel

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
    with httpx.Client(verify=False, trust_env=False, timeout=20) as client:
        return client.request(method, url, **options)


def get(url: str, **options: Any) -> httpx.Response:
    """Ask once."""
    return request("GET", url, **options)


def post(url: str, **options: Any) -> httpx.Response:
    """Ask once."""
    return request("POST", url, **options)


class Server:
    """The command ``ndpp serve`` in a process of its own."""

    def __init__(self, *arguments: Any, env: dict[str, str] | None = None) -> None:
        options = {"env": env or ENVIRONMENT, "stdout": subprocess.DEVNULL}
        self.process = spawn("serve", *arguments, "--port", 0, cwd=Path.cwd(), **options)
        self.lines: list[str] = []
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()
        if not self._listening.wait(60) or not self.url:
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
        for _ in range(600):
            try:
                if get(f"{self.url}/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        pytest.fail("the server is not ready")

    def stop(self) -> int:
        """End it as a service manager would; return its exit code."""
        self.process.terminate()
        code = self.process.wait(30)
        self._thread.join(10)
        return code


@contextmanager
def serving(app: Any, *, loading: bool = False) -> Iterator[str]:
    """Serve an application in a thread; give its address once it is ready, or at once, while it is ``loading``."""
    import uvicorn

    from ndpp.serve.run import PatientProtocol

    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = uvicorn.Server(uvicorn.Config(app, http=PatientProtocol, log_config=None, server_header=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        try:
            for _ in range(0 if loading else 1200):
                if get(f"{url}/ready").status_code == 200:
                    break
                time.sleep(0.05)
            yield url
        finally:
            server.should_exit = True
            thread.join(30)
