"""Mixtures with shared ties: components L_c = diag(√o_c) (I + X W Xᵀ) diag(√o_c) with odds o_c of their own, and one X for all.

With the tie factor G(S) = det(I + X W Xᵀ)_S and p = o/(1 + o), everything about all components is a few matrix products:

    P_c(S) = G(S) Π_{i∈S} o_ci / Z_c,        Z_c = Π_i (1 + o_ci) · det(I + W A_c),        A_c = Σ_i p_ci x_i x_iᵀ,
    P_c(J ⊆ S) = Π_{j∈J} p_cj · det(I + (1 − p)^½ X N_c Xᵀ (1 − p)^½)_J,                  N_c = W (I + A_c W)⁻¹,
    P_c(a ∈ S | J ⊆ S) = p_ca + p_ca (1 − p_ca) x_aᵀ N_c^J x_a,                           N_c^J a Schur complement of N_c.

G is that of a kernel with background 1, :attr:`TiedMixture.base`, whose conditionals are those of all components: given items J, every
component keeps its odds, and the ties become those of the base given J. All of it is written in the coordinates of the base.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ndpp._stop import look
from ndpp._types import AnyArray, FloatArray, IntArray, RealArray, Which
from ndpp._validation import check_matrix, check_odds, frozen, owned
from ndpp.baskets import Baskets
from ndpp.laws.begun import rounded_up
from ndpp.laws.catalogue import Catalogue
from ndpp.laws.frame import ONE, of_components
from ndpp.laws.header import ModelHeader
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.mixture import checked_frame
from ndpp.laws.mixture_scoring import TiedScoring
from ndpp.laws.part import ALL_GIVEN, Part, Parts
from ndpp.laws.precision import FREE, say_precision
from ndpp.laws.shared import FEATURES, KEPT, NORMALIZERS, SIZES, TABLES, SharedTies
from ndpp.linalg.logs import log_sum
from ndpp.linalg.scaling import EPS, inverses, rounding_of
from ndpp.linalg.sizes import ROUNDED, Coins
from ndpp.linalg.updates import LowRankChange
from ndpp.rows.scaled import Multiplied

MOST_ODDS = 1e300
"""Larger odds count as these: the item is in for certain."""
MIN_PAIRED_COMPONENTS = 48
"""With fewer components, Σ p q qᵀ is computed for one at a time: the products of all pairs of columns would take longer."""
BLOCK_ENTRIES, BLOCK_ROWS = 2**21, 2**11
"""Number of products q_a q_b in memory at a time (16 MB), and of rows q otherwise."""


class _State(NamedTuple):
    """N_c, shape (C, r, r), log Z_c, an estimate of its rounding error, and A_c, if it was computed."""

    N: Any
    """An array, or :class:`~ndpp.linalg.updates.LowRankChange`."""
    log_z: FloatArray
    errors: FloatArray
    A: FloatArray | None


class TiedMixture(SharedTies):
    """What :meth:`Mixture.tied` returns. Its costs do not grow with C times the size of X.

    Attributes
    ----------
    odds : (C, n) array
        Popularity of each item in each component.
    base : LowRankKernel
        The kernel I + X W Xᵀ: the ties, with unit odds for every item.
    """

    parametrisation = "tied"
    _fields = "odds", "base", "_kept", "catalogue", "frame"
    stored = (
        {"X", "W", "odds", "component_weights"},
        {"support", "weights", NORMALIZERS, *KEPT, *TABLES, *SIZES, *FEATURES},
    )

    def __init__(self, odds: Any, base: LowRankKernel, weights: Any, *, names: Sequence[str] | None = None) -> None:
        odds = check_matrix(odds, "odds", shape=(None, base.n_items))
        self.odds, self.base, self.catalogue, self._known = owned(odds), base, base.catalogue, {}
        self.frame, self._kept = checked_frame(weights, len(odds), names), {}

    def named(self, catalogue: Catalogue) -> TiedMixture:
        """Return the same mixture over a catalogue of as many items."""
        return self._again(base=self.base.named(catalogue), catalogue=catalogue, _known=self._known)

    @classmethod
    def _from_arrays(cls, arrays: dict[str, Any], header: ModelHeader) -> TiedMixture:
        base = LowRankKernel._from_arrays({**arrays, "background": np.ones(header.n_items)}, header)
        odds = check_odds(arrays["odds"], "odds", of=("component", "item"))
        return cls(odds, base, arrays["component_weights"], names=header.names)._keep(arrays)

    def normalized(self) -> TiedMixture:
        """Return the same mixture with log Z_c at hand. Files keep them, so that scores need not wait for them. O(C n r²)."""
        return self._again(_kept={**self._kept, NORMALIZERS: frozen(self.log_normalizers())}, _known=self._known)

    def single(self, c: int) -> LowRankKernel:
        """Return the kernel of component c, which shares X with the others. Its coordinates are computed when they are needed."""
        odds, base = np.asarray(self.odds[c], np.float64), self.base
        X = Multiplied(base.X, np.sqrt(odds), is_shared=True)
        return base._again(X=X, background=odds, _sum=None, frame=ONE)

    @property
    def _scoring(self) -> TiedScoring:
        return TiedScoring(self)

    @of_components
    def largest(self) -> IntArray:
        """The largest set of each component: that of all items with positive odds, any part of which is possible, too."""
        return np.asarray(np.count_nonzero(self.odds[:, self.base.support], axis=1))

    # -- all components at once ----------------------------------------------------------------------------------------------

    @of_components
    def _state(self) -> _State:
        if self._is_prepared:
            N, log_z, errors = (self._kept[name] for name in KEPT[:3])
            return _State(N, log_z, errors, None)
        log_ones, A = self._sums()
        system = self._system(A)
        inverse, log_det = inverses(system)
        errors = self._rounding(A, system, inverse)
        return _State(self.core @ inverse, log_ones + log_det, errors, A)

    def _beginning_as(self, other: TiedMixture, changed: IntArray) -> TiedMixture:
        """Take over what is known of the same ties with other odds of some items, if these are few. O(C r²) for each of them."""
        rows = np.flatnonzero(np.isin(self.base.support, changed))
        if len(rows) <= self.base.rank:
            before, after = (one.tilted_odds(0.0, rows=rows) for one in (other, self))
            N, growth, errors = updated(other, slice(None), rows, before, after)
            self._known["_state"] = _State(N, other._state.log_z + growth, errors, None)
            if np.array_equal(before > 0, after > 0):
                self._known["largest"] = other.largest
        return self

    def tilted(self, log_tilt: float | FloatArray, which: Which = slice(None)) -> TiedMixture:
        """Return some components with odds ρ_c o_c, with equal weights."""
        odds = np.asarray(self.odds[which], np.float64) * np.exp(np.reshape(log_tilt, (-1, 1)))
        return self._equal(odds.clip(max=MOST_ODDS))

    def sums(self, which: Which = slice(None)) -> FloatArray:
        """Return A_c of some components."""
        if self._state.A is not None:
            return np.asarray(self._state.A[which])
        return self._chosen(which)._sums()[1]

    def _rounding(self, A: FloatArray, system: FloatArray, inverse: FloatArray) -> FloatArray:
        """Estimate the error of log det(I + A W): that of the elimination, and tr (I + A W)⁻¹ A δW with rounding errors δW."""
        coords = self.base.coordinates
        scale, noise = coords.scale * coords.excess, coords.noise[:, None] + coords.noise + rounding_of(coords.rank)
        change = 2 * np.outer(scale, scale) * noise
        elimination = EPS * np.einsum("cij,cji->c", np.abs(inverse), np.abs(system))
        dropped = self.base._free_error if coords.core.rank > coords.rank else 0.0
        return np.asarray(elimination + np.einsum("cij,ij->c", np.abs(inverse @ A), change) + dropped)

    def check_precision(self, *, factor: float = 1.0) -> None:
        """Warn or raise if rounding matters to the distribution of all sets of the components that can be."""
        errors = np.where(self.weights > 0, self._state.errors, 0.0)
        say_precision(factor * float(errors.max(initial=0.0)), FREE, stacklevel=4)

    @of_components
    def core(self) -> FloatArray:
        """W in the coordinates of the base, whose rows are x_i / √2."""
        return 2 * self.base.coordinates.B

    @of_components
    def all_rows(self) -> FloatArray:
        """The rows q of the support."""
        return np.concatenate([q for _, q in self.base.q_blocks()])

    @of_components
    def single_rows(self) -> tuple[RealArray, RealArray]:
        """The rows q in single precision, and their squared lengths, rounded up."""
        rows = self.all_rows.astype(np.float32)
        return frozen(rows), frozen(rounded_up(np.square(rows, dtype=np.float64).sum(axis=1)))

    def _system(self, A: FloatArray) -> FloatArray:
        return np.eye(len(self.core)) + A @ self.core

    def log_normalizers(self) -> FloatArray:
        """Return log det(I + L_c) of every component."""
        known = self._kept.get(NORMALIZERS)
        return np.array(self._state.log_z if known is None else known)

    def tilted_odds(
        self, log_tilt: float | FloatArray, components: Which = slice(None), rows: Which = slice(None)
    ) -> FloatArray:
        """Return ρ_c o_ci of some components for rows of the support; one ρ for all, or one per component."""
        odds = np.asarray(self.odds[components][:, self.base.support[rows]], np.float64)
        with np.errstate(over="ignore"):
            return np.asarray(np.minimum(odds * np.exp(np.reshape(log_tilt, (-1, 1))), MOST_ODDS))

    def _sums(self) -> tuple[FloatArray, FloatArray]:
        """Return Σ_i log(1 + o_ci) and Σ_i p_ci q_i q_iᵀ, shape (C, r, r): one product with all q_ia q_ib. O(C n r²)."""
        r, log_ones, is_few = len(self.core), np.zeros(len(self.odds)), len(self.odds) < MIN_PAIRED_COMPONENTS
        total, A = np.zeros((len(self.odds), r * (r + 1) // 2)), np.zeros((len(self.odds), r, r))
        for rows, pairs in self._pairs(products=not is_few):
            odds = self.tilted_odds(0.0, rows=rows)
            log_ones += np.log1p(odds).sum(axis=1)
            if is_few:
                for one, roots in zip(A, np.sqrt(odds / (1 + odds))):
                    part = roots[:, None] * pairs
                    one += part.T @ part
            else:
                total += (odds / (1 + odds)) @ pairs
        if is_few:
            return log_ones, A
        upper = np.triu_indices(r)
        A[:, upper[0], upper[1]] = total
        A[:, upper[1], upper[0]] = total
        return log_ones, A

    def _pairs(self, *, products: bool = True) -> Iterator[tuple[slice, FloatArray]]:
        """Yield some rows of the support and q_ia q_ib for a ≤ b."""
        step = max(1, BLOCK_ENTRIES // max(1, len(self.core) * (len(self.core) + 1) // 2)) if products else BLOCK_ROWS
        for block, Q in self.base.q_blocks():
            for start in range(0, len(Q), step):
                look()
                q = Q[start : start + step]
                yield slice(block.start + start, block.start + start + len(q)), _products(q) if products else q

    def _untied(self, log_tilt: FloatArray, which: IntArray) -> Iterator[tuple[FloatArray, ...]]:
        """Yield some items at a time."""
        for rows, Q in self._pairs(products=False):
            odds = self.tilted_odds(log_tilt, which, rows)
            p = odds / (1 + odds)
            yield Q, p, p, p / (1 + odds)

    def _parts(self, ids: IntArray) -> Parts:
        if np.isin(self.base.support, ids).all():
            return ALL_GIVEN
        rest = self._given(ids) if len(ids) else self

        def at(c: int, log_tilt: float) -> Part:
            own, at = (rest.tilted(log_tilt, [c]), 0) if log_tilt else (rest, c)
            state, most = own._state, int(own.largest[at])
            error, log_weight = (float(values[at]) for values in (state.errors, state.log_z))
            return Part(state.N[at], partial(own._coins, at), own.base.support, most, log_tilt, log_weight, error)

        return Parts(at, rest.tilts)

    def _coins(self, c: int) -> Iterator[Coins]:
        """Yield p_c and (p_c (1 − p_c))^½ q of some rows of the support: N_c is the M of a component in these coordinates."""
        for block, Q in self.base.q_blocks():
            odds = self.tilted_odds(0.0, [c], block)[0]
            yield Coins(odds / (1 + odds), Q * (np.sqrt(odds) / (1 + odds))[:, None])

    def _log_whole(self, baskets: Baskets) -> FloatArray:
        """Return log P_c(S): one sparse product with the log-odds."""
        distinct = np.unique(baskets.indices)
        with np.errstate(divide="ignore"):
            log_odds = np.log(np.asarray(self.odds[:, distinct], np.float64))
        if NORMALIZERS not in self._kept:
            self.check_precision()
        popularity = baskets.to_csr()[:, distinct].astype(np.float64) @ log_odds.T
        return np.asarray(self.base.log_dets(baskets)[:, None] + popularity - self.log_normalizers())

    def _log_started(self, ids: IntArray, size: int | None) -> FloatArray:
        if size is not None and len(ids) == 0:
            if size not in self._rare_sizes:
                found = [
                    (*law._log_elementary(size, ids), law._log_unit, law._free_error) for law in self._plain_components
                ]
                self._rare_sizes[size] = np.array(found).T
            log_weights, errors, log_units, of_units = self._rare_sizes[size]
            shares = self._log_weights + log_weights - log_units
            counted = shares >= shares.max() + np.log(ROUNDED)
            say_precision(float(errors[counted].max()), f"sets of size {size}")
            say_precision(float(of_units.max()), FREE)
            return np.asarray(log_weights - log_units)
        within = self._log_contained(ids)
        if size is None:
            return within
        log_weights = self._log_weights + within
        if len(ids) == self.base.n_rows or log_weights.max() == -np.inf:
            return np.where(size == len(ids), within, -np.inf)
        rest = TiedMixture(self.odds, self.base.condition(ids), np.exp(log_weights - log_sum(log_weights)))
        return within + rest._log_sizes(size - len(ids))

    @of_components
    def _rare_sizes(self) -> dict[int, FloatArray]:
        """Of rare sizes that were asked for: log weights of their sets and of all sets in each component, each with its error, (4, C)."""
        return {}

    def _careful_inclusions(self, c: int, ids: IntArray, size: int) -> FloatArray:
        return self.single(c).inclusion_probabilities(size, ids)

    @of_components
    def _forms(self) -> FloatArray:
        """x_aᵀ N_c x_a, shape (C, items of the support). O(C n r²), once."""
        known = self._kept.get(TABLES[0])
        return self._quadratic_forms(np.asarray(self._state.N)) if known is None else known

    def _forms_of(self, q: FloatArray) -> FloatArray:
        """Return the same of some rows, shape (C, rows)."""
        return np.stack([np.einsum("ar,ar->a", q @ N, q) for N in self._state.N])

    def _quadratic_forms(self, matrices: FloatArray) -> FloatArray:
        """Return x_aᵀ M x_a of matrices M and the items of the support."""
        first, second = np.triu_indices(len(self.core))
        symmetric = (matrices + matrices.swapaxes(1, 2))[:, first, second] / np.where(first == second, 2.0, 1.0)
        return np.concatenate([symmetric @ pairs.T for _, pairs in self._pairs()], axis=1)

    @of_components
    def pull(self) -> FloatArray | None:
        """The inverse Z of the skew part of W⁻¹, up to sign: see :mod:`ndpp.laws.begun`. None if there is none."""
        solved = self._skew_part_solved
        return None if solved is None else self.core @ solved

    @of_components
    def _skew_part_solved(self) -> FloatArray | None:
        """K⁻¹ Wᵀ, where K is the skew part of W: −I if W is skew. None if K is singular and W is not skew."""
        W, K = self.core, (self.core - self.core.T) / 2
        solved = np.linalg.pinv(K, rcond=1e-9) @ W.T
        is_solved = np.abs(K @ solved - W.T).max(initial=0.0) <= 1e-9 * np.abs(W).max(initial=0.0)
        return solved if is_solved else None

    @of_components
    def gaps(self) -> FloatArray:
        """x_aᵀ Zᵀ (A_c + T) Z x_a − x_aᵀ N_c x_a ≥ 0, T the symmetric part of W⁻¹; 0 without Z."""
        Z, solved, W = self.pull, self._skew_part_solved, self.core
        if TABLES[1] in self._kept:
            return self._kept[TABLES[1]]
        if Z is None or solved is None:
            return np.zeros(self._forms.shape)
        rest = solved.T @ (W + W.T) @ solved / 2  # Zᵀ T Z
        return self._quadratic_forms(Z.T @ self.sums() @ Z + rest) - self._forms

    # -- mixtures again ------------------------------------------------------------------------------------------------------

    def _chosen(self, which: Which) -> TiedMixture:
        return self._equal(self.odds[which])

    def _equal(self, odds: AnyArray) -> TiedMixture:
        """Return the mixture with these odds of its components, in equal parts."""
        return TiedMixture(odds, self.base, np.full(len(odds), 1 / len(odds)))

    def _given(self, ids: IntArray) -> TiedMixture:
        return self._over(self.base.condition(ids))

    def _tilt(self, ids: IntArray, factors: FloatArray | None) -> TiedMixture:
        """Return the odds times the factors, and the ties of the items that are left."""
        base, odds = self.base if len(ids) == self.n_items else self.base._tilt(ids, None), self.odds
        if factors is not None:
            s = np.ones(self.n_items)
            s[ids] = factors
            odds = check_odds(odds * s, "tilted odds", of=("component", "item"))
        made = TiedMixture(odds, base, self.weights, names=self.names)
        return made if factors is None or base is not self.base else made._beginning_as(self, ids[factors != 1])

    def _with_new(self, odds: FloatArray) -> TiedMixture:
        """Return the mixture with new items without ties, given by their odds (C, m)."""
        base = self.base._with_rows(np.zeros((odds.shape[1], self.base.X.shape[1])), np.ones(odds.shape[1]))
        made = TiedMixture(np.hstack([self.odds, odds]), base, self.weights, names=self.names)
        return self._beside(made, odds)

    def _only_items(self, keep: IntArray) -> TiedMixture:
        return TiedMixture(self.odds[:, keep], self.base._only_items(keep), self.weights, names=self.names)

    def _as_ready(self, made: TiedMixture) -> TiedMixture:
        made = super()._as_ready(made)
        return made.normalized() if NORMALIZERS in self._kept else made


def _products(q: FloatArray) -> FloatArray:
    """Return q_ia q_ib for a ≤ b, in the order of ``np.triu_indices``."""
    r = q.shape[1]
    out, at = np.empty((len(q), r * (r + 1) // 2)), 0
    for a in range(r):
        np.multiply(q[:, a, None], q[:, a:], out=out[:, at : at + r - a])
        at += r - a
    return out


def updated(
    ties: TiedMixture, which: Which, rows: IntArray, before: FloatArray, after: FloatArray
) -> tuple[Any, FloatArray, FloatArray]:
    """Return N, the change of log Z and an estimate of its error of some components whose odds change in a few rows.

    A changes by QᵀDQ with the changes D of p, so det(I + WA) is multiplied by det(I + Q N Qᵀ D) = det(I + N Qᵀ D Q), and N becomes
    N − N Qᵀ D (I + Q N Qᵀ D)⁻¹ Q N = (I + N Qᵀ D Q)⁻¹ N: the smaller of these matrices is taken.
    """
    Q, N, errors = ties.base.q_rows(rows), ties._state.N[which], ties._state.errors[which]
    change = (after - before) / ((1 + after) * (1 + before))
    m, r = Q.shape
    log_z = (np.log1p(after) - np.log1p(before)).sum(axis=1)
    if m <= r:
        found = LowRankChange(N, Q, change)
        return found, log_z + found.log_det, errors * found.growth + found.lost
    added = (change @ (Q[:, :, None] * Q[:, None]).reshape(m, r * r)).reshape(len(N), r, r)
    system = np.eye(r) + N @ added
    inverse, log_det = inverses(system)
    lost = np.einsum("cij,cji->c", np.abs(inverse), np.abs(system))
    return inverse @ N, log_z + log_det, errors * (1 + np.abs(inverse).sum(axis=(1, 2))) + EPS * lost
