"""Theorem 4: the paper's bound on the proposals of its up-step, beside what they are [Han22].

The bound is (1 + σ_max(X)² κ_A)² for the items kept, A (:func:`ndpp.linalg.skew.rejection_bound`). The expected number of proposals is
e_2(X Ŵ^A Xᵀ) / e_2(X W^A Xᵀ); walks of this library use orthonormal coordinates, where it is about the same. Nothing is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.datasets import make_kernel
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.schur import condition_inner
from ndpp.linalg.skew import dominating, rejection_bound
from ndpp.samplers import Exact, RejectionUp
from ndpp_experiments.claims import Claim
from ndpp_experiments.fig1 import N_ITEMS, RANK, SIZE
from ndpp_experiments.plots import Curve, Panel, fitted_slope, runtimes
from ndpp_experiments.record import Finding, Result, Say, number

FULL: tuple[Sequence[int], Sequence[int], tuple[int, int, int]] = (
    (250, 500, 1000, 2000),
    (20, 40, 80, 160),
    (1000, 40, 8),
)
QUICK: tuple[Sequence[int], Sequence[int], tuple[int, int, int]] = (200, 800), (8, 16), (200, 16, 4)
"""Numbers of items and ranks to sweep, and n, d and k that are held."""
SETS = 20
"""Sets A of each point of a sweep."""
NO_GROWTH = 0.1
"""Slope against n or d below which the number of proposals does not depend on it."""


class Proposals(NamedTuple):
    """Proposals of one up-step in the paper's coordinates and in orthonormal ones, and the bound: medians over sets A, and the extremes.

    ``least_slack`` is the smallest ratio of the bound to the paper's proposals: below one, the theorem would be false.
    """

    n: int
    d: int
    k: int
    sets: int
    papers: float
    papers_most: float
    orthonormal: float
    bound: float
    bound_least: float
    least_slack: float


def measure(*, quick: bool, seed: int, say: Say) -> Result:
    """Compare proposals and bound for all A of Figure 1's kernel, and along a sweep of n and one of d."""
    small = make_kernel(N_ITEMS, RANK, rng=seed)
    everywhere = proposals(small, SIZE, kept_everywhere(small, SIZE))
    n_items, ranks, (n, d, k) = QUICK if quick else FULL
    sweeps: list[list[Proposals]] = []
    for problems in ([(m, d) for m in n_items], [(n, r) for r in ranks]):
        kernels = [make_kernel(*problem, rng=seed) for problem in problems]
        sweeps.append([proposals(one, k, kept_on_the_way(one, k, SETS, seed=seed)) for one in kernels])
        say(f"n and d = {problems}")
    by_n, by_d = sweeps
    findings = [
        _bounded(f"n = {N_ITEMS}, d = {RANK}, k = {SIZE}, every A", [everywhere]),
        _bounded("both sweeps, A along a walk", [*by_n, *by_d]),
        _growth(f"n, d = {d}, k = {k}", [point.n for point in by_n], by_n, Claim.NO_N),
        _growth(f"d, n = {n:,}, k = {k}", [point.d for point in by_d], by_d, Claim.NO_D),
    ]
    panels = [
        Panel(f"d = {d}, k = {k}", "items n", "proposals per step", _curves([point.n for point in by_n], by_n)),
        Panel(f"n = {n:,}, k = {k}", "rank d", "proposals per step", _curves([point.d for point in by_d], by_d)),
    ]
    settings = {"n": n_items, "d": ranks, "k": k, "sets A of each": SETS}
    return Result(settings, findings, {"": [everywhere, *by_n, *by_d]}, runtimes(panels), NOTES)


NOTES = (
    "The paper derives from Theorem 4 that the number of rejections depends neither on n nor on d. The bound does depend on both: κ_A has "
    "the least singular value of all pairs in its denominator, which falls as pairs are added, and σ_max(X)² grows with n. What it bounds "
    "does not grow with n, but does with d, for kernels made by the paper's recipe. “Average number of rejections” in the theorem "
    "is the expected number of proposals, one more.",
)


def _bounded(what: str, points: Sequence[Proposals]) -> Finding:
    """Return whether the bound is never below the proposals."""
    medians = ", ".join(f"{number(p.bound)} for {number(p.papers)} ({number(p.orthonormal)})" for p in points)
    text = f"{medians}; at least {number(min(p.least_slack for p in points))} times the proposals"
    return Finding(
        f"{what}: median bound, for proposals per step (in orthonormal coordinates)",
        "(1 + σ_max(X)²κ_A)² is not below", text, all(p.least_slack >= 1 for p in points), Claim.BOUND,
    )  # fmt: skip


def _growth(against: str, x: Sequence[int], points: Sequence[Proposals], claim: Claim) -> Finding:
    slope, of_bound = (fitted_slope(x, y) for y in ([p.papers for p in points], [p.bound for p in points]))
    medians = ", ".join(f"{number(p.papers)} at {value:,}" for value, p in zip(x, points))
    text = f"slope {slope:.2f} (bound {NO_GROWTH}): {medians}; of Theorem 4's bound {of_bound:.2f}"
    return Finding(f"proposals per step against {against}", "no dependence", text, slope <= NO_GROWTH, claim)


def _curves(x: Sequence[int], points: Sequence[Proposals]) -> list[Curve]:
    values = {"Theorem 4's bound": [p.bound for p in points], "proposals": [p.papers for p in points]}
    return [Curve(name, x, y) for name, y in values.items()]


def kept_everywhere(kernel: LowRankKernel, size: int) -> list[IntArray]:
    """Return every set of size − 2 rows."""
    return [np.array(rows) for rows in combinations(range(kernel.n_rows), size - 2)]


def kept_on_the_way(kernel: LowRankKernel, size: int, count: int, *, seed: int) -> list[IntArray]:
    """Return what a stationary walk keeps: exact samples without two of their items."""
    rng = np.random.default_rng([seed, size])
    samples = Exact.prepare(kernel, size=size).sample(count, rng=seed).baskets
    return [np.sort(rng.choice(kernel.rows_of(items), size - 2, replace=False)) for items in samples]


def proposals(kernel: LowRankKernel, size: int, kept: Sequence[IntArray]) -> Proposals:
    """Compute proposals and bound for each of these sets of items kept. O(n²) each.

    Examples
    --------
    >>> kernel = make_kernel(10, 8, rng=0)
    >>> found = proposals(kernel, 5, kept_everywhere(kernel, 5))
    >>> found.sets, found.least_slack > 1, found.orthonormal < found.papers < found.bound
    (120, True, True)
    """
    X, W, up = np.asarray(kernel.X, np.float64), np.asarray(kernel.W), RejectionUp().prepare(kernel, size)
    papers = np.array([in_the_papers_coordinates(X, W, rows) for rows in kept])
    own = float(np.median([up.expected_proposals(rows) for rows in kept]))
    bounds = np.array([rejection_bound(X, W, rows).proposals for rows in kept])
    return Proposals(
        kernel.n_items, kernel.rank, size, len(kept), float(np.median(papers)), float(papers.max()), own,
        float(np.median(bounds)), float(bounds.min()), float((bounds / papers).min()),
    )  # fmt: skip


def in_the_papers_coordinates(X: FloatArray, W: FloatArray, kept: IntArray) -> float:
    """Return e_2(X Ŵ^A Xᵀ) / e_2(X W^A Xᵀ), the expected number of proposals of Alg. 2 given these rows; det L_A ≠ 0."""
    gram = X.T @ X
    inner = condition_inner(W, X[kept])[0] if len(kept) else W
    products = (gram @ dominating(inner), gram @ inner)
    bound, target = (np.trace(P) ** 2 - np.sum(P * P.T) for P in products)
    return float(bound / target)
