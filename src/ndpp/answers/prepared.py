"""A law with what the answers to many questions share, computed once."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_items
from ndpp.answers.atlas import draw_map
from ndpp.answers.draws import Drawer
from ndpp.answers.mission import find_missions
from ndpp.answers.records import Map, Mission, names_of
from ndpp.answers.search import LabelIndex
from ndpp.errors import InvalidInputError
from ndpp.laws.law import Law

T = TypeVar("T")
MISSIONS, TYPICAL = 12, 12
"""Missions for reading, and items by which each is described."""
MAPPED = 300
"""Items of a map."""


class once(cached_property[T]):
    """A property that is computed when first asked for, by one thread while others wait."""

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> T:  # type: ignore[override]
        if instance is None:
            return self  # type: ignore[return-value]
        with instance._lock:
            found: T = super().__get__(instance, owner)
            return found


class Prepared:
    """A law, and what many answers share; each part is computed when first needed. Threads may share it.

    Every question of :mod:`ndpp.answers` takes one in place of a law: ``model = answers.Prepared(law)`` answers the second question faster.
    """

    def __init__(self, model: Any) -> None:
        self.law: Any = Law.of(model)
        if self.law is None:
            raise InvalidInputError(f"expected a kernel, a mixture or a fitted estimator; got {type(model).__name__}")
        self._lock = threading.RLock()

    @classmethod
    def of(cls, model: Any) -> Prepared:
        """Return a law, fitted estimator or prepared model as a prepared one."""
        return model if isinstance(model, Prepared) else cls(model)

    # -- names ---------------------------------------------------------------------------------------------------------------

    def ids(self, items: Any, argument: str = "basket") -> IntArray:
        """Return the ids of distinct items: a string is a label, an integer an id, also in one list."""
        labels = [item for item in items if isinstance(item, str)]
        if 0 < len(labels) < len(items):
            known = dict(zip(labels, self.law.ids(labels).tolist()))
            items = [known.get(item, item) for item in items]
        return check_items(items, self.law, argument)

    def names(self, items: Any, *, ids: bool = False) -> list[Any]:
        """Return items as labels, or as ids if these are wanted or there are no labels."""
        return names_of(self.law, items, ids=ids)

    # -- what many answers share ---------------------------------------------------------------------------------------------

    @once
    def inclusions(self) -> FloatArray:
        """Inclusion probabilities by component, shape (C, n_items)."""
        return np.asarray(self.law.component_inclusions())

    @once
    def popularity(self) -> FloatArray:
        """P(a) of every item."""
        return np.asarray(self.law.weights @ self.inclusions)

    @once
    def missions(self) -> tuple[Mission, ...]:
        """The missions of a mixture, similar components merged, largest first; a kernel has none."""
        return find_missions(self.law, self.inclusions, MISSIONS, TYPICAL) if len(self.law.weights) > 1 else ()

    @once
    def sizes(self) -> FloatArray | None:
        """P(|S| = k)."""
        return np.asarray(self.law.size_distribution())

    @once
    def index(self) -> LabelIndex:
        """The names of the catalogue, to search in."""
        return LabelIndex(list(map(str, self.names(range(self.law.n_items)))), self.popularity)

    @once
    def drawer(self) -> Drawer:
        """The sampler."""
        return Drawer(self.law)

    @once
    def map(self) -> Map:
        """The map of the catalogue."""
        return draw_map(self.law, self.inclusions, MAPPED)
