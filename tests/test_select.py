"""Minibatches, columns and spanning trees: their laws against enumeration, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from scipy import sparse

import ndpp
from goodness import assert_law, assert_mean
from ndpp import select
from ndpp.errors import ImpossibleSizeError, InvalidInputError

RNG = np.random.default_rng(0)
A = RNG.standard_normal((3, 6))
POINTS = RNG.standard_normal((7, 3))
GRAPH = np.array([[0, 1, 2, 0, 1], [1, 5, 1, 0, 0], [2, 1, 0, 3, 0], [0, 0, 3, 0, 1], [1, 0, 0, 1, 0]], float)
"""Five nodes and six edges of weights 1 to 3; the loop at node 1 does not count."""
Law = dict[tuple[int, ...], float]


def law_of(L: np.ndarray, size: int) -> Law:
    minors = {S: float(np.linalg.det(L[np.ix_(S, S)])) for S in combinations(range(len(L)), size)}
    return {S: value / sum(minors.values()) for S, value in minors.items()}


def trees(graph: np.ndarray) -> tuple[list[tuple[int, int]], Law]:
    """The edges of a graph, and its spanning trees as sets of them, found by joining nodes."""
    n, edges = len(graph), [(i, j) for i, j in combinations(range(len(graph)), 2) if graph[i, j]]
    found = {}
    for S in combinations(range(len(edges)), n - 1):
        part = list(range(n))
        for e in S:
            old, new = (part[node] for node in edges[e])
            part = [new if own == old else own for own in part]
        if len(set(part)) == 1:
            found[S] = float(np.prod([graph[edges[e]] for e in S]))
    return edges, {S: weight / sum(found.values()) for S, weight in found.items()}


# ---- columns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, sparse.csc_array, "tall"], ids=["array", "sparse", "tall"])
def test_columns_are_drawn_by_their_volume(kind):
    tall = np.vstack([A, 0.5 * A[:, ::-1], A[:2] ** 2])
    of = tall if kind == "tall" else A
    draws = select.columns(tall if kind == "tall" else kind(A), 2, n_samples=4000, rng=1)
    assert_law(draws.tolist(), law_of(of.T @ of, 2))


def test_columns_of_another_matrix_are_rejected():
    wrong = A * np.where(np.arange(6) == 2, 1.6, 1.0)
    with pytest.raises(AssertionError):
        assert_law(select.columns(wrong, 2, n_samples=4000, rng=1).tolist(), law_of(A.T @ A, 2))


def test_one_draw_has_no_axis():
    one = select.columns(A, 3, rng=5)
    np.testing.assert_array_equal(one, select.columns(A, 3, n_samples=1, rng=5)[0])
    assert one.shape == (3,)
    assert select.spanning_tree(GRAPH, rng=5).shape == (4, 2)


# ---- spanning trees -------------------------------------------------------------------------------------------------


def numbers(drawn: np.ndarray) -> list[list[int]]:
    edges = trees(GRAPH)[0]
    return [[edges.index((int(i), int(j))) for i, j in tree] for tree in drawn]


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["array", "sparse"])
def test_spanning_trees_are_drawn_by_their_weights(kind):
    assert_law(numbers(select.spanning_tree(kind(GRAPH), n_samples=3000, rng=2)), trees(GRAPH)[1])


def test_uniform_spanning_trees():
    law = trees(np.sign(GRAPH))[1]
    assert len(set(np.round(list(law.values()), 12))) == 1
    assert_law(numbers(select.spanning_tree(np.sign(GRAPH), n_samples=3000, rng=3)), law)


def test_trees_of_other_weights_are_rejected():
    with pytest.raises(AssertionError):
        assert_law(numbers(select.spanning_tree(np.sign(GRAPH), n_samples=3000, rng=3)), trees(GRAPH)[1])


def test_the_transfer_current_matrix_is_the_marginal_kernel():
    """The projection DPP of K = W^½ B L⁺ Bᵀ W^½ draws spanning trees without being told their size."""
    edges, law = trees(GRAPH)
    B = np.zeros((len(edges), 5))
    for row, (i, j) in zip(B, edges):
        row[i], row[j] = 1, -1
    root = np.sqrt([GRAPH[edge] for edge in edges])[:, None]
    K = root * (B @ np.linalg.pinv((root * B).T @ (root * B)) @ B.T) * root.T
    found, kernel = select.tree_kernel(GRAPH)
    assert found.tolist() == [list(edge) for edge in edges]
    np.testing.assert_allclose(kernel.inclusion_probabilities(4), np.diag(K), atol=1e-12)
    projection = ndpp.LowRankKernel.from_marginal(K)
    assert_law(projection.sample(3000, rng=4), law)
    with pytest.raises(AssertionError):
        assert_law(projection.tilt({2: 3.0}).sample(3000, size=4, rng=4), law)


# ---- minibatches ----------------------------------------------------------------------------------------------------


def test_batches_have_their_law():
    drawn = [batch.items for batch in select.batches(POINTS, 2, n_batches=3000, rng=5)]
    assert_law(drawn, law_of(POINTS @ POINTS.T, 2))
    scaled = POINTS / np.linalg.norm(POINTS, axis=1)[:, None] * np.arange(1, 8)[:, None]
    drawn = [
        batch.items
        for batch in select.batches(POINTS, 2, n_batches=3000, quality=np.arange(1, 8), similarity="cosine", rng=5)
    ]
    assert_law(drawn, law_of(scaled @ scaled.T, 2))


def test_larger_batches_with_a_background():
    drawn = [batch.items for batch in select.batches(POINTS, 5, n_batches=3000, background=0.5, rng=6)]
    assert_law(drawn, law_of(POINTS @ POINTS.T + 0.5 * np.eye(7), 5))


def test_weighted_sums_are_unbiased():
    values, own = np.arange(7.0) ** 2, select.batches(POINTS, 2, n_batches=3000, rng=7)
    sums = [batch.weights @ values[batch.items] for batch in own]
    assert_mean(sums, values.sum())
    with pytest.raises(AssertionError):  # with weights of uniform batches
        assert_mean([7 / 2 * values[batch.items].sum() for batch in own], values.sum())
    chances = np.zeros(7)
    for S, p in law_of(POINTS @ POINTS.T, 2).items():
        chances[list(S)] += p
    np.testing.assert_allclose(own.weights, 1 / chances, rtol=1e-12)


def test_passes_differ_and_seeds_repeat():
    lists = [[batch.items.tolist() for batch in own] for own in [select.batches(POINTS, 2, n_batches=70, rng=8)] * 2]
    again = select.batches(POINTS, 2, n_batches=70, rng=8)
    assert lists == [[batch.items.tolist() for batch in again] for _ in range(2)]
    assert lists[0] != lists[1]
    assert len(select.batches(POINTS, 2)) == 4
    law = ndpp.LowRankKernel(POINTS)
    assert [batch.items.tolist() for batch in select.batches(law, 2, n_batches=70, rng=8)] == lists[0]
    assert next(iter(select.batches(POINTS, 2, weights=False))).weights is None


def test_torch_batch_sampler():
    data = pytest.importorskip("torch.utils.data")
    torch = pytest.importorskip("torch")
    own = select.batches(POINTS, 3, n_batches=5, rng=9)
    loader = data.DataLoader(data.TensorDataset(torch.arange(7)), batch_sampler=select.BatchSampler(own))
    assert len(loader) == 5
    wanted = [batch.items.tolist() for batch in select.batches(POINTS, 3, n_batches=5, rng=9)]
    assert [items.tolist() for (items,) in loader] == wanted
    with pytest.raises(InvalidInputError, match=r"must come from ndpp\.select\.batches"):
        select.BatchSampler(POINTS)


def test_torch_is_not_imported():
    code = "import numpy as np, ndpp, sys; ndpp.select.columns(np.eye(3), 2); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


# ---- refusals -------------------------------------------------------------------------------------------------------

NAN = np.where(A > 1, np.nan, A)
ZERO = POINTS * (np.arange(7) != 3)[:, None]


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: select.columns(NAN, 2), InvalidInputError, "A must be finite"),
        (lambda: select.columns(sparse.csr_array(NAN), 2), InvalidInputError, "must be finite"),
        (lambda: select.columns(A[0], 1), InvalidInputError, "A must have 2 dimensions"),
        (lambda: select.columns(A[:, :0], 1), InvalidInputError, "at least one row and one column"),
        (lambda: select.columns([["a"]], 1), InvalidInputError, "A must be a matrix of real numbers"),
        (lambda: select.columns(sparse.csr_array(A * 1j), 1), InvalidInputError, "A must be a sparse matrix of real numbers"),
        (lambda: select.columns(A, 4), ImpossibleSizeError, "k must be at most the rank of A, 3; got 4"),
        (lambda: select.columns(A[:1], 2), ImpossibleSizeError, "at most the rank of A, 1"),
        (lambda: select.columns(np.zeros((2, 2)), 1), ImpossibleSizeError, "at most the rank of A, 0"),
        (lambda: select.columns(A, 0), InvalidInputError, "k must be at least 1"),
        (lambda: select.columns(A, 1.5), InvalidInputError, "k must be an integer"),
        (lambda: select.columns(A, 2, n_samples=0), InvalidInputError, "n_samples must be at least 1"),
        (lambda: select.spanning_tree(np.ones((2, 3))), InvalidInputError, "graph must be the square matrix"),
        (lambda: select.spanning_tree([[0.0]]), InvalidInputError, "at least two nodes"),
        (lambda: select.spanning_tree(-GRAPH), InvalidInputError, "weights of graph must be ≥ 0; the least is -5"),
        (lambda: select.spanning_tree(GRAPH * np.nan), InvalidInputError, "graph must be finite"),
        (lambda: select.spanning_tree(sparse.csr_array(np.where(GRAPH > 2, np.inf, GRAPH))), InvalidInputError, "must be finite"),
        (lambda: select.spanning_tree(sparse.csr_array(GRAPH * 1j)), InvalidInputError, "sparse matrix of real numbers"),
        (lambda: select.spanning_tree(np.triu(GRAPH)), InvalidInputError, r"must be symmetric.*\[2, 3\] is 3 and \[3, 2\] is 0"),
        (lambda: select.spanning_tree(np.eye(3)), InvalidInputError, "has 3 parts, and node 1 cannot be reached from node 0"),
        (lambda: select.batches(np.where(POINTS > 1, np.nan, POINTS), 2), InvalidInputError, "F must be finite"),
        (lambda: select.batches(POINTS[0], 2), InvalidInputError, "F must have 2 dimensions"),
        (lambda: select.batches(POINTS, 4), ImpossibleSizeError, "rank of the kernel, 3; size 4.*background="),
        (lambda: select.batches(POINTS, 0), InvalidInputError, "size must be at least 1"),
        (lambda: select.batches(POINTS, 2, n_batches=0), InvalidInputError, "n_batches must be at least 1"),
        (lambda: select.batches(ZERO, 2), InvalidInputError, "item 3 is never in a batch.*weights=False"),
        (lambda: select.batches(POINTS, 2, quality=-np.ones(7)), InvalidInputError, "quality must be ≥ 0"),
        (lambda: select.batches(POINTS, 2, background=-1.0), InvalidInputError, "background must be odds ≥ 0"),
        (lambda: select.batches(POINTS, 2, background=[1.0, 2.0]), InvalidInputError, "background must be 7 odds"),
        (lambda: select.batches(ndpp.LowRankKernel(POINTS), 2, quality=np.ones(7)), InvalidInputError, "quality is for features"),
    ],
)  # fmt: skip
def test_bad_input_gets_a_clear_error(ask, error, message: str):
    with pytest.raises(error, match=message):
        ask()


def test_tensors():
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(select.columns(torch.from_numpy(A), 2, rng=0), select.columns(A, 2, rng=0))
    for ask in (
        lambda: select.columns(torch.from_numpy(A).requires_grad_(), 2),
        lambda: select.spanning_tree(torch.from_numpy(GRAPH).requires_grad_()),
        lambda: select.batches(torch.from_numpy(POINTS).requires_grad_(), 2),
    ):
        with pytest.raises(InvalidInputError, match=r"must be a tensor without gradients.*detach"):
            ask()
    with pytest.raises(InvalidInputError, match="dense tensor or a SciPy sparse matrix"):
        select.columns(torch.from_numpy(A).to_sparse(), 2)
