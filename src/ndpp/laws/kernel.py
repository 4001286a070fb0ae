"""The central type of the package: a low-rank kernel L = X W Xᵀ, or diag(δ) + X W Xᵀ with a background δ, P(S) ∝ det(L_S).

Conditionals and restrictions of a kernel have the same type. Everything is computed in orthonormal coordinates (:mod:`ndpp.linalg`), so
that only the first pass over X costs time in proportion to the number of items.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ndpp._types import FloatArray, IntArray, Items, NumberArray, RealArray, cached_property
from ndpp._validation import check_items, check_matrix, frozen, plain_array
from ndpp.baskets import Baskets
from ndpp.baskets.labels import check_labels
from ndpp.errors import (
    ImpossibleSizeError,
    InvalidInputError,
    InvalidKernelError,
    NoConditionalKernelError,
    PrecisionError,
)
from ndpp.laws.catalogue import Catalogue
from ndpp.laws.changes import Alike
from ndpp.laws.frame import ONE
from ndpp.laws.header import ModelHeader
from ndpp.laws.kernel_scoring import KernelScoring
from ndpp.laws.matrices import Definite, dense_parts, feature_rows, odds_of_marginal
from ndpp.laws.precision import WARN_ERROR, never_together
from ndpp.laws.support import check_background, take
from ndpp.laws.union import WeighedSets
from ndpp.linalg.scaling import entry_magnitudes
from ndpp.linalg.schur import NEARLY_SINGULAR, condition_inner, eliminate
from ndpp.linalg.size_law import tilted_law
from ndpp.linalg.tilts import solve_tilt, tilt_to_size
from ndpp.rows import Rows, SelectedRows, Stacked, as_rows
from ndpp.rows.scaled import Multiplied

MAX_CANCELLATION = 1e30
"""Terms that are this many times as large as their sum, an entry of W, are implausible: rounding would have left a larger sum."""
CERTAIN = 1 - 2.0**-50
"""Larger probabilities count as this one where odds are taken of them."""
SAFE_SQUARES = 1e-30, 1e30
"""Sums of squares of the entries of X and W within this range are far from the limits of double precision."""


@dataclass(frozen=True, eq=False, init=False, repr=False)
class LowRankKernel(WeighedSets):
    """A nonsymmetric DPP over n items, P(S) ∝ det(L_S), L = X W Xᵀ, with L + Lᵀ positive semidefinite.

    Parameters
    ----------
    X : (n, d) array_like or row source
        One row per item, float32 or float64. X is not copied, since it may be most of memory: do not change it while the kernel is in use,
        or pass a copy. The kernel's view of it is read-only; a change is noticed in small catalogues, and in stores where rows are
        fetched. A memory map, an HDF5 or Zarr array, a dask array or your own store (:class:`ndpp.rows.RowSource`) is not loaded:
        preparing a kernel reads it in blocks, and sampling fetches single rows.
    W : (d, d) array_like, optional
        The inner matrix, which is copied; by default the identity, L = X Xᵀ.
    labels : sequence of str, optional
        The label of each item.
    support : sequence of int, optional
        The only items that can occur; X still has one row per item of the catalogue.
    magnitudes : (d,) array_like, optional
        Magnitudes of the rows and columns of W that rounding is judged against. A conditional keeps those of the kernel it came from.
    background : (n,) array_like, optional
        Odds δ ≥ 0 of each item to come by itself: L = diag(δ) + X W Xᵀ. Samples may then be larger than the rank, and everything costs
        what it costs without a background. None: δ = 0.

    Examples
    --------
    >>> import numpy as np
    >>> kernel = LowRankKernel(np.eye(3), [[1.0, 2.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> kernel.n_items, kernel.rank
    (3, 3)
    >>> round(float(np.exp(kernel.log_det([0, 1]))), 12)  # 1·1 + 2·2: items 0 and 1 attract each other
    5.0
    >>> kernel.size_distribution().round(4)
    array([0.0625, 0.1875, 0.4375, 0.3125])
    >>> kernel = LowRankKernel(np.eye(2), [[0.0, 1.0], [-1.0, 0.0]], background=[1.0, 0.0])
    >>> kernel.size_distribution().round(4)  # {}, {0} and {0, 1} have weight 1 each
    array([0.3333, 0.3333, 0.3333])
    """

    parametrisation = "xw"
    stored = {"X", "W"}, {"support", "weights", "background"}
    _fields = "X", "W", "_magnitudes", "background", "_allowed", "_sum", "catalogue", "frame"

    def __init__(
        self,
        X: Any,
        W: Any = None,
        *,
        labels: Sequence[str] | None = None,
        support: Items | None = None,
        magnitudes: Any = None,
        background: Any = None,
        weights: Any = None,
    ) -> None:
        if weights is not None:
            warnings.warn("weights= is now magnitudes=", DeprecationWarning, stacklevel=2)
            magnitudes = weights
        is_definite, W = isinstance(W, Definite), W.W if isinstance(W, Definite) else W
        X, W = plain_array(X, "X"), plain_array(W, "W")
        rows = as_rows(X)
        X = check_matrix(X, "X") if rows is None else rows
        n, d = X.shape
        if n == 0 or d == 0:
            raise InvalidKernelError(f"X must have at least one item and one column; its shape is {X.shape}")
        is_identity = W is None
        W = np.eye(d) if is_identity else check_matrix(W, "W", shape=(d, d))
        allowed = None if support is None else np.sort(check_items(support, n, "support"))
        if allowed is not None and allowed.size == 0:
            raise InvalidInputError("at least one item must be able to occur; none is left")
        if magnitudes is None:
            magnitudes = np.ones(d) if is_identity else entry_magnitudes(np.asarray(W, np.float64))
        else:
            magnitudes = check_matrix([magnitudes], "magnitudes", shape=(1, d))[0]
        with np.errstate(over="ignore", invalid="ignore"):
            total = X.sum() if rows is None else np.inf
        vars(self).update(
            X=X if rows is not None else frozen(X), W=frozen(W if is_identity else np.array(W)), _magnitudes=frozen(magnitudes),
            background=None if background is None else check_background(background, n),
            catalogue=Catalogue(n, check_labels(labels, n)),
            _allowed=None if allowed is None or len(allowed) == n else frozen(allowed),
            _sum=total if np.isfinite(total) else None, frame=ONE, _known={},
        )  # fmt: skip
        if rows is not None or background is not None or not _is_valid(X, None if is_identity else self.W, is_definite):
            self.coordinates  # noqa: B018  raises if the kernel is invalid

    @classmethod
    def from_vbd(cls, V: Any, B: Any, D: Any, *, labels: Sequence[str] | None = None) -> LowRankKernel:
        """Return the kernel L = VVᵀ + B(D − Dᵀ)Bᵀ [Gartrell et al., ICLR 2021], X = [V B], W = Diag(I, D − Dᵀ)."""
        V, B = check_matrix(V, "V"), check_matrix(B, "B")
        if len(V) != len(B):
            raise InvalidInputError(f"V and B must have one row per item each; V has {len(V)} rows, B has {len(B)}")
        D = check_matrix(D, "D", shape=(B.shape[1], B.shape[1]))
        W = np.zeros((V.shape[1] + B.shape[1],) * 2)
        W[: V.shape[1], : V.shape[1]] = np.eye(V.shape[1])
        W[V.shape[1] :, V.shape[1] :] = D - D.T
        return cls(np.hstack([V, B]), W, labels=labels)

    @classmethod
    def from_features(
        cls,
        F: Any,
        quality: Any = None,
        similarity: str = "dot",
        expected_size: float | None = None,
        *,
        labels: Sequence[str] | None = None,
    ) -> LowRankKernel:
        """Return the kernel L_ij = q_i q_j ⟨f_i, f_j⟩ of items with these features, such as embeddings.

        Parameters
        ----------
        F : (n, d) array_like, sparse matrix or tensor
            The features of each item. Sparse ones with more columns than rows become a Cholesky factor of F Fᵀ.
        quality : (n,) array_like, optional
            How good each item is, ≥ 0: P(S) is multiplied by Π q_i². By default 1.
        similarity : {"dot", "cosine"}
            Inner products of the features, or of features scaled to norm one.
        expected_size : float, optional
            Multiply L so that samples have this many items on average; see :meth:`rescale`.
        labels : sequence of str, optional
            The label of each item.

        Examples
        --------
        >>> kernel = LowRankKernel.from_features([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]], similarity="cosine", expected_size=1)
        >>> kernel.inclusion_probabilities().round(4)
        array([0.2929, 0.4142, 0.2929])
        """
        kernel = cls(feature_rows(F, quality, similarity), labels=labels)
        return kernel if expected_size is None else kernel.rescale(expected_size)

    @classmethod
    def from_dense(cls, L: Any, *, labels: Sequence[str] | None = None) -> LowRankKernel:
        """Return the kernel of an (n, n) matrix L, symmetric or not, with L + Lᵀ positive semidefinite. O(n³).

        A symmetric L becomes X Xᵀ with as many columns as its rank, up to rounding. (A sum of Gaussian similarities of many points is
        often of small rank.)

        Examples
        --------
        >>> LowRankKernel.from_dense([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
        LowRankKernel(n_items=3, rank=2)
        """
        return cls(*dense_parts(L), labels=labels)

    @classmethod
    def from_marginal(cls, K: Any, eigenvalues: Any = None, *, labels: Sequence[str] | None = None) -> LowRankKernel:
        """Return the kernel whose inclusion probabilities are the minors of a matrix, P(A ⊆ S) = det K_A; L = K(I − K)⁻¹.

        Parameters
        ----------
        K : (n, n) or (n, r) array_like
            The matrix, or, with ``eigenvalues``, orthonormal columns U with K = U diag(μ) Uᵀ.
        eigenvalues : (r,) array_like, optional
            μ, between 0 and 1. This takes O(n r²), in place of O(n² r) for a symmetric matrix of small rank r, and O(n³) for others.
        labels : sequence of str, optional
            The label of each item.

        Notes
        -----
        Eigenvalues one of a symmetric K, as of projections, have no finite L, and are taken as 1 − 2⁻⁵³. Of a matrix, eigenvalues within
        8 n ε of one are, and those within it of zero are zero, where ε is the precision of K: what its rounding errors may have made of
        them. Products of columns U may be off by as much, at most by 10⁻³.

        Examples
        --------
        >>> kernel = LowRankKernel.from_marginal([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.25]])
        >>> kernel.inclusion_probabilities().round(4), kernel.size_distribution().round(4)
        (array([0.5 , 0.5 , 0.25]), array([0.  , 0.75, 0.25]))
        >>> same = LowRankKernel.from_marginal([[0.5**0.5, 0], [0.5**0.5, 0], [0, 1]], [1, 0.25])
        >>> same.inclusion_probabilities().round(4)
        array([0.5 , 0.5 , 0.25])
        """
        return cls(*odds_of_marginal(K, eigenvalues), labels=labels)

    def rescale(self, expected_size: float) -> LowRankKernel:
        """Return the kernel cL whose samples have this many items on average; samples of one size have the same distribution as before.

        Examples
        --------
        >>> round(float(LowRankKernel(np.eye(4)).rescale(3).inclusion_probabilities().sum()), 6)
        3.0
        """
        is_number = isinstance(expected_size, (int, float, np.number)) and not isinstance(expected_size, bool)
        least = int(self.nonempty)
        if not is_number or not least < expected_size < self.max_size:
            raise InvalidInputError(
                f"must be a number above {least} and below {self.max_size}, the largest size of a sample; got {expected_size!r}",
                argument="expected_size",
            )
        known = self.coordinates.eigenvalues
        values: NumberArray = np.linalg.eigvals(self.coordinates.B) if known is None else known
        odds = np.concatenate([self.odds[self.odds > 0], values])
        log_c = tilt_to_size(odds, float(expected_size))
        if self.background is None and not self.nonempty:
            return self._tilt(self.support, np.full(self.n_rows, np.exp(log_c)))
        kernel = self

        def moments(log_c: float) -> tuple[float, float]:
            nonlocal kernel
            kernel = self._tilted_by(self.support, np.full(self.n_rows, np.exp(log_c)))
            sizes = kernel.size_distribution()
            counts = np.arange(len(sizes))
            mean = float(sizes @ counts)
            return mean, float(sizes @ (counts - mean) ** 2)

        # Above, all directions of T count as items of their own.
        solve_tilt(moments, float(expected_size), log_c, within=1e-10 * float(expected_size), least_variance=1e-12)
        return kernel

    def __getstate__(self) -> dict[str, Any]:
        self.coordinates  # noqa: B018  computed once, and not in every process
        return super().__getstate__()

    def __repr__(self) -> str:
        background = "" if self.background is None else ", background=…"
        return f"LowRankKernel(n_items={self.n_items}, rank={self.rank}{background})"

    @property
    def as_kernel(self) -> LowRankKernel:
        """This kernel."""
        return self

    @cached_property
    def low_rank(self) -> LowRankKernel:
        """The kernel of T, the items of a sample that come together: this kernel itself, if there is no background."""
        if self.background is None:
            return self
        known = {"coordinates": self._known["coordinates"]} if "coordinates" in self._known else {}
        return self._again(X=self._scaled, background=None, _sum=None, frame=ONE, _known=known)

    def without_background(self) -> LowRankKernel:
        """Return this kernel; raise if it has a background, for samplers that need L = X W Xᵀ."""
        if self.background is not None:
            raise InvalidInputError(
                "this needs a low-rank L = X W Xᵀ, and the kernel has a background. kernel.sample() and kernel.sampler() draw from it "
                "exactly; kernel.low_rank is the kernel of that part of its samples"
            )
        return self

    # -- hooks of Law --------------------------------------------------------------------------------------------------------

    @property
    def components(self) -> tuple[LowRankKernel]:
        """The kernel itself."""
        return (self,)

    def log_normalizers(self) -> FloatArray:
        """Return log det(I + L), as an array."""
        return np.array([self._log_unit])

    def log_normalizer(self, size: int | None = None) -> float:  # noqa: D102
        return super().log_normalizer(size) + (float(np.log(self.kept[0])) if self.nonempty else 0.0)

    def _too_large(self, size: int) -> ImpossibleSizeError:
        if self.background is not None:
            return super()._too_large(size)
        problem = f"no set is larger than the rank of the kernel, {self.rank}; size {size} was asked for"
        return ImpossibleSizeError(problem, advice="Larger sets need {background}." if size <= self.n_rows else "")

    @property
    def _log_unit(self) -> float:
        return self._log_alone + self.free_law().log_weight

    def _log_whole(self, baskets: Baskets) -> FloatArray:
        return self.log_dets(baskets)[:, None]

    def _log_whole_of(self, ids: IntArray) -> FloatArray:
        return np.array([self.log_det(ids)])

    @property
    def _scoring(self) -> KernelScoring:
        return KernelScoring(self)

    def _log_started(self, ids: IntArray, size: int | None) -> FloatArray:
        return np.array([self._log_mass(ids, size)])

    # -- files ---------------------------------------------------------------------------------------------------------------

    @property
    def format_version(self) -> int:  # type: ignore[override]
        """Backgrounds came with version 3."""
        return 1 if self.background is None else 3

    def _arrays(self) -> dict[str, Any]:
        arrays = {"X": self.X, "W": self.W, "support": self._allowed, "background": self.background}
        if not np.array_equal(self._magnitudes, entry_magnitudes(np.asarray(self.W, np.float64))):
            arrays["weights"] = self._magnitudes  # those of a conditional are those of its origin
        return arrays

    @classmethod
    def _from_arrays(cls, arrays: dict[str, Any], header: ModelHeader) -> LowRankKernel:
        W, magnitudes = arrays["W"], arrays.get("weights")
        if magnitudes is not None and W.shape == 2 * magnitudes.shape:
            own, is_used = entry_magnitudes(np.asarray(W, np.float64)), W.any(axis=0) | W.any(axis=1)
            too_large = (magnitudes > MAX_CANCELLATION * own) & is_used
            if too_large.any() or not (magnitudes > 0).all():
                raise InvalidInputError("its weights are not those of any kernel that W can have come from")
        options = {"support": arrays.get("support"), "background": arrays.get("background"), "labels": header.labels}
        return cls(arrays["X"], W, magnitudes=magnitudes, **options)

    # -- conditionals and restrictions ---------------------------------------------------------------------------------------

    def _tilt(self, ids: IntArray, factors: FloatArray | None) -> LowRankKernel:
        """Return the kernel with rows √s x and the background sδ, of the items that are left."""
        left = ids[self.can_occur(ids)]
        if factors is None:
            return self._with(self.W, left)
        s = np.ones(self.n_items)
        s[ids] = factors
        X = Multiplied(self.X, np.sqrt(s))
        return self._with(self.W, left, X=X if isinstance(self.X, Rows) else X.read(), factors=s)

    def _with_alike(self, alike: Sequence[Alike]) -> LowRankKernel:
        """Return the kernel with rows √o · mean of x/√o, and backgrounds o · mean of δ/o, o being the odds of the items a ∈ S."""
        shares = self.inclusion_probabilities().clip(max=CERTAIN)
        x, delta = np.zeros((len(alike), self.X.shape[1])), np.zeros(len(alike))
        for a, one in enumerate(alike):
            odds = shares[one.ids] / (1 - shares[one.ids])
            if odds.all():
                level = float(np.exp(one.mean(np.log(odds))))
                x[a] = np.sqrt(level) * one.row(take(self.X, one.ids) / np.sqrt(odds)[:, None])
                delta[a] = 0.0 if self.background is None else level * one.mean(self.background[one.ids] / odds)
        return self._with_rows(x, delta)

    def _with_rows(self, x: FloatArray, background: FloatArray) -> LowRankKernel:
        """Return the kernel with further rows, and backgrounds if it has any, of new items."""
        new = np.arange(self.n_items, self.n_items + len(x))
        X = Stacked([self.X, Multiplied(x)]) if isinstance(self.X, Rows) else np.concatenate([self.X, x])
        return LowRankKernel(
            X, self.W, magnitudes=self._magnitudes,
            support=None if self._allowed is None else np.concatenate([self._allowed, new]),
            background=None if self.background is None else np.concatenate([self.background, background]),
        )  # fmt: skip

    def _only_items(self, keep: IntArray) -> LowRankKernel:
        return LowRankKernel(
            SelectedRows(self.X, keep) if isinstance(self.X, Rows) else self.X[keep], self.W, magnitudes=self._magnitudes,
            support=np.flatnonzero(self.can_occur(keep)),
            background=None if self.background is None else self.background[keep],
        )  # fmt: skip

    def _condition(self, ids: IntArray) -> LowRankKernel:
        """Return the kernel L − L_{:,A} L_A⁻¹ L_{A,:} of the items other than A."""
        rows = self.rows_of(ids)
        if self.background is None:
            return self._condition_low_rank(rows)
        if len(rows) == self.n_rows:
            raise InvalidInputError("all items of the kernel are given; nothing is left to have a distribution")
        rest, tied = self.given_alone(ids)
        assert rest is not None
        if not len(tied):
            return rest
        if rest.background is None:
            return rest._condition(tied)
        # R does not matter to items without a background: only X W Xᵀ is conditioned.
        low_rank = LowRankKernel(rest.X, rest.W, support=rest._allowed, magnitudes=rest._magnitudes)._condition(tied)
        return rest._with(low_rank.W, low_rank.support, low_rank._magnitudes, X=low_rank.X)

    def _condition_low_rank(self, rows: IntArray) -> LowRankKernel:
        if self.log_det(self.catalogue_ids(rows)) == -np.inf:
            if tilted_law(self.coordinates, 1.0, self.q_rows(rows)).log_weight == -np.inf:
                raise never_together(len(rows))
            raise NoConditionalKernelError(
                f"items {self.catalogue_ids(rows).tolist()} can be part of a sample, but never all of it (det L_A = 0), "
                "so the rest has no kernel of its own. "
                "Pass them as given= to sample() or inclusion_probabilities() instead."
            )
        if len(rows) == self.n_rows:
            raise InvalidInputError("all items of the kernel are given; nothing is left to have a distribution")
        others = np.delete(self.support, rows)
        rest = self._condition_in_columns(rows, others)
        if rest is not None and rest._free_error < WARN_ERROR / 100:  # rounding is far from mattering
            return rest
        graded = self._condition_by_scale(rows, others)
        return graded if rest is None or graded._free_error < rest._free_error else rest

    def _condition_in_columns(self, rows: IntArray, others: IntArray) -> LowRankKernel | None:
        """Return the conditional X W' Xᵀ; None where rounding leaves W' too few digits."""
        W, magnitudes = condition_inner(np.asarray(self.W, np.float64), self.known_rows(rows))
        try:
            rest = self._with(W, others, np.maximum(self._magnitudes, magnitudes))
            is_sharp = rest.rank == self.rank - len(rows) and rest.coordinates.smallest > NEARLY_SINGULAR
        except InvalidKernelError:
            return None
        is_whole = self.unit_columns is not None  # a Schur complement of L itself has no other columns
        return rest if is_sharp or is_whole else None

    def _condition_by_scale(self, rows: IntArray, others: IntArray) -> LowRankKernel:
        """Return the same conditional with other columns, (X · to_q · G) W' (X · to_q · G)ᵀ, each with its own scale.

        In the columns of X, small directions would drown in the rounding errors of those that the given items take away.
        """
        if len(rows) == self.rank:
            return self._with(np.zeros_like(self.W), others, np.full(len(self.W), np.finfo(float).tiny))
        coords = self.coordinates
        remainder = eliminate(coords, self.q_rows(rows))
        if remainder is None or remainder.null.size:
            raise PrecisionError(
                f"items {self.catalogue_ids(rows).tolist()} are too close to never occurring together for double precision. "
                "Rescale X, or drop its smallest directions."
            )
        G, W, magnitudes = remainder.kernel(coords.noise)
        X = Multiplied(self.X, None, coords.to_q, G)
        return self._with(W, others, magnitudes, X=X if isinstance(self.X, Rows) else X.read())


def _is_valid(X: RealArray, W: RealArray | None, is_definite: bool) -> bool:
    """Return whether X W Xᵀ is certainly a kernel: W + Wᵀ is positive semidefinite, and no entry is near the limits of double precision.

    What is not certain is found out in orthonormal coordinates. Others wait for these until something needs them.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = [float(np.vdot(A, A)) for A in (X, W) if A is not None]
    if not all(SAFE_SQUARES[0] < total < SAFE_SQUARES[1] for total in squares):
        return False
    if W is None or is_definite:
        return True
    H = np.asarray(W, np.float64) + np.asarray(W, np.float64).T
    used = H.any(axis=1)
    if not (H.diagonal()[used] > 0).all():
        return False
    try:
        if np.count_nonzero(H) > np.count_nonzero(used):
            np.linalg.cholesky(H[np.ix_(used, used)])
    except np.linalg.LinAlgError:
        return False
    return True
