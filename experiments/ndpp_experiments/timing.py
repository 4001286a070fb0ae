"""Times of single draws and steps on one thread, after a warm-up. Experiments, ``ndpp bench`` and ``benchmarks/`` share these.

Other processes on a shared machine lengthen wall-clock time more than the CPU time of a thread, so the published number is the
median CPU time; the minimum and the wall-clock times are recorded, too. Walks are timed per step, starting from an exact draw and
thus at stationarity. Windows counts CPU time in ticks of milliseconds; where the clock is that coarse, wall-clock time replaces it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers.base import Sampler, stream, stream_key
from ndpp.samplers.rejection import Rejection, minor_ratio
from ndpp.samplers.walk import Walk
from ndpp.samplers.walk.up_rejection import PreparedRejectionUp

T = TypeVar("T")
WARM_LIMIT = 10
"""Longest warm-up, as a multiple of the time to measure."""
FINEST_TICK = 1e-5
"""Seconds that the clock must resolve."""


def finest_clock() -> Callable[[], float]:
    """Return the clock of this thread's CPU time, or the wall clock if the former is too coarse for a single draw."""
    return time.thread_time if time.get_clock_info("thread_time").resolution <= FINEST_TICK else time.perf_counter


clock = finest_clock()


class Times(NamedTuple):
    """Seconds per call: median and minimum of the CPU time and of the wall-clock time, and the number of calls."""

    median: float
    least: float
    wall: float
    least_wall: float
    calls: int

    def scaled(self, factor: float) -> Times:
        """Return the times of ``factor`` such calls."""
        median, least, wall, least_wall = (factor * seconds for seconds in self[:4])
        return Times(median, least, wall, least_wall, self.calls)


class Stopwatch:
    """Collects the CPU and wall-clock seconds of each ``with watch:`` block."""

    def __init__(self) -> None:
        self.cpu: list[float] = []
        self.wall: list[float] = []
        self._began = 0.0, 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter(), clock()

    def __exit__(self, *_: object) -> None:
        self.cpu.append(clock() - self._began[1])
        self.wall.append(time.perf_counter() - self._began[0])

    def times(self, skip: int = 0) -> Times:
        """Return the times of all blocks but the first ``skip``."""
        cpu, wall = self.cpu[skip:], self.wall[skip:]
        return Times(statistics.median(cpu), min(cpu), statistics.median(wall), min(wall), len(cpu))


class StepTimes(NamedTuple):
    """Times per step of a walk; proposals per step, counted with a standard error and in closed form if there is one."""

    times: Times
    proposals: float
    standard_error: float
    expected_proposals: float | None


def timed(call: Callable[[int], Any], *, seconds: float, least: int = 3, most: int = 1000) -> Times:
    """Time ``call(0)``, ``call(1)``, … for about ``seconds`` seconds, but at least ``least`` and at most ``most`` calls.

    Examples
    --------
    >>> timed(lambda i: sum(range(1000)), seconds=0.0, least=4).calls
    4
    """
    watch, i, began = Stopwatch(), 0, time.perf_counter()
    while i < least or (i < most and time.perf_counter() - began < seconds):
        with watch:
            call(i)
        i += 1
    return watch.times()


def afresh(kernel: LowRankKernel) -> LowRankKernel:
    """Return the kernel as its factors make it, with nothing computed yet: what a kernel knows is not part of any preparation after it."""
    return LowRankKernel(
        kernel.X, kernel.W, support=kernel._allowed, background=kernel.background, magnitudes=kernel._magnitudes
    )


def prepared(call: Callable[[], T], *, repeats: int = 3) -> tuple[T, float]:
    """Return the result of a call and its minimum CPU time over some repetitions; the call starts :func:`afresh`."""
    watch = Stopwatch()
    for _ in range(repeats):
        with watch:
            result = call()
    return result, watch.times().least


def draw_times(sampler: Sampler, *, seed: int, seconds: float, least: int = 3, warm: int = 3) -> Times:
    """Time single draws after ``warm`` draws that compile code and fill caches.

    The warm-up ends early once it has taken ``WARM_LIMIT`` × ``seconds``. That limit is meant for samplers that need seconds per
    draw; a cold ``Exact`` of any size takes only ten times as long as a warm one.
    """
    key, began = stream_key(seed), time.perf_counter()
    for i in range(warm):
        sampler.draw(stream(key, 10**9 + i))
        if time.perf_counter() - began > WARM_LIMIT * seconds:
            break
    return timed(lambda i: sampler.draw(stream(key, i)), seconds=seconds, least=least)


def sample_times(sampler: Sampler, *, seed: int, seconds: float) -> tuple[Times, int]:
    """Time whole calls of ``sample``, which may run on a GPU; return the times per draw and the number of draws.

    The first call compiles code and fills caches. The number of draws then doubles until a call takes a tenth of ``seconds``.
    """
    count = 0

    def call(i: int) -> None:
        sampler.sample(max(1, count), rng=seed, first=i * count)

    times = timed(call, seconds=0.0, least=1)
    if times.wall > seconds:
        return times, 1
    while times.wall < seconds / 10:
        count = max(1, 2 * count)
        times = timed(call, seconds=0.0, least=1)
    count = max(1, count)
    times = timed(call, seconds=seconds - 2 * times.wall, least=1)
    return times.scaled(1 / count), times.calls * count


def step_times(
    walk: Walk, start: Any, *, seed: int, seconds: float, least: int = 10, most: int = 2000, warm: int = 3
) -> StepTimes:
    """Time the steps of a walk from ``start``; computing the expected proposals is not part of the time."""
    rng, watch = np.random.default_rng(seed), Stopwatch()
    counts: list[float] = []
    expected: list[float] = []
    rows = walk.kernel.rows_of(start)
    began = time.perf_counter()
    up: Any = walk.up
    while len(counts) < least + warm or (len(counts) < most and time.perf_counter() - began < seconds):
        with watch:
            remaining = np.delete(rows, rng.choice(walk.size, 2, replace=False, shuffle=False))
            pair, info = up.pair(rng, remaining)
            rows = np.sort(np.concatenate([remaining, pair]))
        counts.append(info["proposals"])
        if isinstance(up, PreparedRejectionUp):
            expected.append(up.expected_proposals(remaining))
    error = float(np.std(counts, ddof=1) / np.sqrt(len(counts)))
    return StepTimes(watch.times(warm), float(np.mean(counts)), error, float(np.mean(expected)) if expected else None)


def proposal_times(sampler: Rejection, kernel: LowRankKernel, *, seed: int, seconds: float, least: int = 5) -> Times:
    """Time one proposal of the rejection sampler and its acceptance test, accepted or not."""
    rng = np.random.default_rng(seed)

    def propose(_: int) -> None:
        rows = sampler.proposal.draw(rng).rows
        minor_ratio(kernel.q_rows(rows), kernel.coordinates.B, sampler.dominating)

    propose(0)
    return timed(propose, seconds=seconds, least=least)
