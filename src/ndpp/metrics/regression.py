"""EASE, the linear model that ranks items by their regression on all others.

Each item is regressed on the others with a ridge penalty, B = I − P diag(P)⁻¹ with P = (XᵀX + λI)⁻¹, where X is the matrix of
baskets. An item is scored by the sum of its weights from the items of a basket [Steck, WWW 2019].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import lapack

from ndpp._types import FloatArray
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.metrics.models import ItemWeights
from ndpp.metrics.ranking import HeldOut, held_out_ranks, without

PENALTIES = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
"""The penalties among which validation baskets choose."""
SIZE_POWERS = (0.25, 0.5, 0.75, 1.0)
"""The powers of the size of a basket among which validation baskets choose."""
DEFAULT_PENALTY, DEFAULT_POWER = 100.0, 0.5
MAX_ITEMS = 12_000
"""The weights take 8n² bytes and computing them three times as much: 3.5 GB for this many items."""


@dataclass(frozen=True, eq=False)
class Ease(ItemWeights):
    """Scores an item by the sum of its regression weights from the items of the basket. Has no probabilities."""

    penalty: float
    size_power: float = 0.0


def ease(
    baskets: Baskets,
    *,
    penalty: float | None = None,
    size_power: float | None = 0.0,
    validation: Baskets | None = None,
    max_items: int = MAX_ITEMS,
) -> Ease:
    """Fit EASE to baskets. O(n³) for n items, and O(n²) memory.

    Parameters
    ----------
    baskets : Baskets
        The training baskets.
    penalty : float, optional
        The ridge penalty λ > 0. By default one of 10, 30, …, 3000 that the validation baskets choose by mean reciprocal rank,
        or 100 if there are none.
    size_power : float or None
        Rows of X are divided by this power of the size of the basket, and then scaled by one number so that the trace of XᵀX stays as it
        is: large baskets, which have most pairs, count for less. None leaves the choice among 0.25, 0.5, 0.75 and 1 to the validation
        baskets, with the penalty that they choose for 0.5; without any it is 0.5.
    validation : Baskets, optional
        Baskets to choose the penalty, and the power, on, each of their items held out in turn. One fit per choice.
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
    if size_power is not None and not 0 <= size_power <= 2:
        raise InvalidInputError(f"size_power must lie between 0 and 2, or be None; got {size_power}")
    power, held = DEFAULT_POWER if size_power is None else size_power, _each_item(validation)
    gram = _gram(baskets, power)
    if penalty is None:
        penalty = DEFAULT_PENALTY
        if held is not None:
            penalty = max(PENALTIES, key=lambda one: _quality(_fit(gram, one, power), held))
    if size_power is None and held is not None:
        power = max(SIZE_POWERS, key=lambda one: _quality(_fit(_gram(baskets, one), penalty, one), held))
        gram = _gram(baskets, power)
    return _fit(gram, penalty, power)


def _each_item(validation: Baskets | None) -> HeldOut | None:
    """Return baskets with each of their items held out in turn, None if there are none."""
    if validation is None or not len(several := validation.select(min_size=2)):
        return None
    owner = np.repeat(np.arange(len(several)), several.sizes)
    return without(several[owner], np.arange(len(owner)) - several.indptr[owner])


def _quality(model: Ease, held: HeldOut) -> float:
    """Return the mean reciprocal rank, every basket counting the same."""
    return float(np.average(held_out_ranks(model, held).reciprocal(), weights=1 / held.sizes))


def _gram(baskets: Baskets, power: float) -> FloatArray:
    """Return XᵀX of the baskets, with rows divided by a power of their size and the trace as it was."""
    matrix, sizes = baskets.to_csr().astype(np.float64), np.maximum(baskets.sizes, 1).astype(np.float64)
    weights = sizes ** (-2 * power)
    weights *= baskets.sizes.sum() / max(float(baskets.sizes @ weights), 1e-300)
    return np.asarray((matrix.T @ (sparse.diags_array(weights) @ matrix)).toarray())


def _fit(gram: FloatArray, penalty: float, power: float) -> Ease:
    """Return B = I − P diag(P)⁻¹, P = (gram + λI)⁻¹ by Cholesky's method."""
    P = gram.copy(order="F")
    P[np.diag_indices_from(P)] += penalty
    factor, _ = lapack.dpotrf(P, lower=True, overwrite_a=True)
    P, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)  # its lower triangle
    P = np.tril(P) + np.tril(P, -1).T
    weights = P / -np.diag(P)
    np.fill_diagonal(weights, 0.0)
    return Ease(weights, penalty, power)
