"""Mixtures over families of items: variants of a product (colours, flavours, volumes of a series) that are bought together.

A component has odds of the *states* of the families, and the ties are between families. With A(S) the families that S touches,

    P_c(S) = G(A) / Z_c · Π_{g∈A} Σ_{s of g} a_cs Π_{i∈S_g} r_is,        G(A) = det(I + X W Xᵀ)_A.

The weight of all non-empty sets of items of a family is its odds o_cg = Σ_s a_cs (Π_{i∈g} (1 + r_is) − 1), so A follows
:class:`~ndpp.laws.tied.TiedMixture` with these odds (:attr:`FamilyMixture.touched`, whose Z_c are those above), and given A and c the items
of its families are independent of each other. In other words, if f_cg(S_g) = Σ_s ρ_s Π Bernoulli(θ_is) is the distribution of the items
of a family that is not tied, then r = θ/(1 − θ) and a_cs = ρ_s Π(1 − θ_is) / f_cg(∅). A family of one item with one state has a = o, r = 1.

Exclusion and conditioning return mixtures of the same form. Excluding items sets their r to 0. Given items J, the families that J touches
are certain to be in A and no longer tied: their rows of X become 0, W becomes that of the base given these families, and a_cs is multiplied
by Π_{i∈J_g} r_is and normalized.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from ndpp._types import AnyArray, BoolArray, FloatArray, IntArray, Which
from ndpp._validation import check_matrix, check_odds, frozen, owned
from ndpp.baskets import Baskets
from ndpp.baskets.labels import check_labels
from ndpp.laws.catalogue import Catalogue
from ndpp.laws.frame import ONE, of_components
from ndpp.laws.header import ModelHeader
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.mixture import checked_frame
from ndpp.laws.part import ALL_GIVEN, Part, Parts
from ndpp.laws.patterns import LARGE, FamilyGroups, Patterns, Touched, scaled, touch_weights
from ndpp.laws.precision import say_precision
from ndpp.laws.shared import FEATURES, KEPT, MOST_LOG, SIZES, TABLES, SharedTies
from ndpp.laws.support import take
from ndpp.laws.tied import TiedMixture
from ndpp.linalg.sizes import STEP

BLOCK_ENTRIES = 2**21
"""Entries of the odds of states of touched families that are gathered at a time (16 MB)."""


class FamilyMixture(SharedTies):
    """A mixture whose ties are between families of items, each of which comes in patterns.

    Parameters
    ----------
    odds : (C, M) array_like
        a: how popular each state is in each component, ≥ 0.
    item_odds : (n, K) array_like
        r: the odds of each item in the first, second, … state of its family. Entries beyond the states of a family are ignored.
    families : (n,) array_like
        The family of each item, in 0..F−1.
    states : (M,) array_like
        The family of each state.
    X, W : (F, d) and (d, d) array_like
        What ties families together, whatever the component: X W Xᵀ needs a positive semidefinite symmetric part.
    weights, names : as for :class:`Mixture`
    labels : sequence of str, optional
        Names of the items.
    magnitudes : (d,) array_like, optional
        As for :class:`LowRankKernel`.

    Attributes
    ----------
    touched : TiedMixture
        The distribution of the families that a set touches.
    patterns : Patterns
        Families, states and odds of the items.

    Examples
    --------
    Items 0 and 1 are variants of a product, either both wanted or rarely bought; item 2 is a family of its own.

    >>> law = FamilyMixture([[0.1, 0.02, 1.0]], [[0.3, 9.0], [0.3, 9.0], [1.0, 0.0]], [0, 0, 1], [0, 0, 1], [[0.5], [0.5]], [[1.0]], [1.0])
    >>> law.inclusion_probabilities().round(4), law.inclusion_probabilities(given=[0]).round(4)
    (array([0.6414, 0.6414, 0.5483]), array([1.    , 0.8858, 0.5455]))
    """

    patterns: Patterns
    parametrisation = "families"
    _fields = "odds", "patterns", "base", "_kept", "catalogue", "frame"
    stored = (
        {"X", "W", "odds", "component_weights", "item_odds", "families", "states"},
        {"weights", *KEPT, *TABLES, *SIZES, *FEATURES},
    )

    @property
    def format_version(self) -> int:  # type: ignore[override]
        """The first version of the file format that holds such a mixture."""
        return max(4, super().format_version)

    def facts(self) -> dict[str, Any]:
        """Return what its file says of it."""
        return super().facts() | {"n_families": str(self.base.n_items)}

    def __init__(
        self, odds: Any, item_odds: Any, families: Any, states: Any, X: Any, W: Any, weights: Any, *,
        names: Sequence[str] | None = None, labels: Sequence[str] | None = None, magnitudes: Any = None,
    ) -> None:  # fmt: skip
        base = LowRankKernel(check_matrix(X, "X"), W, background=np.ones(len(X)), magnitudes=magnitudes)
        patterns = Patterns.checked(families, states, item_odds, base.n_items)
        odds = check_odds(odds, "odds", of=("component", "state"), shape=(None, len(patterns.states)))
        n_items = len(patterns.odds)
        by_state = np.vstack([odds.T, np.zeros((1, len(odds)), odds.dtype)])  # odds are a part of it
        self.odds, self.patterns, self.base, self._kept = frozen(by_state)[:-1].T, patterns, base, {}
        self._known = {"_by_state": by_state} if odds.dtype == np.float64 else {}
        self.catalogue = Catalogue(n_items, check_labels(labels, n_items))
        self.frame = checked_frame(weights, len(odds), names)

    def named(self, catalogue: Catalogue) -> FamilyMixture:
        """Return the same mixture over a catalogue of as many items."""
        return self._again(catalogue=catalogue)

    def _arrays(self) -> dict[str, Any]:
        patterns = self.patterns
        own = {"item_odds": patterns.odds, "families": patterns.families, "states": patterns.states}
        return super()._arrays() | own

    @classmethod
    def _from_arrays(cls, arrays: dict[str, Any], header: ModelHeader) -> FamilyMixture:
        weights, magnitudes = arrays.pop("component_weights"), arrays.pop("weights", None)
        kept = {name: arrays.pop(name) for name in (*KEPT, *TABLES, *SIZES, *FEATURES) if name in arrays}
        made = cls(**arrays, weights=weights, magnitudes=magnitudes, names=header.names, labels=header.labels)
        return made._keep(kept)

    def __repr__(self) -> str:
        return f"<FamilyMixture of {len(self.weights)} components over {self.n_items} items in {self.base.n_items} families>"

    def single(self, c: int) -> FamilyMixture:
        """Return component c as a mixture of its own."""
        return self._again(odds=owned(self.odds[[c]]), frame=ONE, _kept={})

    @of_components
    def largest(self) -> IntArray:
        """The size of the largest set of each component: all items of the largest state of each family."""
        return np.asarray(self._largest_of(self.patterns.slots, True).sum(axis=0))

    def largest_given(self, ids: IntArray) -> IntArray:
        """Return the same beside given items: their families are in a state that has all of them."""
        one = self.patterns.touched_by(ids)
        slots, has_them = self.patterns.slots[one.families], one.sums(self.patterns.log_odds) > -np.inf
        change = self._largest_of(slots, has_them).sum(axis=0) - self._largest_of(slots, True).sum(axis=0)
        return np.asarray(self.largest + change - len(ids))

    def largest_of_rows(self, rows: IntArray, c: int) -> IntArray:
        """Return the size of the largest state of some families in component c."""
        slots = self.patterns.slots[rows]
        return np.asarray(np.where(self._by_state[slots, c] > 0, self._state_sizes[slots], 0).max(axis=1, initial=0))

    def _largest_of(self, slots: IntArray, allowed: bool | BoolArray) -> IntArray:
        """Return the number of items of the largest state of families in each component, of those that are allowed; shape (families, C)."""
        counts = np.where(allowed, self._state_sizes[slots], 0)[:, :, None]
        return np.asarray(np.where(self._by_state[slots] > 0, counts, 0).max(axis=1, initial=0))

    @of_components
    def _state_sizes(self) -> IntArray:
        """The number of items that each state has, and 0 for slots without one."""
        counts, (item, column) = np.zeros(len(self.patterns.states) + 1, np.int64), np.nonzero(self.patterns.odds)
        np.add.at(counts, self.patterns.slots[self.patterns.families[item], column], 1)
        counts[-1] = 0
        return counts

    @of_components
    def _by_state(self) -> FloatArray:
        """a, shape (M + 1, C), with a row of zeros for slots without a state."""
        return np.vstack([self.odds.T, np.zeros(len(self.odds))])

    # -- all components at once ----------------------------------------------------------------------------------------------

    def _untied(self, log_tilt: FloatArray, which: IntArray) -> Iterator[tuple[FloatArray, ...]]:
        """Yield all families; their sizes have the derivatives of log(1 + o) by log ρ as mean and variance."""
        below, at, above = (self._log_touched(log_tilt + step, which) for step in (-STEP, 0.0, STEP))
        mean, variance = (above - below) / (2 * STEP), (above + below - 2 * at) / STEP**2
        yield self.touched.all_rows, -np.expm1(-at), mean, variance

    def _parts(self, ids: IntArray) -> Parts:
        if np.isin(self.support, ids).all():
            return ALL_GIVEN
        rest = self._given(ids) if len(ids) else self
        Q, families, items = rest.touched.all_rows, np.arange(rest.base.n_items), np.arange(rest.n_items)
        products: dict[float, dict[bytes, AnyArray]] = {}  # that components share

        def at(c: int, log_tilt: float) -> Part:
            kept = products.setdefault(log_tilt, {})
            groups = FamilyGroups(rest.patterns, rest.odds[c], float(np.exp(log_tilt)), Q, families, kept)
            logs, touched, at = groups.weights(np.ones(1))[0][:, 0].real, rest.touched, c
            if log_tilt:
                touched, at = TiedMixture(np.expm1(logs.clip(0.0, MOST_LOG))[None], rest.base, np.ones(1)), 0
            state, most = touched._state, int(rest.largest[c])
            log_weight = float(logs.sum() + state.log_z[at] - np.log1p(touched.odds[at]).sum())
            return Part(
                state.N[at], partial(list, [groups]), items, most, log_tilt, log_weight, float(state.errors[at])
            )

        return Parts(at, lambda size: np.zeros(len(self.weights)))

    def log_normalizers(self) -> FloatArray:
        """Return log Z_c of every component."""
        return self.touched.log_normalizers()

    @of_components
    def touched(self) -> TiedMixture:
        """The distribution of the families that a set touches."""
        found = self.tilted(0.0)
        return found._keeping(self._kept) if self._is_prepared else found

    def tilted(self, log_tilt: float | FloatArray) -> TiedMixture:
        """Return :attr:`touched` with item odds ρ r, one ρ for all components or one for each."""
        odds = np.expm1(self._log_touched(log_tilt).clip(0.0, MOST_LOG))
        return TiedMixture(odds, self.base, self.weights, names=self.names)

    def _log_touched(self, log_tilt: float | FloatArray, which: Which = slice(None)) -> FloatArray:
        """Return log(1 + o_cg) of some components with item odds ρ r, shape (components, F)."""
        some, at = np.unique(np.reshape(log_tilt, -1), return_inverse=True)  # many components share theirs
        slots, logs = self.patterns.slots, self.patterns.log_totals_at(np.exp(some))
        if logs.max(initial=0.0) < LARGE:
            spread = sparse.csr_array(
                (np.ones(len(logs)), (self.patterns.states, np.arange(len(logs)))), shape=(len(slots), len(logs))
            )
            by_state, totals = self._by_state[:-1, which], np.expm1(logs)
            out = np.empty((len(slots), by_state.shape[1]))
            for k in range(len(some)):
                those = at == k if len(some) > 1 else slice(None)
                out[:, those] = spread @ (totals[:, [k]] * by_state[:, those])
            return np.log1p(out).T
        own = np.vstack([logs, np.zeros((1, len(some)))])[slots]
        return np.asarray(touch_weights(own[:, :, at] if len(some) > 1 else own, self._by_state[:, which][slots])[0].T)

    def log_rows(self, log_tilt: float | FloatArray) -> FloatArray:
        """Return log(1 + o) of all families."""
        return self._log_touched(log_tilt)

    def _blocks(self, n_pairs: int) -> list[slice]:
        step = max(1, BLOCK_ENTRIES // len(self.odds) // self.patterns.odds.shape[1])
        return [slice(start, start + step) for start in range(0, n_pairs, step)]

    def _log_sums(self, touched: Touched, logs: FloatArray) -> FloatArray:
        """Return log Σ_s a_cs exp(logs) of the states of each touched family, shape (pairs, C)."""
        top = logs.max(axis=1, initial=-np.inf, keepdims=True)
        top[top == -np.inf] = 0.0
        weights, slots = np.exp(logs - top), self.patterns.slots[touched.families]
        out = np.empty((len(logs), len(self.odds)))
        for part in self._blocks(len(logs)):
            out[part] = np.einsum("pkc,pk->pc", self._by_state[slots[part]], weights[part])
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(out) + top)

    def _log_whole(self, baskets: Baskets) -> FloatArray:
        self.touched.check_precision()
        touched, out = self.patterns.touched(baskets), np.zeros((len(baskets), len(self.odds)))
        values = self._log_sums(touched, touched.sums(self.patterns.log_odds))
        first = np.flatnonzero(np.diff(touched.baskets, prepend=-1))
        out[touched.baskets[first]] = np.add.reduceat(values, first, axis=0)
        log_ties = self.base.log_dets(self.families_of(touched, len(baskets)))
        return np.asarray(out + log_ties[:, None] - self.touched.log_normalizers())

    def families_of(self, touched: Touched, n_baskets: int) -> Baskets:
        """Return the families that each basket touches, as baskets."""
        ends = np.cumsum(np.bincount(touched.baskets, minlength=n_baskets))
        return Baskets._trusted(np.concatenate([[0], ends]), touched.families, self.base.n_items, None)

    def _log_started(self, ids: IntArray, size: int | None) -> FloatArray:
        out = self._log_contained(ids)
        if size is None:
            return out
        known: dict[int, FloatArray] = {} if len(ids) else self._rare_sizes
        if size not in known:
            known[size] = self._log_chances(ids, size, out > -np.inf)
        log_chances, errors = known[size]
        say_precision(float(errors.max()), f"sets of size {size}")
        return np.asarray(out + log_chances)

    @of_components
    def _rare_sizes(self) -> dict[int, FloatArray]:
        """Log P_c(|S| = k) and its error of rare sizes that were asked for."""
        return {}

    def _log_chances(self, ids: IntArray, size: int, possible: BoolArray) -> FloatArray:
        """Return log P_c(|S| = size | ids ⊆ S) and its error, (2, C), of the components in which these items can be."""
        parts, left = self._parts(ids), size - len(ids)
        found = np.stack([np.full(len(possible), -np.inf), np.zeros(len(possible))])
        for c in np.flatnonzero(possible & (self.largest_given(ids) >= left)).tolist():
            value, error = parts.sized(c, left, 0.0).log_weight_of(left) if left else (0.0, 0.0)
            plain = parts.at(c, 0.0)
            found[:, c] = value - plain.log_weight, max(error, plain.error)
        return found

    def _log_inside(self, touched: Touched) -> FloatArray:
        """Return log of the weight of all sets of a touched family that contain its items, in each state, shape (pairs, K)."""
        totals = np.append(self.patterns.log_totals, 0.0)[self.patterns.slots[touched.families]]
        return np.asarray(touched.sums(self.patterns.log_chances) + totals)

    def mean_covariances(self, first: IntArray, second: IntArray) -> FloatArray:
        """Return Σ_c w_c Cov_c(a ∈ S, b ∈ S) for two lists of items, a ≠ b: what ties and families add to the missions."""
        out, patterns = super().mean_covariances(first, second), self.patterns
        row, column = np.nonzero(patterns.families[first][:, None] == patterns.families[second])
        a, b = first[row], second[column]
        slots, theta = patterns.slots[patterns.families[a]], patterns.odds / (1 + patterns.odds)
        both, inside = self._totals[slots] * theta[a] * theta[b], self.inclusion_table
        rest = 1 / (1 + self.touched.odds)
        touched = (rest * (1 + self.touched._forms * rest))[:, patterns.families[a]]  # P_c(g ∈ A) / o_cg
        together = touched * np.einsum("pk,pkc->cp", both, self._by_state[slots])
        out[row, column] = self._free_weights @ (together - (inside[a] * inside[b]).T)
        return out

    @property
    def row_of(self) -> IntArray:
        """The family of each item."""
        return self.patterns.families

    def touched_rows(self, baskets: Baskets) -> tuple[Baskets, FloatArray]:
        """Return the families that baskets touch, and P_c(J_g ⊆ S_g | g ∈ A) of their items."""
        touched, out = self.patterns.touched(baskets), np.zeros((len(baskets), len(self.odds)))
        within = self._log_sums(touched, self._log_inside(touched))
        with np.errstate(divide="ignore", invalid="ignore"):
            within = within - np.log(self.touched.odds[:, touched.families].T)
        np.add.at(out, touched.baskets, np.nan_to_num(within, nan=-np.inf, neginf=-np.inf))
        return self.families_of(touched, len(baskets)), out

    def within_rows(
        self, baskets: Baskets, posterior: FloatArray, *, whole: bool = False
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Return Σ_c P(c | J) Σ_s P(s | c, J_g) θ_as of items whose family is touched, θ = r/(1 + r); with ``whole`` the same with r."""
        touched, odds = self.patterns.touched(baskets), self.patterns.odds
        logs = touched.sums(self.patterns.log_odds) if whole else self._log_inside(touched)
        weights, slots, states = scaled(logs), self.patterns.slots[touched.families], np.empty(logs.shape)
        for part in self._blocks(len(states)):  # Σ_c P(c | J) P(s | c, J_g)
            own = self._by_state[slots[part]] * weights[part, :, None]  # (pairs, K, C)
            total = own.sum(axis=1)
            share = posterior[touched.baskets[part]] / np.where(total > 0, total, 1.0)
            states[part] = np.einsum("pkc,pc->pk", own, share)
        pair, items = self.patterns.items_of(touched.families)
        chances = odds[items] if whole else odds[items] / (1 + odds[items])
        return touched.baskets[pair], items, np.einsum("ik,ik->i", chances, states[pair])

    @of_components
    def _totals(self) -> FloatArray:
        """Π (1 + r_is) of the states, shape (M + 1,), 0 for slots without one."""
        return np.append(np.exp(self.patterns.log_totals), 0.0)

    @of_components
    def _item_mass(self) -> FloatArray:
        patterns = self.patterns
        return self._over_states(self._totals[patterns.slots[patterns.families]] * patterns.odds / (1 + patterns.odds))

    def masses(self, components: Which = slice(None)) -> FloatArray:
        """Return Σ_s a_cs θ_is Π (1 + r_js) over the states of the family of each item."""
        return np.asarray(self._item_mass[components])

    @of_components
    def odds_alone(self) -> FloatArray:
        """Σ_s a_cs r_is."""
        return self._over_states(self.patterns.odds)

    @of_components
    def lone_odds(self) -> FloatArray:
        """The weight of exactly one item of a family: Σ_s a_cs Σ_i r_is, shape (C, F)."""
        patterns, n = self.patterns, len(self.patterns.states)
        totals = np.bincount(patterns.slots[patterns.families].ravel(), patterns.odds.ravel(), n + 1)[:n]
        spread = sparse.csr_array((totals, (patterns.states, np.arange(n))), shape=(patterns.n_families, n))
        return np.ascontiguousarray((spread @ self._by_state[:-1]).T)

    def _over_states(self, values: FloatArray) -> FloatArray:
        """Return Σ_s a_cs values_is, shape (C, n)."""
        slots = self.patterns.slots[self.patterns.families]
        first, shape = np.arange(0, slots.size + 1, slots.shape[1]), (len(slots), len(self._by_state))
        spread = sparse.csr_array((values.ravel(), slots.ravel(), first), shape=shape)
        return np.ascontiguousarray((spread @ self._by_state).T)

    # -- mixtures again ------------------------------------------------------------------------------------------------------

    def _chosen(self, which: IntArray) -> FamilyMixture:
        frame = self.frame.of(which, np.full(len(which), 1 / len(which)))
        return self._again(odds=owned(self.odds[which]), frame=frame, _kept={})

    def _given(self, ids: IntArray) -> FamilyMixture:
        """Return all components given items: again a mixture over the same families."""
        one = self.patterns.touched_by(ids)
        odds, scales = self._by_state.copy(), scaled(one.sums(self.patterns.log_odds))
        for slots, weights in zip(self.patterns.slots[one.families], scales):
            states = self._by_state[slots] * weights[:, None]
            total = states.sum(axis=0)
            odds[slots] = states / np.where(total > 0, total, 1.0)
        base, keep = self.base, np.ones(self.base.n_items)
        keep[one.families] = 0.0
        if keep.any():
            base = base.condition(one.families)
        untied = LowRankKernel(
            self.base.X * keep[:, None], base.W, background=np.ones(len(keep)), magnitudes=base._magnitudes
        )
        return self._again(odds=owned(odds[:-1].T), patterns=self.patterns.without(ids), base=untied, _kept={})

    def _tilt(self, ids: IntArray, factors: FloatArray | None) -> FamilyMixture:
        """Return the same with item odds r times the factors."""
        s = np.zeros((self.n_items, 1))
        s[ids, 0] = 1.0 if factors is None else factors
        odds = check_odds(self.patterns.odds * s, "tilted odds", of=("item", "state")).astype(np.float64)
        made = self._again(patterns=self.patterns.with_odds(odds), _kept={})
        made._known["_by_state"] = self._by_state
        if factors is not None and np.array_equal(odds > 0, self.patterns.odds > 0):
            made._known |= {"_state_sizes": self._state_sizes, "largest": self.largest}
            made._known["touched"] = self._touched_by(made, np.unique(self.patterns.families[ids[factors != 1]]))
        return made

    def _touched_by(self, made: FamilyMixture, changed: IntArray) -> TiedMixture:
        """Return what is touched by sets of ``made``, of which only these families differ."""
        slots, odds = self.patterns.slots[changed], np.array(self.touched.odds)
        logs = np.append(made.patterns.log_totals, 0.0)[slots][:, :, None]
        odds[:, changed] = np.expm1(touch_weights(logs, self._by_state[slots])[0].T.clip(0.0, MOST_LOG))
        found = TiedMixture(odds, self.base, self.weights, names=self.names)
        return found._beginning_as(self.touched, changed)

    def _with_new(self, odds: FloatArray) -> FamilyMixture:
        """Return the mixture with new items without ties, each alone in a family, given by their odds (C, m)."""
        own, F = self.patterns, self.base.n_items + np.arange(odds.shape[1])
        base = self.base._with_rows(np.zeros((len(F), self.base.X.shape[1])), np.ones(len(F)))
        item_odds = np.tile(np.eye(1, own.odds.shape[1]), (len(F), 1))
        made = FamilyMixture(
            np.hstack([self.odds, odds]), np.vstack([own.odds, item_odds]), np.append(own.families, F), np.append(own.states, F),
            base.X, base.W, self.weights, names=self.names, magnitudes=base._magnitudes,
        )  # fmt: skip
        return self._beside(made, odds)

    def _only_items(self, keep: IntArray) -> FamilyMixture:
        own = self.patterns
        left, families = np.unique(own.families[keep], return_inverse=True)
        states = np.flatnonzero(np.isin(own.states, left))
        return FamilyMixture(
            self.odds[:, states], own.odds[keep], families, np.searchsorted(left, own.states[states]),
            take(self.base.X, left),
            self.base.W, self.weights, names=self.names, magnitudes=self.base._magnitudes,
        )  # fmt: skip
