"""The paper's up-step through its tree."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import goodness
from kernels import BY_NAME, random_ndpp
from ndpp import LowRankKernel
from ndpp.errors import InvalidInputError, PrecisionError
from ndpp.items.table import seed_words
from ndpp.samplers import Walk
from ndpp_experiments.tree import Tree, TreeUp, draw_one, papers_leaf


@pytest.fixture(scope="module")
def kernel():
    return LowRankKernel(*random_ndpp(37, 6, np.random.default_rng(0)))


def test_nodes_sum_their_left_halves(kernel):
    tree = Tree.prepare(kernel, leaf=3)
    n_leaves = len(tree.sums)
    assert n_leaves == 16
    upper = np.triu_indices(6)

    def rows_under(node):
        return (
            range(tree.bounds[node - n_leaves], tree.bounds[node - n_leaves + 1])
            if node >= n_leaves
            else [*rows_under(2 * node), *rows_under(2 * node + 1)]
        )

    assert rows_under(1) == list(range(37))
    for node in range(n_leaves):
        Q = kernel.q_rows(np.array(rows_under(2 * node) if node else rows_under(1)))
        np.testing.assert_allclose(tree.sums[node], (Q.T @ Q)[upper], atol=1e-14)


@pytest.mark.parametrize("memory", [21 * 8, 1_000, 10_000, 10_000_000])
def test_memory_budget_sets_the_leaf(memory):
    kernel = LowRankKernel(*random_ndpp(1000, 6, np.random.default_rng(8)))
    tree = Tree.prepare(kernel, memory=memory, leaf=1)
    assert tree.sums.nbytes <= memory
    assert len(tree.sums) == 1024 or 2 * tree.sums.nbytes > memory, "a deeper tree would have fitted"


@pytest.mark.parametrize(("n_items", "leaf"), [(37, 1), (37, 3), (37, 8), (64, 8), (65, 8), (5, 8), (1, 1)])
def test_no_leaf_has_more_rows_than_asked_for(n_items, leaf):
    kernel = LowRankKernel(*random_ndpp(n_items, 6, np.random.default_rng(9)))
    tree = Tree.prepare(kernel, leaf=leaf)
    assert tree.leaf <= leaf
    assert len(tree.sums) < 2 * max(1, n_items / leaf), "half as many leaves would do"
    assert tree.bounds[[0, -1]].tolist() == [0, n_items]


def test_the_papers_leaves_are_those_of_its_appendix():
    assert [papers_leaf(n) for n in (100, 99_999, 100_000, 1_059_437)] == [1, 1, 8, 8]


def test_memory_below_one_node_is_refused(kernel):
    with pytest.raises(InvalidInputError, match="168 bytes"):
        Tree.prepare(kernel, memory=100)


@pytest.mark.parametrize("leaf", [1, 8])
@pytest.mark.parametrize("directions", [1, 2, 6])
def test_items_are_drawn_by_their_weights(kernel, leaf, directions):
    """Negative control: a node of another tree."""
    rng = np.random.default_rng(directions)
    V = np.linalg.qr(rng.standard_normal((6, directions)))[0].T.copy()
    tree, seed, Q = Tree.prepare(kernel, leaf=leaf), seed_words(rng), kernel.coordinates.Q
    weights = np.square(Q @ V.T).sum(axis=1)

    def counts(sums):
        rows = [draw_one(seed, sums, tree.bounds, Q, V)[0] for _ in range(8_000)]
        return np.bincount(rows, minlength=37)

    goodness.assert_counts(counts(tree.sums), weights / weights.sum())
    wrong = tree.sums.copy()
    wrong[1] /= 2
    with pytest.raises(AssertionError):
        goodness.assert_counts(counts(wrong), weights / weights.sum())


@pytest.mark.parametrize(
    ("name", "kept"), [("generic", (0, 5)), ("mostly skew", (2, 7)), ("symmetric", (4,)), ("purely skew", ())]
)
def test_pairs_follow_their_law(name, kept):
    case, rng = BY_NAME[name], np.random.default_rng(3)
    up = TreeUp(tree=Tree.prepare(case.kernel, leaf=2)).prepare(case.kernel)
    others = [pair for pair in combinations(range(len(case.L)), 2) if not set(pair) & set(kept)]
    minors = np.array([np.linalg.det(case.L[np.ix_([*kept, *pair], [*kept, *pair])]) for pair in others]).clip(0.0)
    law = dict(zip(others, minors / minors.sum()))
    drawn = [up.pair(rng, np.array(kept, np.int64)) for _ in range(1_500)]
    goodness.assert_law([rows for rows, _ in drawn], {pair: p for pair, p in law.items() if p > 1e-12})
    expected = up.expected_proposals(np.array(kept, np.int64))
    goodness.assert_mean(np.array([info["proposals"] for _, info in drawn]), expected)


def test_a_walk_takes_the_step(kernel):
    assert Walk.prepare(kernel, size=4, up=TreeUp()).sample(3, rng=0).baskets.sizes.tolist() == [4, 4, 4]


def test_weights_that_are_no_weights_are_refused(kernel):
    up = TreeUp().prepare(kernel)
    broken = replace(up, tree=replace(up.tree, sums=up.tree.sums * np.nan))
    with pytest.raises(PrecisionError):
        broken.pair(np.random.default_rng(0), np.array([0, 5]))
