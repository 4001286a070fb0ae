"""Beyond the paper: exact samples against the walk after k/2, k, 2k, 5k and k² steps, on learned kernels and on tight pairs.

In L = ⊕ [[ε, 1], [−1, ε]] items come in pairs. As ε → 0, a step removes both items of one of the k/2 pairs with probability 1/(k − 1)
and then inserts one of the m − k/2 + 1 free pairs; any other step changes nothing. So a pair of the start is present after t steps
with probability π + (1 − π)(1 − a − b)ᵗ, π = k/(2m), where it leaves at rate a = 2(m − k/2) / (k(k − 1)(m − k/2 + 1)) and enters at
rate b = 1/((k − 1)(m − k/2 + 1)). If there are many pairs, a share e⁻² of the start has never been touched after k² steps. The
diagnostics are run on learned kernels and on this one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ndpp.baskets import Baskets
from ndpp.datasets import make_kernel
from ndpp.diagnostics import diagnose_chains
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers import Exact, Walk
from ndpp_experiments.chains import log_det_gap, noise_of_gap, run_chains
from ndpp_experiments.diagnostics import energy_test
from ndpp_experiments.kernels import learned_file
from ndpp_experiments.plots import Curve, Panel, convergence_curves
from ndpp_experiments.record import Finding, Result, Say, grouped, number
from ndpp_experiments.timing import draw_times, step_times

EPSILON = 0.001
LENGTHS = {"k/2": 0.5, "k": 1.0, "2k": 2.0, "5k": 5.0}
"""Numbers of steps, in multiples of k; k² comes last."""
LEARNED = {"A": ((10, 200), (20, 60)), "B": ((10, 200), (20, 60), (50, 12))}
"""Sizes and numbers of chains by learned kernel; at k = 50 a chain takes 2,500 steps."""


class Case(NamedTuple):
    """A kernel, a size, a number of chains, and whether the items are tight pairs."""

    name: str
    kernel: LowRankKernel
    size: int
    chains: int
    pairs: bool


class ChainSnapshot(NamedTuple):
    """The sets of all chains after some steps: their overlap with the start, and their distance from exact draws.

    Only tight pairs have ``overlap_expected``, the closed form with its standard error; only other kernels have a ``gap``.
    """

    kernel: str
    k: int
    pairs: bool
    chains: int
    after: str
    steps: int
    overlap: float
    overlap_by_chance: float
    gap: float | None
    noise: float
    p: float
    seconds: float
    seconds_of_exact: float
    overlap_expected: float | None
    overlap_error: float | None


def measure(*, quick: bool, seed: int, say: Say) -> Result:
    """Run chains on all kernels, compare them with exact draws, and run the diagnostics."""
    found: list[ChainSnapshot] = []
    verdicts: list[Finding] = []
    for case in _cases(quick, seed):
        found += _checkpoints(case, seed=seed, seconds=0.02 if quick else 0.3)
        if case.size <= 20:
            verdicts.append(_verdict(case, seed=seed))
        say(f"{case.name}, k = {case.size}")
    settings = {"kernels": "; ".join(grouped(found, lambda point: point.kernel)), "ε": EPSILON}
    by_case = grouped(found, lambda point: f"{point.kernel}, k = {point.k}")
    findings = [finding for name, own in by_case.items() for finding in _findings(name, own)]
    return Result(settings, [*findings, *verdicts], {"": found}, convergence_curves(_panels(by_case)), NOTES)


NOTES = (
    "*Overlap with the start* is the share of a chain's first set that is still in it; independent draws overlap by chance. Chains on "
    "learned kernels start at uniform sets, those on tight pairs all at one typical set. *Gap* is the difference of mean log det from "
    "exact draws, in standard deviations. p is the p-value of an energy test between the chains' sets and as many exact draws. The "
    "test is consistent against every difference, but has little power if sets are few and hardly overlap.",
    "`Exact` has no number of steps to choose, and its time depends on none of this.",
)


def pair_kernel(n_pairs: int, *, epsilon: float = EPSILON) -> LowRankKernel:
    """Return ⊕ [[ε, 1], [−1, ε]]: items 2i and 2i + 1 nearly always come together.

    Examples
    --------
    >>> kernel = pair_kernel(3)
    >>> round(float(kernel.inclusion_probabilities(size=2, given=[0])[1]), 3)
    1.0
    """
    block = np.array([[epsilon, 1.0], [-1.0, epsilon]])
    return LowRankKernel(np.eye(2 * n_pairs), np.kron(np.eye(n_pairs), block))


def _cases(quick: bool, seed: int) -> list[Case]:
    if quick:
        synthetic = Case("synthetic, n = 200, d = 8", make_kernel(200, 8, rng=seed), 4, 24, False)
        return [synthetic, Case("tight pairs, n = 24", pair_kernel(12), 4, 24, True)]
    learned = [
        Case(f"UK Retail, learned ({name})", kernel, size, chains, False)
        for name in LEARNED
        if (kernel := learned_file(f"uk_retail_{name}")) is not None
        for size, chains in LEARNED[name]
    ]
    some = learned or [Case("synthetic, n = 2,000, d = 40", make_kernel(2000, 40, rng=seed), 10, 200, False)]
    return some + [Case("tight pairs, n = 200", pair_kernel(100), size, c, True) for size, c in ((10, 100), (50, 12))]


def _checkpoints(case: Case, *, seed: int, seconds: float) -> Iterator[ChainSnapshot]:
    exact = Exact.prepare(case.kernel, size=case.size)
    start = exact.sample(1, rng=seed).baskets[0]
    truth = exact.sample(4 * case.chains, rng=seed).baskets
    walk = Walk.prepare(case.kernel, size=case.size, start=start if case.pairs else "uniform")  # uniform breaks pairs
    steps = {**{name: max(1, round(f * case.size)) for name, f in LENGTHS.items()}, "k²": case.size**2}
    first, *later = run_chains(walk, case.chains, [0, *steps.values()], seed=seed)
    exact_log_dets = case.kernel.log_dets(truth)
    of_exact = draw_times(exact, seed=seed, seconds=seconds).median
    per_step = step_times(walk, start, seed=seed, seconds=seconds).times.median
    for (after, done), sets in zip(steps.items(), later):
        expected = pair_remains(done, case.size, case.kernel.n_items // 2) if case.pairs else None
        yield ChainSnapshot(
            kernel=case.name, k=case.size, pairs=case.pairs, chains=case.chains, after=after, steps=done,
            overlap=overlap(first, sets),
            overlap_by_chance=case.size / case.kernel.n_items,  # for a uniform start, and where all items are alike
            gap=None if case.pairs else log_det_gap(case.kernel, sets, exact_log_dets),
            noise=noise_of_gap(case.chains, len(truth)), p=energy_test(sets, truth[: case.chains], rng=seed).p_value,
            seconds=done * per_step, seconds_of_exact=of_exact, overlap_expected=expected,
            overlap_error=expected and math.sqrt(expected * (1 - expected) / (case.chains * case.size / 2)),
        )  # fmt: skip


def pair_remains(steps: int, size: int, n_pairs: int) -> float:
    """Return the probability that a pair of the start is present after ``steps`` steps of the walk on tight pairs.

    Examples
    --------
    >>> pair_remains(0, 10, 100), round(pair_remains(10**6, 10, 100), 6)
    (1.0, 0.05)
    >>> round(pair_remains(2500, 50, 10**6), 2)  # about e⁻²
    0.13
    """
    free = n_pairs - size // 2
    leaves = 2 * free / (size * (size - 1) * (free + 1))
    enters = 1 / ((size - 1) * (free + 1))
    stationary = enters / (leaves + enters)
    return stationary + (1 - stationary) * (1 - leaves - enters) ** steps


def overlap(first: Baskets, later: Baskets) -> float:
    """Return the mean share of the first sets that is still in the later ones.

    Examples
    --------
    >>> overlap(Baskets.from_lists([[0, 1]], n_items=4), Baskets.from_lists([[1, 3]], n_items=4))
    0.5
    """
    return float(first.to_csr().multiply(later.to_csr()).sum() / first.sizes.sum())


def _verdict(case: Case, *, seed: int) -> Finding:
    """Diagnose four chains of forty sets, k steps apart, from uniform sets, or from exact draws if items are pairs."""
    chains, length = 4, 40
    steps = range(case.size, (length + 1) * case.size, case.size)
    starts = case.kernel.sample(chains, size=case.size, rng=seed) if case.pairs else None
    sets = run_chains(Walk.prepare(case.kernel, size=case.size), chains, steps, seed=seed, starts=starts)
    in_turn = Baskets.from_lists([items for here in sets for items in here], n_items=case.kernel.n_items)
    found = diagnose_chains(case.kernel, in_turn, n_chains=chains, ess_wanted=20)
    return Finding(f"{case.name}, k = {case.size}: verdict of `diagnostics.diagnose_chains`", "", found.summary)


def _panels(by_case: dict[str, list[ChainSnapshot]]) -> list[Panel]:
    overlaps, gaps = [], []
    for name, own in by_case.items():
        x = [point.steps / point.k for point in own]
        overlaps.append(Curve(name, x, [max(point.overlap, 1e-3) for point in own]))
        if expected := [point.overlap_expected for point in own if point.overlap_expected is not None]:
            overlaps.append(Curve(f"{name}, closed form", x, expected))
        if measured := [max(point.gap, 1e-3) for point in own if point.gap is not None]:
            gaps.append(Curve(name, x, measured))
    noise = max(point.noise for own in by_case.values() for point in own if point.gap is not None)
    levels = {"noise of the fewest chains": noise}
    return [
        Panel("What remains of the start", "steps / k", "overlap with the start", overlaps),
        Panel("Distance from exact draws", "steps / k", "gap in log det, standard deviations", gaps, levels=levels),
    ]


def _findings(name: str, own: Sequence[ChainSnapshot]) -> Iterator[Finding]:
    last = own[-1]
    text = ", ".join(f"{point.after}: {point.overlap:.0%}" for point in own) + f" (chance {last.overlap_by_chance:.0%})"
    yield Finding(f"{name}: overlap with the start", "k² steps are enough", text)
    known = [(p, p.overlap_expected, p.overlap_error) for p in own if p.overlap_expected and p.overlap_error]
    if known:
        text = ", ".join(f"{point.after}: {expected:.0%}" for point, expected, _ in known)
        worst = max(abs(point.overlap - expected) / error for point, expected, error in known)
        yield Finding(f"{name}: the same in closed form", "", f"{text}; {worst:.1f} s.e.", worst < 5)
    gaps = ["" if point.gap is None else f"gap {point.gap:.2f}, " for point in own]
    text = "; ".join(f"{point.after}: {gap}p = {point.p:.3f}" for point, gap in zip(own, gaps))
    yield Finding(f"{name}: distance from exact draws", "", text)
    text = f"{number(last.seconds)} s and {number(last.seconds_of_exact)} s"
    yield Finding(f"{name}: k² steps, and one exact sample", "", text)
