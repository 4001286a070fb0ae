"""Work off the event loop: in threads, within a time limit, and no longer than the client listens.

The numerical work releases the GIL for most of its time. A thread cannot be killed, so every task gets a :class:`Stop` and looks at it
between draws; it ends there once the time is up or the client has gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import Request

from ndpp.serve.limits import Limits

T = TypeVar("T")


class BusyError(Exception):
    """More requests wait than may."""


class OutOfTimeError(Exception):
    """A request took longer than it may."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the answer took longer than the {seconds:g} seconds a request may take; ask for less at a time"
        )


class ClientGoneError(Exception):
    """Nobody waits for the answer."""


class Stop:
    """Tells a task in a thread when to give up."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._gone = False

    def set(self) -> None:
        """Have the task end at its next look."""
        self._gone = True

    def check(self) -> None:
        """Raise if the client has gone or the time is up."""
        if self._gone:
            raise ClientGoneError
        if time.monotonic() > self._end:
            raise OutOfTimeError(self.seconds)


class Work:
    """Threads that compute answers, and a bounded queue in front of them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pending = 0
        self._pool = ThreadPoolExecutor(limits.threads, thread_name_prefix="ndpp-serve")

    def close(self) -> None:
        """Drop what has not begun and wait for what has."""
        self._pool.shutdown(cancel_futures=True)

    async def run(self, request: Request, task: Callable[[Stop], T], *, admitted: bool = False) -> T:
        """Return what ``task`` returns; raise :class:`BusyError`, :class:`OutOfTimeError` or :class:`ClientGoneError`.

        A request that was ``admitted`` before is not turned away in the middle of its answer.
        """
        if not admitted and self.pending >= self.limits.threads + self.limits.waiting:
            raise BusyError("too many requests are waiting for an answer; try again in a second")
        stop = Stop(self.limits.seconds)
        self.pending += 1
        future: asyncio.Future[T] = asyncio.get_running_loop().run_in_executor(self._pool, task, stop)
        future.add_done_callback(self._finished)
        left: asyncio.Future[Any] = asyncio.ensure_future(_disconnected(request))
        either: set[asyncio.Future[Any]] = {future, left}
        try:
            await asyncio.wait(either, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return future.result()
            raise ClientGoneError if left.done() else OutOfTimeError(self.limits.seconds)
        finally:
            stop.set()
            left.cancel()
            future.cancel()

    def _finished(self, future: asyncio.Future[T]) -> None:
        self.pending -= 1
        if not future.cancelled():
            future.exception()  # of a request that nobody waits for any more: it was reported


async def _disconnected(request: Request) -> None:
    """Return once the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
