"""Prepared scores are those of the routines for single baskets, and where they would not be, these are asked."""

from __future__ import annotations

import numpy as np
import pytest

import ndpp
from kernels import AWKWARD, Case
from ndpp.datasets import make_kernel, shelf_kernel
from ndpp.errors import ZeroProbabilityError
from ndpp.inference import Ranking
from ndpp.inference import scorer as module
from ndpp.inference.ranking import Rule
from ndpp.inference.scorer import Scorer
from servers import trips


def baskets(n_items: int, rank: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    sizes = [0, 1, 1, 2, 2, 3, min(4, rank)]
    return [rng.choice(n_items, min(size, n_items), replace=False).tolist() for size in sizes]


ROUTINES = {True: ndpp.next_item_scores, False: ndpp.continuation_scores}
both = pytest.mark.parametrize("whole", [True, False])


@both
@pytest.mark.parametrize("case", AWKWARD, ids=lambda case: case.name)
def test_scores_of_awkward_kernels(case: Case, whole: bool):
    kernel = ndpp.LowRankKernel(case.X, case.W)
    scorer = Scorer(kernel)
    for basket in baskets(kernel.n_items, kernel.rank):
        ids = np.array(basket, np.int64)
        try:
            expected = ROUTINES[whole](kernel, ids)
        except ZeroProbabilityError:
            with pytest.raises(ZeroProbabilityError):
                scorer.scores(ids, whole=whole)
            continue
        found = scorer.scores(ids, whole=whole)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * expected.max(initial=0.0))
    alone = Scorer(kernel).each_alone(np.arange(min(3, kernel.n_items)), whole=whole)
    assert alone.shape == (min(3, kernel.n_items), kernel.n_items)
    for item, row in enumerate(alone):
        if not np.isnan(row[0]):
            np.testing.assert_allclose(row, scorer.scores([item], whole=whole), rtol=1e-6, atol=1e-6 * row.max())


@both
def test_the_quick_way_is_taken_where_it_can_be(monkeypatch, whole: bool):
    kernel = make_kernel(300, 20, rng=0)
    expected = ROUTINES[whole](kernel, [3, 5])
    scorer = Scorer(kernel)
    monkeypatch.delattr(module, "next_item_scores")
    monkeypatch.delattr(module, "continuation_scores")
    np.testing.assert_allclose(scorer.scores([3, 5], whole=whole), expected, rtol=1e-9, atol=1e-9 * expected.max())


@both
def test_mixtures_are_left_to_the_routines(whole: bool):
    law = trips()
    scorer = Scorer(law)
    assert not scorer.has_tables
    assert scorer.scores(["bread"], whole=whole).tolist() == ROUTINES[whole](law, ["bread"]).tolist()
    alone = scorer.each_alone(law.ids(["bread", "tea"]), whole=whole)
    np.testing.assert_allclose(alone[1], ROUTINES[whole](law, ["tea"]), rtol=1e-9)


def tied() -> ndpp.Mixture:
    shelf = shelf_kernel()
    odds = np.random.default_rng(0).gamma(1.0, 0.2, size=(3, 12))
    return ndpp.Mixture.tied(odds, shelf.X, (shelf.W - shelf.W.T) / 2, [0.5, 0.3, 0.2], labels=shelf.labels)


@both
def test_mixtures_have_the_tables_of_their_ties(whole: bool):
    law = tied()
    scorer = Scorer(law)
    assert scorer._base.has_tables
    for basket in ([], [6], [6, 3]):
        np.testing.assert_allclose(scorer.scores(basket, whole=whole), ROUTINES[whole](law, basket), rtol=1e-9)


def test_a_duplicate_scores_nothing():
    X = np.vstack([np.eye(3), np.eye(3)[:1]])
    kernel = ndpp.LowRankKernel(X, np.eye(3))
    assert Scorer(kernel).scores([0], whole=True)[3] == 0.0
    with pytest.raises(ZeroProbabilityError):
        Scorer(kernel).scores([0, 3], whole=True)


@both
def test_items_that_a_kernel_excludes_score_nothing(whole: bool):
    kernel = shelf_kernel().exclude([8])
    found = Scorer(kernel).scores([6], whole=whole)
    np.testing.assert_allclose(found, ROUTINES[whole](kernel, [6]), atol=1e-12)
    assert found[8] == 0.0
    with pytest.raises(ZeroProbabilityError, match="item 8"):
        Scorer(kernel).scores([8], whole=whole)


def test_rows_that_are_not_in_memory_are_left_to_the_routines(tmp_path):
    ndpp.save(shelf_kernel(), tmp_path / "model.safetensors")
    scorer = Scorer(ndpp.load(tmp_path / "model.safetensors", lazy=True))
    assert not scorer.has_tables
    np.testing.assert_allclose(scorer.scores([6], whole=True), ndpp.next_item_scores(shelf_kernel(), [6]), rtol=1e-9)


@both
def test_what_is_kept_is_bounded_and_changes_nothing(monkeypatch, whole: bool):
    kernel = make_kernel(100, 10, rng=0)
    monkeypatch.setattr(module, "KEPT_BYTES", 16 * 100 * 5)
    scorer = Scorer(kernel)
    for first in (*range(20), *range(20)):
        basket = np.array([first, first + 1, (first + 7) % 30])
        expected = ROUTINES[whole](kernel, basket)
        np.testing.assert_allclose(scorer.scores(basket, whole=whole), expected, rtol=1e-8, atol=1e-12)
        assert len((scorer._completion if whole else scorer._continuation)._kept) <= 5


@both
def test_a_kernel_with_a_background(whole: bool):
    plain = make_kernel(50, 6, rng=0)
    kernel = ndpp.LowRankKernel(plain.X, plain.W, background=np.linspace(0.0, 0.5, 50))
    for basket in ([], [3], [3, 40, 7]):
        found = Scorer(kernel).scores(np.array(basket, np.int64), whole=whole)
        np.testing.assert_allclose(found, ROUTINES[whole](kernel, basket), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("ranking", list(Ranking))
@pytest.mark.parametrize("make", [shelf_kernel, trips, tied])
def test_the_best_items_are_those_of_the_library(make, ranking: Ranking):
    law = make()
    rule, basket = Rule.of(law, n=3, ranking=ranking), law.ids(["bread", "tea"])
    found, expected = Scorer(law).best(rule, basket), ndpp.recommend(law, basket, n=3, ranking=ranking)
    assert found.items.tolist() == expected.items.tolist()
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-9)


@pytest.mark.parametrize("ranking", list(Ranking))
def test_a_basket_that_never_occurs_has_no_best_items(ranking: Ranking):
    apart = ndpp.Mixture.tied([[1, 1, 0, 0], [0, 0, 1, 1]], np.zeros((4, 2)), np.zeros((2, 2)), [0.5, 0.5])
    with pytest.raises(ZeroProbabilityError):
        Scorer(apart).best(Rule.of(apart, ranking=ranking), np.array([0, 2]))
