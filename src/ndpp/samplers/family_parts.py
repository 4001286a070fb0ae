"""Items of families, of one component of a mixture: how many there are, and what draws them."""

from __future__ import annotations

import cmath
import math
from typing import NamedTuple

import numpy as np

from ndpp._compiled import njit
from ndpp._types import AnyArray, BoolArray, ComplexArray, FloatArray, IntArray
from ndpp.laws.patterns import LARGE, Patterns, Touched, scaled

AT_ONCE = 8
"""Families whose factors are multiplied before the logarithm is taken."""
HUGE = 1e100
"""Of products above this, the logarithm is taken before they overflow."""


class FamilyFactors(NamedTuple):
    """f(z) = (1 + o(z)) / (1 + o(1)) of families at points z of a circle, with o(z) = Σ_s a_s (Π_i (1 + z r_is) − 1).

    ``products`` (M, points) are Π (1 + z r) − 1 of all states, which all components share; ``slots`` are the states of each family, and
    ``logs`` are log(1 + o(1)).
    """

    products: ComplexArray
    slots: IntArray
    state_odds: FloatArray
    logs: FloatArray

    @classmethod
    def of(cls, patterns: Patterns, state_odds: FloatArray, products: ComplexArray) -> FamilyFactors:
        """Return those of one component, whose states have these odds."""
        own = np.append(state_odds * np.expm1(patterns.log_totals), 0.0)
        return cls(products, patterns.slots, state_odds, np.log1p(own[patterns.slots].sum(axis=1)))

    def log_sum(self, families: IntArray) -> ComplexArray:
        """Return Σ log f(z) over some families at each point, up to multiples of 2πi."""
        return _log_sum(self.products, self.slots, self.state_odds, self.logs, families)


@njit(error_model="numpy")
def _log_sum(
    products: ComplexArray, slots: IntArray, state_odds: FloatArray, logs: FloatArray, families: IntArray
) -> ComplexArray:
    """Return :meth:`FamilyFactors.log_sum`. Logarithms take longest, and few factors do not underflow."""
    n_points = products.shape[1]
    total, product, one = (
        np.zeros(n_points, np.complex128),
        np.ones(n_points, np.complex128),
        np.empty(n_points, np.complex128),
    )
    for i in range(families.size):
        g = families[i]
        one[:] = 1.0
        for k in range(slots.shape[1]):
            state = slots[g, k]
            if state < state_odds.size:
                for j in range(n_points):
                    one[j] += state_odds[state] * products[state, j]
        unit = math.exp(-logs[g])
        for j in range(n_points):
            product[j] *= one[j] * unit
        if i % AT_ONCE == AT_ONCE - 1 or i == families.size - 1:
            for j in range(n_points):
                total[j] += cmath.log(product[j])
                product[j] = 1.0
    return total


class GivenFamilies(NamedTuple):
    """Families of given items, ``slots`` and weights (m, K) of their states, and their other items, each with the place of its family.

    The weights are logarithms, and those of a component, ``weighed``, are cumulative.
    """

    families: IntArray
    slots: IntArray
    cumulated: FloatArray
    place: IntArray
    items: IntArray

    @classmethod
    def of(cls, patterns: Patterns, one: Touched) -> GivenFamilies:
        """Weigh the states by the given items, one basket: Π_{i given} r_is Π_{other i} (1 + r_is)."""
        slots = patterns.slots[one.families]
        logs = np.append(patterns.log_totals, 0.0)[slots] + one.sums(patterns.log_chances)
        place, items = patterns.items_of(one.families)
        others = ~np.isin(items, one.items)
        return cls(one.families, slots, logs, place[others], items[others])

    def weighed(self, state_odds: FloatArray) -> GivenFamilies:
        """Return the same with the weights of the states times those of one component."""
        with np.errstate(divide="ignore"):
            logs = np.log(np.append(state_odds, 0.0)[self.slots])
        return self._replace(cumulated=np.cumsum(scaled(logs + self.cumulated), axis=1))

    def mean(self, log_rest: FloatArray) -> float:
        """Return the expected number of further items of a component, ``log_rest`` as in :class:`FamilyParts`."""
        shares = np.diff(self.cumulated, axis=1, prepend=0.0) / self.cumulated[:, -1:]
        return float((shares[self.place] * -np.expm1(-log_rest[self.items])).sum())

    def further(self, rng: np.random.Generator, log_rest: FloatArray) -> IntArray:
        """Draw further items: a state of each family, and then each item independently; ``log_rest`` as in :class:`FamilyParts`."""
        own = self.cumulated
        state = (own <= rng.random((len(own), 1)) * own[:, -1:]).sum(axis=1)
        come = -np.expm1(-log_rest[self.items, state[self.place]]) > rng.random(len(self.items))
        return np.asarray(self.items[come])


class FamilyParts(NamedTuple):
    """The patterns of the families of one component: cumulative weights (F, K) of the states of a family that has an item.

    All components share the patterns.
    """

    patterns: Patterns
    cumulated: FloatArray

    @classmethod
    def of(cls, patterns: Patterns, state_odds: FloatArray) -> FamilyParts:
        """Weigh the states."""
        totals = patterns.log_totals
        with np.errstate(divide="ignore"):
            logs = np.append(np.log(state_odds) + totals + np.log(-np.expm1(-totals)), -np.inf)
        cumulated = np.cumsum(scaled(logs[patterns.slots]), axis=1)
        return cls(patterns, cumulated)

    @property
    def log_rest(self) -> FloatArray:
        """Minus the logarithm of the probability that an item does not come, in each state."""
        return self.patterns.log_rest

    @property
    def n_bytes(self) -> int:
        """Bytes of its own array; the patterns count theirs."""
        return self.cumulated.nbytes

    def items_of(self, rng: np.random.Generator, families: IntArray) -> IntArray:
        """Draw items of each family, given that there is one at least."""
        starts, members = self.patterns.member_table
        n_items = int((starts[families + 1] - starts[families]).sum())
        coins = rng.random(2 * len(families) + n_items)
        return _items_of(families, self.cumulated, self.log_rest, starts, members, coins)


@njit(error_model="numpy")
def _items_of(
    families: IntArray,
    cumulated: FloatArray,
    log_rest: FloatArray,
    starts: IntArray,
    members: IntArray,
    coins: FloatArray,
) -> IntArray:
    """Draw the state of each family, then the first of its items that comes, and then the later ones independently."""
    found, count, coin = np.empty(coins.size - 2 * families.size, np.int64), 0, 2 * families.size
    for place in range(families.size):
        g, state, none = families[place], 0, 0.0
        first, end, last = starts[families[place]], starts[families[place] + 1], -1
        while state < cumulated.shape[1] - 1 and cumulated[g, state] <= coins[2 * place] * cumulated[g, -1]:
            state += 1
        for i in range(first, end):
            none += log_rest[members[i], state]  # −log P(no item)
            if log_rest[members[i], state] > 0:
                last = i
        sought, none, has_one = -math.expm1(-none) * coins[2 * place + 1], 0.0, False
        for i in range(first, end):
            rest = log_rest[members[i], state]
            none += rest
            if has_one:
                comes = coins[coin] < -math.expm1(-rest)
            else:  # whatever rounding says, the last item is the first to come if no other is
                comes = has_one = -math.expm1(-none) > sought or i == last
            if comes:
                found[count] = members[i]
                count += 1
            coin += 1
    return found[:count]


class FamilyTotals(NamedTuple):
    """Numbers c_j of the items of families in each component, as if there were no ties: :class:`ndpp.linalg.tilts.TotalCumulants`.

    The items of one family come together, so that c_j varies more, and grows faster with a tilt, than that of independent items.
    ``values`` (J, m) and ``odds`` (m, K) are those of the items that have a value, by family; the items of family g begin at ``first[g]``,
    and ``rest`` (G, K) is log Π (1 + r) of its other items. ``state_odds`` (C, M) count ``factors`` (C,) times. ``plain`` are the sums of
    log(1 + o), the means and the covariances without a tilt.
    """

    values: FloatArray
    odds: FloatArray
    first: IntArray
    slots: IntArray
    rest: FloatArray
    state_odds: FloatArray
    factors: FloatArray
    plain: tuple[FloatArray, FloatArray, FloatArray]

    @classmethod
    def of(
        cls, patterns: Patterns, state_odds: FloatArray, factors: FloatArray, values: FloatArray, without: BoolArray
    ) -> FamilyTotals:
        """Take items with these values (J, n), ``without`` some of them."""
        valued = values.any(axis=0) & ~without
        families = np.unique(patterns.families[valued])
        place, items = patterns.items_of(families)
        rest = np.zeros((len(families), patterns.odds.shape[1]))
        others = ~(valued | without)[items]
        np.add.at(rest, place[others], patterns.log_rest[items[others]])
        place, items = place[valued[items]], items[valued[items]]
        first = np.searchsorted(place, np.arange(len(families) + 1))
        own = (
            np.ascontiguousarray(values[:, items]), patterns.odds[items], first, patterns.slots[families], rest,
            np.asarray(state_odds, np.float64), factors,
        )  # fmt: skip
        return cls(*own, _cumulants(np.zeros((len(factors), len(values))), np.arange(len(factors)), *own))

    @property
    def units(self) -> FloatArray:
        """The largest value of each c_j."""
        most = self.values.max(axis=1, initial=0.0)
        return np.where(most > 0, most, 1.0)

    def cumulants(self, theta: FloatArray, which: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return log E e^{θ·c}, means and covariances."""
        logs, mean, covariance = (part[which] for part in self.plain)
        if not theta.any():
            return 0 * logs, mean, covariance
        found = _cumulants(np.ascontiguousarray(theta), which, *self[:-1])
        return found[0] - logs, *found[1:]


@njit(error_model="numpy")
def _cumulants(
    theta: FloatArray, which: IntArray, values: FloatArray, odds: FloatArray, first: IntArray, slots: IntArray, rest: FloatArray,
    state_odds: FloatArray, factors: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:  # fmt: skip
    """Return Σ log(1 + o) over the families, and its derivatives: o = Σ_s a_s (Π_i (1 + e^{θ·c_i} r_is) − 1).

    Products are kept in units of their own.
    """
    (J, n), K, n_states = values.shape, slots.shape[1], state_odds.shape[1]
    logs, means, covariances = np.zeros(which.size), np.zeros((which.size, J)), np.zeros((which.size, J, J))
    tilts, log_unit, product, weight = np.empty(n), np.empty(K), np.empty(K), np.empty(K)
    small, large = np.exp(np.minimum(rest, LARGE)), np.maximum(rest - LARGE, 0.0)
    slope, bend, mean, square = np.empty((K, J)), np.empty((K, J, J)), np.empty(J), np.empty((J, J))
    for at in range(which.size):
        c = which[at]
        for i in range(n):
            x = 0.0
            for j in range(J):
                x += theta[at, j] * values[j, i]
            tilts[i] = math.exp(x)
        for g in range(slots.shape[0]):
            top, none = 0.0, 1.0
            slope[:], bend[:] = 0.0, 0.0
            for k in range(K):
                weight[k] = 0.0
                if slots[g, k] >= n_states:
                    continue
                weight[k] = factors[c] * state_odds[c, slots[g, k]]
                none -= weight[k]
                product[k], log_unit[k] = small[g, k], large[g, k]
                for i in range(first[g], first[g + 1]):
                    r = min(odds[i, k] * tilts[i], HUGE)
                    p = r / (1 + r)
                    product[k] *= 1 + r
                    if product[k] > HUGE:
                        log_unit[k] += math.log(product[k])
                        product[k] = 1.0
                    for j in range(J):
                        slope[k, j] += p * values[j, i]
                        for m in range(j + 1):
                            bend[k, j, m] += p * (1 - p) * values[j, i] * values[m, i]
                if weight[k] > 0:
                    top = max(top, log_unit[k])
            total = none * math.exp(-top) if top > 0 else none
            mean[:], square[:] = 0.0, 0.0
            for k in range(K):
                if weight[k] > 0:
                    share = weight[k] * product[k]
                    if log_unit[k] < top:
                        share *= math.exp(log_unit[k] - top)
                    total += share
                    for j in range(J):
                        mean[j] += share * slope[k, j]
                        for m in range(j + 1):
                            square[j, m] += share * (bend[k, j, m] + slope[k, j] * slope[k, m])
            logs[at] += top + math.log(total)
            for j in range(J):
                means[at, j] += mean[j] / total
                for m in range(j + 1):
                    covariances[at, j, m] += square[j, m] / total - mean[j] * mean[m] / total**2
        for j in range(J):
            for m in range(j):
                covariances[at, m, j] = covariances[at, j, m]
    return logs, means, covariances


def products_at(patterns: Patterns, z: AnyArray) -> ComplexArray:
    """Return Π (1 + z r_is) − 1 over the items of each state, shape (M, len(z)), to full relative precision."""
    return _products_at(patterns.odds, patterns.families, patterns.slots, len(patterns.states), z)


@njit(error_model="numpy")
def _products_at(odds: FloatArray, families: IntArray, slots: IntArray, n_states: int, z: ComplexArray) -> ComplexArray:
    out = np.zeros((n_states, z.size), np.complex128)
    for i in range(odds.shape[0]):
        for k in range(odds.shape[1]):
            state = slots[families[i], k]
            if state < n_states and odds[i, k] > 0:
                for j in range(z.size):
                    term = odds[i, k] * z[j]
                    out[state, j] += term * (1 + out[state, j])
    return out
