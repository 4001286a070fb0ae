"""The matrix L_ij = f(x_i, x_j) of a kernel function on points, of which single columns and blocks are evaluated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ndpp._stop import look
from ndpp._types import AnyArray, FloatArray, IntArray
from ndpp._validation import plain_array
from ndpp.baskets.labels import check_labels
from ndpp.errors import InvalidInputError, InvalidKernelError
from ndpp.laws.catalogue import Catalogue
from ndpp.linalg.scaling import EPS

KernelLike = Callable[[Any, Any], Any]
"""f(A, B): the matrix of the values for all points of A and of B."""
CHECKED = 256
"""Points whose matrix is evaluated to check the function, and at a time for the diagonal if nothing gives it."""
RESIDUAL = 1e-13
"""A residual below this part of the largest diagonal entry is nothing but rounding, and counts as zero."""


@dataclass(frozen=True, eq=False)
class PointKernel(Catalogue):
    """L, by its function: f(x_i, x_j) off the diagonal, ``diagonal`` on it."""

    function: KernelLike = field(kw_only=True, repr=False)
    points: Any = field(kw_only=True, repr=False)
    diagonal: FloatArray = field(kw_only=True, repr=False)
    nonempty: ClassVar[bool] = False

    @classmethod
    def of(cls, function: KernelLike, points: Any, diagonal: Any, labels: Any) -> PointKernel:
        """Check the arguments and some values, and evaluate the diagonal if it is not given."""
        if not callable(function):
            raise InvalidInputError(
                f"must be a function of two arrays of points; got {function!r}", argument="function"
            )
        if not hasattr(points, "shape") or hasattr(points, "iloc"):  # rows of a data frame are not points[rows]
            points = np.asarray(points)
        if not points.shape or not points.shape[0]:
            raise InvalidInputError(
                f"must be an array of points, one per row; its shape is {points.shape}", argument="points"
            )
        n = int(points.shape[0])
        labels = check_labels(labels, n)
        if diagonal is None and (of_points := getattr(function, "diag", None)) is not None:
            diagonal = of_points(points)
        if diagonal is None:
            blocks = [np.arange(i, min(i + CHECKED, n)) for i in range(0, n, CHECKED)]
            diagonal = np.concatenate([np.diagonal(_values(function, points, rows, rows)) for rows in blocks])
        diagonal = np.array(plain_array(diagonal, "diagonal"), np.float64)
        if diagonal.shape != (n,) or not np.isfinite(diagonal).all() or diagonal.min() < 0:
            raise InvalidKernelError(
                f"the diagonal must be {n} finite numbers ≥ 0, f(x, x) of every point; its shape is {diagonal.shape}, its least "
                f"entry {diagonal.min(initial=np.inf):.3g}. The function must be positive semidefinite."
            )
        kernel = cls(n, labels, function=function, points=points, diagonal=diagonal)
        kernel.block(np.arange(min(n, CHECKED)))
        return kernel

    def block(self, rows: IntArray) -> FloatArray:
        """Return L for these distinct rows, checked to be symmetric and within |L_ij| ≤ √(L_ii L_jj)."""
        found = _values(self.function, self.points, rows, rows)
        root, allowed = np.sqrt(self.diagonal[rows]), tolerance_of(found)
        L = np.array(found, np.float64)
        np.fill_diagonal(L, self.diagonal[rows])
        bound = np.multiply.outer(root, root)
        if (bad := np.abs(L - L.T) > allowed * bound).any():
            i, j = np.argwhere(bad)[0]
            raise InvalidKernelError(
                f"the function is not symmetric: f(x, y) is {L[i, j]:.9g} and f(y, x) is {L[j, i]:.9g} for the points "
                f"{rows[i]} and {rows[j]}. Samples of a function need a symmetric one; pass a nonsymmetric matrix to LowRankKernel."
            )
        if (bad := np.abs(L) > (1 + allowed) * bound).any():
            i, j = np.argwhere(bad)[0]
            raise not_definite(
                f"f is {L[i, j]:.6g} for the points {rows[i]} and {rows[j]}, above √(f(x, x) f(y, y)) = {bound[i, j]:.6g}"
            )
        return (L + L.T) / 2


@dataclass(frozen=True, eq=False)
class Pivoted:
    """A pivoted Cholesky decomposition L = FᵀF + E, E ⪰ 0, up to some rank.

    ``residual`` is the diagonal of E, ``noise`` its rounding, and ``last`` what the last row of F took of its sum.
    """

    F: FloatArray
    residual: FloatArray
    noise: float
    last: float = 0.0
    is_complete: bool = False

    @classmethod
    def begin(cls, kernel: PointKernel) -> Pivoted:
        """Return the decomposition of rank zero."""
        return cls(np.empty((0, kernel.n_items)), kernel.diagonal, RESIDUAL * float(kernel.diagonal.max()))

    def extended(self, kernel: PointKernel, rank: int) -> Pivoted:
        """Return the decomposition of this rank, or less if E is zero before: each pivot is the point with the largest E_ii. O(n rank²)."""
        F, e, noise = np.empty((rank, kernel.n_items)), self.residual.copy(), self.noise
        m, F[: len(self.F)], last = len(self.F), self.F, self.last
        while m < rank and e.max() > noise:
            look()
            pivot = int(np.argmax(e))
            found = _values(kernel.function, kernel.points, np.arange(kernel.n_items), np.array([pivot]))
            allowed, column = tolerance_of(found), np.array(found[:, 0], np.float64)
            column[pivot] = kernel.diagonal[pivot]
            F[m] = (column - F[:m, pivot] @ F[:m]) / np.sqrt(e[pivot])
            e -= F[m] ** 2
            if (bad := e < -allowed * kernel.diagonal).any():
                i = int(np.argmax(bad))
                raise not_definite(
                    f"given {m} points, the matrix of the points {pivot} and {i} has a negative determinant"
                )
            noise = max(
                noise, RESIDUAL * (allowed / np.sqrt(EPS)) ** 2 * float(kernel.diagonal.max())
            )  # in single precision, too
            np.maximum(e, 0.0, out=e)
            e[pivot] = 0.0
            last, m = float(F[m] @ F[m]), m + 1
        is_complete = not e.max() > noise
        return Pivoted(F[:m], np.zeros_like(e) if is_complete else e, noise, last, is_complete)


def tolerance_of(found: AnyArray) -> float:
    """Return half of the digits of what a function returned."""
    return float(np.sqrt(np.finfo(found.dtype).eps)) if found.dtype.kind == "f" else float(np.sqrt(EPS))


def not_definite(what: str) -> InvalidKernelError:
    """Return the error for a function that has shown that it is not positive semidefinite."""
    return InvalidKernelError(
        f"the function is not positive semidefinite: {what}. Use a positive semidefinite function, such as a Gaussian or Matérn kernel; "
        "a diagonal of your own must not be below f(x, x)."
    )


def _values(function: KernelLike, points: Any, rows: IntArray, columns: IntArray) -> AnyArray:
    """Return f of these points, checked for its shape and for finite entries."""
    whole = len(rows) == points.shape[0]
    found = np.asarray(
        plain_array(function(points if whole else points[rows], points[columns]), "what the function returns")
    )
    wanted = (len(rows), len(columns))
    if found.shape != wanted or found.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"must return a matrix of real numbers of shape {wanted} for {wanted[0]} and {wanted[1]} points; it returned one of shape "
            f"{found.shape} and type {found.dtype}. It takes two arrays of points, as sklearn.metrics.pairwise.rbf_kernel does.",
            argument="function",
        )
    if not np.isfinite(found.sum()) and (bad := np.argwhere(~np.isfinite(found))).size:
        i, j = bad[0]
        raise InvalidInputError(
            f"must be finite; it is {found[i, j]} for the points {rows[i]} and {columns[j]}", argument="function"
        )
    return found
