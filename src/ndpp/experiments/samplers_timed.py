"""Every sampler on one kernel: seconds per sample, rejections, and expected values where a sampler cannot finish.

The number of proposals of the rejection sampler is known in closed form, e_k(L̂)/e_k(L) or det(I + L̂)/det(I + L), and so is
that of each step of the paper's walk. A sampler that would take longer than ``FEASIBLE`` is timed by the proposal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ndpp._types import FloatArray
from ndpp.experiments.record import Row
from ndpp.experiments.timing import Times, draw_times, proposal_times, step_times
from ndpp.items import ItemIndex
from ndpp.kernel import LowRankKernel
from ndpp.samplers import Cholesky, Clock, DirectUp, Exact, Rejection, RejectionUp, Walk

FEASIBLE = 3.0
"""Seconds that a single draw by rejection may take to be drawn at all."""

WARM_PER_SECOND = 40
"""Draws of ``Exact`` before it is timed, for each second of timing: each size it meets has circles of its own to cache."""

EXACT, REJECTION, CHOLESKY, CLOCK = "Exact", "Rejection", "Cholesky", "Clock"
DIRECT_WALK, PAPERS_WALK = "Walk(DirectUp)", "Walk(RejectionUp)"


def sampler_rows(
    kernel: LowRankKernel, index: ItemIndex, size: int | None, *, seed: int, seconds: float
) -> Iterator[Row]:
    """Yield a row for each sampler that draws sets of this size, or of any if None: ``Exact`` first.

    ``seconds`` of a walk are those of k² steps; of any size, E[k²] steps, each timed at the median size.
    """
    exact = Exact.prepare(kernel, size=size)
    warm = round(WARM_PER_SECOND * seconds)
    yield _row(EXACT, draw_times(exact, seed=seed, seconds=seconds, least=5, warm=warm))
    law = kernel.size_distribution()
    typical = max(2, _median(law)) if size is None else size
    steps = float(law @ np.arange(len(law)) ** 2) if size is None else float(size**2)
    start = Exact.prepare(kernel, size=typical).sample(1, rng=seed).baskets[0]
    for name, up in ((DIRECT_WALK, DirectUp()), (PAPERS_WALK, RejectionUp(index=lambda _: index))):
        walk = Walk.prepare(kernel, size=typical, up=up, start=start)
        found = step_times(walk, start, seed=seed, seconds=seconds, least=8)
        rejections = None if found.expected_proposals is None else found.expected_proposals - 1
        yield {**_row(name, found.times.scaled(steps), rejections), "steps": steps, "counted": found.proposals - 1}
    yield _rejection(kernel, index, size, seed=seed, seconds=seconds)
    if size is None:
        warm = 1 if kernel.n_items < 10**5 else 0  # a draw of a large catalogue takes many seconds, and compiling none
        yield _row(CHOLESKY, draw_times(Cholesky.prepare(kernel), seed=seed, seconds=seconds, least=1, warm=warm))
        yield _row(CLOCK, draw_times(Clock.prepare(kernel), seed=seed, seconds=seconds, least=2, warm=1))


def _rejection(kernel: LowRankKernel, index: ItemIndex, size: int | None, *, seed: int, seconds: float) -> Row:
    sampler = Rejection.prepare(kernel, size=size, max_proposals=np.inf, index=index)
    one = proposal_times(sampler, kernel, seed=seed, seconds=seconds / 2)
    whole = one.scaled(sampler.expected_proposals)
    if whole.median > FEASIBLE:
        return _row(REJECTION, whole, sampler.expected_proposals - 1, expected=True)
    draws = draw_times(sampler, seed=seed, seconds=seconds, least=3, warm=1)
    return _row(REJECTION, draws if draws.calls > 20 else whole, sampler.expected_proposals - 1)


def _row(sampler: str, times: Times, rejections: float | None = None, *, expected: bool = False) -> Row:
    row = {"sampler": sampler, "seconds": times.median, "least": times.least, "wall": times.wall, "calls": times.calls}
    return {**row, "rejections": rejections, "expected": expected}


def times_exact(rows: Sequence[Row], row: Row) -> float:
    """Return how many times as long as ``Exact`` a row's sampler takes for the same task on the same kernel.

    Examples
    --------
    >>> task = {"data": "a", "kernel": "b", "task": "k = 2"}
    >>> rows = [{**task, "sampler": name, "seconds": took} for name, took in (("Exact", 0.5), ("Clock", 2.0))]
    >>> times_exact(rows, rows[1])
    4.0
    """
    same = ("data", "kernel", "task")
    exact = next(r for r in rows if r["sampler"] == EXACT and all(r[key] == row[key] for key in same))
    return row["seconds"] / exact["seconds"]


def _median(law: FloatArray) -> int:
    return int(np.searchsorted(np.cumsum(law), 0.5))
