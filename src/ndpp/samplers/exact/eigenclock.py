"""The clock of :class:`~ndpp.samplers.clock.Clock` in eigencoordinates: exact samples of any size, one compiled call per sample.

Law: that of :class:`~ndpp.samplers.Exact` without a size. With B = V diag(λ) V⁻¹, l_a = q_aᵀV and r_a = V⁻¹q_a, the resolvent at any time
s is diagonal, f = sλ/(1 + sλ), and with Y the given items and those that have appeared,

    q_aᵀ Z q_b = Σ_k l_ak f_k r_bk − α G⁻¹ β,        G = l_Y f r_Yᵀ,   α = l_a f r_Yᵀ,   β = l_Y f r_b,
    tr Z = Σ f − tr(H f r_Yᵀ),                       H = G⁻¹ l_Y f.

If given items j may also come by themselves, with probability p_j (:mod:`ndpp.samplers.components`), s p_j is added to G_jj.

A move of the clock costs O(m² r) with m = |Y|, a proposal O(m r), where :class:`~ndpp.samplers.Clock` inverts a matrix of order r, and the
circles of :class:`~ndpp.samplers.Exact` update N of them. Everything is real (:class:`~ndpp.linalg.eigen.EigenBasis`).

Monitors: rates never increase, and acceptance probabilities lie within [0, 1]. A sample that fails one is completed by the matrices of
:class:`~ndpp.samplers.Clock`, from the time and the items it has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ndpp._compiled import njit, soon, write
from ndpp._types import ComplexArray, FloatArray, IntArray, KeyArray
from ndpp._validation import PROBABILITY_TOLERANCE
from ndpp.errors import PrecisionError
from ndpp.items import LeverageTable
from ndpp.items.table import TableArrays, propose, seed_words, uniform
from ndpp.samplers.clock import MAX_TIME, NEGLIGIBLE_RATE, RATE_TOLERANCE, Clock
from ndpp.samplers.exact.routes import Done, Target, Unfinished
from ndpp.samplers.exact.rows import LEFT, RIGHT, EigenRows, Sides, apply, fetch, suited

BLOCK = 32
"""Most candidates that are fetched together."""
NOT_YET, FAILED = -1, -2


@dataclass(frozen=True, eq=False)
class EigenClock:
    """A clock for one kernel; all samples contain the given rows, which come by themselves with probability ``alone``."""

    name: ClassVar[str] = "clock"

    index: LeverageTable
    eigen: EigenRows
    given: IntArray
    alone: FloatArray

    @property
    def n_bytes(self) -> int:
        """Bytes of its own; the others are those of its target."""
        return self.alone.nbytes

    @classmethod
    def prepare(cls, target: Target, wanted: int | None) -> EigenClock | None:
        """Return the clock of a target; None if it has no eigencoordinates, or if these disagree with the number of further items."""
        eigen = None if wanted is not None else target.eigen
        if eigen is None:
            return None
        clock = cls(target.index, eigen, target.given, np.zeros(len(target.given)))
        return clock if clock.suits(target.size_law) else None

    def suits(self, size_law: FloatArray) -> bool:
        """Return whether the mean number of items in addition to the given ones is that of its distribution."""
        mean = float(size_law @ np.arange(len(size_law)))
        own = *self.eigen[:2], *self.eigen.sides(self.given), self.alone
        rate = soon(remaining, len(self.eigen.values) * (1 + len(self.given)) ** 2)(0.0, *own)[3]
        return bool(abs(rate - mean) <= RATE_TOLERANCE * (1 + mean))

    def draw(self, rng: np.random.Generator) -> Done | Unfinished:
        """Draw the items of one sample in addition to the given ones, as rows in any order."""
        eigen, given = self.eigen, self.given
        own = given, *eigen.sides(given), self.alone
        rows, proposals, failed, x, bound = suited(eigen.source.rows, _run, self._steps)(
            seed_words(rng), self.index.arrays, eigen.values, eigen.multiplicity, eigen.source, *own
        )
        rows = rows[len(given) :]
        return Unfinished(rows, proposals, moment=(x, bound)) if failed else Done(rows, proposals)

    @property
    def _steps(self) -> float:
        """About the steps of the loops of one sample: for each item, an elimination, and a few candidates for every eigenvalue."""
        items = 1 + len(self.given) + self.eigen.mean
        return items * (items**2 + len(self.eigen.values)) * float(self.eigen.to_sides.shape[2])

    def draw_all(self, rng: np.random.Generator) -> IntArray:
        """Draw the further items of one sample, as rows in any order, by whatever means."""
        found = self.draw(rng)
        return self.finish(None, rng, found).rows if isinstance(found, Unfinished) else found.rows

    def finish(self, target: Target | None, rng: np.random.Generator, begun: Unfinished) -> Done:
        """Draw the further items of a sample that failed a monitor, from the time and the items it has; the target is not needed."""
        assert begun.moment is not None
        if not np.isfinite(sum(begun.moment)):
            raise PrecisionError(
                f"the rate of further items after {len(self.given) + len(begun.rows)} of them could not be computed: double precision is "
                "not enough for this kernel. Rescale X, or drop its smallest directions."
            )
        clock = replace(Clock.prepare(self.index.kernel, index=self.index), given=self.given, alone=self.alone)
        rest = clock.resume(rng, begun.rows, *begun.moment)
        return Done(rest.rows, begun.proposals + int(rest.info["proposals"]))


@njit(error_model="numpy")
def _run(
    seed: KeyArray,
    table: TableArrays,
    values: ComplexArray,
    multiplicity: FloatArray,
    source: Sides,
    given: IntArray,
    given_left: FloatArray,
    given_right: FloatArray,
    given_alone: FloatArray,
) -> tuple[IntArray, int, bool, float, float]:
    """Return the items, the number of proposals, whether a monitor failed, and then the time and the rate it was proposed at."""
    m, D, K = given.size, given_left.shape[1], values.size
    capacity, x, proposals = m + 16, 0.0, 0
    items, left, right = np.empty(capacity, np.int64), np.empty((capacity, D)), np.empty((capacity, D))
    alone = np.zeros(capacity)
    write(given, items[:m])
    write(given_left, left[:m])
    write(given_right, right[:m])
    write(given_alone, alone[:m])
    fetched = np.empty((2, BLOCK, D))
    rate = remaining(x, values, multiplicity, left[:m], right[:m], alone[:m])[3]
    while not rate <= NEGLIGIBLE_RATE:
        bound = rate
        x -= math.log1p(-uniform(seed)) / bound
        if x > MAX_TIME:
            break
        f, H, f_right, rate = remaining(x, values, multiplicity, left[:m], right[:m], alone[:m])
        if not rate <= (1 + RATE_TOLERANCE) * bound + RATE_TOLERANCE:
            return items[:m], proposals, True, x, bound
        if uniform(seed) * bound >= rate:
            continue
        if m == capacity:
            left, right, items, alone = (
                np.concatenate((left, left)),
                np.concatenate((right, right)),
                np.concatenate((items, items)),
                np.concatenate((alone, 0 * alone)),
            )
            capacity *= 2  # the second half is space
        found, tried = NOT_YET, 0
        # Candidates at a time: rounding of the rate must not change their number.
        step = min(BLOCK, int(2.2 * K / max(1.0, rate)) + 4)
        while found == NOT_YET and tried < table.budget:
            candidates, coins = propose(seed, table, step)
            n = candidates.size
            fetch(candidates, source, fetched[0, :n], fetched[1, :n])
            ceiling = min(1.0, rate) * table.leverage[candidates]  # 0 ⪯ Z ⪯ tr Z, and ⪯ I
            found, used = _judge(f, K, H, f_right, fetched[0, :n], fetched[1, :n], coins, ceiling)
            tried += used
        proposals += tried
        if found < 0:
            return items[:m], proposals, True, x, rate
        items[m] = candidates[found]
        write(fetched[0, found], left[m])
        write(fetched[1, found], right[m])
        rate = _rate_given(f, K, H, f_right, rate, left[m], right[m])
        m += 1
    return items[:m], proposals, False, x, rate


@njit(fastmath={"contract", "reassoc"}, error_model="numpy")
def remaining(
    x: float,
    values: ComplexArray,
    multiplicity: FloatArray,
    left: FloatArray,
    right: FloatArray,
    alone: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Return f as (Re, Im), H = G⁻¹ l_Y f, f r_Y (both (m, D)), and tr Z, NaN if G is singular."""
    (m, D), K = left.shape, values.size
    f, rate = np.empty(D), 0.0
    s = math.exp(-x)
    for k in range(K):
        one = s * values[k]
        one = one / (1 + one)
        f[k] = one.real
        if k < D - K:
            f[K + k] = one.imag
        rate += multiplicity[k] * one.real
    f_left, f_right = np.empty((m, D)), np.empty((m, D))
    if m == 0:
        return f, f_left, f_right, rate
    for i in range(m):
        apply(f, K, LEFT, left[i], f_left[i])
        apply(f, K, RIGHT, right[i], f_right[i])
    G = np.dot(f_left, right.T)
    for i in range(m):
        G[i, i] += s * alone[i]
    H = f_left.copy()
    if not _eliminate(G, H):
        return f, f_left, f_right, np.nan
    for i in range(m):
        for k in range(D):
            rate -= H[i, k] * f_right[i, k]
    return f, H, f_right, rate


@njit(fastmath={"contract"}, error_model="numpy")
def _eliminate(G: FloatArray, b: FloatArray) -> bool:
    """Write G⁻¹ b to b, with the largest pivot of each column; return whether G is regular. For small G, LAPACK takes twice as long."""
    m, D = b.shape
    for j in range(m):
        best = j
        for i in range(j + 1, m):
            if abs(G[i, j]) > abs(G[best, j]):
                best = i
        if not abs(G[best, j]) > 0:
            return False
        if best != j:
            for k in range(m):
                G[j, k], G[best, k] = G[best, k], G[j, k]
            for k in range(D):
                b[j, k], b[best, k] = b[best, k], b[j, k]
        for i in range(j + 1, m):
            factor = G[i, j] / G[j, j]
            for k in range(j + 1, m):
                G[i, k] -= factor * G[j, k]
            for k in range(D):
                b[i, k] -= factor * b[j, k]
    for j in range(m - 1, -1, -1):
        for i in range(j + 1, m):
            factor = G[j, i]
            for k in range(D):
                b[j, k] -= factor * b[i, k]
        for k in range(D):
            b[j, k] /= G[j, j]
    return True


@njit(fastmath={"contract", "reassoc"}, error_model="numpy")
def _rate_given(
    f: FloatArray, K: int, H: FloatArray, f_right: FloatArray, rate: float, left: FloatArray, right: FloatArray
) -> float:
    """Return tr Z given one more item, tr Z − qᵀZZq / qᵀZq."""
    D = f.size
    u, v = np.empty(D), np.empty(D)  # qᵀZ and Zq in eigencoordinates
    apply(f, K, LEFT, left, u)
    apply(f, K, RIGHT, right, v)
    pivot = np.dot(u, right)
    for i in range(len(H)):
        first, second = np.dot(f_right[i], left), np.dot(H[i], right)
        pivot -= first * second
        for k in range(D):
            u[k] -= first * H[i, k]
            v[k] -= second * f_right[i, k]
    change: float = np.dot(u, v) / pivot
    return rate - change


@njit(fastmath={"contract", "reassoc"}, error_model="numpy")
def _judge(
    f: FloatArray,
    K: int,
    H: FloatArray,
    f_right: FloatArray,
    left: FloatArray,
    right: FloatArray,
    coins: FloatArray,
    ceiling: FloatArray,
) -> tuple[int, int]:
    """Return the place of the first candidate accepted by q_aᵀZq_a, NOT_YET, or FAILED if a monitor fails; how many were looked at."""
    pairs = f.size - K
    first, second = np.dot(left, f_right.T), np.dot(right, H.T)
    for c in range(coins.size):
        weight = 0.0
        for k in range(pairs):
            a, b, p, q = left[c, k], left[c, K + k], right[c, k], right[c, K + k]
            weight += f[k] * (a * p + b * q) - f[K + k] * (b * p - a * q)
        for k in range(pairs, K):
            weight += f[k] * left[c, k] * right[c, k]
        for i in range(len(H)):
            weight -= first[c, i] * second[c, i]
        chance = weight / ceiling[c]
        if not (chance >= -PROBABILITY_TOLERANCE and chance <= 1 + PROBABILITY_TOLERANCE):
            return FAILED, c + 1
        if coins[c] < chance:
            return c, c + 1
    return NOT_YET, coins.size
