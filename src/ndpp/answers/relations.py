"""Complements and substitutes.

For a kernel all of it follows from the marginal kernel K = L(I + L)⁻¹ = Q B(I + B)⁻¹ Qᵀ:

    P(a) = K_aa        P(a, b) = K_aa K_bb − K_ab K_ba        P(a, b) − P(a)P(b) = −K_ab K_ba

Items **attract** each other, and are called complements, if K_ab and K_ba have opposite signs, which only a nonsymmetric
kernel allows; they **repel** each other, and are called substitutes, if the signs agree. Pairs are ranked by the
correlation of the indicators of the two items, −K_ab K_ba / √(P(a)(1 − P(a)) P(b)(1 − P(b))): lift would favour rare
items, and covariance popular ones.

In a mixture, two items may also meet because the same missions contain them, as everything does that is bought on large trips. This part
of their lift is Σ_c w_c P_c(a)P_c(b) / P(a)P(b); the rest is due to ties. Complements and substitutes are pairs with ties: they are ranked
by the mean of the covariances inside the components, Σ_c w_c Cov_c(a, b), in place of −K_ab K_ba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.answers.prepared import Prepared
from ndpp.answers.records import Item, Pairs, Related, Relation
from ndpp.errors import ZeroProbabilityError

MOST_POPULAR = 1000
"""Items whose pairs are searched, unless told otherwise; the search takes the square of their number."""
MIN_CORRELATION = 1e-12
"""Smaller correlations are rounding errors."""
CHUNK_PAIRS = 2_000_000
"""Number of pairs in memory at a time."""


def related(model: Any, item: Item, *, n: int = 10, popular: int | None = None, ids: bool = False) -> Related:
    """Return up to ``n`` complements and substitutes of an item, of the ``popular`` most popular items if given.

    O(n_items · r), times C for a mixture of C components.

    Examples
    --------
    >>> from ndpp import LowRankKernel
    >>> L = [[0.5, 0.8, 0.4], [-0.8, 0.5, 0.0], [0.4, 0.0, 0.5]]
    >>> kernel = LowRankKernel(np.eye(3), L, labels=["bread", "butter", "rolls"])
    >>> related(kernel, "bread", n=2).to_frame()[["kind", "other", "lift", "together"]].round(2)
             kind   other  lift  together
    0  complement  butter  1.39      0.31
    1  substitute   rolls  0.84      0.11
    """
    own, n = Prepared.of(model), check_count(n, "n", least=1)
    (a,) = own.ids([item], "item").tolist()
    if own.popularity[a] == 0:
        raise ZeroProbabilityError(f"item {own.names([a])[0]!r} never occurs, so it has no complements or substitutes")
    others = _occurring(own, popular)
    others = others[others != a]
    ties = _correlations(own, np.array([a]), others)[0]
    kinds = _strongest(own, np.full(len(others), a), others, ties, n, ids=ids)
    return Related(own.names([a], ids=ids)[0], min(float(own.popularity[a]), 1.0), *kinds)


def pairs(model: Any, *, n: int = 10, popular: int = MOST_POPULAR, ids: bool = False) -> Pairs:
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
    parts = [(items[:0], items[:0], np.empty(0))]
    for start in range(0, len(items), step):
        block, others = items[start : start + step], items[start:]
        rows, columns = np.triu_indices(len(block), 1, len(others))  # each pair once
        ties = _correlations(own, block, others)[rows, columns]
        order = np.argpartition(ties, [n - 1, -n]) if len(ties) > 2 * n else np.arange(len(ties))
        kept = np.r_[order[:n], order[n:][-n:]]
        parts.append((block[rows[kept]], others[columns[kept]], ties[kept]))
    first, second, correlation = map(np.concatenate, zip(*parts))
    return Pairs(min(popular, own.law.n_items), *_strongest(own, first, second, correlation, n, ids=ids))


def _occurring(own: Prepared, popular: int | None) -> IntArray:
    """Return the items of positive probability, the most popular ones if only so many are wanted."""
    p = own.popularity
    least = 0.0 if popular is None else np.sort(p)[-min(check_count(popular, "popular", least=1), len(p))]
    return np.flatnonzero((p > 0) & (p >= least))


def _spread(own: Prepared, items: IntArray) -> FloatArray:
    return np.asarray(np.sqrt(own.popularity[items] * (1 - own.popularity[items])))


def _correlations(own: Prepared, block: IntArray, others: IntArray) -> FloatArray:
    """Return the correlations between the items of ``block`` and of ``others``, apart from those that missions make."""
    covariance = own.law.mean_covariances(block, others)
    scale = np.outer(_spread(own, block), _spread(own, others))
    return np.asarray(np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0))


def _strongest(
    own: Prepared, first: IntArray, second: IntArray, correlation: FloatArray, n: int, *, ids: bool
) -> list[tuple[Relation, ...]]:
    """Return the n pairs with the largest positive and the n with the smallest negative correlations."""
    kinds, order = [], np.argsort(-correlation, kind="stable")
    for kind, side, sign in (("complement", order[:n], 1), ("substitute", order[::-1][:n], -1)):
        chosen = side[sign * correlation[side] > MIN_CORRELATION]
        a, b, ties = first[chosen], second[chosen], correlation[chosen]
        expected = own.law.weights @ (own.inclusions[:, a] * own.inclusions[:, b])
        together = np.maximum(expected + ties * _spread(own, a) * _spread(own, b), 0.0)
        apart = own.popularity[a] * own.popularity[b]
        columns = together / apart, expected / apart, together / expected, together.clip(max=1.0), ties
        names = own.names(a, ids=ids), own.names(b, ids=ids)
        rows = zip(*names, *(column.tolist() for column in columns))
        kinds.append(tuple(Relation(kind, *row) for row in rows))
    return kinds
