"""Sets of mixtures with shared ties, whatever is given: what draws from a component is prepared once, for all given items and sizes.

Given items J, the component is drawn by P(c | J), and a set from it (:mod:`~ndpp.samplers.components`); neither touches all n items.

Sets of k items: the probability of this size in each component would take long to compute, and is not needed. Component c is proposed
with probability ∝ w_c ρ_c^(−k) Z_c(ρ_c, J) / Z_c, where Z(ρ, J) is the weight of all sets that contain J with all odds times ρ, and then a
set of the component with these odds, which is accepted if it has k items; what is rejected includes the component. This is exact for every
ρ_c, and fast if about k items are expected. Where k is a common size, ρ_c = 1 serves. Otherwise all components are tilted, once for about
the same number of further items (:func:`_about`); the ρ_c are on a grid, so that several sizes share what draws from a component. Large
families that come with all their items or none need a finer one, for which the ρ_c are computed and not guessed (``is_fine``).

Of a set S = T ∪ R, T is drawn first, and accepted by the chance that R brings the number of missing items. Let b_c be a bound of these
chances (:meth:`TiedParts.bounds`): T is accepted with probability chance / b_c, and component c proposed b_c times as often. Components
whose sets are mostly too large have a small b_c, and are hardly ever proposed. Finally R is drawn with the number of missing items, with
a tilt of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ndpp._memory import Memory, n_bytes_of
from ndpp._stop import look
from ndpp._types import FloatArray, IntArray, cached_property
from ndpp.baskets import Baskets
from ndpp.errors import ImpossibleSizeError
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit, Limits
from ndpp.laws.patterns import FamilyGroups, Patterns, Touched
from ndpp.laws.precision import check_given
from ndpp.laws.shared import MOST_LOG, SharedTies
from ndpp.linalg.eigen import is_skew
from ndpp.linalg.logs import log_peak
from ndpp.linalg.tilts import MOST_TILT, solve_tilt
from ndpp.linalg.updates import LowRankChange
from ndpp.samplers.backgrounds import SizedComponents
from ndpp.samplers.base import Sampler, with_engine
from ndpp.samplers.components import Counts, FurtherItems, Union, circle
from ndpp.samplers.family_parts import FamilyFactors, FamilyParts, GivenFamilies, products_at
from ndpp.samplers.proposer import MAX_EXPECTED, Acceptance, Asked, Drawers, Proposer, all_given
from ndpp.samplers.tilted import TiltedComponents, log_weights, products

Tilt: TypeAlias = float | bytes
"""What tells the tilts of a component apart: its rung, or the key of limits; 0 for none."""
RUNG, FINE = 0.25, 64
"""log ρ is a multiple of this, or of its ``FINE``-th part."""
MIN_SIZE_ACCEPTANCE = 0.15
"""If at least this share of the untilted proposals is accepted, no component is tilted."""
MAX_SIZE_DEVIATIONS = 3.0
"""The chance of a size is guessed up to this many standard deviations from the mean."""
RUNGS_PER_TILT = 2
"""R is tilted by multiples of this many rungs."""
LOG_S = (0.0, -0.35, -0.7, -1.05, -1.4, -2.1, -2.8, -4.0)
"""log s of the bounds."""
MOST_REMOVED = 64
"""Most items that are given or wanted for which there are bounds."""
N_NODES = 64
"""Points of the circle by which numbers of up to a quarter as many items are told apart; more for more items."""
FOR_ROWS = 0.125
"""Part of the memory that is for rows of given items; the rest is for components and sizes."""
FURTHER = 1.0, 2.0
"""If given families bring more than this part of the further items, components are tilted to a third of these, and to a third again."""
PREPARED = 0.75
"""Part of the memory of components that is filled before they are asked for."""
MANY_ROWS = 12
"""More given rows than this are multiplied with N as matrices."""
AVOIDED = 0.7
"""Largest mean number of excluded items in a set at which sets that have one are rejected."""
LIKELY = 1e-3
"""Components that are proposed less often than this do not matter to the mean number of proposals."""


def prepare_components(law: Law, memory: int, left: int | None = None) -> None:
    """Prepare what draws from components with shared ties, the most probable first: for ``left`` further items, or any number."""
    mixture = law._as_ties
    if mixture is None:
        return
    parts = TiedParts(mixture, mixture.memory.within(memory))
    order = np.argsort(-mixture.weights, kind="stable").tolist()
    rungs = np.zeros(len(order)) if left is None else parts.tilted(parts.aim(left)).rungs
    for c in order:
        look()
        if parts.memory.n_bytes > PREPARED * parts.memory.budget:
            return
        parts.union(c, float(rungs[c]), lambda: parts.tilted(parts.aim(left or 0)).components)


def prepare_given(law: Law, baskets: Baskets, memory: int) -> None:
    """Prepare what a sampler computes of each given item if components share ties, for the items of many baskets at once."""
    mixture = law._as_ties
    if mixture is None:
        return
    base = mixture.touched.base
    touched = np.unique(mixture.touched_rows(baskets)[0].indices)
    rows = base.rows_of(touched[base.can_occur(touched)])
    TiedParts(mixture, mixture.memory.within(memory)).sides(rows, base.q_rows(rows))


class RungTilts:
    """The components of a mixture, each tilted to its rung, for sets of one size.

    ``lone`` is −v as in :meth:`TiedParts.bounds`, with the sums of its largest terms as in :func:`_with_least`.
    """

    def __init__(self, mixture: SharedTies, rungs: FloatArray) -> None:
        self.rungs, log_tilt = rungs, rungs * RUNG
        self.lone = _with_least(-mixture.lone_odds * np.exp(log_tilt[:, None] - 2 * mixture.log_rows(log_tilt)))
        self.components = TiltedComponents(mixture, partial(_log_factors, rungs), rungs != 0)

    grows: ClassVar[bool] = True

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays."""
        return n_bytes_of(self.lone) + self.components.n_bytes

    def bounds(self, n_without: int) -> FloatArray:
        """Return a bound on the probability of any number of items of R without ``n_without`` rows; see :meth:`TiedParts.bounds`."""
        if n_without > MOST_REMOVED:
            return np.ones(len(self.rungs))
        minus, removed = self.lone
        return np.exp(log_peak((removed[:, min(n_without, removed.shape[1] - 1)] - minus).clip(0.0)))


def _log_factors(rungs: FloatArray, which: Any, items: Any) -> FloatArray:
    """Return the logarithms of the factors of some components: the same for all items."""
    return np.asarray(rungs[which, None] * RUNG)


class TiedParts:
    """What draws from the components of a mixture, prepared when first needed; ``memory`` keeps what was used last.

    Nothing there depends on the weights of the mixture, or refers to it: mixtures of the same components share it.
    """

    def __init__(self, mixture: SharedTies, memory: Memory) -> None:
        self.mixture, self.memory = mixture, memory

    @property
    def rows(self) -> Memory:
        """What is kept of given items, in a part of the memory."""
        return self.memory.remember("rows", lambda: Memory(int(FOR_ROWS * self.memory.budget)))

    def sides(self, rows: IntArray, q: FloatArray) -> list[FloatArray]:
        """Return the :func:`products` of all components with these rows, which later baskets have, too."""
        N = self.mixture.touched._state.N

        def make(missing: list[int]) -> list[FloatArray]:
            own = q[np.isin(rows, missing)]
            if isinstance(N, LowRankChange):
                return list(N.products(own))
            if len(own) > MANY_ROWS:
                return [side.copy() for side in (own @ N.reshape(-1, N.shape[2]).T).reshape(len(own), *N.shape[:2])]
            return [side.copy() for side in products(N, np.arange(len(N)), own)]

        return self.rows.remember_many(rows.tolist(), make)

    def union(self, c: int, tilt: Tilt = 0.0, tilted: Callable[[], TiltedComponents] | None = None) -> Union:
        """Return what draws from component c, with the odds of its items as those of ``tilted()`` are; tilt 0: as they are."""

        def make() -> Union:
            if tilted is None or not tilt:
                return Union.prepare(self.mixture.touched, c, self.memory.budget)
            return Union.prepare(tilted().single(self.mixture, c), 0, self.memory.budget)

        return self.memory.remember((c, tilt), make)

    def parts(self, c: int, tilt: Tilt, patterns: Patterns) -> FamilyParts:
        """Return these patterns of the families of component c."""
        odds = self.mixture.odds[c]
        return self.memory.remember((c, tilt, "parts"), lambda: FamilyParts.of(patterns, odds))

    def patterns(self, rung: float) -> Patterns:
        """Return the patterns of all components with the odds of items times exp(rung · RUNG)."""
        found = self.mixture.patterns
        assert found is not None  # asked for families only
        return self.memory.remember(("patterns", rung), lambda: found.with_odds(found.odds * np.exp(rung * RUNG)))

    def counts(
        self, c: int, rung: float, count: int, removed: IntArray, is_fine: bool = False, *, odds: Any = None
    ) -> Counts:
        """Return how many items of component c come by themselves, and what draws ``count`` of them from rows that are not removed.

        ``odds`` are those of its rows on the rung; for rung 0 they are known.
        """
        odds = self.union(c, 0).alone.odds if odds is None else odds
        n = int(self.mixture.largest[c])
        n_left = n - int(self.mixture.largest_of_rows(removed, c).sum())
        wanted = min(count * n / max(n_left, count, 1), n - 0.3)
        if not is_fine:  # many sets share it
            wanted = round(wanted, 1)
        unit, log_tilt = (1 / FINE, self._fine_tilt_alone) if is_fine else (RUNGS_PER_TILT, self._log_tilt_alone)
        tilt = unit * round((log_tilt(c, wanted) / RUNG - rung) / unit)
        n_nodes = N_NODES + 2 * max(0, count - N_NODES // 4)
        uses = [(rung + tilt, n_nodes, "totals")]
        return self.memory.remember(
            (c, rung, tilt, n_nodes), lambda: self._counts(c, rung, odds, tilt, n_nodes), uses=uses
        )

    def _counts(self, c: int, rung: float, odds: FloatArray, tilt: float, n_nodes: int) -> Counts:
        patterns, log_rho = self.mixture.patterns, tilt * RUNG
        if patterns is None:
            return Counts.of_items(odds, log_rho, n_nodes)
        rung, z, state_odds = rung + tilt, circle(n_nodes), self.mixture.odds[c]
        tilted, parts = self.patterns(rung), self.parts(c, rung, self.patterns(rung))
        groups: FamilyFactors | FamilyGroups
        if tilted.log_totals.max(initial=0.0) < MOST_LOG:
            products = self.memory.remember((rung, n_nodes, "totals"), lambda: products_at(tilted, z))
            groups = FamilyFactors.of(tilted, state_odds, products)
        else:  # in units of their own
            kept = {at.tobytes(): self._products(rung, at) for at in (z, np.ones(1))}
            every = np.arange(tilted.n_families)
            groups = FamilyGroups(
                patterns, state_odds, float(np.exp(rung * RUNG)), np.empty((len(every), 0)), every, kept
            )
        return Counts.of_families(odds, log_rho, groups, parts, z)

    def _products(self, rung: float, z: Any) -> Any:
        """Return log Π (1 + ρ z r) of the states of families on a rung, and 0 for slots without one."""
        patterns = self.patterns(rung)

        def make() -> Any:
            return np.vstack([patterns.log_totals_at(z), np.zeros((1, len(z)))])

        return self.memory.remember((rung, len(z), "products"), make)

    def aim(self, left: int, is_fine: bool = False) -> float:
        """Return the number of items to which components are tilted for ``left`` items: the same for many of them."""
        # Numbers of items near the largest differ more in the tilts that they need.
        return left if is_fine or 4 * left > self.mixture.largest.max() else _about(left)

    def tilted(self, aim: float, is_fine: bool = False) -> RungTilts:
        """Return all components, tilted towards about ``aim`` items. O(C n r²), once for all baskets."""
        key = "tilted", aim, is_fine
        return self.memory.remember(key, lambda: RungTilts(self.mixture, self.rungs(aim, is_fine)))

    def rungs(self, aim: float, is_fine: bool = False) -> FloatArray:
        """Return the rungs to which components are tilted for about ``aim`` items."""

        def make() -> FloatArray:
            return np.round(self.mixture.tilts(aim) / RUNG * FINE) / FINE if is_fine else self._rungs(aim)

        return self.memory.remember(("rungs", aim, is_fine), make)

    def _means_alone(self, wanted: float) -> tuple[FloatArray, FloatArray]:
        """Return log ρ and the means of |R| under it, derivatives of log E ρ^|R|, from below to above the wanted mean if there are any."""
        known = {log_s: logs for log_s, logs, *_ in self._tails}
        most = np.minimum(wanted, self.mixture.largest - 0.3)
        while True:
            grid = np.array(sorted(known))
            means = np.diff([known[x] for x in grid.tolist()], axis=0) / np.diff(grid)[:, None]
            is_short = (means[0] > max(wanted, 0.3)).any(), grid[-1] == 0 or (means[-1] < most).any()
            more = [x for x, short in zip((grid[0], grid[-1] or 0.35), is_short) if short and abs(x) < MOST_TILT]
            if not more:
                return (grid[1:] + grid[:-1]) / 2, means
            for x in np.clip(2 * np.array(more), -MOST_TILT, MOST_TILT).tolist():
                known[x] = self.memory.remember(("log mean", x), partial(self._log_mean, x))

    def _log_mean(self, x: float) -> FloatArray:
        """Return log E ρ^|R| of each component, x = log ρ."""
        return np.asarray((self.mixture.log_rows(x) - self.mixture.log_rows(0.0)).sum(axis=1))

    def _log_tilt_alone(self, c: int, wanted: float) -> float:
        """Return about the tilt under which R has ``wanted`` items on average. It is kept, as few numbers are ever wanted."""

        def find() -> float:
            middles, means = self._means_alone(wanted)
            with np.errstate(divide="ignore"):
                return float(np.interp(np.log(max(wanted, 0.3)), np.log(means[:, c]), middles))

        return self.memory.remember(("tilt alone", c, wanted), find)

    def _fine_tilt_alone(self, c: int, wanted: float) -> float:
        """Return the same to more digits."""

        def moments(log_tilt: float) -> tuple[float, float]:
            parts = self.mixture._untied(np.array([log_tilt]), np.array([c]))
            mean, variance = np.sum([(mean.sum(), variance.sum()) for _, _, mean, variance in parts], axis=0)
            return float(mean), float(variance)

        def find() -> float:
            return solve_tilt(moments, max(wanted, 0.3), self._log_tilt_alone(c, wanted), max_step=10.0)

        return self.memory.remember(("fine tilt alone", c, wanted), find)

    def _rungs(self, left: float) -> FloatArray:
        """Guess the rungs on which about ``left`` items are expected of each component.

        Σ x^a / (1 + x^a) items are taken to come with T, for equal eigenvalues x that grow with |R|, and a = 2 if ties are skew.
        """
        (middles, apart), (alone, _, added, variance) = self._means_alone(left), self.moments
        power = 2 if is_skew(self.mixture.touched.core) else 1
        growth = (apart / alone.clip(1e-12)) ** power
        first = (power * added / variance.clip(1e-12) - 1).clip(0.05, 20.0)
        means = apart + added * growth * (1 + first) / (1 + first * growth)
        wanted = np.clip(left, 0.3, self.mixture.largest - 0.3)
        with np.errstate(divide="ignore"):
            found = [np.interp(np.log(size), np.log(mean), middles) for size, mean in zip(wanted, means.T)]
        return np.round(np.array(found) / RUNG)

    @property
    def moments(self) -> tuple[FloatArray, ...]:
        """Means and variances of |R|, and guesses of those of what T adds, of each component."""
        every = np.arange(len(self.mixture.weights))
        return self.memory.remember("moments", lambda: self.mixture.size_moments(np.zeros(len(every)), every))

    @property
    def _tails(self) -> tuple[tuple[float, FloatArray, FloatArray, FloatArray, FloatArray], ...]:
        """For some s ≤ 1: log s, log E s^|R|, and −v as in :meth:`bounds` under odds times s; of each component.

        Of both, also the sums over the 0, 1, … rows without which they are largest, and smallest.
        """

        def make() -> tuple[tuple[float, FloatArray, FloatArray, FloatArray, FloatArray], ...]:
            found, base, lone = [], self.mixture.log_rows(0.0), self.mixture.lone_odds
            for log_s in LOG_S:
                logs = self.mixture.log_rows(log_s)
                found.append((log_s, *_with_least(logs - base), *_with_least(-lone * np.exp(log_s - 2 * logs))))
            return tuple(found)

        return self.memory.remember("tails", make)

    def bounds(self, left: int, n_given: int) -> FloatArray:
        """Return a bound of P_c(|R ∖ T ∖ J| = m) of every component, for all T of t rows, m ≤ ``left`` − t, and given rows J.

        For every s ≤ 1, P(|R| = m) ≤ s^(−m) E s^|R| · max_m P_s(|R| = m), P_s with odds times s; and the largest probability of a sum of
        independent numbers X ≥ 0 is at most e^(−v) I₀(v), v = Σ P(X = 0) P(X = 1), as |E e^itX| ≤ exp(−P(X = 0) P(X = 1) (1 − cos t)).
        """
        if left + n_given > MOST_REMOVED:
            return np.ones(len(self.mixture.weights))
        out = np.full(len(self.mixture.weights), -np.inf)
        for t in range(left + 1):
            best = np.zeros(len(out))
            for log_s, logs, least, minus, removed in self._tails:
                variance = -(minus - removed[:, min(t + n_given, removed.shape[1] - 1)])
                log_bound = logs - least[:, min(t + n_given, least.shape[1] - 1)] - (left - t) * log_s
                best = np.minimum(best, log_bound.clip(max=0.0) + log_peak(variance.clip(0.0)))
            out = np.maximum(out, best)
        return np.asarray(np.exp(out))


def _about(left: int) -> float:
    """Return the number of items that all numbers near ``left`` are tilted to: off by less than the deviation of a Poisson number."""
    return (isqrt(left) + 0.5) ** 2


def _with_least(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the sums of rows of values ≤ 0, and those of their 0, 1, … smallest values, shapes (C,) and (C, …)."""
    most = min(MOST_REMOVED, values.shape[1])
    least = np.sort(np.partition(values, most - 1, axis=1)[:, :most], axis=1)
    return values.sum(axis=1), np.pad(np.cumsum(least, axis=1), ((0, 0), (1, 0)))


class TiedDrawers:
    """What draws the further items of sets of a mixture: from component c on rung ``rungs[c]``, ``left`` items (None: any number).

    Rungs other than 0 are those of ``parts.tilted(aim, is_fine)``.
    """

    def __init__(
        self,
        parts: TiedParts,
        ids: IntArray,
        left: int | None,
        rungs: FloatArray,
        bounds: FloatArray | None = None,
        is_fine: bool = False,
        aim: float = 0.0,
    ) -> None:
        self.parts, self.ids, self.left, self.rungs, self.is_fine, self.aim = parts, ids, left, rungs, is_fine, aim
        self.bounds = np.ones(len(rungs)) if bounds is None else bounds
        self._made: dict[int, FurtherItems] = {}  # of components that were in memory when so much had been forgotten
        self._n_forgotten = parts.memory.n_forgotten
        self._families: dict[float, GivenFamilies] = {}
        self._expected: float | None = None

    def __reduce__(self) -> Any:
        return TiedDrawers, (self.parts, self.ids, self.left, self.rungs, self.bounds, self.is_fine, self.aim)

    def __getitem__(self, c: int) -> FurtherItems:
        memory = self.parts.memory
        if self._n_forgotten != memory.n_forgotten:
            self._n_forgotten = memory.n_forgotten
            self._made = {other: made for other, made in self._made.items() if (other, self.tilt(other)) in memory}
        if c not in self._made:
            self._made[c] = self._drawer(c)
        return self._made[c]

    def tilt(self, c: int) -> Tilt:
        """Return what component c is tilted by; 0 for nothing."""
        return float(self.rungs[c])

    def components(self) -> TiltedComponents:
        """Return the tilted components."""
        return self.parts.tilted(self.aim, self.is_fine).components

    def patterns(self, c: int) -> Patterns:
        """Return the patterns of the families of component c."""
        return self.parts.patterns(float(self.rungs[c]))

    def families(self, c: int) -> GivenFamilies:
        """Return the families of the given items, those of component c; components on one rung share them."""
        rung = float(self.rungs[c])
        if rung not in self._families:
            self._families[rung] = GivenFamilies.of(self.parts.patterns(rung), self.touched)
        return self._families[rung]

    def _drawer(self, c: int) -> FurtherItems:
        union, mixture, bound = (
            self.parts.union(c, self.tilt(c), self.components),
            self.parts.mixture,
            float(self.bounds[c]),
        )
        counts = partial(self.parts.counts, c, float(self.rungs[c]), odds=union.alone.odds)
        if mixture.patterns is None:
            return FurtherItems(union.given(self._rows), self.left, counts, bound)
        families = self.families(c).weighed(mixture.odds[c])
        parts = self.parts.parts(c, self.tilt(c), self.patterns(c))
        return FurtherItems(union.given(families.families), self.left, counts, bound, parts, families)

    @cached_property
    def touched(self) -> Touched:
        """The families of the given items."""
        patterns = self.parts.mixture.patterns
        assert patterns is not None  # asked for families only
        return patterns.touched_by(self.ids)

    @cached_property
    def _rows(self) -> IntArray:
        return np.searchsorted(self.parts.mixture.base.support, self.ids)

    def expected(self, cdf: FloatArray) -> float:
        """Return the mean number of proposals per draw, from the chances of the wanted size in the likely components."""
        if self._expected is None and self.left is not None:
            parts = self.parts.mixture._parts(self.ids)
            shares = np.diff(cdf, prepend=0.0) / cdf[-1]
            likely = np.flatnonzero(shares > LIKELY).tolist()
            chance = 0.0
            for c in likely:
                sizes = parts.at(c, float(self.rungs[c] * RUNG)).size_distribution()
                chance += shares[c] * sizes[self.left] / self.bounds[c]
            self._expected = float(1 / max(chance, np.finfo(float).tiny))
        return self._expected or 1.0

    def checked(self, cdf: FloatArray) -> tuple[FloatArray, Drawers]:
        """Return what proposes from now on: with finer tilts if too many proposals are needed, without rejections if they still are."""
        if self.expected(cdf) <= MAX_EXPECTED:
            return cdf, self
        cdf, finer = self.finer
        return (cdf, finer) if finer.expected(cdf) <= MAX_EXPECTED else self.by_themselves

    @cached_property
    def by_themselves(self) -> tuple[FloatArray, SizedComponents]:
        """The probabilities of the components, cumulative, and what draws sets of this size from each by itself, without rejections."""
        mixture, ids = self.parts.mixture, self.ids
        size = None if self.left is None else self.left + len(ids)
        weights = mixture.responsibilities(ids, size=size)
        return np.cumsum(weights), SizedComponents(
            mixture._plain_components, Asked(size, ids, ids[:0], self.parts.memory, None)
        )

    @cached_property
    def finer(self) -> tuple[FloatArray, TiedDrawers]:
        """The weights by which components are proposed with finer tilts, cumulative, and what draws from them."""
        size = None if self.left is None else self.left + len(self.ids)
        weights, begun = begin(self.parts, self.ids, size, is_fine=True)
        return np.cumsum(weights), begun


def begin(
    parts: TiedParts, ids: IntArray, size: int | None, *, is_fine: bool = False
) -> tuple[FloatArray, TiedDrawers]:
    """Return the weights by which components are proposed, and what draws from them."""
    mixture, log_posterior = parts.mixture, _log_posterior(parts, ids)
    if log_posterior.max() == -np.inf:
        raise mixture._impossible(ids, None)
    posterior, rungs = np.exp(log_posterior - log_posterior.max()), np.zeros(len(log_posterior))
    if size is None:
        return posterior, TiedDrawers(parts, ids, None, rungs)
    left, most = size - len(ids), mixture.largest_given(ids)
    posterior[most < left] = 0.0
    if not posterior.any():
        bound = int(most.max()) + len(ids)
        raise ImpossibleSizeError(f"no set is larger than {bound} items; got size {size}")
    mean, variance = (first + second for first, second in zip(parts.moments[:2], parts.moments[2:]))
    bounds = parts.memory.remember(("bounds", left, len(ids)), lambda: parts.bounds(left, len(ids))).copy()
    chances = parts.memory.remember(("chances", left), lambda: _size_chances(mean, variance, left))
    weights = posterior * bounds
    aim = _aim(parts, ids, left, int(weights.argmax()), is_fine)
    if aim < parts.aim(left, is_fine) or posterior @ chances < MIN_SIZE_ACCEPTANCE * weights.sum():
        tilted = parts.tilted(aim, is_fine)
        key = "others", aim, left + len(ids), is_fine
        others = parts.memory.remember(key, lambda: tilted.bounds(left + len(ids)))
        with np.errstate(divide="ignore"):
            log_plain, log_units = np.log(weights) + log_posterior.max(), np.log(others) - size * tilted.rungs * RUNG
        logs, at = tilted.components.choose(parts, ids, log_plain, log_units)
        weights, bounds[at], rungs[at] = np.exp(logs - logs.max()), others[at], tilted.rungs[at]
    return weights, TiedDrawers(parts, ids, left, rungs, bounds, is_fine, aim)


def _aim(parts: TiedParts, ids: IntArray, left: int, c: int, is_fine: bool) -> float:
    """Return the number of items to which components are tilted: less than for no given items if their families bring many, as in c."""
    patterns, aim = parts.mixture.patterns, parts.aim(left, is_fine)
    if patterns is None or not len(ids):
        return aim
    touched, state_odds = patterns.touched_by(ids), parts.mixture.odds[c]
    for most in FURTHER:
        tilted = parts.patterns(float(parts.rungs(aim, is_fine)[c]))
        if GivenFamilies.of(tilted, touched).weighed(state_odds).mean(tilted.log_rest) <= most * left:
            break
        aim /= 3
    return aim


def _log_posterior(parts: TiedParts, ids: IntArray) -> FloatArray:
    """Return log w_c P_c(J ⊆ S)."""
    mixture = parts.mixture
    ties, (touched, within) = mixture.touched, mixture.touched_rows(mixture.one_basket(ids))
    if not ties.base.can_occur(touched.indices).all():
        return np.full(len(mixture.weights), -np.inf)
    rows, out = np.searchsorted(ties.base.support, touched.indices), mixture._log_weights + np.reshape(within, -1)
    q = ties.base.q_rows(rows)
    return log_weights(out, q, ties.tilted_odds(0.0, rows=rows), parts.sides(rows, q), ties._state.errors)


def _size_chances(mean: FloatArray, variance: FloatArray, size: int) -> FloatArray:
    """Return about P_c(|S| = size) from the moments of the sizes, and 0 beyond ``MAX_SIZE_DEVIATIONS`` deviations from the mean.

    Sizes that vary more than independent items do are taken to have a negative binomial distribution, and others a normal one.
    """
    from scipy.special import gammaln, xlogy

    spread, excess = np.sqrt(variance + 1 / 12), np.maximum(variance - mean, 0.05 * mean + 1e-12)
    normal = np.exp(-(((size - mean) / spread) ** 2) / 2) / (spread * np.sqrt(2 * np.pi))
    shape, p = mean**2 / excess, mean / (mean + excess)
    wide = np.exp(gammaln(size + shape) - gammaln(shape) - gammaln(size + 1.0) + xlogy(shape, p) + xlogy(size, 1 - p))
    return np.where(
        abs(size - mean) <= MAX_SIZE_DEVIATIONS * spread, np.where(variance > 1.05 * mean, wide, normal), 0.0
    )


@dataclass(frozen=True, eq=False)
class TiesWithoutItems:
    """A mixture without excluded items, and what draws from it."""

    mixture: SharedTies
    memory: Memory
    grows: ClassVar[bool] = True

    @property
    def n_bytes(self) -> int:
        """Bytes of both."""
        return self.mixture.odds.nbytes + self.memory.n_bytes


def prepare_ties(mixture: SharedTies, asked: Asked) -> Sampler:
    """Weigh the components; refuse what cannot be drawn.

    Sets with excluded items are rejected if there are few of them, so that nothing has to be prepared for the others.
    """
    ids, excluded = asked.given, asked.exclude
    size = None if asked.size is None else check_given(asked.size, len(ids))
    left = mixture.largest_given(ids).max() - len(excluded)
    is_few = len(excluded) and asked.device is None and left >= (size or 0) and not np.isin(ids, excluded).any()
    if is_few:
        weights, drawers = begin(TiedParts(mixture, asked.memory), ids, size)
        if weights @ mixture.chances_alone(excluded).sum(axis=1) <= AVOIDED * weights.sum():
            never = Limits.of([Limit(excluded.tolist(), most=0, name="excluded")], mixture)
            accepted = Acceptance.of(never, np.zeros((len(weights), 1)), is_tilted=False)
            return _proposer(mixture, ids, weights, drawers, accepted)
    rest, memory = mixture, asked.memory
    if len(excluded):
        key = "without", mixture.nonempty, mixture.weights.tobytes(), np.sort(excluded).tobytes()
        found = memory.remember(key, lambda: TiesWithoutItems(mixture.exclude(excluded), Memory(asked.memory.budget)))
        rest, memory = found.mixture, found.memory
    # Given all items, ties have no conditional; families, given all theirs, still have one.
    if rest.patterns is None and len(ids) == rest.base.n_rows:
        rest.responsibilities(ids)  # raises if they never occur together
        return all_given(mixture, ids, size)
    weights, drawers = begin(TiedParts(rest, memory), ids, size)
    return with_engine(_proposer(mixture, ids, weights, drawers), asked.device)


def _proposer(
    mixture: SharedTies, ids: IntArray, weights: FloatArray, drawers: TiedDrawers, left: Acceptance | None = None
) -> Proposer:
    with np.errstate(divide="ignore"):
        return Proposer(mixture, ids, np.log(weights), drawers, left, None if drawers.left is None else drawers)
