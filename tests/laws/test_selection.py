"""Columns and minibatches, as the documentation draws them: their laws against enumeration."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import sparse

import ndpp
from goodness import assert_law, assert_mean
from ndpp.errors import ImpossibleSizeError

RNG = np.random.default_rng(0)
A = RNG.standard_normal((3, 6))
POINTS = RNG.standard_normal((7, 3))
Law = dict[tuple[int, ...], float]


def law_of(L: np.ndarray, size: int) -> Law:
    minors = {S: float(np.linalg.det(L[np.ix_(S, S)])) for S in combinations(range(len(L)), size)}
    return {S: value / sum(minors.values()) for S, value in minors.items()}


# ---- columns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, sparse.csc_array, "tall"], ids=["array", "sparse", "tall"])
def test_columns_are_drawn_by_their_volume(kind):
    tall = np.vstack([A, 0.5 * A[:, ::-1], A[:2] ** 2])
    of = tall if kind == "tall" else A
    kernel = ndpp.LowRankKernel.from_features(tall.T if kind == "tall" else kind(A).T)
    draws = kernel.sample(4000, size=2, rng=1)
    assert_law(draws, law_of(of.T @ of, 2))


def test_columns_of_another_matrix_are_rejected():
    wrong = A * np.where(np.arange(6) == 2, 1.6, 1.0)
    with pytest.raises(AssertionError):
        assert_law(ndpp.LowRankKernel(wrong.T).sample(4000, size=2, rng=1), law_of(A.T @ A, 2))


# ---- minibatches ----------------------------------------------------------------------------------------------------


def test_batches_have_their_law():
    assert_law(ndpp.LowRankKernel(POINTS).sample(3000, size=2, rng=5), law_of(POINTS @ POINTS.T, 2))
    scaled = POINTS / np.linalg.norm(POINTS, axis=1)[:, None] * np.arange(1, 8)[:, None]
    kernel = ndpp.LowRankKernel.from_features(POINTS, quality=np.arange(1, 8), similarity="cosine")
    assert_law(kernel.sample(3000, size=2, rng=5), law_of(scaled @ scaled.T, 2))


def test_larger_batches_with_a_background():
    with pytest.raises(ImpossibleSizeError, match="rank of the kernel, 3; size 5"):
        ndpp.LowRankKernel(POINTS).sample(1, size=5)
    kernel = ndpp.LowRankKernel(POINTS, background=np.full(7, 0.5))
    assert_law(kernel.sample(3000, size=5, rng=6), law_of(POINTS @ POINTS.T + 0.5 * np.eye(7), 5))


def test_weighted_sums_are_unbiased():
    kernel, values = ndpp.LowRankKernel(POINTS), np.arange(7.0) ** 2
    weights, batches = 1 / kernel.inclusion_probabilities(2), kernel.sample(3000, size=2, rng=7)
    assert_mean([weights[items] @ values[items] for items in batches], values.sum())
    with pytest.raises(AssertionError):  # with weights of uniform batches
        assert_mean([7 / 2 * values[items].sum() for items in batches], values.sum())
    chances = np.zeros(7)
    for S, p in law_of(POINTS @ POINTS.T, 2).items():
        chances[list(S)] += p
    np.testing.assert_allclose(weights, 1 / chances, rtol=1e-12)


def test_torch_takes_batches_as_lists():
    data = pytest.importorskip("torch.utils.data")
    torch = pytest.importorskip("torch")
    batches = ndpp.LowRankKernel(POINTS).sample(5, size=3, rng=9)
    loader = data.DataLoader(data.TensorDataset(torch.arange(7)), batch_sampler=batches.to_lists())
    assert len(loader) == 5
    assert [items.tolist() for (items,) in loader] == batches.to_lists()
