"""Draw an item by descending a binary tree with fat leaves [Gillenwater19; Han22, App. A].

A node stands for a run of rows and knows the sum of q_a q_aᵀ over the rows of its left half; ⟨M, that sum⟩ is the weight
of the left half and what remains of the node's own weight that of the right half, so sums of right halves need not be
stored. A leaf holds several rows, whose weights q_aᵀ M q_a are computed on demand.

Law: exactly ∝ q_aᵀ M q_a, up to rounding of the order of 1e-15 of the total. Cost: O(n r²) to prepare,
O(r² (log n + leaf)) per draw. Memory: P r(r+1)/2 numbers for P leaves, P the largest power of two within the budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numba
import numpy as np

from ndpp._checks import PROBABILITY_TOLERANCE, check_count
from ndpp._types import FloatArray, IntArray
from ndpp.errors import InvalidInputError, PrecisionError
from ndpp.items.base import (
    ItemDraws,
    ItemIndex,
    check_query,
    check_total,
    invert_cdf,
    nonnegative,
    quadratic_forms,
)

if TYPE_CHECKING:
    from ndpp.kernel import LowRankKernel

LEAST_LEAF = 8
"""Rows of a leaf below which another level of nodes costs more than it saves."""

BELOW_ONE = float(np.nextafter(1.0, 0.0))

SCAN_ROWS = 8192
"""Rows of leaves whose coordinates are formed at once. No draw depends on it."""


@dataclass(frozen=True, eq=False)
class Tree(ItemIndex):
    """A binary tree over the rows of Q, in two flat arrays.

    Attributes
    ----------
    sums : (P, r(r+1)/2) array
        Packed upper triangles. ``sums[i]``, for 1 ≤ i < P, is the sum of q_a q_aᵀ over the left half of node i, whose
        halves are nodes 2i and 2i + 1; nodes P..2P−1 are the leaves. ``sums[0]`` is the sum over all rows.
    bounds : (P + 1,) array
        Leaf j holds rows ``bounds[j]..bounds[j + 1]``.

    Examples
    --------
    >>> import numpy as np, ndpp
    >>> kernel = ndpp.LowRankKernel(np.array([[2.0], [0.0], [1.0]]), np.eye(1))
    >>> tree = Tree.prepare(kernel)
    >>> bool((tree.draw(np.random.default_rng(0), np.eye(1), 100) != 1).all())
    True
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
            Most bytes the nodes may take. Leaves grow until they fit.
        leaf : int
            Least rows of a leaf, on average.
        """
        n_rows, rank = kernel.coordinates.leverage.size, kernel.rank
        node = 8 * max(1, rank * (rank + 1) // 2)
        if check_count(memory, "memory") < node:
            raise InvalidInputError(f"memory must hold at least one node of {node} bytes at rank {rank}; got {memory}")
        n_leaves = min(memory // node, max(1, n_rows // check_count(leaf, "leaf", least=1)))
        n_leaves = 1 << (n_leaves.bit_length() - 1)
        bounds = np.arange(n_leaves + 1) * n_rows // n_leaves
        sums = np.empty((n_leaves, rank * (rank + 1) // 2))
        for j, total in enumerate(_leaf_sums(kernel, bounds)):
            _carry(sums, n_leaves + j, total)
        sums.setflags(write=False)
        bounds.setflags(write=False)
        return cls(kernel, sums, bounds)

    def draw_counted(
        self, rng: np.random.Generator, M: FloatArray, n_draws: int = 1, *, bound: float = 1.0
    ) -> ItemDraws:
        """Draw rows by descent; see :meth:`ItemIndex.draw_counted`. A node that many draws pass is weighed once."""
        check_query(M, self.kernel.rank, n_draws)
        query = _pack_query(M)
        total = float(self.sums[0] @ query)
        check_total(total)
        for_descent, for_leaf = rng.random((2, n_draws))
        order = np.argsort(for_descent)
        leaves = np.empty(n_draws, np.int64)
        leaves[order], low = _descend(self.sums, query, total, for_descent[order])
        if low < -PROBABILITY_TOLERANCE * total:
            raise PrecisionError(
                f"half a node of the tree weighs {low:.3g} where all items weigh {total:.3g}: M is not positive "
                "semidefinite. Either it is not an inclusion matrix, or double precision could not carry its computation."
            )
        return ItemDraws(self._finish(leaves, for_leaf, M, total), n_draws)

    def _finish(self, leaves: IntArray, uniforms: FloatArray, M: FloatArray, total: float) -> IntArray:
        """Return a row of each draw's leaf, by a scan of the leaf."""
        rows = np.empty(leaves.size, np.int64)
        order = np.argsort(leaves, kind="stable")
        visited, starts = np.unique(leaves[order], return_index=True)
        draws_of = np.split(order, starts[1:])
        per_pass = max(1, SCAN_ROWS // int(np.diff(self.bounds).max()))
        for first in range(0, visited.size, per_pass):
            spans = [np.arange(self.bounds[j], self.bounds[j + 1]) for j in visited[first : first + per_pass]]
            weights = nonnegative(quadratic_forms(self.kernel.q_rows(np.concatenate(spans)), M), total)
            edges = np.cumsum([span.size for span in spans])[:-1]
            for span, part, draws in zip(spans, np.split(weights, edges), draws_of[first:]):
                if not part.any():
                    raise PrecisionError("a leaf without weight was reached; M is zero to the last digit on it")
                rows[draws] = span[invert_cdf(part, uniforms[draws])]
        return rows


def _leaf_sums(kernel: LowRankKernel, bounds: IntArray) -> Iterator[FloatArray]:
    """Yield the packed sum of q_a q_aᵀ of each leaf in turn, streaming Q by blocks that need not fit the leaves."""
    upper = np.triu_indices(kernel.rank)
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
                yield total[upper]
                total[:] = 0.0
                j += 1


def _carry(sums: FloatArray, node: int, total: FloatArray) -> None:
    """Hand a finished node's sum upwards: a left half is stored, a right half completes its parent."""
    while node > 1 and node % 2:
        node //= 2
        total = total + sums[node]
    sums[node // 2] = total


def _pack_query(M: FloatArray) -> FloatArray:
    """Return the vector whose dot product with a packed symmetric G is ⟨M, G⟩: off-diagonal entries count twice."""
    query = np.empty(M.shape[0] * (M.shape[0] + 1) // 2)
    _pack(np.ascontiguousarray(M, dtype=np.float64), query)
    return query


@numba.njit(cache=True, nogil=True)
def _pack(M: FloatArray, query: FloatArray) -> None:  # pragma: no cover - compiled
    place = 0
    for i in range(M.shape[0]):
        query[place] = M[i, i]
        for j in range(i + 1, M.shape[0]):
            query[place + j - i] = M[i, j] + M[j, i]
        place += M.shape[0] - i


@numba.njit(cache=True, nogil=True)
def _descend(
    sums: FloatArray, query: FloatArray, total: float, uniforms: FloatArray
) -> tuple[IntArray, float]:  # pragma: no cover - compiled
    """Return the leaf of each of the sorted ``uniforms``, and the least weight met before it was set to zero."""
    n_leaves = sums.shape[0]
    leaves = np.empty(uniforms.size, np.int64)
    place = uniforms.copy()  # of each draw inside its node, in [0, 1)
    stack = [(1, 0, uniforms.size, total)]  # node, first and last draw in it, weight
    low = 0.0
    while stack:
        node, first, last, weight = stack.pop()
        if first == last:
            continue
        if node >= n_leaves:
            leaves[first:last] = node - n_leaves
            continue
        left = float(np.dot(sums[node], query))
        right = weight - left
        low = min(low, left, right)
        left, right = max(left, 0.0), max(right, 0.0)
        share = left / (left + right) if left + right > 0.0 else 0.5
        split = first + int(np.searchsorted(place[first:last], share))
        for i in range(first, split):
            place[i] = place[i] / share
        for i in range(split, last):
            place[i] = min((place[i] - share) / (1.0 - share), BELOW_ONE)
        stack.append((2 * node + 1, split, last, right))
        stack.append((2 * node, first, split, left))
    return leaves, low
