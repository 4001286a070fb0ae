"""What mixtures over shared ties have in common, whether the ties are between items or between families of items."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ndpp._types import AnyArray, FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law
from ndpp.laws.mixture import Mixture


class Components(Sequence[Any]):
    """The components of a mixture with shared ties as distributions of their own; each is built when it is requested."""

    def __init__(self, mixture: SharedTies) -> None:
        self.mixture = mixture

    def __len__(self) -> int:
        return len(self.mixture.odds)

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            return [self[c] for c in range(len(self))[which]]
        return self.mixture.single(range(len(self))[which])


class Tables(NamedTuple):
    """What begun baskets look up for every item and component, each of shape (n_items, C); see :mod:`ndpp.laws.begun`.

    P_c(a ∈ S); its derivative by x_aᵀ N_c x_a; and by how much P_c(a ∈ S) may exceed its first value given items that do not pull a.
    """

    inclusions: FloatArray
    slopes: FloatArray
    gaps: FloatArray


class SharedTies(Mixture):
    """Base class: components with odds of their own, rows of ``odds``, and the ties of one ``base`` for all."""

    odds: AnyArray
    base: LowRankKernel

    @property
    def components(self) -> Components:
        """The components."""
        return Components(self)

    @abstractmethod
    def single(self, c: int) -> Law:
        """Return component c."""

    @abstractmethod
    def begun(self, baskets: Baskets) -> tuple[Any, Baskets, Any]:
        """Return P_c(J ⊆ S) of baskets J as that of others in a :class:`~ndpp.laws.tied.TiedMixture`, times exp of the last result."""

    @abstractmethod
    def slopes(self) -> FloatArray:
        """Return ∂P_c(a ∈ S) / ∂(x_aᵀ N_c x_a) of all components and items of the catalogue, shape (C, n_items)."""

    @abstractmethod
    def component_inclusions(self) -> FloatArray:
        """Return P_c(a ∈ S) of all components, shape (C, n_items)."""

    @cached_property
    def tables(self) -> Tables:
        """Tables for baskets that have begun. O(C n r²), once."""
        ties: Any = self.begun(Baskets.from_lists([], n_items=self.n_items))[0]
        slopes, gaps = self.slopes(), ties.gaps
        gaps = slopes * (gaps if self.row_of is None else gaps[:, self.row_of])
        return Tables(*(np.ascontiguousarray(table.T) for table in (self.component_inclusions(), slopes, gaps)))

    @property
    @abstractmethod
    def row_of(self) -> IntArray | None:
        """The number of the row x of every item that can occur; None if it is that of the item."""

    def settled(self, baskets: Baskets, posterior: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Return baskets, items and P(a ∈ S | J ⊆ S) where this does not depend on ties, from P(c | J ⊆ S)."""
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)

    def _log_whole_of(self, ids: IntArray) -> FloatArray:
        return Law._log_whole_of(self, ids)  # all components at once, and not one by one
