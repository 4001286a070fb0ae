"""The walk's up-step, as an object: given the items kept, A, draw a pair {a, b} with probability ∝ det L_{A ∪ {a, b}}.

An up-step holds settings only (``DirectUp()``, ``RejectionUp()``, ``NaiveUp()``); ``prepare`` pays what depends on
the kernel alone and returns what the walk asks for pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from ndpp._types import IntArray
from ndpp.laws.kernel import LowRankKernel


class PreparedUp(Protocol):
    """An up-step for one kernel. Immutable, so threads may share it; serves kept sets of every size."""

    def pair(self, rng: np.random.Generator, kept_rows: IntArray) -> tuple[IntArray, Mapping[str, float]]:
        """Return the two rows that join those kept, ascending, and counters (``proposals``, ``rejections``, …)."""


class UpStep(Protocol):
    """How the walk puts two items back."""

    def prepare(self, kernel: LowRankKernel, size: int) -> PreparedUp:
        """Pay what depends on the kernel alone. ``size`` is the largest size that will be asked for."""
