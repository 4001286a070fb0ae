"""The support of a kernel: which items can occur, and their rows of X and Q, in memory or in another store.

Users refer to items by their ids in the catalogue, samplers by rows of the support. This module translates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ndpp._types import BoolArray, FloatArray, IntArray, Items, RealArray
from ndpp._validation import check_items, check_matrix, frozen
from ndpp.errors import InvalidInputError, RowsUnavailableError, ZeroProbabilityError
from ndpp.laws.frame import of_components
from ndpp.laws.law import Law
from ndpp.linalg.coordinates import Coordinates, coordinates
from ndpp.linalg.factor import row_blocks
from ndpp.linalg.scaling import entry_magnitudes, is_symmetric, unit_columns
from ndpp.rows import Rows, SelectedRows
from ndpp.rows.scaled import Multiplied

DENSE_ITEMS = 30_000
"""With more items, L is not formed as a matrix (7 GB)."""
CHANGED = 0.05
"""Relative difference of ‖q‖² and the leverage, which may be 3 % too large, that shows that a row of X has changed."""
THIN = 1e-5
"""Norms of rows of Q, relative to the largest direction, below which their rounding errors are estimated."""
CHANGED_SUM = 1e-6
"""Relative difference of a sum over q that shows the same, where Q is kept."""


class ItemRows(Law):
    """The items of a kernel L = diag(δ) + X W Xᵀ: ids, rows of X, and rows of Q.

    Q spans the rows x_i / √(1 + δ_i): those of T, the items of a sample that come together. Without a background δ it spans X.
    """

    X: RealArray | Rows
    W: FloatArray
    background: FloatArray | None
    _allowed: IntArray | None  # None: all items; saves an array of 8 n bytes
    _magnitudes: FloatArray
    _sum: float | None = None  # of the entries of X, where it is an array

    @property
    def n_rows(self) -> int:
        """Number of items that can occur."""
        return self.n_items if self._allowed is None else len(self._allowed)

    @property
    def support(self) -> IntArray:
        """The items that can occur, ascending."""
        return self._support

    @of_components
    def _support(self) -> IntArray:
        return frozen(np.arange(self.n_items)) if self._allowed is None else self._allowed

    def catalogue_ids(self, rows: IntArray) -> IntArray:
        """Return the catalogue ids of rows of the support."""
        return rows if self._allowed is None else self._allowed[rows]

    def rows_of(self, items: Items, name: str = "items") -> IntArray:
        """Return the rows of the support of these items, in the same order."""
        ids = check_items(items, self, name)
        outside = ids[~self.can_occur(ids)]
        if outside.size:
            raise ZeroProbabilityError(
                f"{name} contains item {outside[0]}, which this kernel excludes; it can never occur"
            )
        return ids if self._allowed is None else np.searchsorted(self._allowed, ids)

    def can_occur(self, ids: IntArray) -> BoolArray:
        """Return which of these ids are in the support."""
        if self._allowed is None:
            return np.ones(len(ids), bool)
        place = np.minimum(np.searchsorted(self._allowed, ids), len(self._allowed) - 1)
        return np.asarray(self._allowed[place] == ids)

    # -- rows ----------------------------------------------------------------------------------------------------------------

    @of_components
    def odds(self) -> FloatArray:
        """δ on the support: the odds of each item to come by itself."""
        if self.background is None:
            return frozen(np.zeros(self.n_rows))
        return self.background if self._allowed is None else self.background[self._allowed]

    @of_components
    def _scaled(self) -> RealArray | Rows:
        """The rows x_i / √(1 + δ_i)."""
        return self.X if self.background is None else Multiplied(self.X, 1 / np.sqrt(1 + self.background))

    @of_components
    def _factor(self) -> RealArray | Rows:
        """These rows on the support."""
        source, ids = self._scaled, self._allowed
        if ids is None:
            return source
        return SelectedRows(source, ids) if isinstance(source, Rows) else frozen(source[ids])

    @of_components
    def coordinates(self) -> Coordinates:
        """The low-rank part of L, scaled by (1 + δ)^−½ on both sides, as Q B Qᵀ; see :class:`ndpp.linalg.coordinates.Coordinates`."""
        self.check_unchanged()
        return coordinates(self._factor, self.W, magnitudes=self._magnitudes)

    @of_components
    def is_symmetric(self) -> bool:
        """Whether L is symmetric, up to rounding."""
        return is_symmetric(self.W, self._magnitudes)

    @of_components
    def unit_columns(self) -> IntArray | None:
        """Where X has rows of the identity, as that of a dense kernel: the column of each, so that L_ij = W[c_i, c_j]. None elsewhere."""
        return unit_columns(self._factor)

    @of_components
    def unit_scale(self) -> FloatArray:
        """Magnitudes of the entries of W: those of its diagonal, or, of a W that was computed, those of the terms that it is made of."""
        own = np.maximum(np.asarray(self.W.diagonal(), np.float64), 0.0)
        return np.where(self._magnitudes > 2 * entry_magnitudes(np.asarray(self.W, np.float64)), self._magnitudes, own)

    def check_unchanged(self) -> None:
        """Raise if an array X has changed since the kernel was built, as far as its sum shows."""
        if not isinstance(self.X, Rows) and self._sum is not None and self.X.sum() != self._sum:
            raise RowsUnavailableError(
                "X is not what it was when the kernel was built: the array has changed. Build the kernel again."
            )

    @property
    def rank(self) -> int:
        """Rank of X W Xᵀ. A background allows larger samples."""
        return self.coordinates.rank

    @of_components
    def largest(self) -> IntArray:
        """The size of the largest set: the rank, if there is no background."""
        return np.array([min(self.n_rows, int(np.count_nonzero(self.odds)) + self.rank)])

    def known_rows(self, rows: IntArray) -> FloatArray:
        """Return rows of X; raise if Q is kept and shows that they have changed since the kernel was prepared. O(d) per row."""
        x, Q = take(self.X, self.catalogue_ids(rows)), self.coordinates.Q
        if Q is not None:
            (total, most), scale = self._probe, 1 / np.sqrt(1 + self.odds[rows])
            changed = np.abs((x @ total) * scale - Q[rows].sum(axis=1)) > CHANGED_SUM * (np.abs(x) @ most) * scale
            if changed.any():
                raise self._changed(rows[changed])
        return x

    @of_components
    def _probe(self) -> tuple[FloatArray, FloatArray]:
        return self.coordinates.to_q.sum(axis=1), np.abs(self.coordinates.to_q).sum(axis=1)

    def q_rows(self, rows: IntArray) -> FloatArray:
        """Return rows of Q, shape (len(rows), rank); raise if a store gives other rows of X than those the kernel was prepared with."""
        coords = self.coordinates
        if coords.Q is not None:
            return coords.Q[rows]
        Q = take(self._scaled, self.catalogue_ids(rows)) @ coords.to_q
        if isinstance(self._scaled, Rows) and len(rows) > 1:  # a single row was usually fetched and checked just before
            wanted = coords.leverage[rows]
            changed = np.abs(np.einsum("ij,ij->i", Q, Q) - wanted) > CHANGED * wanted + 1e-12
            if changed.any():
                raise self._changed(rows[changed])
        return Q

    def row_noise(self, rows: IntArray, norms: FloatArray) -> FloatArray:
        """Return the relative errors of rows of Q whose scaled norms are these, where they are so small that terms may have cancelled."""
        coords, noise = self.coordinates, np.zeros(len(rows))
        largest = coords.scale.max(initial=0.0)
        small = norms < THIN * largest
        if small.any():
            x = take(self._scaled, self.catalogue_ids(rows[small]))
            noise[small] = np.abs(x) @ coords.blur * largest / norms[small]
        return noise

    def x_blocks(self) -> Iterator[tuple[slice, RealArray]]:
        """Yield the rows that Q spans in blocks."""
        factor = self._factor
        if isinstance(factor, Rows):
            return factor.stream()
        return ((block, factor[block]) for block in row_blocks(factor))

    def q_blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield Q in row blocks."""
        coords = self.coordinates
        if coords.Q is not None:
            return ((block, coords.Q[block]) for block in row_blocks(coords.Q))
        return ((block, _times(coords.to_q, part)) for block, part in self.x_blocks())

    def q_map(self, function: Callable[[FloatArray], FloatArray]) -> Iterator[tuple[slice, FloatArray]]:
        """Yield ``function`` of Q in row blocks, computed where these are stored: for functions with small results."""
        coords, factor = self.coordinates, self._factor
        if coords.Q is None and isinstance(factor, Rows):
            return factor.each(partial(_of_q, function, coords.to_q))
        return ((block, function(Q)) for block, Q in self.q_blocks())

    def q_times(self, vectors: FloatArray) -> FloatArray:
        """Return Q · vectors without forming Q. O(n d) per vector."""
        coords, factor = self.coordinates, self._factor
        if coords.Q is not None:
            return coords.Q @ vectors
        times, out = partial(_times, coords.to_q @ vectors), np.empty((self.n_rows, vectors.shape[1]))
        parts = factor.each(times) if isinstance(factor, Rows) else ((b, times(x)) for b, x in self.x_blocks())
        for block, part in parts:
            out[block] = part
        return out

    def to_dense(self) -> FloatArray:
        """Return L as an (n, n) array; rows and columns of items that cannot occur are zero."""
        if len(self.X) > DENSE_ITEMS:
            raise InvalidInputError(
                f"L would take {8e-9 * len(self.X) ** 2:.3g} GB for {len(self.X)} items; to_dense is for at most {DENSE_ITEMS}. "
                "Everything else is computed from X and W; ask for blocks of L as X[rows] W X[columns]ᵀ."
            )
        X = np.zeros(self.X.shape)
        X[self.support] = self.X.take(self.support) if isinstance(self.X, Rows) else self.X[self.support]
        L = X @ np.asarray(self.W, np.float64) @ X.T
        L[self.support, self.support] += self.odds
        return np.asarray(L)

    def _changed(self, rows: IntArray) -> RowsUnavailableError:
        store = self.X.name if isinstance(self.X, Rows) else "the array"
        return RowsUnavailableError(
            f"row {self.catalogue_ids(rows)[0]} of X is not what it was when the kernel was prepared: {store} has changed. "
            "Build the kernel again."
        )


def take(source: RealArray | Rows, ids: IntArray) -> FloatArray:
    """Return rows of X in double precision."""
    return np.asarray(source.take(ids) if isinstance(source, Rows) else source[ids], np.float64)


def _times(vectors: FloatArray, part: RealArray) -> FloatArray:
    return np.asarray(part, np.float64) @ vectors


def _of_q(function: Callable[[FloatArray], FloatArray], to_q: FloatArray, part: RealArray) -> FloatArray:
    return function(_times(to_q, part))


def check_background(background: Any, n_items: int) -> FloatArray:
    """Return the odds δ of all items; raise unless there is one per item, and none is negative."""
    odds = check_matrix([background], "background", shape=(1, None))[0].astype(np.float64)
    if (odds < 0).any():
        first = int(np.argmax(odds < 0))
        raise InvalidInputError(
            f"background must be odds ≥ 0; {np.count_nonzero(odds < 0)} entries are negative, the first, {odds[first]:g}, "
            f"at {first}. Use 0 for items that come with others only."
        )
    if len(odds) != n_items:
        raise InvalidInputError(f"background must be {n_items} odds, one per row of X; got {len(odds)}")
    return frozen(odds)
