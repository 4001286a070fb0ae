"""Matrices after a change of low rank, which are computed only where they are looked at."""

from __future__ import annotations

from typing import Any

import numpy as np

from ndpp._types import FloatArray, Which
from ndpp.linalg.scaling import EPS, inverses

AT_ONCE = 4
"""Matrices that are multiplied at a time, in the cache."""


class LowRankChange:
    """(N_c⁻¹ + Qᵀ D_c Q)⁻¹ of some N_c and diagonal D_c, given as N (C, r, r), Q (m, r) and the diagonals (C, m).

    They are N_c − N_c Qᵀ K_c Q N_c with K_c = D_c (I + Q N_c Qᵀ D_c)⁻¹, (m, m), which all that is asked of them follows from: an index
    computes some, ``np.asarray`` all of them. ``log_det`` are log det (I + Q N_c Qᵀ D_c), and ``growth`` and ``lost`` bound what becomes of
    errors.

    Examples
    --------
    >>> found = LowRankChange(np.eye(2)[None], np.array([[1.0, 0.0]]), np.array([[3.0]]))
    >>> found[0].tolist(), float(found.log_det[0]) == float(np.log(4.0)), found.products(np.ones((1, 2))).tolist()
    ([[0.25, 0.0], [0.0, 1.0]], True, [[[0.25, 1.0]]])
    """

    def __init__(self, N: Any, Q: FloatArray, diagonals: FloatArray) -> None:
        self.N, self.Q, self.shape = np.asarray(N), Q, N.shape
        m, C = len(Q), len(diagonals)
        system = np.empty((C, m, m))
        for start in range(0, C, AT_ONCE):
            some = slice(start, start + AT_ONCE)
            np.matmul(Q @ self.N[some], Q.T * diagonals[some, None, :], out=system[some])
        system += np.eye(m)
        inverse, self.log_det = inverses(system)
        self.lost = EPS * np.einsum("cij,cji->c", np.abs(inverse), np.abs(system))
        self.growth = 1 + np.abs(inverse).sum(axis=(1, 2))
        self.K = diagonals[:, :, None] * inverse

    def __len__(self) -> int:
        return len(self.N)

    def __getitem__(self, which: Which) -> FloatArray:
        N, K = self.N[which], self.K[which]
        if N.ndim == 2:
            return np.asarray(N - (N @ self.Q.T) @ (K @ (self.Q @ N)))
        out = np.empty(N.shape)
        for start in range(0, len(N), AT_ONCE):
            n = N[start : start + AT_ONCE]
            np.subtract(
                n, (n @ self.Q.T) @ (K[start : start + AT_ONCE] @ (self.Q @ n)), out=out[start : start + AT_ONCE]
            )
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> FloatArray:
        return np.asarray(self[:], dtype)

    def products(self, q: FloatArray) -> FloatArray:
        """Return the products of all matrices with rows, (rows, C, r)."""
        r = self.shape[2]
        found = (self.N.reshape(-1, r) @ q.T).reshape(*self.shape[:2], len(q))
        found -= self.N @ (self.Q.T @ (self.K @ (self.Q @ found)))
        return np.ascontiguousarray(np.moveaxis(found, 2, 0))
