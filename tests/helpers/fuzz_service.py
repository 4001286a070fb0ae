"""Ordinary and hostile clients of one server, with a watch on its answers, its memory and its end; a part of :mod:`fuzz`.

python tests/helpers/fuzz_service.py --seconds 3600 --pause 0.3         one server for an hour, with about 60,000 requests
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

import ndpp
from command import launch
from fuzz_files import Failure
from patience import HANG_SECONDS, until

N_ITEMS = 1500
GROWTH = 64e6
"""How many bytes of memory the server may take in addition to those after its first requests."""


@cache
def model_file() -> Path:
    """A tied mixture over many items, whose large samples take long."""
    rng, d = np.random.default_rng(0), 20
    skew = rng.normal(size=(d, d)) / 2
    odds, X = np.exp(rng.normal(-4, 1.5, (4, N_ITEMS))), rng.normal(size=(N_ITEMS, d)) / 5
    path = Path(tempfile.mkdtemp(prefix="ndpp-fuzz-")) / "model.safetensors"
    ndpp.save(ndpp.Mixture.tied(odds, X, np.eye(d) + skew - skew.T, np.full(4, 0.25)), path)
    return path


class Service:
    """A server in a process of its own, and what was seen of it."""

    def __init__(self) -> None:
        self.process = launch(
            *("serve", model_file(), "--port", 0), cwd=Path.cwd(), stdout=subprocess.DEVNULL
        )  # fmt: skip
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        try:
            self.url = json.loads(line)["url"].rstrip("/")
        except (ValueError, KeyError):
            raise Failure(f"the server did not start: {line!r}") from None
        self.lines: list[bytes] = []
        threading.Thread(target=self._drain, daemon=True).start()
        until(lambda: httpx.get(f"{self.url}/ready").status_code == 200, pause=0.2)
        self.statuses: Counter[int] = Counter()
        self.problems: list[str] = []
        self.times: list[float] = []
        self.over = threading.Event()

    def _drain(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    @property
    def memory(self) -> float:
        """Resident bytes."""
        return float(psutil.Process(self.process.pid).memory_info().rss)

    def ordinary(self, draw: random.Random) -> None:
        """Ask what people ask; how long it takes is noted, not judged."""
        basket = draw.sample(range(N_ITEMS), draw.randint(0, 5))
        path, body = draw.choice([
            ("recommend", {"basket": basket, "n": 10}), ("why", {"basket": basket, "item": (basket or [0])[0] ^ 1}),
            ("probability", {"basket": basket}), ("recommend", {"basket": basket, "ranking": "lift"}),
        ])  # fmt: skip
        began = time.perf_counter()
        with httpx.Client(trust_env=False, verify=False, timeout=HANG_SECONDS) as client:
            response = client.post(f"{self.url}/api/{path}", json=body)
        self.times.append(time.perf_counter() - began)
        self.statuses[response.status_code] += 1
        if response.status_code not in (200, 422):
            self.problems.append(f"{path}: {response.status_code} {response.text[:200]}")

    def heavy(self, draw: random.Random) -> None:
        """Ask for more than there is time for; an answer or a problem document is fine."""
        size = draw.choice([5, 50, 700, 1450, N_ITEMS, None])
        body = {"n": draw.choice([1, 20, 1000]), "size": size, "basket": draw.sample(range(N_ITEMS), 3)}
        path = draw.choice(["complete", "sample"])
        if path == "sample":
            del body["basket"]
        with httpx.Client(trust_env=False, verify=False, timeout=draw.choice([0.2, 2, 30])) as client:
            status = client.post(f"{self.url}/api/{path}", json=body).status_code
        self.statuses[status] += 1
        if status >= 500 and status != 503:
            self.problems.append(f"{path} {body}: {status}")

    def hostile(self, draw: random.Random) -> None:
        """Send what no client should."""
        junk = bytes(draw.randrange(256) for _ in range(draw.choice([10, 1000])))
        body = b'{"basket": [1, 2], "n": 3}'
        post = b"POST /api/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        data = draw.choice([
            junk, b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 20_000, b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n",
            post + b"Content-Length: 100\r\n\r\n{", post + b"Content-Length: 99999999999\r\n\r\n",
            post + b"Content-Length: 26\r\n\r\n" + body,
            post + b"Host: b\r\nContent-Length: 26\r\n\r\n" + body, post + b"Transfer-Encoding: chunked\r\n\r\n1a\r\n" + body,
            post + b"Content-Length: 10\r\n\r\n[[[[[[[[[[", post + b"Content-Length: %d\r\n\r\n" % len(junk) + junk,
            b"GET /api/items?q=%00%ff&limit=-1 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ])  # fmt: skip
        where = httpx.URL(self.url)
        with socket.create_connection((where.host, where.port or 80), timeout=HANG_SECONDS) as connection:
            connection.settimeout(draw.choice([0.05, 1.0]))
            connection.sendall(data)
            found = connection.recv(4096) if draw.random() < 2 / 3 else b""
        if b" 500 " in found[:40]:
            self.problems.append(f"500 after {data[:80]!r}")

    def go_on(self, ask: Callable[[random.Random], None], draw: random.Random, pause: float) -> None:
        """Ask again and again. Timeouts and refused connections are what clients of this kind expect."""
        while not self.over.is_set():
            try:
                ask(draw)
            except (OSError, httpx.HTTPError) as error:
                if ask == self.ordinary and not self.over.is_set() and self.process.poll() is None:
                    self.problems.append(f"an ordinary request failed: {error!r}")
            time.sleep(draw.uniform(0, pause))

    def end(self) -> float:
        """Send the signal to stop in the middle of everything; return how long the process took to end."""
        began = time.perf_counter()
        self.process.terminate()
        try:
            self.process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.problems.append(f"the process had not ended {HANG_SECONDS:g} s after the signal")
        return time.perf_counter() - began


def served(seed: int, seconds: float, pause: float = 0.05) -> dict[str, Any]:
    """Let clients of all kinds ask one server for some seconds, then end it; return what was seen, with all that was wrong.

    Each client waits up to ``pause`` seconds between its requests.
    """
    service, draw = Service(), random.Random(seed)
    kinds = [service.ordinary] * 2 + [service.heavy] * 2 + [service.hostile] * 2
    clients = [
        threading.Thread(target=service.go_on, args=(ask, random.Random(f"{seed} {i}"), pause))
        for i, ask in enumerate(kinds)
    ]
    try:
        with contextlib.suppress(httpx.HTTPError):
            service.ordinary(draw)
        service.times, service.problems = [], []
        for client in clients:
            client.start()
        settled = max(min(20.0, seconds / 2), seconds / 10)
        time.sleep(settled)
        before = service.memory
        time.sleep(seconds - settled)
        grown = service.memory - before
        service.over.set()
        ended = service.end()
    finally:
        service.over.set()
        service.process.kill()
    for client in clients:
        client.join(HANG_SECONDS)
    spoilt = [line for line in service.lines if not line.startswith(b"{")]
    if spoilt:
        service.problems.append(f"not JSON in the log: {spoilt[0][:200]!r}")
    if grown > GROWTH:
        service.problems.append(f"memory grew by {grown / 1e6:.0f} MB")
    quarters = [np.median(part).round(4).tolist() for part in np.array_split(service.times, 4) if len(part)]
    return {
        "statuses": dict(service.statuses), "requests": len(service.lines), "slowest": round(max(service.times, default=0.0), 3),
        "medians": quarters, "memory": round(before / 1e6), "grown": round(grown / 1e6, 1), "ended": round(ended, 2),
        "problems": service.problems,
    }  # fmt: skip


def service_case(seed: int) -> None:
    """A few seconds of everything, and the signal to stop at any moment of it; now and then before the server listens."""
    draw = random.Random(seed)
    if draw.random() < 1 / 5:
        ended_early(draw.uniform(0.0, 4.0))
    elif problems := served(seed, draw.uniform(0.5, 6.0))["problems"]:
        raise Failure(f"{len(problems)} problems, the first: {problems[:5]}")


def ended_early(seconds: float) -> None:
    """Start a server and end it after some seconds, ready or not."""
    process = launch("serve", model_file(), "--port", 0, cwd=Path.cwd())
    time.sleep(seconds)
    process.terminate()
    try:
        _, said = process.communicate(timeout=HANG_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failure(f"the process did not end after a signal {seconds:.2f} s after its start") from None
    if b"Traceback" in said:
        raise Failure(f"a signal {seconds:.2f} s after the start left {said[-500:]!r}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.05, help="longest wait between requests of one client")
    options = parser.parse_args()
    seen = served(options.seed, options.seconds, options.pause)
    print(json.dumps(seen))
    sys.exit(bool(seen["problems"]))
