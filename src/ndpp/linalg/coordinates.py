"""Orthonormal coordinates: L = X W Xᵀ = Q B Qᵀ with QᵀQ = I. Everything about L is then a property of the small matrix B.

X = Q T (:mod:`ndpp.linalg.factor`) and B = T W Tᵀ. Q = X·to_q is a product with X, so equal rows of X give equal rows of Q and small
rows keep their digits. Cost O(n d²) time, and O(d²) memory in addition to X and one row block.

A symmetric B is diagonalised, once, where its eigenvectors lose no digits that matter: resolvents, sizes and inclusion probabilities are
then functions of its eigenvalues. The rows of X of a dense kernel are rows of the identity, L is a part of W, and nothing is factored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.linalg as sl
from scipy.linalg.blas import dtrmm, strmm

from ndpp._memory import n_bytes_of
from ndpp._types import FloatArray, IntArray, RealArray
from ndpp.errors import InvalidKernelError, NDPPError
from ndpp.linalg.factor import UNEVEN_WEIGHTS, cached_blocks, factor
from ndpp.linalg.scaling import EPS, congruence, entry_magnitudes, is_symmetric, unit_columns, used_columns
from ndpp.rows import Rows

DENSE_ENTRIES = 4_000_000
"""If X has at most this many entries, Q is formed and kept (32 MB)."""
SMALL = 64
"""Up to this order, a symmetric L of any spectrum counts as a product of factors."""
MOST_SPREAD = 1e5
"""A symmetric B is diagonalised if its eigenvalues differ by at most this factor: these have at least eleven digits then."""
MAX_SLACK = 0.03
"""Single precision is used if raising the leverages by this fraction is enough."""
SINGLE_RANGE = 1e-30, 1e30
"""Squares outside this range are too close to the limits of single precision."""


class Core(NamedTuple):
    """B before directions were dropped as rounding, each with its scale and its noise: what errors are estimated from.

    Rounding changes B by |δB_ij| ≤ scale_i · scale_j · (noise_i + noise_j + 16 ε).
    """

    B: FloatArray
    scale: FloatArray
    noise: FloatArray

    @property
    def rank(self) -> int:
        """Number of directions."""
        return len(self.B)


@dataclass(frozen=True)
class Coordinates:
    """L = Q B Qᵀ, Q = X · to_q.

    Attributes
    ----------
    to_q : (d, r) array
        Turns rows of X into rows of Q.
    B : (r, r) array
        The kernel in these coordinates.
    leverage : (n,) array
        ‖q_a‖², an upper bound on every inclusion probability of item a, whatever the size and the given items. For a tall X in single
        precision it is up to 3 % too large, which is harmless: it is only used as a bound.
    scale : (r,) array
        Magnitude of each direction: |B_ij| ≤ scale_i · scale_j. Directions may differ by many orders of magnitude.
    noise : (r,) array
        Relative rounding error that the factorisation of X leaves in each direction.
    excess : (r,) array
        Cancellation: the terms that B_ij is a sum of are up to |B_ij| · excess_i · excess_j, and rounding is judged by them.
    core : Core
        B with the directions that were dropped because rounding explains them. They count as errors.
    blur : (d,) array
        Rounding error of the rows of to_q: it leaves an error of |x_a| · blur in a row q_a, which matters where large terms cancel.
    smallest : float
        Smallest singular value of B, each entry divided by the magnitude of the terms it is a sum of.
    Q : (n, r) array or None
        Kept for small catalogues.
    eigenvalues : (r,) array or None
        The diagonal of B, ascending, if B is diagonal.
    """

    to_q: FloatArray
    B: FloatArray
    leverage: FloatArray
    scale: FloatArray
    noise: FloatArray
    excess: FloatArray
    core: Core
    blur: FloatArray
    smallest: float
    Q: FloatArray | None
    eigenvalues: FloatArray | None = None

    @property
    def n_bytes(self) -> int:
        """Bytes of the large arrays."""
        return n_bytes_of((self.to_q, self.B, self.leverage, self.Q, *self.core))

    @property
    def rank(self) -> int:
        """Number of directions r."""
        return len(self.B)

    @property
    def is_symmetric(self) -> bool:
        """Whether B is symmetric, to the last bit."""
        return self.eigenvalues is not None or np.array_equal(self.B, self.B.T)


def coordinates(X: RealArray | Rows, W: RealArray, *, magnitudes: FloatArray | None = None) -> Coordinates:
    """Return the coordinates of L = X W Xᵀ; raise if its symmetric part is not positive semidefinite, or if L overflows.

    ``magnitudes`` are the :func:`~ndpp.linalg.scaling.entry_magnitudes` that rounding is judged against. A conditional passes those of the
    kernel that its W was computed from; by default they are those of W.
    """
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            found = _of_used_columns(X, W, magnitudes)
            if np.isfinite(found.B).all():
                return found
    except NDPPError:
        raise
    except ValueError:  # SciPy's, about what has overflowed
        pass
    raise InvalidKernelError(
        "the entries of L = X W Xᵀ must be within double precision; those of X and W are too large or too small. Rescale them: "
        "L stays the same if X is multiplied by a number and W is divided by its square."
    )


def _of_used_columns(X: RealArray | Rows, W: RealArray, magnitudes: FloatArray | None) -> Coordinates:
    """Return the coordinates without the columns of X that W does not use, so that their rounding does not matter."""
    used = used_columns(W)
    if isinstance(X, Rows) or not 0 < len(used) < len(W) or unit_columns(X) is not None:
        return _coordinates(X, W, magnitudes)
    found = _coordinates(X[:, used], W[np.ix_(used, used)], None if magnitudes is None else magnitudes[used])
    to_q, blur = np.zeros((len(W), found.rank)), np.zeros(len(W))
    to_q[used], blur[used] = found.to_q, found.blur
    return replace(found, to_q=to_q, blur=blur)


def _coordinates(X: RealArray | Rows, W: RealArray, magnitudes: FloatArray | None) -> Coordinates:
    columns = unit_columns(X)
    dense = columns is not None or (X.size <= DENSE_ENTRIES and not (isinstance(X, Rows) and X.is_shared))
    if dense and isinstance(X, Rows):
        X = X.read()
    W64 = np.asarray(W, np.float64)
    of_x, of_w = (float(np.finfo(a.dtype).eps) for a in (X, np.asarray(W)))
    magnitudes = entry_magnitudes(W64) if magnitudes is None else magnitudes
    symmetric = is_symmetric(W64, magnitudes)
    is_large = 2 * max(float(W64.max(initial=0.0)), -float(W64.min(initial=0.0))) == np.inf  # refused below
    if symmetric and (is_large or not np.array_equal(W64, W64.T)):
        W64 = (W64 + W64.T) / 2
    # Rounding of the entries of W moves an eigenvalue by up to d of them; that of X hardly matters, unless W is negative beside X.
    tolerance, found = max(30 * of_w * len(W64), 8 * of_x), None
    is_whole = symmetric and columns is not None and len(columns) > SMALL and _is_even(magnitudes[columns])
    if columns is None:
        T, to_q, lost = factor(X, dense=dense, weights=np.sqrt(magnitudes))
        B = congruence(T, W64)
    else:
        assert isinstance(X, np.ndarray)
        order = np.argsort(-magnitudes[columns], kind="stable")  # large directions first, as everywhere
        B = W64[np.ix_(columns[order], columns[order])]
        if is_whole:
            found = _diagonal(X, None, columns[order], B, magnitudes, tolerance=tolerance, dense=dense)
        if found is None:
            T, to_q, lost = X[order].astype(np.float64), X[order].T.astype(np.float64), np.zeros((0, X.shape[1]))
    if found is None and symmetric and not is_whole and len(B) and not len(lost):
        found = _diagonal(X, T, to_q, B, magnitudes, tolerance=tolerance, dense=dense)
    if found is not None:
        return found
    inner = _inner(T, W64, B, magnitudes, tolerance=tolerance)
    B, noise = inner.B, _noise(T, magnitudes) + inner.negative
    core = Core(inner.B, inner.judged, noise)
    if inner.turn is not None or len(lost):
        whole = np.vstack([T, lost])
        judged = _direction_scale(whole, magnitudes)
        core = Core(congruence(whole, W64), judged, _noise(whole, magnitudes) + inner.negative + inner.dropped / 2)
    blur = EPS * np.abs(to_q).max(axis=1, initial=0.0)
    if inner.turn is not None:
        T, to_q = inner.turn.T @ T, to_q @ inner.turn
        noise = _noise(T, magnitudes) + inner.negative
    Q = np.asarray(X, np.float64) @ to_q if dense else None
    leverage = np.einsum("ij,ij->i", Q, Q) if Q is not None else leverages(X, to_q)
    leverage = np.minimum(leverage, 1.0, out=leverage)
    terms = inner.judged**2 / entry_magnitudes(B / np.outer(inner.scale, inner.scale))
    excess = np.maximum(1.0, np.sqrt(terms) / inner.scale)
    return Coordinates(to_q, B, leverage, inner.scale, noise, excess, core, blur, inner.smallest, Q)


def _is_even(magnitudes: FloatArray) -> bool:
    return bool(np.ptp(np.log2(magnitudes)) <= 2 * UNEVEN_WEIGHTS)


def _diagonal(
    X: RealArray | Rows, T: FloatArray | None, to_q: FloatArray | IntArray, B: FloatArray, magnitudes: FloatArray, *,
    tolerance: float, dense: bool,
) -> Coordinates | None:  # fmt: skip
    """Return coordinates in which a symmetric B is diagonal; None if its eigenvalues would lose digits, or may be negative.

    T None: B is L, its rows are of one magnitude, and ``to_q`` are the columns of X that they belong to. B is then off by rounding of its
    largest entries, and so may be its eigenvalues.
    """
    is_whole, own = T is None, B.diagonal()
    judged = np.sqrt(magnitudes[to_q]) if T is None else _direction_scale(T, magnitudes)
    most = float(judged.max()) ** 2
    if not is_whole and own.max() > MOST_SPREAD * own.min():
        return None
    values, V = sl.eigh(B, driver="evd", check_finite=False)  # as NumPy does, with fewer copies
    top = float(values[-1])
    least = EPS * len(B) * top if is_whole else top / MOST_SPREAD
    kept = values > max(least, 0.0)
    if values[0] < -tolerance * float(judged.min()) ** 2 or not (kept.any() if is_whole else kept.all()):
        return None
    if most > 4 * np.sqrt(len(magnitudes)) * top:  # B is a difference of larger terms
        return None
    # Eigenvalues are off by what rounding changes the entries by; those that are dropped, by all that they may be.
    doubt = 8 * EPS * most if is_whole else EPS * top
    size = np.maximum(values, least)
    noise = np.where(kept, doubt, np.maximum(doubt, least / 2)) / size
    noise += EPS if T is None else _noise(V.T @ T, magnitudes)
    core = Core(np.diag(size), np.sqrt(size), noise)
    values, noise, excess = values[kept], noise[kept], np.sqrt(np.maximum(1.0, doubt / EPS / size[kept]))
    if T is not None:
        turn = to_q @ V[:, kept]
        Q = np.asarray(X, np.float64) @ turn if dense else None
    else:
        assert isinstance(X, np.ndarray)
        turn = np.zeros((X.shape[1], len(values)))
        turn[to_q] = V if kept.all() else V[:, kept]
        Q = turn if len(X) == len(turn) and X.diagonal().all() else turn[X.argmax(axis=1)]
    leverage = np.einsum("ij,ij->i", Q, Q) if Q is not None else leverages(X, turn)
    blur, smallest = EPS * np.abs(turn).max(axis=1, initial=0.0), float(values[0] / most)
    own_B = core.B if kept.all() else np.diag(values)
    return Coordinates(
        turn, own_B, np.minimum(leverage, 1.0), np.sqrt(values), noise, excess, core, blur, smallest, Q, values
    )


def _noise(T: FloatArray, magnitudes: FloatArray) -> FloatArray:
    """Return the relative error of each direction, if each column of T is off by rounding of its norm where it is not zero."""
    sizes, rows = T**2, np.linalg.norm(T, axis=1)
    by_norm = rows.max(initial=0) / np.maximum(rows, max(EPS * rows.max(initial=0), np.finfo(float).tiny))
    by_column = np.sqrt((T != 0) @ (sizes.sum(axis=0) * magnitudes)) / _direction_scale(T, magnitudes)
    return np.asarray(EPS * np.minimum(by_norm, by_column))


class _Inner(NamedTuple):
    """B, its scale, the magnitude of the terms it is made of, the change of basis that removes its null space (None: there is none),
    its smallest singular value that was kept and its largest that was dropped, and half of how far rounding of inputs in single precision
    puts an eigenvalue of its symmetric part below zero, all relative to these magnitudes."""

    B: FloatArray
    scale: FloatArray
    judged: FloatArray
    turn: FloatArray | None
    smallest: float
    dropped: float
    negative: float


def _inner(T: FloatArray, W: FloatArray, B: FloatArray, magnitudes: FloatArray, *, tolerance: float) -> _Inner:
    """Return B = T W Tᵀ without its null space.

    ``tolerance`` is how far below zero rounding of the inputs may push an eigenvalue of the scaled symmetric part.
    """
    scale, negative = _direction_scale(T, magnitudes), 0.0
    balanced = B / np.outer(scale, scale)
    if len(B):
        lowest = float(sl.eigvalsh((balanced + balanced.T) / 2, subset_by_index=[0, 0])[0])
        if lowest < -tolerance:
            smallest = float(sl.eigvalsh((B + B.T) / 2, subset_by_index=[0, 0])[0])
            raise InvalidKernelError(
                "the symmetric part of L = X W Xᵀ must be positive semidefinite; "
                f"its smallest eigenvalue is {smallest:.6g} (largest entry of L's core: {np.abs(B).max():.3g}). "
                "Make W + Wᵀ positive semidefinite, for instance by LowRankKernel.from_vbd(V, B, D)."
            )
        # Taken as an error of the inputs: rounding of double precision explains no more than this.
        negative = -lowest / 2 if lowest < -30 * EPS * len(W) else 0.0
    # The symmetric part is positive semidefinite, so B and Bᵀ have the same null space and one basis serves both sides.
    left, values, _ = sl.svd(np.hstack([balanced, balanced.T]), full_matrices=False)
    rounding = EPS * max(1, len(B)) * max(1.0, values.max(initial=0))
    kept = int(np.sum(values > max(64 * rounding, 4 * negative)))
    smallest = float(values[kept - 1]) if kept else 1.0
    if kept == len(B):
        return _Inner(B, _direction_scale(T, entry_magnitudes(W)), scale, None, smallest, 0.0, negative)
    basis, dropped = left[:, :kept], float(values[kept])
    core = basis.T @ balanced @ basis
    turn, R, pivot = sl.qr(scale[:, None] * basis, mode="economic", pivoting=True)
    R[:, pivot] = R.copy()  # undo the pivoting: scale · basis = turn · R
    judged = _direction_scale(R, np.ones(kept))
    new_scale = _direction_scale(R, entry_magnitudes(core))
    return _Inner(congruence(R, core), new_scale, judged, turn, smallest, dropped, negative)


def _direction_scale(T: FloatArray, magnitudes: FloatArray) -> FloatArray:
    scale = np.sqrt(T**2 @ magnitudes)
    return np.where(scale > 0, scale, 1.0)


def leverages(X: RealArray | Rows, to_q: FloatArray) -> FloatArray:
    """Return ‖q_a‖², or for an X in single precision a bound at most 3 % above it, for every row of X·to_q, without forming Q.

    Samplers need upper bounds only. A tall X in single precision is therefore multiplied in single precision, and the result is raised
    by the most that rounding can have taken away.
    """
    if isinstance(X, Rows):
        out = np.empty(len(X))
        for block, part in X.each(partial(leverages, to_q=to_q)):
            out[block] = part
        return out
    # Norms are rotation-invariant, so a triangular factor of to_q suffices, at half the cost: to_qᵀ = rotation · R, or to_q itself.
    R = np.zeros((X.shape[1],) * 2, order="F")
    is_upper = to_q.shape == R.shape and not np.tril(to_q, -1).any()
    R[: to_q.shape[1]] = to_q if is_upper else sl.qr(to_q.T, mode="r")[0]
    slack, out = _single_slack(R) if X.dtype == np.float32 else 1.0, np.empty(len(X))
    dtype, multiply = (np.float32, strmm) if slack < MAX_SLACK else (np.float64, dtrmm)
    triangle = R.astype(dtype)
    for block, rows in cached_blocks(X, dtype):
        q = multiply(1.0, triangle, rows.T, trans_a=is_upper, overwrite_b=True).T
        out[block] = np.einsum("ij,ij->i", q, q)
    if dtype == np.float32:
        out *= 1 + slack
        thin = np.flatnonzero(out < SINGLE_RANGE[0])
        out[thin] = leverages(X[thin].astype(np.float64), to_q)
    return out


def _single_slack(R: FloatArray) -> float:
    """Return the largest fraction of ‖R x‖² that rounding to single precision can remove (1: out of its range)."""
    spread = np.linalg.svd(R, compute_uv=False)
    spread = spread[spread > EPS * len(R) * spread.max(initial=0)]
    if not spread.size or spread[0] > SINGLE_RANGE[1] or spread[-1] < SINGLE_RANGE[0]:
        return 1.0
    # Entry i of R x is off by at most d·(eps/2)·Σ|R_ij x_j| ≤ d·(eps/2)·‖R_i‖‖x‖, and ‖x‖ ≤ ‖R x‖ / (smallest singular value).
    error = len(R) * np.finfo(np.float32).eps / 2 * np.linalg.norm(spread) / spread[-1]
    return float(3 * error)  # above (1 − error)⁻² − 1 while that is small, with room for the sum of squares
