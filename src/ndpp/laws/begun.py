"""Baskets that have begun, many at a time: P(c | J ⊆ S) and P(a ∈ S | J ⊆ S) of mixtures with shared ties.

In the notation of :mod:`ndpp.laws.tied`, let R_c be the rows (1 − p_c)^½ x of J and v_ca = ∂P_c(a ∈ S) / ∂(x_aᵀ N_c x_a). Then

    P(a ∈ S | J ⊆ S) = Σ_c P(c | J) (P_c(a ∈ S) − v_ca x_aᵀ U_c x_a),        U_c = N_c R_cᵀ (I + R_c N_c R_cᵀ)⁻¹ R_c N_c.

The first part is one matrix product for all baskets and items. The second part takes 4 r |J| operations per basket, item and component,
which is too much for all items if only the best are wanted. It is bounded from above. Let Z⁻¹ be the skew part of W⁻¹ (Z = W if W is
skew), and A_c* the sum of A_c, the symmetric part of W⁻¹, and R_cᵀ R_c. The symmetric part of (W⁻¹ + A_c + R_cᵀ R_c)⁻¹, which is that of
N_c − U_c, is the parallel sum of (A_c*)⁻¹ and Zᵀ A_c* Z, and so at most the latter:

    x_aᵀ (N_c − U_c) x_a  ≤  x_aᵀ Zᵀ A_c* Z x_a  ≤  (a term that does not depend on J)  +  Σ_{j∈J} (x_jᵀ Z x_a)².

:meth:`Begun.best` scores the items with the largest first part, drops all items whose bound is below the score of the last of them,
and replaces the bound of the others by the second part, components of large posterior first, dropping items as their bound decreases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ndpp._types import BoolArray, FloatArray, IntArray, cached_property
from ndpp.baskets import Baskets
from ndpp.laws.precision import WARN_ERROR
from ndpp.linalg.scaling import ROUNDING, inverted

SharedTies: TypeAlias = Any
"""A :class:`ndpp.laws.shared.SharedTies`, which is built upon this module."""
LEFT_OUT = 1e-12
"""Total posterior, in units of the smallest P(a ∈ S), of the components that are left out of the second part: both P_c(a ∈ S) and
P_c(a ∈ S | J ⊆ S) are probabilities, so the error of a score is no larger."""
EQUAL = 1e-9
"""Scores that agree to this relative precision may be equal but for rounding; both items are then scored."""
GROUP = 32
"""Number of components whose bounds are replaced first; then as many as were replaced before."""
PRODUCTS = 2**25
"""Entries of N_c x_j and N_cᵀ x_j in memory at a time, and of (I + R_c N_c R_cᵀ)⁻¹ (256 MB each)."""
NO_BOUND = 1e150
"""Stands for a bound where there is none; its product with a derivative of 0 is 0."""
ITEMS = 512
"""Items whose second parts are computed at a time."""


def parts(mixture: SharedTies, baskets: Baskets) -> Iterator[IntArray]:
    """Yield numbers of baskets that are few enough for one :class:`Begun`; baskets that share an item come together."""
    n_components, rank = len(mixture.weights), max(1, mixture.base.rank)
    first = np.where(baskets.sizes > 0, np.append(baskets.indices, 0)[baskets.indptr[:-1]], -1)
    part: list[int] = []
    seen: set[int] = set()
    n_pairs = 0
    for i in np.argsort(first, kind="stable").tolist():
        items = set(baskets[i].tolist())
        n_pairs += len(items) ** 2
        if part and n_components * max(2 * rank * len(seen | items), n_pairs) > PRODUCTS:
            yield np.array(part)
            part, seen, n_pairs = [], set(), len(items) ** 2
        part.append(i)
        seen |= items
    if part:
        yield np.array(part)


def started(forms: FloatArray, odds: FloatArray, noise: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return log P_c(J ⊆ S) of one basket J, its rounding error, and D_c (I + R_c N_c R_cᵀ)⁻¹ D_c with D_c = diag(1 − p_c)^½.

    It is given by x N_c xᵀ of the rows x of J, shape (C, k, k), its odds, shape (C, k), and the relative errors of N_c. The error is
    infinite where rounding made a determinant negative.
    """
    scale = 1 / np.sqrt(1 + odds)
    scales = scale[:, :, None] * scale[:, None, :]
    inside = np.eye(odds.shape[1]) + scales * forms
    sign, log_abs = np.linalg.slogdet(inside)
    with np.errstate(divide="ignore"):
        log_mass = np.log(odds / (1 + odds)).sum(axis=1) + log_abs
    inside[sign == 0] = np.eye(odds.shape[1])
    inverses = inverted(inside)
    # A change δA of a matrix changes log det by tr A⁻¹δA.
    worst = np.abs(inside).max(axis=(1, 2), initial=0.0) * np.abs(inverses).sum(axis=(1, 2))
    errors = noise + (ROUNDING + noise) * worst
    return log_mass, np.where(sign > 0, errors.clip(max=1.0), np.inf), scales * inverses


def posteriors(log_mass: FloatArray, errors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return P(c | J) of baskets from log w_c P_c(J ⊆ S), and a bound of the relative errors, given those of the components."""
    top = log_mass.max(axis=1, keepdims=True)
    shares = np.exp(log_mass - np.where(top > -np.inf, top, 0.0))
    lost = np.where(errors == np.inf, shares, 0.0).sum(axis=1)  # determinants that rounding made negative
    shares[errors == np.inf] = 0.0
    total = shares.sum(axis=1, keepdims=True)
    lost[(lost > 0) & (total[:, 0] == 0)] = np.inf
    posterior = shares / np.where(total > 0, total, 1.0)
    return posterior, lost + (posterior * np.where(errors == np.inf, 0.0, errors)).sum(axis=1)


class Correction(NamedTuple):
    """The second part of one basket: its ``components``, and the two factors of their U_c as ``sides``, shape (2, C, k, r).

    ``rows`` are all rows x.
    """

    mixture: SharedTies
    rows: FloatArray
    components: IntArray
    posterior: FloatArray
    sides: FloatArray

    def of(self, items: IntArray, group: slice = slice(None)) -> FloatArray:
        """Return Σ_c P(c | J) v_ca x_aᵀ U_c x_a of some items, over a group of the components."""
        row_of, sides, components = self.mixture.row_of, self.sides[:, group], self.components[group]
        rows, at = np.unique(items if row_of is None else row_of[items], return_inverse=True)
        products = sides.reshape(int(np.prod(sides.shape[:3])), sides.shape[3]) @ self.rows[rows].T
        left, right = products.reshape(*sides.shape[:3], len(rows))
        explained = (left * right).sum(axis=1)
        shares = self.posterior[group] * self.mixture.slope_table[items[:, None], components]
        return np.asarray((shares * explained.T[at]).sum(axis=1))

    def contenders(
        self, items: IntArray, scores: FloatArray, least: FloatArray, pulls: FloatArray
    ) -> tuple[IntArray, FloatArray]:
        """Return the items that score at least so much, and their scores, from their first parts."""
        mixture, bounded = self.mixture, np.zeros(len(self.mixture.weights))
        bounded[self.components] = self.posterior
        start, stop = 0, GROUP
        while start < len(self.components) and len(items):
            scores = scores - self.of(items, slice(start, stop))
            bounded[self.components[start:stop]] = 0.0
            room = mixture.room_table[items] @ bounded + (mixture.slope_table[items] @ bounded) * pulls
            kept = scores + room >= least
            items, scores, least, pulls = items[kept], scores[kept], least[kept], pulls[kept]
            start, stop = stop, 2 * stop
        return items, scores


class Begun:
    """Baskets J over the catalogue of a mixture, one or many. ``posterior`` is P(c | J), zero for all components where J never occurs.

    ``log_mass`` is log P_c(J ⊆ S), and ``wrong`` bounds the relative error that rounding causes in the scores of each basket.
    ``weights`` are w_c / P_c(S ≠ ∅) if they differ between baskets, shape (len(baskets), C).
    """

    def __init__(self, mixture: SharedTies, baskets: Baskets, weights: FloatArray | None = None) -> None:
        self.mixture, self.baskets = mixture, baskets
        self.ties = mixture.touched
        tied, log_within = mixture.touched_rows(baskets)
        base = self.ties.base
        can_occur = base.can_occur(tied.indices)
        self.distinct = np.unique(tied.indices[can_occur])
        self.q = base.q_rows(base.rows_of(self.distinct))
        self.odds = np.asarray(self.ties.odds[:, self.distinct], np.float64)
        self.places = [np.searchsorted(self.distinct, items) for items in tied]
        log_mass = np.zeros((len(tied), len(mixture.weights))) + log_within
        impossible = np.repeat(np.arange(len(tied)), tied.sizes)[~can_occur]
        log_mass[impossible] = -np.inf
        for i in impossible:
            self.places[i] = self.places[i][:0]
        errors, self.inverses = np.zeros(log_mass.shape), []
        noise = 10 * self.ties._state.errors  # a probability is a derivative of log Z, with a larger error
        for i, places in enumerate(self.places):
            forms = self._right.take(places, axis=1) @ self.q[places].T
            contained, errors[i], inverses = started(forms, self.odds[:, places], noise)
            log_mass[i] += contained
            self.inverses.append(inverses)
        with np.errstate(divide="ignore"):
            prior = mixture._log_weights if weights is None else np.log(weights)
        self.posterior, self.wrong = posteriors(log_mass + prior, errors)
        self.log_mass = np.where(errors < np.inf, log_mass, -np.inf)

    @cached_property
    def _left(self) -> FloatArray:
        """N_c x_j of the distinct items of all baskets, shape (C, items, r)."""
        return np.asarray(self.q @ self.ties._state.N.swapaxes(1, 2))

    @cached_property
    def _right(self) -> FloatArray:
        """N_cᵀ x_j."""
        return np.asarray(self.q @ self.ties._state.N)

    @cached_property
    def _settled(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Baskets, items and scores that do not follow from ties: those of J, 0, and what the mixture knows otherwise."""
        baskets, items, values = self.mixture.within_rows(self.baskets, self.posterior)
        owner = np.repeat(np.arange(len(self.baskets)), self.baskets.sizes)
        own = self.baskets.indices
        return np.append(baskets, owner), np.append(items, own), np.append(values, np.zeros(len(own)))

    def _answered(self, out: FloatArray) -> FloatArray:
        """Return the scores as probabilities, NaN for baskets that never occur or to which rounding matters."""
        out[~(self.posterior.any(axis=1) & (self.wrong <= WARN_ERROR))] = np.nan
        return out.clip(0.0, 1.0)

    def _first_parts(self) -> FloatArray:
        """Return Σ_c P(c | J) P_c(a ∈ S), and the scores of settled items."""
        out = self.posterior @ self.mixture.inclusion_table.T
        baskets, items, values = self._settled
        out[baskets, items] = values
        return np.asarray(out)

    def _correction(self, i: int, unit: FloatArray) -> Correction:
        """Return the second part of basket i for scores in these units; the components of the largest posterior come first."""
        order = np.argsort(-self.posterior[i])
        order = order[self.posterior[i, order] > LEFT_OUT * unit.min(initial=1.0) / len(order)]
        at = order[:, None] * len(self.distinct) + self.places[i]
        flat = len(self.posterior[i]) * len(self.distinct), self.q.shape[1]
        sides = np.empty((2, *at.shape, self.q.shape[1]))
        self._left.reshape(flat).take(at, axis=0, out=sides[0])
        np.matmul(self.inverses[i][order], self._right.reshape(flat).take(at, axis=0), out=sides[1])
        return Correction(self.mixture, self.ties.all_rows, order, self.posterior[i, order], sides)

    def scores(self) -> FloatArray:
        """Return P(a ∈ S | J ⊆ S), shape (len(baskets), n_items), 0 for items of J and NaN for baskets that are not answered."""
        return self._answered(self.chances())

    def chances(self) -> FloatArray:
        """Return the same of all baskets, however large the error."""
        out, settled, row_of = self._first_parts(), self._is_settled(), self.mixture.row_of
        alone = self.mixture.weights @ self.mixture.inclusion_table.T
        by_row = np.arange(out.shape[1]) if row_of is None else np.argsort(row_of, kind="stable")
        for i in np.flatnonzero([len(places) for places in self.places]).tolist():
            others, correction = by_row[~settled[i, by_row]], self._correction(i, alone[alone > 0])
            for start in range(0, len(others), ITEMS):
                items = others[start : start + ITEMS]
                out[i, items] -= correction.of(items)
        return out

    def _is_settled(self) -> BoolArray:
        out = np.zeros((len(self.baskets), self.mixture.n_items), bool)
        out[self._settled[:2]] = True
        return out

    def best(
        self, n: int, allowed: BoolArray, unit: FloatArray, wanted: Sequence[IntArray] | None = None
    ) -> FloatArray:
        """Return :meth:`scores` of the allowed items that may be among the ``n`` best in these units, 0 for all others.

        Those of the items that are ``wanted`` of each basket are given in any case.
        """
        first, settled, mixture = self._first_parts(), self._is_settled(), self.mixture
        first[:, ~allowed] = 0.0
        known, unit = settled & allowed, np.broadcast_to(unit, allowed.shape)
        pulls, out, n = self._pulls(), np.where(known, first, 0.0), min(n, len(allowed))
        bounds = first + self.posterior @ mixture.room_table.T + (self.posterior @ mixture.slope_table.T) * pulls
        for i, row in enumerate(out):
            correction = self._correction(i, unit[allowed])
            top = np.argpartition(first[i] / unit, -n)[-n:]
            new = top if wanted is None else np.union1d(top, wanted[i])
            new = new[allowed[new] & ~settled[i, new]]
            row[new] = first[i, new] - correction.of(new)
            least = (row[top] / unit[top]).min() * unit * (1 - EQUAL)
            able = allowed & ~settled[i] & (bounds[i] >= least)
            able[new] = False
            items = np.flatnonzero(able)
            found, scores = correction.contenders(items, first[i, items], least[items], pulls[i, items])
            row[found] = scores
        return self._answered(out)

    def _pulls(self) -> FloatArray:
        """Return Σ_j (x_jᵀ Z x_a)² of every basket and item; large if there is no Z."""
        pull = self.ties.pull
        if pull is None:
            return np.full((len(self.baskets), self.mixture.n_items), NO_BOUND)
        squares = np.square(self.q @ pull @ self.ties.all_rows.T)
        return np.asarray(self.mixture.by_item(np.stack([squares[places].sum(axis=0) for places in self.places])))
