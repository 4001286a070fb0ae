"""Symmetric DPPs as mixtures of projections [Kulesza & Taskar 2012, Alg. 8]: the choice of eigenvectors, and items through any index.

The kernel Σ_i λ_i v_i v_iᵀ gives a set E of eigenvectors with probability ∝ Π_{i ∈ E} λ_i: independent coins with the odds λ_i, for sets of
one size given their number. Given E, the items are those of the projection DPP of V_E V_Eᵀ, drawn one after another with probability ∝
q_aᵀ M q_a, where M projects onto the rest of span V_E: the direction of each item is removed after its draw.

The paper's Alg. 3 [Han22] takes the eigenvectors of U XᵀX U and prints U = Ŵ^(−½); it must be U = Ŵ^½. In the coordinates used here
XᵀX = I, so U XᵀX U is Ŵ itself and its eigenvectors suffice: no square root is needed.

Cost: O(r·size) for the table of coins; size · O(r² (log n + leaf)) per set through a tree.
"""

from __future__ import annotations

import numpy as np

from ndpp._compiled import njit
from ndpp._types import FloatArray, IntArray
from ndpp.errors import PrecisionError
from ndpp.items import ItemDraws, ItemIndex


def draw_projection(rng: np.random.Generator, V: FloatArray, index: ItemIndex) -> ItemDraws:
    """Draw from the projection DPP with kernel Q V Vᵀ Qᵀ: as many items as V has (orthonormal) columns.

    The direction of each item is removed from V by a Householder reflection, so V stays orthonormal up to rounding.
    """
    rows: list[int] = []
    proposals = 0
    M = V @ V.T
    for left in range(V.shape[1], 0, -1):
        drawn = index.draw_counted(rng, M, factor=V)
        proposals += drawn.proposals
        rows.append(int(drawn.rows[0]))
        if left > 1:
            mirror = index.kernel.q_rows(drawn.rows)[0] @ V
            mirror[0] += np.copysign(np.sqrt(mirror @ mirror), mirror[0])
            V = V - (V @ mirror)[:, None] * (mirror * (2 / (mirror @ mirror)))
            M -= V[:, :1] * V[:, 0]
            V = V[:, 1:]
    if len(set(rows)) < len(rows):
        raise PrecisionError(f"a projection DPP drew an item twice ({rows}): its probability is nothing but rounding")
    return ItemDraws(np.array(rows, np.int64), proposals)


@njit()
def heads_table(p: FloatArray, q: FloatArray, most: int) -> FloatArray:
    """Return P(j heads among the first i coins) for 0 ≤ i ≤ r, 0 ≤ j ≤ most; q is 1 − p."""
    heads = np.zeros((p.size + 1, most + 1))
    heads[0, 0] = 1.0
    for i in range(p.size):
        heads[i + 1, 0] = heads[i, 0] * q[i]
        for j in range(1, min(most, i + 1) + 1):
            heads[i + 1, j] = heads[i, j] * q[i] + heads[i, j - 1] * p[i]
    return heads


@njit()
def choose(chance: FloatArray, heads: FloatArray, uniforms: FloatArray) -> IntArray:
    """Return which coins show heads; ``heads`` is empty for any number of them."""
    return given_heads(chance, heads, uniforms) if heads.size else np.flatnonzero(uniforms < chance)


@njit()
def given_heads(p: FloatArray, heads: FloatArray, uniforms: FloatArray) -> IntArray:
    """Return which coins show heads, given their number, from the last coin to the first."""
    left = heads.shape[1] - 1
    chosen = np.empty(left, np.int64)
    for i in range(p.size - 1, -1, -1):
        if left > i or (left and uniforms[i] * heads[i + 1, left] < p[i] * heads[i, left - 1]):
            left -= 1
            chosen[left] = i
    return chosen
