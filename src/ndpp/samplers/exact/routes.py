"""Routes: the ways in which :class:`~ndpp.samplers.Exact` draws a sample, behind one protocol.

A route draws further items of a sample that contains the given ones: ``wanted`` of them, or any number (None). It draws all of them
(:class:`Done`), or stops where a monitor fails and says what it has so far (:class:`Unfinished`), so that no item is drawn from a
distribution in doubt. It then finishes the sample by means that are slower and need less of the kernel.

What all routes draw from is a :class:`Target`: a kernel, given items, and a :class:`Ladder` of circles, computed on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

from ndpp._memory import Memory, n_bytes_of
from ndpp._types import ComplexArray, FloatArray, IntArray, cached_property
from ndpp.items import LeverageTable
from ndpp.items.base import look_up_cdf
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.coordinates import Coordinates
from ndpp.linalg.eigen import EigenBasis
from ndpp.linalg.operations import NUMPY, Array, Operations
from ndpp.linalg.schur import condition_on
from ndpp.linalg.size_law import error_given, nodes, resolvent, rounding_error
from ndpp.samplers.exact.plan import RUNG_STEP
from ndpp.samplers.exact.rows import EigenRows

Value = TypeVar("Value")
Self = TypeVar("Self")


class CircleReport(NamedTuple):
    """How many circles a sample used after its first, and the worst values of their monitors, as in the ``info`` of draws."""

    recentred: int = 0
    trace_error: float = 0.0
    fraction: float = 1.0


class Done(NamedTuple):
    """The further items of a sample, as rows in any order; the number of proposals; the circles, if there were any."""

    rows: IntArray
    proposals: int
    circles: CircleReport | None = None


class Unfinished(NamedTuple):
    """What a route has drawn before a monitor failed, as in :class:`Done`.

    ``moment``: if it has a clock, its time, which has just been proposed, and the rate of the proposal (:mod:`ndpp.samplers.clock`).
    """

    rows: IntArray
    proposals: int
    circles: CircleReport | None = None
    moment: tuple[float, float] | None = None


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
        if self.basis is None:
            return None
        return EigenRows.of(self.kernel, self.basis, max(0, self.budget - self.table.n_bytes))

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

    def error_on(self, rung: int) -> float:
        """Return an estimate of the rounding error of the distribution of sizes on a rung; for that of all sets, it is kept."""

        def make() -> tuple[FloatArray, float]:
            tilt = np.exp(rung * RUNG_STEP)
            return resolvent(self.coords, np.array([tilt]))[0][0], rounding_error(self.coords, tilt)

        R, error = self.memory.remember(("rounding", rung), make)
        return error_given(self.coords, R, self.given, error)

    def at(self, t: Array, ops: Operations = NUMPY) -> tuple[Array, Array]:
        """Return Z(t) given the ladder's items, and log w(t), for points t (m,), shapes (m, r, r) and (m,), on any device."""
        R, log_det = resolvent(self.coords, t, ops)
        Z, log_minor = condition_on(R, self.given, ops)
        return Z, log_det + log_minor


@dataclass(frozen=True, eq=False)
class Target:
    """What all routes draw from: a kernel, and given items, as rows of the kernel and on the ladder of circles.

    ``size_law`` is the distribution of the number of further items; ``symmetric``: W is symmetric.
    """

    kernel: LowRankKernel
    given: IntArray
    ladder: Ladder = field(repr=False)
    size_law: FloatArray = field(repr=False)
    symmetric: bool

    def draw_count(self, rng: np.random.Generator) -> int:
        """Draw the number of items in addition to the given ones."""
        return look_up_cdf(np.cumsum(self.size_law), rng.random())

    @property
    def index(self) -> LeverageTable:
        """The table of the items."""
        return self.ladder.parts.table

    @property
    def basis(self) -> EigenBasis | None:
        """The eigenbasis of the kernel; None if it has none."""
        return self.ladder.parts.basis

    @property
    def eigen(self) -> EigenRows | None:
        """The items in eigencoordinates; None without an eigenbasis."""
        return self.ladder.parts.eigen


class Route(Protocol):
    """Draws further items of a target; see above."""

    name: ClassVar[str]

    @property
    def n_bytes(self) -> int:
        """Bytes of the arrays that are its own and not those of the target."""

    @classmethod
    def prepare(cls: type[Self], target: Target, wanted: int | None) -> Self | None:
        """Compute what depends on the target alone; None if the route does not suit it."""

    def draw(self, rng: np.random.Generator) -> Done | Unfinished:
        """Draw the further items of one sample."""

    def finish(self, target: Target, rng: np.random.Generator, begun: Unfinished) -> Done:
        """Draw the rest of a sample of the target that this route has left unfinished."""
