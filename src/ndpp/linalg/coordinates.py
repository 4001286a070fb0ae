"""Orthonormal coordinates: L = X W Xᵀ = Q B Qᵀ with QᵀQ = I. Everything about L is then a property of the small matrix B.

X = Q T (:mod:`ndpp.linalg.factor`) and B = T W Tᵀ. Q = X·to_q is a product with X, so equal rows of X give equal rows of Q and small
rows keep their digits. Cost O(n d²) time, and O(d²) memory in addition to X and one row block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as sl

from ndpp._types import AnyArray, FloatArray
from ndpp.errors import InvalidKernelError
from ndpp.linalg.factor import factor
from ndpp.linalg.leverage import leverages
from ndpp.linalg.scaling import EPS, congruence, entry_magnitudes
from ndpp.rows import Rows

DENSE_ENTRIES = 4_000_000
"""If X has at most this many entries, Q is formed and kept (32 MB)."""


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
    dropped : float
        Magnitude of the part of L that was dropped because rounding explains it.
    Q : (n, r) array or None
        Kept for small catalogues.
    """

    to_q: FloatArray
    B: FloatArray
    leverage: FloatArray
    scale: FloatArray
    noise: FloatArray
    dropped: float
    Q: FloatArray | None

    @property
    def rank(self) -> int:
        """Number of directions r."""
        return len(self.B)


def coordinates(X: AnyArray | Rows, W: AnyArray, *, magnitudes: FloatArray | None = None) -> Coordinates:
    """Return the coordinates of L = X W Xᵀ; raise if its symmetric part is not positive semidefinite.

    ``magnitudes`` are the :func:`entry_magnitudes` that rounding is judged against. A conditional passes those of the kernel that its W was
    computed from; by default they are those of W.
    """
    dense = X.size <= DENSE_ENTRIES and not (isinstance(X, Rows) and X.is_shared)
    if dense and isinstance(X, Rows):
        X = X.read()
    W64 = np.asarray(W, np.float64)
    coarsest = max(float(np.finfo(a.dtype).eps) for a in (X, np.asarray(W)))
    T, to_q = factor(X, dense=dense)
    inner = _inner(
        T, W64, entry_magnitudes(W64) if magnitudes is None else magnitudes, tolerance=30 * coarsest * len(W64)
    )
    B, scale, turn, dropped = inner
    if turn is not None:
        T, to_q = turn.T @ T, to_q @ turn
    row_norms = np.linalg.norm(T, axis=1)
    noise = EPS * row_norms.max(initial=0) / np.maximum(row_norms, np.finfo(float).tiny)
    Q = np.asarray(X, np.float64) @ to_q if dense else None
    leverage = np.einsum("ij,ij->i", Q, Q) if Q is not None else leverages(X, to_q)
    return Coordinates(to_q, B, np.minimum(leverage, 1.0, out=leverage), scale, noise, dropped, Q)


def _inner(
    T: FloatArray, W: FloatArray, magnitudes: FloatArray, *, tolerance: float
) -> tuple[FloatArray, FloatArray, FloatArray | None, float]:
    """Return B, its scale, the change of basis that removes the null space of B (None: there is none), and what that dropped.

    ``tolerance`` is how far below zero rounding of the inputs may push an eigenvalue of the scaled symmetric part.
    """
    B, scale = congruence(T, W), _direction_scale(T, magnitudes)
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
    # The symmetric part is positive semidefinite, so B and Bᵀ have the same null space and one basis serves both sides.
    left, values, _ = sl.svd(np.hstack([balanced, balanced.T]), full_matrices=False)
    rounding = EPS * max(1, len(B)) * max(1.0, values.max(initial=0))
    kept = int(np.sum(values > 64 * rounding))
    if kept == len(B):
        return B, _direction_scale(T, entry_magnitudes(W)), None, 0.0
    removed = np.where(values > 4 * rounding, values, 0.0) * np.sum((scale[:, None] * left) ** 2, axis=0)
    basis, dropped = left[:, :kept], float(removed[kept:].sum())
    core = basis.T @ balanced @ basis
    turn, R, pivot = sl.qr(scale[:, None] * basis, mode="economic", pivoting=True)
    R[:, pivot] = R.copy()  # undo the pivoting: scale · basis = turn · R
    return congruence(R, core), _direction_scale(R, entry_magnitudes(core)), turn, dropped


def _direction_scale(T: FloatArray, magnitudes: FloatArray) -> FloatArray:
    scale = np.sqrt(T**2 @ magnitudes)
    return np.where(scale > 0, scale, 1.0)
