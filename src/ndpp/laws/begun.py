"""Baskets that have begun, many at a time: P(c | J ⊆ S) and P(a ∈ S | J ⊆ S) of mixtures with shared ties.

In the notation of :mod:`ndpp.laws.tied`, let R_c be the rows (1 − p_c)^½ x of J and v_ca = ∂P_c(a ∈ S) / ∂(x_aᵀ N_c x_a). Then

    P(a ∈ S | J ⊆ S) = Σ_c P(c | J) (P_c(a ∈ S) − v_ca x_aᵀ U_c x_a),        U_c = N_c R_cᵀ (I + R_c N_c R_cᵀ)⁻¹ R_c N_c.

The first part is one matrix product for all baskets and items. The second part takes 4 r |J| operations per basket, item and component,
which is too much for all items if only the best are wanted. It is bounded from above, in two ways. Let Z⁻¹ be the skew part of W⁻¹
(Z = W if W is skew), and A_c* the sum of A_c, the symmetric part of W⁻¹, and R_cᵀ R_c. The symmetric part of (W⁻¹ + A_c + R_cᵀ R_c)⁻¹,
which is that of N_c − U_c, is the parallel sum of (A_c*)⁻¹ and Zᵀ A_c* Z, and so at most the latter:

    x_aᵀ (N_c − U_c) x_a  ≤  x_aᵀ Zᵀ A_c* Z x_a  ≤  (a term that does not depend on J)  +  Σ_{j∈J} (x_jᵀ Z x_a)².

This bound needs no N_c x_j. Relative to P_c(a ∈ S), both terms are at most their largest over the components (``growth``). The other
bound has one product per item of J where the second part has two. With the symmetric part H_c and the skew part S_c of N_c,

    − x_aᵀ U_c x_a  ≤  (R_c S_c x_a)ᵀ (I + R_c H_c R_cᵀ)⁻¹ R_c S_c x_a,

which is the most that the left side can be, whatever R_c H_c x_a is.

:meth:`Begun.best` scores the items with the largest first part until n of them may be listed, drops all items whose first bound is below
the score of the last of them or too small to be listed, drops items by the second bound, and scores those that are left. Bounds are
computed in single precision, and rounded up. Every score that is returned is that of the full sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from ndpp._memory import Memory
from ndpp._types import BoolArray, FloatArray, IntArray, Which, cached_property
from ndpp.baskets import Baskets
from ndpp.laws.precision import WARN_ERROR
from ndpp.laws.scoring import Best
from ndpp.linalg.scaling import ROUNDING, inverted

SharedTies: TypeAlias = Any
"""A :class:`ndpp.laws.shared.SharedTies`, which is built upon this module."""
LEFT_OUT = 1e-12
"""Total posterior, in units of the smallest P(a ∈ S), of the components that are left out of the second part: both P_c(a ∈ S) and
P_c(a ∈ S | J ⊆ S) are probabilities, so the error of a score is no larger."""
EQUAL = 1e-9
"""Scores that agree to this relative precision may be equal but for rounding; both items are then scored."""
FEW, MANY_ITEMS = 40, 100
"""So many items are scored without another bound, and of more P(c | J) U_c is computed first."""
PRODUCTS = 2**25
"""Entries of N_c x_j and N_cᵀ x_j in memory at a time, and of (I + R_c N_c R_cᵀ)⁻¹ (256 MB each)."""
KEPT_BYTES, MOST_KEPT = 2**28, 16
"""Most bytes of N_c x_j and N_cᵀ x_j of single baskets that are kept."""
CACHED, SHARED = 2**16, 2**20
"""Entries of matrices N_c that are multiplied from both sides while they are in the cache (512 kB), and of those by many items (8 MB)."""
NO_BOUND = 1e150
"""Stands for a bound where there is none; its product with 0 is 0."""
ITEMS = 256
"""Rows whose items' second parts are computed at a time, in the cache."""
MOST = 0.8
"""If more of the components matter, all are counted: then nothing has to be copied."""
FLOOR = 1e-18
"""The smallest number in bounds: products of two such are normal numbers in single precision."""
MANY = 8
"""For so many baskets, all sums of the tables of bounds are matrix products; for fewer, those of the items that may need them are taken."""
LOST = 1e-30
"""More than what sums in single precision lose to numbers that are too small."""
SPREAD = 2.0**-8
"""By this part, bounds of squares in single precision are raised: (s + e)² ≤ (1 + δ) s² + (1 + 1/δ) e², and sums of them."""


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
    sign, log_abs, inverses = eliminated(inside)
    with np.errstate(divide="ignore"):
        log_mass = np.log(odds / (1 + odds)).sum(axis=1) + log_abs
    # A change δA of a matrix changes log det by tr A⁻¹δA.
    worst = np.abs(inside).max(axis=(1, 2), initial=0.0) * np.abs(inverses).sum(axis=(1, 2))
    errors = noise + (ROUNDING + noise) * worst
    return log_mass, np.where(sign > 0, errors.clip(max=1.0), np.inf), scales * inverses


def eliminated(A: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the sign and log |det| of matrices (C, k, k), and the inverses of regular ones: in closed form for k = 1 and 2."""
    if not 0 < A.shape[1] <= 2:
        sign, log_abs = np.linalg.slogdet(A)
        return sign, log_abs, inverted(np.where(sign[:, None, None] == 0, np.eye(A.shape[1]), A))
    adjugate = np.ones_like(A)
    if A.shape[1] == 2:
        adjugate[:, 0, 0], adjugate[:, 1, 1] = A[:, 1, 1], A[:, 0, 0]
        adjugate[:, 0, 1], adjugate[:, 1, 0] = -A[:, 0, 1], -A[:, 1, 0]
    det = (A[:, 0] * adjugate[:, :, 0]).sum(axis=1)
    with np.errstate(divide="ignore"):
        return np.sign(det), np.log(np.abs(det)), adjugate / np.where(det == 0, 1.0, det)[:, None, None]


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


def products(q: FloatArray, N: FloatArray) -> FloatArray:
    """Return N_cᵀ q_j and N_c q_j, shape (items, 2, C, r), in products with many matrices side by side."""
    C, r = N.shape[:2]
    out, step = np.empty((len(q), 2, C * r)), max(1, SHARED // max(1, r * r))
    for part in (slice(start, start + step) for start in range(0, C if len(q) else 0, step)):
        beside = slice(part.start * r, min(part.stop, C) * r)
        for side, matrices in enumerate((N[part].swapaxes(0, 1).reshape(r, -1), N[part].reshape(-1, r).T)):
            np.matmul(q, matrices, out=out[:, side, beside])
    return out.reshape(len(q), 2, C, r)


def products_of_each(q: FloatArray, N: FloatArray) -> list[FloatArray]:
    """Return :func:`products` of each item, with last digits that do not depend on the other items: always two items at a time."""
    C, r = N.shape[:2]
    out, step = [np.empty((2, C, r)) for _ in q], max(1, CACHED // max(1, r * r))
    pairs = np.concatenate([q, q[-1:]])[: len(q) + len(q) % 2].reshape(len(q) - len(q) // 2, 2, r)
    for part in (slice(start, start + step) for start in range(0, C, step)):
        for i, pair in enumerate(pairs):
            for side, matrices in enumerate((N[part], N[part].swapaxes(1, 2))):
                for one, values in zip(out[2 * i : 2 * i + 2], np.matmul(pair, matrices).swapaxes(0, 1)):
                    one[side, part] = values
    return out


def rounded_up(values: FloatArray) -> FloatArray:
    """Return bounds of these values, which are not negative, in single precision; ``FLOOR`` for those that are smaller, but not 0."""
    return np.where(values > 0, np.maximum(values * (1 + 2.0**-23), FLOOR), 0.0).astype(np.float32)


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
        errors, self.forms, self.inverses = np.zeros(log_mass.shape), [], []
        noise = 10 * self.ties._state.errors  # a probability is a derivative of log Z, with a larger error
        self.sides = self._products()
        self._last: tuple[int, tuple[list[FloatArray], list[FloatArray]]] = -1, ([], [])
        for i, places in enumerate(self.places):
            forms = np.moveaxis(self._forms(0, places, self.q[places]), 2, 0)
            contained, errors[i], inverses = started(forms, self.odds[:, places], noise)
            log_mass[i] += contained
            self.forms.append(forms)
            self.inverses.append(inverses)
        with np.errstate(divide="ignore"):
            prior = mixture._log_weights if weights is None else np.log(weights)
        self.posterior, self.wrong = posteriors(log_mass + prior, errors)
        self.log_mass = np.where(errors < np.inf, log_mass, -np.inf)

    def _products(self) -> list[FloatArray]:
        """Return :func:`products` of the distinct items. Those of a few are kept for further questions about baskets that have them."""
        N, rows = self.ties._state.N, self.distinct.tolist()
        if len(rows) > MOST_KEPT:
            return list(products(self.q, N))

        kept: Memory = self.mixture.memory.remember("begun", lambda: Memory(KEPT_BYTES))
        return kept.remember_many(rows, lambda new: products_of_each(self.q[np.searchsorted(self.distinct, new)], N))

    def _forms(self, side: int, places: IntArray, rows: FloatArray, which: Which = slice(None)) -> FloatArray:
        """Return x_jᵀ N_c x_a, with ``side`` 1 x_aᵀ N_c x_j, of distinct items and rows, shape (places, rows, components)."""
        out = np.empty((len(places), len(rows), len(self.mixture.weights[which])))
        for forms, j in zip(out, places.tolist()):
            np.matmul(rows, self.sides[j][side, which].T, out=forms)
        return out

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

    def _factors(self, i: int) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return N_c x_j of the items of a basket, and what they are multiplied by in P(c | J) U_c; both of shape (C, r) for each item.

        Those of the last basket are kept.
        """
        if self._last[0] != i:
            places, shares = self.places[i].tolist(), np.moveaxis(self.inverses[i], 0, 2) * self.posterior[i]
            right = [shares[m, 0, :, None] * self.sides[places[0]][0] for m in range(len(places))]
            for m, k in product(range(len(places)), range(1, len(places))):
                right[m] += shares[m, k, :, None] * self.sides[places[k]][0]
            self._last = i, ([self.sides[j][1] for j in places], right)
        return self._last[1]

    def _second_part(self, i: int, items: IntArray, which: Which = slice(None)) -> FloatArray:
        """Return Σ_c P(c | J) v_ca x_aᵀ U_c x_a of a basket J and some items, over some components."""
        row_of, places = self.mixture.row_of, self.places[i]
        rows, at = (items, slice(None)) if row_of is None else np.unique(row_of[items], return_inverse=True)
        x, slopes = self.ties.all_rows[rows], self.mixture.slope_table[items][:, which]
        explained = np.zeros((len(rows), len(self.posterior[i, which])))
        if len(items) > MANY_ITEMS:
            for left, right in zip(*self._factors(i)):
                one = x @ left[which].T
                one *= x @ right[which].T
                explained += one
            return np.asarray(np.einsum("ac,ac->a", slopes, explained[at]))
        right, left = (self._forms(side, places, x, which) for side in (0, 1))
        for one, shares in zip(left, np.moveaxis(self.inverses[i][which], 0, 2)):
            explained += one * sum(share * other for share, other in zip(shares, right))
        return np.asarray(np.einsum("ac,ac->a", slopes * self.posterior[i, which], explained[at]))

    def scores(self) -> FloatArray:
        """Return P(a ∈ S | J ⊆ S), shape (len(baskets), n_items), 0 for items of J and NaN for baskets that are not answered."""
        return self._answered(self.chances())

    def chances(self) -> FloatArray:
        """Return the same of all baskets, however large the error."""
        out, settled, row_of = self._first_parts(), self._is_settled(), self.mixture.row_of
        alone = self.mixture.weights @ self.mixture.inclusion_table.T
        by_row = np.arange(out.shape[1]) if row_of is None else np.argsort(row_of, kind="stable")
        step = ITEMS * max(1, len(by_row) // len(self.ties.all_rows))
        least = LEFT_OUT * alone[alone > 0].min(initial=1.0) / self.posterior.shape[1]
        lengths = self.mixture.by_item(np.square(self.ties.all_rows).sum(axis=1)[None])[0]
        for i in np.flatnonzero([len(places) for places in self.places]).tolist():
            which = self._components(i, least)
            norms = sum(np.prod(np.linalg.norm(pair, axis=2), axis=0) for pair in zip(*self._factors(i)))
            some = self.posterior[i] > 0  # where x_aᵀ U_c x_a is at most so much of x_aᵀ x_a
            is_tied = lengths * (norms[some] / self.posterior[i, some]).max(initial=0.0) > LEFT_OUT
            others = by_row[(is_tied & ~settled[i])[by_row]]
            for start in range(0, len(others), step):
                items = others[start : start + step]
                out[i, items] -= self._second_part(i, items, which)
        return out

    def _components(self, i: int, least: float) -> Which:
        """Return the components of which the posterior of a basket is larger."""
        found = np.flatnonzero(self.posterior[i] > least)
        return slice(None) if len(found) > MOST * self.posterior.shape[1] else found

    def _is_settled(self) -> BoolArray:
        out = np.zeros((len(self.baskets), self.mixture.n_items), bool)
        out[self._settled[:2]] = True
        return out

    def best(self, asked: Best) -> FloatArray:
        """Return :meth:`scores` of the allowed items that may be among the ``n`` best in their units, 0 for all others.

        Items that score less than the ``least`` are not among them where the basket is not empty, unless all do. The scores of the items
        that are ``wanted`` of each basket are given in any case.
        """
        settled, out = self._is_settled(), np.zeros((len(self.baskets), self.mixture.n_items))
        out[self._settled[:2]] = self._settled[2]
        out[~(settled & asked.allowed)] = 0.0
        sums, pulls, growth = self._sums(), self._pulls(), self.mixture.growth
        every = np.zeros(asked.allowed.shape)
        asked = asked._replace(n=min(asked.n, len(every)), unit=every + asked.unit, least=every + asked.least)
        for i, row in enumerate(out):
            able = asked.allowed & ~settled[i]
            first, *more = sums[:, i]
            gains = more[0] + more[1] * pulls[i] if more else first * (growth[0] + growth[1] * pulls[i])
            bounds = first, first + gains
            if asked.wanted is not None:
                own = asked.wanted[i][able[asked.wanted[i]]]
                row[own], able[own] = self._exactly(i, own), False
            for least in (asked.least, every) if self.baskets.sizes[i] else (every,):
                self._list(i, row, able, bounds, pulls[i], asked._replace(least=least))
                if ((row > 0) & (row >= least)).any():
                    break
        return self._answered(out)

    def _list(
        self,
        i: int,
        row: FloatArray,
        able: BoolArray,
        bounds: tuple[FloatArray, FloatArray],
        pulls: FloatArray,
        asked: Best,
    ) -> None:
        """Score the ``able`` items that may be among the best that score the least; ``row`` has the scores of others."""
        k, least, guesses = min(2 * asked.n, len(row)), asked.least, np.where(able, bounds[0], row)
        guesses = np.where(guesses >= least, guesses, 0.0) / asked.unit
        while True:  # guesses give way to scores until there are n that count
            top = np.argpartition(guesses, -k)[-k:]
            new = top[able[top] & (guesses[top] > 0)]
            row[new], able[new] = self._exactly(i, new), False
            guesses[new] = np.where(row[new] >= least[new], row[new], 0.0) / asked.unit[new]
            if not len(new) or np.count_nonzero(guesses[top]) >= asked.n:
                break
            k = min(2 * k, len(guesses))
        worst = np.partition(guesses[top], -asked.n)[-asked.n]
        needed = np.maximum(worst * asked.unit * (1 - EQUAL), least)
        items = np.flatnonzero(able & ~(bounds[1] < needed))
        items = self._contenders(i, items, needed[items] - bounds[0][items], pulls)
        row[items], able[items] = self._exactly(i, items), False

    def _contenders(self, i: int, items: IntArray, needed: FloatArray, pulls: FloatArray) -> IntArray:
        """Return the items whose scores may be larger than their first parts by what is needed."""
        if len(items) > FEW and len(self.baskets) < MANY:
            room, slopes = (table[items] @ rounded_up(self.posterior[i]) for table in self.mixture.bound_tables[1:])
            might = room + slopes * pulls[items] >= needed * (1 - SPREAD)
            items, needed = items[might], needed[might]
        return items[~(self._gains(i, items) < needed)] if len(items) > FEW else items

    def _exactly(self, i: int, items: IntArray) -> FloatArray:
        return np.asarray(self.mixture.inclusion_table[items] @ self.posterior[i] - self._second_part(i, items))

    def _sums(self) -> FloatArray:
        """Return upper bounds of Σ_c P(c | J) times ``bound_tables``, of the first alone for a few baskets, (tables, baskets, n_items)."""
        slack = 1 + 2.0**-23 * (self.posterior.shape[1] + 8)  # their terms are not negative
        tables = self.mixture.bound_tables[: 3 if len(self.baskets) >= MANY else 1]
        return np.stack([slack * np.float64(rounded_up(self.posterior) @ table.T) for table in tables])

    def _pulls(self) -> FloatArray:
        """Return bounds of Σ_j (x_jᵀ Z x_a)² of every basket and item; large if there is no Z."""
        if self.ties.pull is None:
            return np.full((len(self.baskets), self.mixture.n_items), NO_BOUND)
        squares, lengths, errors = self._squares(self.q @ self.ties.pull, slice(None))
        bounds = (1 + SPREAD) * (squares + np.outer(lengths, errors)).T
        return np.asarray(self.mixture.by_item(np.stack([bounds[places].sum(axis=0) for places in self.places])))

    def _gains(self, i: int, items: IntArray) -> FloatArray:
        """Return bounds of the second part of some items, with the sign that it has in the scores; NaN or infinite if there are none."""
        row_of = self.mixture.row_of
        rows, at = (items, slice(None)) if row_of is None else np.unique(row_of[items], return_inverse=True)
        slopes, out = self.mixture.bound_tables[2][items], np.full(len(items), LOST)
        for vectors in self._skew_sides(i):
            squares, lengths, errors = self._squares(vectors, rows)
            out += np.einsum("ac,ac->a", slopes, squares[at]) + slopes @ errors * lengths[at]
        return np.asarray((1 + SPREAD) * out)

    def _skew_sides(self, i: int) -> list[FloatArray]:
        """Return F_c⁻¹ S_c x_j of the items of a basket, each (C, r), with F_c F_cᵀ = (diag(1 + o) + x H_c xᵀ) / P(c | J), row by row."""
        places, done = self.places[i].tolist(), list[FloatArray]()
        roots = np.sqrt(self.posterior[i]) / 2
        G = (self.forms[i] + self.forms[i].swapaxes(1, 2)) / 2
        F = np.zeros(G.shape)
        for m, j in enumerate(places):
            left, base = G[:, m, m] + 1 + self.odds[:, j], roots[:, None] * (self.sides[j][1] - self.sides[j][0])
            for k in range(m):
                F[:, m, k] = (G[:, m, k] - (F[:, m, :k] * F[:, k, :k]).sum(axis=1)) / F[:, k, k]
                left -= F[:, m, k] ** 2
                base -= F[:, m, k, None] * done[k]
            F[:, m, m] = np.sqrt(left.clip(min=1.0))  # where it is less, by rounding
            done.append(base / F[:, m, m, None])
        return done

    def _squares(self, vectors: FloatArray, rows: Which) -> tuple[FloatArray, ...]:
        """Return squares of products of some rows of ties and vectors, shape (rows, vectors), in single precision, and the factors of
        their errors: the squares of exact products are at most (1 + δ) (squares + lengths errorsᵀ).
        """
        x, lengths = (one[rows] for one in self.ties.single_rows)
        with np.errstate(over="ignore", invalid="ignore"):
            single = vectors.astype(np.float32)
            squares = np.square(x @ single.T)
            errors = np.float32(2 / SPREAD * (2.0**-24 * (x.shape[1] + 4)) ** 2) * np.square(single).sum(axis=1)
        return squares, lengths, errors
