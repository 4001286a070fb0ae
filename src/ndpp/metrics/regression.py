"""EASE, the linear model that ranks items by their regression on all others.

Each item is regressed on the others with a ridge penalty, B = I − P diag(P)⁻¹ with P = (G + λI)⁻¹ and G = XᵀX, where X is the matrix
of baskets. An item is scored by the sum of its weights from the items of a basket [Steck, WWW 2019]. With dropout p, which is EDLAE, λI
becomes λI + p/(1 − p) diag(G) [Steck, NeurIPS 2020].
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.linalg import lapack

from ndpp._types import FloatArray
from ndpp.baskets import Baskets
from ndpp.baskets.orders import weighted
from ndpp.errors import InvalidInputError
from ndpp.metrics.models import ItemWeights
from ndpp.metrics.ranking import HeldOut, held_out_ranks, without

PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
"""The penalties among which validation baskets choose."""
SIZE_POWERS = (0.25, 0.5, 0.75, 1.0)
"""The powers of the size of a basket among which validation baskets choose."""
DROPOUTS = (0.0, 0.1, 0.2, 0.35, 0.5)
"""The shares of dropout among which validation baskets choose."""
DEFAULT_PENALTY, DEFAULT_POWER, DEFAULT_DROPOUT = 100.0, 0.5, 0.2
MAX_ITEMS = 12_000
"""The weights take 8n² bytes and computing them three times as much: 3.5 GB for this many items."""


@dataclass(frozen=True, eq=False)
class Ease(ItemWeights):
    """Scores an item by the sum of its regression weights from the items of the basket. Has no probabilities."""

    penalty: float
    size_power: float = 0.0
    dropout: float = 0.0


def ease(
    baskets: Baskets,
    *,
    penalty: float | None = None,
    size_power: float | None = 0.0,
    dropout: float | None = 0.0,
    weights: ArrayLike | None = None,
    validation: Baskets | None = None,
    max_items: int = MAX_ITEMS,
) -> Ease:
    """Fit EASE to baskets. O(n³) for n items, and O(n²) memory.

    Parameters
    ----------
    baskets : Baskets
        The training baskets.
    penalty : float, optional
        The ridge penalty λ > 0. By default one of 1, 3, 10, …, 3000 that the validation baskets choose by mean reciprocal rank,
        or 100 if there are none.
    size_power : float or None
        Rows of X are divided by this power of the size of the basket, and then scaled by one number so that the trace of XᵀX stays as it
        is: large baskets, which have most pairs, count for less. None leaves the choice among 0.25, 0.5, 0.75 and 1 to the validation
        baskets; without any it is 0.5.
    dropout : float or None
        The share p < 1 of items that the regression should do without, which makes it EDLAE: frequent items are penalized more. None
        leaves the choice among 0, 0.1, 0.2, 0.35 and 0.5 to the validation baskets; without any it is 0.2.
    weights : array-like, optional
        How often each basket counts, up to a factor; ``sizes ** -0.5`` is the same as ``size_power=0.25``.
    validation : Baskets, optional
        Baskets to choose on, each of their items held out in turn: the penalty first, with the defaults of the others. One fit per
        choice.
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
    if dropout is not None and not 0 <= dropout < 1:
        raise InvalidInputError(f"dropout must be at least 0 and less than 1, or None; got {dropout}")
    baskets, held = weighted(baskets, weights, "weights"), _each_item(validation)

    gram = functools.lru_cache(maxsize=1)(functools.partial(_gram, baskets))

    def fit(penalty: float, size_power: float, dropout: float) -> Ease:
        return _fit(gram(size_power), Ease(np.empty((0, 0)), penalty, size_power, dropout))

    asked = {
        "penalty": (penalty, PENALTIES, DEFAULT_PENALTY), "size_power": (size_power, SIZE_POWERS, DEFAULT_POWER),
        "dropout": (dropout, DROPOUTS, DEFAULT_DROPOUT),
    }  # fmt: skip
    settings = {name: default if given is None else given for name, (given, _, default) in asked.items()}
    if held is not None:
        for name, choices in ((name, choices) for name, (given, choices, _) in asked.items() if given is None):
            quality = {one: _quality(fit(**(settings | {name: one})), held) for one in choices}
            settings[name] = max(choices, key=quality.__getitem__)
    return fit(**settings)


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
    weights = sizes ** (-2 * power) * (1.0 if baskets.weights is None else baskets.weights)
    weights *= baskets.sizes.sum() / max(float(baskets.sizes @ weights), 1e-300)
    return np.asarray((matrix.T @ (sparse.diags_array(weights) @ matrix)).toarray())


def _fit(gram: FloatArray, about: Ease) -> Ease:
    """Return B = I − P diag(P)⁻¹, P = (gram + λI + p/(1 − p) diag(gram))⁻¹ by Cholesky's method."""
    P = gram.copy(order="F")
    P[np.diag_indices_from(P)] += about.penalty + about.dropout / (1 - about.dropout) * np.diag(P)
    factor, _ = lapack.dpotrf(P, lower=True, overwrite_a=True)
    P, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)  # its lower triangle
    weights = np.tril(P)
    del P
    weights += np.tril(weights, -1).T
    weights /= -np.diag(weights)
    np.fill_diagonal(weights, 0.0)
    return replace(about, weights=weights)
