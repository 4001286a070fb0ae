"""The paper's up-step through its tree: items come by a descent in a binary tree over all of them [Gillenwater et al., ICML 2019; Han22].

``Walk.prepare(kernel, size=k, up=TreeUp())`` is the walk whose times the tables and figures report as the paper's. ``RejectionUp`` of
the library is the same step, but draws the items of a pair by leverage, which is faster and needs no tree.

By default the tree takes at most 256 MB, and its leaves hold as many rows as that requires: hundreds where n or d is large. The paper's
have one item each, and B = 8 from 10⁵ items on (App. A.1): ``Tree.prepare(kernel, leaf=papers_leaf(n), memory=ENOUGH)``. Figure 2 times
both. Three differences remain, none of which costs time: the tree is over Q and not X, only left sums are stored, as triangles, and
weights in a leaf are squared lengths |V q_a|².

A node covers a range of rows and stores the sum of q_a q_aᵀ over the left half of them. ⟨M, sum⟩ is the weight of the left half; the
right half has the rest of the node's weight, so its sum need not be stored. A leaf covers several rows, whose weights q_aᵀ M q_a are
computed on demand.

Exact up to rounding, about 1e-15 of the total weight. Cost: O(n r²) to prepare, O(r² log(n/B) + r B) per draw for leaves of B rows.
Memory: P r(r+1)/2 numbers for P leaves, a power of two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ndpp._compiled import interruptible, njit
from ndpp._types import AnyArray, FloatArray, IntArray
from ndpp._validation import PROBABILITY_TOLERANCE, clip_probabilities
from ndpp.errors import InvalidInputError, PrecisionError
from ndpp.items.base import check_total, look_up_cdf
from ndpp.items.table import uniform
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers.registry import PAPERS_WALK, SamplerSpec, walks
from ndpp.samplers.rejection import RATIO_TOLERANCE
from ndpp.samplers.walk.up_rejection import ACCEPTANCE, PreparedRejectionUp, RejectionUp, Step, choose_plane, pair_ratio

LEAF = 16
"""With fewer rows per leaf, another level of nodes would cost more than it saves."""
ENOUGH = 8_000_000_000
"""Bytes that hold the paper's tree over a million items at d = 100."""
BELOW_ONE = float(np.nextafter(1.0, 0.0))


@dataclass(frozen=True, eq=False)
class Tree:
    """A binary tree over the rows of Q, in two flat arrays.

    ``sums`` (P, r(r+1)/2) are packed upper triangles. For 1 ≤ i < P, ``sums[i]`` is the sum of q_a q_aᵀ over the left half of node i, whose
    halves are nodes 2i and 2i + 1; nodes P..2P−1 are the leaves. ``sums[0]`` is the sum over all rows. Leaf j covers the rows from
    ``bounds[j]`` to ``bounds[j + 1]``, exclusive.
    """

    kernel: LowRankKernel
    Q: FloatArray
    sums: FloatArray
    bounds: IntArray

    @classmethod
    def prepare(cls, kernel: LowRankKernel, *, memory: int = 256_000_000, leaf: int = LEAF) -> Tree:
        """Build the tree bottom-up in one pass over Q, with at most ``leaf`` rows per leaf, or more if nodes need ``memory`` bytes."""
        n_rows, rank = kernel.n_rows, kernel.rank
        node = 8 * max(1, rank * (rank + 1) // 2)
        if memory < node:
            raise InvalidInputError(f"memory must hold at least one node of {node} bytes at rank {rank}; got {memory}")
        n_leaves = 1 << min((memory // node).bit_length() - 1, (-(-n_rows // leaf) - 1).bit_length())
        bounds = np.arange(n_leaves + 1) * n_rows // n_leaves
        sums = np.empty((n_leaves, rank * (rank + 1) // 2))
        with interruptible():
            for j, total in enumerate(_leaf_sums(kernel, bounds)):
                _carry(sums, n_leaves + j, total)
        Q = kernel.coordinates.Q
        return cls(kernel, kernel.q_rows(np.arange(n_rows)) if Q is None else Q, sums, bounds)

    @property
    def leaf(self) -> int:
        """Number of rows of the largest leaf."""
        return int(np.diff(self.bounds).max())


def papers_leaf(n_items: int) -> int:
    """Return the items per leaf of the paper's tree, B [Han22, App. A.1]."""
    return 1 if n_items < 10**5 else 8


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


@dataclass(frozen=True)
class TreeUp(RejectionUp):
    """The paper's up-step through a tree: the one given, or a new one for each kernel."""

    tree: Tree | None = None

    def prepare(self, kernel: LowRankKernel, size: int | None = None) -> PreparedTreeUp:
        """Build the tree, and prepare the rest as without it."""
        rest = super().prepare(kernel, size)
        return PreparedTreeUp(**vars(rest), tree=self.tree or Tree.prepare(kernel))


@dataclass(frozen=True, eq=False)
class PreparedTreeUp(PreparedRejectionUp):
    """The up-step for one kernel, with its tree."""

    tree: Tree

    def propose(self, seed: AnyArray, step: Step, most: int) -> tuple[IntArray | None, int]:
        """Propose up to ``most`` pairs through the tree; return the first that is accepted, or None, and its number."""
        tree = self.tree
        rows, proposals, low, total, ratio = _propose(seed, tree.sums, tree.bounds, tree.Q, *step[:4], most)
        check_total(total)
        if not low >= -PROBABILITY_TOLERANCE * total or rows.min() < 0 or rows[0] == rows[1]:
            raise PrecisionError(f"the pair {rows} of the tree, with weights from {low:.3g}, is nothing but rounding")
        clip_probabilities(np.array([ratio]), ACCEPTANCE, tolerance=RATIO_TOLERANCE)
        return (rows if proposals <= most else None), proposals


def through_tree(spec: SamplerSpec, tree: Tree) -> SamplerSpec:
    """Return the description of a sampler; the paper's walk draws through this tree."""
    return replace(spec, prepare=walks(TreeUp(tree=tree))) if spec is PAPERS_WALK else spec


@njit(error_model="numpy")
def _propose(
    seed: AnyArray,
    sums: FloatArray,
    bounds: IntArray,
    Q: FloatArray,
    columns: FloatArray,
    n_symmetric: int,
    gram: FloatArray,
    cdf: FloatArray,
    most: int,
) -> tuple[IntArray, int, float, float, float]:
    """Return the last pair proposed, its number (``most`` + 1 if all were rejected), what is to be checked of it, and its acceptance."""
    rows = np.empty(2, np.int64)
    for proposals in range(1, most + 1):
        V = choose_plane(columns, gram, cdf, uniform(seed), uniform(seed))
        ratio = 0.0
        rows[1] = -1
        rows[0], low, total = draw_one(seed, sums, bounds, Q, V)
        if rows[0] >= 0 and low >= -PROBABILITY_TOLERANCE * total:
            y = np.dot(V, Q[rows[0]])
            rest = (y[0] * V[1:] - y[1] * V[:1]) / math.sqrt(np.dot(y, y))
            rows[1], low, total = draw_one(seed, sums, bounds, Q, rest)
        if rows[1] < 0 or rows[0] == rows[1] or not low >= -PROBABILITY_TOLERANCE * total:
            return rows, proposals, low, total, ratio
        ratio = pair_ratio(Q[rows[0]], Q[rows[1]], columns, n_symmetric)
        if uniform(seed) < ratio or not ratio <= 1.0 + RATIO_TOLERANCE:
            return rows, proposals, low, total, ratio
    return rows, most + 1, low, total, ratio


@njit(error_model="numpy")
def draw_one(
    seed: AnyArray, sums: FloatArray, bounds: IntArray, Q: FloatArray, V: FloatArray
) -> tuple[int, float, float]:
    """Draw row a with probability ∝ |V q_a|², V having few rows.

    Returns the row (−1 if its leaf has no weight), the most negative weight, and the sum of all weights; the caller checks them.
    """
    query = _pack_rows(V)
    total = float(np.dot(sums[0], query))
    for_descent, for_leaf = uniform(seed), uniform(seed)
    if not 0.0 < total < np.inf:
        return -1, 0.0, total
    leaf, low = _descend(sums, query, total, for_descent)
    first, last = bounds[leaf], bounds[leaf + 1]
    if first == last:  # an empty leaf, with a weight that is rounding
        return -1, low, total
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
