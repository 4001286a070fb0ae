"""EASE, the linear model that ranks items by their regression on all others.

Each item is regressed on the others with a ridge penalty, B = I − P diag(P)⁻¹ with P = (XᵀX + λI)⁻¹, where X is the matrix of
baskets. An item is scored by the sum of its weights from the items of a basket [Steck, WWW 2019].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from ndpp._types import FloatArray
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.metrics.models import ItemWeights
from ndpp.metrics.ranking import held_out_ranks, without

PENALTIES = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
"""The penalties among which validation baskets choose."""
DEFAULT_PENALTY = 100.0
MAX_ITEMS = 12_000
"""The weights take 8n² bytes and computing them three times as much: 3.5 GB for this many items."""


@dataclass(frozen=True, eq=False)
class Ease(ItemWeights):
    """Scores an item by the sum of its regression weights from the items of the basket. Has no probabilities."""

    penalty: float


def ease(
    baskets: Baskets, *, penalty: float | None = None, validation: Baskets | None = None, max_items: int = MAX_ITEMS
) -> Ease:
    """Fit EASE to baskets. O(n³) for n items, and O(n²) memory.

    Parameters
    ----------
    baskets : Baskets
        The training baskets.
    penalty : float, optional
        The ridge penalty λ > 0. By default one of 10, 30, …, 3000 that the validation baskets choose by mean reciprocal rank,
        or 100 if there are none.
    validation : Baskets, optional
        Baskets to choose the penalty on, each of their items held out in turn. One fit per penalty.
    max_items : int
        A catalogue with more items is an error, since its matrices would not fit in memory.

    Examples
    --------
    >>> model = ease(Baskets.from_lists([[0, 1], [0], [1, 2], [1, 2]]), penalty=1.0)
    >>> model.scores(Baskets.from_lists([[2]], n_items=3)).round(4)
    array([[-0.25  ,  0.6667,  0.    ]])
    """
    if baskets.n_items > max_items:
        raise InvalidInputError(
            f"EASE inverts a dense matrix of all pairs of items, and {baskets.n_items:,} items are more than "
            f"max_items={max_items:,}. Leave it out, or raise max_items if there is memory for {24e-9 * baskets.n_items**2:.0f} GB."
        )
    if penalty is not None and not penalty > 0:
        raise InvalidInputError(f"penalty must be positive; got {penalty}")
    matrix = baskets.to_csr().astype(np.float64)
    gram = (matrix.T @ matrix).toarray()
    if penalty is None:
        penalty = DEFAULT_PENALTY if validation is None else _best_penalty(gram, validation.select(min_size=2))
    return _fit(gram, penalty)


def _best_penalty(gram: FloatArray, validation: Baskets) -> float:
    """Return the penalty with the best mean reciprocal rank, each item of each basket being held out in turn."""
    if not len(validation):
        return DEFAULT_PENALTY
    owner = np.repeat(np.arange(len(validation)), validation.sizes)
    held = without(validation[owner], np.arange(len(owner)) - validation.indptr[owner])

    def quality(penalty: float) -> float:
        ranks = held_out_ranks(_fit(gram, penalty), held)
        return float(np.average(ranks.reciprocal(), weights=1 / held.sizes))  # every basket counts the same

    return max(PENALTIES, key=quality)


def _fit(gram: FloatArray, penalty: float) -> Ease:
    """Return B = I − P diag(P)⁻¹, P = (gram + λI)⁻¹ by Cholesky's method."""
    P = gram.copy(order="F")
    P[np.diag_indices_from(P)] += penalty
    factor, _ = lapack.dpotrf(P, lower=True, overwrite_a=True)
    P, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)  # its lower triangle
    P = np.tril(P) + np.tril(P, -1).T
    weights = P / -np.diag(P)
    np.fill_diagonal(weights, 0.0)
    return Ease(weights, penalty)
