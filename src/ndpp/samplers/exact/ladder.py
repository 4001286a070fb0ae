"""A geometric ladder of radii with their resolvents, computed when first wanted and kept within a memory budget.

What is kept does not depend on who asked for it first, so the cache changes times and never results.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeVar

import numpy as np

from ndpp._types import AnyArray, ComplexArray, FloatArray
from ndpp.linalg import Coordinates, condition_on, nodes, resolvent
from ndpp.linalg.operations import NUMPY, Array, Operations
from ndpp.samplers.exact.monitors import RUNG

Value = TypeVar("Value", bound="AnyArray | tuple[AnyArray | float, ...]")


class Circle(NamedTuple):
    """Z(t_j) given the ladder's items at the nodes of one circle, shape (2, h, r, r); log w(t_j) and log t_j."""

    Z: FloatArray
    log_w: ComplexArray
    log_t: ComplexArray


class Ladder:
    """Z(t) = R − RQ_Yᵀ(Q_Y R Q_Yᵀ)⁻¹Q_Y R on circles of radius exp(l·RUNG), l any integer, for given items with rows Q_Y."""

    def __init__(self, coords: Coordinates, given: FloatArray, memory: int) -> None:
        self.coords = coords
        self.given = given
        self.memory = memory
        self._kept: OrderedDict[Hashable, AnyArray | tuple[AnyArray | float, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Ladder], tuple[Coordinates, FloatArray, int]]:
        return Ladder, (self.coords, self.given, self.memory)

    def real(self, rung: int) -> FloatArray:
        """Return Z at the radius itself."""
        return self.remember(rung, lambda: self.at(np.array([np.exp(rung * RUNG)]))[0][0].real)

    def circle(self, rung: int, count: int) -> Circle:
        """Return Z at ``count`` nodes of the circle (half of them: the rest are conjugates)."""
        return self.remember((rung, count), lambda: self._circle(nodes(np.exp(rung * RUNG), count)))

    def remember(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return what ``make`` gives, made anew only when it was not kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]  # type: ignore[return-value]
        value = make()
        with self._lock:
            self._kept[key] = value
            while len(self._kept) > 1 and self.n_bytes > self.memory:
                self._kept.popitem(last=False)
        return value

    @property
    def n_bytes(self) -> int:
        """Bytes kept at present."""
        return sum(_bytes(value) for value in self._kept.values())

    def _circle(self, t: ComplexArray) -> Circle:
        Z, log_w = self.at(t)
        return Circle(np.stack([Z.real, Z.imag]), log_w, np.log(t))

    def at(self, t: Array, ops: Operations = NUMPY) -> tuple[Array, Array]:
        """Return Z(t) given the ladder's items and log w(t) for points t (m,), shapes (m, r, r) and (m,), on any device."""
        R, log_det = resolvent(self.coords, t, ops)
        Z, log_minor = condition_on(R, self.given, ops)
        return Z, log_det + log_minor


def _bytes(value: AnyArray | tuple[AnyArray | float, ...]) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    return sum(part.nbytes for part in value if isinstance(part, np.ndarray))
