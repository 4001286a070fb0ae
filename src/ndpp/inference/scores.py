"""Scores of all items for a basket J, for one basket or many: P(J ∪ a) / P(J) of *whole* baskets, and P(a ∈ S | J ⊆ S) of begun ones.

Many baskets are scored in operations that they share, as far as their law has them (:mod:`ndpp.laws.scoring`). What these leave out, and
single baskets, are scored by careful routines, which warn if rounding matters.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Unpack

import numpy as np

from ndpp._types import FloatArray, IntArray, Items
from ndpp._validation import check_items
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError, ZeroProbabilityError
from ndpp.laws.ask import NO_ITEMS, Conditions
from ndpp.laws.law import Law
from ndpp.laws.scoring import Best

NEARLY_ZERO = 1e-12
"""The factor of items of the basket that are out of stock: sets with them stay possible, and hardly any other basket has them."""


def next_item_scores(kernel: object, basket: Items | Baskets, **conditions: Unpack[Conditions]) -> FloatArray:
    """Return P(J ∪ i) / P(J), J being the basket, for every item i of the catalogue: what completes a basket that lacks one item.

    For a kernel this is det L_{J∪i} / det L_J = L_ii − L_iJ L_J⁻¹ L_Ji. For what else a basket that has begun will hold, see
    :func:`continuation_scores`. :class:`~ndpp.Baskets` are scored together, for an array of shape (len(baskets), n_items): O(n r) per
    distinct item in them, but for baskets of which L_J is close to singular.

    Items of the basket, and items the kernel excludes, score 0. O(n r²). A distribution that leaves out the empty set scores that as if it
    did not: P(i) of single items, in units in which the empty set has a probability. Other conditions are those of ``law.ask``.

    Raises
    ------
    ZeroProbabilityError
        P(J) = 0: the ratio is undefined. ``kernel.inclusion_probabilities(given=basket)`` ranks items even then, if
        the basket can be part of a larger set.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(3), [[1.0, 2.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> next_item_scores(kernel, [0])
    array([0., 5., 1.])
    """
    return _scores(Law.required(kernel), basket, conditions, whole=True)


def continuation_scores(law: object, basket: Items | Baskets, **conditions: Unpack[Conditions]) -> FloatArray:
    """Return P(a ∈ S | basket ⊆ S) for every item a of the catalogue: what else a basket that has begun will contain.

    Items of the basket score 0. For what completes a basket that lacks one item, see :func:`next_item_scores`. :class:`~ndpp.Baskets` are
    scored together, for an array of shape (len(baskets), n_items): kernels do so in stacked products, and mixtures with shared ties
    component by component (``ndpp.laws.begun``), with an error of at most 1e-12 for components that are left out. For the best items only,
    :func:`recommend` is several times as fast. Other conditions, as the ``size`` of the whole basket, are those of ``law.ask``.

    Examples
    --------
    >>> import ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(3), [[1.0, 2.0, 0.0], [-2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> continuation_scores(kernel, [0]).round(4)
    array([0.    , 0.8333, 0.5   ])
    """
    return _scores(Law.required(law), basket, conditions, whole=False)


def listing_factors(factors: FloatArray, basket: IntArray) -> FloatArray:
    """Return the factors by which lists for a basket are made, in whose law the items of the basket are possible."""
    out = factors.copy()
    out[basket] = np.maximum(out[basket], NEARLY_ZERO)
    return out


def law_under(law: Law, basket: IntArray = NO_ITEMS, *, excludes: bool = True, **conditions: Unpack[Conditions]) -> Law:
    """Return the law under conditions, of which none takes items of the basket out or, unless it ``excludes``, any others."""
    if "given" in conditions:
        raise InvalidInputError("is the basket itself; add its items there", argument="given")
    if not conditions:
        return law
    said: Conditions = {**conditions, "given": basket}
    ask = law.ask(**said)._replace(given=NO_ITEMS)
    return law.under(ask if excludes else ask._replace(excluded=NO_ITEMS))


def _scores(law: Law, basket: Items | Baskets, conditions: Conditions, *, whole: bool) -> FloatArray:
    """Return the scores of one basket or many; raise for baskets that never occur."""
    if not isinstance(basket, Baskets):
        ids = check_items(basket, law, "basket")
        return scores_of_one(law_under(law, ids, **conditions), ids, whole=whole)
    law = law_under(law, **conditions)
    out = scores_or_nan(law, basket, whole=whole)
    for i in np.flatnonzero(np.isnan(out[:, 0])):
        scores_of_one(law, basket[i], whole=whole)  # raises, and says why
    return out


def scores_of_one(law: Law, ids: IntArray, *, whole: bool) -> FloatArray:
    """Return the scores of one basket."""
    if whole:
        return law._scoring.next_scores_of(ids)
    out: FloatArray = law.inclusion_probabilities(given=ids)
    out[ids] = 0.0
    return out


def scores_or_nan(
    law: Law, baskets: Baskets, *, whole: bool = True, best: Best | None = None, weights: FloatArray | None = None
) -> FloatArray:
    """Return the scores of each basket, shape (len(baskets), n_items); NaN for baskets that never occur.

    Items that cannot be among the ``best`` may score 0. ``weights`` are those of the components for each begun basket, shape
    (len(baskets), C), where they are not those of the law.
    """
    if baskets.n_items != law.n_items:
        raise InvalidInputError(
            f"baskets and kernel must share one catalogue; the kernel has {law.n_items} items, "
            f"the baskets have {baskets.n_items}. Give the baskets n_items= or the kernel's labels."
        )
    free = None if weights is None else weights / law.kept
    out = law._scoring.next_scores(baskets) if whole else law._scoring.begun_scores(baskets, best, free)
    if law.nonempty and not whole:
        blank = baskets.sizes == 0  # P(S ≠ ∅) becomes one
        out[blank] *= law._free_weights.sum() if free is None else free[blank].sum(axis=1, keepdims=True)
    for i in np.flatnonzero(np.isnan(out[:, 0])):
        with suppress(ZeroProbabilityError):
            own = law if weights is None else law.framed(law.frame.weighted(weights[i]))
            out[i] = scores_of_one(own, baskets[i], whole=whole)
    return out
