"""The energy test, against its definition and on samples that differ."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import random_vbd
from ndpp import Baskets, LowRankKernel
from ndpp.errors import InvalidInputError
from ndpp.samplers import Cholesky
from ndpp_experiments.diagnostics import energy_test


def draw(kernel, n_draws, seed):
    return Cholesky.prepare(kernel).sample(n_draws, rng=seed).baskets


def test_one_distribution_and_another():
    kernel = LowRankKernel.from_vbd(*random_vbd(60, 8, 6, np.random.default_rng(0)))
    pool = draw(kernel, 600, 1)
    tilt = np.where(np.arange(60) % 2, 2.0, 0.5)
    tilted = draw(LowRankKernel(kernel.X * tilt[:, None], kernel.W), 300, 3)
    assert energy_test(pool[:300], pool[300:], rng=0).p_value > 0.01
    assert energy_test(tilted, pool[:300], rng=0).p_value < 0.01


def test_energy_sees_what_means_do_not():
    """Two items, each in half of all sets: together or apart."""
    rng = np.random.default_rng(0)
    together = Baskets.from_lists([[0, 1] if heads else [] for heads in rng.random(100) < 0.5], n_items=2)
    apart = Baskets.from_lists([[int(heads)] for heads in rng.random(100) < 0.5], n_items=2)
    assert energy_test(together, apart, rng=0) == (pytest.approx(1.0, abs=0.7), 0.001, 999)


def test_energy_is_that_of_the_definition():
    first, second = Baskets.from_lists([[0], [1, 2]], n_items=4), Baskets.from_lists([[3], [0, 1], []], n_items=4)

    def mean(one, other):
        return np.mean([np.sqrt(len(set(a.tolist()) ^ set(b.tolist()))) for a in one for b in other])

    expected = 2 * mean(first, second) - mean(first, first) - mean(second, second)
    assert energy_test(first, second, n_permutations=9, rng=0).statistic == pytest.approx(expected)


def test_bad_samples():
    two = Baskets.from_lists([[0], [1]], n_items=2)
    with pytest.raises(InvalidInputError, match="over the same items"):
        energy_test(two, Baskets.from_lists([[0], [1]], n_items=3))
    with pytest.raises(InvalidInputError, match="at least two sets"):
        energy_test(two, two[:1])
