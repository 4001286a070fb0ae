"""Components of mixtures with shared ties whose items are tilted: proposals for sets of one size, or within limits.

Component c has the odds of its items times factors s_c of its own. What is computed of it, Z_c(s_c) above all, takes O(n r²), and serves
all baskets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from ndpp._compiled import njit
from ndpp._memory import Memory, n_bytes_of
from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp._validation import frozen
from ndpp.laws.begun import posteriors, started
from ndpp.laws.patterns import Patterns, touch_weights
from ndpp.laws.precision import say_precision
from ndpp.laws.shared import MOST_LOG, SharedTies
from ndpp.laws.tied import MOST_ODDS, TiedMixture, updated

MAX_UNCOMPARED_SHARE = 0.03
"""Largest share of the proposals that may come from components not yet compared with their tilted versions."""
MAX_UPDATED_ROWS = 4
"""Components are updated, rather than computed anew, if at most this many times the rank of their rows change."""


class PreparedTies(Protocol):
    """A mixture, and the memory in which rows of given items are kept (:class:`~ndpp.samplers.shared.TiedParts`)."""

    mixture: SharedTies

    @property
    def rows(self) -> Memory:
        """What baskets share."""


class TiltedComponents:
    """The components of a mixture, each with factors of its own, whatever is given; computed when first looked at.

    ``log_factors(which, items)`` are log s of some components and items, shape (components, items), or (components, 1) if they are the
    same for all items, and ``is_tilted`` tells which components have others than 0. Of the rows that sets touch, ``odds`` (C, rows) are
    those under s_c, N and ``errors`` as in :mod:`ndpp.laws.tied`, ``log_change`` is log Z_c(s_c) / Z_c, and
    ``log_totals`` (M + 1, C), for families, log Π (1 + s r) of their states. It does not refer to the mixture, as it stays with it: others
    of the same components, with other weights, use it as well.
    """

    def __init__(
        self, mixture: SharedTies, log_factors: Callable[[Any, Any], FloatArray], is_tilted: BoolArray
    ) -> None:
        self.log_factors, self.is_tilted = log_factors, is_tilted
        C, r, n_rows = len(mixture.weights), mixture.touched.base.rank, mixture.touched.base.n_items
        self.is_known, self.log_change, self.errors = np.zeros(C, bool), np.zeros(C), np.zeros(C)
        self.odds, self.N = np.empty((C, n_rows)), np.empty((C, r, r))
        self.log_totals = np.zeros((0 if mixture.patterns is None else len(mixture.patterns.states) + 1, C))
        self._token = object()  # in the keys of its sides

    @property
    def n_bytes(self) -> int:
        """Bytes of the components that are known; of the others, no memory is used."""
        return int(n_bytes_of((self.odds, self.N, self.log_totals)) * self.is_known.mean())

    def choose(
        self, parts: PreparedTies, ids: IntArray, log_plain: FloatArray, log_units: FloatArray
    ) -> tuple[FloatArray, BoolArray]:
        """Return the logarithms of how often each component is proposed, and which components are tilted for it.

        These are ``log_plain`` without a tilt, and with one :meth:`log_weights` plus ``log_units``, whichever is less; some components
        that hardly ever are proposed stay as they are.
        """
        found, tilted, seen = log_plain.copy(), np.zeros(len(log_plain), bool), ~self.is_tilted
        top = found.max()
        weights = np.exp(found - top) if top > -np.inf else np.zeros(len(found))
        while weights[~seen].sum() > MAX_UNCOMPARED_SHARE * weights.sum():
            order = np.flatnonzero(~seen)[np.argsort(-weights[~seen])]
            which = order[
                : 1 + np.searchsorted(np.cumsum(weights[order]), (1 - MAX_UNCOMPARED_SHARE) * weights[order].sum())
            ]
            others = self.log_weights(parts, ids, which) + log_units[which]
            is_less = others < found[which]
            tilted[which[is_less]], seen[which] = True, True
            found[which] = np.minimum(others, found[which])
            weights[which] = np.exp(found[which] - top)
        return found, tilted

    def log_weights(self, parts: PreparedTies, ids: IntArray, which: IntArray) -> FloatArray:
        """Return log w_c Z_c(s_c, J) / Z_c of some components, where Z(s, J) is the weight of all sets that contain the items J."""
        mixture = parts.mixture
        self._know(mixture, which)
        at, within = self._within_rows(mixture, ids, which)
        base = mixture.touched.base
        out, rows = mixture._log_weights[which] + self.log_change[which] + within, np.searchsorted(base.support, at)
        q = base.q_rows(rows)
        sides = [self._side(parts.rows, row, x, which) for row, x in zip(rows.tolist(), q)]
        return log_weights(out, q, self.odds[np.ix_(which, at)], sides, self.errors[which])

    def _side(self, kept: Memory, row: int, x: FloatArray, which: IntArray) -> FloatArray:
        """Return the :func:`products` of some components with a row, which later baskets have, too."""
        made = np.empty((len(self.N), len(x))), np.zeros(len(self.N), bool)
        side, is_known = kept.remember((self._token, row), lambda: made)
        new = which[~is_known[which]]
        side[new], is_known[new] = products(self.N, new, x[None])[0], True
        return np.asarray(side[which])

    def _know(self, mixture: SharedTies, which: IntArray) -> None:
        """Compute what is not yet known of these components. O(n r²) each, and less if the limits are on few rows."""
        new, ties = which[~self.is_known[which]], mixture.touched
        if not len(new):
            return
        factors, rows, beyond = np.exp(self.log_factors(new, slice(None))), ties.base.support, 0.0
        items = np.arange(mixture.n_items) if factors.shape[1] == 1 else np.flatnonzero((factors != 1).any(axis=0))
        if mixture.patterns is None:
            odds, changed = np.minimum(mixture.odds[new] * factors.clip(0.0, MOST_ODDS), MOST_ODDS), items
        else:
            odds, changed = ties.odds[new], np.unique(mixture.patterns.families[items])
            slots = mixture.patterns.slots[changed]
            self.log_totals[:-1, new] = mixture.patterns.log_totals[:, None]
            self.log_totals[slots[..., None], new] = _log_totals(mixture.patterns, changed, factors)
            logs = touch_weights(self.log_totals[slots[..., None], new], mixture._by_state[slots[..., None], new])[0].T
            odds[:, changed] = np.expm1(logs.clip(0.0, MOST_LOG))
            beyond = (logs - np.log1p(odds[:, changed])).sum(axis=1)
        changed = np.flatnonzero(np.isin(rows, changed))
        if len(changed) <= MAX_UPDATED_ROWS * ties.base.rank:
            before = ties.tilted_odds(0.0, new, changed)
            found = updated(ties, new, changed, before, odds[:, rows[changed]])
        else:
            state = TiedMixture(odds, ties.base, np.full(len(new), 1 / len(new)))._state
            found = state.N, state.log_z - ties.log_normalizers()[new], state.errors
        self.odds[new], self.N[new], self.errors[new] = odds, found[0], found[2]
        self.log_change[new] = found[1] + beyond  # the same, if two threads do it
        self.is_known[new] = True

    def _within_rows(self, mixture: SharedTies, ids: IntArray, which: IntArray) -> tuple[IntArray, Any]:
        """Return the rows that given items touch, and log P_c(J ⊆ S | these rows are touched) of some components."""
        patterns = mixture.patterns
        if patterns is None or not len(ids):
            return ids, 0.0
        one = patterns.touched_by(ids)
        slots = patterns.slots[one.families]
        with np.errstate(divide="ignore"):
            factors = np.exp(self.log_factors(which, one.items))
            odds = patterns.odds[one.items][:, :, None] * factors.T[:, None]
            logs = self.log_totals[slots][:, :, which] + np.add.reduceat(
                np.log(odds) - np.log1p(odds), one.first, axis=0
            )
            top = logs.max(axis=1, keepdims=True)
            top[top == -np.inf] = 0.0
            total = top[:, 0] + np.log((mixture._by_state[slots][:, :, which] * np.exp(logs - top)).sum(axis=1))
            return one.families, (total - np.log(self.odds[np.ix_(which, one.families)].T)).sum(axis=0)

    def single(self, mixture: SharedTies, c: int) -> TiedMixture:
        """Return the rows of component c under θ_c."""
        self._know(mixture, np.array([c]))
        made = TiedMixture(self.odds[[c]], mixture.touched.base, np.ones(1))
        state = (
            self.N[[c]],
            np.zeros(1),
            self.errors[[c]],
            None,
        )  # nobody asks for its normalizer; few for A, which is as large
        vars(made)["_state"] = type(mixture.touched._state)(*state)
        return made

    def patterns(self, found: Patterns, c: int) -> Patterns:
        """Return the patterns of families under the factors of component c."""
        found.member_table, found.of_states  # noqa: B018  all components share them
        return found.with_odds(found.odds * np.exp(self.log_factors([c], slice(None)).T))


def _log_totals(patterns: Patterns, families: IntArray, factors: FloatArray) -> FloatArray:
    """Return log Π (1 + s r) of the states of some families, shape (families, K, components), 0 for slots without one."""
    if factors.shape[1] == 1:  # the same for many components, too
        some, own = np.unique(factors[:, 0], return_inverse=True)
        found = np.vstack([patterns.log_totals_at(some), np.zeros((1, len(some)))])
        return np.asarray(found[patterns.slots[families]][..., own])
    place, items = patterns.items_of(families)
    logs = np.log1p(patterns.odds[items][:, :, None] * factors.T[items][:, None])
    return np.asarray(np.add.reduceat(logs, np.flatnonzero(np.diff(place, prepend=-1)), axis=0))


def products(N: FloatArray, which: IntArray, q: FloatArray) -> FloatArray:
    """Return N_c q_jᵀ of some matrices and all rows, shape (k, C, r). N, which is large, is read once for four rows."""
    return _products(frozen(N), which, frozen(q))  # whatever they are: for others, it would be compiled again


@njit(fastmath={"contract", "reassoc"}, error_model="numpy")
def _products(N: FloatArray, which: IntArray, q: FloatArray) -> FloatArray:
    k, r = q.shape
    out = np.empty((k, which.size, r))
    for first in range(0, k, 4):
        n = min(4, k - first)
        q0, q1, q2, q3 = q[first], q[min(first + 1, k - 1)], q[min(first + 2, k - 1)], q[min(first + 3, k - 1)]
        for at in range(which.size):
            c = which[at]
            for i in range(r):
                s0 = s1 = s2 = s3 = 0.0
                for m in range(r):
                    entry = N[c, i, m]
                    s0 += entry * q0[m]
                    s1 += entry * q1[m]
                    s2 += entry * q2[m]
                    s3 += entry * q3[m]
                out[first, at, i] = s0
                if n > 1:
                    out[first + 1, at, i] = s1
                if n > 2:
                    out[first + 2, at, i] = s2
                if n > 3:
                    out[first + 3, at, i] = s3
    return out


def log_weights(
    out: FloatArray, q: FloatArray, odds: FloatArray, sides: Iterable[FloatArray], errors: FloatArray
) -> FloatArray:
    """Return what is given plus log P_c(J ⊆ S) of some components; say if rounding matters.

    J has rows q, these odds in each component, and as ``sides`` its :func:`products`.
    """
    forms = np.empty((len(out), len(q), len(q)))
    for j, side in enumerate(sides):
        forms[:, :, j] = side @ q.T
    contained, wrong, _ = started(forms, odds, 10 * errors)
    found = np.where((wrong < np.inf) & ~np.isnan(out), out + contained, -np.inf)
    say_precision(float(posteriors(found[None], wrong[None])[1][0]), "probabilities given these items")
    return found
