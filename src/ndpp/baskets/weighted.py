"""Baskets that count more or less than once, and of which more is known, such as the store and the weekday."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ndpp._types import AnyArray, FloatArray
from ndpp._validation import by_name
from ndpp.baskets.baskets import Baskets
from ndpp.baskets.frames import frame_columns
from ndpp.baskets.labels import words_of
from ndpp.errors import InvalidInputError


@dataclass(frozen=True, eq=False, repr=False)
class WeightedBaskets(Baskets):
    """Baskets that count ``weights`` times each, as if they were repeated, in ``context``. Parts of them keep both."""

    weights: FloatArray | None = None
    context: Mapping[str, AnyArray] = field(default_factory=dict)
    """Columns with a word for each basket. Tables hold them, too."""

    @classmethod
    def of(cls, baskets: Baskets, weights: FloatArray | None, context: Mapping[str, AnyArray] | None = None) -> Baskets:
        """Return the baskets with weights and context, or as they are without."""
        if weights is None and not context:
            return baskets
        made = cls._trusted(baskets.indptr, baskets.indices, baskets.n_items, baskets.labels, baskets.basket_ids)
        for name, value in {"weights": weights, "context": context or {}}.items():
            object.__setattr__(made, name, value)
        return made

    @cached_property
    def mean_weight(self) -> float:
        """The mean of the weights."""
        return float(np.mean(1.0 if self.weights is None else self.weights))

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        if not isinstance(part, Baskets):
            return part
        key = key if isinstance(key, slice) or len(key) else slice(0)
        context = {name: words[key] for name, words in self.context.items()}
        return self.of(part, None if self.weights is None else self.weights[key], context)

    @property
    def _beside(self) -> Mapping[str, AnyArray]:
        return self.context


def weighted(baskets: Baskets, weights: Any, name: str) -> Baskets:
    """Return the baskets with their weights, without those whose weight is zero."""
    if weights is None:
        return baskets
    values = np.asarray(weights) if baskets.basket_ids is None and not isinstance(weights, Mapping) else weights
    if np.ndim(values) != 1 and not isinstance(values, Mapping):
        raise InvalidInputError(f"must be one number per basket; got the shape {np.shape(values)}", argument=name)
    found, has = by_name(values, baskets.basket_ids, len(baskets), name)
    if not has.all():
        lacking = baskets.ids_or_numbers[int(np.argmin(has))]
        raise InvalidInputError(
            f"lacks {np.sum(~has):,} of {len(has):,} baskets, such as {lacking!r}", argument=name,
            advice="Give each a weight, in their order as an array, or by the ids of the baskets.",
        )  # fmt: skip
    array = np.asarray(found, np.float64)
    if not np.isfinite(array).all() or (array < 0).any() or not array.any():
        raise InvalidInputError("must be finite numbers, at least zero and not all zero", argument=name)
    return WeightedBaskets.of(baskets, array, context_of(baskets))[array > 0]


def in_context(baskets: Baskets, context: Any, name: str) -> Baskets:
    """Return the baskets with columns of context, from a mapping or data frame with a value of each column per basket."""
    if context is None:
        return baskets
    if not hasattr(context, "keys") and not hasattr(context, "columns"):
        raise InvalidInputError(
            f"must be a mapping from columns to a value per basket; got {context!r:.60}", argument=name
        )
    values = frame_columns(context, (), name, "") if hasattr(context, "columns") else context
    columns = {str(column): words_of(values[column]) for column in values}
    for column, words in columns.items():
        if len(words) != len(baskets):
            problem = f"must have {len(baskets):,} values of {column!r}, one per basket; got {len(words):,}"
            raise InvalidInputError(problem, argument=name)
    return WeightedBaskets.of(baskets, weights_of(baskets), columns)


def context_of(baskets: Baskets) -> Mapping[str, AnyArray]:
    """Return the columns of context of the baskets, as words."""
    return baskets.context if isinstance(baskets, WeightedBaskets) else {}


def weights_of(baskets: Baskets) -> FloatArray | None:
    """Return the weights of the baskets; None if all count once."""
    return baskets.weights if isinstance(baskets, WeightedBaskets) else None


def total_weight(baskets: Baskets) -> float:
    """Return how many baskets there are, by weight."""
    return float(np.sum(weights)) if (weights := weights_of(baskets)) is not None else len(baskets)
