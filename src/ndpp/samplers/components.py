"""Components of mixtures with shared ties: what is prepared once for all given items and sizes, and draws the further items of a set.

A set of a component is S = T ∪ R, as in :mod:`~ndpp.samplers.unions`.

:class:`Union` is prepared once for all given items J, which must have δ > 0. Given J, the others have the kernel with δ as it was and
B' = B − B q_Jᵀ (p_J + q_J B q_Jᵀ)⁻¹ q_J B in the coordinates q of T, where p = δ / (1 + δ). At any time s of a clock, its resolvent is

    R'(s) = R − R q_Jᵀ (s p_J + q_J R q_Jᵀ)⁻¹ q_J R,        R(s) = sB(I + sB)⁻¹,

the formula for items that come together with s p_J added to the diagonal of the minor: no matrix but one of order |J| depends on J. B' does
not exclude J from T, so T is drawn again until it has no item of J; that is rarely needed, as P(j ∈ T) < δ_j.

:class:`FurtherItems` draws sets of any size, or of one; of families, a state and a non-empty set of the items of each.

Cost per sample: that of T, and O(|R|) for R, independent of n. Preparing takes O(n r²).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.linalg as sl

from ndpp._memory import n_bytes_of
from ndpp._stop import look
from ndpp._types import AnyArray, FloatArray, IntArray
from ndpp.errors import BudgetExceededError
from ndpp.items.table import LeverageTable
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.patterns import FamilyGroups
from ndpp.laws.shared import MOST_LOG
from ndpp.laws.tied import TiedMixture
from ndpp.linalg.coordinates import leverages
from ndpp.linalg.eigen import EigenBasis, is_skew
from ndpp.linalg.scaling import EPS, congruence
from ndpp.linalg.size_law import nodes
from ndpp.linalg.sizes import Coins, SizeLaw
from ndpp.samplers.clock import Clock
from ndpp.samplers.exact import Exact
from ndpp.samplers.exact.eigenclock import EigenClock
from ndpp.samplers.exact.rows import EigenRows, Sides, rows_of
from ndpp.samplers.family_parts import FamilyFactors, FamilyParts, GivenFamilies
from ndpp.samplers.unions import SIZED_BUDGET, Alone, without

LOST_DIGITS = 1e-10
"""Largest error of coordinates that are computed from Σ p q qᵀ; if it is larger, they are computed from the rows."""
KEPT_SIDES = 256
"""Items of a component, those proposed most often, whose sides are computed once for all samples."""
RARE, ROUNDING = 1e-4, 1e-7
"""Probability below which a number of items is drawn with a finer tilt, and a bound of its error with any tilt."""
LOG_DAMPING = 36.0
"""With N points of the circle, a number of items m + N is mistaken for m with a weight of exp(−36)."""
NO_VALUES = np.empty((1, 0))


class Union(NamedTuple):
    """T and R of a kernel with a background, for whatever items are given."""

    clock: EigenClock | Clock
    alone: Alone

    @classmethod
    def prepare(cls, ties: TiedMixture, c: int, memory: int) -> Union:
        """Prepare what does not depend on the given items, for component c of a mixture. O(n r²)."""
        kernel = ties.single(c)
        clock: EigenClock | Clock | None = shared_clock(ties, c, kernel.low_rank)
        if clock is None:  # with more care
            exact = Exact.prepare(kernel.low_rank, memory=memory)
            clock = EigenClock.prepare(exact, None) or Clock.prepare(exact.kernel, index=exact.index)
        return cls(clock, Alone.prepare(kernel.odds))

    @property
    def n_bytes(self) -> int:
        """Bytes of all arrays, but for those that all components share."""
        index = self.clock.index
        eigen = self.clock.eigen.n_bytes if isinstance(self.clock, EigenClock) else 0
        return self.alone.n_bytes + index.n_bytes + eigen + n_bytes_of(vars(index.kernel).get("coordinates"))

    def given(self, rows: IntArray) -> Union:
        """Return what draws sets that contain these rows."""
        if not len(rows):
            return self
        odds = self.alone.odds[rows]
        return self._replace(clock=replace(self.clock, given=rows, alone=odds / (1 + odds)))

    def draw_apart(self, rng: np.random.Generator) -> IntArray:
        """Draw R, without the given rows."""
        return without(self.alone.draw(rng), self.clock.given)

    def draw_tied(self, rng: np.random.Generator) -> IntArray:
        """Draw T, again until it has none of the given rows."""
        for _ in range(SIZED_BUDGET):
            look()
            rows = self.clock.draw_all(rng)
            if len(without(rows, self.clock.given)) == len(rows):
                return rows
        raise BudgetExceededError(f"{SIZED_BUDGET} sets were drawn, each with a given item twice", count=SIZED_BUDGET)


class Counts(NamedTuple):
    """How many items the rows of R have, and what draws them, with the odds of all items times ρ.

    P(|R| = m) is the coefficient of z^m in Π (1 + o(ρz)) / (1 + o), times ρ^−m, whatever ρ. If ρ makes m typical, it has all its digits,
    and m items are soon drawn. ``log_mean`` is log E z^|R| under ρ at points z of a circle, to which rows add the logarithms of their
    ``groups``; ``unit`` is log (1 + o(ρ)) / (1 + o) of rows.
    """

    z: AnyArray
    log_mean: AnyArray
    groups: Coins | FamilyGroups | FamilyFactors
    log_rho: float
    unit: FloatArray
    alone: Alone
    parts: FamilyParts | None

    @classmethod
    def of_items(cls, odds: FloatArray, log_rho: float, n_nodes: int) -> Counts:
        """Prepare rows of one item each."""
        z, tilted = circle(n_nodes), odds * np.exp(log_rho)
        coins = Coins(tilted / (1 + tilted), np.empty((len(odds), 0)))
        log_mean = SizeLaw.prepare(np.empty((0, 0)), lambda: [coins], len(odds)).log_mean(z)
        return cls(z, log_mean, coins, log_rho, np.log1p(tilted) - np.log1p(odds), Alone.prepare(tilted), None)

    @classmethod
    def of_families(
        cls, odds: FloatArray, log_rho: float, groups: FamilyFactors | FamilyGroups, parts: FamilyParts, z: AnyArray
    ) -> Counts:
        """Prepare families, whose groups and parts are those of ρ."""
        if isinstance(groups, FamilyFactors):
            logs, log_mean = groups.logs, groups.log_sum(np.arange(len(odds)))
        else:
            logs = groups.weights(np.ones(1))[0][:, 0].real
            log_mean = (groups.weights(z)[0] - logs[:, None]).sum(axis=0)
        alone = Alone.prepare(np.expm1(logs.clip(max=MOST_LOG)))
        return cls(z, log_mean, groups, log_rho, logs - np.log1p(odds), alone, parts)

    @property
    def n_bytes(self) -> int:
        """Bytes of its own arrays; its parts count theirs."""
        groups = self.groups.logs if isinstance(self.groups, FamilyFactors) else getattr(self.groups, "p", None)
        return n_bytes_of((self.log_mean, self.unit, groups, self.alone))

    def tilted_chance(self, count: int, removed: IntArray) -> float:
        """Return P(|R| = count) without some rows, with odds times ρ."""
        if count >= 2 * len(self.z):
            return 0.0
        groups, z = self.groups, self.z
        own = (
            groups.log_sum(removed)
            if isinstance(groups, FamilyFactors)
            else groups.take(removed).values(z)[0].sum(axis=0)
        )
        return max(0.0, float(np.exp(self.log_mean - own - count * np.log(z)).real.sum()) / len(z))

    def untilted(self, chance: float, count: int, removed: IntArray) -> float:
        """Return P(|R| = count) without some rows, from what it is with odds times ρ."""
        return chance * float(np.exp(self.unit.sum() - self.unit[removed].sum() - count * self.log_rho))

    def draw(self, rng: np.random.Generator, count: int, removed: IntArray) -> IntArray:
        """Draw ``count`` items outside the removed rows: as rows, or, for families, as items."""
        return self.alone.draw_sized(rng, count, removed, None if self.parts is None else self.parts.items_of)


def circle(count: int) -> AnyArray:
    """Return half of ``count`` points z, which tell numbers of items apart; the other half are their conjugates."""
    return nodes(float(np.exp(-LOG_DAMPING / count)), count)


class FurtherItems(NamedTuple):
    """Sets of a :class:`Union` with ``left`` items in addition to the given ones; None: with any number of them.

    T, which costs most, is accepted with probability P(|R ∖ T| = m) / ``bound``, for m the number of missing items; then R is drawn with m.
    ``counts(m, T ∪ J)`` tells how many items R ∖ T ∖ J has and draws m of them, with a finer tilt if its third argument is true; ``parts``
    and ``families`` are those of families and of given items. ``room`` (J,) is what given items leave of upper bounds on totals of
    ``values`` (J, n).
    """

    union: Union
    left: int | None
    counts: Callable[[int, IntArray, bool], Counts]
    bound: float
    parts: FamilyParts | None = None
    families: GivenFamilies | None = None
    values: FloatArray = NO_VALUES
    room: FloatArray = NO_VALUES[0]

    def propose(self, rng: np.random.Generator) -> IntArray | None:
        """Return the further items of a set, as items of the catalogue, or None if there are too many or too few of them."""
        if len(self.room):
            return self._within_room(rng)
        tied = self.union.draw_tied(rng)
        if self.left is None:
            return self.items(rng, np.union1d(tied, self.union.draw_apart(rng)))
        if len(tied) > self.left:
            return None
        items, removed = self.items(rng, tied), np.concatenate([tied, self.union.clock.given])
        count = self.left - len(items)
        if count < 0:
            return None
        counts, sought = self.counts(count, removed, False), rng.random() * self.bound
        chance = counts.tilted_chance(count, removed)
        if chance < RARE and sought < counts.untilted(2 * chance + ROUNDING, count, removed):
            counts = self.counts(count, removed, True)
            chance = counts.tilted_chance(count, removed)
        if sought >= counts.untilted(chance, count, removed):
            return None
        others = counts.draw(rng, count, removed)
        return np.concatenate([items, self.items_of(rng, others) if self.parts is None else others])

    def _within_room(self, rng: np.random.Generator) -> IntArray:
        """Return further items of any number, or too many of them: R is drawn first, and T only if R leaves room."""
        apart = self.union.draw_apart(rng)
        found = self.items(rng, apart)
        if (self.values[:, found].sum(axis=1) > self.room).any():
            return found
        return np.concatenate([found, self.items_of(rng, without(self.union.draw_tied(rng), apart))])

    def items(self, rng: np.random.Generator, rows: IntArray) -> IntArray:
        """Return the items of rows, and further ones of given families."""
        if self.families is None or self.parts is None:
            return self.items_of(rng, rows)
        return np.concatenate([self.families.further(rng, self.parts.log_rest), self.items_of(rng, rows)])

    def items_of(self, rng: np.random.Generator, rows: IntArray) -> IntArray:
        """Return the items of rows: of families, some of each."""
        if self.parts is None:
            return self.union.clock.index.kernel.catalogue_ids(rows)
        return self.parts.items_of(rng, rows)


def shared_clock(ties: TiedMixture, c: int, kernel: LowRankKernel) -> EigenClock | None:
    """Return the clock of T of component c, whose kernel is √p q W qᵀ √p with the rows q of the base, which all components share.

    With Σ p q qᵀ = UᵀU, rows √p q U⁻¹ are orthonormal, and the kernel has B = U W Uᵀ, with B(I + B)⁻¹ = U N Uᵀ. None if that costs too
    many digits, if B has no eigenvectors to rely on, or if rows are not in memory. Those of a skew B are orthonormal, and compared at one
    time only.
    """
    (rows, factors, to_q), A = rows_of(ties.base), ties.sums([c])[0]
    scale = np.sqrt(np.diagonal(A))
    if not (isinstance(rows, np.ndarray) and len(A) and scale.all()):
        return None
    try:
        U = sl.cholesky(A / np.outer(scale, scale)) * scale
    except sl.LinAlgError:
        return None
    inverse = sl.solve_triangular(U, np.eye(len(U)))
    if not EPS * np.square(inverse * scale[:, None]).sum() < LOST_DIGITS:
        return None
    B, N = congruence(U, ties.core), ties._state.N[c]
    skew = is_skew(B)
    bases, agrees = EigenBasis.of_many(B[None], is_skew=skew, resolvents=(U @ N @ U.T)[None, None] if skew else None)
    basis = EigenBasis(*(part[0] for part in bases))
    mean = float(np.einsum("ij,ji->", A, N))  # E|T|
    if not (agrees[0] and abs(basis.mean - mean) <= LOST_DIGITS * (1 + mean)):
        return None
    odds = ties.tilted_odds(0.0, [c])[0]
    p = odds / (1 + odds)
    to_unit = inverse if to_q is None else to_q @ inverse
    leverage = p * leverages(rows if to_q is None else ties.base._factor, to_unit)
    left, right = to_sides = to_unit @ basis.to_sides
    source = Sides.of(rows, factors * np.sqrt(p), left, right, np.argsort(-leverage)[:KEPT_SIDES])
    eigen = EigenRows(basis.values, basis.multiplicity, to_sides, source, mean, source.n_bytes)
    index = LeverageTable.prepare(kernel, leverage=np.minimum(leverage, 1.0))
    return EigenClock(index, eigen, np.empty(0, np.int64), np.empty(0))
