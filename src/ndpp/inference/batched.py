"""log det L_J and next-item scores of many baskets J at once, in stacked LAPACK and BLAS calls.

Baskets of one size form one stack of matrices L_J = q_J B q_Jᵀ. The score of item i, L_ii − L_iJ L_J⁻¹ L_Ji, needs the
columns L_·j and rows L_j· of the distinct items j of all baskets only once: O(n r) per distinct item and O(n |J|²) per
basket, where baskets on their own cost O(n r |J|). Rows are brought to one size first; a basket whose L_J is too near
to singular for that is left to the careful routines for one basket.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.laws.kernel import LowRankKernel
from ndpp.linalg.schur import MAX_LOSS, ROUNDING

CHUNK_ITEMS = 50_000
"""Items of baskets that are worked on at a time: so many rows of Q may be in memory."""
ZERO = 1e-12
"""Scores below this part of what an item's row of Q would allow are rounding of zero."""
STACK_ENTRIES = 2**16
"""Entries of the arrays of the innermost loop, which should stay in the cache."""
BLOCK_ROWS = 1024
"""Items of the catalogue that are scored at a time."""


class Table(NamedTuple):
    """The distinct items of some baskets: rows of Q brought to one size, their sizes, and the place of each entry."""

    q: FloatArray
    sizes: FloatArray
    places: IntArray


class Stack(NamedTuple):
    """Baskets of one size: their numbers, places of their items, L_J⁻¹ in the scale of the table, and log det L_J."""

    numbers: IntArray
    places: IntArray
    inverse: FloatArray
    log_dets: FloatArray


def log_dets(kernel: LowRankKernel, baskets: Baskets) -> FloatArray:
    """Return log det L_J of each basket J, −inf where it is zero."""
    out = np.full(len(baskets), np.nan)
    possible = _possible(kernel, baskets)
    for chosen in _chunks(baskets.sizes, possible):
        part = baskets[chosen]
        for stack in _stacks(kernel, part, _table(kernel, part)):
            out[chosen[stack.numbers]] = stack.log_dets
    out[~possible] = -np.inf
    for i in np.flatnonzero(np.isnan(out)):
        out[i] = kernel.log_det(baskets[i])
    return out


def next_scores(kernel: LowRankKernel, baskets: Baskets) -> FloatArray:
    """Return det L_{J∪i} / det L_J for each basket J and item i, shape (len(baskets), n_items).

    Items of the basket, and items the kernel excludes, score zero, as does every item where J is as large as the rank. Baskets that are
    impossible, or too near to singular, are rows of NaN; so are those whose scores are all small beside what items' rows would allow.
    """
    out = np.full((len(baskets), kernel.n_items), np.nan)
    for chosen in _chunks(baskets.sizes, _possible(kernel, baskets)):
        least = _score(kernel, baskets[chosen], chosen, out)
        order = np.argsort(-least, kind="stable")
        # What may be lost of the largest row that is not in the basket must not matter beside the best score.
        for i in chosen[baskets.sizes[chosen] < kernel.rank]:
            beside = order[: baskets.sizes[i] + 1]
            if least[beside[~np.isin(beside, baskets[i])]].max(initial=0.0) > MAX_LOSS * out[i].max():
                out[i] = np.nan
    out[baskets.sizes == kernel.rank] *= 0.0  # NaN stays
    out[np.repeat(np.arange(len(baskets)), baskets.sizes), baskets.indices] *= 0.0
    return out


def _score(kernel: LowRankKernel, baskets: Baskets, numbers: IntArray, out: FloatArray) -> FloatArray:
    """Write the scores of the baskets to the rows ``numbers`` of ``out``, but for those near to singular.

    Returns the score of each item below which it is taken for rounding of zero.
    """
    table, B, scale = _table(kernel, baskets), kernel.coordinates.B, kernel.coordinates.scale
    stacks, thresholds = list(_stacks(kernel, baskets, table)), np.zeros(kernel.n_items)
    left, right = table.q @ B.T, table.q @ B
    for stack in stacks:
        out[numbers[stack.numbers]] = 0.0
    for block, Q in kernel.q_blocks():
        for start in range(0, len(Q), BLOCK_ROWS):
            rows = Q[start : start + BLOCK_ROWS]
            items = kernel.support[block.start + start :][: len(rows)]
            columns, lines = left @ rows.T, right @ rows.T  # L_ij and L_ji, j over the table
            diagonal = np.einsum("ij,ij->i", rows @ B, rows)
            thresholds[items] = least = ZERO * ((rows * scale) ** 2).sum(axis=1)
            for stack in stacks:
                step = max(1, STACK_ENTRIES // max(1, stack.places.shape[1] * len(rows)))
                for part in (slice(i, i + step) for i in range(0, len(stack.numbers), step)):
                    product = stack.inverse[part] @ lines[stack.places[part]]
                    product *= columns[stack.places[part]]
                    found = diagonal - product.sum(axis=1)
                    found[found <= least] = 0.0
                    out[np.ix_(numbers[stack.numbers[part]], items)] = found
    return thresholds


def _table(kernel: LowRankKernel, baskets: Baskets) -> Table:
    distinct, places = np.unique(baskets.indices, return_inverse=True)
    q = kernel.q_rows(kernel.rows_of(distinct))
    sizes = np.linalg.norm(q * kernel.coordinates.scale, axis=1)
    sizes[sizes == 0] = 1.0
    return Table(q / sizes[:, None], sizes, places)


def _stacks(kernel: LowRankKernel, baskets: Baskets, table: Table) -> Iterator[Stack]:
    """Yield the baskets whose L_J is far enough from singular, those of one size together."""
    right = table.q @ kernel.coordinates.B
    for size in np.unique(baskets.sizes):
        numbers = np.flatnonzero(baskets.sizes == size)
        places = table.places[baskets.indptr[numbers][:, None] + np.arange(size)]
        L = right[places] @ table.q[places].swapaxes(1, 2)
        sign, log_det = np.linalg.slogdet(L)
        keep = (sign > 0) & np.isfinite(log_det)
        numbers, places, log_det, inverse = numbers[keep], places[keep], log_det[keep], np.linalg.inv(L[keep])
        # A change δL of the matrix changes log det by tr L⁻¹δL; entries are of order one, so rounding is of order ε.
        sure = ROUNDING * np.abs(inverse).sum(axis=(1, 2)) <= MAX_LOSS
        log_det = log_det + 2 * np.log(table.sizes[places]).sum(axis=1)
        yield Stack(numbers[sure], places[sure], inverse[sure], log_det[sure])


def _possible(kernel: LowRankKernel, baskets: Baskets) -> BoolArray:
    """Return which baskets are not larger than the rank, and hold only items that can occur."""
    fits = baskets.sizes <= kernel.rank
    if len(kernel.support) < kernel.n_items:
        owner = np.repeat(np.arange(len(baskets)), baskets.sizes)
        fits[owner[~np.isin(baskets.indices, kernel.support)]] = False
    return fits


def _chunks(sizes: IntArray, chosen: BoolArray) -> Iterator[IntArray]:
    """Yield the numbers of the chosen baskets, about ``CHUNK_ITEMS`` items at a time."""
    numbers = np.flatnonzero(chosen)
    edges = np.flatnonzero(np.diff(np.cumsum(sizes[numbers] + 1) // CHUNK_ITEMS)) + 1
    yield from (numbers[i:j] for i, j in pairwise([0, *edges.tolist(), len(numbers)]) if i < j)
