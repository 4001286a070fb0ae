"""A law with what the answers to many questions share, computed once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_items
from ndpp.answers.draws import Drawer
from ndpp.answers.records import Item
from ndpp.answers.search import LabelIndex
from ndpp.explain import Atlas, Mission, atlas, missions
from ndpp.explain._law import Inclusions, law_of
from ndpp.explain.reason import Reader
from ndpp.inference import Scorer

T = TypeVar("T")
MISSION_ITEMS = 12
"""Items by which a mission is described."""


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

    def __init__(self, law: Any) -> None:
        self.law: Any = law_of(law)
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
        numbers: list[int] = np.asarray(items, np.int64).tolist()
        labels: Sequence[Item] | None = self.law.labels
        return list(numbers) if ids or labels is None else [labels[i] for i in numbers]

    # -- what many answers share ---------------------------------------------------------------------------------------------

    @once
    def popularity(self) -> FloatArray:
        """P(a) of every item."""
        return self.found.overall

    @once
    def found(self) -> Inclusions:
        """Inclusion probabilities by component."""
        return Inclusions.of(self.law)

    @once
    def scorer(self) -> Scorer:
        """The prepared scorer."""
        return Scorer(self.law)

    @once
    def missions(self) -> tuple[Mission, ...]:
        """The missions of a mixture, similar components merged, largest first; a kernel has none."""
        return missions(self.law, n_items=MISSION_ITEMS) if len(self.law.weights) > 1 else ()

    @once
    def reader(self) -> Reader:
        """What the reasons of all recommendations share."""
        return Reader(self.scorer, self.found, self.missions)

    @once
    def sizes(self) -> FloatArray | None:
        """P(|S| = k)."""
        return np.asarray(self.law.size_distribution())

    @once
    def log_absent(self) -> float:
        """Σ log(1 − P(a)) over all items."""
        return float(np.log1p(-np.minimum(self.popularity, 1 - 1e-12)).sum())

    @once
    def index(self) -> LabelIndex:
        """The names of the catalogue, to search in."""
        return LabelIndex(list(map(str, self.names(range(self.law.n_items)))), self.popularity)

    @once
    def drawer(self) -> Drawer:
        """The sampler."""
        return Drawer(self.law)

    @once
    def atlas(self) -> Atlas:
        """The map of the catalogue."""
        return atlas(self.law)
