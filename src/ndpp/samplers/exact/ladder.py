"""A geometric ladder of radii with their resolvents, computed on first use and cached within a memory budget.

Cached values do not depend on the order of requests, so the cache changes times and never results.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ndpp._types import AnyArray, ComplexArray, FloatArray
from ndpp.linalg import Coordinates, condition_on, nodes, resolvent
from ndpp.linalg.operations import NUMPY, Array, Operations
from ndpp.samplers.exact.monitors import RUNG_STEP

Value = TypeVar("Value", bound="AnyArray | tuple[Any, ...]")


class Circle(NamedTuple):
    """Z(t_j) given the ladder's items at the nodes of one circle, shape (2, h, r, r); log w(t_j) and log t_j."""

    Z: FloatArray
    log_w: ComplexArray
    log_t: ComplexArray


class Ladder:
    """Z(t) = R − RQ_Yᵀ(Q_Y R Q_Yᵀ)⁻¹Q_Y R on circles of radius exp(l·RUNG_STEP), l any integer, for given items with rows Q_Y."""

    def __init__(self, coords: Coordinates, given: FloatArray, memory: int) -> None:
        self.coords, self.given, self.memory = coords, given, memory
        self._kept: OrderedDict[Hashable, AnyArray | tuple[Any, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Ladder], tuple[Coordinates, FloatArray, int]]:
        return Ladder, (self.coords, self.given, self.memory)

    def real(self, rung: int) -> FloatArray:
        """Return Z at the radius itself."""
        return self.remember(rung, lambda: self.at(np.array([np.exp(rung * RUNG_STEP)]))[0][0].real)

    def circle(self, rung: int, count: int) -> Circle:
        """Return Z at ``count`` nodes of the circle (half of them; the rest are conjugates)."""
        return self.remember((rung, count), lambda: self._circle(nodes(np.exp(rung * RUNG_STEP), count)))

    def remember(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the cached value of ``key``, computed by ``make`` if there is none."""
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
        """Bytes in the cache."""
        values = (value if isinstance(value, tuple) else (value,) for value in self._kept.values())
        return sum(part.nbytes for value in values for part in value if isinstance(part, np.ndarray))

    def _circle(self, t: ComplexArray) -> Circle:
        Z, log_w = self.at(t)
        return Circle(np.stack([Z.real, Z.imag]), log_w, np.log(t))

    def at(self, t: Array, ops: Operations = NUMPY) -> tuple[Array, Array]:
        """Return Z(t) given the ladder's items, and log w(t), for points t (m,), shapes (m, r, r) and (m,), on any device."""
        R, log_det = resolvent(self.coords, t, ops)
        Z, log_minor = condition_on(R, self.given, ops)
        return Z, log_det + log_minor
