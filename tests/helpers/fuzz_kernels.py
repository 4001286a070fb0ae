"""Random kernels against rational arithmetic; a part of :mod:`fuzz`."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np

import ndpp
from fuzz_files import Failure, check
from ndpp.errors import NDPPError, PrecisionError, PrecisionWarning

TOLERANCE = 1e-8
IMPOSSIBLE = (
    ndpp.errors.ImpossibleSizeError,
    ndpp.errors.ZeroProbabilityError,
    ndpp.errors.NoConditionalKernelError,
)
"""What is refused as impossible may have a probability below the tolerance."""


class ExactKernel(NamedTuple):
    """A kernel whose entries are exact in double precision, and det L_S of every set S as a fraction."""

    X: Any
    W: Any
    dets: dict[tuple[int, ...], Fraction]
    harmless: bool

    @classmethod
    def random(cls, seed: int) -> ExactKernel:
        """Return a kernel of a few items; one in three has columns of one scale."""
        draw = random.Random(seed)
        n, d = draw.randint(1, 6), draw.randint(1, 5)
        harmless = draw.random() < 1 / 3
        X = [[Fraction(draw.randint(-9, 9)) for _ in range(d)] for _ in range(n)]
        if not harmless and n > 1 and draw.random() < 0.3:  # nearly or exactly dependent items
            X[-1] = [x * draw.choice([1, -1, 2]) for x in X[0]]
        G = [[draw.randint(-3, 3) for _ in range(draw.randint(1, d))] for _ in range(d)]
        m = min(map(len, G))
        S = [[draw.randint(-5, 5) for _ in range(d)] for _ in range(d)]
        tiny = Fraction(1, 2 ** draw.choice([10, 30, 50]))
        symmetric, skew = draw.choice([(1, 1), (1, 0), (0, 1), (1, tiny), (tiny, 1)]) if not harmless else (1, 1)
        W = [
            [symmetric * sum(G[i][k] * G[j][k] for k in range(m)) + skew * (S[i][j] - S[j][i]) for j in range(d)]
            for i in range(d)
        ]
        if not harmless:
            X, W = awkward(X, W, draw)
        L = product(product(X, W), transposed(X))
        sets = [s for k in range(n + 1) for s in combinations(range(n), k)]
        dets = {s: determinant([[L[i][j] for j in s] for i in s]) for s in sets}
        return cls(np.array(X, float), np.array(W, float), dets, harmless)

    def total(self, size: int | None = None, given: tuple[int, ...] = ()) -> Fraction:
        """Return the sum of det L_S over the sets of a size that contain the given items."""
        return sum(
            (p for s, p in self.dets.items() if set(given) <= set(s) and (size is None or len(s) == size)), Fraction(0)
        )


Matrix = list[list[Fraction]]


def product(A: Matrix, B: Matrix) -> Matrix:
    """Return A B."""
    return [[sum((a * b for a, b in zip(row, column)), Fraction(0)) for column in zip(*B)] for row in A]


def transposed(A: Matrix) -> Matrix:
    """Return Aᵀ."""
    return [list(column) for column in zip(*A)]


def awkward(X: Matrix, W: Matrix, draw: random.Random) -> tuple[Matrix, Matrix]:
    """Return a kernel with entries of very different magnitude, or one whose large terms cancel; all exact in double precision."""
    n, d, spread = len(X), len(W), draw.choice([8, 16, 27])

    def powers(count: int) -> list[Fraction]:
        return [Fraction(2) ** draw.randint(-spread, spread) for _ in range(count)]

    kind = draw.choice(["columns", "columns", "inner", "items", "terms", "twins"])
    if kind == "items":
        return [[x * s for x in row] for row, s in zip(X, powers(n))], W
    if kind == "twins" and n > 1:
        return [*X[:-1], [x + draw.randint(-1, 1) * Fraction(1, 2**spread) for x in X[0]]], W
    if kind == "terms":  # X A and A⁻¹ W A⁻ᵀ are the same kernel for every A
        whole = (X, W)
        for _ in range(2):
            i, j = draw.randrange(d), draw.randrange(d)
            size = Fraction(draw.choice([-1, 1]) * 2 ** draw.choice([3, 6, 9, 12]))
            if i != j:
                A = [[Fraction(a == b) + size * ((a, b) == (i, j)) for b in range(d)] for a in range(d)]
                inverse = [[Fraction(a == b) - size * ((a, b) == (i, j)) for b in range(d)] for a in range(d)]
                X, W = product(X, A), product(product(inverse, W), transposed(inverse))
        exact = all(Fraction(float(x)) == x for row in [*X, *W] for x in row)
        return (X, W) if exact else whole
    scale = powers(d)
    if kind == "inner":
        return X, [[s * w * t for w, t in zip(row, scale)] for row, s in zip(W, scale)]
    return [[x * s for x, s in zip(row, scale)] for row in X], W


def determinant(rows: list[list[Fraction]]) -> Fraction:
    """Return the determinant of a matrix of fractions."""
    matrix, value = [[Fraction(x) for x in row] for row in rows], Fraction(1)
    for i in range(len(matrix)):
        pivot = next((r for r in range(i, len(matrix)) if matrix[r][i]), None)
        if pivot is None:
            return Fraction(0)
        if pivot != i:
            matrix[i], matrix[pivot], value = matrix[pivot], matrix[i], -value
        value *= matrix[i][i]
        for r in range(i + 1, len(matrix)):
            factor = matrix[r][i] / matrix[i][i]
            matrix[r] = [a - factor * b for a, b in zip(matrix[r], matrix[i])]
    return value


def log_fraction(value: Fraction) -> float:
    """Return log value, −inf for zero; numerator and denominator may be beyond double precision."""
    if not value:
        return -math.inf
    n, d = value.numerator, value.denominator
    shift = n.bit_length() - d.bit_length()
    return math.log(Fraction(n, d << shift) if shift >= 0 else Fraction(n << -shift, d)) + shift * math.log(2)


def listed(found: Any) -> Any:
    """Return the values of an answer; none if it was refused."""
    return [] if found is None or isinstance(found, NDPPError) else found


class Tally:
    """Kernels with columns of one scale, and kernels that were warned about: the number, whether harmless, and for what."""

    harmless = 0
    warned: ClassVar[list[tuple[int, bool, list[str]]]] = []


def kernel_case(seed: int) -> None:
    """Compare every probability of one kernel with the exact ones."""
    exact = ExactKernel.random(seed)
    Z, n = exact.total(), len(exact.X)
    warned: list[str] = []

    def ask(name: str, function: Callable[[], Any]) -> Any:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                found = function()
            except PrecisionError:
                warned.append(name)
                return None
            except IMPOSSIBLE as reason:
                found = reason
        if any(issubclass(w.category, PrecisionWarning) for w in said):
            warned.append(name)
            return None
        return found

    def same_log(name: str, found: Any, wanted: Fraction, total: Fraction) -> None:
        if found is None:
            return
        if isinstance(found, NDPPError) or found == -math.inf:  # zero, as a probability
            check(wanted <= TOLERANCE * total, f"{name}: zero ({found}), should be exp({log_fraction(wanted):.17g})")
            return
        if not wanted:
            check(found <= math.log(TOLERANCE) + log_fraction(total), f"{name}: exp({found:.17g}), should be zero")
            return
        error = abs(math.expm1(found - log_fraction(wanted)))
        check(error <= TOLERANCE * max(1.0, abs(found)), f"{name}: relative error {error:.2g}")

    def same_values(name: str, found: Any, wanted: list[Fraction]) -> None:
        if found is None:
            return
        if isinstance(found, NDPPError):
            raise Failure(f"{name}: refused, though possible ({found})")
        full = np.zeros(len(wanted))
        full[: len(found)] = found
        error = max((abs(a - float(b)) for a, b in zip(full, wanted)), default=0.0)
        check(error <= TOLERANCE and not any(found[len(wanted) :]), f"{name}: error {error:.2g}")

    kernel = ask("the kernel", lambda: ndpp.LowRankKernel(exact.X, exact.W))
    if kernel is None:
        return
    for s, det in exact.dets.items():
        within = sum(p for t, p in exact.dets.items() if set(t) <= set(s))
        same_log(f"log_det({s})", ask("log_det", lambda s=s: kernel.log_det(s)), det, within)
        same_log(f"log_prob({s})", ask("log_prob", lambda s=s: kernel.log_prob(s)), det / Z, Fraction(1))
    same_log("log_normalizer()", ask("log_normalizer", kernel.log_normalizer), Z, Z)
    many = ndpp.Baskets.from_lists(list(exact.dets), n_items=n)
    for s, found in zip(exact.dets, listed(ask("log_probs", lambda: kernel.log_probs(many)))):
        same_log(f"log_probs of {s}", found, exact.dets[s] / Z, Fraction(1))
    same_values(
        "size_distribution()",
        ask("size_distribution", kernel.size_distribution),
        [exact.total(k) / Z for k in range(n + 1)],
    )
    chances = [exact.total(given=(a,)) / Z for a in range(n)]
    same_values("inclusion_probabilities()", ask("inclusion", kernel.inclusion_probabilities), chances)
    for k in range(1, n + 1):
        of_size = exact.total(k)
        same_log(f"log_normalizer({k})", ask("log e_k", lambda k=k: kernel.log_normalizer(k)), of_size, Z)
        if of_size:
            found = ask("inclusion of a size", lambda k=k: kernel.inclusion_probabilities(size=k))
            wanted = [
                sum((p for s, p in exact.dets.items() if len(s) == k and a in s), Fraction(0)) / of_size
                for a in range(n)
            ]
            if not (isinstance(found, NDPPError) and of_size <= TOLERANCE * Z):
                same_values(f"inclusion_probabilities(size={k})", found, wanted)
    condition_case(kernel, exact, ask, same_log, same_values, random.Random(seed))
    ask("sample", lambda: kernel.sample(2, rng=0))
    ask("Cholesky", lambda: ndpp.samplers.Cholesky.prepare(kernel).sample(2, rng=0))
    Tally.harmless += exact.harmless
    if warned:
        Tally.warned.append((seed, exact.harmless, sorted(set(warned))))


def condition_case(
    kernel: Any, exact: ExactKernel, ask: Any, same_log: Any, same_values: Any, draw: random.Random
) -> None:
    """Compare the conditional kernel, and the scores of the next item, given a random set."""
    n = len(exact.X)
    given = tuple(sorted(draw.sample(range(n), draw.randint(1, n))))
    if not exact.dets[given] or len(given) == n:
        return
    rest = ask("condition", lambda: kernel.condition(given))
    if isinstance(rest, NDPPError):
        within = sum(p for t, p in exact.dets.items() if set(t) <= set(given))
        check(exact.dets[given] <= TOLERANCE * within, f"condition({given}) is refused, though possible ({rest})")
    if rest is None or isinstance(rest, NDPPError):
        return
    total = exact.total(given=given)
    same_values(
        f"condition({given}).size_distribution()",
        ask("size", rest.size_distribution),
        [exact.total(k + len(given), given) / total for k in range(n - len(given) + 1)],
    )
    for s, det in exact.dets.items():
        if set(given) <= set(s):
            others = tuple(a for a in s if a not in given)
            found = ask("log_prob", lambda others=others: rest.log_prob(others))
            same_log(f"condition({given}).log_prob({others})", found, det / total, Fraction(1))
    scores = ask("scores", lambda: ndpp.next_item_scores(kernel, given))
    for a in set(range(n)) - set(given):
        if scores is not None and not isinstance(scores, NDPPError):
            wanted = exact.dets[tuple(sorted((*given, a)))] / exact.dets[given]
            error, best = abs(scores[a] - float(wanted)), float(max(scores))  # if all are zero, they are as odds
            check(
                error <= TOLERANCE * (max(best, float(wanted)) if best else 1),
                f"score of {a} given {given}: {error:.2g}",
            )
