"""The up-step of a walk without rejection of pairs: two draws of one item each.

Law: exact. In the kernel's coordinates L^A = Q B^A Qᵀ with B^A = B − B Q_Aᵀ (Q_A B Q_Aᵀ)⁻¹ Q_A B, and the pair {a, b}
that joins the items kept, A, has probability ∝ det(L^A_ab). Since Σ_b q_b q_bᵀ = I, its first item and then its
second have the weights

    Σ_b det(L^A_ab) = q_aᵀ [tr(B^A) B^A − (B^A)²] q_a,
    det(L^A_ab) = q_bᵀ [(q_aᵀB^Aq_a) B^A − B^A q_a q_aᵀ B^A] q_b.

Scaled to traces 2 and 1, both matrices are inclusion matrices of an NDPP, so they lie between 0 and I and the leverage
table accepts 2 and 1 out of r proposals on average. No eigendecomposition, no constant that depends on the kernel.
Cost: O(kr²) per step.

B^A does not exist if L_A is singular, and loses digits if it nearly is, or if L is far larger than what A leaves of it.
The loss is estimated at each step. Above ``MAX_LOSS``, :func:`~ndpp.samplers.walk.up.safe_form` does without L_A⁻¹, in O(r⁴) and with the
same law; the counter ``fallbacks`` says how often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from ndpp._types import FloatArray, IntArray
from ndpp._validation import clip_probabilities
from ndpp.items import ItemDraw, LeverageTable
from ndpp.items.table import ACCEPTANCE
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.scaling import EPS, unit_of
from ndpp.linalg.schur import MAX_LOSS
from ndpp.samplers.walk.up import safe_form

BLOCK = 0.5
"""Items proposed at once, as a fraction of the expected number needed. No distribution depends on it."""


@dataclass(frozen=True)
class DirectUp:
    """Draw the pair as two items, proposed by their leverage. The default of :class:`Walk`.

    Examples
    --------
    >>> import numpy as np, ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(3), [[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    >>> DirectUp().prepare(kernel, 3).pair(np.random.default_rng(0), np.array([2]))[0]  # 0 and 1 only come together
    array([0, 1])
    """

    def prepare(self, kernel: LowRankKernel, size: int) -> PreparedDirectUp:
        """Build the leverage table, in O(n). For small catalogues, whose Q is in memory, also compute QB and QBᵀ."""
        index, Q = LeverageTable.prepare(kernel), kernel.coordinates.Q
        B = np.asarray(kernel.coordinates.B / unit_of(kernel.coordinates.B))
        if Q is None:
            return PreparedDirectUp(kernel, index, B, None)
        left = Q @ B
        return PreparedDirectUp(kernel, index, B, PairFactors(Q, left, Q @ B.T, np.einsum("ij,ij->i", left, Q)))


class PairFactors(NamedTuple):
    """q_a, q_aᵀB, q_aᵀBᵀ and q_aᵀBq_a of every item."""

    Q: FloatArray
    left: FloatArray
    right: FloatArray
    diagonal: FloatArray


class Given(NamedTuple):
    """B^A = B − G X = B − U F, with F = Q_A B, G = B Q_Aᵀ, X = (Q_A B Q_Aᵀ)⁻¹F and U = G (Q_A B Q_Aᵀ)⁻¹.

    ``pairs`` is tr(B^A)² − tr((B^A)²) = 2 e_2(L^A); ``error`` estimates the rounding error of B^A, ``loss`` that of
    the first form.
    """

    F: FloatArray
    G: FloatArray
    X: FloatArray
    U: FloatArray
    inner: FloatArray
    trace: float
    pairs: float
    error: float
    loss: float


class Chosen(NamedTuple):
    """What the second draw needs of the first item: p = q_aᵀB^Aq_a, columns G, Xᵀ, B^Aq_a, (q_aᵀB^A)ᵀ, trace, loss."""

    p: float
    columns: FloatArray
    total: float
    loss: float


@dataclass(frozen=True, eq=False)
class PreparedDirectUp:
    """The up-step for one kernel.

    ``B`` is the kernel's, scaled to order one: no product over- or underflows, and probabilities do not depend on the scale. ``factors``
    exist for small catalogues.
    """

    kernel: LowRankKernel
    index: LeverageTable
    B: FloatArray
    factors: PairFactors | None

    def pair(self, rng: np.random.Generator, kept_rows: IntArray) -> tuple[IntArray, dict[str, float]]:
        """Draw a pair that completes the rows kept, in ascending order, and return it with counters.

        ``item_proposals`` counts proposals of single items, ``fallbacks`` items drawn by the slow, safe route.
        """
        first, second, fallbacks = None, None, 0
        given = condition(self.B, self.kernel.q_rows(kept_rows))
        if given.loss <= MAX_LOSS:
            first = self._first(rng, given)
            second = self._second(rng, given, first.row)
        if first is None:
            first, fallbacks = self.index.draw_counted(rng, safe_form(self.kernel, kept_rows, 2)), 1
        if second is None:
            form = safe_form(self.kernel, np.append(kept_rows, first.row), 1)
            second, fallbacks = self.index.draw_counted(rng, form), fallbacks + 1
        counters = {"proposals": 1, "rejections": 0, "item_proposals": first.proposals + second.proposals}
        return np.sort([first.row, second.row]), {**counters, "fallbacks": fallbacks}

    def _first(self, rng: np.random.Generator, given: Given) -> ItemDraw:
        if self.factors is None:
            return self.index.draw_counted(rng, first_form(given))
        return self._accept(rng, 2, partial(first_probabilities, self.factors, given))

    def _second(self, rng: np.random.Generator, given: Given, row: int) -> ItemDraw | None:
        """Draw the second item; return None if too few digits are left after the first."""
        chosen = choose(given, self.kernel.q_rows(np.array([row]))[0])
        if chosen.loss > MAX_LOSS:
            return None
        if self.factors is None:
            return self.index.draw_counted(rng, second_form(given, chosen))
        return self._accept(rng, 1, partial(second_probabilities, self.factors, given, chosen))

    def _accept(
        self, rng: np.random.Generator, trace: int, probabilities: Callable[[IntArray], FloatArray]
    ) -> ItemDraw:
        """Propose items by leverage and accept one; ``probabilities(rows)`` are q_aᵀMq_a for an M of this trace."""
        expected = self.kernel.rank / trace

        def judge(rows: IntArray, uniforms: FloatArray) -> int:
            chances = probabilities(rows) / self.index.leverage[rows]
            accepted = np.flatnonzero(uniforms < clip_probabilities(chances, ACCEPTANCE, tolerance=MAX_LOSS))
            return int(accepted[0]) if len(accepted) else -1

        return self.index.draw_by(rng, int(np.clip(BLOCK * expected, 16, 1024)), judge, expected)


def condition(B: FloatArray, rows: FloatArray) -> Given:
    """Return B^A given the items with rows ``rows`` of Q. O(kr²)."""
    with np.errstate(all="ignore"):  # overflow and NaN give an infinite loss
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)  # B^A does not depend on their scale
        F, G = rows @ B, B @ rows.T
        X, U = _solve_both(F @ rows.T, F, G) if len(rows) else (F, G)
        inner = B - G @ X
        trace = float(np.trace(inner))
        pairs = trace**2 - float(np.einsum("ij,ji->", inner, inner))
        # Rounding of Q_A B Q_Aᵀ is about ε‖F_i‖ in row i and enters B^A between U and X.
        spread = np.linalg.norm(U * np.linalg.norm(F, axis=1))
        error = EPS * float(np.linalg.norm(B) + spread * (1 + np.linalg.norm(X)))
        loss = _ratio(2 * error * (abs(trace) + 3 * float(np.linalg.norm(inner))), pairs)
    return Given(F, G, X, U, inner, trace, pairs, error, loss)


def _solve_both(middle: FloatArray, F: FloatArray, G: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return middle⁻¹F and G middle⁻¹ from one factorisation; an explicit inverse would lose digits."""
    factor, pivot, _ = lapack.dgetrf(middle)
    return lapack.dgetrs(factor, pivot, F)[0], lapack.dgetrs(factor, pivot, G.T, trans=1)[0].T


def choose(given: Given, q: FloatArray) -> Chosen:
    """Return what the second draw needs if the item with row ``q`` is the first."""
    q = q / np.linalg.norm(q)  # the scale of q cancels
    before, after = q @ given.inner, given.inner @ q
    p = float(before @ q)
    total = p * given.trace - float(before @ after)
    norms = float(np.linalg.norm(given.inner) + abs(p) + np.linalg.norm(before) + np.linalg.norm(after))
    columns = np.column_stack([given.G, given.X.T, after, before])
    return Chosen(p, columns, total, _ratio(given.error * norms, total))


def _ratio(error: float, total: float) -> float:
    """Return the relative error; infinite if nothing is left of the total, or for NaN."""
    return float(error / total) if total > 0 and np.isfinite(error) else np.inf


def first_form(given: Given) -> FloatArray:
    """Return tr(B^A) B^A − (B^A)², scaled to trace 2: q_aᵀMq_a is the probability that a is one of the pair."""
    return (given.trace * given.inner - given.inner @ given.inner) * (2 / given.pairs)


def second_form(given: Given, chosen: Chosen) -> FloatArray:
    """Return (q_aᵀB^Aq_a) B^A − B^A q_a q_aᵀ B^A, scaled to trace 1: q_bᵀMq_b is the probability that b is the other."""
    return (chosen.p * given.inner - np.outer(chosen.columns[:, -2], chosen.columns[:, -1])) / chosen.total


def first_probabilities(factors: PairFactors, given: Given, rows: IntArray) -> FloatArray:
    """Return q_aᵀMq_a of these rows, M being the first form, without forming M. O(kr) each."""
    q = factors.Q[rows]
    before = factors.left[rows] - (q @ given.G) @ given.X  # qᵀB^A
    after = factors.right[rows] - (q @ given.F.T) @ given.U.T  # B^Aq
    values = given.trace * np.einsum("ij,ij->i", before, q) - np.einsum("ij,ij->i", before, after)
    return np.asarray(values * (2 / given.pairs))


def second_probabilities(factors: PairFactors, given: Given, chosen: Chosen, rows: IntArray) -> FloatArray:
    """Return q_bᵀMq_b of these rows, M being the second form, without forming M. O(kr) each."""
    k, parts = len(given.F), factors.Q[rows] @ chosen.columns
    own = factors.diagonal[rows] - np.einsum("ij,ij->i", parts[:, :k], parts[:, k : 2 * k])  # qᵀB^Aq
    return np.asarray((chosen.p * own - parts[:, -2] * parts[:, -1]) / chosen.total)
