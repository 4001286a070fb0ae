"""The clock of :class:`~ndpp.samplers.clock.Clock` in eigencoordinates: exact samples of any size, one compiled call per sample.

Law: that of :class:`~ndpp.samplers.Exact` without a size. With B = V diag(λ) V⁻¹, l_a = q_aᵀV and r_a = V⁻¹q_a, the resolvent at any time
s is diagonal, f = sλ/(1 + sλ), and with Y the given items and those that have appeared,

    q_aᵀ Z q_b = Σ_k l_ak f_k r_bk − α G⁻¹ β,        G = l_Y f r_Yᵀ,   α = l_a f r_Yᵀ,   β = l_Y f r_b,
    tr Z = Σ f − tr(H f r_Yᵀ),                       H = G⁻¹ l_Y f.

A move of the clock costs O(m² r) with m = |Y|, a proposal O(m r), where :class:`~ndpp.samplers.Clock` inverts a matrix of order r, and the
circles of :class:`~ndpp.samplers.Exact` update N of them. Of two conjugate eigenvalues one is kept, counted twice in l. Everything is real:
l is stored as (Re, Im) and r as (Re, −Im), so that Re Σ l r is a dot product.

A decomposition is compared with resolvents computed directly: where they differ, as they do if B has hardly any eigenvectors, there is no
such clock (:meth:`EigenClock.of` returns None). Monitors: rates never increase, and acceptance probabilities lie within [0, 1]. A
sample that fails one is completed by :class:`~ndpp.samplers.Clock`, from the time and the items it has.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ndpp._compiled import njit
from ndpp._types import AnyArray, ComplexArray, FloatArray, IntArray
from ndpp._validation import PROBABILITY_TOLERANCE
from ndpp.errors import PrecisionError
from ndpp.items import ItemDraws, ItemIndex, LeverageTable
from ndpp.laws.kernel import LowRankKernel
from ndpp.rows.scaled import Scaled
from ndpp.samplers.clock import MAX_TIME, NEGLIGIBLE_RATE, RATE_TOLERANCE, Clock
from ndpp.samplers.exact.eigen import Eigen
from ndpp.samplers.exact.spectral import propose, seed_words, uniform

BLOCK = 32
"""Most candidates that are fetched together."""
NOT_YET, FAILED = -1, -2


class EigenClock(NamedTuple):
    """A clock for one kernel.

    l and r of an item are its row of ``rows`` (n, d), times its factor, times ``to_left`` and ``to_right`` (d, 2K). If ``to_right`` is
    empty, as it is if B is skew, r is half of l. If both are empty, the row holds l and r themselves, one after the other. If ``rows`` is
    empty, rows of Q are fetched from a store.
    """

    values: ComplexArray
    multiplicity: FloatArray
    rows: AnyArray
    factors: FloatArray
    to_left: FloatArray
    to_right: FloatArray

    @classmethod
    def prepare(cls, index: ItemIndex | None, given: IntArray, mean: float) -> EigenClock | None:
        """Return the clock of a kernel whose samples have ``mean`` items on average in addition to the given ones.

        None if no eigencoordinates agree with the kernel, or without a leverage table. O(r³), and O(n r²) if Q is kept.
        """
        clock = cls.of(index.kernel) if type(index) is LeverageTable else None
        return clock if clock is not None and index is not None and clock.suits(index.kernel, given, mean) else None

    @classmethod
    def of(cls, kernel: LowRankKernel) -> EigenClock | None:
        """Decompose a kernel."""
        eigen, coords, X, one = Eigen.of(kernel.coordinates.B), kernel.coordinates, kernel._factor, np.ones(1)
        if eigen is None or not eigen.agrees(kernel):
            return None
        left, right = _packed(eigen.V * eigen.multiplicity), _packed(eigen.inverse.T.conj())
        if coords.Q is not None:
            table = np.concatenate([coords.Q @ left, coords.Q @ right], axis=1)
            return cls(eigen.values, eigen.multiplicity, table, one, left[:0], left[:0])
        if isinstance(X, Scaled):
            one, X = X.factors, X.source
        to_right = right[:0] if np.array_equal(left, 2 * right) else right
        if not isinstance(X, np.ndarray):
            return cls(eigen.values, eigen.multiplicity, np.empty((0, 1)), np.ones(1), left, to_right)
        to_right = coords.to_q @ to_right if len(to_right) else to_right
        return cls(eigen.values, eigen.multiplicity, X, one, coords.to_q @ left, to_right)

    def sides(self, kernel: LowRankKernel, which: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return l and r of items, shapes (m, 2K)."""
        if not len(self.rows):
            x = kernel.q_rows(which)
        else:
            x = self.rows[which] * (self.factors if self.factors.size == 1 else self.factors[which, None])
        if not len(self.to_left):
            left, right = np.split(x, 2, axis=1)
            return np.ascontiguousarray(left), np.ascontiguousarray(right)
        left = x @ self.to_left
        return left, x @ self.to_right if len(self.to_right) else left / 2

    def suits(self, kernel: LowRankKernel, given: IntArray, mean: float) -> bool:
        """Return whether samples that contain the given items have ``mean`` others on average."""
        rate = _remaining(0.0, self.values, self.multiplicity, *self.sides(kernel, given))[3]
        return bool(abs(rate - mean) <= RATE_TOLERANCE * (1 + mean))

    def draw(self, rng: np.random.Generator, index: LeverageTable, given: IntArray) -> ItemDraws:
        """Draw the items of one sample in addition to the given ones, as rows in any order."""
        seed, sides = seed_words(rng), self.sides(index.kernel, given)
        if len(self.rows):
            run = _run(seed, *self, index.threshold, index.alias, index.leverage, index.budget, given, *sides)
        else:
            run = self._run_from_store(seed, index, given, *sides)
        rows, proposals, failed, x, bound = run
        if not failed:
            return ItemDraws(rows[len(given) :], proposals)
        if not np.isfinite(x + bound):
            raise PrecisionError(
                f"the rate of further items after {len(rows)} of them could not be computed: double precision is not enough for this "
                "kernel. Rescale X, or drop its smallest directions."
            )
        rest = Clock.prepare(index.kernel, index=index).resume(rng, rows, x, bound)
        return ItemDraws(np.setdiff1d(rest.rows, given), proposals + int(rest.info["proposals"]))

    def _run_from_store(
        self, seed: AnyArray, index: LeverageTable, items: IntArray, left: FloatArray, right: FloatArray
    ) -> tuple[IntArray, int, bool, float, float]:
        """Do what :func:`_run` does with rows that are fetched block by block."""
        x, proposals = 0.0, 0
        rate = _remaining(x, self.values, self.multiplicity, left, right)[3]
        while not rate <= NEGLIGIBLE_RATE:
            bound = rate
            x -= math.log1p(-uniform(seed)) / bound
            if x > MAX_TIME:
                break
            f, H, f_right, rate = _remaining(x, self.values, self.multiplicity, left, right)
            if not rate <= (1 + RATE_TOLERANCE) * bound + RATE_TOLERANCE:
                return items, proposals, True, x, bound
            if uniform(seed) * bound >= rate:
                continue
            found, tried = NOT_YET, 0
            while found == NOT_YET and tried < index.budget:
                candidates, coins = propose(seed, index.threshold, index.alias, _step(self.values.size, rate))
                sides = self.sides(index.kernel, candidates)
                found, used = _judge(f, H, f_right, rate, *sides, candidates, coins, index.leverage)
                tried += used
            proposals += tried
            if found < 0:
                return items, proposals, True, x, rate
            row = np.array([found])
            one = self.sides(index.kernel, row)
            rate = _rate_given(f, H, f_right, rate, one[0][0], one[1][0])
            items, left, right = np.append(items, row), np.append(left, one[0], 0), np.append(right, one[1], 0)
        return items, proposals, False, x, rate


def _packed(values: ComplexArray) -> FloatArray:
    return np.ascontiguousarray(np.concatenate([values.real, values.imag], axis=1))


@njit(error_model="numpy")
def _run(
    seed: AnyArray,
    values: ComplexArray,
    multiplicity: FloatArray,
    rows: AnyArray,
    factors: FloatArray,
    to_left: FloatArray,
    to_right: FloatArray,
    threshold: FloatArray,
    alias: AnyArray,
    leverage: FloatArray,
    budget: int,
    given: IntArray,
    given_left: FloatArray,
    given_right: FloatArray,
) -> tuple[IntArray, int, bool, float, float]:
    """Return the items, the number of proposals, whether a monitor failed, and then the time and the rate it was proposed at."""
    m, D = given.size, 2 * values.size
    capacity, x, proposals = m + 16, 0.0, 0
    items, left, right = np.empty(capacity, np.int64), np.empty((capacity, D)), np.empty((capacity, D))
    items[:m], left[:m], right[:m] = given, given_left, given_right
    fetched = np.empty((2, BLOCK, D))
    rate = _remaining(x, values, multiplicity, left[:m], right[:m])[3]
    while not rate <= NEGLIGIBLE_RATE:
        bound = rate
        x -= math.log1p(-uniform(seed)) / bound
        if x > MAX_TIME:
            break
        f, H, f_right, rate = _remaining(x, values, multiplicity, left[:m], right[:m])
        if not rate <= (1 + RATE_TOLERANCE) * bound + RATE_TOLERANCE:
            return items[:m], proposals, True, x, bound
        if uniform(seed) * bound >= rate:
            continue
        if m == capacity:
            left, right, items = (
                np.concatenate((left, left)),
                np.concatenate((right, right)),
                np.concatenate((items, items)),
            )
            capacity *= 2  # the second half is space
        found, tried = NOT_YET, 0
        while found == NOT_YET and tried < budget:
            candidates, coins = propose(seed, threshold, alias, _step(values.size, rate))
            _fetch(candidates, rows, factors, to_left, to_right, fetched)
            n = candidates.size
            found, used = _judge(f, H, f_right, rate, fetched[0, :n], fetched[1, :n], candidates, coins, leverage)
            tried += used
        proposals += tried
        if found < 0:
            return items[:m], proposals, True, x, rate
        items[m] = found
        _fetch(items[m : m + 1], rows, factors, to_left, to_right, fetched)
        left[m], right[m] = fetched[0, 0], fetched[1, 0]
        rate = _rate_given(f, H, f_right, rate, left[m], right[m])
        m += 1
    return items[:m], proposals, False, x, rate


@njit(fastmath={"contract", "reassoc"}, error_model="numpy")
def _remaining(
    x: float, values: ComplexArray, multiplicity: FloatArray, left: FloatArray, right: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Return f as (Re, Im), H = G⁻¹ l_Y f, f r_Y (both (m, 2K)), and tr Z, NaN if G is singular."""
    K, m = values.size, len(left)
    f, rate = np.empty(2 * K), 0.0
    s = math.exp(-x)
    for k in range(K):
        one = s * values[k]
        one = one / (1 + one)
        f[k], f[K + k] = one.real, one.imag
        rate += multiplicity[k] * one.real
    f_left, f_right = np.empty((m, 2 * K)), np.empty((m, 2 * K))
    if m == 0:
        return f, f_left, f_right, rate
    for i in range(m):
        for k in range(K):
            a, b, c, d = f[k], f[K + k], left[i, k], left[i, K + k]
            f_left[i, k], f_left[i, K + k] = a * c - b * d, a * d + b * c
            c, d = right[i, k], right[i, K + k]
            f_right[i, k], f_right[i, K + k] = a * c + b * d, a * d - b * c
    G = np.dot(f_left, right.T)
    try:
        H = np.ascontiguousarray(np.linalg.solve(G, f_left))
    except Exception:  # G is singular; compiled code cannot name the error
        return f, f_left, f_right, np.nan
    for i in range(m):
        for k in range(2 * K):
            rate -= H[i, k] * f_right[i, k]
    return f, H, f_right, rate


@njit(fastmath={"contract", "reassoc"}, error_model="numpy")
def _rate_given(
    f: FloatArray, H: FloatArray, f_right: FloatArray, rate: float, left: FloatArray, right: FloatArray
) -> float:
    """Return tr Z given one more item, tr Z − qᵀZZq / qᵀZq."""
    K = f.size // 2
    u, v = np.empty(2 * K), np.empty(2 * K)  # qᵀZ and Zq in eigencoordinates
    for k in range(K):
        a, b, c, d = f[k], f[K + k], left[k], left[K + k]
        u[k], u[K + k] = a * c - b * d, a * d + b * c
        c, d = right[k], right[K + k]
        v[k], v[K + k] = a * c + b * d, a * d - b * c
    pivot = np.dot(u, right)
    for i in range(len(H)):
        first, second = np.dot(f_right[i], left), np.dot(H[i], right)
        pivot -= first * second
        for k in range(2 * K):
            u[k] -= first * H[i, k]
            v[k] -= second * f_right[i, k]
    change: float = np.dot(u, v) / pivot
    return rate - change


@njit(error_model="numpy")
def _fetch(
    which: IntArray,
    rows: AnyArray,
    factors: FloatArray,
    to_left: FloatArray,
    to_right: FloatArray,
    out: FloatArray,
) -> None:
    """Write l and r of items into out (2, BLOCK, 2K)."""
    n, D, d = which.size, out.shape[2], rows.shape[1]
    if len(to_left) == 0:
        for i in range(n):
            for k in range(D):
                out[0, i, k], out[1, i, k] = rows[which[i], k], rows[which[i], D + k]
        return
    x = np.empty((n, d))
    for i in range(n):
        a = which[i]
        scale = factors[a] if factors.size > 1 else factors[0]
        for k in range(d):
            x[i, k] = scale * rows[a, k]
    np.dot(x, to_left, out[0, :n])
    if len(to_right):
        np.dot(x, to_right, out[1, :n])
    else:
        for i in range(n):
            for k in range(D):
                out[1, i, k] = out[0, i, k] / 2


@njit()
def _step(K: int, rate: float) -> int:
    """Return how many candidates to propose at a time."""
    return min(BLOCK, int(2.2 * K * min(1.0, rate) / rate) + 4)


@njit(fastmath={"contract", "reassoc"}, error_model="numpy")
def _judge(
    f: FloatArray,
    H: FloatArray,
    f_right: FloatArray,
    rate: float,
    left: FloatArray,
    right: FloatArray,
    candidates: IntArray,
    coins: FloatArray,
    leverage: FloatArray,
) -> tuple[int, int]:
    """Return the first candidate that is accepted by q_aᵀZq_a, NOT_YET, or FAILED if a monitor fails; and how many were looked at."""
    K = f.size // 2
    ceiling = min(1.0, rate)  # 0 ⪯ Z ⪯ tr Z, and ⪯ I
    first, second = np.dot(left, f_right.T), np.dot(right, H.T)
    for c in range(candidates.size):
        weight = 0.0
        for k in range(K):
            a, b, p, q = left[c, k], left[c, K + k], right[c, k], right[c, K + k]
            weight += f[k] * (a * p + b * q) - f[K + k] * (b * p - a * q)
        for i in range(len(H)):
            weight -= first[c, i] * second[c, i]
        chance = weight / (ceiling * leverage[candidates[c]])
        if not (chance >= -PROBABILITY_TOLERANCE and chance <= 1 + PROBABILITY_TOLERANCE):
            return FAILED, c + 1
        if coins[c] < chance:
            return candidates[c], c + 1
    return NOT_YET, candidates.size
