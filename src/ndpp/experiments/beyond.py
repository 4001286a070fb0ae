"""Beyond the paper: exact samples against the walk, after k/2, k, 2k, 5k and k² steps, on learned kernels and on tight pairs.

On L = ⊕ [[ε, 1], [−1, ε]] items come in pairs. A step takes out both items of one of the k/2 pairs with probability 1/(k − 1),
and then puts one of the m − k/2 + 1 free pairs back; any other step leaves the set as it is, in the limit ε → 0. A pair of the
start is therefore there after t steps with probability π + (1 − π)(1 − a − b)ᵗ, π = k/(2m), where it leaves at the rate
a = 2(m − k/2) / (k(k − 1)(m − k/2 + 1)) and enters at b = 1/((k − 1)(m − k/2 + 1)). With many pairs, e⁻² of the start has never
been touched after k² steps. The diagnostics are asked what they say to learned kernels and to this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ndpp.baskets import Baskets
from ndpp.datasets import make_kernel
from ndpp.diagnostics import diagnose_chains, energy_test, log_dets
from ndpp.experiments.chains import log_det_gap, noise_of_gap, run_chains
from ndpp.experiments.kernels import learned_file
from ndpp.experiments.record import Finding, Result, as_row, number
from ndpp.experiments.timing import draw_times, step_times
from ndpp.laws.kernel import LowRankKernel
from ndpp.plots import Curve, Panel, convergence_curves
from ndpp.samplers import Exact, Walk

EPSILON = 0.001
LOOKS = {"k/2": 0.5, "k": 1.0, "2k": 2.0, "5k": 5.0}


class Case(NamedTuple):
    """A kernel by name, a size, chains, and whether its items are tight pairs."""

    name: str
    kernel: LowRankKernel
    size: int
    chains: int
    pairs: bool


class Look(NamedTuple):
    """The sets of all chains after some steps: how much of the start is kept, how far they are from exact draws.

    ``kept_closed_form`` and ``error_of_kept`` are of tight pairs only, ``gap`` of other kernels only.
    """

    kernel: str
    k: int
    pairs: bool
    chains: int
    look: str
    steps: int
    kept: float
    kept_by_chance: float
    gap: float | None
    noise_of_the_gap: float
    p: float
    seconds: float
    seconds_of_exact: float
    kept_closed_form: float | None
    error_of_kept: float | None

    @property
    def name(self) -> str:
        """The kernel and the size."""
        return f"{self.kernel}, k = {self.k}"


def measure(*, quick: bool, seed: int, say: Callable[[str], None]) -> Result:
    """Run chains on all kernels; compare with exact draws; ask the diagnostics."""
    looks: list[Look] = []
    verdicts: list[Finding] = []
    for case in _cases(quick, seed):
        looks += _distances(case, seed=seed)
        if case.size <= 20:
            verdicts.append(_verdict(case, seed=seed))
        say(f"{case.name}, k = {case.size}")
    settings = {"kernels": "; ".join(dict.fromkeys(look.kernel for look in looks)), "ε": EPSILON}
    by_case = [list(own) for _, own in groupby(looks, key=lambda look: (look.kernel, look.k))]
    findings = [finding for own in by_case for finding in _findings(own)]
    table = [as_row(look) for look in looks]
    return Result(settings, [*findings, *verdicts], {"": table}, {"": convergence_curves(_panels(by_case))}, NOTES)


NOTES = (
    "*Share of the start kept* is the part of a chain's first set that is still in it; independent draws keep what chance keeps. "
    "Chains on learned kernels begin at uniform sets, those on tight pairs all at one typical set. *Gap* is the difference of "
    "mean log det from exact draws in standard deviations. The p-value is of an energy test between the chains' sets "
    "and as many exact draws, which is consistent against every difference, but sees little where sets are few and hardly overlap.",
    "`Exact` has no steps to choose, and its time does not depend on any of this.",
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
        kernel = make_kernel(200, 8, rng=seed)
        return [
            Case("synthetic, n = 200, d = 8", kernel, 6, 24, False),
            Case("tight pairs, n = 24", pair_kernel(12), 6, 24, True),
        ]
    sizes = {"A": ((10, 200), (20, 60)), "B": ((10, 200), (20, 60), (50, 12))}  # k² = 2,500 steps take their time
    cases = [
        Case(f"UK Retail, learned ({name})", learned, size, chains, False)
        for name in sizes
        if (learned := learned_file(f"uk_retail_{name}")) is not None
        for size, chains in sizes[name]
    ]
    cases = cases or [Case("synthetic, n = 2,000, d = 40", make_kernel(2000, 40, rng=seed), 10, 200, False)]
    return [
        *cases,
        *(Case("tight pairs, n = 200", pair_kernel(100), size, c, True) for size, c in ((10, 100), (50, 12))),
    ]


def _distances(case: Case, *, seed: int) -> list[Look]:
    exact = Exact.prepare(case.kernel, size=case.size)
    start = exact.sample(1, rng=seed).baskets[0]
    truth = exact.sample(4 * case.chains, rng=seed).baskets
    walk = Walk.prepare(case.kernel, size=case.size, start=start if case.pairs else "uniform")  # these break all pairs
    named = {**{name: max(1, round(f * case.size)) for name, f in LOOKS.items()}, "k²": case.size**2}
    looks = [0, *named.values()]
    sets = run_chains(walk, case.chains, looks, seed=seed)
    values = log_dets(case.kernel, truth)
    seconds = draw_times(exact, seed=seed, seconds=0.3).median
    step = step_times(walk, start, seed=seed, seconds=0.3).times.median
    chance = case.size / case.kernel.n_items  # of a uniform start, and of a typical one where all items are alike
    out = []
    for (name, steps), here in zip(named.items(), sets[1:]):
        expected = still_there(steps, case.size, case.kernel.n_items // 2) if case.pairs else None
        out.append(Look(
            kernel=case.name, k=case.size, pairs=case.pairs, chains=case.chains, look=name, steps=steps,
            kept=kept_share(sets[0], here), kept_by_chance=chance,
            gap=None if case.pairs else log_det_gap(case.kernel, here, values),
            noise_of_the_gap=noise_of_gap(case.chains, len(truth)),
            p=energy_test(here, truth[: case.chains], rng=seed).p_value,
            seconds=steps * step, seconds_of_exact=seconds, kept_closed_form=expected,
            error_of_kept=None if expected is None else math.sqrt(expected * (1 - expected) / (case.chains * case.size / 2)),
        ))  # fmt: skip
    return out


def still_there(steps: int, size: int, n_pairs: int) -> float:
    """Return the probability that a pair of the start is there after ``steps`` steps of the walk on tight pairs.

    Examples
    --------
    >>> still_there(0, 10, 100), round(still_there(10**6, 10, 100), 6)
    (1.0, 0.05)
    >>> round(still_there(2500, 50, 10**6), 2)  # e⁻², nearly
    0.13
    """
    free = n_pairs - size // 2
    leaves = 2 * free / (size * (size - 1) * (free + 1))
    enters = 1 / ((size - 1) * (free + 1))
    stationary = enters / (leaves + enters)
    return stationary + (1 - stationary) * (1 - leaves - enters) ** steps


def kept_share(first: Baskets, later: Baskets) -> float:
    """Return the mean share of the first sets that is still in the later ones.

    Examples
    --------
    >>> kept_share(Baskets.from_lists([[0, 1]], n_items=4), Baskets.from_lists([[1, 3]], n_items=4))
    0.5
    """
    return float(first.to_csr().multiply(later.to_csr()).sum() / first.sizes.sum())


def _verdict(case: Case, *, seed: int) -> Finding:
    """Return what the diagnostics say to four chains of forty sets, k steps apart, from exact draws or uniform sets."""
    chains, length = 4, 40
    looks = range(case.size, (length + 1) * case.size, case.size)
    starts = case.kernel.sample(chains, size=case.size, rng=seed) if case.pairs else None
    sets = run_chains(Walk.prepare(case.kernel, size=case.size), chains, looks, seed=seed, starts=starts)
    in_turn = Baskets.from_lists([items for here in sets for items in here], n_items=case.kernel.n_items)
    found = diagnose_chains(case.kernel, in_turn, n_chains=chains, ess_wanted=20)
    return Finding(f"{case.name}, k = {case.size}: what `diagnostics.diagnose_chains` says", "", found.summary)


def _panels(by_case: Sequence[Sequence[Look]]) -> list[Panel]:
    kept, gaps = [], []
    for own in by_case:
        x, name = [look.steps / look.k for look in own], own[0].name
        kept.append(Curve(name, x, [max(look.kept, 1e-3) for look in own]))
        if closed := [look.kept_closed_form for look in own if look.kept_closed_form is not None]:
            kept.append(Curve(f"{name}, closed form", x, closed))
        if measured := [max(look.gap, 1e-3) for look in own if look.gap is not None]:
            gaps.append(Curve(name, x, measured))
    noise = max(own[0].noise_of_the_gap for own in by_case if own[0].gap is not None)
    levels = {"noise of the fewest chains": noise}
    return [
        Panel("What is left of the start", "steps / k", "share of the start kept", kept),
        Panel("Distance from exact draws", "steps / k", "gap in log det, standard deviations", gaps, levels=levels),
    ]


def _findings(own: Sequence[Look]) -> list[Finding]:
    name, last = own[0].name, own[-1]
    kept = ", ".join(f"{look.look}: {look.kept:.0%}" for look in own) + f" (chance {last.kept_by_chance:.0%})"
    found = [Finding(f"{name}: share of the start kept", "k² steps are enough", kept)]
    closed = [(look, look.kept_closed_form, look.error_of_kept) for look in own]
    known = [(look, share, error) for look, share, error in closed if share is not None and error is not None]
    if known:
        text = ", ".join(f"{look.look}: {share:.0%}" for look, share, _ in known)
        worst = max(abs(look.kept - share) / error for look, share, error in known)
        found.append(Finding(f"{name}: the same in closed form", "", f"{text}; {worst:.1f} s.e.", worst < 5))
    gaps = [("" if look.gap is None else f"gap {look.gap:.2f}, ") for look in own]
    text = "; ".join(f"{look.look}: {gap}p = {look.p:.3f}" for look, gap in zip(own, gaps))
    found.append(Finding(f"{name}: distance from exact draws", "", text))
    text = f"{number(last.seconds)} s and {number(last.seconds_of_exact)} s"
    found.append(Finding(f"{name}: k² steps, and one exact sample", "", text))
    return found
