"""Who draws the batches: this thread, joblib's workers or a dask cluster.

A batch of draws depends on the seed and its indices alone. So it does not matter who draws it, and a batch that is lost with its worker
is drawn again by another: dask does so by itself, and the batches that a broken pool still owes are handed to a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError
from typing import Any, TypeVar

import threadpoolctl

ATTEMPTS = 4
"""Pools that may break, one after another, before the loss of their workers is taken for the fault of the work."""

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Drawn = TypeVar("Drawn")


def dispatch(
    draw: Callable[[Shared, Task], Drawn], shared: Shared, batches: Sequence[Task], n_jobs: Any
) -> Iterator[Drawn]:
    """Yield ``draw(shared, batch)`` of every batch in order; ``n_jobs`` is a number of joblib workers or a ``distributed.Client``."""
    if n_jobs in (None, 1) or len(batches) < 2:
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
            yield from (draw(shared, batch) for batch in batches)
        return
    crew = _on_cluster if hasattr(n_jobs, "scatter") else _in_workers
    done, attempts = 0, 0
    while done < len(batches):
        try:
            for drawn in crew(draw, shared, batches[done:], n_jobs):
                done += 1
                yield drawn
        except (BrokenExecutor, CancelledError):
            attempts += 1
            if attempts == ATTEMPTS:
                raise


def _in_workers(
    draw: Callable[[Shared, Task], Drawn], shared: Shared, batches: Sequence[Task], n_jobs: int
) -> Iterator[Drawn]:
    import joblib  # a tenth of a second that most programs need not pay
    from joblib.parallel import get_active_backend

    client = getattr(get_active_backend(prefer="threads")[0], "client", None)
    if client is not None:  # of joblib's dask backend, which would send ``shared`` along with every batch
        yield from _on_cluster(draw, shared, batches, client)
        return
    parallel = joblib.Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        yield from parallel(joblib.delayed(pinned)(draw, shared, batch) for batch in batches)


def _on_cluster(
    draw: Callable[[Shared, Task], Drawn], shared: Shared, batches: Sequence[Task], client: Any
) -> Iterator[Drawn]:
    # To every worker once, so that the loss of one is no loss. What is shared keeps what it has computed from one batch to the next.
    there = client.scatter(shared, broadcast=True, hash=False)
    futures = client.map(_pinned_there, batches, draw=draw, shared=there, pure=False)
    try:
        for future in futures:
            yield future.result()
    finally:
        client.cancel(futures)


def pinned(draw: Callable[[Shared, Task], Drawn], shared: Shared, batch: Task) -> Drawn:
    """Draw a batch, maybe in another process, which has its own BLAS threads to hold back."""
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        return draw(shared, batch)


def _pinned_there(batch: Task, *, draw: Callable[[Shared, Task], Drawn], shared: Shared) -> Drawn:
    return pinned(draw, shared, batch)
