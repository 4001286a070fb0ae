"""Work off the event loop: in threads, within a time limit, and no longer than the client listens.

The numerical work releases the GIL for most of its time. A thread cannot be killed, so every loop that may take long looks whether the
time is up or the client has gone (:mod:`ndpp._stop`). Draws have threads of their own, so that quick questions never wait for them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import Request

from ndpp._stop import stopping

T = TypeVar("T")
STOPPING = "the server is stopping, and the answer would take longer than it waits; ask again once it runs"
GIVES_WAY, QUIET = 9.0, 0.1
"""Seconds for which work in the background waits per second of its own, and those after a request in which another one is likely."""


class BusyError(Exception):
    """More requests wait than may."""


class StoppingError(Exception):
    """The server ends before the answer is there."""


class OutOfTimeError(Exception):
    """A request took longer than it may."""


class ClientGoneError(Exception):
    """Nobody waits for the answer."""


class UnderWay:
    """Knows whether requests are being answered, so that work in the background can wait for them."""

    def __init__(self) -> None:
        self._lock, self._count, self._ended, self._resumed = threading.Lock(), 0, -QUIET, time.monotonic()

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._count, self._ended = self._count - 1, time.monotonic()

    def give_way(self) -> None:
        """Wait as long as requests are being answered, but for ``GIVES_WAY`` times as long as since the last time at most."""
        start = time.monotonic()
        end = start + GIVES_WAY * (start - self._resumed)
        while (self._count or time.monotonic() - self._ended < QUIET) and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, QUIET / 4))
        self._resumed = time.monotonic()


UNDER_WAY = UnderWay()
"""The requests of this process."""


class Work:
    """Threads that compute answers: some for questions that take milliseconds, others for draws, which may take long.

    Each pool has ``threads`` threads and a queue of ``waiting`` further tasks. A task may take up to ``seconds`` seconds from
    the time on when a thread takes it; while it waits, its client may leave.
    """

    def __init__(self, seconds: float, threads: int, waiting: int) -> None:
        self.seconds = seconds
        self.closed = threading.Event()
        pools = (ThreadPoolExecutor(threads, thread_name_prefix=f"ndpp-{name}") for name in ("answers", "draws"))
        self._lanes = [(threading.Semaphore(threads + waiting), pool) for pool in pools]

    def close(self) -> None:
        """Refuse what has not begun, and stop what has."""
        self.closed.set()
        for _, pool in self._lanes:
            pool.shutdown(wait=False, cancel_futures=True)

    async def run(self, request: Request, task: Callable[[], T], *, slow: bool = False, admitted: bool = False) -> T:
        """Return what ``task`` returns; raise the error of this module that says why there is no answer.

        A request that was ``admitted`` before is not turned away in the middle of its answer.
        """
        if self.closed.is_set():
            raise StoppingError(STOPPING)
        room, pool = self._lanes[slow]
        has_room = room.acquire(blocking=False)
        if not has_room and not admitted:
            raise BusyError("too many requests are waiting for an answer; try again in a second")
        over, seconds, end = threading.Event(), self.seconds, float("inf")
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def check() -> None:
            if over.is_set():
                raise ClientGoneError
            if self.closed.is_set():
                raise StoppingError(STOPPING)
            if time.monotonic() > end:
                raise OutOfTimeError(text)

        def work() -> T:
            nonlocal end
            end = time.monotonic() + seconds  # time in the queue does not count
            loop.call_soon_threadsafe(begun.set)
            with UNDER_WAY, stopping(check):
                check()
                return task()

        text = f"the answer took longer than the {seconds:g} seconds a request may take; ask for less at a time"
        job = pool.submit(work)
        if has_room:
            job.add_done_callback(lambda _: room.release())
        future = asyncio.wrap_future(job)
        future.add_done_callback(_seen)
        left: asyncio.Future[Any] = asyncio.ensure_future(_disconnected(request))
        waiting: asyncio.Future[Any] = asyncio.ensure_future(begun.wait())
        either: set[asyncio.Future[Any]] = {future, left}
        try:
            await asyncio.wait({*either, waiting}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if future.cancelled():
                raise StoppingError(STOPPING)
            if future.done():
                return future.result()
            if left.done():
                raise ClientGoneError
            raise OutOfTimeError(text)
        finally:
            over.set()
            waiting.cancel()
            left.cancel()
            future.cancel()


def _seen(future: asyncio.Future[Any]) -> None:
    """Look at the error of a request that nobody waits for any more: it was reported."""
    if not future.cancelled():
        future.exception()


async def _disconnected(request: Request) -> None:
    """Return once the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
