"""Hidden items: how baskets and items are divided, ranks by hand, scores beside those of the library, and the quick run."""

from __future__ import annotations

import numpy as np
import pytest

import ndpp
from ndpp.baskets import Baskets
from ndpp_experiments import new_items
from ndpp_experiments.new_items import Cases, posteriors_and_scores, split_of


def test_hidden_items_are_in_no_training_basket():
    split = split_of("synthetic", 0)
    assert len(split.new) == 4
    assert split.train.labels == split.labels[:36]
    assert split.train.indices.max() < 36 <= split.test.indices.max()
    assert (split.shares[36:] > 0).all()


def test_ranks_by_hand():
    cases = Cases(Baskets.from_lists([[0], [1, 2]], n_items=3), np.array([4, 3]))
    scores = np.array([[9.0, 0.2, 0.3, 0.1, 0.2], [0.5, 9.0, 9.0, 0.4, 0.4]])
    ranks, total = new_items._ranks(scores, cases, 0)
    assert (ranks.tolist(), total.tolist()) == ([1.5, 1.5], [4, 3])
    ranks, total = new_items._ranks(scores[:, 3:], cases, 3)
    assert (ranks.tolist(), total.tolist()) == ([0, 0.5], [2, 2])


@pytest.mark.parametrize("keep", ["shares", "sets"])
def test_scores_are_those_of_the_extended_law(keep):
    rng = np.random.default_rng(0)
    law = ndpp.Mixture.tied(
        np.exp(rng.normal(-1, 1, (3, 8))),
        rng.normal(0, 0.5, (8, 2)),
        [[0, 1], [-1, 0]],
        [0.2, 0.3, 0.5],
        labels=list("abcdefgh"),
    ).without_empty()
    extended = law.add_items({"x": ["a"], "y": ["b", "c"]}, {"x": 0.1, "y": 0.3}, keep=keep)
    lists = [[0], [1, 4], [2, 5, 7]]
    wanted = ndpp.continuation_scores(extended, Baskets.from_lists(lists, n_items=10))
    source = law if keep == "shares" else extended
    posterior, scores = posteriors_and_scores(source, Baskets.from_lists(lists, n_items=source.n_items), 9)
    new = posterior @ extended._inclusions_of(np.array([8, 9]))
    np.testing.assert_allclose(np.hstack([scores[:, :8], new]), wanted, rtol=1e-9)


def test_the_quick_run():
    result = new_items.measure(quick=True, seed=0, say=lambda text: None)
    rows = result.tables[""]
    assert {row.method for row in rows} >= {"popularity", "like, by text", "like, by last word", "features"}
    assert all(0 <= row.mpr <= 100 and 0 <= row.hit_rate <= 1 and row.baskets > 30 for row in rows)
    assert all(row.candidates == (4 if row.among == "new" else 36) for row in rows)
    by = {(row.method, row.popularity, row.among): row for row in rows}
    assert by["popularity", "known", "all"].mpr > by["popularity", "guessed", "all"].mpr + 5
