"""Schur complements: all eliminations of items, and the one rule for "singular".

Given items Y, a kernel L becomes ``L − L_:Y L_Y⁻¹ L_Y:``, and det L_{Y∪S} is det L_Y times its minor S.

Singular
    A pivot or singular value counts as zero if it is at most ``k · ROUNDING`` times the magnitude of the terms it was computed from,
    for k items. A sum of k products has an error of at most k·ε/2 times the sum of their absolute values, and the factors that QR, LU
    and SVD return are exact for a matrix whose entries are off by a small multiple of that [Higham, *Accuracy and Stability of
    Numerical Algorithms*, 2002, (3.5), Thms. 9.3 and 19.4]. By Weyl's inequality no singular value moves further than the norm of this
    error, so a value below the bound cannot be told from zero. ``ROUNDING`` = 16 ε covers the multiple. Rows and columns are scaled to
    order one first, so that the magnitude of the terms is that of the smallest items and directions too.

Unreliable
    A matrix that is not singular may be so close to it that its inverse has few digits. Routines with a slower alternative estimate
    their relative error and use the alternative if it exceeds ``MAX_LOSS``; those that can leave some directions uneliminated do so
    below ``NEARLY_SINGULAR``.

The compiled loop of ``ndpp.samplers.exact.nodes`` needs no rule: there a pivot may vanish at a single point of a circle although the
sum over the circle is well defined. It checks the sum instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg as sl

from ndpp._types import FloatArray, NumberArray, RealArray
from ndpp.linalg.coordinates import Coordinates
from ndpp.linalg.operations import NUMPY, Array, Operations
from ndpp.linalg.scaling import (
    ROUNDING,
    congruence,
    entry_magnitudes,
    inverted,
    power_of_two,
    rounding_of,
    used_columns,
)

MAX_LOSS = 1e-7
"""Largest estimated relative error of a result. Estimates are usually ten times too high, or more."""
NEGLIGIBLE = 1e-8
"""Estimated relative error below which no better estimate is made."""
HIDDEN = 5.0
"""How much more an error counts that hides a probability altogether."""
NEARLY_SINGULAR = 1e-6
"""Relative singular value below which an elimination would cost more than six of the sixteen digits."""


# -- determinants ----------------------------------------------------------------------------------------------------------------


def judged_minor(rows: RealArray, W: FloatArray, *, magnitudes: FloatArray) -> tuple[float, float]:
    """Return log det(rows · W · rowsᵀ), −inf where it is zero, and an estimate of its error. Shape of ``rows``: (k, d).

    In the plain product, large items and directions would drown small ones. Rows are therefore scaled to norm one and replaced by a
    pivoted triangular factor F, large columns first, whose rows can be scaled again: det = det(F W Fᵀ). ``magnitudes`` are the
    :func:`entry_magnitudes` that W is balanced with.

    Where the minor is zero, the error is the most that rounding may hide, as the probability of these items among all sets of them.
    """
    k, W = len(rows), np.asarray(W, np.float64)
    if k == 0:
        return 0.0, 0.0
    used = used_columns(W)
    if len(used) < len(W):
        rows, W, magnitudes = rows[:, used], W[np.ix_(used, used)], magnitudes[used]
    if k > rows.shape[1] or (k % 2 and not np.any(W + W.T)):
        return -np.inf, 0.0
    scale = np.sqrt(magnitudes)
    scaled = rows * scale
    norms = np.linalg.norm(scaled, axis=1)
    if np.any(norms == 0):
        return -np.inf, 0.0
    scaled = scaled / norms[:, None]
    factor, pivot = sl.qr(scaled, mode="r", pivoting=True)
    # A row of the factor that is rounding of its columns stands for an item that depends on the others.
    floor = k * ROUNDING * np.linalg.norm(scaled[:, pivot], axis=0)
    depends = np.all(np.abs(factor) <= floor, axis=1)
    height = np.linalg.norm(factor, axis=1)
    if depends.any():
        least = np.array([np.linalg.norm(floor[i:]) for i in range(k)])
        with np.errstate(divide="ignore"):
            return -np.inf, _hidden(rows, W, float(2 * np.log(norms * np.maximum(height, least)).sum()))
    balanced = (W / np.outer(scale, scale))[np.ix_(pivot, pivot)]
    core, log_volume = congruence(factor / height[:, None], balanced), 2 * float(np.log(norms * height).sum())
    sign, log_abs = np.linalg.slogdet(core)
    singular = sl.svdvals(core)
    if sign <= 0 or singular[-1] <= k * ROUNDING:
        return -np.inf, _hidden(rows, W, log_volume + float(np.log(singular.clip(k * ROUNDING)).sum()))
    # To first order, a change of core changes the result by tr core⁻¹ δcore. Entries of the factor are off by rounding of their column.
    unit = rounding_of(len(W))
    floor *= unit / (k * ROUNDING)
    most = float(np.linalg.norm(1 / singular) * (2 * np.linalg.norm(floor) / height.min() + unit))
    if most < NEGLIGIBLE:
        return float(log_abs) + log_volume, most
    inverse, sizes = np.abs(inverted(core)).T, np.abs(factor) / height[:, None]
    errors = np.triu(np.broadcast_to(floor, factor.shape)) / height[:, None]
    columns = np.abs(balanced) @ sizes.T
    change = unit * (sizes @ columns) + errors @ columns + (errors @ (np.abs(balanced.T) @ sizes.T)).T
    if np.any(magnitudes > 2 * entry_magnitudes(W)):  # W is a difference of larger terms, and off by rounding of those
        change += ROUNDING * np.outer(sizes.sum(axis=1), sizes.sum(axis=1))
    return float(log_abs) + log_volume, float(np.linalg.norm(inverse * change))


def _hidden(rows: RealArray, W: FloatArray, log_most: float) -> float:
    """Return the probability, among all sets of the items with these rows, of all of them, if their minor is exp(log_most)."""
    with np.errstate(over="ignore"):
        log_total = np.linalg.slogdet(np.eye(len(rows)) + rows @ W @ rows.T)[1]
        return HIDDEN * float(np.minimum(np.exp(log_most - max(log_total, 0.0)), 1.0))


def log_det_or_zero(core: FloatArray) -> float:
    """Return log det of a matrix with entries of order one, −inf where it is singular or not positive."""
    if len(core) == 0:
        return 0.0
    sign, log_abs = np.linalg.slogdet(core)
    singular = sl.svdvals(core)[-1] <= len(core) * ROUNDING
    return float(log_abs) if sign > 0 and not singular else -np.inf


# -- given items, by their rows of Q ---------------------------------------------------------------------------------------------


def schur_complement(A: Array, left: Array, middle: Array, right: Array, ops: Operations = NUMPY) -> Array:
    """Return A − left · middle⁻¹ · right."""
    return A - left @ ops.solve(middle, right)


def row_basis(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return an orthonormal basis of the span of ``rows``, as rows, and the distance of each row from those before it (0: rounding).

    Conditioning on items depends on the span of their rows alone. In this basis, rows that nearly coincide lose digits once, not twice.
    """
    basis, triangle = np.linalg.qr(rows.T)
    height = np.zeros(len(rows))
    height[: len(triangle)] = np.abs(np.diag(triangle))
    return basis.T, np.where(height > len(rows) * ROUNDING * np.linalg.norm(rows, axis=1), height, 0.0)


def condition_on(Z: Array, rows: FloatArray, ops: Operations = NUMPY) -> tuple[Array, Array]:
    """Return Z − Z Qᵀ(Q Z Qᵀ)⁻¹Q Z and log det(Q Z Qᵀ) for Q = ``rows``, for one matrix or a stack of them.

    The log determinant is −inf where rows are linearly dependent; a singular Q Z Qᵀ of independent rows is not detected.
    """
    if len(rows) == 0:
        return Z, ops.array(np.zeros(Z.shape[:-2]), Z)
    directions, height = row_basis(rows)
    basis = ops.array(directions, Z)
    right = basis @ Z
    middle = right @ basis.T
    log_abs, log_unit = ops.log_det(middle)
    log_volume = float(np.log(height).sum()) if height.all() else -np.inf
    return schur_complement(Z, Z @ basis.T, middle, right, ops), log_abs + log_unit + 2 * log_volume


def condition_or_zero(R: FloatArray, rows: FloatArray | None) -> tuple[FloatArray, float]:
    """Return the same for one marginal kernel R; where Q R Qᵀ is singular, R as it is and −inf.

    Its diagonal holds the probabilities of single items, which are zero only for rows of zeros, so it can be scaled to one.
    """
    if rows is None or len(rows) == 0:
        return R, 0.0
    basis, height = row_basis(rows)
    minor = basis @ R @ basis.T
    scale = np.sqrt(np.diag(minor).clip(0))
    if not (height.all() and scale.all()):
        return R, -np.inf
    log_det = log_det_or_zero(minor / np.outer(scale, scale))
    if log_det == -np.inf:
        return R, -np.inf
    return schur_complement(R, R @ basis.T, minor, basis @ R), log_det + 2 * float(np.log(scale * height).sum())


def rank_one_condition(Z: NumberArray, q: FloatArray) -> tuple[NumberArray, NumberArray]:
    """Return Z − (Z q)(qᵀZ)/(qᵀZq) and qᵀZq: conditioning on one more item, for one matrix or a stack of them."""
    u, v = Z @ q, q @ Z
    pivot = np.asarray(u @ q)
    return Z - u[..., :, None] * v[..., None, :] / pivot[..., None, None], pivot


# -- kernels of the remaining items ----------------------------------------------------------------------------------------------


def condition_inner(W: FloatArray, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the W of the kernel X W Xᵀ given items with these rows of X, det L ≠ 0, and the magnitudes of the terms it is made of.

    In an orthonormal basis of the rows their norms cancel. The result is projected off that basis on both sides, so that rounding
    leaves the given items no component.
    """
    basis = np.linalg.qr(rows.T)[0]
    rest, magnitudes = _without(W, basis)
    rest = rest - basis @ (basis.T @ rest)
    return rest - (rest @ basis) @ basis.T, magnitudes


def condition_inner_with_background(
    W: FloatArray, rows: FloatArray, magnitudes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the same for L = I + X W Xᵀ on the given items: W − W Y(I + YᵀWY)⁻¹YᵀW, the columns of Y spanning the rows.

    ``magnitudes`` are those of W. Long directions are scaled down, so that they do not drown the identity.
    """
    _, norms, directions = np.linalg.svd(rows, full_matrices=False)
    balance = np.maximum(1.0, norms * np.sqrt(magnitudes.max()))
    return _without(W, directions.T * (norms / balance), np.diag(balance**-2.0))


def _without(W: FloatArray, Y: FloatArray, corner: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
    """Return W − W Y(corner + YᵀWY)⁻¹YᵀW and the magnitudes of the terms it is made of."""
    left, right = W @ Y, Y.T @ W
    inverse = inverted(congruence(Y.T, W) if corner is None else corner + congruence(Y.T, W))
    pivots = np.abs(inverse)
    if corner is not None:
        # What the pivots are sums of may be far larger than they are; skew parts leave the diagonal without rounding.
        symmetric, skew = (np.abs(Y).T @ np.abs(W + sign * W.T) @ np.abs(Y) / 2 for sign in (1, -1))
        np.fill_diagonal(skew, 0.0)
        pivots = pivots @ (corner + symmetric + skew) @ pivots
    return W - left @ inverse @ right, entry_magnitudes(np.abs(W) + np.abs(left) @ pivots @ np.abs(right))


class Remainder(NamedTuple):
    """What eliminating k items leaves of L = Z C Zᵀ: L^Y_ab = z_a M z_bᵀ with z_a = q_a · to_z.

    Z = Q · scale, C = balanced B. ``magnitudes`` are those of the terms of M; ``loss`` is the relative error of det L_Y. If that is
    zero, ``null`` spans the null space of L_Y in terms of q_a, and to_z and M are empty.
    """

    to_z: FloatArray
    M: FloatArray
    magnitudes: FloatArray
    noise: FloatArray
    null: FloatArray
    loss: float = 0.0

    def kernel(self, noise: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return G, W' and the magnitudes of its terms, with L^Y = (Q G) W' (Q G)ᵀ and columns of G of order one.

        ``noise`` is that of the directions of Q. What it leaves in a column of Q G counts as a part of the magnitudes.
        """
        unit = power_of_two(np.linalg.norm(self.to_z, axis=0))
        G = self.to_z / unit
        inflated = np.maximum(1.0, 2 * (np.abs(G).T @ noise) / ROUNDING)
        return G, self.M * np.outer(unit, unit), self.magnitudes * (unit * inflated) ** 2


def eliminate(coords: Coordinates, q: FloatArray) -> Remainder | None:
    """Return what is left of L given items with these rows of Q; None where the rows are linearly dependent.

    Coordinates are eliminated with the items, large ones first, so that gains of very different magnitudes keep their digits.
    """
    k, r, scale = len(q), coords.rank, coords.scale
    C = coords.B / np.outer(scale, scale)
    if k > r or np.any(np.linalg.norm(q, axis=1) <= ROUNDING):
        return None
    terms = np.abs(C) * np.outer(coords.excess, coords.excess)
    if k == 0:
        return Remainder(np.diag(scale), C, entry_magnitudes(terms), coords.noise, np.empty((r, 0)))
    Z = q * scale
    Z = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    R, pivot = sl.qr(Z, mode="r", pivoting=True)
    first, free = pivot[:k], pivot[k:]
    if np.any(np.abs(np.diag(R)) <= (k * ROUNDING + coords.noise[first]) * np.linalg.norm(Z, axis=0)[first]):
        return None
    E = sl.solve_triangular(R[:, :k], R[:, k:])
    F = np.zeros((k, r))
    F[:, first], F[:, free] = np.eye(k), E
    middle = F @ C @ F.T
    left, values, _ = sl.svd(middle)
    singular = values <= k * ROUNDING * (np.abs(F) @ np.abs(C) @ np.abs(F).T).max()
    if singular.any():
        null = scale[:, None] * (C @ (F.T @ left[:, singular]))
        return Remainder(np.empty((r, 0)), np.empty((0, 0)), np.empty(0), np.empty(0), null)
    left, right, size = C @ F.T, F @ C, np.abs(F)
    M = schur_complement(C, left, middle, right)
    inverse = np.abs(inverted(middle))
    loss = ROUNDING * float(np.linalg.norm(inverse * (size @ terms @ size.T).T))
    terms = terms[np.ix_(free, free)] + np.abs(left[free]) @ inverse @ np.abs(right[:, free])
    to_z = np.zeros((r, r - k))
    to_z[first], to_z[free, np.arange(r - k)] = -E, 1.0
    M, magnitudes = M[np.ix_(free, free)], entry_magnitudes(terms)
    return Remainder(scale[:, None] * to_z, M, magnitudes, coords.noise[free], np.empty((r, 0)), loss)
