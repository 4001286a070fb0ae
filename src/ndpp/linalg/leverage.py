"""Leverages ‖q_a‖² of all items, without forming Q = X·to_q.

Samplers need upper bounds only. A tall X in single precision is therefore multiplied in single precision, and the result is raised
by the most that rounding can have taken away.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.linalg as sl
from scipy.linalg.blas import dtrmm, strmm

from ndpp._types import AnyArray, FloatArray
from ndpp.linalg.factor import cached_blocks
from ndpp.linalg.scaling import EPS
from ndpp.rows import Rows

MAX_SLACK = 0.03
"""Single precision is used if raising the leverages by this fraction is enough."""
SINGLE_RANGE = 1e-30, 1e30
"""Squares outside this range are too close to the limits of single precision."""


def leverages(X: AnyArray | Rows, to_q: FloatArray) -> FloatArray:
    """Return ‖q_a‖², or for an X in single precision a bound at most 3 % above it, for every row of X·to_q."""
    if isinstance(X, Rows):
        out = np.empty(len(X))
        for block, part in X.each(partial(leverages, to_q=to_q)):
            out[block] = part
        return out
    # Norms are rotation-invariant, so a triangular factor of to_q suffices, at half the cost: to_qᵀ = rotation · R.
    R = np.zeros((X.shape[1],) * 2, order="F")
    R[: to_q.shape[1]] = sl.qr(to_q.T, mode="r")[0]
    out = np.empty(len(X))
    if X.dtype == np.float32 and (slack := _single_slack(R)) < MAX_SLACK:
        single = R.astype(np.float32)
        for block, part in cached_blocks(X, np.float32):
            q = strmm(1.0, single, part.T, overwrite_b=True).T
            out[block] = np.einsum("ij,ij->i", q, q)
        out *= 1 + slack
        thin = np.flatnonzero(out < SINGLE_RANGE[0])
        out[thin] = leverages(X[thin].astype(np.float64), to_q)
        return out
    for block, part in cached_blocks(X, np.float64):
        q = dtrmm(1.0, R, part.T, overwrite_b=True).T
        np.einsum("ij,ij->i", q, q, out=out[block])
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
