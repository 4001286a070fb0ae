"""``ndpp.fit``: baskets of any kind in, a fitted estimator out, as the command ``ndpp fit`` makes it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ndpp._validation import check_choice
from ndpp.baskets import Baskets
from ndpp.baskets.files import format_of
from ndpp.baskets.orders import Orders
from ndpp.errors import InvalidInputError
from ndpp.learning.base import BasketModel
from ndpp.learning.estimator import NDPP, ONDPP, SymmetricDPP
from ndpp.learning.mixture import MixtureNDPP
from ndpp.learning.models import LiteratureStart, PopularityStart

ESTIMATORS: dict[str, type[BasketModel[Any, Any]]] = {
    "mixture": MixtureNDPP,
    "ndpp": NDPP,
    "ondpp": ONDPP,
    "symmetric": SymmetricDPP,
}
"""Kinds of models, the default first."""
STARTS = {"popularity": PopularityStart, "literature": LiteratureStart}


def fit(
    orders: Any,
    model: str = "mixture",
    *,
    basket: str = "basket",
    item: str = "item",
    format: str | None = None,
    items: Any = None,
    as_labels: bool | None = None,
    missing: str = "error",
    encoding: str | None = None,
    context: Any = (),
    time: str | None = None,
    validation: Any = None,
    sample_weight: Any = None,
    resume: bool | str | os.PathLike[str] = False,
    random_state: Any = 0,
    **settings: Any,
) -> Any:
    """Fit a model to orders: by default a mixture of shopping missions with ties between items, as the command ``ndpp fit`` does.

    Parameters
    ----------
    orders : path, open file, data frame, Orders, Baskets, lists of labels or ids, or matrix of zeros and ones
        What was bought together. Files are read as :meth:`ndpp.Baskets.read` reads them, and data frames are in long form, with a row per
        item of each basket, as for :meth:`ndpp.Baskets.from_frame`.
    model : {"mixture", "ndpp", "ondpp", "symmetric"}
        :class:`MixtureNDPP`, or a single kernel, which is faster to fit and less accurate: :class:`NDPP`, where items attract and
        repel, :class:`ONDPP`, cheap to sample by rejection, or :class:`SymmetricDPP`, where items only repel.
    basket, item : str
        The columns of a file or data frame.
    format, items, as_labels, missing, encoding
        As in :meth:`ndpp.Baskets.read`.
    context : sequence of str, mapping or data frame
        Columns of a file, a data frame or ``ndpp.baskets.orders.Orders`` that tell more about each basket, such as
        ``["store", "weekday"]``: the weights of the missions depend on them, as far as the validation baskets gain, and
        ``model.law_.at(store=3)`` is the distribution in a context. "weekday", "month", "season" and "hour" are derived from ``time`` if
        there is no such column. For orders of another kind, a mapping from columns to a value per basket. ``model.context_`` says what
        each column gained.
    time : str, optional
        The column of the time; baskets are in order of time then.
    validation : like orders, optional
        Baskets that decide when training ends, and which context matters; by default a tenth of the orders. Those of a later time show
        what will still hold then.
    sample_weight : array_like, mapping or pandas Series, optional
        How often each basket counts; a mapping or Series is looked up by the ids of the baskets.
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
    columns = {"basket": basket, "item": item, "missing": missing}
    names, own = (context, None) if isinstance(context, (list, tuple)) else ((), context)
    if isinstance(context, str):
        raise InvalidInputError(
            f"must be a list of columns, such as [{context!r}]; got {context!r}", argument="context"
        )
    file = {"format": format, "encoding": encoding}
    baskets = read_orders(orders, file, items, names, time, as_labels=as_labels, **columns)
    if validation is not None and isinstance(baskets, Baskets):
        named = baskets.labels is not None
        known = (
            {"labels": baskets.labels, "as_labels": True} if named else {"n_items": baskets.n_items, "as_labels": False}
        )
        validation = read_orders(validation, file, None, names, time, **columns, **known)
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


def read_orders(
    orders: Any,
    file: Mapping[str, Any],
    items: Any = None,
    context: Sequence[str] = (),
    time: str | None = None,
    *,
    partial: bool = False,
    **options: Any,
) -> Any:
    """Return the baskets of a file, of a data frame or of Orders; the estimators read whatever else there is.

    They are in the ``context`` of some columns; with ``partial``, of those that are there.
    """
    is_file = isinstance(orders, (str, os.PathLike)) or (
        hasattr(orders, "read") and not isinstance(orders, Baskets | Orders)
    )
    if is_file and (not context or (partial and format_of(orders, file["format"]) == "text")):
        return Baskets.read(orders, items=items, **file, **options)
    if items is not None:
        raise InvalidInputError(
            "is a file with the labels of a file of ids; orders of another kind have none", argument="items"
        )
    if context and (is_file or hasattr(orders, "columns")):
        how = {**(file if is_file else {}), **options}
        orders = Orders.read(orders, time=time, context=context, partial=partial, **how)
    if isinstance(orders, Orders):
        return orders.in_context([name for name in context if not partial or name in orders.known])
    if context and not partial:
        raise InvalidInputError(
            f"names columns, and these orders have none: {type(orders).__name__}", argument="context",
            advice="Give a mapping from columns to a value per basket, or the orders as Orders or a data frame.",
        )  # fmt: skip
    return Baskets.from_frame(orders, **options) if hasattr(orders, "columns") else orders
