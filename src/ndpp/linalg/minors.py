"""Minors and Schur complements of L = Q B Qᵀ."""

from __future__ import annotations

import numpy as np
import scipy.linalg as sl

from ndpp._types import AnyArray, FloatArray
from ndpp.linalg.coordinates import EPS, Coordinates


def log_minor(rows: FloatArray, coords: Coordinates) -> float:
    """Return log det(rows · B · rowsᵀ), −inf where it is zero to rounding. Shape of ``rows``: (k, r).

    The large directions of B would drown the small ones in the plain product. A triangular factor of the scaled rows, large columns
    first, keeps them apart: det = det(F · balanced B · Fᵀ), and the rows of F can be scaled to one size.
    """
    k, order = len(rows), np.argsort(-coords.scale, kind="stable")
    if k > coords.rank:
        return -np.inf
    factor = np.linalg.qr((rows * coords.scale)[:, order], mode="r") if k > 1 else (rows * coords.scale)[:, order]
    # qr gives the factor of the columns; the determinant of an orthogonal matrix on both sides is one.
    size = np.linalg.norm(factor, axis=1)
    if np.any(size == 0):
        return -np.inf
    factor = factor / size[:, None]
    scale = coords.scale[order]
    core = factor @ (coords.B[np.ix_(order, order)] / np.outer(scale, scale)) @ factor.T
    return log_det_or_zero(core) + 2 * float(np.log(size).sum())


def log_det_or_zero(core: AnyArray) -> float:
    """Return log det of a balanced matrix (entries of order one), −inf where it is singular to rounding or not positive."""
    if len(core) == 0:
        return 0.0
    sign, log_abs = np.linalg.slogdet(core)
    singular = sl.svdvals(core)[-1] <= 16 * EPS * len(core)
    return float(log_abs) if sign > 0 and not singular else -np.inf


def schur_complement(A: AnyArray, left: AnyArray, middle: AnyArray, right: AnyArray) -> AnyArray:
    """Return A − left · middle⁻¹ · right."""
    return A - left @ np.linalg.solve(middle, right)


def condition_on(Z: AnyArray, rows: FloatArray) -> tuple[AnyArray, AnyArray]:
    """Return Z − Z Qᵀ(Q Z Qᵀ)⁻¹Q Z and log det(Q Z Qᵀ) for Q = ``rows``, for one matrix or a stack of them."""
    if len(rows) == 0:
        return Z, np.zeros(Z.shape[:-2])
    right = rows @ Z
    middle = right @ rows.T
    sign, log_abs = np.linalg.slogdet(middle)
    return schur_complement(Z, Z @ rows.T, middle, right), log_abs + np.log(sign.astype(complex))


def rank_one_condition(Z: AnyArray, q: FloatArray) -> tuple[AnyArray, AnyArray]:
    """Return Z − (Z q)(qᵀZ)/(qᵀZq) and qᵀZq: conditioning on one more item, for one matrix or a stack of them."""
    u, v = Z @ q, q @ Z
    pivot = np.asarray(u @ q)
    return Z - u[..., :, None] * v[..., None, :] / pivot[..., None, None], pivot
