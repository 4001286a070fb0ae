"""``ndpp.fit``: baskets of any kind in, a fitted estimator out, as the command ``ndpp fit`` makes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from ndpp._types import RngLike
from ndpp._validation import check_choice
from ndpp.baskets import Baskets
from ndpp.baskets.orders import Orders
from ndpp.errors import InvalidInputError
from ndpp.learning.base import BasketModel
from ndpp.learning.estimator import NDPP, ONDPP, SymmetricDPP
from ndpp.learning.mixture import MixtureNDPP
from ndpp.learning.models import LiteratureStart, PopularityStart, PublishedTraining

ESTIMATORS: dict[str, type[BasketModel[Any, Any]]] = {
    "mixture": MixtureNDPP,
    "ndpp": NDPP,
    "ondpp": ONDPP,
    "symmetric": SymmetricDPP,
}
"""Kinds of models, the default first."""
STARTS = {"popularity": PopularityStart, "literature": LiteratureStart, "published": PublishedTraining}


def fit(
    orders: object,
    model: str = "mixture",
    *,
    basket: str | Sequence[str] = "basket",
    item: str = "item",
    time: str | None = None,
    time_format: str | None = None,
    context: object = None,
    validation: object = None,
    sample_weight: object = None,
    resume: bool | str | os.PathLike[str] = False,
    random_state: RngLike | np.random.RandomState = 0,
    **settings: Any,
) -> BasketModel[Any, Any]:
    """Fit a model to orders: by default a mixture of shopping missions with ties between items, as the command ``ndpp fit`` does.

    Parameters
    ----------
    orders : path, open file, data frame, Orders, Baskets, lists of labels or ids, or matrix of zeros and ones
        What was bought together. Files and data frames are in long form, with a row per item of each basket; text files have a basket per
        line. :meth:`ndpp.Baskets.read` and :meth:`ndpp.baskets.orders.Orders.read` read what needs to be said more about: another encoding,
        ids instead of labels, missing values.
    model : {"mixture", "ndpp", "ondpp", "symmetric"}
        :class:`MixtureNDPP`, or a single kernel, which is faster to fit and less accurate: :class:`NDPP`, where items attract and
        repel, :class:`ONDPP`, cheap to sample by rejection, or :class:`SymmetricDPP`, where items only repel.
    basket : str or list of str
        The column of a file or data frame that names a basket, or several that name it together, such as ``["customer", "date"]``.
    item, time : str
        The other columns; the time is read if the context needs it.
    time_format : str, optional
        How times are written, such as "%d/%m/%Y", where the column leaves it open.
    context : sequence of str, mapping or data frame, optional
        Columns of a file, a data frame or ``ndpp.baskets.orders.Orders`` that tell more about each basket, such as
        ``["store", "weekday"]``: the weights of the missions depend on them, as far as the validation baskets gain, and
        ``model.law_.at(store=3)`` is the distribution in a context. "weekday", "month", "season" and "hour" are derived from ``time`` if
        there is no such column. For orders of another kind, a mapping from columns to a value per basket. By default it is that of
        ``Orders``, if these have one. ``model.context_`` says what each column gained.
    validation : like orders, optional
        Baskets that decide when training ends, and which context matters; by default a tenth of the orders. Those of a later time show
        what will still hold then.
    sample_weight : array_like, mapping or pandas Series, optional
        How often each basket counts; a mapping or Series is looked up by the ids of the baskets. By default that of ``Orders``.
    resume : bool or path
        Continue from a checkpoint; see the ``fit`` of the estimators.
    random_state : int, numpy.random.Generator or RandomState
        Seed.
    **settings
        Parameters of the estimator, such as ``n_missions=40``, ``rank=100``, ``max_epochs=5``, ``device="cuda"`` or ``progress=True``.

    Returns
    -------
    MixtureNDPP, NDPP, ONDPP or SymmetricDPP
        The fitted estimator: it recommends, draws and scores, and :func:`ndpp.save` writes it.

    Examples
    --------
    >>> import ndpp
    >>> orders = [["bread", "butter"], ["bread", "butter", "jam"], ["tea", "milk"], ["tea"]] * 50
    >>> model = ndpp.fit(orders, n_missions=2, max_epochs=4)
    >>> model.recommend(["bread"], n=1).labels
    ('butter',)
    """
    made = make_estimator(model, random_state=random_state, **settings)
    if isinstance(context, str):
        raise InvalidInputError(
            f"must be a list of columns, such as [{context!r}]; got {context!r}", argument="context"
        )
    names, own = (context, None) if isinstance(context, (list, tuple)) else (None, context)

    def read(source: object, **catalogue: Any) -> object:
        if sparse.issparse(source) or (hasattr(source, "__array__") and not hasattr(source, "columns")):
            return source  # a matrix of zeros and ones
        known = source.context if names is None and isinstance(source, Baskets) else names or ()
        when = time if known else None
        columns: dict[str, Any] = {"basket": basket, "item": item, "time": when, "time_format": time_format}
        return Orders.read(source, context=list(known), **columns, **catalogue)

    baskets = read(orders)
    if validation is not None and isinstance(baskets, Baskets):
        by_id = {"n_items": baskets.n_items, "as_labels": False}
        validation = read(
            validation, **(by_id if baskets.labels is None else {"labels": baskets.labels, "as_labels": True})
        )
    return made.fit(baskets, sample_weight=sample_weight, validation=validation, context=own, resume=resume)


def make_estimator(model: str, **settings: Any) -> BasketModel[Any, Any]:
    """Return the estimator of a kind, with these parameters; ``init`` may be the name of a start."""
    estimator = ESTIMATORS[check_choice(model, "model", list(ESTIMATORS))]
    if isinstance(start := settings.get("init"), str):
        settings["init"] = STARTS[check_choice(start, "init", list(STARTS))]()
    if settings.get("item_features") is not None and estimator is not MixtureNDPP:
        problem = (
            f"are for mixtures, whose rows can be a free part plus features times a matrix; {model} has no such rows"
        )
        raise InvalidInputError(problem, argument="item_features", advice="Use {model:'mixture'}.")
    return estimator(**settings)
