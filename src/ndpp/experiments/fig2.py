"""Figure 2: time of preparation and of sampling against n = 10² … 10⁶ (d = 100, k = 10) and against k (n = 10⁶) [Han22].

The paper shows its walk alone; here are ``Exact``, the walk without rejection and the paper's walk side by side, with slopes
fitted on log-log axes. For the paper's walk the mean number of proposals per step stands beside its closed form
e_2(L̂^A)/e_2(L^A), averaged over the kept sets that were met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ndpp.datasets import make_kernel
from ndpp.experiments.record import Finding, Result, Row, number
from ndpp.experiments.timing import draw_times, prepared, step_times
from ndpp.items import Tree
from ndpp.laws.kernel import LowRankKernel
from ndpp.plots import Curve, Panel, fitted_slope, runtimes
from ndpp.samplers import DirectUp, Exact, RejectionUp, Walk

SAMPLING_SLOPE, PREPARATION_SLOPE, STEP_RATIO = 0.1, 1.1, 2.0
"""Bounds on the slopes against n, and on how much a step may differ between any two n."""


class Settings(NamedTuple):
    """Catalogues, rank, size of sets; sizes of the second panel and its catalogue; seconds for each figure, steps at most."""

    n_items: Sequence[int]
    rank: int
    size: int
    sizes: Sequence[int]
    n_large: int
    seconds: float
    steps: int


FULL = Settings((10**2, 10**3, 10**4, 10**5, 10**6), 100, 10, (10, 20, 30, 50, 70, 100), 10**6, 2.0, 2000)
QUICK = Settings(
    (10**2, 10**3, 10**4), 20, 4, (4, 8, 16), 10**4, 0.1, 150
)  # few steps, so that their number is always the same


def measure(*, quick: bool, seed: int, say: Callable[[str], None]) -> Result:
    """Time preparation and sampling along both sweeps."""
    chosen = QUICK if quick else FULL
    sampled = partial(sampling, seed=seed, seconds=chosen.seconds, steps=chosen.steps)
    sampling(*prepare(50, 4, seed=seed)[:2], 2, seed=seed, seconds=0.0, steps=20)  # compiles
    by_n: list[Row] = []
    for n in chosen.n_items:
        kernel, index, row = prepare(n, chosen.rank, seed=seed)
        by_n.append({**row, **sampled(kernel, index, chosen.size)})
        say(f"n = {n:,}: preparation {row['prepare kernel']:.3g} s, Exact {by_n[-1]['Exact']:.3g} s")
    if chosen.n_large != chosen.n_items[-1]:
        kernel, index, _ = prepare(chosen.n_large, chosen.rank, seed=seed)
    by_k: list[Row] = []
    for k in chosen.sizes:
        by_k.append({"n": chosen.n_large, **sampled(kernel, index, k)})
        say(f"k = {k}: Exact {by_k[-1]['Exact']:.3g} s")
    settings = {"n": chosen.n_items, "d": chosen.rank, "k": chosen.size, "k at the largest n": chosen.sizes}
    figure = runtimes(_panels(chosen, by_n, by_k))
    return Result(settings, _findings(by_n, by_k), {"n": by_n, "k": by_k}, {"": figure}, NOTES)


NOTES = (
    "Seconds are CPU time of one core, medians. A sample of a walk is k² steps, timed by the step at stationarity. "
    "Preparation: `LowRankKernel(X, W)` computes orthonormal coordinates, which every sampler shares; `Exact` adds its "
    "leverage table, the paper's walk its tree. Slopes are least-squares fits over all points of a curve.",
    "Where n = d = 100 the kernel has as many directions as items, so that this first point is a different problem from the others.",
)
SAMPLERS = ("Exact", "Walk(DirectUp)", "Walk(RejectionUp)")
PREPARATIONS = ("kernel", "Exact", "tree of Walk(RejectionUp)")


def prepare(n_items: int, rank: int, *, seed: int) -> tuple[LowRankKernel, Tree, Row]:
    """Return a kernel by the paper's recipe, its tree, and what each part of the preparation took."""
    made = make_kernel(n_items, rank, rng=seed)
    kernel, seconds = prepared(lambda: LowRankKernel(made.X, made.W))
    tree, for_tree = prepared(lambda: Tree.prepare(kernel))
    _, for_exact = prepared(lambda: Exact.prepare(kernel, size=2))
    parts = dict(zip(PREPARATIONS, (seconds, for_exact, for_tree)))
    return kernel, tree, {"n": n_items, **{f"prepare {name}": value for name, value in parts.items()}}


def sampling(kernel: LowRankKernel, index: Tree, size: int, *, seed: int, seconds: float, steps: int) -> Row:
    """Return seconds per sample of each sampler at one size, and the proposals of the paper's walk."""
    exact = Exact.prepare(kernel, size=size)
    row: Row = {"k": size, "Exact": draw_times(exact, seed=seed, seconds=seconds, warm=5).median}
    start = exact.sample(1, rng=seed).baskets[0]
    for name, up in (("Walk(DirectUp)", DirectUp()), ("Walk(RejectionUp)", RejectionUp(index=lambda _: index))):
        walk = Walk.prepare(kernel, size=size, up=up, start=start)
        found = step_times(walk, start, seed=seed, seconds=seconds, least=min(150, steps), most=steps)
        row |= {name: found.times.median * walk.steps, f"{name} step": found.times.median}
        if found.expected_proposals is not None:
            row |= {"proposals": found.proposals, "proposals, standard error": found.standard_error}
            row["proposals, closed form"] = found.expected_proposals
            row["steps"] = found.times.calls
    return row


def _panels(chosen: Settings, by_n: list[Row], by_k: list[Row]) -> list[Panel]:
    n, k = [row["n"] for row in by_n], [row["k"] for row in by_k]
    prepared = [Curve(f"{name}", n, [row[f"prepare {name}"] for row in by_n]) for name in PREPARATIONS]
    by_size = f"n = {chosen.n_large:,}, d = {chosen.rank}"
    of_catalogue = f"d = {chosen.rank}, k = {chosen.size}"

    def sampled(rows: list[Row], x: list[int]) -> list[Curve]:
        return [Curve(name, x, [row[name] for row in rows]) for name in SAMPLERS]

    proposals = [
        Curve("counted", n, [row["proposals"] for row in by_n]),
        Curve("closed form", n, [row["proposals, closed form"] for row in by_n]),
    ]
    return [
        Panel(f"Preparation, d = {chosen.rank}", "items n", "seconds", prepared),
        Panel(f"One sample, {of_catalogue}", "items n", "seconds", sampled(by_n, n)),
        Panel(f"One sample, {by_size}", "size k", "seconds", sampled(by_k, k)),
        Panel(f"Walk(RejectionUp), {of_catalogue}", "items n", "proposals per step", proposals),
    ]


def _findings(by_n: list[Row], by_k: list[Row]) -> list[Finding]:
    def slope(name: str, rows: list[Row], x: str) -> float:
        return fitted_slope([row[x] for row in rows], [row[name] for row in rows])

    total = [{**row, "prepare": row["prepare kernel"] + row[f"prepare {PREPARATIONS[2]}"]} for row in by_n]
    found = [
        Finding(f"slope of {name} against n", claim, f"{value:.3f} (bound {bound})", value <= bound)
        for name, claim, value, bound in (
            ("preparation, coordinates", "", slope("prepare kernel", by_n, "n"), PREPARATION_SLOPE),
            ("preparation with the tree", "linear", slope("prepare", total, "n"), PREPARATION_SLOPE),
            ("the same, three largest n", "linear", slope("prepare", total[-3:], "n"), PREPARATION_SLOPE),
            *((f"`{name}`, one sample", "", slope(name, by_n, "n"), SAMPLING_SLOPE) for name in SAMPLERS[:2]),
            ("`Walk(RejectionUp)`, one sample", "“almost identical”", slope(SAMPLERS[2], by_n, "n"), SAMPLING_SLOPE),
        )
    ]
    steps = [row["Walk(RejectionUp) step"] for row in by_n]
    found.append(
        Finding(
            "a step of the paper's walk, largest over smallest n", "about 10 s a sample at 10² and at 10⁶",
            f"{max(steps) / min(steps):.2f} between slowest and fastest (bound {STEP_RATIO:g})", max(steps) / min(steps) <= STEP_RATIO,
        )
    )  # fmt: skip
    worst = max(abs(r["proposals"] - r["proposals, closed form"]) / r["proposals, standard error"] for r in by_n)
    pairs = ", ".join(f"{r['proposals']:.1f} / {r['proposals, closed form']:.1f}" for r in by_n)
    found.append(
        Finding("proposals per step, counted / closed form, by n", "", f"{pairs}; {worst:.1f} s.e.", worst < 4)
    )
    found += [
        Finding(f"slope of `{name}` against k", "superlinear" if i == 2 else "", f"{slope(name, by_k, 'k'):.2f}")
        for i, name in enumerate(SAMPLERS)
    ]
    times = ", ".join(f"{number(row[SAMPLERS[2]])} / {number(row['Exact'])} s" for row in (by_n[0], by_n[-1]))
    found.append(Finding("the paper's walk / `Exact`, one sample, smallest and largest n", "10 s", times))
    return found
