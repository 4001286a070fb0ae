"""Exact samples of a symmetric kernel, by its eigenvectors: one compiled call per sample, at a cost independent of the number of items.

Law: that of :class:`~ndpp.samplers.Exact`, where W is symmetric (:func:`is_symmetric`). Given items Y, the further items of a sample from
the kernel ρL are a DPP with marginal kernel QZQᵀ, Z = R − RQ_Yᵀ(Q_Y R Q_Yᵀ)⁻¹Q_Y R (``docs/theory``). If L is symmetric, so is Z, and
Z = Σ μ_i v_i v_iᵀ with 0 ≤ μ_i ≤ 1 makes it a mixture of projections [Hough et al. 2006; Kulesza & Taskar 2012, Algs. 1 and 8]:

1. Choose each eigenvector with probability μ_i, independently; for a size, given that there are as many as missing items. Sets of one
   size have the same distribution for every ρ, so ρ makes the wanted number the expected one, and nothing under- or overflows.
2. Draw as many items from the projection onto the chosen eigenvectors, the columns of V: propose an item by its leverage ℓ_a = ‖q_a‖²,
   accept it with probability ‖Vᵀq_a‖²/ℓ_a, reflect V so that one column has the direction of Vᵀq_a, and drop that column.

An error of ε in Z changes the probability of any event by about rε, however widely the eigenvalues of L are spread. That is why Z is
decomposed and not L.

Cost: O(r³) once per size; then r/(k − i) proposals of O(r (k − i)) each for item i, O(k r²) per sample. The sampler of the general route
updates N complex matrices of order r for every item.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ndpp._compiled import njit
from ndpp._types import AnyArray, FloatArray, IntArray
from ndpp._validation import clip_probabilities
from ndpp.errors import BudgetExceededError, PrecisionError
from ndpp.items import ItemDraws, ItemIndex, LeverageTable
from ndpp.items.table import ACCEPTANCE
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.precision import REFUSE_ERROR
from ndpp.linalg import ZERO_WEIGHT, Coordinates, resolvent, symmetric_part, tilt_for
from ndpp.linalg.schur import ROUNDING, condition_or_zero, rounding_of
from ndpp.samplers.symmetric import EigenvectorLaw, draw_projection, given_heads, heads_table

BLOCK = 32
"""Candidates that are fetched together. No draw depends on it."""
_U11, _U17, _U19, _U23, _U32, _U41, _U45 = (np.uint64(shift) for shift in (11, 17, 19, 23, 32, 41, 45))


def is_symmetric(kernel: LowRankKernel) -> bool:
    """Return whether W is symmetric up to rounding: |W_ij − W_ji| ≤ min(d, 16)·ε·√(m_i m_j).

    m are the kernel's magnitudes, the row sums of |W|, or those of the terms that the W of a conditional was computed from. A skew part
    within this bound is no larger than the rounding errors that every probability of the kernel is judged for. A larger one counts,
    however small it is.
    """
    W, m = np.asarray(kernel.W, np.float64), np.sqrt(kernel._magnitudes)
    return bool(np.all(np.abs(W - W.T) <= rounding_of(len(W)) * m[:, None] * m))


class Spectrum(NamedTuple):
    """Eigenvectors of Z as rows, in the coordinates of :func:`_rows`; their μ; P(j heads among the first i coins), empty for any size."""

    vectors: FloatArray
    chance: FloatArray
    heads: FloatArray

    @classmethod
    def prepare(cls, index: ItemIndex, given: FloatArray, wanted: int | None) -> Spectrum:
        """Decompose Z for ``wanted`` items in addition to those with rows ``given`` of Q, or for any number if None. O(r³)."""
        coords, rows = index.kernel.coordinates, _rows(index)
        found = cls.in_q(coords, given, wanted)
        if rows is None or rows is coords.Q:
            return found
        return found._replace(vectors=np.ascontiguousarray(found.vectors @ coords.to_q.T))

    @classmethod
    def in_q(cls, coords: Coordinates, given: FloatArray, wanted: int | None) -> Spectrum:
        """Decompose Z as :meth:`prepare` does, with eigenvectors in the coordinates of Q."""
        tilt = 1.0 if wanted is None else tilt_for(coords, len(given) + wanted, given)
        Z, log_minor = condition_or_zero(resolvent(coords, np.array([tilt]))[0][0], given)
        chance, vectors = np.linalg.eigh(symmetric_part(Z))
        # Rounding may leave small negative eigenvalues, which count as zero; what it does to the kernel has been judged before.
        chance = clip_probabilities(chance, "choice of an eigenvector", tolerance=REFUSE_ERROR)
        kept = chance > len(chance) * ROUNDING
        chance, vectors = chance[kept], vectors[:, kept]
        heads = np.empty((0, 0)) if wanted is None else heads_table(chance, 1 - chance, wanted)
        if log_minor == -np.inf or (heads.size and not heads[-1, -1] > ZERO_WEIGHT):
            raise PrecisionError(
                f"the eigenvectors for {wanted} further items could not be computed to tolerance. "
                "The kernel is too badly scaled for double precision at this size; rescale X, or use a smaller size."
            )
        return cls(np.ascontiguousarray(vectors.T), chance, heads)


def _rows(index: ItemIndex) -> AnyArray | None:
    """Return the rows that the compiled call reads, Q or X; None if they are not in memory, or if the index is not a leverage table."""
    if type(index) is not LeverageTable:
        return None
    Q, X = index.kernel.coordinates.Q, index.kernel._factor
    return X if Q is None and isinstance(X, np.ndarray) else Q


def draw_spectral(rng: np.random.Generator, spectrum: Spectrum, index: ItemIndex) -> ItemDraws:
    """Draw the further items of one sample, as rows in any order.

    With a leverage table and rows in memory, this is one compiled call. Rows in another store are fetched in blocks, for the same draws.
    Other indexes are queried for each item.
    """
    if type(index) is not LeverageTable:
        chosen = EigenvectorLaw(spectrum.chance, spectrum.heads, np.nan).draw(rng)
        return draw_projection(rng, spectrum.vectors[chosen].T, index)
    seed, rows = seed_words(rng), _rows(index)
    if rows is None:
        found = _draw_from_store(seed, spectrum, index)
    else:
        found = _draw(seed, *spectrum, rows, index.threshold, index.alias, index.leverage, index.budget)
    items, done, proposals, largest = found
    if not largest <= 1:
        clip_probabilities(np.array([largest]), ACCEPTANCE)
    if done < len(items):
        raise BudgetExceededError(
            f"{proposals} proposals gave {done} of {len(items)} items, with a budget of {index.budget} for each. "
            "Raise the budget of the LeverageTable, or use a Tree.",
            count=proposals,
        )
    if len(set(items.tolist())) < len(items):
        raise PrecisionError(f"a projection DPP drew an item twice ({items}): its probability is nothing but rounding")
    return ItemDraws(items, proposals)


def _draw_from_store(seed: AnyArray, spectrum: Spectrum, index: LeverageTable) -> tuple[IntArray, int, int, float]:
    """Do what :func:`_draw` does with rows of Q that are fetched block by block."""
    V = _choose(seed, *spectrum)
    items, done, proposals, largest = np.empty(len(V), np.int64), 0, 0, 0.0
    while done < len(V) and proposals < index.budget * len(V) and not math.isnan(largest):
        candidates, uniforms = propose(seed, index.threshold, index.alias, BLOCK)
        ceiling, x = index.leverage[candidates], index.kernel.q_rows(candidates)
        done, used, largest = _advance(V, items, done, candidates, uniforms, x, ceiling, largest)
        proposals += used
    return items, done, proposals, largest


@njit()
def _draw(
    seed: AnyArray,
    vectors: FloatArray,
    chance: FloatArray,
    heads: FloatArray,
    rows: AnyArray,
    threshold: FloatArray,
    alias: AnyArray,
    leverage: FloatArray,
    budget: int,
) -> tuple[IntArray, int, int, float]:
    """Return the items, how many of them were found within the budget, the proposals, and the largest acceptance probability."""
    V = _choose(seed, vectors, chance, heads)
    items, done, proposals, largest = np.empty(len(V), np.int64), 0, 0, 0.0
    x, ceiling = np.empty((BLOCK, rows.shape[1])), np.empty(BLOCK)
    while done < len(V) and proposals < budget * len(V) and not math.isnan(largest):
        candidates, uniforms = propose(seed, threshold, alias, BLOCK)
        for c in range(BLOCK):
            a = candidates[c]
            ceiling[c] = leverage[a]
            for j in range(rows.shape[1]):
                x[c, j] = rows[a, j]
        done, used, largest = _advance(V, items, done, candidates, uniforms, x, ceiling, largest)
        proposals += used
    return items, done, proposals, largest


@njit()
def _choose(seed: AnyArray, vectors: FloatArray, chance: FloatArray, heads: FloatArray) -> FloatArray:
    """Return a copy of the eigenvectors that are chosen."""
    uniforms = np.empty(chance.size)
    for i in range(chance.size):
        uniforms[i] = uniform(seed)
    return vectors[given_heads(chance, heads, uniforms) if heads.size else np.flatnonzero(uniforms < chance)]


@njit()
def propose(seed: AnyArray, threshold: FloatArray, alias: AnyArray, n: int) -> tuple[IntArray, FloatArray]:
    """Return the next n candidates, by their leverage, and a uniform for the acceptance of each."""
    candidates, uniforms = np.empty(n, np.int64), np.empty(n)
    for c in range(n):
        cell = min(int(uniform(seed) * alias.size), alias.size - 1)
        candidates[c] = cell if uniform(seed) < threshold[cell] else alias[cell]
        uniforms[c] = uniform(seed)
    return candidates, uniforms


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


def seed_words(rng: np.random.Generator) -> AnyArray:
    """Return the state of a generator for :func:`uniform`, four words."""
    words = rng.bit_generator.random_raw(8)
    return words[:4] ^ (words[4:] << _U32)  # some generators have words of 32 bits


@njit()
def uniform(state: AnyArray) -> float:
    """Return the next number in [0, 1) of the generator xoshiro256++ [Blackman & Vigna, 2021], whose state is four words."""
    a, b, c, d = state[0], state[1], state[2], state[3]
    total = a + d
    word = ((total << _U23) | (total >> _U41)) + a
    c ^= a
    d ^= b
    state[1] = b ^ c
    state[0] = a ^ d
    state[2] = c ^ (b << _U17)
    state[3] = (d << _U45) | (d >> _U19)
    return float(word >> _U11) * 2.0**-53
