"""Times of single draws and steps on one thread, after a warm-up. The experiments, ``ndpp bench`` and ``benchmarks/`` all use these.

Other work on a shared machine adds to wall-clock time, and less to the CPU time of the thread: the latter is what is published,
its median and its least value; the clock's are kept too. A walk is timed by the step, starting from an exact draw, so at
stationarity. Where the system counts CPU time in ticks of milliseconds, as Windows does, wall-clock time stands in for it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers.base import Sampler, stream, stream_key
from ndpp.samplers.rejection import Rejection, minor_ratio
from ndpp.samplers.walk import Walk
from ndpp.samplers.walk.up_rejection import PreparedRejectionUp

T = TypeVar("T")
WARM_LIMIT = 10
"""How many times as long as the measurement a warm-up may take."""
FINE = 1e-5
"""Seconds that the clock must resolve."""


def finest_clock() -> Callable[[], float]:
    """Return the clock of this thread's CPU time or, where that is too coarse for a single draw, the wall clock."""
    return time.thread_time if time.get_clock_info("thread_time").resolution <= FINE else time.perf_counter


clock = finest_clock()


class Times(NamedTuple):
    """Seconds of one call: median and least CPU time, median and least wall-clock time, and how many calls there were."""

    median: float
    least: float
    wall: float
    least_wall: float
    calls: int

    @classmethod
    def of(cls, cpu: Sequence[float], wall: Sequence[float]) -> Times:
        """Return the times of calls that took these seconds."""
        return cls(statistics.median(cpu), min(cpu), statistics.median(wall), min(wall), len(cpu))

    def scaled(self, factor: float) -> Times:
        """Return the times of ``factor`` such calls."""
        median, least, wall, least_wall = (factor * seconds for seconds in self[:4])
        return Times(median, least, wall, least_wall, self.calls)


class Stopwatch:
    """Collects the CPU and wall-clock seconds of what is done inside ``with watch:``, one pair per use."""

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
        """Return the times, the first ``skip`` left out."""
        return Times.of(self.cpu[skip:], self.wall[skip:])


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
    watch, i, began = Stopwatch(), 0, time.perf_counter()
    while i < least or (i < most and time.perf_counter() - began < seconds):
        with watch:
            call(i)
        i += 1
    return watch.times()


def prepared(call: Callable[[], T], *, repeats: int = 3) -> tuple[T, float]:
    """Return what a call gives, and the least seconds of CPU of some such calls.

    Examples
    --------
    >>> prepared(lambda: 1 + 1)[0]
    2
    """
    watch = Stopwatch()
    for _ in range(repeats):
        with watch:
            result = call()
    return result, watch.times().least


def draw_times(sampler: Sampler, *, seed: int, seconds: float, least: int = 3, warm: int = 3) -> Times:
    """Time single draws, after ``warm`` others that compile and fill caches, or fewer once these have taken ``WARM_LIMIT`` × ``seconds``.

    A cold ``Exact`` of any size takes ten times as long as a warm one: the limit is for samplers that need seconds per draw.
    """
    key, began = stream_key(seed), time.perf_counter()
    for i in range(warm):
        sampler.draw(stream(key, 10**9 + i))
        if time.perf_counter() - began > WARM_LIMIT * seconds:
            break
    return timed(lambda i: sampler.draw(stream(key, i)), seconds=seconds, least=least)


def sample_times(sampler: Sampler, *, seed: int, seconds: float) -> tuple[Times, int]:
    """Time whole calls of ``sample``, which may run on a device; return seconds per draw and the number of draws.

    The first call compiles and fills caches. Calls then double until one takes a tenth of ``seconds``.
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
) -> Steps:
    """Time steps of a walk from ``start``; the closed form of the proposals is taken outside the measured time."""
    rng, watch = np.random.default_rng(seed), Stopwatch()
    counts: list[float] = []
    expected: list[float] = []
    rows = walk.kernel.rows_of(start)
    began = time.perf_counter()
    up: Any = walk.up
    while len(counts) < least + warm or (len(counts) < most and time.perf_counter() - began < seconds):
        with watch:
            kept = np.delete(rows, rng.choice(walk.size, 2, replace=False, shuffle=False))
            pair, info = up.pair(rng, kept)
            rows = np.sort(np.concatenate([kept, pair]))
        counts.append(info["proposals"])
        if isinstance(up, PreparedRejectionUp):
            expected.append(up.expected_proposals(kept))
    error = float(np.std(counts, ddof=1) / np.sqrt(len(counts)))
    return Steps(watch.times(warm), float(np.mean(counts)), error, float(np.mean(expected)) if expected else None)


def proposal_times(sampler: Rejection, kernel: LowRankKernel, *, seed: int, seconds: float, least: int = 5) -> Times:
    """Time one proposal of the rejection sampler with its test, whatever becomes of it."""
    rng = np.random.default_rng(seed)

    def propose(_: int) -> None:
        rows = sampler.proposal.draw(rng).rows
        minor_ratio(kernel.q_rows(rows), kernel.coordinates.B, sampler.dominating)

    propose(0)
    return timed(propose, seconds=seconds, least=least)
