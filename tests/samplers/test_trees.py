"""Spanning trees of weighted graphs: the law of their draws and of their kernel against enumeration, and which graphs are refused."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import sparse

import ndpp
from goodness import assert_law, assert_mean
from ndpp._stop import stopping
from ndpp.errors import BudgetExceededError, InvalidInputError
from ndpp.samplers import SpanningTrees, trees

Law = dict[tuple[int, ...], float]
LOOP = np.array([[0, 1, 2, 0, 1], [1, 5, 1, 0, 0], [2, 1, 0, 3, 0], [0, 0, 3, 0, 1], [1, 0, 0, 1, 0]], float)
"""Five nodes and six edges of weights 1 to 3; the loop at node 1 does not count."""
UNEVEN = np.array([[0, 0.2, 9, 0.7, 0], [0.2, 0, 1, 0.4, 0], [9, 1, 0, 0.3, 0], [0.7, 0.4, 0.3, 0, 2], [0, 0, 0, 2, 0]])
"""All edges of four nodes, and a node that hangs on one of them."""
GRAPHS = {"loop": LOOP, "uneven": UNEVEN, "uniform": np.sign(LOOP)}


def enumerated(graph: np.ndarray) -> tuple[list[tuple[int, int]], Law]:
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


def grid(side: int) -> np.ndarray:
    """A square grid with random weights."""
    path = np.eye(side, k=1) + np.eye(side, k=-1)
    weights = np.random.default_rng(0).uniform(0.2, 2.0, (side * side,) * 2)
    return (np.kron(path, np.eye(side)) + np.kron(np.eye(side), path)) * (weights + weights.T)


# ---- the law --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", [None, 0, 3, 4])
@pytest.mark.parametrize("name", GRAPHS)
def test_trees_are_drawn_by_their_weights(name, root):
    """Whatever the root."""
    sampler, (edges, law) = SpanningTrees.prepare(GRAPHS[name], root=root), enumerated(GRAPHS[name])
    assert sampler.edges.tolist() == [list(edge) for edge in edges]
    assert sampler.weights.tolist() == [GRAPHS[name][edge] for edge in edges]
    assert_law(sampler.sample(2000, rng=1).baskets, law)


@pytest.mark.parametrize("name", ["loop", "uneven"])
def test_trees_of_other_weights_are_rejected(name):
    wrong = GRAPHS[name].copy()
    wrong[[1, 2], [2, 1]] *= 3
    drawn = SpanningTrees.prepare(wrong).sample(2000, rng=1).baskets
    with pytest.raises(AssertionError, match="do not follow the law"):
        assert_law(drawn, enumerated(GRAPHS[name])[1])


def test_paths_that_keep_their_first_exits_are_rejected(monkeypatch):
    """Negative control of the walk: every node that was visited joins the tree, by its first exit and not by its last."""

    def first_exits(seed, to, exits, in_tree, at, most):
        rng = np.random.default_rng(seed)
        for start in range(len(in_tree)):
            path, node = {}, start
            while not in_tree[node]:
                out = int(rng.integers(to.first[node], to.first[node + 1]))
                path.setdefault(node, out)
                node = to.node[out]
            for node, out in path.items():
                exits[node], in_tree[node] = out, True
        at[0] = len(in_tree)
        return 0

    monkeypatch.setattr(trees, "soon", lambda function, steps: first_exits if function is trees.walk else function)
    drawn = SpanningTrees.prepare(GRAPHS["uniform"]).sample(2000, rng=1).baskets
    with pytest.raises(AssertionError):
        assert_law(drawn, enumerated(GRAPHS["uniform"])[1])


def test_the_kernel_has_the_same_law():
    for graph in GRAPHS.values():
        sampler, (_, law) = SpanningTrees.prepare(graph), enumerated(graph)
        found = {S: np.exp(sampler.kernel.log_prob(S, size=sampler.size)) for S in law}
        assert found == pytest.approx(law, rel=1e-10)
    assert_law(sampler.kernel.sample(2000, size=sampler.size, rng=2), law)


def test_the_transfer_current_matrix_is_the_marginal_kernel():
    """The projection DPP of K = W^½ B L⁺ Bᵀ W^½ draws spanning trees without being told their size."""
    edges, law = enumerated(LOOP)
    B = np.zeros((len(edges), 5))
    for row, (i, j) in zip(B, edges):
        row[i], row[j] = 1, -1
    root = np.sqrt([LOOP[edge] for edge in edges])[:, None]
    K = root * (B @ np.linalg.pinv((root * B).T @ (root * B)) @ B.T) * root.T
    sampler = SpanningTrees.prepare(LOOP)
    np.testing.assert_allclose(sampler.kernel.inclusion_probabilities(4), np.diag(K), atol=1e-12)
    projection = ndpp.LowRankKernel.from_marginal(K)
    assert_law(projection.sample(3000, rng=4), law)
    with pytest.raises(AssertionError):
        assert_law(projection.tilt({2: 3.0}).sample(3000, size=4, rng=4), law)


def test_edges_occur_as_often_as_the_kernel_says():
    sampler = SpanningTrees.prepare(grid(8))
    drawn, n_edges = sampler.sample(1500, rng=3).baskets, len(sampler.edges)
    present = np.array([np.bincount(tree, minlength=n_edges) for tree in drawn])
    assert_mean(present, sampler.kernel.inclusion_probabilities(sampler.size))
    with pytest.raises(AssertionError):  # those of equal weights
        assert_mean(present, SpanningTrees.prepare(np.sign(grid(8))).kernel.inclusion_probabilities(sampler.size))


@pytest.mark.parametrize("root", [None, 4])
def test_walks_take_as_many_steps_as_the_docstring_says(root):
    sampler = SpanningTrees.prepare(UNEVEN, root=root)
    others = np.arange(5) != sampler.root
    laplacian = np.diag(UNEVEN.sum(axis=0)) - UNEVEN
    resistances = np.linalg.inv(laplacian[np.ix_(others, others)]).diagonal()
    assert_mean(sampler.sample(2000, rng=4).info["steps"], UNEVEN.sum(axis=0)[others] @ resistances)


# ---- what draws do not depend on ------------------------------------------------------------------------------------


def test_draws_depend_on_seed_and_index_alone(monkeypatch):
    sampler = SpanningTrees.prepare(grid(4))
    whole = sampler.sample(40, rng=5).baskets
    assert sampler.sample(40, rng=5, n_jobs=2).baskets == whole
    assert sampler.sample(10, rng=5, first=30).baskets == whole[30:]
    assert [tree for part in sampler.stream(40, rng=5) for tree in part.baskets.to_lists()] == whole.to_lists()
    monkeypatch.setattr(trees, "STEPS_PER_CALL", 1)  # a walk that is left after every step
    assert sampler.sample(40, rng=5).baskets == whole
    monkeypatch.setattr(trees, "soon", lambda function, steps: getattr(function, "py_func", function))
    assert sampler.sample(3, rng=5).baskets == whole[:3]


@pytest.mark.parametrize(
    "make",
    [
        sparse.csr_matrix,
        sparse.csc_array,
        sparse.coo_array,
        np.ndarray.tolist,
        np.float32,
        lambda graph: sparse.coo_array(
            (np.tile(graph.ravel() / 2, 2), np.tile(np.indices(graph.shape).reshape(2, -1), 2))
        ),
    ],
    ids=["csr", "csc", "coo", "list", "single", "repeated"],
)
def test_a_graph_in_another_form_is_the_same_graph(make):
    """Sparse matrices may hold zeros, which are no edges, and repeated entries, which add up."""
    given = make(LOOP)
    sampler, dense = SpanningTrees.prepare(given), SpanningTrees.prepare(LOOP)
    assert np.array_equal(sampler.edges, dense.edges)
    assert np.array_equal(sampler.weights, dense.weights)
    assert sampler.sample(20, rng=6).baskets == dense.sample(20, rng=6).baskets
    assert not sparse.issparse(given) or np.array_equal(given.toarray(), LOOP)  # it is left as it was


def test_edges_are_labelled_by_their_nodes():
    sampler = SpanningTrees.prepare(LOOP, labels=["a", "b", "c", "d", "e"])
    assert sampler.labels == ("a-b", "a-c", "a-e", "b-c", "c-d", "d-e")
    assert sampler.sample(2, rng=0).baskets.labels == sampler.labels == sampler.kernel.labels
    given = sampler.kernel.sample(5, size=sampler.size, given=["a-b"], rng=0)
    assert all(0 in tree for tree in given)


# ---- weights far apart ----------------------------------------------------------------------------------------------


def test_weights_of_any_size():
    """1e300 beside 1e-300, and weights whose sum overflows."""
    graph = np.array([[0, 1e300, 1e-300], [1e300, 0, 3e-300], [1e-300, 3e-300, 0]])
    assert_law(SpanningTrees.prepare(graph).sample(1000, rng=7).baskets, {(0, 1): 0.25, (0, 2): 0.75})
    largest = np.sign(LOOP) * np.finfo(float).max
    assert_law(SpanningTrees.prepare(largest).sample(1000, rng=7).baskets, enumerated(np.sign(LOOP))[1])


def hopeless(**settings: int) -> SpanningTrees:
    """Two pairs of nodes that walks never leave."""
    graph = np.zeros((4, 4))
    graph[[0, 1, 2, 3], [1, 0, 3, 2]], graph[[0, 2], [2, 0]] = 1.0, 1e-100
    return SpanningTrees.prepare(graph, **settings)


def test_a_walk_that_takes_too_long_is_ended():
    with pytest.raises(BudgetExceededError, match="after 100,000 steps of the walk: parts of the graph") as raised:
        hopeless(max_steps=100_000).sample(1, rng=0)
    assert raised.value.count == 100_000
    enough = SpanningTrees.prepare(LOOP, max_steps=10**4).sample(50, rng=0).info["steps"]
    most = int(np.max(enough[:49]))
    assert (SpanningTrees.prepare(LOOP, max_steps=most).sample(49, rng=0).info["steps"] == enough[:49]).all()
    with pytest.raises(BudgetExceededError) as raised:
        SpanningTrees.prepare(LOOP, max_steps=most - 1).sample(49, rng=0)
    assert len(raised.value.partial) == np.argmax(enough == most)


def test_a_walk_can_be_stopped():
    looks = []

    def stop():
        looks.append(1)
        if len(looks) > 5:
            raise TimeoutError

    with pytest.raises(TimeoutError), stopping(stop):
        hopeless().sample(1, rng=0)


# ---- what is refused ------------------------------------------------------------------------------------------------


class Graph:
    adjacency = dict


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        ([[0, -1], [-1, 0]], r"finite and ≥ 0; that at \[0, 1\] is -1"),
        ([[0, 1, 0], [1, 0, np.nan], [0, np.nan, 0]], r"finite and ≥ 0; that at \[1, 2\] is nan"),
        (sparse.csr_array([[0, np.inf], [np.inf, 0]]), r"finite and ≥ 0; that at \[0, 1\] is inf"),
        ([[0, 1], [2, 0]], r"symmetric; the weight at \[0, 1\] is 1 and that at \[1, 0\] is 2\. Pass graph \+ graph\.T"),
        (sparse.csc_array([[0, 1], [0, 0]]), r"symmetric; the weight at \[0, 1\] is 1 and that at \[1, 0\] is 0"),
        (np.diag([1.0, 1.0, 1.0]), "connected; it has 3 parts: there is no path from node 0 to node 1"),
        (np.kron(np.eye(2), [[0, 1], [1, 0]]), "connected; it has 2 parts: there is no path from node 0 to node 2"),
        ([[1.0]], "at least 2 nodes; it has 1"),
        (np.zeros((0, 0)), "at least 2 nodes; it has 0"),
        ([0.0, 1.0], r"square matrix; its shape is \(2,\)"),
        (sparse.csr_array(np.ones((2, 3))), r"square matrix; its shape is \(2, 3\)"),
        (sparse.csr_array([[0, 1j], [1j, 0]]), "real weights; got complex128"),
        ([[0, 1j], [1j, 0]], "real numbers"),
        (Graph(), r"matrix of weights; got a Graph\. Pass networkx"),
    ],
)  # fmt: skip
def test_what_is_no_connected_graph_is_refused(graph, said):
    with pytest.raises(InvalidInputError, match=f"^graph must .*{said}"):
        SpanningTrees.prepare(graph)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"root": 5}, "root must be between 0 and 4; got 5"),
        ({"root": 1.0}, "root must be an integer"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"labels": ["a", "b"]}, "labels must be 5 names, one per node; got 2"),
        ({"labels": ["a", "b-c", "a-b", "c", "d"]}, "labels of edges must be distinct; 'a-b-c' occurs 2 times"),
    ],
)
def test_settings_are_checked(settings, said):
    with pytest.raises(InvalidInputError, match=said):
        SpanningTrees.prepare(LOOP, **settings)
