"""Baskets that have begun, many at a time: P(c | J ⊆ S) and P(a ∈ S | J ⊆ S) of mixtures with shared ties.

In the notation of :mod:`ndpp.laws.tied`, with R_c the rows (1 − p_c)^½ x of J and v_ca = p_ca (1 − p_ca),

    P(a ∈ S | J ⊆ S) = Σ_c P(c | J) (P_c(a ∈ S) − v_ca x_aᵀ U_c x_a),        U_c = N_c R_cᵀ (I + R_c N_c R_cᵀ)⁻¹ R_c N_c.

The first part is one product for all baskets. The second needs x_aᵀ N_c x_j and x_jᵀ N_c x_a of the items j of baskets, 4 n r operations
for each component and distinct item, and then 2 n |J|² for each component and basket. A component may be left out of the second part: both
P_c(a ∈ S) and P_c(a ∈ S | J ⊆ S) are probabilities, so this changes the result by its P(c | J) at most. ``LEFT_OUT`` bounds the sum of
what is left out, and with it the error. For a ranking, components of a small share are left out at first, and added for the items that they
may bring to the top. Baskets to which rounding may matter are not answered; the routines for single baskets say how much it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.laws.precision import WARN_ERROR
from ndpp.laws.shared import SharedTies
from ndpp.linalg.schur import ROUNDING

LEFT_OUT = 1e-12
"""Bound of the posterior of all components that are left out, and so of the error of a probability."""
LEFT_TO_RANK = 0.01
"""The same while items are only ranked."""
COLUMNS = 512
"""Items of baskets whose products are formed at a time."""
EQUAL = 1e-9
"""Scores that agree to this part may count as equal, whichever rounding makes the larger."""
ROWS = 256
"""Rows x_a whose products are formed at a time."""


class Stack(NamedTuple):
    """Baskets of one size: their numbers, the places of their items among the distinct ones, and R_c of a component, (b, k, r)."""

    numbers: IntArray
    places: IntArray
    rows: FloatArray


class Begun:
    """Baskets J over the catalogue of a mixture. ``posterior`` is P(c | J), zero for all components where J never occurs."""

    def __init__(self, mixture: SharedTies, baskets: Baskets) -> None:
        self.mixture, self.baskets = mixture, baskets
        self.ties, tied, log_within = mixture.begun(baskets)
        base = self.ties.base
        possible = np.ones(len(tied), bool)
        possible[np.repeat(np.arange(len(tied)), tied.sizes)[~base.can_occur(tied.indices)]] = False
        kept = tied[np.flatnonzero(possible)]
        self.distinct, places = np.unique(kept.indices, return_inverse=True)
        self.q, self.stacks = base.q_rows(base.rows_of(self.distinct)), []
        for size in np.unique(kept.sizes[kept.sizes > 0]):
            few = np.flatnonzero(kept.sizes == size)
            at = places[kept.indptr[few][:, None] + np.arange(size)]
            self.stacks.append(Stack(np.flatnonzero(possible)[few], at, self.q[:0]))
        log_mass = np.where(possible[:, None], log_within + mixture._log_weights, -np.inf)
        self.posterior, self.negative = self._posterior(log_mass)

    def _posterior(self, log_mass: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return w_c P_c(J ⊆ S) in units of its sum, and the part of determinants that rounding made negative."""
        negative = np.zeros(log_mass.shape, bool)
        for c, odds in enumerate(self.ties.odds[:, self.distinct]):
            with np.errstate(divide="ignore"):
                log_p = np.log(odds / (1 + odds))
            for stack, _, inside in self._insides(c, np.ones(len(log_mass), bool)):
                sign, log_abs = np.linalg.slogdet(inside)
                log_mass[stack.numbers, c] += log_p[stack.places].sum(axis=1) + log_abs
                negative[stack.numbers, c] = sign <= 0
        top = log_mass.max(axis=1, keepdims=True)
        shares = np.exp(log_mass - np.where(top > -np.inf, top, 0.0))
        wrong = np.where(negative, shares, 0.0).sum(axis=1)
        shares[negative] = 0.0
        total = shares.sum(axis=1, keepdims=True)
        return shares / np.where(total > 0, total, 1.0), wrong

    def _insides(self, c: int, chosen: BoolArray) -> Iterator[tuple[Stack, FloatArray, FloatArray]]:
        """Yield some of the chosen baskets their R_c N_c, and I + R_c N_c R_cᵀ."""
        N, odds = self.ties._state.N[c], np.asarray(self.ties.odds[c, self.distinct], np.float64)
        parts = [(stack, np.flatnonzero(chosen[stack.numbers])) for stack in self.stacks]
        scaled = self.q / np.sqrt(1 + odds)[:, None]
        is_many = sum(stack.places.shape[1] * len(here) for stack, here in parts) > len(scaled)
        products = scaled @ N if is_many else None
        for stack, here in parts:
            size = stack.places.shape[1]
            step = max(1, COLUMNS // size)
            for few in (here[i : i + step] for i in range(0, len(here), step)):
                places = stack.places[few]
                rows = scaled[places]
                right = rows @ N if products is None else products[places]
                inside = np.eye(size) + right @ rows.swapaxes(1, 2)
                yield Stack(stack.numbers[few], places, rows), right, inside

    def leading(self, left_out: float) -> BoolArray:
        """Return the fewest components of each basket of which all others have a posterior of at most ``left_out`` together."""
        order = np.argsort(self.posterior, axis=1)
        rest = np.cumsum(np.take_along_axis(self.posterior, order, axis=1), axis=1)
        out = np.empty(rest.shape, bool)
        np.put_along_axis(out, order, rest > left_out, axis=1)
        return out

    def scores(self, left_out: float = LEFT_OUT) -> FloatArray:
        """Return P(a ∈ S | J ⊆ S), shape (len(baskets), n_items), 0 for items of J and NaN for baskets that are not answered."""
        wrong = self.negative.copy()
        return self._answered(self._scores(self.leading(left_out), wrong), wrong)

    def _answered(self, out: FloatArray, wrong: FloatArray) -> FloatArray:
        out[~(self.posterior.any(axis=1) & (wrong <= WARN_ERROR))] = np.nan
        return out.clip(0.0, 1.0)

    def _scores(self, chosen: BoolArray, wrong: FloatArray) -> FloatArray:
        """Return the scores with the second part of the chosen components."""
        out, row_of = self.posterior @ self.mixture.component_inclusions(), self.mixture.row_of
        for c in np.flatnonzero(chosen.any(axis=0)).tolist():
            slopes = self.mixture.slopes(c)
            for numbers, explained in self._explained(c, chosen[:, c], wrong):
                share = self.posterior[numbers, c, None]
                out[numbers] -= share * slopes * (explained if row_of is None else explained[:, row_of])
        baskets, items, values = self._settled
        out[baskets, items] = values
        return np.asarray(out)

    def _explained(self, c: int, chosen: BoolArray, wrong: FloatArray) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield some of the chosen baskets and their x_aᵀ U_c x_a. Products of a row x_a with N_c and an item are formed once for all."""
        N, ties = self.ties._state.N[c], self.ties.base.ties
        parts = [(stack, self._inverse(c, stack, inside, wrong)) for stack, _, inside in self._insides(c, chosen)]
        used = np.unique(np.concatenate([np.empty(0, np.int64), *(stack.places.ravel() for stack, _ in parts)]))
        rows = self.q[used] / np.sqrt(1 + np.asarray(self.ties.odds[c, self.distinct[used]], np.float64))[:, None]
        left, right = rows @ N.T, rows @ N
        places = [np.searchsorted(used, stack.places) for stack, _ in parts]
        found = [np.empty((len(at), self.ties.base.n_rows)) for at in places]
        for block, Q in ties.q_blocks():
            for start in range(block.start, block.stop, ROWS):
                here = slice(start, min(start + ROWS, block.stop))
                first, second = (side @ Q[start - block.start :][:ROWS].T for side in (left, right))
                for at, (_, inverse), out in zip(places, parts, found):
                    out[:, here] = np.einsum("bki,bki->bi", first[at], inverse @ second[at])
        yield from zip((stack.numbers for stack, _ in parts), found)

    def _inverse(self, c: int, stack: Stack, inside: FloatArray, wrong: FloatArray) -> FloatArray:
        """Return the inverse of I + R_c N_c R_cᵀ; add the rounding error of the baskets to ``wrong``."""
        inverse = np.linalg.inv(inside)
        error = ROUNDING * np.abs(inverse).sum(axis=(1, 2)) * np.abs(inside).max(axis=(1, 2))
        wrong[stack.numbers] += self.posterior[stack.numbers, c] * error.clip(max=1.0)
        return np.asarray(inverse, np.float64)

    def _sides(
        self, c: int, chosen: BoolArray, wrong: FloatArray
    ) -> Iterator[tuple[IntArray, tuple[FloatArray, FloatArray]]]:
        """Yield some of the chosen baskets and the two factors of U_c, shape (b, k, r); add their rounding error to ``wrong``."""
        for stack, right, inside in self._insides(c, chosen):
            inverse = self._inverse(c, stack, inside, wrong)
            yield stack.numbers, (stack.rows @ self.ties._state.N[c].T, inverse @ right)

    @cached_property
    def _settled(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Baskets, items and scores that do not follow from ties: those of J, 0, and what the mixture knows otherwise."""
        baskets, items, values = self.mixture.settled(self.baskets, self.posterior)
        owner = np.repeat(np.arange(len(self.baskets)), self.baskets.sizes)
        own = self.baskets.indices
        return np.append(baskets, owner), np.append(items, own), np.append(values, np.zeros(len(own)))

    def best(self, n: int, allowed: BoolArray, unit: FloatArray) -> FloatArray:
        """Return :meth:`scores` of the allowed items that may be among the ``n`` best in these units, 0 for all others."""
        wrong, few = self.negative.copy(), self.leading(LEFT_TO_RANK)
        out = self._scores(few, wrong)
        out[:, ~allowed] = 0.0
        room = self._room(np.where(few, 0.0, self.posterior), unit)
        room[self._settled[:2]] = 0.0
        ranked = out / unit
        least = np.partition(ranked - room, -min(n, out.shape[1]), axis=1)[:, -min(n, out.shape[1])]
        able = allowed & (ranked + room >= least[:, None] * (1 - EQUAL))
        out[~able] = 0.0
        able[self._settled[:2]] = False
        self._finish(out, able, self.leading(LEFT_OUT) & ~few, wrong)
        return self._answered(out, wrong)

    def _room(self, left: FloatArray, unit: FloatArray) -> FloatArray:
        """Return a bound of the second part of components with these posteriors, in units of the items, shape (len(baskets), n_items).

        It is their posterior at most. That says nothing about items whose unit is as small. As I + R_c N_c R_cᵀ has a symmetric part of at
        least I, |x_aᵀ U_c x_a| ≤ ‖R_c N_c‖ ‖R_c N_cᵀ‖ ‖x_a‖², too, in Frobenius norms.
        """
        most = left.sum(axis=1, keepdims=True)
        if len(unit) == 1:
            return np.repeat(most / unit, self.mixture.n_items, axis=1)
        squares, row_of = np.square(self.ties.sides[0]).sum(axis=1), self.mixture.row_of
        weights, steep = np.zeros(left.shape), np.empty((left.shape[1], len(unit)))
        for c, N in enumerate(self.ties._state.N):
            rows = self.q / np.sqrt(1 + np.asarray(self.ties.odds[c, self.distinct], np.float64))[:, None]
            norms = np.stack([np.square(rows @ matrix).sum(axis=1) for matrix in (N, N.T)])
            for stack in self.stacks:
                size = np.sqrt(norms[:, stack.places].sum(axis=2).prod(axis=0))
                weights[stack.numbers, c] = left[stack.numbers, c] * size
            steep[c] = self.mixture.slopes(c) * (squares if row_of is None else squares[row_of]) / unit
        return np.asarray(np.minimum(weights @ steep, most / unit))

    def _finish(self, out: FloatArray, able: BoolArray, chosen: BoolArray, wrong: FloatArray) -> None:
        """Add the second part of the chosen components to the scores of the able items."""
        baskets, items = np.nonzero(able)
        counts = np.bincount(baskets, minlength=len(out))
        table = np.zeros((len(out), int(counts.max(initial=0))), np.int64)  # the able items of each basket
        table[baskets, np.arange(len(items)) - np.repeat(np.cumsum(counts) - counts, counts)] = items
        row_of, Q = self.mixture.row_of, self.ties.sides[0]
        change = np.zeros(table.shape)
        for c in np.flatnonzero(chosen.any(axis=0)).tolist():
            slopes = self.mixture.slopes(c)
            for numbers, sides in self._sides(c, chosen[:, c] & (counts > 0), wrong):
                these = table[numbers, : counts[numbers].max()]
                rows = Q[these if row_of is None else row_of[these]]
                first, second = (rows @ side.swapaxes(1, 2) for side in sides)
                explained = (first * second).sum(axis=2)
                change[numbers, : these.shape[1]] += self.posterior[numbers, c, None] * slopes[these] * explained
        valid = np.arange(table.shape[1]) < counts[:, None]
        out[baskets, items] -= change[valid]
