"""The distribution of a pair that completes the items A, for every A, including those with singular L_A.

If L_A is regular, det L_{A ∪ S} = det L_A · det(Q D Qᵀ)_S with D = B^A = B − B Q_Aᵀ L_A⁻¹ Q_A B. If not, this is zero
times infinity, although the left side is well defined. So directions of span{q_a : a ∈ A} in which L_A is singular, or
nearly so, are not eliminated but kept as a border of order p:

    det L_{A ∪ S}  ∝  det [[E, G Q_Sᵀ], [Q_S H, Q_S D Q_Sᵀ]].

Adding two items raises the rank by at most four, so for pairs p > 2 means probability zero. The pair {a, b} can be
drawn as two items, each from a quadratic form in q, without rejection: sum the determinant over b (Σ q_b q_bᵀ = I) for
the first, fix a for the second. For p = 0 these are the forms of :class:`~ndpp.samplers.DirectUp`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg as sl

from ndpp._types import FloatArray, IntArray
from ndpp.errors import PrecisionError, ZeroProbabilityError
from ndpp.items import ItemIndex
from ndpp.linalg.coordinates import Coordinates
from ndpp.linalg.scaling import congruence, unit_of
from ndpp.linalg.schur import NEARLY_SINGULAR, ROUNDING


class Bordered(NamedTuple):
    """The matrices E (p, p), G (p, r), H (r, p) and D (r, r) given A; D is B^A if p = 0."""

    E: FloatArray
    G: FloatArray
    H: FloatArray
    D: FloatArray


def condition_bordered(coords: Coordinates, given: FloatArray) -> Bordered:
    """Return the matrices given the items with rows ``given`` of Q. O(r³).

    B is balanced and rotated so that the given items span the first coordinates, which are eliminated, except for the
    border. The elimination then does not depend on the scale of the given items or on how close they are.
    """
    m, scale = len(given), coords.scale
    if m + 2 > coords.rank:
        raise ZeroProbabilityError(f"{m} items and two more are above the rank of the kernel, {coords.rank}")
    balanced = coords.B / np.outer(scale, scale)
    turn, triangle = sl.qr((given * scale).T, check_finite=False)
    apart = np.abs(np.diag(triangle)) > m * ROUNDING * np.linalg.norm(triangle, axis=0)
    border = 0
    if m:
        beside = turn[:, :m].T @ balanced
        _, values, right = np.linalg.svd(beside @ turn[:, :m])
        # L_A is accretive, so its left and right null spaces agree.
        turn[:, :m] = turn[:, :m] @ right.T
        largest = np.linalg.norm(beside)
        border = min(2, int(np.sum(values < NEARLY_SINGULAR * largest)))
        apart &= m == border or values[m - border - 1] > m * ROUNDING * largest
    if not apart.all():
        raise ZeroProbabilityError(
            f"the {m} items kept cannot be completed by two more: up to rounding, they are dependent, or their minor "
            "is singular in more than two directions"
        )
    kept, out = turn[:, m - border :], turn[:, : m - border]
    # The Schur complement as a congruence keeps a positive semidefinite, or zero, symmetric part.
    kept = kept - out @ np.linalg.solve(out.T @ balanced @ out, out.T @ balanced @ kept)
    core = congruence(kept.T, balanced)
    back = (scale / unit_of(scale))[:, None] * turn[:, m:]  # no distribution depends on the scale of L
    return Bordered(
        core[:border, :border],
        core[:border, border:] @ back.T,
        back @ core[border:, :border],
        back @ core[border:, border:] @ back.T,
    )


def first_form(law: Bordered) -> FloatArray:
    """Return M with q_aᵀ M q_a ∝ P(a is one of the pair)."""
    E, G, H, D = law
    K, det = adjugate(E)
    P = H @ K @ G
    M: FloatArray = det * (np.trace(D) * D - D @ D)
    if len(E):
        M = M - np.trace(P) * D - np.trace(D) * P + P @ D + D @ P
    if len(E) == 2:
        M = M + H @ adjugate(G @ H)[0] @ G
    return np.asarray(M)


def second_form(law: Bordered, q: FloatArray) -> FloatArray:
    """Return M with q_bᵀ M q_b ∝ P(b is the other one), given that the item with row ``q`` is one of the pair."""
    E, G, H, D = law
    K, det = adjugate(np.block([[E, (G @ q)[:, None]], [(q @ H)[None, :], np.array([[q @ D @ q]])]]))
    return np.asarray(det * D - np.column_stack([H, D @ q]) @ K @ np.vstack([G, q @ D]))


def draw_pair(rng: np.random.Generator, law: Bordered, index: ItemIndex) -> IntArray:
    """Draw the two items that complete A, in random order, without rejection."""
    rows = np.empty(2, np.int64)
    form = first_form(law)
    for i in range(2):
        rows[i] = index.draw(rng, form, bound=float(np.linalg.norm((form + form.T) / 2)))[0]
        form = second_form(law, index.kernel.q_rows(rows[:1])[0])
    if rows[0] == rows[1]:
        raise PrecisionError(f"item {rows[0]} was drawn twice: the probability of a pair is nothing but rounding")
    return rows


def adjugate(A: FloatArray) -> tuple[FloatArray, float]:
    """Return adj(A) and det(A) of a matrix of order at most three, singular or not.

    Examples
    --------
    >>> adjugate(np.array([[1.0, 2.0], [3.0, 4.0]]))[0]
    array([[ 4., -2.],
           [-3.,  1.]])
    """
    K = np.empty_like(A)
    for i, j in np.ndindex(K.shape):
        K[i, j] = (-1) ** (i + j) * np.linalg.det(np.delete(np.delete(A, j, 0), i, 1))
    return K, float(A[0] @ K[:, 0]) if len(A) else 1.0
