"""The sets of a kernel L = diag(δ) + X W Xᵀ and their weights det(L_S), with a background δ ≥ 0 or without, δ = 0.

det(L_S) sums δ over some of the items of S times minors of X W Xᵀ over the others, so a sample is the union of two independent sets:

    S = T ∪ R,        T of the low-rank kernel (1 + δ)^−½ X W Xᵀ (1 + δ)^−½,        R each item a by itself with p_a = δ_a / (1 + δ_a),

and P(a ∈ S) = p_a + (1 − p_a) P(a ∈ T). Without a background, S = T.

Given items J with δ > 0, the remaining ones have the same δ and W' = W − W X_Jᵀ L_J⁻¹ X_J W: a kernel of this kind again. Items with δ = 0
come with T alone; given such items, T is conditioned and R is not. Sizes are those of :mod:`ndpp.linalg.sizes`, and
log e_k comes from the kernel ρL, with ρ chosen so that k items are expected: log e_k = log P_ρ(|S| = k) + log det(I + ρL) − k log ρ.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.linalg import block_diag

from ndpp._types import FloatArray, IntArray, Items, RealArray
from ndpp._validation import check_items
from ndpp.baskets import Baskets
from ndpp.laws.batched import Form, log_dets
from ndpp.laws.frame import of_components
from ndpp.laws.part import NOTHING_LEFT, Part, Parts, SizedPart
from ndpp.laws.precision import ADVICE_ON_SIZES, FREE, never_together, say_precision
from ndpp.laws.support import ItemRows
from ndpp.linalg.scaling import quadratic_forms
from ndpp.linalg.schur import condition_inner_with_background, judged_minor
from ndpp.linalg.size_law import (
    ZERO_WEIGHT,
    TiltedLaw,
    error_given,
    inclusion_matrix,
    judged,
    law_given,
    log_elementary,
    resolvent,
    rounding_error,
    tilted_law,
)
from ndpp.linalg.sizes import Coins
from ndpp.linalg.tilts import tilt_of_coins


class WeighedSets(ItemRows):
    """The weights of the sets of a kernel: of one, of all that contain some items, and of all of one size."""

    @of_components
    def _normalizers(self) -> dict[int, tuple[float, float]]:
        """log e_k and its error of the sizes that were asked for."""
        return {}

    def _with(
        self,
        W: RealArray,
        support: IntArray,
        magnitudes: FloatArray | None = None,
        *,
        X: Any = None,
        factors: Any = 1.0,
    ) -> Self:
        """Return the kernel with another W on part of the catalogue, and its background times ``factors``."""
        X, magnitudes = (self.X if X is None else X), (self._magnitudes if magnitudes is None else magnitudes)
        odds = None if self.background is None or not self.background[support].any() else factors * self.background
        kind: Any = type(self)
        made: Self = kind(X, W, labels=self.labels, support=support, magnitudes=magnitudes, background=odds)
        return made

    # -- one set -------------------------------------------------------------------------------------------------------------

    def log_det(self, items: Items) -> float:
        """Return log det(L_S), −inf if it is zero. O(k²r + kr²), with a background O(k²d + k³)."""
        ids = check_items(items, self)
        if not self.can_occur(ids).all():
            return -np.inf
        value, error = self._log_det(ids)
        say_precision(error, f"the probabilities of {len(ids)} items")
        return value

    def is_possible(self, rows: IntArray) -> bool:
        """Return whether det L_S > 0 up to rounding, for a set S of rows of the support: whatever the scale of L."""
        return self._log_det(self.catalogue_ids(rows))[0] > -np.inf

    def _log_det(self, ids: IntArray) -> tuple[float, float]:
        """Return log det(L_S) and an estimate of its error."""
        if self.background is None:
            return judged_minor(self.known_rows(self.rows_of(ids)), self.W, magnitudes=self._magnitudes)
        if len(ids) == 0:
            return 0.0, 0.0
        # L_S is the minor of rows (x_i, √δ_i e_i), with the inner matrix W ⊕ I.
        rows = np.hstack([self.known_rows(self.rows_of(ids)), np.diag(np.sqrt(self.background[ids]))])
        W, magnitudes = block_diag(self.W, np.eye(len(ids))), np.append(self._magnitudes, np.ones(len(ids)))
        return judged_minor(rows, W, magnitudes=magnitudes)

    # -- many sets -----------------------------------------------------------------------------------------------------------

    @of_components
    def form(self) -> Form:
        """L, prepared for minors and scores of many baskets."""
        odds = self.odds
        return Form(self, self.coordinates.B, self.coordinates.scale, odds / (1 + odds), 1 + odds, "L")

    @of_components
    def marginal_form(self) -> Form:
        """K = L(I + L)⁻¹, prepared in the same way."""
        R, scale = resolvent(self.coordinates, np.ones(1))[0][0], np.minimum(self.coordinates.scale, 1.0)
        return Form(self, R, scale, self.odds, 1 / (1 + self.odds), "K")

    def log_dets(self, baskets: Baskets) -> FloatArray:
        """Return log det(L_S) of many sets, −inf where it is zero."""
        out = log_dets(self.form, baskets)
        for i in np.flatnonzero(np.isnan(out)):
            out[i] = self.log_det(baskets[i])
        return out

    # -- all sets that contain some items ------------------------------------------------------------------------------------

    @of_components
    def _law(self) -> TiltedLaw:
        return tilted_law(self.coordinates, 1.0)

    @of_components
    def _free_error(self) -> float:
        return rounding_error(self.coordinates, 1.0)

    def check_precision(self) -> None:
        """Warn or raise if rounding matters to the distribution of all sets. O(r³), once."""
        say_precision(self._free_error, FREE, stacklevel=4)

    def free_law(self, given: FloatArray | None = None, *, factor: float = 1.0) -> TiltedLaw:
        """Return the distribution of the number of items beside those with rows ``given`` of Q; warn or raise if it is inaccurate.

        The error of what is computed from it is larger by ``factor``. For items that never occur together, it is that of all sets.
        """
        law, error = self._law, self._free_error
        if given is not None and len(given):
            coords, R = self.coordinates, law.marginal
            law = law_given(coords, R, law.log_weight, given)
            error = error_given(coords, R, given, error) if law.log_weight > -np.inf else error
        say_precision(factor * error, FREE, stacklevel=4)
        return law

    @of_components
    def _log_alone(self) -> float:
        """Log of the weight of all sets R."""
        return float(np.log1p(self.odds).sum())

    def given_alone(self, items: Items) -> tuple[Self | None, IntArray]:
        """Return the kernel given those of the items that have a background (None: no item is left), and the other items."""
        ids = self.catalogue_ids(self.rows_of(items, "given"))
        if self.background is None or not self.background[ids].any():
            return self, ids
        alone = self.background[ids] > 0
        given = ids[alone]
        if len(given) == self.n_rows:
            return None, ids[:0]
        x = self.known_rows(self.rows_of(given)) / np.sqrt(self.background[given])[:, None]
        W, magnitudes = condition_inner_with_background(np.asarray(self.W, np.float64), x, self._magnitudes)
        rest = self._with(W, np.setdiff1d(self.support, given), np.maximum(self._magnitudes, magnitudes))
        return rest, ids[~alone]

    def log_mass(self, items: Items = (), size: int | None = None) -> float:
        """Return log Σ det(L_S) over the sets that contain these items, of any size or of one; −inf where there is none."""
        return float(self._log_masses(check_items(items, self), size)[0])

    def _log_mass(self, ids: IntArray, size: int | None) -> float:
        """Return the same, the empty set included."""
        if not self.can_occur(ids).all():
            return -np.inf
        rest, tied = self.given_alone(ids)
        if rest is not self:
            alone = self.log_det(np.setdiff1d(ids, tied))
            size = None if size is None else size - (len(ids) - len(tied))
            if rest is None:
                return alone if size in (None, 0) else -np.inf
            return alone + rest._log_mass(tied, size)
        if size is None:
            return self._log_alone + self.free_law(self._q(tied)).log_weight
        value, error = self._log_elementary(size, tied)
        say_precision(error, f"sets of size {size}", advice=ADVICE_ON_SIZES)
        return value

    def _mean_inclusions(self, ids: IntArray, size: int | None, active: IntArray, shares: FloatArray) -> FloatArray:
        rest, tied = self.given_alone(ids)
        size = None if size is None else size - (len(ids) - len(tied))
        out = np.zeros(self.n_items)
        if rest is None or size == len(tied):
            return out
        if rest is not self:
            return rest._mean_inclusions(tied, size, active, shares)
        if size is not None and self.background is not None:
            return super()._mean_inclusions(tied, size, active, shares)
        M = self._marginal(tied) if size is None else inclusion_matrix(self.coordinates, size, self._q(tied))[0]
        if self.coordinates.eigenvalues is not None and not len(tied):
            M = M.diagonal()
        for block, forms in self.q_map(partial(quadratic_forms, M=M)):
            out[self.catalogue_ids(np.arange(block.start, block.stop))] = forms
        out[self.support] = (self.odds + out[self.support]) / (1 + self.odds)
        return out

    def marginal_kernel(self, items: Items) -> FloatArray:
        """Return the rows and columns of K = L(I + L)⁻¹ of some items: P(A ⊆ S) = det K_A for every set A of them. O(m r (m + r)).

        If the empty set is left out, K is that of ``with_empty()``: then P(A ⊆ S) is det K_A / P(S ≠ ∅) for sets A of at least one item.

        Examples
        --------
        >>> import ndpp
        >>> ndpp.LowRankKernel([[1.0], [2.0], [3.0]]).marginal_kernel([0, 2])
        array([[0.06666667, 0.2       ],
               [0.2       , 0.6       ]])
        """
        self.free_law(factor=10.0)  # says whether rounding matters
        ids = check_items(items, self)
        K: FloatArray = self._marginal_blocks(ids, ids)[0]
        possible = self.can_occur(ids)
        odds = self.odds[self.rows_of(ids[possible])]
        K[possible, possible] += odds / (1 + odds)
        return K

    def mean_covariances(self, first: IntArray, second: IntArray) -> FloatArray:
        """Return Cov(a ∈ S, b ∈ S) = −K_ab K_ba for two lists of items, a ≠ b; zero for items that never occur.

        If the empty set is left out, it is that before, divided by P(S ≠ ∅).
        """
        return -np.asarray(np.prod(self._marginal_blocks(first, second), axis=0)) / self.kept

    def _marginal_blocks(self, first: IntArray, second: IntArray) -> FloatArray:
        """Return K_ab and K_ba, shape (2, len(first), len(second)), but for K_aa: √((1 − p_a)(1 − p_b)) q_a R q_b, R = B(I + B)⁻¹."""
        out, at = np.zeros((2, len(first), len(second))), [self.can_occur(items) for items in (first, second)]
        rows = [self.rows_of(items[possible]) for items, possible in zip((first, second), at)]
        (q, other), R = (self.q_rows(places) for places in rows), self._law.marginal
        scale = np.sqrt(np.outer(*(1 + self.odds[places] for places in rows)))
        for side, inner in zip(out, (R, R.T)):
            side[np.ix_(*at)] = (q @ inner) @ other.T / scale
        return out

    def _q(self, tied: Items) -> FloatArray:
        return self.q_rows(self.rows_of(tied))

    def _marginal(self, tied: Items) -> FloatArray:
        law = self.free_law(self._q(tied), factor=10.0)  # a probability is a derivative of log det, with a larger error
        if law.log_weight == -np.inf:
            raise never_together(len(tied))
        return law.marginal

    # -- sets of one size ----------------------------------------------------------------------------------------------------

    def _parts(self, ids: IntArray) -> Parts:
        rest, tied = self.given_alone(ids)

        def at(c: int, log_tilt: float) -> Part:
            if rest is None:
                return NOTHING_LEFT
            kernel = rest.scaled(log_tilt) if log_tilt else rest
            law, error, known = kernel._law, kernel._free_error, None
            if len(tied):
                coords, q = kernel.coordinates, kernel._q(tied)
                law, error = tilted_law(coords, 1.0, q), rounding_error(coords, 1.0, q)
            elif kernel.background is None:
                known = law.law
            if law.log_weight == -np.inf:
                raise never_together(len(ids))
            most, log_weight = int(kernel.largest[0]), kernel._log_alone + law.log_weight
            return Part(law.marginal, kernel._coins, kernel.support, most, log_tilt, log_weight, error, known)

        return Parts(at, lambda size: np.array([0.0 if rest is None else rest._tilt_for(size)]), 3.0)

    def scaled(self, log_tilt: float) -> Self:
        """Return the kernel ρL."""
        rho = float(np.exp(log_tilt))
        return self._with(rho * np.asarray(self.W, np.float64), self.support, rho * self._magnitudes, factors=rho)

    def _tilt_for(self, size: int) -> float:
        """Guess log ρ for a size: as if all directions of T were items of their own."""
        log_odds = np.log(np.concatenate([self.odds[self.odds > 0], self.coordinates.scale**2]))
        wanted = min(max(size - 0.3, 0.3), len(log_odds) - 0.3)  # the smallest tilt that serves: rounding grows with it
        return tilt_of_coins(log_odds, wanted)

    def _log_elementary(self, size: int, tied: IntArray) -> tuple[float, float]:
        """Return log Σ det L_S over the sets of ``size`` items that contain ``tied``, items with δ = 0, and its relative error."""
        if len(tied):
            return self._log_sized(size, tied)
        if size not in self._normalizers:
            self._normalizers[size] = self._log_sized(size, tied)
        return self._normalizers[size]

    def _log_sized(self, size: int, tied: IntArray) -> tuple[float, float]:
        if self.background is None:
            return log_elementary(self.coordinates, size, self._q(tied) if len(tied) else None)
        if size == len(tied):
            return self._log_det(tied)
        mass = tilted_law(self.coordinates, 1.0, self._q(tied)).log_weight
        if mass == -np.inf or not len(tied) < size <= self.largest[0]:
            return -np.inf, 0.0
        part, law = self.tilted_for(size, tied)[0]
        chance = law.distribution()[size - len(tied)]
        if chance <= min(ZERO_WEIGHT, part.error):
            return -np.inf, 0.0
        value, error = judged(float(chance), part.error)
        return value + part.log_weight - size * part.log_tilt, error

    def _coins(self) -> Iterator[Coins]:
        """Yield p and (1 − p)^½ q of some rows of the support."""
        p = self.odds / (1 + self.odds)
        return (Coins(p[block], Q * np.sqrt(1 - p[block])[:, None]) for block, Q in self.q_blocks())

    def tilted_for(self, size: int, tied: IntArray) -> tuple[SizedPart, Self]:
        """Return ρL with about ``size`` items expected, given that ``tied`` are in: sets of one size have the same distribution."""
        kernels: dict[float, Self] = {}

        def at(_: int, log_tilt: float) -> Part:
            kernels[log_tilt] = self.scaled(log_tilt)
            return kernels[log_tilt]._parts(tied).at(0, 0.0)._replace(log_tilt=log_tilt)

        found = Parts(at, self._parts(tied).starts, 3.0).sized(0, size - len(tied), self._tilt_for(size))
        return found, kernels[found.part.log_tilt]
