"""Full enumeration: the law itself, and draws from it."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

import goodness
import oracles
from kernels import AWKWARD, BY_NAME
from ndpp import LowRankKernel
from ndpp.errors import ImpossibleSizeError, InvalidInputError
from ndpp.samplers.naive import MAX_ERROR, Naive, minors
from ndpp.samplers.walk.up import NaiveUp


@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_law_of_every_size(case):
    for size in [None, *oracles.possible_sizes(case.L)]:
        naive, expected = Naive.prepare(case.kernel, size=size), oracles.enumerate_law(case.L, size)
        got = {tuple(a for a in range(case.n_items) if m >> a & 1): p for m, p in zip(naive.masks.tolist(), naive.law)}
        assert got.keys() == expected.keys()
        np.testing.assert_allclose([got[S] for S in expected], list(expected.values()), atol=1e-12)


def test_small_minors_of_graded_factors():
    """The minors of the dense kernel are mostly rounding here: the probabilities were off by half."""
    rng = np.random.default_rng(2)
    X = np.round(rng.standard_normal((10, 6)) * 64) / 64 * 2.0 ** -(2 * np.arange(6))
    skew = rng.integers(-3, 4, (6, 6))
    W = np.eye(6) + (skew - skew.T) / 4
    kernel, exact = LowRankKernel(X, W), oracles.exact_law(X, W).minors
    dense, errors = minors(kernel.to_dense(), np.array(list(combinations(range(10), 6))))
    assert errors.sum() > 1e4 * MAX_ERROR * dense.sum()
    naive = Naive.prepare(kernel, size=6)
    assert_proportional(naive.law, [exact[mask] for mask in naive.masks])
    pairs, law = NaiveUp().prepare(kernel, 6).law(np.arange(4))
    assert_proportional(law, [exact[oracles.mask_of([0, 1, 2, 3, *pair])] for pair in pairs.tolist()])


def assert_proportional(law, weights):
    total = sum(weights)
    np.testing.assert_allclose(law, [float(Fraction(weight, total)) for weight in weights], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("size", [None, 3])
def test_draws_follow_the_law(size):
    case = BY_NAME["generic"]
    draws = Naive.prepare(case.kernel, size=size).sample(5_000, rng=1)
    goodness.assert_law(draws.baskets, oracles.enumerate_law(case.L, size))
    symmetric = oracles.enumerate_law((case.L + case.L.T) / 2, size)
    with pytest.raises(AssertionError):
        goodness.assert_law(draws.baskets, symmetric)


def test_refusals():
    with pytest.raises(InvalidInputError, match="at most 18 items; this kernel has 19"):
        Naive.prepare(LowRankKernel(np.eye(19), np.eye(19)))
    with pytest.raises(ImpossibleSizeError):
        Naive.prepare(BY_NAME["purely skew"].kernel, size=3)
    with pytest.raises(InvalidInputError, match="max_items"):
        Naive.prepare(BY_NAME["generic"].kernel, max_items=63)
