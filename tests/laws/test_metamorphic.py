"""One distribution in many guises: what must not change when a kernel is written in another way, or a question asked in another."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
import pytest
import scipy.linalg as sl

import ndpp
from kernels import AWKWARD, Case
from ndpp import Baskets, LowRankKernel
from ndpp.errors import ImpossibleSizeError, NoConditionalKernelError, ZeroProbabilityError

TOLERANCE = 1e-9
SMALL = [case for case in AWKWARD if case.n_items <= 12]
every_case = pytest.mark.parametrize("case", SMALL, ids=str)


def some_sets(n_items: int) -> list[tuple[int, ...]]:
    """The empty set, all single items and pairs, and some larger sets."""
    rng = np.random.default_rng(n_items)
    larger = [tuple(sorted(rng.permutation(n_items)[:k].tolist())) for k in range(3, n_items + 1) for _ in range(3)]
    return [(), *combinations(range(n_items), 1), *combinations(range(n_items), 2), *larger]


def probabilities(kernel: LowRankKernel, order: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Everything that is asked of a kernel; ``order`` is where each item of the original is now."""
    order = np.arange(kernel.n_items) if order is None else order
    sets = some_sets(kernel.n_items)
    moved = [order[list(items)].tolist() for items in sets]
    found = {
        "log_prob": np.array([np.exp(kernel.log_prob(items)) for items in moved]),
        "log_probs": np.exp(kernel.log_probs(Baskets.from_lists(moved, n_items=kernel.n_items))),
        "sizes": kernel.size_distribution(),
        "inclusion": kernel.inclusion_probabilities()[order],
        "scores": score(kernel, moved[1])[order],
    }
    for size in range(1, kernel.rank + 1):
        try:
            found[f"inclusion of size {size}"] = kernel.inclusion_probabilities(size)[order]
        except ImpossibleSizeError:
            found[f"inclusion of size {size}"] = np.zeros(0)
    return found


@cache
def as_written(case: Case) -> dict[str, np.ndarray]:
    """The same of a kernel as it stands in the table."""
    return probabilities(case.kernel)


def score(kernel: LowRankKernel, items: list[int]) -> np.ndarray:
    try:
        scores = ndpp.next_item_scores(kernel, items)
    except ZeroProbabilityError:
        return np.zeros(kernel.n_items)
    return scores / (1 + scores)


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray], tolerance: float = TOLERANCE) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_allclose(values, other[name], atol=tolerance, err_msg=name)


@every_case
def test_items_in_another_order(case: Case):
    order = np.random.default_rng(1).permutation(case.n_items)
    X = np.empty_like(case.X)
    X[order] = case.X
    assert_same(as_written(case), probabilities(LowRankKernel(X, case.W), order))


@every_case
@pytest.mark.parametrize("power", [-30, 30])
def test_another_unit(case: Case, power: int):
    """X · 2^p and W / 4^p are the same L, bit for bit."""
    other = LowRankKernel(np.ldexp(case.X, power), np.ldexp(case.W, -2 * power))
    assert_same(as_written(case), probabilities(other))


@every_case
def test_columns_in_other_units(case: Case):
    powers = np.random.default_rng(2).integers(-12, 13, case.W.shape[0])
    X, W = np.ldexp(case.X, powers), np.ldexp(np.ldexp(case.W, -powers), -powers[:, None])
    assert_same(as_written(case), probabilities(LowRankKernel(X, W)))


@every_case
def test_columns_in_another_basis(case: Case):
    """X A and A⁻¹ W A⁻ᵀ, A orthogonal."""
    d = case.W.shape[0]
    A = sl.qr(np.random.default_rng(3).standard_normal((d, d)))[0]
    W = A.T @ case.W @ A
    exact = (W + W.T) / 2 if not np.any(case.W - case.W.T) else (W - W.T) / 2 if not np.any(case.W + case.W.T) else W
    assert_same(as_written(case), probabilities(LowRankKernel(case.X @ A, exact)), 1e-8)


@every_case
def test_the_transpose_is_the_same_distribution(case: Case):
    assert_same(as_written(case), probabilities(LowRankKernel(case.X, case.W.T)))


@every_case
def test_conditioned_and_given(case: Case):
    kernel = case.kernel
    for given in some_sets(case.n_items)[1::7]:
        if len(given) == case.n_items:
            continue
        try:
            rest = kernel.condition(given)
        except (ZeroProbabilityError, NoConditionalKernelError):
            continue
        expected = kernel.inclusion_probabilities(given=given)
        expected[list(given)] = 0.0
        np.testing.assert_allclose(rest.inclusion_probabilities(), expected, atol=TOLERANCE, err_msg=str(given))
        inside = kernel.log_mass(given)
        for a in set(range(case.n_items)) - set(given):
            expected = np.exp(kernel.log_prob([*given, a]) + kernel.log_normalizer() - inside)
            assert np.exp(rest.log_prob([a])) == pytest.approx(expected, abs=TOLERANCE)


@every_case
def test_restricted_and_excluded(case: Case):
    gone = list(range(0, case.n_items - 1, 3))
    kept = [a for a in range(case.n_items) if a not in gone]
    one, other = case.kernel.restrict(kept), case.kernel.exclude(gone)
    assert one.support.tolist() == other.support.tolist() == kept
    assert_same(probabilities(one), probabilities(other), 0.0)
    # P(S | S inside the rest) = P(S) / P(nothing of the others)
    none_of_them = np.exp(one.log_normalizer() - case.kernel.log_normalizer())
    for items in some_sets(case.n_items):
        if set(items) <= set(kept):
            expected = np.exp(case.kernel.log_prob(items)) / none_of_them
            assert np.exp(one.log_prob(items)) == pytest.approx(expected, abs=TOLERANCE)


@every_case
def test_sizes_mixed_by_their_probabilities(case: Case):
    """Sets of any size are sets of one size, the size being drawn first."""
    kernel, sizes = case.kernel, case.kernel.size_distribution()
    total = np.zeros(case.n_items)
    for size in range(1, kernel.rank + 1):
        if kernel.log_normalizer(size) > -np.inf:
            total += sizes[size] * kernel.inclusion_probabilities(size)
            assert np.exp(kernel.log_normalizer(size) - kernel.log_normalizer()) == pytest.approx(
                sizes[size], abs=TOLERANCE
            )
    np.testing.assert_allclose(total, kernel.inclusion_probabilities(), atol=TOLERANCE)
    for items in some_sets(case.n_items)[1:]:
        if kernel.log_prob(items) > -np.inf:
            mixed = sizes[len(items)] * np.exp(kernel.log_prob(items, len(items)))
            assert np.exp(kernel.log_prob(items)) == pytest.approx(mixed, abs=TOLERANCE)
