"""Symmetric DPPs: the choice of eigenvectors, and the items of a projection."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import goodness
from kernels import random_ndpp
from ndpp import LowRankKernel
from ndpp.items import LeverageTable, Tree
from ndpp.samplers.symmetric import choose, draw_projection, heads_table


@pytest.mark.parametrize("size", [None, 0, 1, 2, 4, 5])
def test_sets_of_eigenvectors(size):
    values = np.array([0.0, 1e-3, 0.5, 0.5, 2.0, 30.0])
    sets = [E for k in range(6) for E in itertools.combinations(range(6), k) if size in (None, k)]
    weight = {E: float(np.prod(values[list(E)])) for E in sets}
    law = {E: w / sum(weight.values()) for E, w in weight.items() if w}
    p, rng = values / (1 + values), np.random.default_rng(5)
    heads = np.empty((0, 0)) if size is None else heads_table(p, 1 - p, size)
    goodness.assert_law([choose(p, heads, rng.random(6)) for _ in range(2_000)], law)


def test_projection_of_full_size_and_its_counter():
    """A projection DPP has as many items as directions, here 30 of 40, all distinct."""
    rng = np.random.default_rng(8)
    kernel = LowRankKernel(*random_ndpp(200, 40, rng))
    V = np.linalg.qr(rng.standard_normal((40, 30)))[0]
    for index in (Tree.prepare(kernel), LeverageTable.prepare(kernel)):
        before = V.copy()
        rows, proposals = draw_projection(rng, V, index)
        assert np.unique(rows).size == 30
        assert proposals >= 30
        np.testing.assert_array_equal(V, before)


def test_projection_law_through_inclusion():
    rng = np.random.default_rng(9)
    kernel = LowRankKernel(*random_ndpp(30, 8, rng))
    V = np.linalg.qr(rng.standard_normal((8, 4)))[0]
    index = Tree.prepare(kernel, leaf=1)
    hits = np.zeros((2_000, 30))
    for hit in hits:
        hit[draw_projection(rng, V, index).rows] = 1.0
    goodness.assert_mean(hits, ((kernel.q_rows(np.arange(30)) @ V) ** 2).sum(axis=1))
