"""Minors and Schur complements."""

from __future__ import annotations

import numpy as np
import scipy.linalg as sl

from ndpp._types import AnyArray, FloatArray
from ndpp.linalg.coordinates import EPS, congruence
from ndpp.linalg.operations import NUMPY, Array, Operations


def log_minor(rows: AnyArray, W: AnyArray, *, weights: FloatArray) -> float:
    """Return log det(rows · W · rowsᵀ), −inf where it is zero to rounding. Shape of ``rows``: (k, d).

    Large items and directions would drown small ones in the plain product. Rows are scaled to one size, and a triangular factor of
    the scaled rows, large columns first, keeps directions apart: det = det(F W Fᵀ), where the rows of F can be scaled again.
    ``weights`` are the :func:`schur_weights` that W is balanced with, and rounding judged against.
    """
    k, W = len(rows), np.asarray(W, np.float64)
    if k == 0:
        return 0.0
    if k > rows.shape[1]:
        return -np.inf
    weight = np.sqrt(weights)
    scaled = rows * weight
    size = np.linalg.norm(scaled, axis=1)
    if np.any(size == 0):
        return -np.inf
    scaled = scaled / size[:, None]
    factor, pivot = sl.qr(scaled, mode="r", pivoting=True)
    # A row of the factor that is rounding of its columns stands for an item that depends on the others.
    if np.any(np.all(np.abs(factor) <= 16 * EPS * k * np.linalg.norm(scaled[:, pivot], axis=0), axis=1)):
        return -np.inf
    height = np.linalg.norm(factor, axis=1)
    balanced = (W / np.outer(weight, weight))[np.ix_(pivot, pivot)]
    return log_det_or_zero(congruence(factor / height[:, None], balanced)) + 2 * float(np.log(size * height).sum())


def log_det_or_zero(core: AnyArray) -> float:
    """Return log det of a balanced matrix (entries of order one), −inf where it is singular to rounding or not positive."""
    if len(core) == 0:
        return 0.0
    sign, log_abs = np.linalg.slogdet(core)
    singular = sl.svdvals(core)[-1] <= 16 * EPS * len(core)
    return float(log_abs) if sign > 0 and not singular else -np.inf


def schur_complement(A: Array, left: Array, middle: Array, right: Array, ops: Operations = NUMPY) -> Array:
    """Return A − left · middle⁻¹ · right."""
    return A - left @ ops.solve(middle, right)


def condition_on(Z: Array, rows: FloatArray, ops: Operations = NUMPY) -> tuple[Array, Array]:
    """Return Z − Z Qᵀ(Q Z Qᵀ)⁻¹Q Z and log det(Q Z Qᵀ) for Q = ``rows``, for one matrix or a stack of them."""
    if len(rows) == 0:
        return Z, ops.array(np.zeros(Z.shape[:-2]), Z)
    directions, height = row_basis(rows)
    basis = ops.array(directions, Z)
    right = basis @ Z
    middle = right @ basis.T
    log_abs, log_unit = ops.log_det(middle)
    log_volume = float(np.log(height).sum()) if height.all() else -np.inf
    return schur_complement(Z, Z @ basis.T, middle, right, ops), log_abs + log_unit + 2 * log_volume


def row_basis(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return an orthonormal basis of the span of ``rows``, as rows, and how far each is from those before it (0: rounding).

    Conditioning on items depends on the span of their rows alone. In this basis, rows that nearly coincide lose digits once
    and not twice.
    """
    basis, factor = np.linalg.qr(rows.T)
    height = np.zeros(len(rows))
    height[: len(factor)] = np.abs(np.diag(factor))
    return basis.T, np.where(height > 16 * EPS * len(rows) * np.linalg.norm(rows, axis=1), height, 0.0)


def rank_one_condition(Z: AnyArray, q: FloatArray) -> tuple[AnyArray, AnyArray]:
    """Return Z − (Z q)(qᵀZ)/(qᵀZq) and qᵀZq: conditioning on one more item, for one matrix or a stack of them."""
    u, v = Z @ q, q @ Z
    pivot = np.asarray(u @ q)
    return Z - u[..., :, None] * v[..., None, :] / pivot[..., None, None], pivot


def quadratic_forms(Q: FloatArray, M: FloatArray) -> FloatArray:
    """Return q_aᵀ M q_a for every row q_a of ``Q``."""
    return np.einsum("ij,ij->i", Q @ M, Q)
