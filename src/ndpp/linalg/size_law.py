"""The law of the size of a sample, and log e_k, without cancellation.

Σ_k t^k e_k = det(I + tB). Tilting by ρ > 0 and writing R(ρ) = ρB(I + ρB)⁻¹ for the marginal kernel of the tilted process,

    det(I + ρzB) / det(I + ρB) = det(I − R + zR) = Π_i (1 − μ_i + zμ_i),        μ the eigenvalues of R(ρ).

B is accretive, so ‖R‖ ≤ 1 and every μ lies in the disc |μ − ½| ≤ ½. A real μ is a {0, 1} variable and a conjugate pair a {0, 1, 2}
variable, with nonnegative probabilities. The size is thus a sum of independent variables, and its generating function a product of
short polynomials with nonnegative coefficients: nothing cancels. A rounding error of ε in R changes each coefficient by about rε of
itself and its neighbours, however widely the eigenvalues of B are spread. If ρ makes the tilted mean tr R(ρ) equal to k, the
coefficient of z^k is large, and
log e_k = log P_ρ(k) + log det(I + ρB) − k log ρ.

The inclusion matrix M of sets of one size is computed by the trapezoid rule on a circle.
With R(t) = tB(I + tB)⁻¹, items Y given, Z(t) = R − RQ_Yᵀ(Q_Y R Q_Yᵀ)⁻¹Q_Y R and w(t) = det(I + tB) det(Q_Y R Q_Yᵀ),

    P(a ∈ S | Y ⊆ S, |S| = k) = q_aᵀMq_a,        M = [t^k] w(t)Z(t) / [t^k] w(t),        tr M = k − |Y|.

Coefficients are computed from N equally spaced points of the circle |t| = ρ. The rule aliases the coefficients of t^(k + sN) onto that
of t^k, with sign (−1)^s at these half-step angles, so the size distribution determines its bias, and tr M shows it. This is the plain
version, for one size and one set of items, with N so large that nothing above rounding is aliased; ``ndpp.samplers.exact`` has the
fast one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ndpp._types import ComplexArray, FloatArray, NumberArray
from ndpp.linalg.coordinates import Coordinates, Core
from ndpp.linalg.operations import NUMPY, Array, Operations
from ndpp.linalg.scaling import EPS, rounding_of
from ndpp.linalg.schur import condition_on, condition_or_zero, judged_minor, row_basis
from ndpp.linalg.tilts import MOST_TILT, solve_tilt, tilt_of_coins

ZERO_WEIGHT = 1e-12
"""If the probability of a size is below this even when tilted towards it, the size may be impossible, or lost in rounding."""
LOG_ROOM = -float(np.log(1000 * EPS))
"""Largest log of ρ·(smallest scale)²: beyond it I is rounding beside ρB, and I + ρB is singular if B is to working precision."""

MUCH_LOST = 1e4
"""Excess of a direction from which on it may have only eight digits left."""


def resolvent(coords: Coordinates, t: Array, ops: Operations = NUMPY) -> tuple[Array, Array]:
    """Return R(t) = tB(I + tB)⁻¹ and log det(I + tB) for each t of a one-dimensional array, shapes (m, r, r) and (m,).

    Large directions are computed as I − (I + tB)⁻¹ and small ones as t(I + tB)⁻¹B, so that neither cancels. Cost O(m r³), O(m r²) if B is
    diagonal.
    """
    if coords.eigenvalues is not None:
        a = t[:, None] * ops.array(coords.eigenvalues, t)
        return ops.eye(coords.rank, t) * (a / (1 + a))[:, None], ops.log(1 + a).sum(1)
    inverse, log_det, balance = _balanced_inverse(coords, t, ops)
    inverse = inverse / (balance[:, :, None] * balance[:, None, :])
    R = ops.eye(coords.rank, t) - inverse
    small = abs(t).max() ** 0.5 * ops.array(coords.scale, abs(t)) < 0.5
    R[:, :, small] = t[:, None, None] * (inverse @ ops.array(coords.B, t)[:, small])
    return R, log_det


def _balanced_inverse(coords: Coordinates | Core, t: Array, ops: Operations = NUMPY) -> tuple[Array, Array, Array]:
    """Return the inverse of D⁻¹(I + tB)D⁻¹, log det(I + tB), and D = max(1, √|t|·scale).

    The balanced matrix has entries of order one, however much the directions differ in scale.
    """
    B, scale = ops.array(coords.B, t), ops.array(coords.scale, abs(t))
    balance = ((abs(t) ** 0.5)[:, None] * scale).clip(1.0)
    system = (ops.eye(coords.rank, t) + t[:, None, None] * B) / (balance[:, :, None] * balance[:, None, :])
    inverse, log_abs, log_unit = ops.inverse(system)
    return inverse, log_abs + 2 * ops.log(balance).sum(1) + log_unit, balance


class TiltedLaw(NamedTuple):
    """Distribution of the number of items besides Y in a sample from L·tilt that contains Y.

    log_weight is log Σ_{S ⊇ Y} tilt^|S| det L_S, −inf if Y cannot occur; marginal is Z = R − RQ_Yᵀ(Q_Y R Q_Yᵀ)⁻¹Q_Y R.
    """

    law: FloatArray
    log_weight: float
    marginal: FloatArray


def tilted_law(coords: Coordinates, tilt: float, given: FloatArray | None = None) -> TiltedLaw:
    """Return the distribution of the number of further items, 0..r, given the items with rows ``given`` of Q."""
    R, log_det = resolvent(coords, np.array([tilt]))
    return law_given(coords, R[0], float(log_det[0].real), given)


def law_given(coords: Coordinates, R: FloatArray, log_weight: float, given: FloatArray | None) -> TiltedLaw:
    """Return the same from R(tilt) and log det(I + tilt·B), which are those of all given items."""
    Z, log_given = condition_or_zero(R, given)
    if log_given == -np.inf:
        return TiltedLaw(np.zeros(coords.rank + 1), -np.inf, Z)
    if coords.eigenvalues is not None and (given is None or not len(given)):
        mu: NumberArray = Z.diagonal()
    else:
        mu = np.linalg.eigvalsh(Z) if coords.is_symmetric else np.linalg.eigvals(Z)
    return TiltedLaw(law_of_sum(mu), log_weight + log_given, Z)


def law_of_sum(mu: NumberArray) -> FloatArray:
    """Return the coefficients of Π(1 − μ_i + zμ_i) for eigenvalues that are real or come in conjugate pairs."""
    mu = mu.astype(complex)
    law = np.ones(1)
    for m in mu[mu.imag == 0].real.clip(0, 1):
        law = np.convolve(law, [1 - m, m])
    for m in mu[mu.imag > 0]:
        one = 2 * max(m.real - abs(m) ** 2, 0.0)
        law = np.convolve(law, np.array([abs(1 - m) ** 2, one, abs(m) ** 2]))
        law /= law.sum()
    return law


def tilt_for(coords: Coordinates, size: int, given: FloatArray | None = None) -> float:
    """Return ρ > 0 under which a sample that contains the given rows has ``size`` items on average, to within 0.3."""
    left = size - (0 if given is None else len(given))
    is_diagonal = coords.eigenvalues is not None
    most = MOST_TILT if is_diagonal else LOG_ROOM - 2 * float(np.log(coords.scale.min(initial=np.inf)))

    def moments(log_tilt: float) -> tuple[float, float]:
        if left == size and coords.eigenvalues is not None:
            f = 1 / (1 + np.exp(-log_tilt) / coords.eigenvalues)
            return float(f.sum()), float((f * (1 - f)).sum())
        Z = condition_or_zero(resolvent(coords, np.exp([log_tilt]))[0][0], given)[0]
        mean = float(np.trace(Z))
        return mean, mean - float(np.einsum("ij,ji->", Z, Z))

    # As if B were the diagonal matrix of its scale.
    start = tilt_of_coins(2 * np.log(coords.scale), min(max(size, 0.3), coords.rank - 0.3))
    return float(np.exp(solve_tilt(moments, left, min(start, most), most_tilt=most)))


def log_elementary(coords: Coordinates, size: int, given: FloatArray | None = None) -> tuple[float, float]:
    """Return log Σ det L_S over the sets S of ``size`` items that contain the given rows, and an estimate of its relative error.

    Without given rows this is log e_size. It is −inf if no such set has positive probability; the error is then that of all
    probabilities, with which a direction that was dropped as rounding may matter. A sum that is lost in rounding has an upper bound
    in its place, and the error 1.
    """
    n_given = 0 if given is None else len(given)
    purely_skew = not np.any(coords.core.B + coords.core.B.T)
    if size > coords.core.rank or size < n_given or (purely_skew and size % 2):
        return -np.inf, 0.0
    if size > coords.rank:
        return -np.inf, rounding_error(coords, 1.0)
    if size == n_given:
        return (0.0, 0.0) if given is None else judged_minor(given, coords.B, magnitudes=coords.scale**2)
    tilt = tilt_for(coords, size, given)
    law, log_weight, _ = tilted_law(coords, tilt, given)
    chance, error = law[size - n_given], rounding_error(coords, tilt, given)
    if log_weight == -np.inf or (
        chance <= ZERO_WEIGHT and given is not None and n_given and not _is_possible(coords, size, given)
    ):
        return -np.inf, rounding_error(coords, 1.0)
    value, error = judged(chance, error)
    return float(value + log_weight - size * np.log(tilt)), error


def judged(chance: float, error: float) -> tuple[float, float]:
    """Return the log of a probability with this absolute error, and its relative error; a bound and 1 if it is lost in rounding."""
    bound = max(chance, error)
    return float(np.log(bound)), error / bound


def _is_possible(coords: Coordinates, size: int, given: FloatArray) -> bool:
    """Return whether a size is possible given some items, as far as rounding shows.

    Which sizes are does not change if the symmetric part of B grows. Without given items, all up to the rank are, unless it is zero.
    """
    skew, symmetric = (coords.B - coords.B.T) / 2, (coords.B + coords.B.T) / 2
    symmetric[np.abs(symmetric) <= 8 * EPS * np.abs(skew)] = 0.0
    growth = np.abs(skew).max() / np.abs(symmetric).max().clip(np.finfo(float).tiny)
    raised = replace(coords, B=skew + max(float(growth), 1.0) * symmetric)
    law = tilted_law(raised, tilt_for(raised, size, given), given).law
    return bool(law[size - len(given)] > ZERO_WEIGHT)


def rounding_error(coords: Coordinates, tilt: float, given: FloatArray | None = None) -> float:
    """Return an estimate of the absolute rounding error of the tilted size distribution given some items.

    To first order: log det(I + ρB) changes by tr ρ(I + ρB)⁻¹δB, and |δB_ij| ≤ scale_i·scale_j·(noise_i + noise_j + 16ε), less for a
    small B; directions that were dropped count, too. Conditioning adds the error of separating nearly dependent rows, and divides by the
    smallest singular value of their balanced minor of R.
    """
    core = coords.core
    if coords.eigenvalues is not None:
        size = core.scale**2
        doubt = tilt * size / (1 + tilt * size) * (2 * core.noise + rounding_of(core.rank))
    else:
        inverse, _, balance = _balanced_inverse(core, np.array([tilt]))
        weight = np.sqrt(tilt) * core.scale / balance[0]
        noise = core.noise[:, None] + core.noise + rounding_of(core.rank)
        doubt = np.abs(inverse[0]) * np.outer(weight, weight) * noise
    error = float(np.linalg.norm(doubt) + EPS * coords.rank)
    if given is None or not len(given):
        return error
    return error_given(coords, resolvent(coords, np.array([tilt]))[0][0], given, error)


def error_given(coords: Coordinates, R: FloatArray, given: FloatArray, error: float) -> float:
    """Return what an error of the distribution of all sets becomes given some items, from R at its tilt."""
    basis, height = row_basis(given)
    error += EPS * coords.rank * float((np.linalg.norm(given, axis=1) / height.clip(EPS)).max())
    minor = basis @ R @ basis.T
    terms = np.sqrt(np.einsum("ki,ij,kj->k", basis**2, R**2, basis**2))  # what entries of the diagonal are sums of
    scale = np.sqrt(np.maximum(np.diag(minor), terms).clip(np.finfo(float).tiny))
    error /= float(np.linalg.svd(minor / np.outer(scale, scale), compute_uv=False)[-1].clip(EPS))
    if coords.excess.max() < MUCH_LOST:
        return error
    # Small directions that have lost their digits hardly matter to all sets, but to those with items in these directions.
    return max(error, judged_minor(given, coords.B, magnitudes=(coords.scale * coords.excess) ** 2)[1])


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
    probability. O(N r³) for N nodes; O(N r² |Y| + r²) if B is diagonal, and M is diagonal if also nothing is given.
    """
    tilt, nothing = tilt_for(coords, size, given), (np.zeros_like(coords.B), 0.0)
    law = tilted_law(coords, tilt, given).law
    if not law[size - len(given)] > 0:
        return nothing
    t = nodes(tilt, node_count(law, size - len(given)))
    if coords.eigenvalues is not None:
        return _diagonal_inclusions(coords.eigenvalues, t, size, given)
    R, log_det = resolvent(coords, t)
    Z, log_minor = condition_on(R, given)
    log_w = log_det + log_minor - size * np.log(t)
    w = np.exp(log_w - log_w.real.max())
    total = w.real.sum()
    if not total > 0:
        return nothing
    M = np.einsum("j,jab->ab", w.real, Z.real) - np.einsum("j,jab->ab", w.imag, Z.imag)
    return M / total, float(total / np.abs(w).sum())


def _diagonal_inclusions(values: FloatArray, t: ComplexArray, size: int, given: FloatArray) -> tuple[FloatArray, float]:
    """Return the same from the eigenvalues: Z = F − F Yᵀ(Y F Yᵀ)⁻¹Y F with F = tλ/(1 + tλ), Y a basis of the given rows."""
    a = t[:, None] * values
    F, log_w, basis = a / (1 + a), np.log1p(a).sum(axis=1) - size * np.log(t), row_basis(given)[0]
    sides = basis * F[:, None]
    middle = sides @ basis.T
    if len(given):
        log_abs, log_unit = NUMPY.log_det(middle)
        log_w = log_w + log_abs + log_unit
    w = np.exp(log_w - log_w.real.max())
    total = w.real.sum()
    if not total > 0:
        return np.zeros((len(values),) * 2), 0.0
    M = np.diag((w @ F).real)
    if len(given):
        others = np.linalg.solve(middle, w[:, None, None] * sides)
        M = M - (sides.reshape(-1, len(values)).T @ others.reshape(-1, len(values))).real
    return M / total, float(total / np.abs(w).sum())
