"""The quick scores are those of the library, and where they would not be, the library is asked."""

from __future__ import annotations

import numpy as np
import pytest

import ndpp
from kernels import AWKWARD, Case
from ndpp.datasets import make_kernel, shelf_kernel
from ndpp.errors import ZeroProbabilityError
from ndpp.serve import scores
from ndpp.serve.scores import Scorer


def baskets(n_items: int, rank: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    sizes = [0, 1, 1, 2, 2, 3, min(4, rank)]
    return [rng.choice(n_items, min(size, n_items), replace=False).tolist() for size in sizes]


@pytest.mark.parametrize("case", AWKWARD, ids=lambda case: case.name)
def test_scores_of_awkward_kernels(case: Case):
    kernel = ndpp.LowRankKernel(case.X, case.W)
    scorer = Scorer.prepare(kernel)
    for basket in baskets(kernel.n_items, kernel.rank):
        ids = np.array(basket, np.int64)
        try:
            expected = ndpp.next_item_scores(kernel, ids)
        except ZeroProbabilityError:
            with pytest.raises(ZeroProbabilityError):
                scorer.scores(ids)
            continue
        found = scorer.scores(ids)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * expected.max(initial=0.0))
        some = np.array([0, kernel.n_items - 1])
        some = some[~np.isin(some, ids)]
        np.testing.assert_allclose(scorer.scores(ids, some), expected[some], rtol=1e-6, atol=1e-6 * expected.max())


def test_the_quick_way_is_taken_where_it_can_be(monkeypatch):
    kernel = make_kernel(300, 20, rng=0)
    expected = ndpp.next_item_scores(kernel, [3, 5])
    scorer = Scorer.prepare(kernel)
    monkeypatch.delattr(ndpp, "next_item_scores")
    np.testing.assert_allclose(scorer.scores(np.array([3, 5])), expected, rtol=1e-9, atol=1e-9 * expected.max())


def test_mixtures_with_shared_ties_take_the_quick_way(monkeypatch):
    rng = np.random.default_rng(0)
    X, skew = 0.3 * rng.standard_normal((300, 4)), np.kron(np.eye(2), [[0.0, 1.0], [-1.0, 0.0]])
    odds = np.exp(rng.normal(-4, 1, (5, 300)))
    odds[1, 3] = 0.0  # two missions lack an item
    odds[2, 5] = 0.0
    mixture = ndpp.Mixture.tied(odds, X, skew, [0.2] * 5)
    scorer, asked = Scorer.prepare(mixture), [[], [3], [3, 5], [7, 8, 9]]
    expected = [ndpp.next_item_scores(mixture, basket) for basket in asked]
    monkeypatch.delattr(ndpp, "next_item_scores")
    for basket, wanted in zip(asked, expected):
        ids, some = np.array(basket, np.int64), np.array([0, 299])
        np.testing.assert_allclose(scorer.scores(ids), wanted, rtol=1e-9, atol=0)
        np.testing.assert_allclose(scorer.scores(ids, some), wanted[some], rtol=1e-9, atol=0)


def test_a_duplicate_scores_nothing():
    X = np.vstack([np.eye(3), np.eye(3)[:1]])
    kernel = ndpp.LowRankKernel(X, np.eye(3))
    assert Scorer.prepare(kernel).scores(np.array([0]))[3] == 0.0
    with pytest.raises(ZeroProbabilityError):
        Scorer.prepare(kernel).scores(np.array([0, 3]))


def test_items_that_a_kernel_excludes_score_nothing():
    kernel = shelf_kernel().exclude([8])
    found = Scorer.prepare(kernel).scores(np.array([6]))
    np.testing.assert_allclose(found, ndpp.next_item_scores(kernel, [6]), atol=1e-12)
    assert found[8] == 0.0
    with pytest.raises(ZeroProbabilityError, match="item 8"):
        Scorer.prepare(kernel).scores(np.array([8]))


def test_rows_that_are_not_in_memory_are_left_to_the_library(tmp_path):
    ndpp.save(shelf_kernel(), tmp_path / "model.safetensors")
    lazy = ndpp.load(tmp_path / "model.safetensors", lazy=True)
    scorer = Scorer.prepare(lazy)
    assert scorer.table is None
    np.testing.assert_allclose(scorer.scores(np.array([6])), ndpp.next_item_scores(shelf_kernel(), [6]), rtol=1e-9)


def test_what_is_kept_is_bounded_and_changes_nothing(monkeypatch):
    kernel = make_kernel(100, 10, rng=0)
    monkeypatch.setattr(scores, "KEPT_BYTES", 16 * 100 * 5)
    scorer = Scorer.prepare(kernel)
    for first in (*range(20), *range(20)):
        basket = np.array([first, first + 1, (first + 7) % 30])
        np.testing.assert_allclose(scorer.scores(basket), ndpp.next_item_scores(kernel, basket), rtol=1e-8, atol=1e-12)
        assert len(scorer.table._kept) <= 5


def test_a_kernel_with_a_background():
    plain = make_kernel(50, 6, rng=0)
    kernel = ndpp.LowRankKernel(plain.X, plain.W, background=np.linspace(0.0, 0.5, 50))
    for basket in ([], [3], [3, 40, 7]):
        found = Scorer.prepare(kernel).scores(np.array(basket, np.int64))
        np.testing.assert_allclose(found, ndpp.next_item_scores(kernel, basket), rtol=1e-8, atol=1e-10)
