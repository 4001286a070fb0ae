"""Next-item scores and recommendations: which item completes a basket best."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import check_count, check_items
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError, NoConditionalKernelError, ZeroProbabilityError
from ndpp.inference.gains import Gains
from ndpp.laws.batched import ZERO, Form, scores
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.scaling import quadratic_forms
from ndpp.linalg.schur import eliminate


class Recommendation(NamedTuple):
    """Items, best first, and the factor by which each would multiply det L of the basket."""

    items: IntArray
    scores: FloatArray


def next_item_scores(kernel: LowRankKernel, basket: Items) -> FloatArray:
    """Return det L_{J∪i} / det L_J = L_ii − L_iJ L_J⁻¹ L_Ji for every item i of the catalogue, J being the basket.

    Items of the basket, and items the kernel excludes, score 0. O(n r²).

    Raises
    ------
    ZeroProbabilityError
        det L_J = 0: the ratio is undefined. ``kernel.inclusion_probabilities(given=basket)`` ranks items even then, if
        the basket can be part of a larger set.

    Examples
    --------
    >>> import numpy as np
    >>> kernel = LowRankKernel(np.eye(3), [[1.0, 2.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> next_item_scores(kernel, [0])
    array([0., 5., 1.])
    """
    rows = kernel.rows_of(basket, "basket")
    if kernel.background is not None:
        return _scores_with_background(kernel, rows)
    given = eliminate(kernel.coordinates, kernel.q_rows(rows))
    if given is None or given.null.size:
        raise _no_scores(kernel, rows)
    gains = Gains.fresh(kernel, given)
    # Zero is what is rounding both beside all of L and beside what the item's own row would allow.
    allowed = np.concatenate([((Q * kernel.coordinates.scale) ** 2).sum(axis=1) for _, Q in kernel.q_blocks()])
    is_zero = gains.values <= np.minimum(gains.noise, ZERO * allowed)
    is_zero[rows] = True
    out = np.zeros(kernel.n_items)
    out[kernel.support] = np.where(is_zero, 0.0, gains.values)
    return out


def next_item_scores_many(kernel: LowRankKernel, baskets: Baskets) -> FloatArray:
    """Return :func:`next_item_scores` of each basket as an array of shape (len(baskets), n_items).

    Baskets share the products with the rows of the kernel, O(n r) per distinct item in them. Those whose L_J is too near to singular
    for that are scored one by one.
    """
    if baskets.n_items != kernel.n_items:
        raise InvalidInputError(
            f"baskets and kernel must share one catalogue; the kernel has {kernel.n_items} items, "
            f"the baskets have {baskets.n_items}. Give the baskets n_items= or the kernel's labels."
        )
    out = scores(Form.of_kernel(kernel), baskets)
    for i in np.flatnonzero(np.isnan(out).any(axis=1)):
        out[i] = next_item_scores(kernel, baskets[i])
    return out


def recommend(kernel: LowRankKernel, basket: Items, *, n: int = 10, candidates: Items | None = None) -> Recommendation:
    """Return the ``n`` items with the largest :func:`next_item_scores`, best first; fewer if fewer score above zero.

    For items that go well with each other, too, continue the basket: ``greedy_map(kernel, size, given=basket)``.

    Examples
    --------
    >>> import numpy as np
    >>> kernel = LowRankKernel(np.eye(3), [[1.0, 2.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> recommend(kernel, [0], n=1)
    Recommendation(items=array([1]), scores=array([5.]))
    """
    n = check_count(n, "n", least=1)
    scores = next_item_scores(kernel, basket)
    if candidates is not None:
        allowed = check_items(candidates, kernel.n_items, "candidates")
        scores[np.setdiff1d(np.arange(kernel.n_items), allowed)] = 0.0
    best = np.argsort(-scores, kind="stable")[:n]
    best = best[scores[best] > 0]
    return Recommendation(best, scores[best])


def _scores_with_background(kernel: LowRankKernel, rows: IntArray) -> FloatArray:
    """Return δ_i + x_iᵀW'x_i, the diagonal of the kernel given the basket."""
    out = np.zeros(kernel.n_items)
    if len(rows) == kernel.n_rows:
        return out
    try:
        rest = kernel.condition(kernel.catalogue_ids(rows))
    except (ZeroProbabilityError, NoConditionalKernelError):
        raise _no_scores(kernel, rows) from None
    coords, Q = rest.ties.coordinates, np.concatenate([q for _, q in rest.ties.q_blocks()])
    tied = quadratic_forms(Q, coords.B)
    tied[tied <= ZERO * ((Q * coords.scale) ** 2).sum(axis=1)] = 0.0
    odds = 0.0 if rest.background is None else rest.background[rest.support]
    out[rest.support] = odds + (1 + odds) * tied
    return out


def _no_scores(kernel: LowRankKernel, rows: IntArray) -> ZeroProbabilityError:
    items = kernel.catalogue_ids(rows).tolist()
    return ZeroProbabilityError(
        f"scores are relative to the basket, and {items} has det L = 0: it never occurs by itself. Drop an item, or "
        "use kernel.inclusion_probabilities(given=…), which tells whether it can be part of a larger set."
    )
