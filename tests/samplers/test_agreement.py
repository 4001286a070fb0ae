"""Samplers that share no mathematics agree on a learned kernel (n = 3,941, rank 200), with closed forms and each other.

All means are within four standard errors: the size, the counts of items in parts of the catalogue, and log det.
"""

from __future__ import annotations

import numpy as np
import pytest

import laws
from kernels import learned
from ndpp.samplers.cholesky import Cholesky
from ndpp.samplers.clock import Clock
from ndpp.samplers.exact import Exact
from ndpp.samplers.walk import Walk

pytestmark = pytest.mark.data
PARTS = 12


@pytest.fixture(scope="module")
def kernel():
    return learned("B").kernel


@pytest.fixture(scope="module")
def exact(kernel):
    """Exact draws, unconstrained and of ten items."""
    return {size: Exact.prepare(kernel, size=size).sample(n, rng=1).baskets for size, n in ((None, 150), (10, 200))}


def of(kernel, baskets):
    return np.array([kernel.log_det(basket) for basket in baskets])


def in_parts(kernel, baskets):
    """Counts of items of each basket in parts of the catalogue of about equal popularity."""
    part = np.arange(kernel.n_items) % PARTS
    return np.array([np.bincount(part[basket], minlength=PARTS) for basket in baskets])


def assert_same_mean(first, second):
    """Fail unless two samples have means within four standard errors of the difference."""
    error = np.sqrt(np.var(first) / len(first) + np.var(second) / len(second))
    assert abs(np.mean(first) - np.mean(second)) <= 4 * error


def assert_closed_forms(kernel, baskets, size=None):
    expected = kernel.inclusion_probabilities(size=size)
    laws.assert_mean(baskets.sizes, expected.sum())
    laws.assert_mean(in_parts(kernel, baskets), np.bincount(np.arange(kernel.n_items) % PARTS, expected))


@pytest.mark.parametrize("size", [None, 10])
def test_exact(kernel, exact, size):
    assert_closed_forms(kernel, exact[size], size)


@pytest.mark.parametrize(("sampler", "n_draws"), [(Cholesky, 150), (Clock, 80)], ids=["Cholesky", "Clock"])
def test_unconstrained(kernel, exact, sampler, n_draws):
    baskets = sampler.prepare(kernel).sample(n_draws, rng=2).baskets
    assert_closed_forms(kernel, baskets)
    assert_same_mean(of(kernel, baskets), of(kernel, exact[None]))


def test_walk_of_ten_items(kernel, exact):
    """Twelve long chains, their sets 40 steps apart: all but independent on this kernel."""
    draws = Walk.prepare(kernel, size=10, start="greedy", thin=40, burn_in=60, chains=12).sample(120, rng=3)
    assert_closed_forms(kernel, draws.baskets, 10)
    assert_same_mean(of(kernel, draws.baskets), of(kernel, exact[10]))
    assert draws.totals["fallbacks"] <= 5
