"""Routes: the ways in which :class:`~ndpp.samplers.Exact` draws a sample, behind one protocol.

A route draws further items of a sample that contains the given ones: ``wanted`` of them, or any number (None). It draws all of them
(:class:`Done`), or stops where a monitor fails and says what it has so far (:class:`Unfinished`), so that no item is drawn from a
distribution in doubt. It then finishes the sample by means that are slower and need less of the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.items import LeverageTable
from ndpp.items.base import look_up_cdf
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.eigen import EigenBasis
from ndpp.samplers.exact.ladder import Ladder
from ndpp.samplers.exact.rows import EigenRows


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


Self = TypeVar("Self")


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
