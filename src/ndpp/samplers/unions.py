"""Sets of one component of a distribution: T, whose items come together, and R, whose items come by themselves.

Distribution: P(S) ∝ det(L_S), L = diag(δ) + X W Xᵀ, or that of sets of items of which S are the families. A set of any size is S = T ∪ R: T
is drawn by :class:`Exact` from the low-rank part, and R item by item; nothing is rejected. Sets of size k are drawn by rejection, from the
proposal that is accepted more often:

* :class:`DisjointParts`: m ∝ e_m(X W Xᵀ) e_{k−m}(δ), T of m items from X W Xᵀ, R of k − m items with odds δ; accepted if T and R do not
  meet. Expected number of proposals: Σ_m e_m e_{k−m} / e_k(L), small unless some items are in a large part of all baskets.
* :class:`SizedUnion`: S = T ∪ R of the kernel ρL, with ρ such that k items are expected; accepted if |S| = k. Expected number:
  1 / P_ρ(|S| = k), about 2.5 standard deviations of the size.

:class:`Union` is prepared once for all given items J, which must have δ > 0. Given J, the others have the kernel with δ as it was and
B' = B − B q_Jᵀ (p_J + q_J B q_Jᵀ)⁻¹ q_J B in the coordinates q of T, where p = δ / (1 + δ). At any time s of a clock, its resolvent is

    R'(s) = R − R q_Jᵀ (s p_J + q_J R q_Jᵀ)⁻¹ q_J R,        R(s) = sB(I + sB)⁻¹,

the formula for items that come together with s p_J added to the diagonal of the minor: no matrix but one of order |J| depends on J. B' does
not exclude J from T, so T is drawn again until it has no item of J; that is rarely needed, as P(j ∈ T) < δ_j.

:class:`FamilySets` then draws for each family a state and a non-empty set of its items.

Cost per sample: that of T, and O(|R|) for R (:class:`Alone`), independent of n. Preparing takes O(n r²).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from ndpp._stop import look
from ndpp._types import AnyArray, FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.errors import BudgetExceededError
from ndpp.items.base import look_up_cdf
from ndpp.items.table import alias_table, look_up
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.patterns import Patterns, scaled
from ndpp.linalg.size_law import nodes, tilted_law
from ndpp.linalg.sizes import LOG_RADIUS, Coins, SizeLaw
from ndpp.linalg.tilts import solve_tilt
from ndpp.samplers.clock import Clock
from ndpp.samplers.exact import Exact
from ndpp.samplers.exact.eigenclock import EigenClock
from ndpp.samplers.exact.ladder import n_bytes_of

FREQUENT_ODDS = 1.0
"""Items with larger odds, in more than half of all baskets, are drawn one by one; the others come from a table."""
SIZED_BUDGET = 10**6
"""Maximum number of sets of independent items that are drawn until one has the wanted size."""


@dataclass(frozen=True, eq=False)
class Alone:
    """R: each item i of the support by itself with odds δ_i, at a cost of O(|R|) that does not depend on the number of items.

    Item i is hit Poisson(log(1 + δ_i)) times, independently of the others: that is not zero with probability δ_i / (1 + δ_i). The total
    number of hits is Poisson, and each hits i with probability ∝ log(1 + δ_i), by an alias table.

    Examples
    --------
    >>> alone = Alone.prepare(np.array([0.0, 3.0, 0.5]))
    >>> sizes = [len(alone.draw(np.random.default_rng(i))) for i in range(1000)]
    >>> bool(abs(np.mean(sizes) - (3 / 4 + 1 / 3)) < 0.1)
    True
    """

    odds: FloatArray
    rows: IntArray
    rate: float
    threshold: FloatArray
    alias: AnyArray
    frequent: IntArray
    frequent_p: FloatArray

    @classmethod
    def prepare(cls, odds: FloatArray) -> Alone:
        """Build the table, in O(n)."""
        rows, frequent = np.flatnonzero((odds > 0) & (odds <= FREQUENT_ODDS)), np.flatnonzero(odds > FREQUENT_ODDS)
        rates = np.log1p(odds[rows])
        threshold, alias = alias_table(rates) if len(rows) else (np.empty(0), np.empty(0, np.int32))
        return cls(odds, rows, float(rates.sum()), threshold, alias, frequent, odds[frequent] / (1 + odds[frequent]))

    def draw(self, rng: np.random.Generator) -> IntArray:
        """Draw R, as rows in any order."""
        hits = look_up(self.threshold, self.alias, rng.random((2, rng.poisson(self.rate))))
        rows = self.rows[np.unique(hits)]
        if len(self.frequent) == 0:
            return rows
        return np.concatenate([rows, self.frequent[rng.random(len(self.frequent)) < self.frequent_p]])

    def draw_sized(self, rng: np.random.Generator, size: int) -> IntArray:
        """Draw R given its size, by rejection: the odds are such that this size is not rare."""
        for _ in range(SIZED_BUDGET):
            look()
            rows = self.draw(rng)
            if len(rows) == size:
                return rows
        raise BudgetExceededError(
            f"{SIZED_BUDGET} sets of independent items were drawn, none of {size} items", count=SIZED_BUDGET
        )


class SizedUnion(NamedTuple):
    """S = T ∪ R of ρL, accepted if it has ``size`` items (None: always). ``log_mass``: log of all weights proposed, det L_S if accepted."""

    ties: Exact
    alone: Alone
    size: int | None
    log_mass: float

    @classmethod
    def prepare(
        cls, kernel: LowRankKernel, tied: IntArray, size: int, memory: int, device: str | None = None
    ) -> SizedUnion:
        """Choose ρ for the size."""
        tilted = kernel.tilted_for(size, tied)
        log_mass = tilted.kernel.log_mass(tied) - size * tilted.log_tilt
        return cls.of(tilted.kernel, tied, size, memory, log_mass, device)

    @classmethod
    def of(
        cls,
        tilted: LowRankKernel,
        tied: IntArray,
        size: int | None,
        memory: int,
        log_mass: float = np.nan,
        device: str | None = None,
    ) -> SizedUnion:
        """Prepare the parts of the kernel ρL."""
        ties = Exact.prepare(tilted.low_rank, given=tied, memory=memory, device=device)
        return cls(ties, Alone.prepare(tilted.odds), size, log_mass)

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return S, as items of the catalogue, or None. Only where the numbers of items allow it T is drawn, which costs most."""
        if self.size is None:
            return joined(self, self.ties.draw(rng).rows, self.alone.draw(rng))
        m, apart = self.ties.draw_count(rng), self.alone.draw(rng)
        n_together = m + len(self.ties.given)
        if max(n_together, len(apart)) > self.size or n_together + len(apart) < self.size:
            return None
        return joined(self, self.ties.draw_rows(rng, m), apart)


class DisjointParts(NamedTuple):
    """T of m further items, m by ``cdf``, and R of the others, accepted if they do not meet."""

    ties: Exact
    alone: Alone
    size: int
    log_mass: float
    cdf: FloatArray

    @classmethod
    def prepare(cls, kernel: LowRankKernel, tied: IntArray, size: int, memory: int) -> DisjointParts:
        """Weigh e_m(X W Xᵀ) e_{k−m}(δ) under ρL, with ρ such that T and R together have about as many items as wanted."""
        low_rank = LowRankKernel(kernel.X, kernel.W, support=kernel.support, magnitudes=kernel._magnitudes)
        q, left = low_rank.q_rows(low_rank.rows_of(tied)), size - len(tied)

        def moments(log_tilt: float) -> tuple[float, float]:
            odds = np.exp(log_tilt) * kernel.odds
            Z = tilted_law(low_rank.coordinates, float(np.exp(log_tilt)), q).marginal
            mean, variance = np.trace(Z) + (odds / (1 + odds)).sum(), (odds / (1 + odds) ** 2).sum()
            return float(mean), float(variance + np.trace(Z) - np.einsum("ij,ji->", Z, Z))

        log_tilt = solve_tilt(moments, left, kernel.tilted_for(size, tied).log_tilt, deviations=0.3)
        odds = np.exp(log_tilt) * kernel.odds
        together = tilted_law(low_rank.coordinates, float(np.exp(log_tilt)), q)
        apart = independent_sizes(odds)
        weights = np.array([chance * apart[left - m] for m, chance in enumerate(together.law[: left + 1])])
        with np.errstate(divide="ignore"):
            log_mass = float(np.log(weights.sum()) + together.log_weight + np.log1p(odds).sum() - size * log_tilt)
        ties = Exact.prepare(low_rank, given=tied, memory=memory)
        return cls(ties, Alone.prepare(odds), size, log_mass, np.cumsum(weights))

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return S, as items of the catalogue, or None."""
        together = self.ties.draw_rows(rng, look_up_cdf(self.cdf, rng.random()))
        return joined(self, together, self.alone.draw_sized(rng, self.size - len(together)))


Proposal: TypeAlias = SizedUnion | DisjointParts


def joined(parts: Proposal, together: IntArray, apart: IntArray) -> IntArray | None:
    """Return the union of T and R, rows of the support, as items of the catalogue; None if it does not have the wanted size."""
    rows = np.union1d(together, apart)
    return parts.ties.kernel.catalogue_ids(rows) if parts.size in (None, len(rows)) else None


def independent_sizes(odds: FloatArray) -> FloatArray:
    """Return the distribution of the number of items that come by themselves with these odds."""
    coins = Coins(odds / (1 + odds), np.empty((len(odds), 0)))
    return SizeLaw.prepare(np.empty((0, 0)), lambda: [coins], len(odds)).distribution()


def propose_from(
    kernel: LowRankKernel, tied: IntArray, size: int | None, memory: int, device: str | None = None
) -> Proposal:
    """Return what proposes sets of the kernel that contain ``tied``, items without a background; ``size`` counts them."""
    if kernel.background is None:
        ties = Exact.prepare(kernel, size=size, given=tied, memory=memory, device=device)
        return SizedUnion(ties, Alone.prepare(np.zeros(kernel.n_rows)), None, kernel.log_mass(tied, size))
    if size is None:
        return SizedUnion.of(kernel, tied, None, memory, kernel.log_mass(tied), device)
    union = SizedUnion.prepare(kernel, tied, kernel.check_size(size, given=tied), memory, device)
    if device not in (None, "cpu"):  # a GPU draws T without regard to its size
        return union
    parts = DisjointParts.prepare(kernel, tied, size, memory)
    return parts if -np.inf < parts.log_mass < union.log_mass else union


class Union(NamedTuple):
    """T and R of a kernel with a background, for whatever items are given; ``log_z`` is the log weight of all sets."""

    clock: EigenClock | Clock
    alone: Alone
    log_z: float

    @classmethod
    def prepare(cls, kernel: LowRankKernel, memory: int) -> Union:
        """Prepare what does not depend on the given items: O(n r²)."""
        ties = Exact.prepare(kernel.low_rank, memory=memory)
        clock = EigenClock.prepare(ties, None) or Clock.prepare(ties.kernel, index=ties.index)
        return cls(clock, Alone.prepare(kernel.odds), kernel.log_normalizer())

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays, but for those that all components share."""
        index, own = self.clock.index, tuple(vars(self.alone).values())
        eigen = self.clock.eigen if isinstance(self.clock, EigenClock) else ()
        return n_bytes_of((own, index.kernel.coordinates, index.threshold, index.alias, eigen))

    def given(self, rows: IntArray) -> Union:
        """Return what draws sets that contain these rows, at a cost of O(|J| r²)."""
        odds = self.alone.odds[rows]
        log_z = self.log_z + log_contained(self.clock.minor(rows), odds)
        return self._replace(clock=replace(self.clock, given=rows, alone=odds / (1 + odds)), log_z=log_z)

    def draw_apart(self, rng: np.random.Generator) -> IntArray:
        """Draw R, without the given rows."""
        rows = self.alone.draw(rng)
        return rows[~np.isin(rows, self.clock.given)]

    def draw_tied(self, rng: np.random.Generator) -> IntArray:
        """Draw T, again until it has none of the given rows."""
        for _ in range(SIZED_BUDGET):
            look()
            rows = self.clock.draw_all(rng)
            if not np.isin(rows, self.clock.given).any():
                return rows
        raise BudgetExceededError(f"{SIZED_BUDGET} sets were drawn, each with a given item twice", count=SIZED_BUDGET)


class Counts(NamedTuple):
    """The number of items of R: log E z^|R| at points of a circle, and p."""

    z: AnyArray
    log_mean: AnyArray
    p: FloatArray

    @classmethod
    def of(cls, odds: FloatArray) -> Counts:
        """Return the generating function."""
        p = odds / (1 + odds)
        law = SizeLaw.prepare(np.empty((0, 0)), lambda: [Coins(p, np.empty((len(p), 0)))], len(p))
        z = _circle(law)
        return cls(z, law.log_mean(z), p)

    def chance(self, count: int, without: IntArray) -> float:
        """Return the probability that R has so many items in addition to these."""
        return _coefficient(
            self.z, self.log_mean - np.log1p(np.multiply.outer(self.p[without], self.z - 1)).sum(axis=0), count
        )


def _circle(law: SizeLaw) -> AnyArray:
    """Return points by which the probabilities of all sizes up to the last of the window are told apart."""
    low, count = law.window()
    return nodes(float(np.exp(LOG_RADIUS)), low + count + low % 2)


def _coefficient(z: AnyArray, log_mean: AnyArray, count: int) -> float:
    """Return the coefficient of z^count, a probability; 0 for more than there are."""
    if count >= 2 * len(z):
        return 0.0
    return max(0.0, float(np.exp(log_mean - count * np.log(z)).real.sum()) / len(z))


class SizedSets(NamedTuple):
    """Sets of a :class:`Union` with ``left`` items in addition to the given ones; None: with any number of them.

    T, which costs most, is accepted with probability P(|R ∖ T| = left − |T|) / ``bound``, and then R is drawn until it has this size.
    Without ``counts`` of R, S = T ∪ R is accepted if it has the wanted size.
    """

    union: Union
    left: int | None
    counts: Counts | None
    bound: float

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return the further items of a set, as items of the catalogue, or None if there are too many or too few of them."""
        rows = self._with_apart(rng) if self.counts is None else self._with_tied(rng, self.counts)
        return None if rows is None else self.union.clock.index.kernel.catalogue_ids(rows)

    def _with_apart(self, rng: np.random.Generator) -> IntArray | None:
        apart = self.union.draw_apart(rng)
        if self.left is not None and len(apart) > self.left:
            return None
        rows = np.union1d(self.union.draw_tied(rng), apart)
        return rows if self.left in (None, len(rows)) else None

    def _with_tied(self, rng: np.random.Generator, counts: Counts) -> IntArray | None:
        assert self.left is not None
        tied = self.union.draw_tied(rng)
        count = self.left - len(tied)
        if count < 0:
            return None
        chance = counts.chance(count, np.concatenate([tied, self.union.clock.given]))
        if rng.random() * self.bound >= chance:
            return None
        for _ in range(SIZED_BUDGET):
            look()
            apart = self.union.draw_apart(rng)
            apart = apart[~np.isin(apart, tied)]
            if len(apart) == count:
                return np.sort(np.concatenate([tied, apart]))
        raise BudgetExceededError(
            f"{SIZED_BUDGET} sets of independent items were drawn, none of {count} items", count=SIZED_BUDGET
        )


def log_contained(minor: FloatArray, odds: FloatArray) -> float:
    """Return log P(J ⊆ S) = log det(p + (1 − p)^½ q R qᵀ (1 − p)^½) from the minor q R qᵀ of given items; −inf if it is not positive."""
    p = odds / (1 + odds)
    sign, value = np.linalg.slogdet(np.diag(p) + minor * np.sqrt(np.outer(1 - p, 1 - p)))
    return float(value) if sign > 0 else -np.inf


class GivenFamilies(NamedTuple):
    """Families of given items: the cumulative weights (m, K) of their states, and their other items, each with the place of its family."""

    families: IntArray
    cumulated: FloatArray
    place: IntArray
    items: IntArray

    @classmethod
    def of(cls, patterns: Patterns, state_odds: FloatArray, ids: IntArray) -> GivenFamilies:
        """Weigh the states by the given items: a_s Π_{i given} r_is Π_{other i} (1 + r_is)."""
        one = patterns.touched(Baskets.from_lists([ids], n_items=len(patterns.odds)))
        totals = np.append(patterns.log_totals, 0.0)[patterns.slots[one.families]]
        with np.errstate(divide="ignore"):
            logs = np.log(np.append(state_odds, 0.0))[patterns.slots[one.families]]
        logs = logs + one.sums(patterns.log_odds - np.log1p(patterns.odds)) + totals
        cumulated = np.cumsum(scaled(logs), axis=1)
        place, items = patterns.items_of(one.families)
        others = ~np.isin(items, ids)
        return cls(one.families, cumulated, place[others], items[others])


class FamilyParts(NamedTuple):
    """The patterns of the families of one component: cumulative weights (F, K) of the states of a family that has an item.

    ``log_rest`` (n, K) is log(1 + r): minus the logarithm of the probability that an item does not come.
    """

    patterns: Patterns
    cumulated: FloatArray
    log_rest: FloatArray

    @classmethod
    def of(cls, patterns: Patterns, state_odds: FloatArray) -> FamilyParts:
        """Weigh the states."""
        totals = patterns.log_totals
        with np.errstate(divide="ignore"):
            logs = np.append(np.log(state_odds) + totals + np.log(-np.expm1(-totals)), -np.inf)
        cumulated = np.cumsum(scaled(logs[patterns.slots]), axis=1)
        return cls(patterns, cumulated, np.log1p(patterns.odds))

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays of its own."""
        return n_bytes_of((self.patterns.odds, self.cumulated, self.log_rest))

    def items_of(self, rng: np.random.Generator, families: IntArray) -> IntArray:
        """Draw items of each family, given that there is one at least: the first of them, and then the later ones independently."""
        if not len(families):
            return families
        own = self.cumulated[families]
        state = (own <= (rng.random(len(families)) * own[:, -1])[:, None]).sum(axis=1)
        pair, items = self.patterns.items_of(families)
        log_rest = self.log_rest[items, state[pair]]
        ends = np.flatnonzero(np.diff(pair, append=len(families)))
        total = np.cumsum(log_rest)
        none_yet = total - np.append(0.0, total[ends[:-1]])[pair]  # −log P(none up to this item)
        sought = rng.random(len(families)) * -np.expm1(-none_yet[ends])
        is_before = -np.expm1(-none_yet) <= sought[pair]
        is_before[ends] = False  # whatever rounding says, the last item is the first to come if no other is
        is_first = ~is_before & np.append(True, is_before[:-1] | (np.diff(pair) > 0))
        later = ~is_before & ~is_first & (-np.expm1(-log_rest) > rng.random(len(items)))
        return np.asarray(items[is_first | later])


class FamilySets(NamedTuple):
    """Sets of one component: families from ``union``, and items of each by its ``parts``; ``left`` further ones, or any number."""

    union: Union
    parts: FamilyParts
    given: GivenFamilies
    left: int | None

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return the further items of a set, or None if there are too many or too few. Tied families, which cost most, come last."""
        apart, left = self.union.draw_apart(rng), self.left
        items = np.concatenate([self.items_of_given(rng), self.parts.items_of(rng, apart)])
        if left is not None and len(items) > left:
            return None
        tied = np.setdiff1d(self.union.draw_tied(rng), apart)
        if left is not None and len(items) + len(tied) > left:
            return None
        ids = np.concatenate([items, self.parts.items_of(rng, tied)])
        return ids if left in (None, len(ids)) else None

    def items_of_given(self, rng: np.random.Generator) -> IntArray:
        """Draw further items of the given families: a state of each, and then each item independently."""
        own, place, items = self.given.cumulated, self.given.place, self.given.items
        state = (own <= rng.random((len(own), 1)) * own[:, -1:]).sum(axis=1)
        return np.asarray(items[-np.expm1(-self.parts.log_rest[items, state[place]]) > rng.random(len(items))])
