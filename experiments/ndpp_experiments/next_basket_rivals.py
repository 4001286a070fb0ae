"""Baskets of known customers, the measures of a recommended list, and the methods of the literature that are compared in ``next_basket``.

TIFU-KNN is of [Hu, He, Gao and Zhang, *Modeling personalized item frequency information for next-basket recommendation*, SIGIR 2020],
UP-CF@r of [Faggioli, Polato and Aiolli, *Recency aware collaborative filtering for next basket recommendation*, UMAP 2020]; both are
written from the formulas of these papers, and tuned over their grids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ndpp._types import AnyArray, BoolArray, FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.baskets.orders import Orders

MIN_BASKETS = 3
"""Customers with fewer baskets are not predicted; all their baskets are for training."""
AT_A_TIME = 1500
"""Customers whose scores are in memory at a time."""
EVER = 10**6
"""More baskets than any customer has."""
Settings = dict[str, Any]
Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, eq=False)
class Histories:
    """The last basket of each customer, which is to be predicted, and the baskets before it.

    ``train`` are all baskets but the last ones, customer by customer, oldest first: ``counts`` of each customer, and then those of
    customers who are not predicted. Half of the customers are for validation, the others are for testing; in a public split, others still
    are for training: all their baskets are in ``train``, and ``last`` has one of them.
    """

    train: Baskets
    counts: IntArray
    last: Baskets
    validation: IntArray
    test: IntArray
    names: AnyArray
    orders: Orders
    """The orders of ``train``, in order of time."""

    @classmethod
    def of(cls, orders: Orders, *, rng: int, most: int | None = None) -> Histories:
        """Divide orders; ``most`` is the largest number of validation customers to use."""
        assert orders.customers is not None
        names, customers = np.unique(orders.customers, return_inverse=True)
        counts = np.bincount(customers)
        is_few = counts < MIN_BASKETS
        order = np.lexsort((np.arange(len(customers)), customers, is_few[customers]))
        baskets, customers = orders.baskets[order], customers[order]
        is_last = np.append(customers[1:] != customers[:-1], True) & ~is_few[customers]
        drawn = np.random.default_rng(rng).permutation(np.count_nonzero(~is_few))
        half = len(drawn) // 2
        validation, test = np.sort(drawn[: half if most is None else min(half, most)]), np.sort(drawn[half:])
        return cls(
            baskets[~is_last], counts[~is_few] - 1, baskets[is_last], validation, test, names[~is_few], orders[np.sort(order[~is_last])]
        )  # fmt: skip

    @property
    def n_items(self) -> int:
        """Number of items in the catalogue."""
        return self.train.n_items

    @cached_property
    def customer(self) -> IntArray:
        """The customer of each training basket."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def age(self) -> IntArray:
        """How many baskets of its customer came after each training basket."""
        return np.asarray(np.cumsum(self.counts)[self.customer] - 1 - np.arange(len(self.customer)))

    @cached_property
    def matrix(self) -> Any:
        """Zeros and ones, a row per basket of ``customer``."""
        baskets = self.train[: len(self.customer)]
        ones = np.ones(len(baskets.indices), np.float32)
        return sparse.csr_array((ones, baskets.indices, baskets.indptr), shape=(len(baskets), self.n_items))

    @cached_property
    def popularity(self) -> FloatArray:
        """The share of the training baskets that contain each item."""
        return np.bincount(self.train.indices, minlength=self.n_items) / len(self.train)

    @cached_property
    def bought(self) -> Any:
        """Which items each customer has bought before, as zeros and ones."""
        return (self.weighted(np.ones(len(self.customer))) > 0).astype(np.float32)

    def by_customer(self, weights: AnyArray) -> Any:
        """Return a matrix that adds up rows of baskets, times their weights, for each customer."""
        n = len(self.customer)
        entries = (np.asarray(weights, np.float32), (self.customer, np.arange(n)))
        return sparse.csr_array(entries, shape=(len(self.counts), n))

    def weighted(self, weights: AnyArray) -> Any:
        """Return Σ weight · basket over the baskets of each customer, a sparse matrix (customers, items)."""
        return self.by_customer(weights) @ self.matrix


# -- measures ----------------------------------------------------------------------------------------------------------------


class Measures(NamedTuple):
    """Of each customer who is counted: recall, NDCG, and whether there is a hit among the first k."""

    recall: FloatArray
    ndcg: FloatArray
    hit: FloatArray


def measured(ranked: IntArray, wanted: BoolArray, k: int) -> Measures:
    """Return the measures of the first k of ranked items, (customers, k); customers of whom no item is wanted are left out.

    Examples
    --------
    >>> ranked, wanted = np.array([[2, 0, 1]]), np.array([[False, True, True, True]])
    >>> [value.round(3).tolist() for value in measured(ranked, wanted, 2)]
    [[0.333], [0.613], [1.0]]
    """
    some = wanted.any(axis=1)
    found = np.take_along_axis(wanted[some], ranked[some, :k], axis=1)
    sizes = wanted[some].sum(axis=1)
    gains = 1 / np.log2(np.arange(2, k + 2))
    ideal = np.cumsum(gains)[np.minimum(sizes, k) - 1]
    values = found.sum(axis=1) / sizes, found @ gains[: found.shape[1]] / ideal, found.any(axis=1)
    return Measures(*(np.asarray(value, np.float64) for value in values))


Scores = Callable[..., FloatArray]
"""``scores(histories, users, **settings)``: of some customers and all items; the larger, the sooner an item is listed."""


def in_parts(users: IntArray) -> Iterator[IntArray]:
    """Yield some customers at a time."""
    return (users[start : start + AT_A_TIME] for start in range(0, len(users), AT_A_TIME))


def tuned(
    scores: Scores, histories: Histories, grid: Grid, start: Settings, users: IntArray
) -> tuple[Settings, float, int]:
    """Return the settings of the largest recall@10 + NDCG@10 found, that value, and how many were tried.

    The search goes through the settings in turn and takes the best value of each in its grid, the others being as they are, until none
    changes.
    """
    seen: dict[tuple[Any, ...], float] = {}

    def value(settings: Settings) -> float:
        key = tuple(settings.values())
        if key not in seen:
            parts = [_first(scores, histories, part, settings) for part in in_parts(users)]
            seen[key] = sum(parts) / len(users)
        return seen[key]

    best, changed = dict(start), True
    while changed:
        changed = False
        for name, values in grid.items():
            found = max(values, key=lambda each: value({**best, name: each}))
            if value({**best, name: found}) > value(best):
                best[name], changed = found, True
    return best, value(best), len(seen)


def _first(scores: Scores, histories: Histories, users: IntArray, settings: Settings) -> float:
    found = measured(best_ids(scores(histories, users, **settings), 10), wanted(histories.last, users), 10)
    return float(found.recall.sum() + found.ndcg.sum())


def best_ids(scores: FloatArray, k: int) -> IntArray:
    """Return the k items with the largest scores, best first; of equal scores the smaller id comes first."""
    k = min(k, scores.shape[1])
    least = -np.partition(-scores, k - 1, axis=1)[:, k - 1 : k]
    found = np.empty((len(scores), k), np.int64)
    for row, (values, bound) in enumerate(zip(scores, least)):
        near = np.flatnonzero(values >= bound[0])
        found[row] = near[np.argsort(-values[near], kind="stable")[:k]]
    return found


def wanted(last: Baskets, users: IntArray) -> BoolArray:
    """Return which items are in the last baskets of some customers."""
    found = np.zeros((len(users), last.n_items), bool)
    for row, user in enumerate(users):
        found[row, last[int(user)]] = True
    return found


# -- methods -----------------------------------------------------------------------------------------------------------------


def bestsellers(histories: Histories, users: IntArray) -> FloatArray:
    """Return the share of all training baskets that contain an item (G-TopFreq)."""
    return np.broadcast_to(histories.popularity, (len(users), histories.n_items))


def own_bestsellers(histories: Histories, users: IntArray) -> FloatArray:
    """Return the share of the customer's own baskets that contain an item (P-TopFreq)."""
    return np.asarray(histories.weighted(1 / histories.counts[histories.customer])[users].toarray(), np.float64)


def both(histories: Histories, users: IntArray) -> FloatArray:
    """Return own bestsellers first, those bought equally often and those never bought in order of popularity (GP-TopFreq)."""
    return own_bestsellers(histories, users) + 1e-6 * bestsellers(histories, users)


TIFU_KNN: Grid = {
    "groups": (3, 7, 11, 15, 19, 23), "within": tuple(np.round(np.arange(0.1, 1.01, 0.1), 1)),
    "between": tuple(np.round(np.arange(0.1, 1.01, 0.1), 1)), "neighbours": (100, 300, 500, 700, 900, 1100, 1300),
    "own": tuple(np.round(np.arange(0.0, 1.01, 0.1), 1)),
}  # fmt: skip
"""The grid of the paper."""
TIFU_KNN_START: Settings = {"groups": 7, "within": 0.9, "between": 0.7, "neighbours": 300, "own": 0.7}


def group_weights(counts: IntArray, groups: int, within: float, between: float) -> FloatArray:
    """Return the weight of each basket in the vector of its customer.

    The baskets of a customer are divided into ``groups`` of nearly equal size, of which the later ones may have one more, and one group per
    basket if there are fewer. A vector is the mean over groups g of ``between`` to the power of the number of later groups, times the mean
    over the baskets of g of ``within`` to the power of the number of later baskets in g.

    Examples
    --------
    >>> group_weights(np.array([3]), 2, 0.5, 0.1).tolist()
    [0.05, 0.125, 0.25]
    """
    of_count: dict[int, FloatArray] = {}
    for count in np.unique(counts).tolist():
        n = min(groups, count)
        sizes = np.full(n, count // n)
        sizes[n - count % n :] += 1
        each = [within ** np.arange(size)[::-1] / size * between ** (n - 1 - g) / n for g, size in enumerate(sizes)]
        of_count[count] = np.concatenate(each)
    return np.concatenate([of_count[count] for count in counts.tolist()])


def tifu_knn(
    histories: Histories, users: IntArray, *, groups: int, within: float, between: float, neighbours: int, own: float
) -> FloatArray:
    """Return ``own`` times the vector of the customer plus 1 − ``own`` times the mean over the nearest other customers."""
    nearest = _nearest(histories, users.tobytes(), groups, within, between)[:, :neighbours]
    vectors = _vectors(histories, groups, within, between)
    rows = np.repeat(np.arange(len(users)), nearest.shape[1])
    shares = np.full(nearest.size, 1 / max(1, nearest.shape[1]), np.float32)
    mean = sparse.csr_array((shares, (rows, nearest.ravel())), shape=(len(users), len(histories.counts))) @ vectors
    return np.asarray((own * vectors[users] + (1 - own) * mean).toarray(), np.float64)


@lru_cache(1)
def _vectors(histories: Histories, groups: int, within: float, between: float) -> Any:
    return histories.weighted(group_weights(histories.counts, groups, within, between))


@lru_cache(4)
def _nearest(histories: Histories, chosen: bytes, groups: int, within: float, between: float) -> IntArray:
    """Return the other customers, nearest first by the Euclidean distance of vectors; the last of them are left out."""
    users, vectors = np.frombuffer(chosen, np.int64), _vectors(histories, groups, within, between)
    squares = np.asarray(vectors.multiply(vectors).sum(axis=1)).ravel()
    distances = squares - 2 * (vectors[users] @ vectors.T).toarray()
    distances[np.arange(len(users)), users] = np.inf
    most = min(max(TIFU_KNN["neighbours"]), len(squares) - 1)
    near = np.argpartition(distances, most - 1, axis=1)[:, :most]
    return np.take_along_axis(near, np.argsort(np.take_along_axis(distances, near, 1), axis=1, kind="stable"), 1)


UP_CF: Grid = {
    "recent": (1, 5, 10, 25, 50, 100, EVER), "asymmetry": (0.0, 0.25, 0.5, 0.75, 1.0), "locality": (1, 5, 10, 50, 100, 1000),
    "similar_by": ("items", "frequencies"),
}  # fmt: skip
"""The grid of the paper, and whether customers are similar by what they have bought (as there) or also by how often."""
UP_CF_START: Settings = {"recent": 25, "asymmetry": 0.75, "locality": 10, "similar_by": "items"}


def up_cf(
    histories: Histories, users: IntArray, *, recent: int, asymmetry: float, locality: int, similar_by: str
) -> FloatArray:
    """Return Σ_v (u·v / |u|^(2α) |v|^(2−2α))^q f_v over all customers v, where f is the share of the last ``recent`` baskets."""
    shares = np.where(histories.age < recent, 1 / np.minimum(recent, histories.counts)[histories.customer], 0.0)
    frequencies = histories.weighted(shares)
    rows = histories.bought if similar_by == "items" else frequencies
    squares = np.maximum(np.asarray(rows.multiply(rows).sum(axis=1)).ravel(), 1e-30)
    products = np.asarray((rows[users] @ rows.T).toarray(), np.float64)
    similar = products / (squares[users, None] ** asymmetry * squares ** (1 - asymmetry))
    top = similar.max(axis=1, keepdims=True)  # the order of items is the same, and no power underflows
    return np.asarray((similar / np.where(top > 0, top, 1.0)) ** locality @ frequencies)
