"""Random spanning trees of a weighted graph, by Wilson's algorithm.

Law: P(T) ∝ Π w_e over the edges e of T, for the spanning trees T of a connected undirected graph: det(L_T) of the kernel whose rows are
√w_e at one end of edge e and −√w_e at the other. Exact. A walk starts at each node that is not in the tree yet and moves to neighbours with
probabilities in proportion to the weights, until it meets the tree; its path without loops joins the tree [Wilson 1996]. The tree is the
root at first; its law does not depend on the root, or on the order of the nodes.

Cost: O(m) to prepare for m edges, without a matrix of the kernel. A draw takes Σ_v d_v R_v steps on average, whatever the order, where d_v
is the sum of the weights at node v and R_v its effective resistance to the root: of order n log n for a grid of n nodes, n³ at worst for
equal weights, and without bound where edges of tiny weight are all that joins two parts of the graph. Each step takes O(1), by an alias
table per node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ndpp._compiled import interruptible, njit, soon
from ndpp._stop import look
from ndpp._types import BoolArray, FloatArray, IntArray, KeyArray, cached_property
from ndpp._validation import check_count, frozen, real_array
from ndpp.baskets.labels import check_labels
from ndpp.errors import BudgetExceededError, InvalidInputError
from ndpp.items.table import look_up_one, pair_cells, seed_words, uniform
from ndpp.laws.catalogue import Catalogue
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers.base import Draw, Sampler

STEPS_PER_CALL = 1 << 16
"""Steps between two looks at whether to stop. No draw depends on it."""
SLOWER = 10
"""Time that one step takes in Python, in those of :func:`~ndpp._compiled.soon`."""


class Neighbours(NamedTuple):
    """Where a walk goes from each node v: entries ``first[v]`` to ``first[v + 1]`` are its neighbours, their edges and its alias table."""

    first: IntArray
    node: IntArray
    edge: IntArray
    threshold: FloatArray
    alias: IntArray


@dataclass(frozen=True, eq=False)
class SpanningTrees(Sampler):
    """Spanning trees of a graph, as sets of its edges, with probability in proportion to the product of their weights.

    Attributes
    ----------
    edges : (m, 2) array
        The nodes that each edge joins, the smaller one first, in ascending order: ``edges[basket]`` is a tree.
    weights : (m,) array
        The weights of the edges.
    labels : tuple of str or None
        The labels of the edges.
    root : int
        Where all walks end.

    Examples
    --------
    >>> import numpy as np
    >>> graph = np.array([[0, 1, 1, 0], [1, 0, 1, 1], [1, 1, 0, 1], [0, 1, 1, 0]])
    >>> trees = SpanningTrees.prepare(graph)
    >>> trees.edges.tolist()
    [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]
    >>> drawn = trees.sample(100, rng=0).baskets
    >>> drawn.sizes[:4], len(set(map(tuple, drawn.to_lists())))  # three edges each, eight trees
    (array([3, 3, 3, 3]), 8)
    >>> trees.kernel.inclusion_probabilities(trees.size).round(3)  # of the edges
    array([0.625, 0.625, 0.5  , 0.625, 0.625])
    """

    edges: IntArray
    weights: FloatArray
    labels: tuple[str, ...] | None
    root: int
    max_steps: int
    neighbours: Neighbours = field(repr=False)

    @classmethod
    def prepare(
        cls, graph: Any, *, labels: Sequence[str] | None = None, root: int | None = None, max_steps: int = 10**9
    ) -> SpanningTrees:
        """Check a graph and prepare its walk. O(m) for m edges.

        Parameters
        ----------
        graph : (n, n) array_like or SciPy sparse matrix
            The weights ≥ 0 of a connected graph, a symmetric matrix; zero where there is no edge. The diagonal does not count. From
            networkx: ``networkx.to_scipy_sparse_array(graph)``.
        labels : sequence of str, optional
            The label of each node; an edge of nodes "a" and "b" is then labelled "a-b".
        root : int, optional
            The node at which walks end. It affects only speed: walks are short if it is easy to reach. By default the node with the largest
            sum of weights.
        max_steps : int
            Maximum number of steps per tree. A tree that needs more raises BudgetExceededError.
        """
        matrix = connected(graph)
        n, first, weights = matrix.shape[0], matrix.indptr.astype(np.int64), matrix.data
        tail, head = np.repeat(np.arange(n), np.diff(first)), matrix.indices.astype(np.int64)
        is_forward = tail < head
        edges, edge = np.column_stack([tail, head])[is_forward], np.empty(len(head), np.int64)
        edge[is_forward] = np.arange(len(edges))
        edge[~is_forward] = np.argsort(edges[:, 1], kind="stable")  # the other ends are in the order of j, then i
        if root is None:
            root = int(np.argmax(np.bincount(tail, weights / weights.max())))
        nodes = check_labels(labels, n, of="node")
        names = None if nodes is None else [f"{nodes[i]}-{nodes[j]}" for i, j in edges]
        return cls(
            frozen(edges),
            frozen(weights[is_forward]),
            check_labels(names, name="labels of edges"),
            check_count(root, "root", most=n - 1),
            check_count(max_steps, "max_steps", least=1),
            Neighbours(first, head, edge, *alias_tables(first, weights)),
        )

    @property
    def size(self) -> int:
        """The number of edges of a tree, one less than that of nodes."""
        return len(self.neighbours.first) - 2

    @property
    def catalogue(self) -> Catalogue:
        """The edges and their labels."""
        return Catalogue(len(self.edges), self.labels)

    @cached_property
    def kernel(self) -> LowRankKernel:
        """The kernel of the same edges, det(L_T) = Π w_e: its sets of :attr:`size` edges have the law of the trees.

        It answers what draws do not: ``kernel.inclusion_probabilities(size)``, ``kernel.log_prob(tree, size)`` or
        ``kernel.sample(size=size, given=…)``. It has a dense row of n − 1 numbers for each edge, and is made when it is first asked for.
        """
        rows, each = np.zeros((len(self.edges), self.size + 1)), np.arange(len(self.edges))
        rows[each, self.edges[:, 0]] = np.sqrt(self.weights)
        rows[each, self.edges[:, 1]] = -np.sqrt(self.weights)
        return LowRankKernel(rows[:, 1:], labels=self.labels)

    def items_of(self, rows: IntArray) -> IntArray:
        """Return the edges of a draw, which are what is drawn."""
        return rows

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one tree, as numbers of its edges. ``info`` has the steps of its walks."""
        n = self.size + 1
        seed, exits, in_tree, at = seed_words(rng), np.empty(n, np.int64), np.zeros(n, np.bool_), np.zeros(2, np.int64)
        in_tree[self.root] = True
        steps = 0
        while at[0] < n:
            look()
            if steps == self.max_steps:
                raise BudgetExceededError(
                    f"a tree was not complete after {steps:,} steps of the walk: parts of the graph are joined by few edges, or edges of "
                    f"tiny weight. Raise max_steps, choose another root, or use kernel.sample(size={self.size}), which does not walk.",
                    count=steps,
                )
            most = min(STEPS_PER_CALL, self.max_steps - steps)
            steps += soon(walk, SLOWER * most)(seed, self.neighbours, exits, in_tree, at, most)
        return Draw(np.sort(self.neighbours.edge[np.delete(exits, self.root)]), {"steps": steps})


@njit()
def walk(seed: KeyArray, to: Neighbours, exits: IntArray, in_tree: BoolArray, at: IntArray, most: int) -> int:
    """Continue Wilson's algorithm by at most ``most`` steps, and return the number of steps made.

    ``exits`` has the entry of ``to`` by which each node was left last. ``at`` has the node where the walk began, n if the tree is complete,
    and where it is now.
    """
    start, node = at
    steps = 0
    while start < in_tree.size:
        if in_tree[node]:
            node = start
            while not in_tree[node]:  # the path without its loops
                in_tree[node] = True
                node = to.node[exits[node]]
            start += 1
            node = start
        elif steps == most:
            break
        else:
            low, high = to.first[node], to.first[node + 1]
            exits[node] = low + look_up_one(to.threshold[low:high], to.alias[low:high], uniform(seed), uniform(seed))
            node = to.node[exits[node]]
            steps += 1
    at[0], at[1] = start, node
    return steps


@interruptible()
def alias_tables(first: IntArray, weights: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return threshold and alias of every node's table, one after the other."""
    degrees = np.diff(first)
    threshold = weights / np.repeat(np.maximum.reduceat(weights, first[:-1]), degrees)  # sums of weights may overflow
    threshold *= np.repeat(degrees / np.add.reduceat(threshold, first[:-1]), degrees)
    alias = np.arange(len(weights)) - np.repeat(first[:-1], degrees)
    soon(_pair_all, SLOWER * len(weights))(first, threshold, alias)
    return threshold, alias


@njit()
def _pair_all(first: IntArray, threshold: FloatArray, alias: IntArray) -> None:
    for v in range(first.size - 1):
        pair_cells(threshold[first[v] : first[v + 1]], alias[first[v] : first[v + 1]])


def connected(graph: Any) -> sparse.csr_array:
    """Return the weights of a graph as a sparse matrix without zeros and without a diagonal; raise unless it has spanning trees."""
    if hasattr(graph, "adjacency"):
        raise InvalidInputError(
            f"must be a matrix of weights; got a {type(graph).__name__}. Pass networkx.to_scipy_sparse_array(graph)",
            argument="graph",
        )
    found = graph if sparse.issparse(graph) else real_array(graph, "graph", "a matrix")
    if found.dtype.kind not in "fiub":
        raise InvalidInputError(f"must have real weights; got {found.dtype}", argument="graph")
    if found.ndim != 2 or found.shape[0] != found.shape[1]:
        raise InvalidInputError(f"must be a square matrix; its shape is {found.shape}", argument="graph")
    if found.shape[0] < 2:
        raise InvalidInputError(f"must have at least 2 nodes; it has {found.shape[0]}", argument="graph")
    entries = sparse.coo_array(found).astype(np.float64).tocsr().tocoo()  # repeated entries add up
    bad = ~(np.isfinite(entries.data) & (entries.data >= 0))
    if bad.any():
        i, j, weight = next(zip(entries.row[bad], entries.col[bad], entries.data[bad]))
        raise InvalidInputError(
            f"must have weights that are finite and ≥ 0; that at [{i}, {j}] is {weight:g}", argument="graph"
        )
    is_edge = (entries.row != entries.col) & (entries.data > 0)
    places = entries.row[is_edge], entries.col[is_edge]
    matrix = sparse.csr_array((entries.data[is_edge], places), shape=found.shape)
    if (uneven := (matrix != matrix.T).nonzero())[0].size:
        i, j = (int(ends[0]) for ends in uneven)
        raise InvalidInputError(
            f"must be symmetric; the weight at [{i}, {j}] is {matrix[i, j]:.17g} and that at [{j}, {i}] is {matrix[j, i]:.17g}. Pass "
            "graph + graph.T if it has each edge once, or (graph + graph.T) / 2 if they differ by rounding",
            argument="graph",
        )
    from scipy.sparse.csgraph import connected_components  # not needed by other samplers

    parts, part = connected_components(matrix, directed=False)
    if parts > 1:
        raise InvalidInputError(
            f"must be connected; it has {parts} parts: there is no path from node 0 to node {np.argmax(part != part[0])}",
            argument="graph",
        )
    return matrix
