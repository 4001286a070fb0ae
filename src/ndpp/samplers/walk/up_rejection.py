"""The up-step of a walk by rejection [Han22, Alg. 2]: complete the items kept, A, by a pair {a, b} ∝ det L_{A ∪ {a, b}}.

Law: exact. In the kernel's coordinates L^A = Q B^A Qᵀ, B^A = B − B Q_Aᵀ (Q_A B Q_Aᵀ)⁻¹ Q_A B (line 2). The proposal is
the symmetric 2-DPP with B̂ = sym(B^A) + |skew(B^A)| (lines 3 and 4; the paper prints (W + W)/2 for the symmetric part),
accepted with probability det L^A_ab / det L̂^A_ab ≤ 1 [Thm. 1].

B^A = TᵀBT with T = I − Q_Aᵀ (Q_A B Q_Aᵀ)⁻¹ Q_A B. So factors of both parts of B, computed once, give those of B^A in
O(k r²), and |skew(B^A)| takes one decomposition, of the order of the rank of the skew part. The 2-DPP takes none: for any
Z with B̂ = Z Zᵀ it is a mixture of projections onto the spans of two columns of Z, chosen with probability ∝ their Gram
determinant (Cauchy–Binet); the paper's Alg. 3 is the case of orthogonal columns. The paper draws the two items through a tree over all
items, O(r² log n) each, and so do the experiments that time it (``ndpp_experiments.tree``). Here they come by leverage, as in
:mod:`ndpp.samplers.exact.spectral`, whatever n. With Q in memory, all proposals of a step are one compiled call; else the same loop is
interpreted.

Cost: O(r³) per step; O(r²) per proposal. The expected number of proposals is e_2(L̂^A) / e_2(L^A). |skew| is computed in orthonormal
coordinates, where it has the smallest trace of all symmetric matrices that bound the skew part.

If L_A is singular, B^A does not exist although the pair has a distribution, and if it nearly is, T has too few digits. The pair is then
drawn without rejection, in O(r⁴) (:func:`~ndpp.samplers.walk.up.safe_form`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from ndpp._compiled import njit
from ndpp._types import FloatArray, IntArray, KeyArray
from ndpp._validation import PROBABILITY_TOLERANCE, check_count, clip_probabilities
from ndpp.errors import BudgetExceededError
from ndpp.items import LeverageTable
from ndpp.items.base import look_up_cdf
from ndpp.items.table import TableArrays, seed_words, uniform
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.scaling import EPS, unit_of
from ndpp.linalg.schur import MAX_LOSS
from ndpp.linalg.skew import skew_part, symmetric_part, youla
from ndpp.samplers.exact.rows import Rows, suited, take
from ndpp.samplers.exact.spectral import ProjectedItems, draw_projection
from ndpp.samplers.rejection import RATIO_TOLERANCE
from ndpp.samplers.walk.up import no_pair, safe_form
from ndpp.samplers.walk.up_direct import condition

ACCEPTANCE = "acceptance of a proposed set"
AT_ONCE = 256
"""Proposals per compiled call; Ctrl-C is heard between calls. No draw depends on it."""


@dataclass(frozen=True)
class RejectionUp:
    """The paper's up-step, with at most ``budget`` proposals per pair.

    Examples
    --------
    >>> import numpy as np, ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(3), [[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    >>> up = RejectionUp().prepare(kernel, 3)
    >>> rows, info = up.pair(np.random.default_rng(0), np.array([2]))
    >>> rows, info["proposals"]  # 0 and 1 only come together
    (array([0, 1]), 1)
    """

    budget: int = 1_000_000

    def prepare(self, kernel: LowRankKernel, size: int | None = None) -> PreparedRejectionUp:
        """Build the leverage table and decompose both parts of B, for sets of all sizes."""
        index, scale = LeverageTable.prepare(kernel), kernel.coordinates.scale
        balanced, back = kernel.coordinates.B / np.outer(scale, scale), (scale / unit_of(scale))[:, None]
        S, F = factors(balanced)
        budget = check_count(self.budget, "budget", least=1)
        return PreparedRejectionUp(kernel, index, budget, back * balanced * back.T, back * S, back * F)


class Step(NamedTuple):
    """What the proposals of one step share.

    ``columns`` is [S, R, F], S having ``n_symmetric`` columns, R and F = [Y, Z] the same number: sym(B^A) = S Sᵀ, |skew(B^A)| = R Rᵀ
    and skew(B^A) = Y Zᵀ − Z Yᵀ. ``gram`` is the Gram matrix of [S, R], and ``cdf`` the cumulated Σ_j of its minors (i, j).
    """

    columns: FloatArray
    n_symmetric: int
    gram: FloatArray
    cdf: FloatArray
    expected_proposals: float

    @classmethod
    def of(cls, S: FloatArray, F: FloatArray, R: FloatArray) -> Step:
        """Sum all minors of order two."""
        p, Z = S.shape[1], np.hstack([S, R])
        gram = Z.T @ Z
        diagonal = np.diag(gram)
        minors = np.maximum(diagonal * diagonal.sum() - np.einsum("ij,ij->i", gram, gram), 0.0)
        # tr(B^A)² − tr((B^A)²): skew(B^A) and its absolute value have the same norm.
        pairs = diagonal[:p].sum() ** 2 - np.sum(gram[:p, :p] ** 2) + np.sum(gram[p:, p:] ** 2)
        if not pairs > 0:
            raise no_pair()
        return cls(np.ascontiguousarray(np.hstack([Z, F])), p, gram, np.cumsum(minors), float(minors.sum() / pairs))


@dataclass(frozen=True, eq=False)
class PreparedRejectionUp:
    """The up-step for one kernel.

    ``B`` is the kernel's, scaled to order one: sym(B) = S Sᵀ and skew(B) = Y Zᵀ − Z Yᵀ with F = [Y, Z], up to rounding.
    """

    kernel: LowRankKernel
    index: LeverageTable
    budget: int
    B: FloatArray
    S: FloatArray
    F: FloatArray

    def pair(self, rng: np.random.Generator, kept_rows: IntArray) -> tuple[IntArray, dict[str, float]]:
        """Draw a pair that completes the rows kept, in ascending order, and return it with the counters."""
        step = self._step(self.kernel.q_rows(kept_rows))
        if step is None:
            first = self.index.draw(rng, safe_form(self.kernel, kept_rows, 2))
            second = self.index.draw(rng, safe_form(self.kernel, np.append(kept_rows, first), 1))
            return np.sort([first, second]), {"proposals": 1, "rejections": 0}
        if step.expected_proposals > self.budget:
            raise BudgetExceededError(
                f"this step needs {step.expected_proposals:.3g} proposals on average, above its budget of "
                f"{self.budget}. Use DirectUp, which rejects nothing, or raise the budget.",
                count=0,
            )
        seed = seed_words(rng)
        for done in range(0, self.budget, AT_ONCE):
            rows, used = self.propose(seed, step, min(AT_ONCE, self.budget - done))
            if rows is not None:
                return np.sort(rows), {"proposals": done + used, "rejections": done + used - 1}
        raise BudgetExceededError(
            f"{self.budget} pairs were proposed and rejected; {step.expected_proposals:.3g} are needed on average. "
            "Use DirectUp, which rejects nothing, or raise the budget.",
            count=self.budget,
        )

    def propose(self, seed: KeyArray, step: Step, most: int) -> tuple[IntArray | None, int]:
        """Propose up to ``most`` pairs; return the first that is accepted, or None, and its number."""
        Q = self.kernel.coordinates.Q
        rows: Rows = self.kernel if Q is None else Q
        found = suited(rows, _propose)(seed, self.index.arrays, rows, *step[:4], most)
        drawn, proposals, ratio = ProjectedItems(*found[:4]), found[4], found[5]
        drawn.check(self.index)
        clip_probabilities(np.array([ratio]), ACCEPTANCE, tolerance=RATIO_TOLERANCE)
        return (drawn.items if proposals <= most else None), proposals

    def expected_proposals(self, kept_rows: IntArray) -> float:
        """Return the expected number of proposals, e_2(L̂^A) / e_2(L^A); 1 if L_A is nearly singular and nothing is rejected."""
        step = self._step(self.kernel.q_rows(kept_rows))
        return 1.0 if step is None else step.expected_proposals

    def _step(self, given: FloatArray) -> Step | None:
        """Return Alg. 2, lines 2 to 4; None if L_A is singular, or nearly so."""
        found = condition(self.B, given)
        if found.loss > MAX_LOSS:
            return None
        given = given / np.linalg.norm(given, axis=1, keepdims=True)
        S, F = (part - found.X.T @ (given @ part) for part in (self.S, self.F))
        return Step.of(S, F, absolute_root(F))


def factors(B: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return S and F = [Y, Z] with sym(B) = S Sᵀ and skew(B) = Y Zᵀ − Z Yᵀ; columns are orthogonal, and none is rounding."""
    values, vectors = np.linalg.eigh(symmetric_part(B))
    some = values > len(B) * EPS * values.max(initial=0.0)
    sigma, Y, Z = youla(skew_part(B))
    pairs = sigma > len(B) * EPS * sigma.max(initial=0.0)
    root = np.sqrt(sigma[pairs])
    return vectors[:, some] * np.sqrt(values[some]), np.hstack([Y[:, pairs] * root, Z[:, pairs] * root])


def absolute_root(F: FloatArray) -> FloatArray:
    """Return R with R Rᵀ = |Y Zᵀ − Z Yᵀ| for F = [Y, Z]."""
    half = F.shape[1] // 2
    if half == 0:
        return F
    # In an orthonormal basis of the columns, the matrix has their number as its order.
    turns, tau, _, _ = lapack.dgeqrf(F)
    T = np.triu(turns[: 2 * half])
    product = T[:, :half] @ T[:, half:].T
    sigma, Y, Z = youla(product - product.T)
    R = np.zeros(F.shape, order="F")
    R[: len(T)] = np.hstack([Y, Z]) * np.sqrt(np.tile(sigma, 2))
    return np.asarray(lapack.dormqr("L", "N", turns, tau, R, 64 * F.shape[1], overwrite_c=True)[0])


@njit(error_model="numpy")
def _propose(
    seed: KeyArray,
    table: TableArrays,
    rows: Rows,
    columns: FloatArray,
    n_symmetric: int,
    gram: FloatArray,
    cdf: FloatArray,
    most: int,
) -> tuple[IntArray, int, int, float, int, float]:
    """Return the fields of :class:`ProjectedItems` of the last pair, its number (``most`` + 1 if all were rejected), and its acceptance."""
    factors, q, number = np.ones(1), np.empty((2, len(columns))), most + 1
    for proposals in range(1, most + 1):
        V = choose_plane(columns, gram, cdf, uniform(seed), uniform(seed))
        drawn, ratio = draw_projection(seed, V, rows, factors, table), 0.0
        pair = drawn.items
        if drawn.done < 2 or pair[0] == pair[1] or not drawn.largest <= 1.0 + PROBABILITY_TOLERANCE:
            number = proposals
            break
        take(pair, rows, factors, q)
        ratio = pair_ratio(q[0], q[1], columns, n_symmetric)
        if uniform(seed) < ratio or not ratio <= 1.0 + RATIO_TOLERANCE:
            number = proposals
            break
    return drawn.items, drawn.done, drawn.proposals, drawn.largest, number, ratio


@njit(error_model="numpy")
def choose_plane(columns: FloatArray, gram: FloatArray, cdf: FloatArray, first: float, second: float) -> FloatArray:
    """Choose two columns with probability ∝ their Gram determinant; return an orthonormal basis of their span, as rows."""
    i = look_up_cdf(cdf, first)
    sums, total = np.empty(len(gram)), 0.0
    for j in range(len(gram)):
        total += max(gram[i, i] * gram[j, j] - gram[i, j] * gram[i, j], 0.0)
        sums[j] = total
    j = look_up_cdf(sums, second)
    V, same = np.empty((2, len(columns))), gram[i, j] / gram[i, i]
    for c in range(len(columns)):
        V[0, c] = columns[c, i]
        V[1, c] = columns[c, j] - same * columns[c, i]
    np.divide(V[0], math.sqrt(np.dot(V[0], V[0])), V[0])
    np.subtract(V[1], np.dot(V[0], V[1]) * V[0], V[1])  # once more, in case the columns are close
    np.divide(V[1], math.sqrt(np.dot(V[1], V[1])), V[1])
    return V


@njit(error_model="numpy")
def pair_ratio(q: FloatArray, other: FloatArray, columns: FloatArray, n_symmetric: int) -> float:
    """Return det L^A_ab / det L̂^A_ab of two items with these rows of Q, before it is checked and clipped."""
    a = np.dot(q, columns) / math.sqrt(np.dot(q, q))  # the scale of the rows cancels
    b = np.dot(other, columns) / math.sqrt(np.dot(other, other))
    half = (len(a) - n_symmetric) // 4
    aa = bb = ab = skew = 0.0
    for i in range(n_symmetric):
        aa, bb, ab = aa + a[i] * a[i], bb + b[i] * b[i], ab + a[i] * b[i]
    for i in range(n_symmetric + 2 * half, n_symmetric + 3 * half):
        skew += a[i] * b[i + half] - a[i + half] * b[i]
    minor = aa * bb - (ab + skew) * (ab - skew)
    for i in range(n_symmetric, n_symmetric + 2 * half):
        aa, bb, ab = aa + a[i] * a[i], bb + b[i] * b[i], ab + a[i] * b[i]
    bound = aa * bb - ab * ab
    return minor / bound if minor > 0.0 and bound > 0.0 else 0.0
