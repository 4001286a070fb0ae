"""Rows, columns and edges chosen by determinants: minibatches with weights, columns of a matrix, random spanning trees.

Each is an exact sample of one size from a kernel that follows from the data. The three kernels are :class:`ndpp.LowRankKernel`\\ s, with
probabilities, conditioning and everything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from ndpp._types import FloatArray, IntArray, RngLike
from ndpp._validation import check_count, check_matrix, plain_array
from ndpp.errors import ImpossibleSizeError, InvalidInputError
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law
from ndpp.laws.matrices import feature_rows

__all__ = ["Batch", "BatchSampler", "Batches", "batches", "columns", "spanning_tree", "tree_kernel"]

BATCHES_AT_ONCE = 64
"""Batches that are drawn at a time."""
MAX_EDGE_ENTRIES = 2**28
"""Entries of the rows of the edges of a graph (2 GB)."""


class Batch(NamedTuple):
    """Items, ascending, and their weights 1 / P(item ∈ batch), None if these were not asked for."""

    items: IntArray
    weights: FloatArray | None


@dataclass(frozen=True, eq=False)
class Batches:
    """What :func:`batches` returns: an iterable of batches. Each pass over it draws new ones.

    Attributes
    ----------
    law : Law
        The distribution that batches are samples of.
    size, n_batches : int
        Items per batch, and batches per pass.
    weights : (n_items,) array or None
        1 / P(item ∈ batch) of every item.
    """

    law: Law
    size: int
    n_batches: int
    weights: FloatArray | None
    _rng: np.random.Generator

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, self.n_batches, BATCHES_AT_ONCE):
            count = min(BATCHES_AT_ONCE, self.n_batches - start)
            for items in self.law.sample(count, size=self.size, rng=self._rng.spawn(1)[0]):
                yield Batch(items, None if self.weights is None else self.weights[items])


def batches(
    features: object,
    size: int,
    *,
    n_batches: int | None = None,
    quality: npt.ArrayLike | None = None,
    similarity: str = "dot",
    background: npt.ArrayLike | None = None,
    weights: bool = True,
    rng: RngLike = None,
) -> Batches:
    """Return diverse minibatches of items with these features: exact samples of ``size`` items from the kernel of their inner products.

    With weights w = 1 / P(item ∈ batch), the sum of w_i f_i over a batch is an unbiased estimate of the sum of f over all items
    [Horvitz and Thompson, 1952], and so are weighted gradients; for points that resemble each other, it varies less than with uniform
    batches [Zhang et al., UAI 2017].

    Parameters
    ----------
    features : (n, d) array_like, sparse matrix or tensor; or a law
        Features of the items, as for :meth:`ndpp.LowRankKernel.from_features`; or the distribution to draw from.
    size : int
        Items per batch. Without a background at most the rank of the features.
    n_batches : int, optional
        Batches per pass; by default as many as hold n items in all.
    quality, similarity
        As for :meth:`ndpp.LowRankKernel.from_features`.
    background : float or (n,) array_like, optional
        Odds ≥ 0 of items to come by themselves, L = diag(background) + F Fᵀ: batches may then be larger than the rank, and differ from
        uniform ones the less the larger it is.
    weights : bool
        Compute the weights, O(n d²) once.
    rng : anything ``numpy.random.default_rng`` takes
        Two passes over the result draw different batches; the same seed gives the same passes.

    Examples
    --------
    >>> points = np.random.default_rng(0).normal(size=(100, 3))
    >>> chosen = batches(points, 3, n_batches=2, rng=0)
    >>> [(batch.items.shape, batch.weights.shape) for batch in chosen]
    [((3,), (3,)), ((3,), (3,))]
    """
    law = Law.of(features)
    if law is None:
        X = feature_rows(features, quality, similarity)
        background = plain_array(background, "background")
        if background is not None and np.ndim(background) == 0:
            background = np.full(len(X), background)
        law = LowRankKernel(X, background=background)
    elif quality is not None or background is not None:
        raise InvalidInputError(
            "is for features; a law has its own", argument="quality" if quality is not None else "background"
        )
    if check_count(size, "size", least=1) > law.max_size:
        raise ImpossibleSizeError(
            f"no batch is larger than {law.size_bound}; size {size} was asked for. With a background=, batches may be larger"
        )
    count = -(-law.n_items // size) if n_batches is None else check_count(n_batches, "n_batches", least=1)
    chances = law.inclusion_probabilities(law.check_size(size)) if weights else np.ones(1)
    if not chances.all():
        raise InvalidInputError(
            f"item {int(np.argmin(chances))} is never in a batch, so that its weight would be infinite: its features or quality are zero. "
            "Drop such items, give them a background, or pass weights=False"
        )
    return Batches(law, size, count, 1 / chances if weights else None, np.random.default_rng(rng))


class BatchSampler:
    """The items of :class:`Batches` as lists, for torch's ``DataLoader(batch_sampler=…)``; ``batches.weights[items]`` are their weights."""

    def __init__(self, batches: Batches) -> None:
        if not isinstance(batches, Batches):
            raise InvalidInputError(
                f"must come from ndpp.select.batches; got {type(batches).__name__}", argument="batches"
            )
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.items.tolist() for batch in self.batches)


def columns(A: object, k: int, *, n_samples: int | None = None, rng: RngLike = None) -> IntArray:
    """Draw ``k`` columns of a matrix with P(S) ∝ det(A_Sᵀ A_S), the squared volume that they span.

    The expected squared error of A after projection onto k such columns is at most k + 1 times that of the best matrix of rank k
    [Deshpande et al., SODA 2006].

    Parameters
    ----------
    A : (m, n) array_like, sparse matrix or tensor
        The matrix.
    k : int
        Number of columns, at most the rank of A.
    n_samples : int, optional
        Number of independent draws. None: one, without an axis of its own.
    rng : anything ``numpy.random.default_rng`` takes
        The seed.

    Returns
    -------
    (k,) or (n_samples, k) array
        Column numbers, ascending.

    Examples
    --------
    >>> columns([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]], 2, n_samples=3, rng=0)
    array([[0, 1],
           [0, 2],
           [0, 2]])
    """
    if sparse.issparse(A):
        kernel = LowRankKernel.from_features(_real_sparse(A, "A").T)
    else:
        A = check_matrix(plain_array(A, "A"), "A")
        if A.size == 0:
            raise InvalidInputError(f"A must have at least one row and one column; its shape is {A.shape}")
        kernel = LowRankKernel((np.asarray(np.linalg.qr(A, mode="r")) if A.shape[0] > A.shape[1] else A).T)
    if check_count(k, "k", least=1) > kernel.rank:
        raise ImpossibleSizeError(f"k must be at most the rank of A, {kernel.rank}; got {k}")
    return _sets(kernel, k, n_samples, rng)


def _real_sparse(value: sparse.sparray, name: str) -> sparse.csr_array:
    """Return a sparse matrix by rows in double precision; raise unless its entries are finite real numbers."""
    if value.ndim != 2 or value.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{name} must be a sparse matrix of real numbers; got one of shape {value.shape} and type {value.dtype}"
        )
    value = value.tocsr().astype(np.float64)
    check_matrix(value.data[None], f"the entries of {name}")
    return value


def _sets(kernel: LowRankKernel, size: int, n_samples: int | None, rng: RngLike) -> IntArray:
    count = 1 if n_samples is None else check_count(n_samples, "n_samples", least=1)
    found = kernel.sample(count, size=size, rng=rng).indices.reshape(count, size)
    return found[0] if n_samples is None else found


def tree_kernel(graph: object) -> tuple[IntArray, LowRankKernel]:
    """Return the edges of a graph, shape (m, 2), and the kernel over them whose sets of n − 1 edges are its random spanning trees.

    det L_S is the product of the weights of the edges of a spanning tree S, and zero for all other sets of n − 1 edges
    (the matrix-tree theorem). Conditioning and excluding edges contract and remove them, and
    ``kernel.inclusion_probabilities(n − 1)`` are weights times effective resistances, the diagonal of the transfer-current matrix.

    Examples
    --------
    >>> edges, kernel = tree_kernel([[0, 1, 1], [1, 0, 2], [1, 2, 0]])
    >>> edges.tolist(), kernel.inclusion_probabilities(2).round(4)
    ([[0, 1], [0, 2], [1, 2]], array([0.6, 0.6, 0.8]))
    """
    if sparse.issparse(graph):
        weights = _real_sparse(graph, "graph")
    else:
        weights = sparse.csr_array(check_matrix(plain_array(graph, "graph"), "graph").astype(np.float64))
    n = weights.shape[0]
    if weights.shape[0] != weights.shape[1] or n < 2:
        raise InvalidInputError(
            f"graph must be the square matrix of weights of at least two nodes; its shape is {weights.shape}"
        )
    if weights.data.min(initial=0.0) < 0:
        raise InvalidInputError(f"weights of graph must be ≥ 0; the least is {weights.data.min():g}")
    apart = abs(weights - weights.T)
    if apart.max() > 1e-12 * weights.max():
        i, j = (int(at[np.argmax(apart.tocoo().data)]) for at in apart.tocoo().coords)
        raise InvalidInputError(
            f"graph must be symmetric, its edges having no direction; [{i}, {j}] is {weights[i, j]:g} and [{j}, {i}] is {weights[j, i]:g}"
        )
    weights.eliminate_zeros()
    n_parts, part = connected_components(weights, directed=False)
    if n_parts > 1:
        raise InvalidInputError(
            f"graph must be connected to have a spanning tree; it has {n_parts} parts, and node {int(np.argmax(part != part[0]))} cannot "
            "be reached from node 0"
        )
    upper = sparse.triu(weights, k=1).tocoo()
    edges, values = np.column_stack(upper.coords).astype(np.int64), upper.data / upper.data.max()
    order = np.lexsort(edges.T[::-1])
    edges, values = edges[order], values[order]
    if len(edges) * n > MAX_EDGE_ENTRIES:
        raise InvalidInputError(
            f"graph has {n} nodes and {len(edges)} edges: its rows would take {8e-9 * len(edges) * n:.3g} GB"
        )
    X, each = np.zeros((len(edges), n)), np.arange(len(edges))
    X[each, edges[:, 0]], X[each, edges[:, 1]] = np.sqrt(values), -np.sqrt(values)
    return edges, LowRankKernel(X[:, 1:])  # one node is the root


def spanning_tree(graph: object, *, n_samples: int | None = None, rng: RngLike = None) -> IntArray:
    """Draw a spanning tree of a graph, uniformly if all weights are equal, and otherwise with P(tree) ∝ the product of its weights.

    The edges of a random spanning tree are a determinantal point process, whose marginal kernel is the transfer-current matrix
    [Burton and Pemantle, 1993]. For m edges and n nodes the kernel takes O(m n²) once; see :func:`tree_kernel` for it.

    Parameters
    ----------
    graph : (n, n) array_like, sparse matrix or tensor
        Weights ≥ 0 of the edges, symmetric; 0 where there is none, and loops do not count. ``networkx.to_scipy_sparse_array(G)`` is one.
    n_samples : int, optional
        Number of independent trees. None: one, without an axis of its own.
    rng : anything ``numpy.random.default_rng`` takes
        The seed.

    Returns
    -------
    (n − 1, 2) or (n_samples, n − 1, 2) array
        The edges of each tree, as pairs of nodes in ascending order.

    Examples
    --------
    >>> spanning_tree([[0, 1, 1], [1, 0, 1], [1, 1, 0]], rng=0).tolist()
    [[0, 2], [1, 2]]
    """
    edges, kernel = tree_kernel(graph)
    return edges[_sets(kernel, kernel.X.shape[1], n_samples, rng)]
