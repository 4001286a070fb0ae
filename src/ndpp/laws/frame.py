"""What a law has beside its components, and what of these is computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike

from ndpp._types import FloatArray, IntArray
from ndpp._validation import frozen, owned
from ndpp.errors import InvalidInputError
from ndpp.laws.gate import Gate

T = TypeVar("T")


class FeatureMap(NamedTuple):
    """What features of an item say about it: its row of ties is f · ``ties`` (f, d), its log-odds (f, 1) · ``log_odds`` (f + 1, C)."""

    ties: FloatArray
    log_odds: FloatArray

    def of(self, features: Mapping[str, ArrayLike]) -> tuple[FloatArray, FloatArray]:
        """Return the rows of ties (m, d) and the log-odds (C, m) of new items."""
        rows, width = np.empty((len(features), len(self.ties))), len(self.ties)
        for row, (label, vector) in zip(rows, features.items()):
            found = np.asarray(vector.toarray() if hasattr(vector, "toarray") else vector, np.float64).ravel()
            if len(found) != width or not np.isfinite(found).all():
                problem = f"must be {width} finite numbers each, as the model was fitted with; those of {label!r} are {len(found)}"
                raise InvalidInputError(problem, argument="features")
            row[:] = found
        return rows @ self.ties, self.log_odds.T @ np.column_stack([rows, np.ones(len(rows))]).T

    def of_components(self, which: IntArray) -> FeatureMap:
        """Return the same for some of the components."""
        return FeatureMap(self.ties, self.log_odds[:, which])


class Frame(NamedTuple):
    """Weights of the components, their names, whether the empty set is left out, and what was learned of context and features.

    A law is its components in a frame, and what is changed of it is made from both. So nothing of a frame is lost on the way.
    """

    weights: FloatArray
    names: tuple[str, ...] | None = None
    nonempty: bool = False
    gate: Gate | None = None
    features: FeatureMap | None = None
    """What features of items say about new ones, if it was learned."""

    def weighted(self, weights: FloatArray, *, nonempty: bool | None = None) -> Frame:
        """Return the frame with other weights."""
        return self._replace(weights=owned(weights), nonempty=self.nonempty if nonempty is None else nonempty)

    def of(self, which: IntArray, weights: FloatArray) -> Frame:
        """Return the frame of some of the components, with these weights."""
        names = None if self.names is None else tuple(self.names[c] for c in which.tolist())
        gate, features = self.gate and self.gate.of(which), self.features and self.features.of_components(which)
        return Frame(frozen(weights), names, self.nonempty, gate, features)


ONE = Frame(frozen(np.ones(1)))
"""The frame of a law with one component."""


class of_components(Generic[T]):
    """A property of the components of a law: computed once, and known to all laws that have the same components in other frames."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

    @overload
    def __get__(self, law: None, owner: type) -> of_components[T]: ...
    @overload
    def __get__(self, law: object, owner: type) -> T: ...
    def __get__(self, law: Any, owner: type) -> of_components[T] | T:
        if law is None:
            return self
        known = law._known
        if self.name not in known:
            value: Any = self.compute(law)
            is_public = isinstance(value, np.ndarray) and not self.name.startswith("_")
            known[self.name] = frozen(value) if is_public else value
        found: T = known[self.name]
        vars(law)[self.name] = found  # there the next time
        return found
