"""Node matrices of the exact sampler on the CPU: Z(t_j) at the nodes of a circle, conditioned on one more item at a time.

The compiled hot loop; :mod:`ndpp.samplers.gpu.group` has that of the GPU. Conditioning on an item with row q of Q is a rank-one update at
every node,

    u = Zq,    v = qᵀZ,    π = qᵀu,    Z ← Z − uvᵀ/π,    w ← wπ,

and the weighted sum M = Re Σ w_j Z_j is computed in the same pass. Real and imaginary parts are separate, so that every inner loop runs
over contiguous doubles. One node (r = 200: 640 kB) stays in the second-level cache between its two passes.

|w_j| falls like a Gaussian along the circle, so for large sets most nodes weigh less than rounding of the sum. Such nodes are retired:
they are not updated until the next circle. A retired node is safe while its neighbours weigh next to nothing. If one of them does not, the
surviving fraction is reported as zero, and the sampler chooses another circle.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ndpp._compiled import njit
from ndpp._types import ComplexArray, FloatArray
from ndpp.linalg.operations import NUMPY
from ndpp.linalg.schur import row_basis

RETIRED = -1e6
"""Real part of the log weight of a node that is no longer updated: its weight is zero."""
LOG_RETIRE, LOG_RETURN = math.log(1e-18), math.log(1e-12)
"""Log weights, relative to the largest, below which a node is retired, and above which a neighbour of a retired node may not rise."""
_FAST = {"contract", "reassoc", "nsz", "arcp"}


class Inclusion(NamedTuple):
    """The inclusion matrix M, its trace, and the surviving fraction |Σ Re w| / Σ|w|."""

    M: FloatArray
    trace: float
    fraction: float


class Nodes(NamedTuple):
    """Z at the nodes, shape (2, h, r, r), real and imaginary parts; logarithms of the node weights w, shape (h,)."""

    Z: FloatArray
    log_w: ComplexArray

    def inclusion(self) -> Inclusion:
        """Return M = Re Σ w Z / Re Σ w."""
        w = np.exp(self.log_w - self.log_w.real.max())
        M = np.tensordot(np.concatenate([w.real, -w.imag]), self.Z.reshape(-1, *self.Z.shape[2:]), 1)
        total = w.real.sum()
        M /= total
        return Inclusion(M, float(np.trace(M)), float(total / np.abs(w).sum()))

    def condition(self, q: FloatArray, *, keep: bool) -> tuple[Nodes, Inclusion]:
        """Return the nodes given one more item, written over these, and their M. Without ``keep``, only M is computed."""
        M, log_w = np.empty(self.Z.shape[2:]), np.empty_like(self.log_w)
        trace, fraction = condition_nodes(self.Z, q, self.log_w, log_w, M, keep)
        return Nodes(self.Z, log_w), Inclusion(M, trace, fraction)


def given_items(R: FloatArray, log_w: ComplexArray, given: FloatArray) -> Nodes:
    """Return the nodes R − RQ_Yᵀ(Q_Y R Q_Yᵀ)⁻¹Q_Y R for Q_Y = ``given``, shape (y, r); weights up to a common factor.

    Only the span of the rows matters; in an orthonormal basis, nearly equal items cost no digits. Plain twin:
    :func:`ndpp.linalg.schur.condition_on`.
    """
    basis = row_basis(given)[0]
    U, V = R @ basis.T, basis @ R
    middle = V[0] @ basis.T + 1j * (V[1] @ basis.T)
    F = np.linalg.solve(middle, V[0] + 1j * V[1])
    log_abs, log_unit = NUMPY.log_det(middle)
    # Complex products as real ones of twice the inner length: (Ur + iUi)(Fr + iFi) is left[0]F + i·left[1]F.
    left = np.stack([np.concatenate([U[0], -U[1]], axis=2), np.concatenate([U[1], U[0]], axis=2)])
    product = left @ np.concatenate([F.real, F.imag], axis=1)
    return Nodes(np.subtract(R, product, out=product), log_w + log_abs + log_unit)


@njit(fastmath=_FAST, error_model="numpy")
def condition_nodes(
    Z: FloatArray, q: FloatArray, log_w: ComplexArray, new_log_w: ComplexArray, M: FloatArray, keep: bool
) -> tuple[float, float]:
    """Overwrite Z (if ``keep``), write the new weights, also over the old ones, and M; return the trace of M and the surviving fraction."""
    _, h, r, _ = Z.shape
    total = moduli = 0.0
    peak = log_w.real.max()
    safe = retire(log_w, new_log_w, peak)
    u_re, u_im, v_re, v_im = np.empty(r), np.empty(r), np.empty(r), np.empty(r)
    M[:] = 0.0
    for j in range(h):
        if new_log_w[j].real == RETIRED:
            continue
        re, im = Z[0, j], Z[1, j]
        _products(re, im, q, u_re, u_im, v_re, v_im)
        p_re, p_im = 0.0, 0.0
        for a in range(r):
            p_re += q[a] * u_re[a]
            p_im += q[a] * u_im[a]
        weight = np.exp(log_w[j] - peak) * complex(p_re, p_im)
        w_re, w_im = weight.real, weight.imag
        total += w_re
        moduli += math.hypot(w_re, w_im)
        abs_p = math.hypot(p_re, p_im)
        # A pivot of zero shows in the monitors.
        new_log_w[j] = (
            log_w[j] + complex(math.log(abs_p), math.atan2(p_im, p_re)) if abs_p > 0 else complex(-np.inf, 0.0)
        )
        inverse = complex(p_re / abs_p / abs_p, -p_im / abs_p / abs_p) if abs_p > 0 else 0j
        for a in range(r):
            f = complex(u_re[a], u_im[a]) * inverse
            f_re, f_im = f.real, f.imag
            for b in range(r):
                x = re[a, b] - (f_re * v_re[b] - f_im * v_im[b])
                y = im[a, b] - (f_re * v_im[b] + f_im * v_re[b])
                M[a, b] += w_re * x - w_im * y
                if keep:
                    re[a, b] = x
                    im[a, b] = y
    trace = 0.0
    for a in range(r):
        for b in range(r):
            M[a, b] /= total
        trace += M[a, a]
    return trace, total / moduli if safe else 0.0


@njit(fastmath=_FAST)
def _products(
    re: FloatArray,
    im: FloatArray,
    q: FloatArray,
    u_re: FloatArray,
    u_im: FloatArray,
    v_re: FloatArray,
    v_im: FloatArray,
) -> None:
    """Write u = Zq and v = qᵀZ of one node, in one pass."""
    v_re[:] = 0.0
    v_im[:] = 0.0
    for a in range(q.size):
        s_re, s_im, qa = 0.0, 0.0, q[a]
        for b in range(q.size):
            x, y = re[a, b], im[a, b]
            s_re += x * q[b]
            s_im += y * q[b]
            v_re[b] += qa * x
            v_im[b] += qa * y
        u_re[a], u_im[a] = s_re, s_im


@njit(error_model="numpy")
def retire(log_w: ComplexArray, new_log_w: ComplexArray, peak: float) -> bool:
    """Copy the log weights and retire nodes that, like their neighbours, weigh next to nothing; return whether retired ones are safe."""
    safe, h = True, log_w.size
    for j in range(h):
        beside = max(log_w[max(j - 1, 0)].real, log_w[min(j + 1, h - 1)].real)
        was_retired, is_low = log_w[j].real == RETIRED, beside < peak + LOG_RETURN
        safe = safe and (is_low or not was_retired)
        # In place, the node before may just have been retired; it was low, too.
        retired = was_retired or (is_low and log_w[j].real < peak + LOG_RETIRE)
        new_log_w[j] = complex(RETIRED, 0.0) if retired else log_w[j]
    return safe
