"""Work off the event loop: in threads, within a time limit, and no longer than the client listens.

The numerical work releases the GIL for most of its time. A thread cannot be killed, so every task gets a function to call between
draws; it raises once the time is up or the client has gone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import Request

from ndpp.answers.draws import Check
from ndpp.serve.limits import Limits

T = TypeVar("T")


class BusyError(Exception):
    """More requests wait than may."""


class OutOfTimeError(Exception):
    """A request took longer than it may."""


class ClientGoneError(Exception):
    """Nobody waits for the answer."""


class Work:
    """Threads that compute answers, and a bounded queue in front of them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.pending = 0
        self._pool = ThreadPoolExecutor(limits.threads, thread_name_prefix="ndpp-serve")

    def close(self) -> None:
        """Drop what has not begun and wait for what has."""
        self._pool.shutdown(cancel_futures=True)

    async def run(self, request: Request, task: Callable[[Check], T], *, admitted: bool = False) -> T:
        """Return what ``task`` returns; raise :class:`BusyError`, :class:`OutOfTimeError` or :class:`ClientGoneError`.

        A request that was ``admitted`` before is not turned away in the middle of its answer.
        """
        if not admitted and self.pending >= self.limits.threads + self.limits.waiting:
            raise BusyError("too many requests are waiting for an answer; try again in a second")
        over, seconds = threading.Event(), self.limits.seconds

        def check() -> None:
            if over.is_set():
                raise ClientGoneError

        self.pending += 1
        future: asyncio.Future[T] = asyncio.get_running_loop().run_in_executor(self._pool, task, check)
        future.add_done_callback(self._finished)
        left: asyncio.Future[Any] = asyncio.ensure_future(_disconnected(request))
        either: set[asyncio.Future[Any]] = {future, left}
        try:
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return future.result()
            if left.done():
                raise ClientGoneError
            text = f"the answer took longer than the {seconds:g} seconds a request may take; ask for less at a time"
            raise OutOfTimeError(text)
        finally:
            over.set()
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
