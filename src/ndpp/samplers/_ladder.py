"""A geometric ladder of radii with their resolvents, computed when first wanted and kept within a memory budget.

What a rung holds does not depend on who asked for it first, so the cache changes times and never results.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from ndpp._types import ComplexArray, FloatArray
from ndpp.linalg import Coordinates, nodes, resolvent

RUNG = 0.35
"""Step of the ladder in log ρ. One step moves the mean size by about RUNG times its variance."""


class Circle(NamedTuple):
    """R(t_j) at the nodes of one circle, shape (2, h, r, r), log det(I + t_jB) and log t_j."""

    R: FloatArray
    log_det: ComplexArray
    log_t: ComplexArray


class Ladder:
    """Radii ρ_l = exp(l·RUNG) for every integer l."""

    def __init__(self, coords: Coordinates, memory: int) -> None:
        self.coords = coords
        self.memory = memory
        self._kept: OrderedDict[tuple[int, int], FloatArray | Circle] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return {"coords": self.coords, "memory": self.memory}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(state["coords"], state["memory"])  # type: ignore[misc]

    def real(self, rung: int) -> FloatArray:
        """Return R(ρ) at the radius itself."""
        found = self._get(rung, 0)
        if found is None:
            found = self._put(rung, 0, resolvent(self.coords, np.array([np.exp(rung * RUNG)]))[0][0])
        return found  # type: ignore[return-value]

    def circle(self, rung: int, count: int) -> Circle:
        """Return R at ``count`` nodes of the circle (half of them: the rest are conjugates)."""
        found = self._get(rung, count)
        if found is None:
            t = nodes(np.exp(rung * RUNG), count)
            R, log_det = resolvent(self.coords, t)
            found = self._put(rung, count, Circle(np.stack([R.real, R.imag]), log_det, np.log(t)))
        return found  # type: ignore[return-value]

    def _get(self, rung: int, count: int) -> FloatArray | Circle | None:
        with self._lock:
            if (rung, count) in self._kept:
                self._kept.move_to_end((rung, count))
            return self._kept.get((rung, count))

    def _put(self, rung: int, count: int, value: FloatArray | Circle) -> FloatArray | Circle:
        with self._lock:
            self._kept[rung, count] = value
            while len(self._kept) > 1 and sum(map(_bytes, self._kept.values())) > self.memory:
                self._kept.popitem(last=False)
        return value


def _bytes(value: FloatArray | Circle) -> int:
    return value.R.nbytes if isinstance(value, Circle) else value.nbytes
