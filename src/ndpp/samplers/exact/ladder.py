"""A geometric ladder of radii with their resolvents, computed on first use and cached within a memory budget."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ndpp._types import ComplexArray, FloatArray
from ndpp.linalg.coordinates import Coordinates
from ndpp.linalg.operations import NUMPY, Array, Operations
from ndpp.linalg.schur import condition_on
from ndpp.linalg.size_law import nodes, resolvent
from ndpp.samplers.exact.plan import RUNG_STEP

Value = TypeVar("Value")


def n_bytes_of(value: Any) -> int:
    """Return the bytes of the arrays of a record, at any depth; a value that counts its own says so by ``n_bytes``."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if hasattr(value, "n_bytes"):
        return int(value.n_bytes)
    return sum(map(n_bytes_of, value)) if isinstance(value, tuple) else 0


class Cache:
    """Values that depend on their keys alone, so that the cache changes times and never results. Threads may share it.

    The values used last are kept, within a budget of bytes: at least one, whatever its size, and those that are pinned, which others refer
    to. Every byte of them counts, and so do those of the cache ``beside``, which others may share. Values may grow: they are measured
    again when a value is made, and after ``measured`` others are used.
    """

    def __init__(self, memory: int, measured: int = 1, beside: Cache | None = None) -> None:
        self.memory, self.measured, self.beside = memory, measured, beside
        self._pinned: dict[Hashable, Any] = {}
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._sizes: dict[Hashable, int] = {}
        self._total, self._used = 0, set[Hashable]()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Cache], tuple[int, int]]:
        return Cache, (self.memory, self.measured)

    def remember(self, key: Hashable, make: Callable[[], Value], *, pinned: bool = False) -> Value:
        """Return the value of ``key``, computed by ``make`` if there is none."""
        values = self._pinned if pinned else self._kept
        with self._lock:
            if found := key in values:
                if not pinned:
                    self._kept.move_to_end(key)
                value = values[key]
                self._used.add(key)
                if len(self._used) < self.measured:
                    return value  # type: ignore[no-any-return]
        if not found:
            value = make()
        with self._lock:
            if not found:
                values[key] = value
                self._used.add(key)
            self._measure()
            budget = self.memory - (0 if self.beside is None else self.beside.n_bytes)
            while len(self._kept) > 1 and self._total > budget:
                self._total -= self._sizes.pop(self._kept.popitem(last=False)[0])
            return value  # type: ignore[no-any-return]

    def _measure(self) -> None:
        """Count the bytes of the values that were used since they were last counted, and of pinned ones: they may have grown."""
        for key in {*self._used, *self._pinned}:
            value = self._pinned.get(key, self._kept.get(key))
            before, self._sizes[key] = self._sizes.get(key, 0), n_bytes_of(value)
            self._total += self._sizes[key] - before
        self._used.clear()

    def remember_many(self, keys: list[Any], make: Callable[[list[Any]], Iterable[Value]]) -> list[Value]:
        """Return the values of different keys, those that are missing computed together."""
        with self._lock:
            found = {key: self._kept[key] for key in keys if key in self._kept}
        missing = [key for key in keys if key not in found]
        found.update(zip(missing, make(missing) if missing else ()))
        return [self.remember(key, partial(found.__getitem__, key)) for key in keys]

    @property
    def own_bytes(self) -> int:
        """Bytes of all values."""
        with self._lock:
            self._measure()
            return self._total

    @property
    def n_bytes(self) -> int:
        """Bytes of all values, and of those beside them."""
        return self.own_bytes + (0 if self.beside is None else self.beside.n_bytes)


class Circle(NamedTuple):
    """Z(t_j) given the ladder's items at the nodes of one circle, shape (2, h, r, r); log w(t_j) and log t_j."""

    Z: FloatArray
    log_w: ComplexArray
    log_t: ComplexArray


class Ladder:
    """Z(t) = R − RQ_Yᵀ(Q_Y R Q_Yᵀ)⁻¹Q_Y R on circles of radius exp(l·RUNG_STEP), l any integer, for given items with rows Q_Y.

    ``shared`` caches what does not depend on the given items, for other ladders of the same kernel as well.
    """

    def __init__(self, coords: Coordinates, given: FloatArray, memory: int, shared: Cache | None = None) -> None:
        self.coords, self.given, self.shared = coords, given, Cache(memory) if shared is None else shared
        self.cache = Cache(memory, beside=self.shared)

    def circle(self, rung: int, count: int) -> Circle:
        """Return Z at ``count`` nodes of the circle (half of them; the rest are conjugates)."""
        return self.cache.remember((rung, count), lambda: self._circle(nodes(np.exp(rung * RUNG_STEP), count)))

    def _circle(self, t: ComplexArray) -> Circle:
        Z, log_w = self.at(t)
        return Circle(np.stack([Z.real, Z.imag]), log_w, np.log(t))

    def at(self, t: Array, ops: Operations = NUMPY) -> tuple[Array, Array]:
        """Return Z(t) given the ladder's items, and log w(t), for points t (m,), shapes (m, r, r) and (m,), on any device."""
        R, log_det = resolvent(self.coords, t, ops)
        Z, log_minor = condition_on(R, self.given, ops)
        return Z, log_det + log_minor
