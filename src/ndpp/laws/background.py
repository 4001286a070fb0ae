"""A kernel with a background: L = diag(δ) + X W Xᵀ, δ ≥ 0. Each item may also come by itself.

By linearity of the determinant in its rows, a sample is **S = T ∪ R**, T and R independent: T follows the low-rank kernel with rows
x_i / √(1 + δ_i) (:attr:`ties`), and R holds each item i by itself with probability p_i = δ_i / (1 + δ_i). So

    det(I + L) = Π(1 + δ_i) · det(I + L_T),        P(a ∈ S) = p_a + (1 − p_a) P(a ∈ T).

Given items J with δ > 0, the remaining ones have the same δ and W' = W − W X_Jᵀ L_J⁻¹ X_J W: a kernel of this kind again. Items with δ = 0
come with T alone; given such items, T is conditioned and R is not. Sizes are those of :mod:`ndpp.linalg.union_size`, and
log e_k comes from the kernel ρL, with ρ chosen so that k items are expected: log e_k = log P_ρ(|S| = k) + log det(I + ρL) − k log ρ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import check_count, check_items, check_matrix, clip_probabilities, frozen
from ndpp.errors import ImpossibleSizeError, InvalidInputError
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.precision import check_given, never_together, say_precision
from ndpp.linalg import ZERO_WEIGHT, Coordinates, coordinates, rounding_error, tilted_law
from ndpp.linalg.scaling import quadratic_forms
from ndpp.linalg.schur import condition_inner_with_background
from ndpp.linalg.union_size import UnionSize
from ndpp.rows.scaled import Scaled

NEWTON_STEPS = 60


class Tilted(NamedTuple):
    """The kernel ρL, under which about the wanted number of items is expected, the size of its samples, and log ρ."""

    kernel: BackgroundKernel
    union: UnionSize
    log_tilt: float


@dataclass(frozen=True, eq=False, init=False, repr=False)
class BackgroundKernel(LowRankKernel):
    """What ``LowRankKernel(X, W, background=delta)`` returns. It has the methods of a kernel, and costs what a kernel costs.

    Attributes
    ----------
    background : (n,) array
        δ, the odds of each item to come by itself.
    ties : LowRankKernel
        The kernel of T, the items that come together. Its rank bounds |T| and not the size of a sample.

    Examples
    --------
    >>> import numpy as np
    >>> kernel = LowRankKernel(np.eye(2), [[0.0, 1.0], [-1.0, 0.0]], background=[1.0, 0.0])
    >>> kernel.to_dense()
    array([[ 1.,  1.],
           [-1.,  0.]])
    >>> kernel.size_distribution().round(4)  # {}, {0} and {0, 1} have weight 1 each
    array([0.3333, 0.3333, 0.3333])
    """

    background: FloatArray  # type: ignore[misc]
    _sampler = "ndpp.samplers.background:ExactUnion"

    def __init__(self, X: Any, W: Any, *, background: Any, **options: Any) -> None:
        odds = check_matrix([background], "background", shape=(1, None))[0].astype(np.float64)
        if (odds < 0).any():
            first = int(np.argmax(odds < 0))
            raise InvalidInputError(
                f"background must be odds ≥ 0; {np.count_nonzero(odds < 0)} entries are negative, the first, {odds[first]:g}, "
                f"at {first}. Use 0 for items that come with others only."
            )
        if len(odds) != np.shape(X)[0]:
            raise InvalidInputError(f"background must be {np.shape(X)[0]} odds, one per row of X; got {len(odds)}")
        object.__setattr__(self, "background", frozen(odds))
        super().__init__(X, W, **options)

    def __repr__(self) -> str:
        return f"LowRankKernel(n_items={self.n_items}, rank={self.rank}, background=…)"

    @cached_property
    def ties(self) -> LowRankKernel:
        """The kernel of T: rows x_i / √(1 + δ_i), the same W."""
        rows = Scaled(self.X, 1 / np.sqrt(1 + self.background))
        return LowRankKernel(rows, self.W, labels=self.labels, support=self._allowed, magnitudes=self._magnitudes)

    @property
    def coordinates(self) -> Coordinates:
        """Not there: L is not of low rank."""
        raise InvalidInputError(
            "this needs a low-rank L = X W Xᵀ, and the kernel has a background. kernel.sample() and kernel.sampler() draw from it "
            "exactly; kernel.ties is the low-rank part of its samples"
        )

    @property
    def rank(self) -> int:
        """Rank of X W Xᵀ. The background allows larger samples."""
        return self.ties.rank

    @property
    def max_size(self) -> int:
        """No sample is larger."""
        return min(self.n_rows, int(np.count_nonzero(self.odds)) + self.rank)

    @cached_property
    def odds(self) -> FloatArray:
        """δ on the support."""
        return self.background if self._allowed is None else self.background[self._allowed]

    # -- probabilities -------------------------------------------------------------------------------------------------------

    def _log_det(self, ids: IntArray) -> tuple[float, float]:
        """Return log det(L_S), −inf where it is zero, and no estimate of its error. O(k²d + k³)."""
        if len(ids) == 0:
            return 0.0, 0.0
        # With rows x_i / √δ_i, det L_S / Πδ_i sums the minors of the low-rank part over all sets that hold the items with δ = 0.
        odds, x = self.background[ids], self.x_rows(self.rows_of(ids))
        alone = odds > 0
        x[alone] /= np.sqrt(odds[alone])[:, None]
        coords = coordinates(x, self.W, magnitudes=self._magnitudes)
        popularity = float(np.log(odds[alone]).sum())
        if coords.rank == 0:
            return popularity if alone.all() else -np.inf, 0.0
        assert coords.Q is not None
        return popularity + tilted_law(coords, 1.0, coords.Q[~alone]).log_weight, 0.0

    @cached_property
    def _log_alone(self) -> float:
        return float(np.log1p(self.odds).sum())

    def log_mass(self, items: Items = (), size: int | None = None) -> float:
        """Return log Σ det(L_S) over the sets that contain these items, of any size or of one; −inf where there is none."""
        ids = check_items(items, self)
        if not self.can_occur(ids).all():
            return -np.inf
        rest, tied = self.given_alone(ids)
        if rest is self:
            return self._log_mass(tied) if size is None else self._log_elementary(size, tied)[0]
        alone = self.log_det(np.setdiff1d(ids, tied))
        size = None if size is None else size - (len(ids) - len(tied))
        if rest is None:
            return alone if size in (None, 0) else -np.inf
        return alone + rest.log_mass(tied, size)

    def _log_elementary(self, size: int, tied: Any = ()) -> tuple[float, float]:
        """Return log Σ det L_S over the sets of ``size`` items that contain ``tied``, items with δ = 0, and its relative error."""
        if len(tied) == 0 and size in self._normalizers:
            return self._normalizers[size]
        value, error = -np.inf, 0.0
        if self._log_mass(tied) == -np.inf:
            return value, error
        if size == len(tied):
            value = self.log_det(tied)
        elif len(tied) < size <= self.max_size:
            tilted = self.tilted_for(size, tied)
            chance = tilted.union.distribution().at(size - len(tied))
            if chance > ZERO_WEIGHT:
                coords, q = tilted.kernel.ties.coordinates, tilted.kernel._q(tied)
                value = float(np.log(chance)) + tilted.kernel._log_mass(tied) - size * tilted.log_tilt
                error = rounding_error(coords, 1.0, q) / chance
        if len(tied) == 0:
            self._normalizers[size] = value, error
        return value, error

    def size_distribution(self) -> FloatArray:
        """Return P(|S| = k) for k = 0, 1, … up to the largest size, each with an absolute error of about 1e-15. O(n r²)."""
        return self._union().distribution().spread(self.max_size + 1)

    def inclusion_probabilities(self, size: int | None = None, given: Items = ()) -> FloatArray:
        """Return P(a ∈ S) for every item of the catalogue, of all sets or of those of one size, given that some items are in.

        ``size`` counts the given items, whose own probability is one. O(n r²), and for a size O(n r² + N r³) with N sizes in reach.
        """
        rest, tied = self.given_alone(given)
        ids = self.catalogue_ids(self.rows_of(given, "given"))
        size = None if size is None else check_given(size, len(ids)) - (len(ids) - len(tied))
        out = np.zeros(self.n_items)
        if rest is None and size:
            raise ImpossibleSizeError(f"all items are given, and no set has {size} more")
        if rest is not self:
            out = out if rest is None else rest.inclusion_probabilities(size, tied)
        elif size is None:
            forms = np.concatenate(
                [part for _, part in self.ties.q_map(partial(quadratic_forms, M=self._marginal(tied)))]
            )
            out[self.support] = (self.odds + forms) / (1 + self.odds)
        elif self.check_tied_size(size, tied) > len(tied):
            out[self.support] = self._chances(size, tied)
        out[ids] = 1.0
        return clip_probabilities(out, "inclusion probabilities")

    def _chances(self, size: int, tied: IntArray) -> FloatArray:
        """Return P(a ∈ S | |S| = size) of the items of the support."""
        tilted = self.tilted_for(size, tied)
        marginal, items = tilted.kernel._marginal(tied), tilted.kernel._scaled_rows()
        return tilted.union.inclusions(size - len(tied), marginal, items)

    def check_size(self, size: int, *, given: FloatArray | None = None) -> int:
        """Return ``size`` if sets of that size can occur; raise a clear error otherwise."""
        assert given is None, "rows of Q are those of kernel.ties"
        return self.check_tied_size(check_count(size, "size"), ())

    def check_tied_size(self, size: int, tied: Any) -> int:
        """Return ``size`` if sets of that size that contain ``tied``, items with δ = 0, can occur; raise a clear error otherwise."""
        if size > self.max_size:
            raise ImpossibleSizeError(f"no set is larger than {self.max_size} items; size {size} was asked for")
        if self._log_mass(tied) == -np.inf:
            raise never_together(len(tied))
        value, error = self._log_elementary(size, tied)
        if value == -np.inf:
            raise ImpossibleSizeError(
                f"sets of size {size} have probability zero; choose another size, see kernel.size_distribution()"
            )
        say_precision(error, f"sets of size {size}")
        return size

    def _q(self, tied: Any) -> FloatArray:
        return self.ties.q_rows(self.rows_of(tied))

    def _log_mass(self, tied: Any) -> float:
        return self._log_alone + tilted_law(self.ties.coordinates, 1.0, self._q(tied)).log_weight

    def _marginal(self, tied: Any) -> FloatArray:
        law = tilted_law(self.ties.coordinates, 1.0, self._q(tied))
        if law.log_weight == -np.inf:
            raise never_together(len(tied))
        return law.marginal

    def _union(self, tied: Any = ()) -> UnionSize:
        return UnionSize.prepare(self._marginal(tied), self._scaled_rows())

    def _scaled_rows(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield p and (1 − p)^½ q of some rows of the support."""
        p = self.odds / (1 + self.odds)
        yield from ((p[block], Q * np.sqrt(1 - p[block])[:, None]) for block, Q in self.ties.q_blocks())

    def tilted(self, rho: float) -> BackgroundKernel:
        """Return the kernel ρL: the same distribution of sets of one size, and another distribution of sizes."""
        return BackgroundKernel(
            self.X, rho * np.asarray(self.W, np.float64), labels=self.labels, support=self._allowed,
            magnitudes=rho * self._magnitudes, background=rho * self.background,
        )  # fmt: skip

    def tilted_for(self, size: int, tied: Any) -> Tilted:
        """Return ρL with about ``size`` items expected, given that ``tied`` are in, by safeguarded Newton steps on log ρ."""
        left = size - len(tied)
        x, low, high = self._first_tilt(size), -np.inf, np.inf
        for _ in range(NEWTON_STEPS):
            kernel = self.tilted(float(np.exp(x)))
            union = kernel._union(tied)
            mean, variance = union.mean_and_variance()
            if abs(mean - left) <= max(0.3, 0.3 * np.sqrt(max(variance, 0.0))):
                break
            low, high = (low, x) if mean > left else (x, high)
            step = float(np.clip((left - mean) / max(variance, 1e-3), -3, 3))
            x = x + step if low < x + step < high else (low + high) / 2
        return Tilted(kernel, union, x)

    def _first_tilt(self, size: int) -> float:
        """Return log ρ as if all directions of the ties were items of their own."""
        log_odds = np.log(np.concatenate([self.odds[self.odds > 0], self.ties.coordinates.scale**2]))
        wanted = min(max(size - 0.3, 0.3), len(log_odds) - 0.3)  # the smallest tilt that serves: rounding grows with it
        low, high = -log_odds.max() - 40, -log_odds.min() + 40
        for _ in range(40):
            x = (low + high) / 2
            low, high = (x, high) if expit(x + log_odds).sum() < wanted else (low, x)
        return float(low)

    # -- the same type again -------------------------------------------------------------------------------------------------

    def given_alone(self, items: Items) -> tuple[LowRankKernel | None, IntArray]:
        """Return the kernel given those of the items that have a background (None: no item is left), and the other items."""
        ids = self.catalogue_ids(self.rows_of(items, "given"))
        alone = self.background[ids] > 0
        if len(ids) == self.n_rows and alone.all():
            return None, ids[:0]
        return (self._condition_alone(ids[alone]) if alone.any() else self), ids[~alone]

    def _given(self, rows: IntArray) -> LowRankKernel:
        if len(rows) == self.n_rows:
            raise InvalidInputError("all items of the kernel are given; nothing is left to have a distribution")
        rest, tied = self.given_alone(self.catalogue_ids(rows))
        assert rest is not None
        if not len(tied):
            return rest
        if not isinstance(rest, BackgroundKernel):
            return rest.condition(tied)
        # R does not matter to items without a background: only X W Xᵀ is conditioned.
        low_rank = LowRankKernel(rest.X, rest.W, support=rest._allowed, magnitudes=rest._magnitudes).condition(tied)
        return rest._with(low_rank.W, low_rank.support, low_rank._magnitudes, X=low_rank.X)

    def _condition_alone(self, ids: IntArray) -> LowRankKernel:
        """Return the kernel given items with δ > 0: W' = W − W Y(I + YᵀWY)⁻¹YᵀW, the columns of Y spanning the rows x_i / √δ_i."""
        x = self.x_rows(self.rows_of(ids)) / np.sqrt(self.background[ids])[:, None]
        W, magnitudes = condition_inner_with_background(np.asarray(self.W, np.float64), x, self._magnitudes)
        return self._with(W, np.setdiff1d(self.support, ids), np.maximum(self._magnitudes, magnitudes))

    def to_dense(self) -> FloatArray:
        """Return L as an (n, n) array; rows and columns of items that cannot occur are zero."""
        L = super().to_dense()
        L[self.support, self.support] += self.odds
        return L
