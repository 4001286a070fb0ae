"""P(i ∈ S | |S| = k) of unions of a low-rank NDPP and items by themselves."""

from __future__ import annotations

import numpy as np
import pytest

from ndpp import LowRankKernel
from ndpp.linalg.sizes import SMALL_P
from ndpp.linalg.skew import skew_part


def test_items_of_sets_of_one_size_need_no_pass_over_all_items_for_each_node():
    """Against the diagonal of zL(I + zL)⁻¹ on a circle, from the eigenvectors of L; items with probabilities from 1e-18 to 0.9."""
    rng = np.random.default_rng(6)
    X, odds = rng.standard_normal((120, 6)) / 5, np.exp(rng.normal(-5, 4, 120)).clip(1e-18, 9.0)
    W = np.eye(6) / 2 + 2 * skew_part(rng.standard_normal((6, 6)))
    kernel = LowRankKernel(X, W, background=odds)
    p = odds / (1 + odds)
    assert 5 < (p > SMALL_P).sum() < 60
    values, vectors = np.linalg.eig(kernel.to_dense())
    sides = vectors * np.linalg.inv(vectors).T
    z = np.exp(2j * np.pi * (np.arange(256) + 0.5) / 256)
    tilted = np.multiply.outer(z, values)
    law, mean = kernel._parts(np.empty(0, np.int64)).at(0, 0.0).sizes, kernel.inclusion_probabilities().sum()
    for size in (int(mean) - 4, int(mean), int(mean) + 5):
        weights = np.exp(np.log1p(tilted).sum(axis=1) - size * np.log(z))
        expected = ((weights[:, None] * (tilted / (1 + tilted))).sum(axis=0) / weights.sum() @ sides.T).real
        found = law.inclusions(size)
        assert found == pytest.approx(expected, abs=1e-11)
        assert found.sum() == pytest.approx(size, rel=1e-12)
        assert kernel.inclusion_probabilities(size) == pytest.approx(expected, abs=1e-11)
