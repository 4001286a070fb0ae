"""A shelf of twelve groceries whose kernel can be read by eye."""

from __future__ import annotations

import numpy as np

from ndpp.laws.kernel import LowRankKernel

SHELF = {
    "starch": ("pasta", "rice", "noodles"),
    "sauce": ("tomato sauce", "pesto", "curry paste"),
    "bread": ("bread", "rolls"),
    "spread": ("butter", "jam"),
    "drink": ("coffee", "tea"),
}
GO_TOGETHER = {("starch", "sauce"): 0.8, ("bread", "spread"): 1.0}
POPULARITY = (0.9, 0.7, 0.5, 0.8, 0.5, 0.4, 1.0, 0.5, 0.9, 0.5, 1.0, 0.7)


def shelf_kernel() -> LowRankKernel:
    """Return the kernel of the shelf: VVᵀ makes items of a kind repel, D − Dᵀ makes two kinds attract.

    Who buys rice seldom buys noodles too; pasta and sauce, bread and spread go together, which no symmetric kernel can
    express.

    Examples
    --------
    >>> kernel = shelf_kernel()
    >>> pair = kernel.ids(["bread", "butter"])
    >>> alone = kernel.inclusion_probabilities()[pair[1]]
    >>> bool(kernel.inclusion_probabilities(given=pair[:1])[pair[1]] > alone)
    True
    """
    kinds = list(SHELF)
    labels = [item for items in SHELF.values() for item in items]
    kind = np.repeat(np.arange(len(kinds)), [len(items) for items in SHELF.values()])
    popularity = np.asarray(POPULARITY)[:, None]
    of_kind = popularity * (kind[:, None] == np.arange(len(kinds)))
    V = np.hstack([0.5 * of_kind, 0.2 * popularity * np.eye(len(labels))])
    D = np.zeros((len(kinds), len(kinds)))
    for (first, second), strength in GO_TOGETHER.items():
        D[kinds.index(first), kinds.index(second)] = strength
    return LowRankKernel.from_vbd(V, of_kind, D, labels=labels)
