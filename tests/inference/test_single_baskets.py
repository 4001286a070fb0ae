"""Scores of a batch of one basket are those of the careful routines, and where they would not be, these are asked."""

from __future__ import annotations

import numpy as np
import pytest

import ndpp
from kernels import AWKWARD, Case
from ndpp._memory import ENTRY_BYTES, Memory
from ndpp.datasets import make_kernel, shelf_kernel
from ndpp.errors import ZeroProbabilityError
from ndpp.inference import Ranking, scores
from ndpp.inference.ranking import ZERO_CHANCE, Rule
from ndpp.laws import batched
from servers import trips


def baskets(n_items: int, rank: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    sizes = [0, 1, 1, 2, 2, 3, min(4, rank)]
    return [rng.choice(n_items, min(size, n_items), replace=False).tolist() for size in sizes]


ROUTINES = {True: ndpp.next_item_scores, False: ndpp.continuation_scores}
both = pytest.mark.parametrize("whole", [True, False])


def scores_of(law, basket, whole: bool) -> np.ndarray:
    """Return the scores of a batch of one basket; raise the error of the careful routine where there are none."""
    found = scores.scores_or_nan(law, law.one_basket(np.asarray(basket, np.int64)), whole=whole)[0]
    return ROUTINES[whole](law, basket) if np.isnan(found[0]) else found


@both
@pytest.mark.parametrize("case", AWKWARD, ids=lambda case: case.name)
def test_scores_of_awkward_kernels(case: Case, whole: bool):
    kernel = ndpp.LowRankKernel(case.X, case.W)
    for basket in baskets(kernel.n_items, kernel.rank):
        ids = np.array(basket, np.int64)
        try:
            expected = ROUTINES[whole](kernel, ids)
        except ZeroProbabilityError:
            with pytest.raises(ZeroProbabilityError):
                scores_of(kernel, ids, whole)
            continue
        found = scores_of(kernel, ids, whole)
        if not whole:  # the careful routine leaves a little of items that a full basket has no room for
            expected, found = (np.where(values > ZERO_CHANCE, values, 0.0) for values in (expected, found))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * expected.max(initial=0.0))
    some = ndpp.Baskets.from_lists([[item] for item in range(min(3, kernel.n_items))], n_items=kernel.n_items)
    for item, row in enumerate(scores.scores_or_nan(kernel, some, whole=whole)):
        if not np.isnan(row[0]):
            np.testing.assert_allclose(row, scores_of(kernel, [item], whole), rtol=1e-6, atol=1e-6 * row.max())


@both
def test_the_quick_way_is_taken_where_it_can_be(monkeypatch, whole: bool):
    kernel = make_kernel(300, 20, rng=0)
    expected = ROUTINES[whole](kernel, [3, 5])
    monkeypatch.setattr(scores, "next_item_scores", None)
    monkeypatch.setattr(scores, "continuation_scores", None)
    np.testing.assert_allclose(scores_of(kernel, [3, 5], whole), expected, rtol=1e-9, atol=1e-9 * expected.max())


@both
def test_mixtures_of_kernels(whole: bool):
    """Begun baskets are left to the careful routine, so that scores are the same bits.

    Completions are those of the kernels, for many baskets stacked products, and for one the eliminations of a greedy run, which also bound
    their rounding. The same bits would need the latter for each basket of a batch, which takes twenty times as long, or the former for
    one, without its warning.
    """
    law = trips()
    for item in law.ids(["bread", "tea"]):
        expected, found = ROUTINES[whole](law, [item]), scores_of(law, [item], whole)
        if not whole:
            assert found.tolist() == expected.tolist()
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14 * expected.max())


def lines_of(law) -> Memory:
    """Return the memory of lines within that of a law."""
    return law.memory.remember("lines", lambda: Memory(0))


def tied() -> ndpp.Mixture:
    shelf = shelf_kernel()
    odds = np.random.default_rng(0).gamma(1.0, 0.2, size=(3, 12))
    return ndpp.Mixture.tied(odds, shelf.X, (shelf.W - shelf.W.T) / 2, [0.5, 0.3, 0.2], labels=shelf.labels)


@both
def test_mixtures_keep_lines_of_their_ties(whole: bool):
    law = tied()
    for basket in ([], [6], [6, 3]):
        np.testing.assert_allclose(scores_of(law, basket, whole), ROUTINES[whole](law, basket), rtol=1e-9)
    assert len(lines_of(law)) == (2 if whole else 0)
    assert all((("L", item) in lines_of(law)) == whole for item in (3, 6))


def test_a_duplicate_scores_nothing():
    X = np.vstack([np.eye(3), np.eye(3)[:1]])
    kernel = ndpp.LowRankKernel(X, np.eye(3))
    assert scores_of(kernel, [0], True)[3] == 0.0
    with pytest.raises(ZeroProbabilityError):
        scores_of(kernel, [0, 3], True)


@both
def test_items_that_a_kernel_excludes_score_nothing(whole: bool):
    kernel = shelf_kernel().exclude([8])
    found = scores_of(kernel, [6], whole)
    np.testing.assert_allclose(found, ROUTINES[whole](kernel, [6]), atol=1e-12)
    assert found[8] == 0.0
    with pytest.raises(ZeroProbabilityError, match="item 8"):
        scores_of(kernel, [8], whole)


def test_of_rows_that_are_not_in_memory_nothing_is_kept(tmp_path):
    ndpp.save(shelf_kernel(), tmp_path / "model.safetensors")
    kernel = ndpp.load(tmp_path / "model.safetensors", lazy=True)
    np.testing.assert_allclose(scores_of(kernel, [6], True), ndpp.next_item_scores(shelf_kernel(), [6]), rtol=1e-9)
    assert "lines" not in kernel.memory


@both
def test_what_is_kept_is_bounded_and_changes_nothing(monkeypatch, whole: bool):
    kernel = make_kernel(100, 10, rng=0)
    monkeypatch.setattr(batched, "KEPT_BYTES", (16 * 100 + ENTRY_BYTES) * 5)
    for first in (*range(20), *range(20)):
        basket = np.array([first, first + 1, (first + 7) % 30])
        expected = ROUTINES[whole](kernel, basket)
        np.testing.assert_allclose(scores_of(kernel, basket, whole), expected, rtol=1e-8, atol=1e-12)
        assert all(("L" if whole else "K", item) in lines_of(kernel) for item in basket.tolist())
        assert len(lines_of(kernel)) <= 5


@both
def test_a_kernel_with_a_background(whole: bool):
    plain = make_kernel(50, 6, rng=0)
    kernel = ndpp.LowRankKernel(plain.X, plain.W, background=np.linspace(0.0, 0.5, 50))
    for basket in ([], [3], [3, 40, 7]):
        found = scores_of(kernel, basket, whole)
        np.testing.assert_allclose(found, ROUTINES[whole](kernel, basket), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("ranking", list(Ranking))
@pytest.mark.parametrize("make", [shelf_kernel, trips, tied])
def test_the_best_items_are_those_of_the_library(make, ranking: Ranking):
    law = make()
    rule, basket = Rule.of(law, n=3, ranking=ranking), law.ids(["bread", "tea"])
    found, expected = rule.best_for(basket), ndpp.recommend(law, basket, n=3, ranking=ranking)
    assert found.items.tolist() == expected.items.tolist()
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-9)


@pytest.mark.parametrize("ranking", list(Ranking))
def test_a_basket_that_never_occurs_has_no_best_items(ranking: Ranking):
    apart = ndpp.Mixture.tied([[1, 1, 0, 0], [0, 0, 1, 1]], np.zeros((4, 2)), np.zeros((2, 2)), [0.5, 0.5])
    with pytest.raises(ZeroProbabilityError):
        Rule.of(apart, ranking=ranking).best_for(np.array([0, 2]))
