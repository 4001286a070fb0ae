"""The central type of the package: a low-rank kernel L = X W Xᵀ, P(S) ∝ det(L_S).

Conditionals and restrictions of a kernel have the same type. Everything is computed in orthonormal coordinates (:mod:`ndpp.linalg`), so
that only the first pass over X costs time in proportion to the number of items.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ndpp._lazy import load
from ndpp._types import AnyArray, FloatArray, IntArray, Items
from ndpp._validation import check_count, check_items, check_matrix, clip_probabilities, frozen
from ndpp.baskets import Baskets
from ndpp.baskets.labels import check_labels
from ndpp.errors import (
    ImpossibleSizeError,
    InvalidInputError,
    InvalidKernelError,
    NoConditionalKernelError,
    PrecisionError,
)
from ndpp.laws.base import Law
from ndpp.laws.precision import Judged, check_given, never_together, say_precision
from ndpp.linalg import entry_magnitudes, inclusion_matrix, log_elementary, tilted_law
from ndpp.linalg.scaling import quadratic_forms
from ndpp.linalg.schur import NEARLY_SINGULAR, condition_inner, eliminate, judged_minor
from ndpp.rows import Rows, as_rows
from ndpp.rows.scaled import Turned

WITH_BACKGROUND = "ndpp.laws.background:BackgroundKernel"
"""The class of kernels with a background, which builds on this one."""
LOG_PROBS = "ndpp.laws.batched:log_probs"
"""Many sets at once: builds on this module, too."""


@dataclass(frozen=True, eq=False, init=False, repr=False)
class LowRankKernel(Judged, Law):
    """A nonsymmetric DPP over n items, P(S) ∝ det(L_S), L = X W Xᵀ, with L + Lᵀ positive semidefinite.

    Parameters
    ----------
    X : (n, d) array_like or row source
        One row per item, float32 or float64. X is not copied, since it may be most of memory: do not change it while the kernel is in use,
        or pass a copy. The kernel's view of it is read-only; a change is noticed in small catalogues, and in stores where rows are
        fetched. A memory map, an HDF5 or Zarr array, a dask array or your own store (:class:`ndpp.rows.RowSource`) is not loaded:
        preparing a kernel reads it in blocks, and sampling fetches single rows.
    W : (d, d) array_like
        The inner matrix, which is copied.
    labels : sequence of str, optional
        The label of each item.
    support : sequence of int, optional
        The only items that can occur; X still has one row per item of the catalogue.
    magnitudes : (d,) array_like, optional
        Magnitudes of the rows and columns of W that rounding is judged against. A conditional keeps those of the kernel it came from.
    background : (n,) array_like, optional
        Odds δ ≥ 0 of each item to come by itself: L = diag(δ) + X W Xᵀ. Samples may then be larger than the rank; see
        :class:`~ndpp.laws.background.BackgroundKernel`, which is what is returned.

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
    """

    X: Any
    W: FloatArray
    labels: tuple[str, ...] | None
    _allowed: IntArray | None
    _magnitudes: FloatArray
    _normalizers: dict[int, tuple[float, float]]
    background: ClassVar[FloatArray | None] = None
    _sampler = "ndpp.samplers.exact:Exact"

    def __new__(cls, *args: Any, background: Any = None, **kwargs: Any) -> LowRankKernel:
        """Choose the class: a background makes another one."""
        kind: type[LowRankKernel] = cls if background is None else load(WITH_BACKGROUND)
        return object.__new__(kind)

    def __init__(
        self,
        X: Any,
        W: Any,
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
        rows = as_rows(X)
        X = check_matrix(X, "X") if rows is None else rows
        n, d = X.shape
        if n == 0 or d == 0:
            raise InvalidKernelError(f"X must have at least one item and one column; its shape is {X.shape}")
        W = check_matrix(W, "W", shape=(d, d))
        allowed = None if support is None else np.sort(check_items(support, n, "support"))
        if allowed is not None and allowed.size == 0:
            raise InvalidInputError("at least one item must be able to occur; none is left")
        names = check_labels(labels)
        if names is not None and len(names) != n:
            raise InvalidInputError(f"labels must be {n} names, one per row of X; got {len(names)}")
        if magnitudes is None:
            magnitudes = entry_magnitudes(np.asarray(W, np.float64))
        else:
            magnitudes = check_matrix([magnitudes], "magnitudes", shape=(1, d))[0]
        values: dict[str, Any] = {
            "X": frozen(X) if rows is None else rows, "W": frozen(np.array(W)), "labels": names,
            "_allowed": None if allowed is None or len(allowed) == n else frozen(allowed), "_magnitudes": magnitudes, "_normalizers": {},
        }  # fmt: skip
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self.ties.coordinates  # noqa: B018  raises if the kernel is invalid

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

    def __repr__(self) -> str:
        return f"LowRankKernel(n_items={self.n_items}, rank={self.rank})"

    @property
    def rank(self) -> int:
        """Rank of X W Xᵀ."""
        return self.coordinates.rank

    @property
    def max_size(self) -> int:
        """No sample is larger: the rank, if there is no background."""
        return self.rank

    @property
    def ties(self) -> LowRankKernel:
        """The low-rank part of a sample: this kernel itself, if there is no background."""
        return self

    # -- probabilities -------------------------------------------------------------------------------------------------------

    def log_det(self, items: Items) -> float:
        """Return log det(L_S), −inf if it is zero. O(k²r + kr²)."""
        ids = check_items(items, self)
        if not self.can_occur(ids).all():
            return -np.inf
        value, error = self._log_det(ids)
        say_precision(error, f"the probabilities of {len(ids)} items")
        return value

    def _log_det(self, ids: IntArray) -> tuple[float, float]:
        return judged_minor(self.known_rows(self.rows_of(ids)), self.W, magnitudes=self._magnitudes)

    def is_possible(self, rows: IntArray) -> bool:
        """Return whether det L_S > 0 up to rounding, for a set S of rows of the support: whatever the scale of L."""
        return self._log_det(self.catalogue_ids(rows))[0] > -np.inf

    def log_normalizer(self, size: int | None = None) -> float:
        """Return log Σ_S det(L_S) over all sets, log det(I + L), or over sets of one size, log e_k (−inf if none can occur)."""
        if size is None:
            return self._log_alone + self.ties.free_law().log_weight
        value, error = self._log_elementary(check_count(size, "size"))
        say_precision(error, f"log e_{size}")
        return value

    @property
    def _log_alone(self) -> float:
        """The logarithm of the weight of all sets of items that come by themselves."""
        return 0.0

    def log_mass(self, items: Items = (), size: int | None = None) -> float:
        """Return log Σ det(L_S) over the sets that contain these items, of any size or of one; −inf where there is none."""
        ids = check_items(items, self)
        if not self.can_occur(ids).all():
            return -np.inf
        q = self.q_rows(self.rows_of(ids))
        if size is None:
            return self.free_law(q).log_weight
        value, error = self._log_elementary(size, q)
        say_precision(error, f"sets of size {size}")
        return value

    def _log_elementary(self, size: int, given: FloatArray | None = None) -> tuple[float, float]:
        if given is not None and len(given):
            return log_elementary(self.coordinates, size, given)
        if size not in self._normalizers:
            self._normalizers[size] = log_elementary(self.coordinates, size)
        return self._normalizers[size]

    def log_prob(self, items: Items, size: int | None = None) -> float:
        """Return log P(S), or with ``size`` log P(S | |S| = size)."""
        ids = check_items(items, self)
        if size is not None:
            self.check_size(size)
            if len(ids) != size:
                return -np.inf
        log_det = self.log_det(ids)
        return log_det - self.log_normalizer(size) if log_det > -np.inf else -np.inf

    def log_probs(self, baskets: Baskets) -> FloatArray:
        """Return log P(S) of many sets."""
        return np.asarray(load(LOG_PROBS)(self, baskets))

    def size_distribution(self) -> FloatArray:
        """Return P(|S| = k) for k = 0..rank."""
        return self.free_law().law.copy()

    def inclusion_probabilities(self, size: int | None = None, given: Items = ()) -> FloatArray:
        """Return P(a ∈ S) for every item of the catalogue, given that S contains some items and, with ``size``, given its size.

        ``size`` includes the given items, which have probability one. O(n r²), plus O(r⁴) for a size.
        """
        rows = self.rows_of(given, "given")
        M = self._inclusion_matrix(size, self.q_rows(rows))
        out = np.zeros(self.n_items)
        for block, chances in self.q_map(partial(quadratic_forms, M=M)):
            out[block if self._allowed is None else self._allowed[block]] = chances
        out[self.catalogue_ids(rows)] = 1.0
        return clip_probabilities(out, "inclusion probabilities")

    def _inclusion_matrix(self, size: int | None, given: FloatArray) -> FloatArray:
        if size is None:
            law = self.free_law(given, factor=10.0)  # a probability is a derivative of log det, with a larger error
            if law.log_weight == -np.inf:
                raise never_together(len(given))
            return law.marginal
        self.check_size(size, given=given)
        if size == len(given):
            return np.zeros_like(self.coordinates.B)
        return inclusion_matrix(self.coordinates, size, given)[0]

    # -- as a mixture of one component ----------------------------------------------------------------------------------------

    @property
    def weights(self) -> FloatArray:
        """The weight of its one component."""
        return np.ones(1)

    @property
    def names(self) -> None:
        """Its one component has no name."""
        return None

    def component_inclusions(self) -> FloatArray:
        """Return P(a ∈ S) of the one component, shape (1, n_items)."""
        return self.inclusion_probabilities()[None]

    def responsibilities(self, items: Items, *, whole: bool = False, size: int | None = None) -> FloatArray:
        """Return the posterior of the one component."""
        return np.ones(1)

    def mean_covariances(self, first: IntArray, second: IntArray) -> FloatArray:
        """Return Cov(a ∈ S, b ∈ S) = −K_ab K_ba for two lists of items, a ≠ b; zero for items that never occur."""
        out, at = np.zeros((len(first), len(second))), [self.can_occur(items) for items in (first, second)]
        rows = [items[possible] for items, possible in zip((first, second), at)]
        q, other = (self.ties.q_rows(self.rows_of(items)) for items in rows)
        R = tilted_law(self.ties.coordinates, 1.0).marginal
        covariance = -((q @ R) @ other.T) * ((q @ R.T) @ other.T)
        if self.background is not None:  # K_ab = √((1 − p_a)(1 − p_b)) q_a R q_b
            covariance /= np.outer(*(1 + self.background[items] for items in rows))
        out[np.ix_(*at)] = covariance
        return out

    def check_size(self, size: int, *, given: FloatArray | None = None) -> int:
        """Return ``size`` if some set of that size contains the items with rows ``given`` of Q; raise otherwise."""
        n_given = 0 if given is None else len(given)
        size = check_given(size, n_given)
        if size > self.rank:
            self.log_normalizer(size)  # raises where the rank is uncertain
            raise ImpossibleSizeError(
                f"no set is larger than the rank of the kernel, {self.rank}; size {size} was asked for"
            )
        if given is not None and tilted_law(self.coordinates, 1.0, given).log_weight == -np.inf:
            self.check_precision()
            raise never_together(n_given)
        value, error = self._log_elementary(size, given)
        say_precision(error, f"sets of size {size}")
        if value == -np.inf:
            odd = " (a purely skew kernel has sets of even size only)" if size % 2 else ""
            among = f" that contain the {n_given} given items" if n_given else ""
            raise ImpossibleSizeError(
                f"sets of size {size}{among} have probability zero{odd}; choose another size, see kernel.size_distribution()"
            )
        return size

    # -- conditionals and restrictions -------------------------------------------------------------------------------------------------

    def condition(self, items: Items) -> LowRankKernel:
        """Return the kernel of the remaining items of a sample that contains these: L − L_{:,A} L_A⁻¹ L_{A,:} on the others.

        Raises
        ------
        ZeroProbabilityError
            The items never occur together.
        NoConditionalKernelError
            They do, but det L_A = 0, so the remaining items are not an L-ensemble; use ``given=`` instead.
        """
        rows = self.rows_of(items)
        return self._given(rows) if len(rows) else self

    def _given(self, rows: IntArray) -> LowRankKernel:
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
        if rest is not None and rest.is_precise:
            return rest
        graded = self._condition_by_scale(rows, others)
        return graded if rest is None or graded.is_more_precise_than(rest) else rest

    def _condition_in_columns(self, rows: IntArray, others: IntArray) -> LowRankKernel | None:
        """Return the conditional X W' Xᵀ; None where rounding leaves W' too few digits."""
        W, magnitudes = condition_inner(np.asarray(self.W, np.float64), self.known_rows(rows))
        try:
            rest = self._with(W, others, np.maximum(self._magnitudes, magnitudes))
        except InvalidKernelError:
            return None
        is_sharp = rest.rank == self.rank - len(rows) and rest.coordinates.smallest > NEARLY_SINGULAR
        return rest if is_sharp else None

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
        X = Turned(self.X, coords.to_q, G)
        return self._with(W, others, magnitudes, X=X if isinstance(self.X, Rows) else X.read())

    def restrict(self, items: Items) -> LowRankKernel:
        """Return the kernel in which only these items can occur; ids stay those of the catalogue."""
        ids = check_items(items, self)
        return self._with(self.W, ids[self.can_occur(ids)])

    def exclude(self, items: Items) -> LowRankKernel:
        """Return the kernel in which these items cannot occur; ids stay those of the catalogue."""
        ids = check_items(items, self)
        return self._with(self.W, np.delete(self.support, self.rows_of(ids[self.can_occur(ids)])))

    def _with(
        self, W: AnyArray, support: IntArray, magnitudes: FloatArray | None = None, *, X: Any = None
    ) -> LowRankKernel:
        X, magnitudes = (self.X if X is None else X), (self._magnitudes if magnitudes is None else magnitudes)
        odds = self.background if self.background is not None and self.background[support].any() else None
        return LowRankKernel(X, W, labels=self.labels, support=support, magnitudes=magnitudes, background=odds)
