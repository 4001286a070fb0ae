"""The inclusion matrix M of a fixed-size NDPP given some items, by the trapezoid rule on a circle.

With R(t) = tB(I + tB)⁻¹, items Y given, Z(t) = R − RQ_Yᵀ(Q_Y R Q_Yᵀ)⁻¹Q_Y R and w(t) = det(I + tB) det(Q_Y R Q_Yᵀ),

    P(a ∈ S | Y ⊆ S, |S| = k) = q_aᵀMq_a,        M = [t^k] w(t)Z(t) / [t^k] w(t),        tr M = k − |Y|.

Coefficients are computed from N equally spaced points of the circle |t| = ρ. The rule aliases the coefficients of t^(k + sN) onto that
of t^k, with sign (−1)^s at these half-step angles, so the size distribution determines its bias, and tr M shows it. This is the plain
version, for one size and one set of items, with N so large that nothing above rounding is aliased; :mod:`ndpp.samplers.exact` has the
fast one.
"""

from __future__ import annotations

import numpy as np

from ndpp._types import ComplexArray, FloatArray
from ndpp.linalg.coordinates import Coordinates
from ndpp.linalg.schur import condition_on
from ndpp.linalg.size_law import resolvent, tilt_for, tilted_law


def nodes(radius: float, count: int) -> ComplexArray:
    """Return the points on the upper half of the circle, at angles 2π(j + ½)/count; the lower half are their conjugates."""
    half = (count + 1) // 2
    return np.asarray(radius * np.exp(2j * np.pi * (np.arange(half) + 0.5) / count))


def node_count(law: FloatArray, left: int) -> int:
    """Return the smallest even number of nodes that aliases less than rounding of ``law`` onto its entry ``left``."""
    x = np.arange(len(law))
    for count in range(2, len(law) + 2, 2):
        if law[(x - left) % count == 0].sum() - law[left] < 1e-16 * law[left]:
            return count
    return 2 * (len(law) // 2 + 1)


def inclusion_matrix(coords: Coordinates, size: int, given: FloatArray) -> tuple[FloatArray, float]:
    """Return M for sets of ``size`` items that contain those with rows ``given`` of Q, and the surviving fraction |Σ Re w| / Σ|w|.

    The fraction measures cancellation: relative errors are rounding divided by it. It is 0, up to rounding, if no such set has positive
    probability.
    """
    tilt, nothing = tilt_for(coords, size, given), (np.zeros_like(coords.B), 0.0)
    law = tilted_law(coords, tilt, given).law
    if not law[size - len(given)] > 0:
        return nothing
    t = nodes(tilt, node_count(law, size - len(given)))
    R, log_det = resolvent(coords, t)
    Z, log_minor = condition_on(R, given)
    log_w = log_det + log_minor - size * np.log(t)
    w = np.exp(log_w - log_w.real.max())
    total = w.real.sum()
    if not total > 0:
        return nothing
    M = np.einsum("j,jab->ab", w.real, Z.real) - np.einsum("j,jab->ab", w.imag, Z.imag)
    return M / total, float(total / np.abs(w).sum())
