"""Draws batches in this thread, in joblib's workers or on a dask cluster.

A batch depends only on the seed and its indices, so it does not matter who draws it, and a batch that is lost with its worker is drawn
again: by dask itself, or by a new pool for the batches that a broken pool did not return.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError
from contextlib import contextmanager
from typing import Any, TypeVar

import threadpoolctl

MAX_BROKEN_POOLS = 4
"""How many worker pools may die before the work itself is blamed."""

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Drawn = TypeVar("Drawn")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C, and SIGTERM where it is handled, until the end: raised in a callback from C, it would be lost."""
    caught: list[tuple[Any, ...]] = []
    handlers = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if callable(handler := signal.getsignal(number)) and threading.current_thread() is threading.main_thread()
    }
    try:
        for number in handlers:
            signal.signal(number, lambda *signalled: caught.append(signalled))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if caught:
            handlers[caught[0][0]](*caught[0])


class _OneThread:
    """Holds BLAS to one thread while any number of overlapping users are inside, and restores the old number after the last."""

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._limits: Any = None

    def __enter__(self) -> None:
        entered = False
        try:
            with _uninterrupted(), self._lock:  # threadpoolctl looks for libraries in a callback
                if self._users == 0:
                    self._limits = threadpoolctl.threadpool_limits(1, user_api="blas")
                self._users += 1
                entered = True
        except BaseException:
            if entered:
                self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        with _uninterrupted(), self._lock:
            self._users -= 1
            if self._users == 0:
                self._limits.restore_original_limits()


ONE_BLAS_THREAD = _OneThread()


def dispatch(
    draw: Callable[[Shared, Task], Drawn], shared: Shared, batches: Sequence[Task], n_jobs: Any
) -> Iterator[Drawn]:
    """Yield ``draw(shared, batch)`` for every batch in order; ``n_jobs`` is a number of joblib workers or a ``distributed.Client``."""
    if n_jobs in (None, 1) or len(batches) < 2:
        with ONE_BLAS_THREAD:
            yield from (draw(shared, batch) for batch in batches)
        return
    run = _on_cluster if hasattr(n_jobs, "scatter") else _in_workers
    done, broken = 0, 0
    while done < len(batches):
        try:
            for drawn in run(draw, shared, batches[done:], n_jobs):
                done += 1
                yield drawn
        except (BrokenExecutor, CancelledError):
            broken += 1
            if broken == MAX_BROKEN_POOLS:
                raise


def _in_workers(
    draw: Callable[[Shared, Task], Drawn], shared: Shared, batches: Sequence[Task], n_jobs: int
) -> Iterator[Drawn]:
    import joblib  # takes a tenth of a second, which most programs need not pay
    from joblib.parallel import get_active_backend

    backend = get_active_backend(prefer="threads")[0]
    client = getattr(backend, "client", None)
    if client is not None:  # joblib's dask backend would send ``shared`` with every batch
        yield from _on_cluster(draw, shared, batches, client)
        return
    return_as = "generator" if getattr(backend, "supports_return_generator", True) else "list"
    parallel = joblib.Parallel(n_jobs=n_jobs, prefer="threads", return_as=return_as)
    with ONE_BLAS_THREAD:
        yield from parallel(joblib.delayed(_pinned)(batch, draw=draw, shared=shared) for batch in batches)


def _on_cluster(
    draw: Callable[[Shared, Task], Drawn], shared: Shared, batches: Sequence[Task], client: Any
) -> Iterator[Drawn]:
    # Every worker gets one copy, which survives the loss of other workers and keeps its caches from batch to batch.
    copies = client.scatter(shared, broadcast=True, hash=False)
    futures = client.map(_pinned, batches, draw=draw, shared=copies, pure=False)
    try:
        for future in futures:
            yield future.result()
    finally:
        client.cancel(futures)


def _pinned(batch: Task, *, draw: Callable[[Shared, Task], Drawn], shared: Shared) -> Drawn:
    with ONE_BLAS_THREAD:  # also in another process
        return draw(shared, batch)
