"""Requests per second of ``ndpp serve`` on this machine, which the load generator shares: ``python benchmarks/bench_serve.py``.

The model is that of ``--model``, or a learned UK Retail kernel if ``NDPP_DATA`` has one, else a synthetic one of its shape (3,941 items,
rank 200). Random sets of three of its first 2,000 items are asked for, or, with ``--baskets``, up to three items of real ones, once the
server is ready and has had ``--wait`` seconds to prepare more in the background, and after a quarter as many other requests. Every run is
bounded in requests and in seconds.
Besides the rate and the latencies it shows the server's own CPU time per request, which does not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np

import ndpp
from ndpp.datasets import make_kernel

RUNS = {"recommend": (3000, 8), "complete": (600, 4), "batch": (5, 1), "health": (3000, 8)}
"""Most requests, and connections at a time."""


def model() -> ndpp.LowRankKernel:
    """Return the kernel to serve."""
    stored = Path(os.environ.get("NDPP_DATA", "")) / "kernels" / "uk_retail_A.npz"
    if not stored.is_file():
        return make_kernel(3941, 200, rng=0)
    with np.load(stored) as arrays:
        return ndpp.LowRankKernel(arrays["X"], arrays["W"])


def body(task: str, rng: np.random.Generator, baskets: list[list[int]] | None, n_items: int) -> bytes:
    """Return a question about a random basket."""
    if baskets is None:
        basket = rng.choice(n_items, 3, replace=False).tolist()
    else:
        whole = baskets[rng.integers(len(baskets))]
        basket = rng.choice(whole, min(3, len(whole)), replace=False).tolist()
    asks = {
        "recommend": {"basket": basket, "n": 10},
        "complete": {"basket": basket, "size": 8},
        "batch": {"task": "recommend", "baskets": [rng.choice(n_items, 3, replace=False).tolist() for _ in range(500)]},
    }
    return json.dumps(asks[task]).encode() if task in asks else b""


def message(task: str, content: bytes) -> bytes:
    """Return a request as it goes over the wire."""
    first = f"POST /api/{task}" if content else f"GET /{task}"
    head = f"{first} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


async def answer(reader: asyncio.StreamReader) -> int:
    """Read one answer, chunked or not; return its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    else:
        await reader.readexactly(int(lower.split(b"content-length: ")[1].split(b"\r\n")[0]))
    return int(head[9:12])


async def load(
    url: str,
    task: str,
    requests: int,
    connections: int,
    seconds: float,
    baskets: list[list[int]] | None,
    n_items: int,
    seed: int = 0,
) -> tuple[list[float], float]:
    """Return the time of each request and of all."""
    rng, where, times = np.random.default_rng(seed), urlsplit(url), []
    waiting = [message(task, body(task, rng, baskets, n_items)) for _ in range(requests)]
    end = time.perf_counter() + seconds

    async def client() -> None:
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        while waiting and time.perf_counter() < end:
            began = time.perf_counter()
            writer.write(waiting.pop())
            status = await answer(reader)
            assert status == 200, status
            times.append(time.perf_counter() - began)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(connections)))
    return times, time.perf_counter() - began


def used(pid: int) -> tuple[float, float]:
    """Return the CPU seconds of a process and its workers so far, and their resident memory in megabytes."""
    cpu, memory = 0.0, 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if pid in (int(folder.name), int(fields[1])):
            cpu += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            memory += int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return cpu, memory


def is_ready(url: str) -> bool:
    """Return whether the model is loaded."""
    try:
        return bool(urlopen(url + "ready", timeout=5).status == 200)
    except OSError:  # not yet: an answer that says so, or none
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="most seconds of each run")
    parser.add_argument("--model", type=Path, help="model file to serve")
    parser.add_argument("--workers", type=int, default=1, help="processes of the server")
    parser.add_argument("--baskets", type=Path, help="real baskets, of the items of the model")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds between ready and the first request")
    parser.add_argument("--warm", type=int, help="requests before those that count; a quarter as many if not given")
    parser.add_argument("tasks", nargs="*", default=list(RUNS))
    options = parser.parse_args()
    baskets = None if options.baskets is None else ndpp.Baskets.read(options.baskets).select(min_size=1).to_lists()
    with tempfile.TemporaryDirectory() as folder:
        path = options.model or Path(folder) / "model.safetensors"
        if options.model is None:
            ndpp.save(model(), path)
        n_items = min(2000, ndpp.load(path, lazy=True).n_items)
        words = [sys.executable, "-m", "ndpp.cli", "serve", str(path), "--port", "0"]
        words += ["--workers", str(options.workers)] if options.workers > 1 else []
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
            try:
                assert server.stderr is not None
                log = server.stderr
                url = json.loads(log.readline())["url"]
                started = time.perf_counter()
                subprocess.Popen(["cat"], stdin=log, stdout=subprocess.DEVNULL)  # it ends when the log does
                while not is_ready(url):
                    time.sleep(0.1)
                print(f"ready after {time.perf_counter() - started:.1f} s", flush=True)
                time.sleep(options.wait)
                for task in options.tasks:
                    requests, connections = RUNS[task]
                    warm = requests // 4 if options.warm is None else options.warm
                    asyncio.run(load(url, task, warm, connections, 4 * options.seconds, baskets, n_items))
                    before = used(server.pid)[0]
                    times, wall = asyncio.run(
                        load(url, task, requests, connections, options.seconds, baskets, n_items, seed=1)
                    )
                    after, memory = used(server.pid)
                    cpu = (after - before) / len(times)
                    p50, p99 = np.percentile(times, [50, 99]) * 1e3
                    print(f"{task:10} {len(times):5} requests  {len(times) / wall:7.1f}/s  p50 {p50:6.1f} ms  p99 {p99:6.1f} ms  "
                          f"server CPU {1e3 * cpu:6.2f} ms/request  memory {memory:5.0f} MB", flush=True)  # fmt: skip
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
