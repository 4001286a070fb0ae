"""One distribution in many guises: what must not change when a kernel is written in another way.

Questions that are asked in two ways have one answer each in ``test_contract``, by enumeration.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
import pytest
import scipy.linalg as sl

import ndpp
from kernels import AWKWARD, Case
from ndpp import Baskets, LowRankKernel
from ndpp.errors import ImpossibleSizeError, ZeroProbabilityError

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
