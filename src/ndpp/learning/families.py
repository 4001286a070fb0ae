"""Families of items found in baskets, and the training of a mixture over them.

Items that often come together become families of bounded size (:func:`find_families`), and the sets of items in which each comes are
summed up by a few states (:func:`find_patterns`). A mixture is then learned as without families, with states in place of items and ties
between families: with q_s(S_g) the probability of a non-empty set of items in state s, and states s with log-odds b_s + a_c + u_s·z_c,

    P(S) = G(A) Σ_c (π_c / Z_c) Π_{g∈A} Σ_{s of g} Δ_cs q_s(S_g).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from ndpp._stop import look
from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.baskets.orders import Orders
from ndpp.laws.patterns import Patterns
from ndpp.learning import tied
from ndpp.learning.batches import PackedBaskets, pack
from ndpp.linalg.logs import shares
from ndpp.metrics.models import cosines

MAX_FAMILY, N_STATES = 20, 6
"""Most items of a family, and its states if it has more than one item."""
LEAST_LIKENESS, EXTRA = 0.08, 5.0
"""Least mean cosine of the items of a family, and what is added to the counts of items, so that rare ones do not look alike by chance."""
ROUNDS, SMOOTH, MAX_SETS = 15, 2.0, 3000
"""Rounds of EM for the states of a family, the number of average sets added to those of each state, and most sets to learn from."""
MAX_ENTRIES = 100_000
"""Occurrences of items whose states are found at a time."""
MAX_PAIRS = 10**8
"""Most pairs of items that are counted, with repeats; beyond that, families are found in a part of the baskets."""


def find_families(rng: np.random.Generator, baskets: Baskets) -> IntArray:
    """Return the family of each item, 0..F−1: average linkage of the cosines of items, in rounds that merge mutual best neighbours."""
    order = rng.permutation(len(baskets))
    baskets = baskets[np.sort(order[np.cumsum(baskets.sizes[order].astype(float) ** 2) <= MAX_PAIRS])]
    likeness = cosines(baskets, extra=EXTRA, weights=baskets.weights)
    likeness.data[likeness.data < LEAST_LIKENESS / MAX_FAMILY] = 0.0
    likeness.eliminate_zeros()
    families = np.arange(baskets.n_items)
    while True:
        look()
        n = families.max() + 1
        sizes = np.bincount(families, minlength=n)
        groups = sparse.csr_array(
            (np.ones(len(families)), (np.arange(len(families)), families)), shape=(len(families), n)
        )
        between = sparse.coo_array(groups.T @ likeness @ groups)
        mean = between.data / (sizes[between.row] * sizes[between.col])
        small = sizes[between.row] + sizes[between.col] <= MAX_FAMILY
        fits = (between.row != between.col) & small & (mean >= LEAST_LIKENESS)
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
    """Return families, renumbered so that those of one item come first, and states of the others by EM on the sets in which they come."""
    sizes = np.bincount(families)
    rank = np.empty(len(sizes), np.int64)
    rank[np.argsort(sizes > 1, kind="stable")] = np.arange(len(sizes))
    families = rank[families]
    n_single = int((sizes == 1).sum())
    states = np.concatenate([np.arange(n_single), np.repeat(np.arange(n_single, len(sizes)), N_STATES)])
    odds = np.zeros((len(families), N_STATES))
    odds[:, 0] = 1.0
    plain = Patterns(families, states, odds, len(sizes))
    columns, several, weights = baskets.to_csr().tocsc(), plain.members[n_single:], baskets.weights
    for size in np.unique(sizes[sizes > 1]):
        group = np.array([members for members in several if len(members) == size])
        counts = np.diff(columns.indptr)[group].sum(axis=1)
        for part in np.split(group, np.flatnonzero(np.diff(np.cumsum(counts) // MAX_ENTRIES)) + 1):
            look()
            sets, owner, touched = _sets(rng, columns, part)
            own = np.ones(len(sets)) if weights is None else weights[touched]
            odds[part] = _states(rng, sets, owner, own, part.shape)
    return plain.with_odds(odds)


def _sets(
    rng: np.random.Generator, columns: sparse.csc_array, group: IntArray
) -> tuple[FloatArray, IntArray, IntArray]:
    """Return the non-empty sets of families of one size in baskets, the CSC array ``columns``, as rows of zeros and ones.

    Their families and their baskets come with them. ``group`` (families, size) holds the items. Of families with
    more than ``MAX_SETS`` sets, a random ``MAX_SETS`` are kept.
    """
    part, size = columns[:, group.ravel()], group.shape[1]
    column = np.repeat(np.arange(group.size), np.diff(part.indptr))
    touched, row = np.unique(column // size * part.shape[0] + part.indices, return_inverse=True)
    sets, (owner, basket) = np.zeros((len(touched), size)), np.divmod(touched, part.shape[0])
    sets[row, column % size] = 1.0
    order = np.lexsort([rng.random(len(owner)), owner])
    kept = order[np.arange(len(owner)) - np.searchsorted(owner, owner) < MAX_SETS]
    return sets[kept], owner[kept], basket[kept]


def _states(
    rng: np.random.Generator, sets: FloatArray, owner: IntArray, weights: FloatArray, shape: tuple[int, ...]
) -> FloatArray:
    """Return the odds (families, items, states) of independent items, given that there is one, in each state of a mixture of the sets."""
    n_families, m = shape
    counts = np.bincount(owner, minlength=n_families)
    ends = np.cumsum(counts)
    add = sparse.csr_array(
        (weights, np.arange(len(owner)), np.concatenate([[0], ends])), shape=(n_families, len(owner))
    )
    average = ((add @ sets + 0.5) / (add.sum(axis=1)[:, None] + 0.5 * m))[:, :, None]
    seeds = np.ones((n_families, m, N_STATES))
    chosen = (ends - counts)[:, None] + (rng.random((n_families, N_STATES)) * counts[:, None]).astype(np.int64)
    seeds[counts > 0] = sets[chosen[counts > 0]].swapaxes(1, 2)
    chances = np.clip(0.7 * seeds + 0.3 * average, 0.01, 0.95)
    share = np.full((n_families, N_STATES), 1 / N_STATES)
    for _ in range(ROUNDS):
        odds = chances / (1 - chances)
        constants = np.log(share) - np.log(np.expm1(np.log1p(odds).sum(axis=1)))
        member = shares(np.einsum("ti,tis->ts", sets, np.log(odds)[owner]) + constants[owner])
        total = add @ member
        share = (total + 1) / (total + 1).sum(axis=1, keepdims=True)
        sums = add @ (sets[:, :, None] * member[:, None, :]).reshape(len(sets), m * N_STATES)
        mean = (sums.reshape(chances.shape) + SMOOTH * average) / (total[:, None] + SMOOTH)
        chances = _untruncated(np.clip(mean, 1e-6, 0.999))
    return np.asarray(chances / (1 - chances))


def _untruncated(mean: FloatArray) -> FloatArray:
    """Return chances of independent items, on the second axis, that have these means given that one comes: θ = mean · (1 − Π(1 − θ))."""
    theta = 0.9 * mean
    for _ in range(8):
        theta = np.clip(mean * -np.expm1(np.log1p(-theta).sum(axis=1, keepdims=True)), 1e-4 * mean, 0.98)
    return theta


class PackedFamilies(NamedTuple):
    """Touched families as baskets, and, for pairs of a basket and a family of several items, log q of the set in each state."""

    families: PackedBaskets
    owner: Tensor
    family: Tensor
    log_q: Tensor


class FamilyData(NamedTuple):
    """Baskets as the families that they touch. Pairs are those of a basket and a family of several items, counted from the first such."""

    touched: Baskets
    n_single: int
    first: IntArray
    family: IntArray
    log_q: FloatArray

    @property
    def n_states(self) -> int:
        """The number of states of a family of several items."""
        return int(self.log_q.shape[1])

    @classmethod
    def of(cls, patterns: Patterns | None, baskets: Baskets) -> FamilyData:
        """Return the data of many baskets; families of one item must come first. Without patterns every item is one."""
        if patterns is None:
            nothing, items = np.zeros(0, np.int64), Orders(baskets, weights=baskets.weights)
            return cls(items, baskets.n_items, np.zeros(len(baskets) + 1, np.int64), nothing, np.zeros((0, 1)))
        touched = patterns.touched(baskets)
        n_single = int((np.bincount(patterns.families, minlength=patterns.n_families) == 1).sum())
        ends = np.cumsum(np.bincount(touched.baskets, minlength=len(baskets)))
        families = Baskets._trusted(np.concatenate([[0], ends]), touched.families, patterns.n_families, None)
        families = Orders(families, weights=baskets.weights)
        several = touched.families >= n_single
        own, log_q = touched.families[several], touched.sums(patterns.log_odds)[several]
        log_q -= np.log(np.expm1(patterns.log_totals))[patterns.slots[own]]
        first = np.searchsorted(touched.baskets[several], np.arange(len(baskets) + 1))
        return cls(families, n_single, first, own - n_single, log_q)

    def pack(self, which: IntArray, like: Tensor) -> PackedFamilies:
        """Return some of the baskets as a batch on the device of ``like``."""
        order = which[np.argsort(self.touched.sizes[which], kind="stable")]
        families = pack(self.touched, order, device=like.device, multiple=tied.MULTIPLE)
        counts = self.first[order + 1] - self.first[order]
        rows = np.repeat(self.first[order] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        owner = torch.from_numpy(np.repeat(np.arange(len(order)), counts)).to(like.device)
        family, log_q = (torch.from_numpy(array[rows]).to(like.device) for array in (self.family, self.log_q))
        return PackedFamilies(families, owner, family, log_q.to(like.dtype))

    def states(self, patterns: Patterns) -> Baskets:
        """Return the baskets as sets of states: of each family that is touched, the one in which its items are most probable."""
        ids = self.touched.indices.copy()
        ids[ids >= self.n_single] = self.n_single + self.family * self.n_states + self.log_q.argmax(axis=1)
        made = Baskets._trusted(self.touched.indptr.copy(), ids, len(patterns.states), None)
        return Orders(made, weights=self.touched.weights)
