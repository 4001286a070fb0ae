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
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers import Rejection, Walk, registry
from ndpp.samplers.registry import Request, SamplerSpec, Timing

FEASIBLE = 3.0
"""Seconds that a single draw by rejection may take to be drawn at all."""

WARM_PER_SECOND = 40
"""Draws before a sampler is timed, for each second of timing: each size that ``Exact`` meets has circles of its own to cache."""

EXACT, REJECTION, CHOLESKY, PAPERS_WALK = (
    spec.label for spec in (registry.EXACT, registry.REJECTION, registry.CHOLESKY, registry.PAPERS_WALK)
)
"""Names in recorded rows."""


def sampler_rows(
    kernel: LowRankKernel, index: ItemIndex, size: int | None, *, seed: int, seconds: float
) -> Iterator[Row]:
    """Yield a row for each sampler that draws sets of this size, or of any if None: ``Exact`` first.

    ``seconds`` of a walk are those of k² steps; of any size, E[k²] steps, each timed at the median size.
    """
    rows = {Timing.DRAW: _draw_row, Timing.STEP: _step_row, Timing.PROPOSAL: _proposal_row}
    for spec in registry.offered(size):
        request = Request(size, tree=index, max_proposals=np.inf)
        found = rows[spec.timing](spec, kernel, request, seed=seed, seconds=seconds)
        yield {"sampler": spec.label, "rejections": None, "expected": False, **found}


def _draw_row(spec: SamplerSpec, kernel: LowRankKernel, request: Request, *, seed: int, seconds: float) -> Row:
    warm = max(1, round(WARM_PER_SECOND * seconds))
    sampler = spec.prepare(kernel, request)
    return _took(draw_times(sampler, seed=seed, seconds=seconds, least=2, warm=warm))


def _step_row(spec: SamplerSpec, kernel: LowRankKernel, request: Request, *, seed: int, seconds: float) -> Row:
    law = kernel.size_distribution()
    typical = max(2, _median(law)) if request.size is None else request.size
    steps = float(law @ np.arange(len(law)) ** 2) if request.size is None else float(request.size**2)
    start = registry.EXACT.prepare(kernel, Request(typical)).sample(1, rng=seed).baskets[0]
    walk = spec.prepare(kernel, request._replace(size=typical))
    assert isinstance(walk, Walk)
    found = step_times(walk, start, seed=seed, seconds=seconds, least=8)
    rejections = None if found.expected_proposals is None else found.expected_proposals - 1
    took = _took(found.times.scaled(steps))
    return {**took, "rejections": rejections, "steps": steps, "counted": found.proposals - 1}


def _proposal_row(spec: SamplerSpec, kernel: LowRankKernel, request: Request, *, seed: int, seconds: float) -> Row:
    sampler = spec.prepare(kernel, request)
    assert isinstance(sampler, Rejection)
    one = proposal_times(sampler, kernel, seed=seed, seconds=seconds / 2)
    whole, rejections = one.scaled(sampler.expected_proposals), sampler.expected_proposals - 1
    if whole.median > FEASIBLE:
        return {**_took(whole), "rejections": rejections, "expected": True}
    draws = draw_times(sampler, seed=seed, seconds=seconds, least=3, warm=1)
    return {**_took(draws if draws.calls > 20 else whole), "rejections": rejections}


def _took(times: Times) -> Row:
    return {"seconds": times.median, "least": times.least, "wall": times.wall, "calls": times.calls}


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
