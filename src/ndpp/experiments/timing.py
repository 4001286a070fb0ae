"""Times of single draws and steps, of one thread, after a warm-up.

Other work on a shared machine adds to wall-clock time, and less to the CPU time of the thread: the latter is kept, its median
and its least value. A walk is timed by the step, from an exact draw, which is to say at stationarity.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ndpp.kernel import LowRankKernel
from ndpp.samplers.base import Sampler, stream, stream_key
from ndpp.samplers.rejection import Rejection, minor_ratio
from ndpp.samplers.walk import Walk
from ndpp.samplers.walk.up_rejection import PreparedRejectionUp

T = TypeVar("T")


class Times(NamedTuple):
    """Seconds of CPU of one call: the median, the least, and how many calls there were."""

    median: float
    least: float
    calls: int

    def scaled(self, factor: float) -> Times:
        """Return the times of ``factor`` such calls."""
        return Times(self.median * factor, self.least * factor, self.calls)


class Steps(NamedTuple):
    """Times of one step of a walk; proposals of its up-step, counted and in closed form, with the count's standard error."""

    times: Times
    proposals: float
    standard_error: float
    expected_proposals: float | None


def timed(call: Callable[[int], Any], *, seconds: float, least: int = 3, most: int = 1000) -> Times:
    """Time ``call(0)``, ``call(1)``, …: at least ``least`` calls, and more while ``seconds`` last.

    Examples
    --------
    >>> timed(lambda i: sum(range(1000)), seconds=0.0, least=4).calls
    4
    """
    took: list[float] = []
    began = time.perf_counter()
    while len(took) < least or (len(took) < most and time.perf_counter() - began < seconds):
        before = time.thread_time()
        call(len(took))
        took.append(time.thread_time() - before)
    return Times(statistics.median(took), min(took), len(took))


def prepared(call: Callable[[], T], *, repeats: int = 3) -> tuple[T, float]:
    """Return what a call gives, and the least seconds of CPU of some such calls.

    Examples
    --------
    >>> prepared(lambda: 1 + 1)[0]
    2
    """
    took = []
    for _ in range(repeats):
        before = time.thread_time()
        result = call()
        took.append(time.thread_time() - before)
    return result, min(took)


def draw_times(sampler: Sampler, *, seed: int, seconds: float, least: int = 3, warm: int = 3) -> Times:
    """Time single draws, after ``warm`` others that compile and fill caches."""
    key = stream_key(seed)
    for i in range(warm):
        sampler.draw(stream(key, 10**9 + i))
    return timed(lambda i: sampler.draw(stream(key, i)), seconds=seconds, least=least)


def step_times(
    walk: Walk, start: Any, *, seed: int, seconds: float, least: int = 10, most: int = 2000, warm: int = 3
) -> Steps:
    """Time steps of a walk from ``start``; the closed form of the proposals is taken outside the measured time."""
    rng = np.random.default_rng(seed)
    took: list[float] = []
    counts: list[float] = []
    expected: list[float] = []
    rows = walk.kernel.rows_of(start)
    began = time.perf_counter()
    up: Any = walk.up
    while len(took) < least + warm or (len(took) < most and time.perf_counter() - began < seconds):
        before = time.thread_time()
        kept = np.delete(rows, rng.choice(walk.size, 2, replace=False, shuffle=False))
        pair, info = up.pair(rng, kept)
        rows = np.sort(np.concatenate([kept, pair]))
        took.append(time.thread_time() - before)
        counts.append(info["proposals"])
        if isinstance(up, PreparedRejectionUp):
            expected.append(up.expected_proposals(kept))
    own = took[warm:]
    times = Times(statistics.median(own), min(own), len(own))
    error = float(np.std(counts, ddof=1) / np.sqrt(len(counts)))
    return Steps(times, float(np.mean(counts)), error, float(np.mean(expected)) if expected else None)


def proposal_times(sampler: Rejection, kernel: LowRankKernel, *, seed: int, seconds: float, least: int = 5) -> Times:
    """Time one proposal of the rejection sampler with its test, whatever becomes of it."""
    rng = np.random.default_rng(seed)

    def propose(_: int) -> None:
        rows = sampler.proposal.draw(rng).rows
        minor_ratio(kernel.q_rows(rows), kernel.coordinates.B, sampler.dominating)

    propose(0)
    return timed(propose, seconds=seconds, least=least)
