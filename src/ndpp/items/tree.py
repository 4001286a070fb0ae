"""Draw an item by descending a binary tree with fat leaves [Gillenwater et al., ICML 2019; Han22, App. A].

A node covers a range of rows and stores the sum of q_a q_aᵀ over the left half of them. ⟨M, sum⟩ is the weight of the left half; the
right half has the rest of the node's weight, so its sum need not be stored. A leaf covers several rows, whose weights q_aᵀ M q_a are
computed on demand.

Exact up to rounding, about 1e-15 of the total weight. Cost: O(n r²) to prepare, O(r² (log n + leaf)) per draw. Memory:
P r(r+1)/2 numbers for P leaves, P being the largest power of two within the budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from ndpp._compiled import interruptible, jitable, njit
from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count, frozen
from ndpp.errors import InvalidInputError, PrecisionError
from ndpp.items.base import ReadOnly, check_query, check_total, look_up_cdf, nonnegative
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.scaling import quadratic_forms

LEAST_LEAF = 8
"""With fewer rows per leaf, another level of nodes would cost more than it saves."""
BELOW_ONE = float(np.nextafter(1.0, 0.0))


@dataclass(frozen=True, eq=False)
class Tree(ReadOnly):
    """A binary tree over the rows of Q, in two flat arrays.

    Attributes
    ----------
    sums : (P, r(r+1)/2) array
        Packed upper triangles. For 1 ≤ i < P, ``sums[i]`` is the sum of q_a q_aᵀ over the left half of node i, whose
        halves are nodes 2i and 2i + 1; nodes P..2P−1 are the leaves. ``sums[0]`` is the sum over all rows.
    bounds : (P + 1,) array
        Leaf j covers the rows from ``bounds[j]`` to ``bounds[j + 1]``, exclusive.

    Examples
    --------
    >>> import numpy as np, ndpp
    >>> kernel = ndpp.LowRankKernel(np.array([[2.0], [0.0], [1.0]]), np.eye(1))
    >>> tree = Tree.prepare(kernel)
    >>> tree.draw(np.random.default_rng(0), np.eye(1))
    0
    """

    kernel: LowRankKernel
    sums: FloatArray
    bounds: IntArray

    @classmethod
    def prepare(cls, kernel: LowRankKernel, *, memory: int = 256_000_000, leaf: int = LEAST_LEAF) -> Tree:
        """Build the tree bottom-up in one pass over the rows of Q.

        Parameters
        ----------
        kernel : LowRankKernel
        memory : int
            Maximum bytes of all nodes. Leaves grow until the nodes fit.
        leaf : int
            Minimum number of rows per leaf, on average.
        """
        n_rows, rank = kernel.coordinates.leverage.size, kernel.rank
        node = 8 * max(1, rank * (rank + 1) // 2)
        if check_count(memory, "memory") < node:
            raise InvalidInputError(f"memory must hold at least one node of {node} bytes at rank {rank}; got {memory}")
        n_leaves = min(memory // node, max(1, n_rows // check_count(leaf, "leaf", least=1)))
        n_leaves = 1 << (n_leaves.bit_length() - 1)
        bounds = np.arange(n_leaves + 1) * n_rows // n_leaves
        sums = np.empty((n_leaves, rank * (rank + 1) // 2))
        with interruptible():
            for j, total in enumerate(_leaf_sums(kernel, bounds)):
                _carry(sums, n_leaves + j, total)
        return cls(kernel, frozen(sums), frozen(bounds))

    def draw(self, rng: Generator, M: FloatArray) -> int:
        """Draw row a with probability ∝ q_aᵀ M q_a."""
        check_query(M, self.kernel.rank)
        query = _pack_query(np.ascontiguousarray(M, dtype=np.float64))
        total = float(self.sums[0] @ query)
        check_total(total)
        leaf, low = _descend(self.sums, query, total, rng.random())
        nonnegative(np.array([low]), total)
        rows = np.arange(self.bounds[leaf], self.bounds[leaf + 1])
        place = _pick(nonnegative(quadratic_forms(self.kernel.q_rows(rows), M), total), rng.random())
        if place < 0:
            raise PrecisionError("the draw reached a leaf of the tree whose items all have weight zero")
        return int(rows[place])


def _leaf_sums(kernel: LowRankKernel, bounds: IntArray) -> Iterator[FloatArray]:
    """Yield the packed sum of q_a q_aᵀ of each leaf in turn, from blocks of Q that need not match the leaves."""
    upper = np.flatnonzero(np.triu(np.ones((kernel.rank, kernel.rank))))
    total = np.zeros((kernel.rank, kernel.rank))
    j = 0
    for rows, block in kernel.q_blocks():
        begin = rows.start
        while begin < rows.stop:
            end = min(rows.stop, bounds[j + 1])
            part = block[begin - rows.start : end - rows.start]
            total += part.T @ part
            begin = end
            if end == bounds[j + 1]:
                yield total.ravel().take(upper)
                total[:] = 0.0
                j += 1


def _carry(sums: FloatArray, node: int, total: FloatArray) -> None:
    """Pass a finished node's sum upwards: that of a left half is stored, that of a right half completes its parent."""
    while node > 1 and node % 2:
        node //= 2
        total = total + sums[node]
    sums[node // 2] = total


@njit()
def _pack_query(M: FloatArray) -> FloatArray:
    """Return the vector whose dot product with a packed symmetric G is ⟨M, G⟩: off-diagonal entries count twice."""
    r, place = len(M), 0
    query = np.empty(r * (r + 1) // 2)
    for i in range(r):
        query[place] = M[i, i]
        for j in range(i + 1, r):
            query[place + j - i] = M[i, j] + M[j, i]
        place += r - i
    return query


@jitable(error_model="numpy")
def draw_one(rng: Generator, sums: FloatArray, bounds: IntArray, Q: Any, V: FloatArray) -> tuple[int, float, float]:
    """Do what :meth:`Tree.draw` does for one row and M = VᵀV, V having few rows; Q is an array, or fetches its rows.

    Returns the row (−1 if its leaf has no weight), the most negative weight, and the sum of all weights; the caller checks them.
    """
    query = _pack_rows(V)
    total = float(np.dot(sums[0], query))
    for_descent, for_leaf = rng.random(), rng.random()
    if not 0.0 < total < np.inf:
        return -1, 0.0, total
    leaf, low = _descend(sums, query, total, for_descent)
    first, last = bounds[leaf], bounds[leaf + 1]
    own, weights = Q[first:last], np.zeros(last - first)
    for i in range(last - first):
        for c in range(len(V)):
            weights[i] += np.dot(own[i], V[c]) ** 2
    place = _pick(weights, for_leaf)
    return (first + place if place >= 0 else -1), low, total


@njit()
def _pack_rows(V: FloatArray) -> FloatArray:
    """Return the packed query of VᵀV."""
    r, place = V.shape[1], 0
    query = np.zeros(r * (r + 1) // 2)
    for i in range(r):
        for c in range(len(V)):
            query[place] += V[c, i] ** 2
            twice = 2.0 * V[c, i]
            for j in range(i + 1, r):
                query[place + j - i] += twice * V[c, j]
        place += r - i
    return query


@njit()
def _descend(sums: FloatArray, query: FloatArray, total: float, uniform: float) -> tuple[int, float]:
    """Return the leaf of a uniform in [0, 1), and the most negative weight met before clipping at zero."""
    n_leaves, node, weight, low = len(sums), 1, total, 0.0
    while node < n_leaves:
        left = float(np.dot(sums[node], query))
        right = weight - left
        low = min(low, left, right)
        left, right = max(left, 0.0), max(right, 0.0)
        share = left / (left + right) if left + right > 0.0 else 0.5
        if uniform < share:
            node, weight, uniform = 2 * node, left, uniform / share
        else:
            node, weight, uniform = 2 * node + 1, right, min((uniform - share) / (1.0 - share), BELOW_ONE)
    return node - n_leaves, low


@njit()
def _pick(weights: FloatArray, uniform: float) -> int:
    """Return an index with probability ∝ weight; −1 if there is no weight."""
    cdf = np.cumsum(weights)
    if not cdf[-1] > 0.0:
        return -1
    return look_up_cdf(cdf, uniform)
