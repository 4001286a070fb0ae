"""Exact samples of a symmetric kernel, by its eigenvectors: one compiled call per sample, at a cost independent of the number of items.

Law: that of :class:`~ndpp.samplers.Exact`, where W is symmetric (:func:`~ndpp.linalg.scaling.is_symmetric`). Given items Y, the further
items of a sample from the kernel ρL are a DPP with marginal kernel QZQᵀ, Z = R − RQ_Yᵀ(Q_Y R Q_Yᵀ)⁻¹Q_Y R (``docs/theory``). If L is
symmetric, so is Z, and Z = Σ μ_i v_i v_iᵀ with 0 ≤ μ_i ≤ 1 makes it a mixture of projections [Hough et al. 2006; Kulesza & Taskar 2012,
Algs. 1 and 8]:

1. Choose each eigenvector with probability μ_i, independently; for a size, given that there are as many as missing items. Sets of one
   size have the same distribution for every ρ, so ρ makes the wanted number the expected one, and nothing under- or overflows.
2. Draw as many items from the projection onto the chosen eigenvectors, the columns of V: propose an item by its leverage ℓ_a = ‖q_a‖²,
   accept it with probability ‖Vᵀq_a‖²/ℓ_a, reflect V so that one column has the direction of Vᵀq_a, and drop that column.

An error of ε in Z changes the probability of any event by about rε, however widely the eigenvalues of L are spread. That is why Z is
decomposed and not L.

Cost: O(r³) once per size, or O(r) if B is diagonal; then r/(k − i) proposals of O(r (k − i)) each for item i, O(k r²) per sample. If the
rank is near n, it takes less time to compute the probabilities of all items each time, O(n k²) per sample (:func:`draw_among_all`).
The sampler of the general route updates N complex matrices of order r for every item.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ndpp._compiled import interpreted, jitable, njit
from ndpp._memory import n_bytes_of
from ndpp._types import FloatArray, IntArray, KeyArray
from ndpp._validation import clip_probabilities
from ndpp.errors import PrecisionError
from ndpp.items import LeverageTable
from ndpp.items.base import look_up_cdf
from ndpp.items.table import ACCEPTANCE, TableArrays, propose, seed_words, uniform
from ndpp.laws.precision import REFUSE_ERROR
from ndpp.linalg.coordinates import Coordinates
from ndpp.linalg.scaling import ROUNDING
from ndpp.linalg.schur import condition_or_zero
from ndpp.linalg.size_law import ZERO_WEIGHT, resolvent, tilt_for
from ndpp.linalg.skew import symmetric_part
from ndpp.samplers.exact.routes import Done, Target, Unfinished
from ndpp.samplers.exact.rows import Rows, rows_of, suited, take

BLOCK = 32
"""Candidates that are fetched together. No draw depends on it."""
LEAST_RANK = 64
"""Up to this rank, items are proposed by their leverage."""
TRACE_TOLERANCE = 1e-7
"""How far probabilities of all items may be from adding up to the number of missing ones."""


class Spectrum(NamedTuple):
    """Eigenvectors of Z as rows; their μ; P(j heads among the first i coins), empty for any size."""

    vectors: FloatArray
    chance: FloatArray
    heads: FloatArray

    @classmethod
    def of(cls, coords: Coordinates, given: FloatArray, wanted: int | None) -> Spectrum:
        """Decompose Z for ``wanted`` items in addition to those with rows ``given`` of Q, or for any number if None. O(r³)."""
        tilt = 1.0 if wanted is None else tilt_for(coords, len(given) + wanted, given)
        Z, log_minor = condition_or_zero(resolvent(coords, np.array([tilt]))[0][0], given)
        is_diagonal = coords.eigenvalues is not None and not len(given)
        chance, vectors = (Z.diagonal(), np.eye(len(Z))) if is_diagonal else np.linalg.eigh(symmetric_part(Z))
        # Rounding may leave small negative eigenvalues, which count as zero; what it does to the kernel has been judged before.
        chance = clip_probabilities(chance, "choice of an eigenvector", tolerance=REFUSE_ERROR)
        kept = chance > len(chance) * ROUNDING
        chance, vectors = chance[kept], vectors[:, kept]
        heads = np.empty((0, 0)) if wanted is None else heads_table(chance, 1 - chance, wanted)
        if log_minor == -np.inf or (heads.size and not heads[-1, -1] > ZERO_WEIGHT):
            raise PrecisionError(
                f"the eigenvectors for {wanted} further items could not be computed to tolerance. "
                "Double precision is not enough for this size; ask for a smaller one, or drop the smallest directions of X."
            )
        return cls(np.ascontiguousarray(vectors.T), chance, heads)


@dataclass(frozen=True, eq=False)
class Projection:
    """What draws from a symmetric kernel: eigenvectors of Z, in the coordinates of the rows that are read."""

    name: ClassVar[str] = "projection"

    index: LeverageTable
    spectrum: Spectrum
    rows: Rows
    factors: FloatArray
    among_all: bool = False
    """Whether ``spectrum.vectors`` are those of all items, (r, n)."""

    @classmethod
    def prepare(cls, target: Target, wanted: int | None) -> Projection | None:
        """Decompose Z; None if the kernel is not symmetric."""
        if not target.symmetric:
            return None
        found = Spectrum.of(target.ladder.coords, target.ladder.given, wanted)
        rows, factors, to_q = rows_of(target.kernel)
        r, Q = target.kernel.rank, target.kernel.coordinates.Q
        size = found.chance.sum() if wanted is None else wanted
        if Q is not None and r > LEAST_RANK and len(Q) * size <= r * r and Q.nbytes <= target.ladder.memory.budget:
            is_diagonal = target.kernel.coordinates.eigenvalues is not None and not len(target.given)
            vectors = np.ascontiguousarray(Q.T[-len(found.chance) :] if is_diagonal else found.vectors @ Q.T)
            return cls(target.index, found._replace(vectors=vectors), rows, factors, among_all=True)
        if to_q is not None:
            found = found._replace(vectors=np.ascontiguousarray(found.vectors @ to_q.T))
        return cls(target.index, found, rows, factors)

    @property
    def n_bytes(self) -> int:
        """Bytes in addition to those of the target."""
        return n_bytes_of(self.spectrum)

    def draw(self, rng: np.random.Generator) -> Done:
        """Draw the further items of one sample, as rows in any order."""
        if self.among_all:
            _, chance, heads = self.spectrum
            coins = rng.random(len(chance))  # nothing is compiled on this way
            chosen = interpreted(given_heads)(chance, heads, coins) if heads.size else np.flatnonzero(coins < chance)
            return Done(draw_among_all(rng, self.spectrum.vectors[chosen]), len(chosen))
        arrays = self.index.arrays
        steps = (1 + self.spectrum.chance.sum()) * self.spectrum.vectors.size
        drawn = ProjectedItems(
            *suited(self.rows, _draw, steps)(seed_words(rng), *self.spectrum, self.rows, self.factors, arrays)
        )
        drawn.check(self.index)
        return Done(drawn.items, drawn.proposals)

    def finish(self, target: Target, rng: np.random.Generator, begun: Unfinished) -> Done:
        """Projections finish every sample that they begin."""
        raise AssertionError("projections leave no sample unfinished")


class ProjectedItems(NamedTuple):
    """Items of a projection, how many of them were found within the budget, the proposals, and the largest acceptance probability."""

    items: IntArray
    done: int
    proposals: int
    largest: float

    def check(self, index: LeverageTable) -> None:
        """Raise if they are not a sample."""
        if not self.largest <= 1:
            clip_probabilities(np.array([self.largest]), ACCEPTANCE)
        if self.done < len(self.items):
            raise index.over_budget(index.total / (len(self.items) - self.done), self.proposals)
        if len(set(self.items.tolist())) < len(self.items):
            raise PrecisionError(
                f"a projection DPP drew an item twice ({self.items}): its probability is nothing but rounding"
            )


def draw_among_all(rng: np.random.Generator, V: FloatArray) -> IntArray:
    """Draw as many items as V (k, n) has rows, which are orthonormal, from the projection onto them: one after another, given those before.

    With the Gram–Schmidt vectors c of the items so far, item a has the probability ‖v_a‖² − Σ c_a², up to a factor. O(n k²).
    """
    k, n = V.shape
    items, left, along = np.empty(k, np.int64), np.einsum("ij,ij->j", V, V), np.empty((k, n))
    for i, coin in enumerate(rng.random((k,))):
        cumulative = np.cumsum(left)
        if not abs(cumulative[-1] - (k - i)) <= TRACE_TOLERANCE * k:
            raise PrecisionError(
                f"the probabilities of the remaining items sum to {cumulative[-1]:.6g}, not to {k - i}: double precision is not enough "
                "for this kernel. Drop the smallest directions of X."
            )
        a = items[i] = look_up_cdf(cumulative, coin)
        c = V[:, a] @ V - along[:i, a] @ along[:i]
        along[i] = c / np.sqrt(c[a])
        left -= along[i] ** 2
        np.maximum(left, 0.0, out=left)
        left[a] = 0.0
    return items


@njit()
def _draw(
    seed: KeyArray,
    vectors: FloatArray,
    chance: FloatArray,
    heads: FloatArray,
    rows: Rows,
    factors: FloatArray,
    table: TableArrays,
) -> tuple[IntArray, int, int, float]:
    """Choose eigenvectors, and draw from the projection onto them; return the fields of :class:`ProjectedItems`."""
    drawn = draw_projection(seed, vectors[choose(seed, chance, heads)], rows, factors, table)  # a copy of these
    return drawn.items, drawn.done, drawn.proposals, drawn.largest


@jitable(error_model="numpy")
def draw_projection(
    seed: KeyArray, V: FloatArray, rows: Rows, factors: FloatArray, table: TableArrays
) -> ProjectedItems:
    """Draw as many items as V has rows, from the projection onto them; V is overwritten."""
    items, done, proposals, largest = np.empty(len(V), np.int64), 0, 0, 0.0
    x = np.empty((BLOCK, V.shape[1]))
    while done < len(V) and proposals < table.budget * len(V) and not math.isnan(largest):
        candidates, uniforms = propose(seed, table, BLOCK)
        take(candidates, rows, factors, x)
        done, used, largest = _advance(V, items, done, candidates, uniforms, x, table.leverage[candidates], largest)
        proposals += used
    return ProjectedItems(items, done, proposals, largest)


def heads_table(p: FloatArray, q: FloatArray, most: int, others: FloatArray | None = None) -> FloatArray:
    """Return P(j heads among the first i coins) for 0 ≤ i ≤ r, 0 ≤ j ≤ most; q is 1 − p.

    ``others`` is the distribution of the heads of other coins, which count, too.
    """
    heads = np.zeros((p.size + 1, most + 1))
    heads[0, 0] = 1.0
    if others is not None:
        heads[0] = others
    for i in range(p.size):
        np.multiply(heads[i], q[i], out=heads[i + 1])
        heads[i + 1, 1:] += heads[i, :-1] * p[i]
    return heads


@njit()
def choose(seed: KeyArray, chance: FloatArray, heads: FloatArray) -> IntArray:
    """Return which coins show heads; ``heads`` is empty for any number of them."""
    uniforms = np.empty(chance.size)
    for i in range(chance.size):
        uniforms[i] = uniform(seed)
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


@njit(fastmath={"contract", "reassoc"}, error_model="numpy")
def _advance(
    V: FloatArray,
    items: IntArray,
    done: int,
    candidates: IntArray,
    uniforms: FloatArray,
    x: FloatArray,
    ceiling: FloatArray,
    largest: float,
) -> tuple[int, int, float]:
    """Accept or reject candidates with rows x until they, or the missing items, run out; return the items found and candidates used.

    V[done:] spans what is left of the projection.
    """
    k, d = V.shape
    y, product = np.empty(k), np.empty(d)
    for c in range(candidates.size):
        if done == k:
            return done, c, largest
        weight = 0.0
        for b in range(done, k):
            part = 0.0
            for j in range(d):
                part += V[b, j] * x[c, j]
            y[b] = part
            weight += part * part
        ratio = weight / ceiling[c]
        if not ratio <= largest:
            largest = ratio
        if math.isnan(ratio):
            return done, c + 1, ratio
        if uniforms[c] < ratio:
            items[done] = candidates[c]
            _reflect(V[done:], y[done:], math.sqrt(weight), product)
            done += 1
    return done, candidates.size, largest


@njit(fastmath={"contract", "reassoc"}, error_model="numpy")
def _reflect(V: FloatArray, y: FloatArray, norm: float, product: FloatArray) -> None:
    """Reflect the rows of V by the Householder matrix that maps y, of this norm, to the first axis: V[1:] is then orthogonal to y."""
    for b in range(y.size):
        y[b] /= norm
    y[0] += math.copysign(1.0, y[0])
    product[:] = 0.0
    for b in range(y.size):
        for j in range(product.size):
            product[j] += y[b] * V[b, j]
    scale = 1.0 / abs(y[0])  # 2 / ‖y‖², as ‖y‖² = 2(1 + |first entry before|)
    for b in range(1, y.size):
        for j in range(product.size):
            V[b, j] -= scale * y[b] * product[j]
