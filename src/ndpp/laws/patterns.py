"""Which items of a family come together: its states, and the odds of the items in each of them.

Every item belongs to one of F families, and every family has some of the M states. In state s the items of the family come independently
with odds r_is, so a set of them has the weight Π r_is, and all sets together have Π (1 + r_is).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ndpp._types import BoolArray, FloatArray, IntArray, NumberArray, cached_property
from ndpp._validation import check_odds, frozen
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.linalg.logs import log1p
from ndpp.linalg.scaling import EPS
from ndpp.linalg.size_law import nodes
from ndpp.linalg.sizes import CHUNK, LOG_RADIUS, N_TERMS, ROUNDED, Series, complex_forms

NEGLIGIBLE = 1e-17
"""Terms with smaller contributions to a matrix are left out."""
LARGE = 30.0
"""Logarithm of products above which they are scaled down, so that they do not overflow."""


class Touched(NamedTuple):
    """The families that baskets touch: pairs of a basket and a family, sorted, and where the items of each pair begin in ``items``."""

    baskets: IntArray
    families: IntArray
    items: IntArray
    first: IntArray

    def sums(self, values: FloatArray) -> FloatArray:
        """Return the sum of ``values`` (n, K) over the items of each pair, shape (pairs, K)."""
        return np.asarray(np.add.reduceat(values[self.items], self.first, axis=0))


@dataclass(frozen=True, eq=False)
class Patterns:
    """Families, states, and the odds of the items.

    Attributes
    ----------
    families : (n,) array
        The family of each item, below ``n_families``.
    states : (M,) array
        The family of each state.
    odds : (n, K) array
        The odds of each item in the first, second, … state of its family; 0 where it has fewer than K.
    """

    families: IntArray
    states: IntArray
    odds: FloatArray
    n_families: int

    @classmethod
    def checked(cls, families: Any, states: Any, odds: Any, n_families: int) -> Patterns:
        """Return the record; raise unless families and states are below ``n_families`` and odds are ≥ 0."""
        odds = check_odds(odds, "item_odds", of=("item", "state")).astype(np.float64)
        families, states = _numbers(families, "families", n_families), _numbers(states, "states", n_families)
        if len(families) != len(odds) or not len(odds):
            raise InvalidInputError(f"families must be one per row of item_odds; got {len(families)} for {len(odds)}")
        most = int(np.bincount(states, minlength=1).max(initial=0))
        if most > odds.shape[1]:
            raise InvalidInputError(
                f"item_odds must have a column per state of a family; one has {most} states, and there are {odds.shape[1]} columns"
            )
        made = cls(families, states, odds, n_families)
        return made.with_odds(np.where(made.slots[families] < len(states), odds, 0.0))

    def with_odds(self, odds: FloatArray) -> Patterns:
        """Return the same families and states with other odds of the items."""
        made = Patterns(self.families, self.states, frozen(odds), self.n_families)
        vars(made).update(
            {name: vars(self)[name] for name in ("slots", "member_table", "of_states") if name in vars(self)}
        )
        return made

    def without(self, items: IntArray) -> Patterns:
        """Return the patterns in which some items never come."""
        odds = self.odds.copy()
        odds[items] = 0.0
        return self.with_odds(odds)

    @cached_property
    def slots(self) -> IntArray:
        """The states of each family, shape (F, K); M where there are fewer."""
        out = np.full((self.n_families, self.odds.shape[1]), len(self.states))
        order = np.argsort(self.states, kind="stable")
        own = self.states[order]
        out[own, np.arange(len(own)) - np.searchsorted(own, own)] = order
        return out

    @cached_property
    def log_odds(self) -> FloatArray:
        """The logarithms of the odds."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.odds))

    @cached_property
    def log_rest(self) -> FloatArray:
        """The logarithms of 1 + r: minus those of the probability that an item does not come, in each state."""
        return np.log1p(self.odds)

    @property
    def n_bytes(self) -> int:
        """Bytes of the arrays that depend on the odds, once all are computed."""
        return 4 * self.odds.nbytes + self.states.nbytes

    @cached_property
    def log_chances(self) -> FloatArray:
        """The logarithms of r / (1 + r), the probability of an item in each state."""
        return self.log_odds - self.log_rest

    @cached_property
    def log_totals(self) -> FloatArray:
        """Log of Π (1 + r_is) over the items of each state, shape (M,)."""
        return np.asarray(self.log_totals_at(np.ones(1))[:, 0])

    def log_totals_at(self, z: NumberArray) -> NumberArray:
        """Return log Π (1 + z r_is) over the items of each state, shape (M, len(z)), up to multiples of 2πi; for z (n, m), z_i, (M, m)."""
        sums, item, column = self.of_states
        odds = self.odds[item, column, None] * (z if z.ndim == 1 else z[item])
        return np.asarray(sums @ log1p(odds))

    @cached_property
    def of_states(self) -> tuple[sparse.csr_array, IntArray, IntArray]:
        """A matrix that sums values of items in their columns of ``odds`` over the states, shape (M, …), and these items and columns."""
        item, column = np.nonzero(self.slots[self.families] < len(self.states))
        states = self.slots[self.families[item], column]
        one = np.ones(len(item))
        return (
            sparse.csr_array((one, (states, np.arange(len(item)))), shape=(len(self.states), len(item))),
            item,
            column,
        )

    @cached_property
    def member_table(self) -> tuple[IntArray, IntArray]:
        """Where the items of each family start, and the items, by family."""
        order = np.argsort(self.families, kind="stable")
        return np.searchsorted(self.families[order], np.arange(self.n_families + 1)), order

    @property
    def members(self) -> list[IntArray]:
        """The items of each family."""
        starts, items = self.member_table
        return np.split(items, starts[1:-1])

    def items_of(self, families: IntArray) -> tuple[IntArray, IntArray]:
        """Return all items of each of these families, and before them the position of the family."""
        starts, items = self.member_table
        first, counts = starts[families], starts[families + 1] - starts[families]
        place = np.repeat(np.arange(len(families)), counts)
        return place, items[np.arange(len(place)) + np.repeat(first - np.cumsum(counts) + counts, counts)]

    def touched(self, baskets: Baskets) -> Touched:
        """Return the families that each basket touches."""
        return self._touched(np.repeat(np.arange(len(baskets)), baskets.sizes), baskets.indices)

    def touched_by(self, ids: IntArray) -> Touched:
        """Return the families that some items touch, as one basket."""
        return self._touched(np.zeros(len(ids), np.int64), ids)

    def _touched(self, owner: IntArray, items: IntArray) -> Touched:
        key = owner * self.n_families + self.families[items]
        order = np.argsort(key, kind="stable")
        first = np.flatnonzero(np.diff(key[order], prepend=-1))
        key = key[order[first]]
        return Touched(key // self.n_families, key % self.n_families, items[order], first)


def scaled(logs: FloatArray) -> FloatArray:
    """Return exp(logs) of each row in units of its largest entry."""
    top = logs.max(axis=1, initial=-np.inf, keepdims=True)
    return np.exp(logs - np.where(top > -np.inf, top, 0.0))


def touch_weights(log_products: NumberArray, state_odds: FloatArray) -> tuple[NumberArray, NumberArray]:
    """Return log(1 + o), up to multiples of 2πi, and 1 / (1 + o) of families with o = Σ_s a_s (Π_i (1 + r_is) − 1), shape (families, m).

    Both arguments have the shape (families, K, m), or 1 for m. Large products are kept in units of exp(``top``).
    """
    top = (log_products.real.max(axis=1, initial=0.0) - LARGE).clip(0.0)
    some = np.expm1(log_products - top[:, None]) - np.expm1(-top)[:, None]
    odds = np.einsum("gkm,gkm->gm", *np.broadcast_arrays(state_odds, some))
    unit = np.exp(-top)
    logs, total = np.log1p(odds), unit + odds
    if top.any():
        logs = np.where(top > 0, top + np.log(total), logs)
    return logs, unit / total


class FamilyGroups(NamedTuple):
    """Some families of a component as groups of :mod:`ndpp.linalg.sizes`, with item odds ρ r and rows of their own.

    o(z) = Σ_s a_s (Π_i (1 + z ρ r_is) − 1) has f = (1 + o(z)) / (1 + o(1)) and u = p(z) − p(1) with p = o / (1 + o).
    ``kept`` are the logarithms of the products that were computed before.
    """

    patterns: Patterns
    state_odds: FloatArray
    rho: float
    rows: FloatArray
    families: IntArray
    kept: dict[bytes, NumberArray]

    def take(self, which: IntArray) -> FamilyGroups:
        """Return some of the families."""
        return self._replace(rows=self.rows[which], families=self.families[which])

    def _log_products(self, z: NumberArray) -> NumberArray:
        """Return log Π (1 + z ρ r) of all states, shape (M + 1, m), and 0 for slots without one."""
        key = z.tobytes()
        if key not in self.kept:
            logs = self.patterns.log_totals_at(self.rho * z)
            self.kept[key] = np.vstack([logs, np.zeros((1, logs.shape[1]))])
        return self.kept[key]

    def weights(self, z: NumberArray) -> tuple[NumberArray, NumberArray]:
        """Return log(1 + o), up to multiples of 2πi, and 1 / (1 + o) of the families, shape (families, m)."""
        slots = self.patterns.slots[self.families]
        own = self._log_products(z)[slots]  # (families, K, m)
        return touch_weights(own, np.append(self.state_odds, 0.0)[slots][:, :, None])

    def values(self, z: NumberArray) -> tuple[NumberArray, NumberArray]:
        """Return log f(z) and u(z)."""
        logs, rest = self.weights(z)
        logs_before, rest_before = self.weights(np.ones(1))
        return logs - logs_before, rest_before - rest

    def series(self) -> Series:
        """Return the power series of the families for which it ends soon enough."""
        z = nodes(float(np.exp(LOG_RADIUS)), 2 * N_TERMS)
        inverse_powers = z[:, None] ** -np.arange(2.0 * N_TERMS) / len(z)
        with np.errstate(all="ignore"):
            logs, change = self.values(z)
            logs, terms = ((values @ inverse_powers).real for values in (logs, change / (z - 1)))
        least = NEGLIGIBLE / np.square(self.rows).sum(axis=1, keepdims=True).clip(NEGLIGIBLE)
        no_log, no_term = (
            np.abs(values) <= np.maximum(ROUNDED * np.abs(values).max(axis=1, keepdims=True), some)
            for values, some in ((logs, EPS), (terms, least))
        )
        light = (no_log & no_term)[:, N_TERMS:].all(axis=1)
        counts = np.where(light, N_TERMS - np.argmin(no_term[:, N_TERMS - 1 :: -1], axis=1), 0)
        return Series(logs[light, :N_TERMS].sum(axis=0), np.where(no_term, 0.0, terms)[:, :N_TERMS], counts)

    @property
    def n_items(self) -> int:
        """The number of items of the catalogue."""
        return len(self.patterns.odds)

    def inclusions(self, z: NumberArray, weights: NumberArray, inner: NumberArray) -> FloatArray:
        """Return Σ_z w P_z(i ∈ S) of all items of the catalogue; z may be that of each item, shape (n, m)."""
        items = np.arange(self.n_items)
        parts = (slice(start, start + CHUNK) for start in range(0, len(inner), CHUNK))
        return np.asarray(sum((self.chances(z[..., part], inner[part], items) @ weights[part]).real for part in parts))

    def chances(self, z: NumberArray, inner: NumberArray, items: IntArray) -> NumberArray:
        """Return P_z(i ∈ S) of some items of the catalogue; z may be that of each item, shape (n, m)."""
        patterns, out = self.patterns, np.zeros((len(items), len(inner)), complex)
        families, at = np.unique(patterns.families[items], return_inverse=True)
        groups = self.take(families)
        logs, rest = groups.weights(z)
        rows = groups.rows.astype(inner.real.dtype)
        ties = 1 + np.stack([complex_forms(rows, M) for M in inner], axis=1) * rest
        row, column = np.nonzero(patterns.odds[items])
        state = patterns.slots[patterns.families[items[row]], column]
        factors = z if z.ndim == 1 else z[items[row]]
        odds = (self.rho * patterns.odds[items[row], column])[:, None] * factors
        mass = self.state_odds[state, None] * np.exp(self._log_products(z)[state] - logs[at[row]])
        np.add.at(out, row, mass * odds / (1 + odds) * ties[at[row]])
        return out

    def moved(self, items: BoolArray) -> BoolArray:
        """Return which families have one of these items."""
        return np.isin(self.families, self.patterns.families[items])


def _numbers(values: Any, name: str, n_families: int) -> IntArray:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidInputError(f"{name} must be a flat sequence of numbers of families; got {values!r:.60}")
    if array.size and not 0 <= array.min() <= array.max() < n_families:
        raise InvalidInputError(
            f"{name} must be in 0..{n_families - 1}, as X has {n_families} rows; they are in {array.min()}..{array.max()}"
        )
    return frozen(array.astype(np.int64))
