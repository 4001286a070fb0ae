"""Full enumeration: the law itself, and draws from it."""

from __future__ import annotations

import numpy as np
import pytest

import laws
import oracles
from kernels import AWKWARD, BY_NAME
from ndpp import LowRankKernel
from ndpp.errors import ImpossibleSizeError, InvalidInputError
from ndpp.samplers.naive import Naive


@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_law_of_every_size(case):
    for size in [None, *oracles.possible_sizes(case.L)]:
        naive, expected = Naive.prepare(case.kernel, size=size), oracles.enumerate_law(case.L, size)
        got = {tuple(a for a in range(case.n_items) if m >> a & 1): p for m, p in zip(naive.masks.tolist(), naive.law)}
        assert got.keys() == expected.keys()
        np.testing.assert_allclose([got[S] for S in expected], list(expected.values()), atol=1e-12)


@pytest.mark.parametrize("size", [None, 3])
def test_draws_follow_the_law(size):
    case = BY_NAME["generic"]
    draws = Naive.prepare(case.kernel, size=size).sample(20_000, rng=1)
    laws.assert_law(draws.baskets, oracles.enumerate_law(case.L, size))
    symmetric = oracles.enumerate_law((case.L + case.L.T) / 2, size)
    with pytest.raises(AssertionError):
        laws.assert_law(draws.baskets, symmetric)


def test_refusals():
    with pytest.raises(InvalidInputError, match="at most 18 items; this kernel has 19"):
        Naive.prepare(LowRankKernel(np.eye(19), np.eye(19)))
    with pytest.raises(ImpossibleSizeError):
        Naive.prepare(BY_NAME["purely skew"].kernel, size=3)
    with pytest.raises(InvalidInputError, match="max_items"):
        Naive.prepare(BY_NAME["generic"].kernel, max_items=63)
