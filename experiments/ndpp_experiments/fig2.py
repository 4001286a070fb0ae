"""Figure 2: preparation and sampling time against n = 10² … 10⁶ (d = 100, k = 10) and against k (n = 10⁶) [Han22].

The paper times its walk only; this figure adds ``Exact`` and the walk without rejection, with slopes fitted on log-log axes. Each
preparation is timed from the factors X and W, since kernels compute their coordinates when they are first needed. For the paper's walk it
also compares the mean number of proposals per step with its closed form e_2(L̂^A)/e_2(L^A), averaged over the sets A that the walk visited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ndpp.datasets import make_kernel
from ndpp.samplers import DirectUp, Exact, Walk
from ndpp_experiments.claims import Claim
from ndpp_experiments.plots import Curve, Panel, fitted_slope, runtimes
from ndpp_experiments.record import Finding, Result, Say, number
from ndpp_experiments.timing import afresh, draw_times, prepared, step_times
from ndpp_experiments.tree import ENOUGH, Tree, TreeUp, papers_leaf

FULL = (10**2, 10**3, 10**4, 10**5, 10**6), 100, 10, (10, 20, 30, 50, 70, 100)
"""Catalogues to time at one rank and size, and sizes to time on the largest catalogue."""
SAMPLING_SLOPE, PREPARATION_SLOPE, STEP_RATIO = 0.1, 1.1, 2.0
"""Bounds on the slopes against n, and on the ratio of the step times at any two n."""
OVERHEAD = 1.1
"""Ratio of step times that counts as marginal."""


class Point(NamedTuple):
    """Times at one n and k: seconds to prepare, per sample and per step, and the proposals of the paper's walk.

    Each preparation starts from X and W: the coordinates; ``Exact``, up to its first sample; and the tree of the paper's walk, of 256 MB
    at most or with as many items per leaf as in the paper.
    """

    n: int
    prepare_kernel: float
    prepare_exact: float
    prepare_tree: float
    prepare_papers_tree: float
    leaf: int
    papers_leaf: int
    k: int
    exact: float
    direct_walk: float
    direct_step: float
    rejection_walk: float
    rejection_step: float
    papers_walk: float
    papers_step: float
    proposals: float
    proposals_error: float
    proposals_expected: float
    steps: int


Value = Callable[[Point], float]
SAMPLERS: dict[str, Value] = {
    "Exact": lambda p: p.exact,
    "Walk(DirectUp)": lambda p: p.direct_walk,
    "Walk(RejectionUp)": lambda p: p.rejection_walk,
    "Walk(RejectionUp), the paper's leaves": lambda p: p.papers_walk,
}
PREPARATIONS: dict[str, Value] = {
    "coordinates": lambda p: p.prepare_kernel,
    "Exact, to its first sample": lambda p: p.prepare_exact,
    "Walk(RejectionUp), with its tree": lambda p: p.prepare_tree,
    "Walk(RejectionUp), the paper's leaves": lambda p: p.prepare_papers_tree,
}


def measure(*, quick: bool, seed: int, say: Say) -> Result:
    """Time preparation and sampling along both sweeps."""
    n_items, rank, size, sizes = ((10**2, 10**3), 20, 4, (4, 8)) if quick else FULL
    # Few steps in a quick run, so that their number is always the same.
    time_at = partial(sampling, seed=seed, seconds=0.02 if quick else 2.0, steps=100 if quick else 2000)
    sampling(prepare(50, 4, 2, seed=seed), 2, seed=seed, seconds=0.0, steps=20)  # compiles
    by_n: list[Point] = []
    small = prepare(n_items[0], rank, size, seed=seed)
    for n in n_items:
        ready = prepare(n, rank, size, seed=seed)
        by_n.append(time_at(ready, size))
        small = ready if ready.papers.leaf == 1 else small
        say(f"n = {n:,}: preparation {by_n[-1].prepare_kernel:.3g} s, Exact {by_n[-1].exact:.3g} s")
    by_k: list[Point] = []
    for k in sizes:
        by_k.append(time_at(ready, k))
        say(f"k = {k}: Exact {by_k[-1].exact:.3g} s")
    settings = {"n": n_items, "d": rank, "k": size, "k at the largest n": sizes}
    figure = runtimes(_panels(rank, by_n, by_k))
    findings = [
        *_findings(by_n, by_k),
        _fat_leaves(*(time_at(one, size).papers_step for one in (small, with_fat(small)))),
    ]
    return Result(settings, findings, {"n": by_n, "k": by_k}, figure, NOTES)


NOTES = (
    "Seconds are medians of the CPU time of one core. A sample of a walk is k² steps, timed per step at stationarity. Each preparation is "
    "all that a user waits for, from X and W: the orthonormal coordinates, which all samplers share; `Exact`, up to its first sample; the "
    "paper's walk, up to its tree. (`LowRankKernel(X, W)` alone checks its factors, and computes nothing yet.) "
    "Slopes are least-squares fits over all points of a curve.",
    "*The paper's leaves* hold one item, and B = 8 from 10⁵ items on (App. A.1); their nodes take gigabytes. The other walk by "
    "`RejectionUp` draws through a tree of 256 MB, as in tables 1 to 3: its nodes are fewer, its leaves hold more, and are read in one "
    "pass.",
    "At n = d = 100 the kernel has as many directions as items, so the first point is a different problem from the others.",
)


class Ready(NamedTuple):
    """Both trees of a kernel, and the seconds from X and W to its coordinates, to ``Exact`` and to each tree."""

    tree: Tree
    papers: Tree
    seconds: tuple[float, float, float, float]


def prepare(n_items: int, rank: int, size: int, *, seed: int) -> Ready:
    """Prepare everything for a kernel made by the paper's recipe."""
    made = make_kernel(n_items, rank, rng=seed)
    _, for_kernel = prepared(lambda: afresh(made).coordinates)
    _, for_exact = prepared(lambda: Exact.prepare(afresh(made), size=size).sample(1, rng=seed))
    tree, for_tree = prepared(lambda: Tree.prepare(afresh(made)))
    large = {"leaf": papers_leaf(n_items), "memory": ENOUGH}
    papers, for_papers = prepared(lambda: Tree.prepare(afresh(made), **large), repeats=1 if n_items > 10**5 else 3)
    return Ready(tree, papers, (for_kernel, for_exact, for_tree, for_papers))


def with_fat(ready: Ready) -> Ready:
    """Return the same with leaves of B = 8 in the paper's tree."""
    return ready._replace(papers=Tree.prepare(ready.tree.kernel, leaf=8, memory=ENOUGH))


def sampling(ready: Ready, size: int, *, seed: int, seconds: float, steps: int) -> Point:
    """Time each sampler at one size, and count the proposals of the paper's walk."""
    kernel = ready.tree.kernel
    exact = Exact.prepare(kernel, size=size)
    start = exact.sample(1, rng=seed).baskets[0]
    ups = DirectUp(), TreeUp(tree=ready.tree), TreeUp(tree=ready.papers)
    walks = [Walk.prepare(kernel, size=size, up=up, start=start) for up in ups]
    direct, rejection, papers = (
        step_times(walk, start, seed=seed, seconds=seconds, least=min(150, steps), most=steps) for walk in walks
    )
    assert rejection.expected_proposals is not None
    return Point(
        kernel.n_items, *ready.seconds, ready.tree.leaf, ready.papers.leaf, size,
        exact=draw_times(exact, seed=seed, seconds=seconds, warm=5).median,
        direct_walk=direct.times.median * size**2, direct_step=direct.times.median,
        rejection_walk=rejection.times.median * size**2, rejection_step=rejection.times.median,
        papers_walk=papers.times.median * size**2, papers_step=papers.times.median,
        proposals=rejection.proposals, proposals_error=rejection.standard_error,
        proposals_expected=rejection.expected_proposals, steps=rejection.times.calls,
    )  # fmt: skip


def _fat_leaves(single: float, fat: float) -> Finding:
    text = f"{fat / single:.2f} times as long (bound {OVERHEAD})"
    what = "a step of the paper's walk with B = 8, against B = 1"
    return Finding(what, "very marginal overhead", text, fat <= OVERHEAD * single, Claim.FAT_LEAVES)


def _panels(rank: int, by_n: Sequence[Point], by_k: Sequence[Point]) -> list[Panel]:
    n, k = [point.n for point in by_n], [point.k for point in by_k]
    held = f"d = {rank}, k = {by_n[0].k}"
    proposals: dict[str, Value] = {"counted": lambda p: p.proposals, "closed form": lambda p: p.proposals_expected}

    def curves(values: dict[str, Value], x: list[int], points: Sequence[Point]) -> list[Curve]:
        return [Curve(name, x, [value(point) for point in points]) for name, value in values.items()]

    return [
        Panel(f"Preparation, d = {rank}", "items n", "seconds", curves(PREPARATIONS, n, by_n)),
        Panel(f"One sample, {held}", "items n", "seconds", curves(SAMPLERS, n, by_n)),
        Panel(f"One sample, n = {n[-1]:,}, d = {rank}", "size k", "seconds", curves(SAMPLERS, k, by_k)),
        Panel(f"Walk(RejectionUp), {held}", "items n", "proposals per step", curves(proposals, n, by_n)),
    ]


def _findings(by_n: Sequence[Point], by_k: Sequence[Point]) -> list[Finding]:
    def against_n(value: Value, points: Sequence[Point] = by_n) -> float:
        return fitted_slope([point.n for point in points], [value(point) for point in points])

    exact, direct, rejection, papers = SAMPLERS.values()
    of_kernel, of_exact, with_tree, with_papers = PREPARATIONS.values()
    found = [
        Finding(f"slope of {name} against n", says, f"{slope:.3f} (bound {bound})", slope <= bound, claim)
        for name, says, slope, bound, claim in (
            ("preparation, coordinates", "", against_n(of_kernel), PREPARATION_SLOPE, None),
            ("preparation of `Exact`", "", against_n(of_exact), PREPARATION_SLOPE, None),
            ("preparation with the tree", "linear", against_n(with_tree), PREPARATION_SLOPE, Claim.PREPARATION),
            (
                "preparation with the paper's leaves",
                "linear",
                against_n(with_papers),
                PREPARATION_SLOPE,
                Claim.PREPARATION,
            ),
            (
                "the same, three largest n",
                "linear",
                against_n(with_papers, by_n[-3:]),
                PREPARATION_SLOPE,
                Claim.PREPARATION,
            ),
            ("`Exact`, one sample", "", against_n(exact), SAMPLING_SLOPE, None),
            ("`Walk(DirectUp)`, one sample", "", against_n(direct), SAMPLING_SLOPE, None),
            ("`Walk(RejectionUp)`, one sample", "“almost identical”", against_n(rejection), SAMPLING_SLOPE, Claim.FLAT),
            ("the same with the paper's leaves", "“almost identical”", against_n(papers), SAMPLING_SLOPE, Claim.FLAT),
        )
    ]
    leaves = ", ".join(f"{p.leaf} / {p.papers_leaf}" for p in by_n)
    found.append(Finding("items per leaf: 256 MB / the paper's leaves, by n", "1, and 8 from 10⁵ items on", leaves))
    steps = [point.papers_step for point in by_n]
    ratio = max(steps) / min(steps)
    text = f"{ratio:.2f} between slowest and fastest (bound {STEP_RATIO:g})"
    claim = "about 10 s per sample at 10² and at 10⁶"
    found.append(
        Finding("a step of the paper's walk, largest over smallest n", claim, text, ratio <= STEP_RATIO, Claim.FLAT)
    )
    worst = max(abs(p.proposals - p.proposals_expected) / p.proposals_error for p in by_n)
    pairs = ", ".join(f"{p.proposals:.1f} / {p.proposals_expected:.1f}" for p in by_n)
    text = f"{pairs}; {worst:.1f} s.e."
    found.append(Finding("proposals per step, counted / closed form, by n", "", text, worst < 4))
    for name, value in SAMPLERS.items():
        slope = fitted_slope([point.k for point in by_k], [value(point) for point in by_k])
        one = Finding(f"slope of `{name}` against k", "", f"{slope:.2f}")
        if value in (rejection, papers):
            one = one._replace(paper="superlinear", holds=slope > 1, claim=Claim.SUPERLINEAR)
        found.append(one)
    times = ", ".join(f"{number(papers(p))} / {number(p.exact)} s" for p in (by_n[0], by_n[-1]))
    return [*found, Finding("the paper's walk / `Exact`, one sample, smallest and largest n", "10 s", times)]
