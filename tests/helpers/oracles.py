"""The truth, the slow way: every subset, in double precision or in exact integers.

``minors`` and what follows it take a dense L and enumerate in float64 (n ≤ 12 or so). ``exact_law`` takes the doubles
of X and W as the rational numbers they are, so that L = X W Xᵀ and all its minors are exact; ``mp_log_ek`` and
``mp_inclusion`` turn them into probabilities with 80 digits. Sets are bit masks inside, sorted tuples outside.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Law = dict[tuple[int, ...], float]

DIGITS = 80
EPS = float(np.finfo(np.float64).eps)
"""Twice the unit roundoff: first-order bounds written with it hold with their higher-order terms included."""


def subsets(n: int) -> list[tuple[int, ...]]:
    """All subsets of 0..n−1; the set at position i has the bit mask i."""
    return [tuple(a for a in range(n) if i >> a & 1) for i in range(1 << n)]


def mask_of(items: Iterable[int]) -> int:
    return sum(1 << int(a) for a in items)


def minors(L: Array, error: Array | None = None) -> Array:
    """det L_S for every S, by bit mask; a minor within its own rounding error is zero, one below that an error."""
    L = np.asarray(L, np.float64)
    return _minors(L.tobytes(), len(L), None if error is None else error.tobytes())


@lru_cache(maxsize=64)
def _minors(L_bytes: bytes, n: int, error_bytes: bytes | None) -> Array:
    L, error = (None if data is None else np.frombuffer(data).reshape(n, n) for data in (L_bytes, error_bytes))
    values, rounding = minors_with_rounding(L, error)
    worst = int(np.argmin(values + rounding))
    assert values[worst] >= -rounding[worst], (
        f"not an NDPP: det L_S = {values[worst]:.3g} for S = {subsets(n)[worst]}, "
        f"and rounding explains no more than {rounding[worst]:.3g}"
    )
    values[values <= rounding] = 0.0
    values.flags.writeable = False
    return values


def minors_with_rounding(L: Array, error: Array | None = None) -> tuple[Array, Array]:
    """(det L_S, bound on its rounding error) for every S, by bit mask.

    ``error`` bounds the error of each entry of L. Without it L is taken for a product of three matrices of up to n
    columns whose rows are no larger than those of L: n · EPS times the geometric mean of two row norms. A product with
    more cancellation than that needs ``product_error``. All of it is done on rows and columns scaled to order one by
    powers of two, and without BLAS: what is found depends on L alone, not on the machine.
    """
    n = len(L)
    scale = _equilibration(L)
    L = L * scale[:, None] * scale
    if error is None:
        norm = np.sqrt(np.linalg.norm(np.hstack([L, L.T]), axis=1))
        error = n * EPS * norm[:, None] * norm
    else:
        error = error * scale[:, None] * scale
    values, rounding = np.ones(1 << n), np.zeros(1 << n)
    for k in range(1, n + 1):
        sets = np.array(list(combinations(range(n), k)))
        rows, columns = sets[:, :, None], sets[:, None, :]
        masks, unscale = (1 << sets).sum(axis=1), (scale[sets] ** 2).prod(axis=1)
        values[masks], rounding[masks] = _determinants(L[rows, columns], error[rows, columns]) / unscale
    return values, rounding


def product_error(X: Array, W: Array) -> Array:
    """Bound on the rounding error of each entry of (X W) Xᵀ: 2d terms are added, whatever the order."""
    return X.shape[1] * EPS * (np.abs(X) @ np.abs(W) @ np.abs(X).T)


def _determinants(A: Array, error: Array) -> Array:
    """Determinants of a stack of matrices (m, k, k), and bounds on their errors: (2, m).

    Elimination with complete pivoting gives L̂Û = A + E with |E| ≤ u Σ (|l u| + |a − l u|), summed over the steps.
    Errors E of rows a change the determinant by no more than Π(‖a‖ + ‖E‖) − Π‖a‖ (multilinearity and Hadamard's
    inequality), and so do those of columns; the product of the pivots rounds k times more.
    """
    m, k, _ = A.shape
    stack = np.stack([A, A, error])  # what is left, A, errors: rows and columns of all three change places together
    det, every = np.ones(m), np.arange(m)
    for j in range(k):
        p, q = divmod(np.abs(stack[0, :, j:, j:]).reshape(m, -1).argmax(axis=1), k - j)
        p, q = p + j, q + j
        stack[:, every, p], stack[:, every, j] = stack[:, every, j], stack[:, every, p]
        stack[:, every, :, q], stack[:, every, :, j] = stack[:, every, :, j], stack[:, every, :, q]
        rest, _, E = stack
        pivot = rest[:, j, j]
        det *= np.where((p != j) ^ (q != j), -pivot, pivot)
        factor = rest[:, j + 1 :, j] / np.where(pivot == 0, 1.0, pivot)[:, None]
        E[:, j + 1 :, j] += EPS * np.abs(rest[:, j + 1 :, j])
        taken = factor[:, :, None] * rest[:, j, None, j + 1 :]
        rest[:, j + 1 :, j + 1 :] -= taken
        E[:, j + 1 :, j + 1 :] += EPS * (np.abs(taken) + np.abs(rest[:, j + 1 :, j + 1 :]))
    bounds = [_growth(np.linalg.norm(stack[1], axis=axis), np.linalg.norm(stack[2], axis=axis)) for axis in (1, 2)]
    return np.stack([det, np.minimum(*bounds) + k * EPS * np.abs(det)])


def _growth(norms: Array, errors: Array) -> Array:
    """Π(norms + errors) − Π norms along the last axis, without cancellation."""
    product, growth = np.ones(len(norms)), np.zeros(len(norms))
    for norm, error in zip(norms.T, errors.T):
        growth = growth * (norm + error) + product * error
        product = product * norm
    return growth


def _equilibration(L: Array) -> Array:
    """Powers of two s that even out the rows of diag(s) L diag(s), so that rounding can be told from small entries."""
    scale = np.ones(len(L))
    for _ in range(20):
        A = np.abs(L * scale[:, None] * scale)
        norm = np.maximum(A.max(axis=0), A.max(axis=1))
        scale /= np.sqrt(np.where(norm > 0, norm, 1.0))
    return np.exp2(np.round(np.log2(scale)))


def _weights(L: Array, size: int | None, given: Iterable[int], exclude: Iterable[int]) -> Array:
    """Minors of the sets that contain ``given``, avoid ``exclude`` and have ``size`` items; zero for all others."""
    weights = minors(L)
    masks = np.arange(len(weights))
    inside, outside = mask_of(given), mask_of(exclude)
    keep = (masks & inside == inside) & (masks & outside == 0)
    if size is not None:
        keep &= np.bitwise_count(masks) == size
    return np.where(keep, weights, 0.0)


def enumerate_law(L: Array, size: int | None = None, given: Iterable[int] = (), exclude: Iterable[int] = ()) -> Law:
    """P(S) for every S of positive probability. Sets contain ``given``, and ``size`` counts it."""
    weights = _weights(L, size, given, exclude)
    total = weights.sum()
    assert total > 0, f"no set of size {size} contains {given} and avoids {exclude}"
    sets = subsets(len(L))
    return {sets[i]: float(weights[i] / total) for i in np.flatnonzero(weights)}


def size_law(L: Array, given: Iterable[int] = (), exclude: Iterable[int] = ()) -> Array:
    """P(|S| = k) for k = 0..n."""
    weights = _weights(L, None, given, exclude)
    return np.bincount(np.bitwise_count(np.arange(len(weights))), weights, len(L) + 1) / weights.sum()


def log_ek(L: Array, size: int) -> float:
    """log Σ_{|S| = size} det L_S, −inf where no set has that size."""
    with np.errstate(divide="ignore"):
        return float(np.log(_weights(L, size, (), ()).sum()))


def inclusion_probabilities(
    L: Array, size: int | None = None, given: Iterable[int] = (), exclude: Iterable[int] = ()
) -> Array:
    """P(a ∈ S | given ⊆ S, |S| = size) for every a: one for given items."""
    weights = _weights(L, size, given, exclude)
    masks = np.arange(len(weights))
    return np.array([weights[masks >> a & 1 == 1].sum() for a in range(len(L))]) / weights.sum()


def law_of_rest(L: Array, items: Iterable[int], size: int | None = None) -> Law:
    """Law of S ∖ items given items ⊆ S; ``size`` counts the rest alone."""
    given = set(items)
    law = enumerate_law(L, None if size is None else size + len(given), given)
    return {tuple(a for a in S if a not in given): p for S, p in law.items()}


def possible_sizes(L: Array, given: Iterable[int] = (), exclude: Iterable[int] = ()) -> list[int]:
    return [int(k) for k in np.flatnonzero(size_law(L, given, exclude))]


# ---- exact ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ExactLaw:
    """det L_S = minors[mask of S] · 2^(−shift·|S|), exactly."""

    minors: tuple[int, ...]
    shift: int

    @property
    def n_items(self) -> int:
        return len(self.minors).bit_length() - 1

    @cached_property
    def log_minors(self) -> list[float]:
        """log det L_S for every S, by bit mask; −inf where it is zero."""
        with mpmath.workdps(DIGITS):
            exact = (mpmath.ldexp(mpmath.mpf(v), -self.shift * i.bit_count()) for i, v in enumerate(self.minors))
            return [float(mpmath.log(value)) if value else -np.inf for value in exact]

    @cached_property
    def ek(self) -> list[mpmath.mpf]:
        """e_0..e_n."""
        return self._sums(())[0]

    def of_size(self, size: int) -> Law:
        """P(S) of every set of one size."""
        with mpmath.workdps(DIGITS):
            sets = {S: self.minors[mask_of(S)] for S in combinations(range(self.n_items), size)}
            total = sum(sets.values())
            return {S: float(mpmath.mpf(value) / total) for S, value in sets.items() if value}

    def _sums(self, given: Iterable[int]) -> tuple[list[mpmath.mpf], list[list[mpmath.mpf]]]:
        """Σ det L_S over S ⊇ given with |S| = k, for every k; and the same over S ∋ a, for every item a."""
        n, inside = self.n_items, mask_of(given)
        total = [0] * (n + 1)
        with_item = [[0] * (n + 1) for _ in range(n)]
        for mask, value in enumerate(self.minors):
            if value and mask & inside == inside:
                k = mask.bit_count()
                total[k] += value
                for a in range(n):
                    if mask >> a & 1:
                        with_item[a][k] += value
        with mpmath.workdps(DIGITS):
            return self._scaled(total), [self._scaled(row) for row in with_item]

    def _scaled(self, sums: list[int]) -> list[mpmath.mpf]:
        return [mpmath.ldexp(mpmath.mpf(value), -self.shift * k) for k, value in enumerate(sums)]

    def inclusion(self, given: Iterable[int] = ()) -> dict[int | None, list[mpmath.mpf]]:
        """P(a ∈ S | given ⊆ S, |S| = k) for all a, by k; under None without a size. Impossible sizes are left out."""
        total, with_item = self._sums(given)
        with mpmath.workdps(DIGITS):
            out: dict[int | None, list[mpmath.mpf]] = {
                k: [row[k] / total[k] for row in with_item] for k in range(self.n_items + 1) if total[k]
            }
            if any(total):
                out[None] = [sum(row) / sum(total) for row in with_item]
        return out


def exact_law(X: Any, W: Any) -> ExactLaw:
    """Exact minors of X W Xᵀ, n ≤ 12 (seconds); the last few kernels are remembered."""
    X, W = np.asarray(X, np.float64), np.asarray(W, np.float64)
    return _exact_law(X.tobytes(), W.tobytes(), X.shape)


@lru_cache(maxsize=64)
def _exact_law(X_bytes: bytes, W_bytes: bytes, shape: tuple[int, int]) -> ExactLaw:
    X, x_shift = _integers(np.frombuffer(X_bytes).reshape(shape))
    W, w_shift = _integers(np.frombuffer(W_bytes).reshape(shape[1], shape[1]))
    return ExactLaw(tuple(_principal_minors((X @ W @ X.T).tolist())), 2 * x_shift + w_shift)


def _integers(A: Array) -> tuple[Any, int]:
    """(integer matrix, shift) with A = matrix · 2^−shift exactly."""
    ratios = [float(v).as_integer_ratio() for v in A.ravel()]
    shift = max((q.bit_length() - 1 for _, q in ratios), default=0)
    whole = np.array([p << (shift - q.bit_length() + 1) for p, q in ratios] + [None], dtype=object)[:-1]
    return whole.reshape(A.shape), shift


def _principal_minors(L: list[list[int]]) -> list[int]:
    """Determinants of all principal submatrices, by bit mask.

    Sets that begin with the same items share the elimination of those; where that meets a zero pivot, each of the sets
    that begin so is eliminated by itself, with pivoting.
    """
    n = len(L)
    values = [1] * (1 << n)

    def begin_with(mask: int, last: int, first: int, A: list[list[int]]) -> None:
        """All sets of ``mask``, whose minor is ``last``, and items from ``first`` on, of which A is left."""
        for k, top in enumerate(A):
            chosen, pivot = mask | 1 << first + k, top[k]
            if pivot:
                values[chosen] = pivot
                rest = [
                    [(a * pivot - row[k] * b) // last for a, b in zip(row[k + 1 :], top[k + 1 :])] for row in A[k + 1 :]
                ]
                begin_with(chosen, pivot, first + k + 1, rest)
                continue
            for more in range(1 << n - first - k - 1):
                whole = chosen | more << first + k + 1
                S = [a for a in range(n) if whole >> a & 1]
                values[whole] = _bareiss([[L[i][j] for j in S] for i in S])

    begin_with(0, 1, 0, L)
    return values


def _bareiss(A: list[list[int]]) -> int:
    """Determinant of an integer matrix, fraction-free (every division is exact)."""
    n, sign, last = len(A), 1, 1
    for k in range(n - 1):
        pivot = next((i for i in range(k, n) if A[i][k]), None)
        if pivot is None:
            return 0
        if pivot != k:
            A[k], A[pivot], sign = A[pivot], A[k], -sign
        top, p = A[k], A[k][k]
        for i in range(k + 1, n):
            row, f = A[i], A[i][k]
            for j in range(k + 1, n):
                row[j] = (row[j] * p - f * top[j]) // last
        last = p
    return sign * A[-1][-1] if n else 1


def mp_log_ek(X: Any, W: Any, k: int) -> mpmath.mpf:
    """log e_k(X W Xᵀ) to 80 digits, −inf where e_k = 0."""
    with mpmath.workdps(DIGITS):
        ek = exact_law(X, W).ek
        return mpmath.log(ek[k]) if k < len(ek) and ek[k] else mpmath.mpf("-inf")


def mp_inclusion(X: Any, W: Any, k: int | None, given: Iterable[int] = ()) -> list[mpmath.mpf]:
    """P(a ∈ S | given ⊆ S, |S| = k) for all a, to 80 digits."""
    return exact_law(X, W).inclusion(tuple(given))[k]


def mp_ek_by_traces(X: Any, W: Any, *, digits: int = 400) -> list[mpmath.mpf]:
    """e_0..e_d by Faddeev–LeVerrier on the d × d matrix XᵀX·W with many digits: an oracle for the oracle."""
    with mpmath.workdps(digits):
        X, W = mpmath.matrix(np.asarray(X).tolist()), mpmath.matrix(np.asarray(W).tolist())
        A = X.T * X * W
        d = A.rows
        M, ek = mpmath.eye(d), [mpmath.mpf(1)]
        for k in range(1, d + 1):
            AM = A * M
            trace = sum(AM[i, i] for i in range(d))
            ek.append(trace / k)
            M = ek[-1] * mpmath.eye(d) - AM
        return ek
