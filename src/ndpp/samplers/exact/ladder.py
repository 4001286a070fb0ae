"""A geometric ladder of radii with their resolvents, computed on first use and cached within a memory budget (:mod:`.cache`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndpp._types import ComplexArray, FloatArray
from ndpp.linalg import Coordinates, condition_on, nodes, resolvent
from ndpp.linalg.operations import NUMPY, Array, Operations
from ndpp.samplers.exact.cache import Cache
from ndpp.samplers.exact.monitors import RUNG_STEP


class Circle(NamedTuple):
    """Z(t_j) given the ladder's items at the nodes of one circle, shape (2, h, r, r); log w(t_j) and log t_j."""

    Z: FloatArray
    log_w: ComplexArray
    log_t: ComplexArray


class Ladder:
    """Z(t) = R − RQ_Yᵀ(Q_Y R Q_Yᵀ)⁻¹Q_Y R on circles of radius exp(l·RUNG_STEP), l any integer, for given items with rows Q_Y."""

    def __init__(self, coords: Coordinates, given: FloatArray, memory: int) -> None:
        self.coords, self.given, self.cache = coords, given, Cache(memory)

    def real(self, rung: int) -> FloatArray:
        """Return Z at the radius itself."""
        return self.cache.remember(rung, lambda: self.at(np.array([np.exp(rung * RUNG_STEP)]))[0][0].real)

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
