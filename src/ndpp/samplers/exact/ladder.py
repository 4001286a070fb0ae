"""A geometric ladder of radii with their resolvents, computed on first use and cached within a memory budget."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from ndpp._memory import Memory, n_bytes_of
from ndpp._types import ComplexArray, FloatArray, IntArray
from ndpp.items import LeverageTable
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.coordinates import Coordinates
from ndpp.linalg.eigen import EigenBasis
from ndpp.linalg.operations import NUMPY, Array, Operations
from ndpp.linalg.schur import condition_on
from ndpp.linalg.size_law import nodes, resolvent
from ndpp.samplers.exact.plan import RUNG_STEP
from ndpp.samplers.exact.rows import EigenRows

Value = TypeVar("Value")


class KernelParts:
    """What all samplers of a kernel share, whatever is given: the table of its items, and rows in eigencoordinates once they are needed."""

    def __init__(self, kernel: LowRankKernel, budget: int) -> None:
        self.kernel, self.budget, self.table = kernel, budget, LeverageTable.prepare(kernel)

    @cached_property
    def basis(self) -> EigenBasis | None:
        """The eigenbasis of the kernel; None if it has none."""
        return EigenBasis.of(self.kernel.coordinates)

    @cached_property
    def eigen(self) -> EigenRows | None:
        """The items in eigencoordinates; None without an eigenbasis."""
        return (
            None
            if self.basis is None
            else EigenRows.of(self.kernel, self.basis, max(0, self.budget - self.table.n_bytes))
        )

    def __getstate__(self) -> dict[str, object]:
        return {name: vars(self)[name] for name in ("kernel", "budget", "table")}

    @property
    def n_bytes(self) -> int:
        """Bytes of all that was computed."""
        return sum(n_bytes_of(vars(self).get(name)) for name in ("table", "basis", "eigen"))


class Circle(NamedTuple):
    """Z(t_j) given the ladder's items at the nodes of one circle, shape (2, h, r, r); log w(t_j) and log t_j."""

    Z: FloatArray
    log_w: ComplexArray
    log_t: ComplexArray


class Ladder:
    """Z(t) = R − RQ_Yᵀ(Q_Y R Q_Yᵀ)⁻¹Q_Y R on circles of radius exp(l·RUNG_STEP), l any integer, for given items with rows Q_Y.

    ``memory`` is that of all ladders of the same kernel, which share ``parts``.
    """

    def __init__(self, parts: KernelParts, rows: IntArray, memory: Memory) -> None:
        self.parts, self.rows, self.memory = parts, rows, memory
        self.coords: Coordinates = parts.kernel.coordinates
        self.given: FloatArray = parts.kernel.q_rows(rows)
        self._name = rows.tobytes()

    def remember(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return a value that depends on the given items."""
        return self.memory.remember((self._name, key), make)

    def circle(self, rung: int, count: int) -> Circle:
        """Return Z at ``count`` nodes of the circle (half of them; the rest are conjugates)."""
        return self.remember((rung, count), lambda: self._circle(nodes(np.exp(rung * RUNG_STEP), count)))

    def _circle(self, t: ComplexArray) -> Circle:
        Z, log_w = self.at(t)
        return Circle(np.stack([Z.real, Z.imag]), log_w, np.log(t))

    def at(self, t: Array, ops: Operations = NUMPY) -> tuple[Array, Array]:
        """Return Z(t) given the ladder's items, and log w(t), for points t (m,), shapes (m, r, r) and (m,), on any device."""
        R, log_det = resolvent(self.coords, t, ops)
        Z, log_minor = condition_on(R, self.given, ops)
        return Z, log_det + log_minor
