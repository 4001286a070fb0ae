"""Draws batches in this thread, in joblib's workers or on a dask cluster.

A batch depends only on the seed and its indices, so it does not matter who draws it, and a batch that is lost with its worker is drawn
again: by dask itself, or by a new pool for the batches that a broken pool did not return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError
from typing import Any, TypeVar

import threadpoolctl

MAX_BROKEN_POOLS = 4
"""How many worker pools may die before the work itself is blamed."""

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Drawn = TypeVar("Drawn")


def dispatch(
    draw: Callable[[Shared, Task], Drawn], shared: Shared, batches: Sequence[Task], n_jobs: Any
) -> Iterator[Drawn]:
    """Yield ``draw(shared, batch)`` for every batch in order; ``n_jobs`` is a number of joblib workers or a ``distributed.Client``."""
    if n_jobs in (None, 1) or len(batches) < 2:
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
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

    client = getattr(get_active_backend(prefer="threads")[0], "client", None)
    if client is not None:  # joblib's dask backend would send ``shared`` with every batch
        yield from _on_cluster(draw, shared, batches, client)
        return
    parallel = joblib.Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
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
    with threadpoolctl.threadpool_limits(1, user_api="blas"):  # also in another process
        return draw(shared, batch)
