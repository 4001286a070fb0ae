"""Symmetric DPPs over the rows of Q, by a mixture of elementary DPPs [Han22, Alg. 3; Kulesza & Taskar 2012, Alg. 8].

Law: P(S) ∝ det(Q C Qᵀ)_S for a symmetric positive semidefinite C of order r, over all sets or those of one size. Exact.

C = Σ_i λ_i v_i v_iᵀ. A set E of eigenvectors is drawn with probability ∝ Π_{i ∈ E} λ_i. Given E, the items are those of the
projection DPP of V_E V_Eᵀ, drawn one after another with probability ∝ q_aᵀ M q_a, where M projects onto the rest of
span V_E: the direction of each item is removed after its draw.

The paper's Alg. 3 takes the eigenvectors of U XᵀX U and prints U = Ŵ^(−½); it must be U = Ŵ^½. In the coordinates used here
XᵀX = I, so U XᵀX U is Ŵ itself and its eigenvectors suffice: no square root is needed.

Cost: O(r³ + r·size) to prepare; size · O(r² (log n + leaf)) per set through a tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndpp._compiled import njit
from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.errors import ImpossibleSizeError, InvalidKernelError, PrecisionError
from ndpp.items import ItemDraws, ItemIndex
from ndpp.linalg.tilts import tilt_of_coins

NEGATIVE_TOLERANCE = 1e-8
"""How far below zero, relative to the largest, rounding may move an eigenvalue of a positive semidefinite matrix."""


@dataclass(frozen=True, eq=False)
class SpectralDPP:
    """The (k-)DPP with kernel Q C Qᵀ: orthonormal eigenvectors (r, p), the distribution of their choice, and an index of items."""

    vectors: FloatArray
    choice: EigenvectorLaw
    index: ItemIndex

    def draw(self, rng: np.random.Generator) -> ItemDraws:
        """Draw one set, in the order of drawing."""
        return draw_projection(rng, self.vectors[:, self.choice.draw(rng)], self.index)


@dataclass(frozen=True, eq=False)
class EigenvectorLaw:
    """Sets E of eigenvectors with probability ∝ Π_{i ∈ E} λ_i, over all sets or those of one size.

    For a size k, independent coins with probabilities p_i = ρλ_i / (1 + ρλ_i), Σp_i = k, are conditioned on k heads. The
    distribution is the same for every ρ > 0, and the recursion is one of probabilities, none of which under- or
    overflows on a path of relevant probability, whatever the spread of λ.

    Examples
    --------
    >>> law = EigenvectorLaw.prepare(np.array([1e-12, 1.0, 1e12]), size=2)
    >>> law.draw(np.random.default_rng(0))
    array([1, 2])
    >>> round(law.log_normalizer / float(np.log(1e12)), 6)
    1.0
    """

    chance: FloatArray
    heads: FloatArray
    log_normalizer: float

    @classmethod
    def prepare(cls, eigenvalues: FloatArray, *, size: int | None = None) -> EigenvectorLaw:
        """Run the recursion, in O(r · size)."""
        positive = int(np.count_nonzero(eigenvalues))
        if size is not None and check_count(size, "size") > positive:
            raise ImpossibleSizeError(
                f"size must be at most the rank, {positive} (the number of eigenvalues above rounding); got {size}"
            )
        with np.errstate(divide="ignore"):
            logits = np.log(eigenvalues)
        if size is None:
            return cls(expit(logits), np.empty((0, 0)), float(np.logaddexp(0, logits).sum()))
        tilt = tilt_of_coins(logits[logits > -np.inf], min(size, positive - 0.5)) if size else 0.0
        logits = logits + tilt
        heads = heads_table(expit(logits), expit(-logits), size)
        log_normalizer = np.log(heads[-1, size]) + np.logaddexp(0, logits).sum() - size * tilt if size else 0.0
        return cls(expit(logits), heads, float(log_normalizer))

    def draw(self, rng: np.random.Generator) -> IntArray:
        """Draw E, in ascending order."""
        return choose(self.chance, self.heads, rng.random(self.chance.size))


def decomposed(inner: FloatArray, size: int | None = None) -> tuple[FloatArray, EigenvectorLaw]:
    """Return the eigenvectors of a symmetric positive semidefinite matrix, and the distribution of their choice."""
    values, vectors = np.linalg.eigh(inner)
    largest = float(values.max(initial=0.0))
    if values.min(initial=0.0) < -NEGATIVE_TOLERANCE * largest:
        raise InvalidKernelError(
            f"the inner matrix must be positive semidefinite; its smallest eigenvalue is {values[0]:.3g}, "
            f"its largest {largest:.3g}"
        )
    # Smaller eigenvalues are rounding errors of the large ones.
    values[values <= len(values) * np.finfo(float).eps * largest] = 0.0
    return vectors, EigenvectorLaw.prepare(values, size=size)


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


def expit(x: FloatArray) -> FloatArray:
    """Return 1 / (1 + e^−x) to full relative accuracy."""
    return np.exp(-np.logaddexp(0, -x))


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
