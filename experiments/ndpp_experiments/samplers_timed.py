"""Time per sample of every sampler on one kernel, and expected values where a sampler cannot finish.

The number of proposals of the rejection sampler has a closed form, e_k(L̂)/e_k(L) or det(I + L̂)/det(I + L), and so has that of each
step of the paper's walk. A sampler that would take longer than ``FEASIBLE`` is timed per proposal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers import Rejection, Walk, registry
from ndpp.samplers.registry import Request, SamplerSpec, Timing
from ndpp_experiments.timing import Times, draw_times, proposal_times, step_times
from ndpp_experiments.tree import Tree, through_tree

FEASIBLE = 3.0
"""Longest time of one draw by rejection, in seconds; beyond it nothing is drawn."""
WARM_PER_SECOND = 40
"""Warm-up draws per second of timing: ``Exact`` caches the circles of every size that it meets."""
PREPARATION = "preparation"

EXACT, REJECTION, CHOLESKY, PAPERS_WALK = (
    spec.label for spec in (registry.EXACT, registry.REJECTION, registry.CHOLESKY, registry.PAPERS_WALK)
)
"""Labels in recorded results."""


class SamplerTime(NamedTuple):
    """A line of the table: seconds per sample of one sampler, on one kernel and task.

    Rejections are per sample, or per step of a walk, in closed form; ``counted`` are those that a walk met. ``expected`` says that
    the time was not measured but is the time of a proposal times the expected number of proposals.
    """

    data: str
    kernel: str
    n: int
    rank: int
    task: str
    size: int | None
    sampler: str
    seconds: float = math.nan
    least: float | None = None
    wall: float | None = None
    calls: int | None = None
    rejections: float | None = None
    expected: bool = False
    steps: float | None = None
    counted: float | None = None

    def timed(self, times: Times) -> SamplerTime:
        """Return the line with these times."""
        return self._replace(seconds=times.median, least=times.least, wall=times.wall, calls=times.calls)


def task_name(size: int | None) -> str:
    """Return the name of a task in tables."""
    return "any size" if size is None else f"k = {size}"


def time_samplers(
    kernel: LowRankKernel,
    tree: Tree,
    size: int | None,
    *,
    seed: int,
    seconds: float,
    data: str = "",
    name: str = "",
) -> Iterator[SamplerTime]:
    """Time each sampler that draws sets of this size, or of any if None, ``Exact`` first; ``name`` is that of the kernel.

    A walk counts k² steps per sample. For any size it counts E[k²] steps, each timed at the median size.
    """
    timer = Timer(kernel, Request(size, max_proposals=np.inf), seed, seconds)
    measures = {Timing.DRAW: timer.draws, Timing.STEP: timer.steps, Timing.PROPOSAL: timer.proposals}
    for spec in registry.offered(size):
        line = SamplerTime(data, name, kernel.n_items, kernel.rank, task_name(size), size, spec.label)
        yield measures[spec.timing](through_tree(spec, tree), line)


class Timer(NamedTuple):
    """Times samplers on one kernel, about ``seconds`` seconds each. Methods return ``line`` with the times filled in."""

    kernel: LowRankKernel
    request: Request
    seed: int
    seconds: float

    def draws(self, spec: SamplerSpec, line: SamplerTime) -> SamplerTime:
        """Time single draws."""
        sampler, warm = spec.prepare(self.kernel, self.request), max(1, round(WARM_PER_SECOND * self.seconds))
        return line.timed(draw_times(sampler, seed=self.seed, seconds=self.seconds, least=2, warm=warm))

    def steps(self, spec: SamplerSpec, line: SamplerTime) -> SamplerTime:
        """Time the steps of a walk from an exact draw."""
        law = self.kernel.size_distribution() if line.size is None else np.eye(line.size + 1)[-1]
        size, steps = max(2, int(np.searchsorted(np.cumsum(law), 0.5))), float(law @ np.arange(len(law)) ** 2)
        start = registry.EXACT.prepare(self.kernel, Request(size)).sample(1, rng=self.seed).baskets[0]
        walk = spec.prepare(self.kernel, self.request._replace(size=size))
        assert isinstance(walk, Walk)
        found = step_times(walk, start, seed=self.seed, seconds=self.seconds, least=8)
        rejections = None if found.expected_proposals is None else found.expected_proposals - 1
        line = line.timed(found.times.scaled(steps))
        return line._replace(rejections=rejections, steps=steps, counted=found.proposals - 1)

    def proposals(self, spec: SamplerSpec, line: SamplerTime) -> SamplerTime:
        """Time draws by rejection, or proposals if a draw would take too long."""
        sampler = spec.prepare(self.kernel, self.request)
        assert isinstance(sampler, Rejection)
        line = line._replace(rejections=sampler.expected_proposals - 1)
        one = proposal_times(sampler, self.kernel, seed=self.seed, seconds=self.seconds / 2)
        whole = one.scaled(sampler.expected_proposals)
        if whole.median > FEASIBLE:
            return line.timed(whole)._replace(expected=True)
        draws = draw_times(sampler, seed=self.seed, seconds=self.seconds, least=3, warm=1)
        return line.timed(draws if draws.calls > 20 else whole)


def times_exact(times: Sequence[SamplerTime], one: SamplerTime) -> float:
    """Return how many times as long as ``Exact`` a sampler takes for the same task on the same kernel."""
    same = (one.data, one.kernel, one.task)
    exact = next(t for t in times if t.sampler == EXACT and (t.data, t.kernel, t.task) == same)
    return one.seconds / exact.seconds
