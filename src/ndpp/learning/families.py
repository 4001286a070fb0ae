"""Families of items found in baskets, and the training of a mixture over them.

Items that often come together become families of bounded size (:func:`find_families`), and the sets of items in which each comes are
summed up by a few states (:func:`find_patterns`). A mixture is then learned as without families, with states in place of items and ties
between families: with q_s(S_g) the probability of a non-empty set of items in state s, and states s with log-odds b_s + a_c + u_s·z_c,

    P(S) = G(A) Σ_c (π_c / Z_c) Π_{g∈A} Σ_{s of g} Δ_cs q_s(S_g).

What EM finds is where training begins: the chances of the items in the states are learned with all other parameters.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ndpp._stop import look
from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.baskets.orders import Orders
from ndpp.laws.patterns import Patterns
from ndpp.learning import tied
from ndpp.learning.batches import PackedBaskets, pack
from ndpp.linalg.logs import shares
from ndpp.metrics.models import cosines

STATES, SETS = (1, 3, 7, 16), 4
"""How many states a family may have, and the number of sets of its items in baskets that a state needs."""
EXTRA = 5.0
"""What is added to the counts of items, so that rare ones do not look alike by chance."""
ROUNDS, SMOOTH, MAX_SETS = 15, 2.0, 3000
"""Rounds of EM for the states of a family, the number of average sets added to those of each state, and most sets to learn from."""
MAX_TOGETHER = 500_000
"""Sets of items whose states are found at a time."""
MAX_PAIRS = 10**8
"""Most pairs of items that are counted, with repeats; beyond that, families are found in a part of the baskets."""


def find_families(rng: np.random.Generator, baskets: Baskets, most: int, likeness: float) -> IntArray:
    """Return the family of each item, 0..F−1: average linkage of the cosines of items, in rounds that merge mutual best neighbours.

    Families have at most ``most`` items, whose mean cosine is at least ``likeness``.
    """
    order = rng.permutation(len(baskets))
    baskets = baskets[np.sort(order[np.cumsum(baskets.sizes[order].astype(float) ** 2) <= MAX_PAIRS])]
    alike = cosines(baskets, extra=EXTRA, weights=baskets.weights)
    alike.data[alike.data < likeness / most] = 0.0
    alike.eliminate_zeros()
    families = np.arange(baskets.n_items)
    while True:
        look()
        n = families.max() + 1
        sizes = np.bincount(families, minlength=n)
        groups = sparse.csr_array(
            (np.ones(len(families)), (np.arange(len(families)), families)), shape=(len(families), n)
        )
        between = sparse.coo_array(groups.T @ alike @ groups)
        mean = between.data / (sizes[between.row] * sizes[between.col])
        small = sizes[between.row] + sizes[between.col] <= most
        fits = (between.row != between.col) & small & (mean >= likeness)
        row, col, mean = between.row[fits], between.col[fits], mean[fits]
        if not len(row):
            return families
        order = np.lexsort([-col, mean])  # the last of each row is its best neighbour
        best = np.full(n, -1)
        best[row[order]] = col[order]
        pairs = np.flatnonzero((best >= 0) & (best[best] == np.arange(n)))
        target = np.arange(n)
        target[pairs] = np.minimum(pairs, best[pairs])
        if not len(pairs):
            return families
        families = np.unique(target[families], return_inverse=True)[1]


def find_patterns(rng: np.random.Generator, baskets: Baskets, families: IntArray) -> Patterns:
    """Return families, renumbered so that those of one item come first, then by their number of states, found by EM on the sets of items.

    A family has as many states (of ``STATES``) as its items have non-empty sets, and as there are ``SETS`` sets of it in the baskets for.
    """
    sizes = np.bincount(families)
    sets = FamilySets.of(rng, baskets, np.where(sizes[families] > 1, families, -1))
    most = np.minimum(2.0**sizes - 1, np.bincount(sets.owner, minlength=len(sizes)) / SETS)
    counts = np.take(STATES, np.searchsorted(STATES, np.where(sizes > 1, most.clip(1), 1), "right") - 1)
    chances = np.full((len(families), counts.max()), 0.5)
    ends = np.cumsum(np.bincount(sets.owner, minlength=len(sizes)))
    for part in range(int(ends[-1]) // MAX_TOGETHER + 1):
        look()
        own = (sizes[families] > 1) & ((ends - 1).clip(0)[families] // MAX_TOGETHER == part)
        chances[own] = sets.of_items(own).states(rng, counts)[own]
    rank = np.empty(len(sizes), np.int64)
    rank[np.lexsort([counts, sizes > 1])] = np.arange(len(sizes))
    odds = np.where(np.arange(counts.max()) < counts[families][:, None], chances / (1 - chances), 0.0)
    odds[sizes[families] == 1, 0] = 1.0
    states = np.repeat(np.arange(len(sizes)), counts[np.argsort(rank)])
    return Patterns(rank[families], states, odds, len(sizes))


class FamilySets(NamedTuple):
    """The non-empty sets of items of families in baskets: a row of ``items`` (sets, n) each, its family, and how often it counts.

    ``families`` are those of the items, −1 for items without.
    """

    items: sparse.csr_array
    owner: IntArray
    weights: FloatArray
    families: IntArray

    @classmethod
    def of(cls, rng: np.random.Generator, baskets: Baskets, families: IntArray) -> FamilySets:
        """Return the sets of baskets, at most ``MAX_SETS`` of each family."""
        has = families[baskets.indices] >= 0
        item = baskets.indices[has]
        basket = np.repeat(np.arange(len(baskets)), baskets.sizes)[has]
        key, row = np.unique(families[item] * len(baskets) + basket, return_inverse=True)
        owner, basket = np.divmod(key, len(baskets))
        weights = np.ones(len(key)) if baskets.weights is None else baskets.weights[basket]
        matrix = sparse.csr_array((np.ones(len(item)), (row, item)), shape=(len(key), len(families)))
        order = np.lexsort([rng.random(len(owner)), owner])
        kept = order[np.arange(len(owner)) - np.searchsorted(owner, owner) < MAX_SETS]
        kept.sort()
        return cls(matrix[kept], owner[kept], weights[kept], families)

    def of_items(self, which: BoolArray) -> FamilySets:
        """Return the sets of the families of these items alone."""
        families = np.where(which, self.families, -1)
        rows = np.isin(self.owner, families)
        return FamilySets(self.items[rows], self.owner[rows], self.weights[rows], families)

    def states(self, rng: np.random.Generator, counts: IntArray) -> FloatArray:
        """Return the chances (n, K) of independent items, given that there is one, in each of ``counts[g]`` states of family g."""
        n_families, K, of = len(counts), int(counts.max()), np.maximum(self.families, 0)
        add = sparse.csr_array(
            (self.weights, (self.owner, np.arange(len(self.owner)))), shape=(n_families, len(self.owner))
        )
        each, there = self.items.T.tocsr(), np.arange(K) < counts[:, None]
        n_items = np.bincount(self.families[self.families >= 0], minlength=n_families)
        average = (each @ self.weights + 0.5) / (add.sum(axis=1) + 0.5 * n_items.clip(1))[of]
        average = average.clip(1e-9, 1 - 1e-9)[:, None]
        chances = np.clip(0.7 * self._seeds(rng, n_families, K) + 0.3 * average, 0.01, 0.95)
        share = there / counts[:, None]
        for _ in range(ROUNDS):
            look()
            odds = chances / (1 - chances)
            with np.errstate(divide="ignore", invalid="ignore"):  # states that are not there, and families without sets
                constants = np.log(share) - np.log(np.expm1(self._of_families(n_families) @ np.log1p(odds)))
            member = shares(self.items @ np.log(odds) + constants[self.owner])
            total = add @ member
            share = (total + 1) * there / ((total + 1) * there).sum(axis=1, keepdims=True)
            mean = (each @ (member * self.weights[:, None]) + SMOOTH * average) / (total[of] + SMOOTH)
            chances = self._untruncated(np.clip(mean, 1e-6, 0.999), n_families)
        return np.asarray(chances)

    def _seeds(self, rng: np.random.Generator, n_families: int, K: int) -> FloatArray:
        """Return K of the sets of each family, by chance; ones where it has none."""
        first = np.searchsorted(self.owner, np.arange(n_families))
        n_sets = np.bincount(self.owner, minlength=n_families)
        some = np.flatnonzero(n_sets)
        seeds = np.where(np.isin(self.families, some), 0.0, 1.0)[:, None].repeat(K, axis=1)
        chosen = first[some, None] + (rng.random((len(some), K)) * n_sets[some, None]).astype(np.int64)
        for k in range(K):
            seeds[self.items[chosen[:, k]].indices, k] = 1.0
        return seeds

    def _of_families(self, n_families: int) -> sparse.csr_array:
        """Return the matrix that sums values of items over those of each family."""
        own = np.flatnonzero(self.families >= 0)
        return sparse.csr_array((np.ones(len(own)), (self.families[own], own)), shape=(n_families, len(self.families)))

    def _untruncated(self, mean: FloatArray, n_families: int) -> FloatArray:
        """Return chances of independent items that have these means, given that one of the family comes: θ = mean · (1 − Π(1 − θ))."""
        theta, add = 0.9 * mean, self._of_families(n_families)
        for _ in range(8):
            none = (add @ np.log1p(-theta))[np.maximum(self.families, 0)]
            theta = np.clip(mean * -np.expm1(none), 1e-4 * mean, 0.98)
        return theta


class States(NamedTuple):
    """Families of several items with equally many states, ``each``: from family ``first`` to ``end``, and their first state."""

    first: int
    end: int
    state: int
    each: int

    @classmethod
    def of(cls, patterns: Patterns | None, n_families: int) -> tuple[States, ...]:
        """Return the blocks of patterns whose families are ordered as by :func:`find_patterns`; those of single items have one state."""
        if patterns is None:
            return (cls(0, n_families, 0, 1),)
        counts = np.bincount(patterns.states, minlength=n_families)
        edges = np.concatenate([[0], np.flatnonzero(np.diff(counts)) + 1, [n_families]])
        begins = np.concatenate([[0], np.cumsum(counts)])
        return tuple(cls(int(a), int(b), int(begins[a]), int(counts[a])) for a, b in pairwise(edges))

    @property
    def states(self) -> slice:
        """The states of these families."""
        return slice(self.state, self.state + (self.end - self.first) * self.each)


class Sets(NamedTuple):
    """Pairs of a basket and a family of several items, in which the items of the pair are found in some of the states.

    ``items`` are those of all pairs, and ``pair`` says of which.
    """

    block: States
    owner: Tensor
    family: Tensor
    items: Tensor
    pair: Tensor


class PackedFamilies(NamedTuple):
    """Touched families as baskets, and the sets of items of families of several items, by their number of states."""

    families: PackedBaskets
    sets: tuple[Sets, ...]


class FamilyData(NamedTuple):
    """Baskets as the families that they touch, and the sets of items of families of several items: ``first`` is that of each basket.

    ``start`` says where the items of each set begin in ``items``.
    """

    touched: Baskets
    n_single: int
    blocks: tuple[States, ...]
    first: IntArray
    family: IntArray
    start: IntArray
    items: IntArray

    @classmethod
    def of(cls, patterns: Patterns | None, baskets: Baskets) -> FamilyData:
        """Return the data of many baskets; families of one item must come first. Without patterns every item is one."""
        if patterns is None:
            none, begin = np.zeros(0, np.int64), np.zeros(len(baskets) + 1, np.int64)
            every = Orders(baskets, weights=baskets.weights)
            return cls(every, baskets.n_items, States.of(None, baskets.n_items), begin, none, begin[:1], none)
        pairs = patterns.touched(baskets)
        n_single = int((np.bincount(patterns.families, minlength=patterns.n_families) == 1).sum())
        ends = np.cumsum(np.bincount(pairs.baskets, minlength=len(baskets)))
        touched = Baskets._trusted(np.concatenate([[0], ends]), pairs.families, patterns.n_families, None)
        several = pairs.families >= n_single
        first = np.searchsorted(pairs.baskets[several], np.arange(len(baskets) + 1))
        counts = np.diff(np.append(pairs.first, len(pairs.items)))
        start = np.concatenate([[0], np.cumsum(counts[several])])
        items = pairs.items[np.repeat(several, counts)]
        blocks = States.of(patterns, patterns.n_families)
        counted = Orders(touched, weights=baskets.weights)
        return cls(counted, n_single, blocks, first, pairs.families[several], start, items)

    def pack(self, which: IntArray, like: Tensor) -> PackedFamilies:
        """Return some of the baskets as a batch on the device of ``like``."""
        order = which[np.argsort(self.touched.sizes[which], kind="stable")]
        families = pack(self.touched, order, device=like.device, multiple=tied.MULTIPLE)
        counts = self.first[order + 1] - self.first[order]
        rows = _ranges(self.first[order], counts)
        owner, family = np.repeat(np.arange(len(order)), counts), self.family[rows]
        sets = []
        for block in self.blocks:
            own = np.flatnonzero((family >= max(block.first, self.n_single)) & (family < block.end))
            if not len(own):
                continue
            sizes = self.start[rows[own] + 1] - self.start[rows[own]]
            parts = owner[own], family[own] - block.first, self.items[_ranges(self.start[rows[own]], sizes)]
            pair = np.repeat(np.arange(len(own)), sizes)
            sets.append(Sets(block, *(torch.from_numpy(one).to(like.device) for one in (*parts, pair))))
        return PackedFamilies(families, tuple(sets))

    def states(self, patterns: Patterns) -> Baskets:
        """Return the baskets as sets of states: of each family that is touched, the one in which its items are most probable."""
        ids = self.touched.indices.copy()
        if len(self.items):
            slots, totals = patterns.slots[self.family], np.append(np.log(np.expm1(patterns.log_totals)), np.inf)
            log_q = np.add.reduceat(patterns.log_odds[self.items], self.start[:-1], axis=0)
            log_q = np.where(slots < len(patterns.states), log_q, -np.inf) - totals[slots]
            ids[ids >= self.n_single] = slots[np.arange(len(slots)), log_q.argmax(axis=1)]
        made = Baskets._trusted(self.touched.indptr.copy(), ids, len(patterns.states), None)
        return Orders(made, weights=self.touched.weights)


def _ranges(first: IntArray, counts: IntArray) -> IntArray:
    """Return first_i, first_i + 1, … for counts_i numbers each, one after the other."""
    ends = np.cumsum(counts)
    return np.asarray(np.repeat(first - ends + counts, counts) + np.arange(counts.sum()))
