"""Features of points whose inner products approximate a similarity, so that kernels of many points need no n × n matrix.

:func:`fourier` has random Fourier features; :func:`nystroem` and :func:`pivoted_cholesky` have the columns of some points. What these two
miss is positive semidefinite, and its diagonal is known: as the ``background`` of a kernel it makes the diagonal of L exact. Only the
residual between different points is missing, and ``error`` bounds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as sl

from ndpp._types import FloatArray, IntArray, RngLike
from ndpp._validation import check_choice, check_count, check_matrix, plain_array
from ndpp.errors import InvalidInputError
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.factor import row_blocks

CHANCE = 0.05
"""With at most this probability, an entry of random Fourier features is off by more than ``error``."""


class Features(NamedTuple):
    """What the functions of this module return.

    ``F`` (n, rank) are the features; ``residual`` (n,) is the diagonal of what F Fᵀ misses, zero for random features; ``error`` says how
    far an entry of F Fᵀ is from that of the similarity, between two different points; ``points`` are those whose columns were used.
    """

    F: FloatArray
    residual: FloatArray
    error: float
    points: IntArray | None = None

    def kernel(
        self, quality: Any = None, *, expected_size: float | None = None, labels: Any = None, background: bool = True
    ) -> LowRankKernel:
        """Return the kernel L_ij = q_i q_j (F Fᵀ)_ij, its residual diagonal q_i² residual_i as background, unless ``background=False``.

        Parameters as in :meth:`ndpp.LowRankKernel.from_features`.
        """
        kernel = LowRankKernel.from_features(self.F, quality, labels=labels)
        if background and self.residual.any():
            factors = (
                np.ones(len(self.F)) if quality is None else np.asarray(plain_array(quality, "quality"), np.float64)
            )
            kernel = LowRankKernel(kernel.X, labels=labels, background=factors**2 * self.residual)
        return kernel if expected_size is None else kernel.rescale(expected_size)


def fourier(points: Any, rank: int, *, gamma: float | None = None, rng: RngLike = None) -> Features:
    """Return random Fourier features of the Gaussian similarity exp(−γ ‖x − y‖²) [Rahimi & Recht, NeurIPS 2007].

    Pairs √(2/rank) (cos ωᵀx, sin ωᵀx) with normal ω of variance 2γ: unbiased, and exactly one on the diagonal. ``error`` is
    √(4 log(2/0.05)/rank), which an entry exceeds with probability 5 % at most (Hoeffding's inequality for rank/2 cosines). O(n d rank).

    Parameters
    ----------
    points : (n, d) array_like
        One point per item.
    rank : int
        Number of features, even.
    gamma : float, optional
        γ > 0, by default 1/d.
    rng : anything ``numpy.random.default_rng`` takes
        The seed.

    Examples
    --------
    >>> found = fourier(np.random.default_rng(0).standard_normal((100, 3)), 64, rng=0)
    >>> found.F.shape, bool(np.allclose((found.F**2).sum(axis=1), 1)), round(found.error, 2)
    ((100, 64), True, 0.48)
    """
    x, gamma = _checked(points, gamma)
    check_count(rank, "rank", least=2)
    if rank % 2:
        raise InvalidInputError(f"must be even: features are pairs of cosines and sines; got {rank}", argument="rank")
    angles = x @ (np.sqrt(2 * gamma) * np.random.default_rng(rng).standard_normal((x.shape[1], rank // 2)))
    F = np.sqrt(2 / rank) * np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    return Features(F, np.zeros(len(x)), float(np.sqrt(4 * np.log(2 / CHANCE) / rank)))


def nystroem(
    points: Any, rank: int, *, kernel: str = "rbf", gamma: float | None = None, rng: RngLike = None
) -> Features:
    """Return the Nyström features of a similarity, from the columns of ``rank`` random points [Williams & Seeger, NeurIPS 2001].

    F Fᵀ is K from all points to the chosen ones, times its inverse on those, times K back to all points, and K − F Fᵀ is positive
    semidefinite. An entry of it is at most the geometric mean of two of its diagonal, so that ``error`` is the product of the two largest
    square roots of ``residual``. O(n rank (d + rank)).

    Parameters
    ----------
    points : (n, d) array_like
        One point per item.
    rank : int
        Number of points whose columns are used; F has fewer columns if these depend on each other.
    kernel : {"rbf", "laplacian", "linear"}
        exp(−γ ‖x − y‖²), exp(−γ ‖x − y‖₁) or xᵀy.
    gamma : float, optional
        γ > 0, by default 1/d.
    rng : anything ``numpy.random.default_rng`` takes
        The seed.

    Examples
    --------
    >>> points = np.random.default_rng(0).standard_normal((500, 2))
    >>> found = nystroem(points, 60, rng=0)
    >>> kernel = found.kernel(expected_size=10)
    >>> kernel.n_items, len(kernel.sample(1, size=5, rng=0)[0])
    (500, 5)
    """
    x, gamma = _checked(points, gamma)
    check_choice(kernel, "kernel", list(SIMILARITIES))
    check_count(rank, "rank", least=1, most=len(x))
    chosen = np.sort(np.random.default_rng(rng).choice(len(x), rank, replace=False))
    values, V = sl.eigh(_similarity(x[chosen], x[chosen], kernel, gamma))
    kept = values > len(chosen) * np.finfo(float).eps * max(float(values[-1]), 0.0)
    root = V[:, kept] / np.sqrt(values[kept])
    F = np.empty((len(x), root.shape[1]))
    for block in _blocks(x, rank):
        F[block] = _similarity(x[block], x[chosen], kernel, gamma) @ root
    return _with_residual(F, x, kernel, gamma, chosen)


def pivoted_cholesky(
    points: Any, rank: int, *, kernel: str = "rbf", gamma: float | None = None, tolerance: float = 0.0
) -> Features:
    """Return the first columns of a pivoted Cholesky factor of a similarity: each time those of the point with the largest residual.

    This is the greedy choice of points of :func:`nystroem`, without randomness [Harbrecht, Peters & Schneider, Appl. Numer. Math. 2012],
    and ``error`` means the same. It ends earlier if no residual is above ``tolerance``. O(n rank (d + rank)).

    Parameters
    ----------
    points, rank, kernel, gamma
        As in :func:`nystroem`; at most ``rank`` columns.
    tolerance : float
        Largest residual that counts as zero, beside rounding.

    Examples
    --------
    >>> points = np.random.default_rng(0).standard_normal((500, 2))
    >>> found = pivoted_cholesky(points, 60, tolerance=1e-3)
    >>> found.F.shape[1] < 60, bool(found.residual.max() <= 1e-3)
    (True, True)
    """
    x, gamma = _checked(points, gamma)
    check_choice(kernel, "kernel", list(SIMILARITIES))
    check_count(rank, "rank", least=1, most=len(x))
    left = _own(x, kernel)
    least = max(float(tolerance), len(x) * np.finfo(float).eps * float(left.max()))
    F, chosen = np.zeros((rank, len(x))), list[int]()
    while len(chosen) < rank and left.max() > least:
        j, best = len(chosen), int(np.argmax(left))
        column = _similarity(x[best : best + 1], x, kernel, gamma)[0] - F[:j, best] @ F[:j]
        F[j] = column / np.sqrt(left[best])
        left = np.maximum(left - F[j] ** 2, 0.0)
        left[best] = 0.0
        chosen.append(best)
    F = np.ascontiguousarray(F[: max(len(chosen), 1)].T)
    return _with_residual(F, x, kernel, gamma, np.array(chosen, np.int64))


def _checked(points: Any, gamma: float | None) -> tuple[FloatArray, float]:
    x = check_matrix(plain_array(points, "points"), "points").astype(np.float64)
    if 0 in x.shape:
        raise InvalidInputError(f"points must have at least one row and one column; its shape is {x.shape}")
    gamma = 1 / x.shape[1] if gamma is None else gamma
    if not (isinstance(gamma, (int, float, np.number)) and 0 < gamma < np.inf):
        raise InvalidInputError(f"must be a number above 0; got {gamma!r}", argument="gamma")
    return x, float(gamma)


def _rbf(x: FloatArray, y: FloatArray, gamma: float) -> FloatArray:
    squares = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1) - 2 * (x @ y.T)
    return np.asarray(np.exp(-gamma * np.maximum(squares, 0.0)))


def _laplacian(x: FloatArray, y: FloatArray, gamma: float) -> FloatArray:
    distance = np.zeros((len(x), len(y)))
    for a, b in zip(x.T, y.T):
        distance += np.abs(a[:, None] - b)
    return np.asarray(np.exp(-gamma * distance))


SIMILARITIES: dict[str, Callable[[FloatArray, FloatArray, float], FloatArray]] = {
    "rbf": _rbf,
    "laplacian": _laplacian,
    "linear": lambda x, y, gamma: x @ y.T,
}


def _similarity(x: FloatArray, y: FloatArray, kernel: str, gamma: float) -> FloatArray:
    return np.asarray(SIMILARITIES[kernel](x, y, gamma))


def _own(x: FloatArray, kernel: str) -> FloatArray:
    """Return the diagonal of the similarity."""
    return np.einsum("ij,ij->i", x, x) if kernel == "linear" else np.ones(len(x))


def _blocks(x: FloatArray, width: int) -> Any:
    return row_blocks(np.broadcast_to(0.0, (len(x), max(width, x.shape[1]))))


def _with_residual(F: FloatArray, x: FloatArray, kernel: str, gamma: float, chosen: IntArray) -> Features:
    """Return features with what they miss on the diagonal; none of it at the points whose columns were used."""
    residual = np.maximum(_own(x, kernel) - np.einsum("ij,ij->i", F, F), 0.0)
    residual[residual <= 8 * F.shape[1] * np.finfo(float).eps * _own(x, kernel)] = 0.0
    largest = np.sort(residual)[-2:]
    return Features(F, residual, float(np.sqrt(largest.prod())) if len(largest) == 2 else 0.0, chosen)
