"""Complements and substitutes: what goes with an item, and what is taken instead of it.

Two items meet in P(a, b) of all baskets. This would be E(a, b) if items were independent within missions, and P(a)P(b) if they were in all:

    P(a, b) = E(a, b) + Σ_c w_c Cov_c(a, b),    E(a, b) = Σ_c w_c P_c(a)P_c(b).

So the lift P(a, b) / P(a)P(b) is a product of E(a, b) / P(a)P(b), by missions, and P(a, b) / E(a, b), by ties.

**Complements** are together more often than chance, whether a mission or a tie is the reason. On large trips everything meets everything:
the missions of a have baskets m(a) = Σ_c w_c P_c(a)n_c / P(a)n times as large as the mean, with n_c and n the mean sizes. Of the lift
this explains s(a, b) = max(1, m(a)m(b) / m), where m is the mean of m(a) over the items of baskets. Complements have a lift of at least
1.1 s(a, b); they are ordered by the correlation of the two items beyond it, (P(a, b) − s(a, b)P(a)P(b)) / σ(a)σ(b), where σ(a)² =
P(a)(1 − P(a)). Lift alone would favour rare items, and covariance popular ones.

**Substitutes** belong to the same missions, and yet are seldom together. At least a fifth of the baskets that missions let them share is
missing, P(a, b) ≤ ⅘ E(a, b), and this is much for items so alike: E(a, b) − P(a, b) ≥ √(E(a, a)E(b, b)) / 10. The root is what items
share that have all missions in common. A high lift makes no substitute, whatever the missions: it is 4 at most. Substitutes are ordered by
the correlation that ties make, Σ_c w_c Cov_c(a, b) / σ(a)σ(b). A pair is in one list: substitutes are no complements, although a mission
may bring them together. Where it is known that the model was fitted to N baskets, so many must be missing that chance would not explain it,
N (E(a, b) − P(a, b)) ≥ 3 √(N E(a, b)): what is said of rare items is not noise.

A kernel is one mission: E(a, b) = P(a)P(b), s = 1, and from the marginal kernel K = L(I + L)⁻¹, P(a, b) − P(a)P(b) = −K_ab K_ba. Items are
complements if K_ab and K_ba have opposite signs, which only a nonsymmetric kernel allows, and substitutes if the signs agree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.answers.prepared import Prepared
from ndpp.answers.records import Item, Pairs, Related, Relation
from ndpp.errors import ZeroProbabilityError

MOST_POPULAR = 1000
"""Items whose pairs are searched, unless told otherwise; the search takes the square of their number."""
COMPLEMENT_LIFT = 1.1
"""Complements are together at least this many times as often as chance and the sizes of baskets explain."""
MISSING = 0.2
"""The least part of the baskets that missions let substitutes share that is missing."""
ALIKE = 0.1
"""The least part that is missing of those baskets that items of the same missions would share."""
SURE = 3.0
"""Standard deviations of the number of baskets that missions let substitutes share, of which at least so many are missing."""
SUBSTITUTE_LIFT = 4.0
"""The largest lift of substitutes."""
MIN_CORRELATION = 1e-12
"""Smaller correlations are rounding errors."""
CHUNK_PAIRS = 2_000_000
"""Number of pairs in memory at a time."""


def related(model: object, item: Item, *, n: int = 10, popular: int | None = None, ids: bool = False) -> Related:
    """Return up to ``n`` complements and substitutes of an item, of the ``popular`` most popular items if given.

    O(n_items · r), times C for a mixture of C components.

    Examples
    --------
    >>> from ndpp import LowRankKernel
    >>> L = [[0.5, 0.8, 0.48], [-0.8, 0.5, 0.0], [0.48, 0.0, 0.5]]
    >>> kernel = LowRankKernel(np.eye(3), L, labels=["bread", "butter", "rolls"])
    >>> related(kernel, "bread", n=2).to_frame()[["kind", "other", "lift", "together"]].round(2)
             kind   other  lift  together
    0  complement  butter  1.42      0.31
    1  substitute   rolls  0.73      0.09
    """
    own, n = Prepared.of(model), check_count(n, "n", least=1)
    (a,) = own.ids([item], "item").tolist()
    if own.law.popularity[a] == 0:
        raise ZeroProbabilityError(f"item {own.names([a])[0]!r} never occurs, so it has no complements or substitutes")
    others = _occurring(own, popular)
    found = _strongest(own, np.array([a]), np.r_[a, others[others != a]], n)
    return Related(
        own.names([a], ids=ids)[0], min(float(own.law.popularity[a]), 1.0), *_relations(own, [found], n, ids=ids)
    )


def pairs(model: object, *, n: int = 10, popular: int = MOST_POPULAR, ids: bool = False) -> Pairs:
    """Return up to ``n`` pairs of complements and of substitutes among the m = ``popular`` most popular items.

    O(m² r), times C for a mixture of C components.

    Examples
    --------
    >>> from ndpp.datasets import shelf_kernel
    >>> [(pair.item, pair.other) for pair in pairs(shelf_kernel(), n=2).complements]
    [('bread', 'butter'), ('pasta', 'tomato sauce')]
    """
    own, n = Prepared.of(model), check_count(n, "n", least=1)
    items = _occurring(own, popular)
    step = max(1, CHUNK_PAIRS // max(1, len(items)))
    parts = [_strongest(own, items[at : at + step], items[at:], n) for at in range(0, len(items), step)]
    return Pairs(min(popular, own.law.n_items), *_relations(own, parts, n, ids=ids))


def _occurring(own: Prepared, popular: int | None) -> IntArray:
    """Return the items of positive probability, or only the ``popular`` most popular ones if a number is given."""
    p = own.law.popularity
    least = 0.0 if popular is None else np.sort(p)[-min(check_count(popular, "popular", least=1), len(p))]
    return np.flatnonzero((p > 0) & (p >= least))


class PairsOfKind(NamedTuple):
    """Pairs of one kind: their items, P(a, b), and the correlations that order them."""

    first: IntArray
    second: IntArray
    together: FloatArray
    correlation: FloatArray

    def best(self, n: int) -> PairsOfKind:
        """Return the n pairs of the largest absolute correlations."""
        order = np.argsort(-np.abs(self.correlation), kind="stable")[:n]
        return PairsOfKind(self.first[order], self.second[order], self.together[order], self.correlation[order])


def _correlations(own: Prepared, block: IntArray, others: IntArray, ties: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return P(a, b) of all pairs, and the correlations by which complements and substitutes are ordered, 0 for other pairs.

    ``ties`` are what ties make of the covariances.
    """
    p, table = own.law.popularity, own.law.inclusion_table
    weighted = table[block] * (own.law.weights / own.law.kept)
    # A copy of many rows takes longer than the product.
    few = (8 if len(block) == 1 else 2) * len(others) < own.law.n_items
    expected = weighted @ table[others].T if few else (weighted @ table.T)[:, others]
    ties = np.maximum(ties, -expected)
    together, apart = expected + ties, np.outer(p[block], p[others])
    by_sizes = apart * np.maximum(np.outer(own.crowd[block], own.crowd[others]), 1.0)
    spread = np.sqrt(np.maximum(p * (1 - p), 0.0))
    scale = np.outer(spread[block], spread[others])
    same = np.sqrt(np.outer(own.recurrence[block], own.recurrence[others]))
    attract = together >= COMPLEMENT_LIFT * by_sizes
    avoid = (together <= (1 - MISSING) * expected) & (-ties >= ALIKE * same) & (together <= SUBSTITUTE_LIFT * apart)
    if own.orders is not None:
        avoid &= own.orders * (expected - together) ** 2 >= SURE**2 * expected
    pairs = np.stack([attract & ~avoid, avoid]) & (scale > 0)
    return together, np.divide([together - by_sizes, ties], scale, out=np.zeros(pairs.shape), where=pairs)


def _strongest(own: Prepared, block: IntArray, others: IntArray, n: int) -> tuple[PairsOfKind, PairsOfKind]:
    """Return n complements and n substitutes: pairs of an item of ``block`` and a later one of ``others``, which begins with the block."""
    ties = own.law.mean_covariances(block, others)
    together, correlations = _correlations(own, block, others, ties)
    rows, columns = np.triu_indices(len(block), 1, len(others))  # each pair once
    found = []
    for correlation in correlations[:, rows, columns]:
        chosen = np.flatnonzero(np.abs(correlation) > MIN_CORRELATION)
        row, column = rows[chosen], columns[chosen]
        found.append(PairsOfKind(block[row], others[column], together[row, column], correlation[chosen]).best(n))
    return found[0], found[1]


def _relations(
    own: Prepared, parts: list[tuple[PairsOfKind, PairsOfKind]], n: int, *, ids: bool
) -> list[tuple[Relation, ...]]:
    """Return the n strongest complements and substitutes of all parts as records."""
    kinds, none = [], PairsOfKind(*(np.empty(0, kind) for kind in (int, int, float, float)))
    for kind, columns in zip(("complement", "substitute"), zip(*parts) if parts else ((none,), (none,))):
        a, b, together, correlation = PairsOfKind(*map(np.concatenate, zip(*columns))).best(n)
        expected = (own.law.inclusion_table[a] * own.law.inclusion_table[b]) @ (own.law.weights / own.law.kept)
        apart = own.law.popularity[a] * own.law.popularity[b]
        numbers = together / apart, expected / apart, together / expected, together.clip(max=1.0), correlation
        names = own.names(a, ids=ids), own.names(b, ids=ids)
        rows = zip(*names, *(column.tolist() for column in numbers))
        kinds.append(tuple(Relation(kind, *row) for row in rows))
    return kinds
