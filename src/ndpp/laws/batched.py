"""Minors and conditional diagonals of many baskets J at once, in stacked LAPACK and BLAS calls.

They are computed for two matrices A: the kernel L, where det A_J is the weight of J and A_ii − A_iJ A_J⁻¹ A_Ji the factor that item i
adds to it, and the marginal kernel K = L(I + L)⁻¹, where these are P(J ⊆ S) and P(i ∈ S | J ⊆ S). In the coordinates of the low-rank part
of S, rows q and B, R = B(I + B)⁻¹, with background δ (zero if there is none),

    L = (1 + δ)^½ (diag(δ/(1 + δ)) + Q B Qᵀ) (1 + δ)^½,        K = (1 + δ)^−½ (diag(δ) + Q R Qᵀ) (1 + δ)^−½.

Baskets of one size form one stack of matrices. The columns A_·j and rows A_j· of the distinct items j of all baskets are computed once:
O(n r) per distinct item and O(n |J|²) per basket, compared with O(n r |J|) for a single basket. Rows are scaled to norm one. Baskets
whose matrix is still too close to singular are left to the slower routines for single baskets.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp.baskets import Baskets
from ndpp.laws.union import WeighedSets
from ndpp.linalg import Coordinates, resolvent
from ndpp.linalg.scaling import EPS
from ndpp.linalg.schur import MAX_LOSS, ROUNDING

CHUNK_ITEMS = 50_000
"""Number of items in the baskets that are processed together, and so of rows of Q in memory."""
ZERO_SCORE = 1e-12
"""Scores below this fraction of the bound ‖q · scale‖² of their item are rounding errors of zero."""
STACK_ENTRIES = 2**16
"""Entries of the arrays of the innermost loop, which should stay in the cache."""
BLOCK_ROWS = 1024
"""Items of the catalogue that are scored at a time."""


class Form(NamedTuple):
    """The matrix A = factor^½ (diag(diagonal) + Q core Qᵀ) factor^½ over the rows of the support; |core_ij| ≤ scale_i scale_j.

    ``noise`` is the relative error of each direction.
    """

    kernel: WeighedSets
    core: FloatArray
    scale: FloatArray
    diagonal: FloatArray
    factor: FloatArray
    noise: FloatArray

    @classmethod
    def of_kernel(cls, kernel: WeighedSets) -> Form:
        """Return L."""
        coords, odds = kernel.coordinates, kernel.odds
        return cls(kernel, coords.B, coords.scale, odds / (1 + odds), 1 + odds, _noise(coords))

    @classmethod
    def of_marginal(cls, kernel: WeighedSets) -> Form:
        """Return K."""
        coords, odds = kernel.coordinates, kernel.odds
        R, scale = resolvent(coords, np.ones(1))[0][0], np.minimum(coords.scale, 1.0)
        return cls(kernel, R, scale, odds, 1 / (1 + odds), _noise(coords))


class ItemTable(NamedTuple):
    """The distinct items of some baskets: rows of Q and the diagonal, scaled to norm one, the norms, their relative errors, and the
    place of each entry."""

    q: FloatArray
    norms: FloatArray
    noise: FloatArray
    diagonal: FloatArray
    factor: FloatArray
    places: IntArray


class Stack(NamedTuple):
    """Baskets of one size: their numbers, places of their items, A_J⁻¹ in the scale of the table, and log det A_J."""

    numbers: IntArray
    places: IntArray
    inverse: FloatArray
    log_dets: FloatArray


def log_dets(kernel: WeighedSets, baskets: Baskets) -> FloatArray:
    """Return log det L_J of each basket J, −inf where it is zero and NaN where its matrix is too close to singular."""
    form, possible = Form.of_kernel(kernel), _possible(kernel, baskets)
    out = np.where(possible, np.nan, -np.inf)
    for chosen in _chunks(baskets.sizes, possible):
        part = baskets[chosen]
        for stack in _stacks(form, part, _table(form, part)):
            out[chosen[stack.numbers]] = stack.log_dets
    return out


def scores(form: Form, baskets: Baskets) -> tuple[FloatArray, BoolArray]:
    """Return A_ii − A_iJ A_J⁻¹ A_Ji for each basket J and item i, shape (len(baskets), n_items), and which baskets were scored.

    Items of the basket and excluded items score zero, as do all items if J is as large as a sample can be. A basket is not scored, and
    its row is zero, if it is impossible, if its matrix is too close to singular, or if rounding matters compared with its best score.
    """
    out, most = np.zeros((len(baskets), form.kernel.n_items)), form.kernel.largest[0]
    is_scored = np.zeros(len(baskets), bool)
    for chosen in _chunks(baskets.sizes, _possible(form.kernel, baskets)):
        least = _score(form, baskets[chosen], chosen, out, is_scored)
        order = np.argsort(-least, kind="stable")
        # Scores below ``least`` were set to zero, which is only acceptable if the best score is far larger.
        doubtful = (baskets.sizes[chosen] < most) & (least.max(initial=0.0) > MAX_LOSS * out[chosen].max(axis=1))
        for i in chosen[is_scored[chosen] & doubtful]:
            first = order[: baskets.sizes[i] + 1]
            if least[first[~np.isin(first, baskets[i])]].max(initial=0.0) > MAX_LOSS * out[i].max():
                is_scored[i] = False
    out[~is_scored | (baskets.sizes == most)] = 0.0
    out[np.repeat(np.arange(len(baskets)), baskets.sizes), baskets.indices] = 0.0
    return out, is_scored


def _score(form: Form, baskets: Baskets, numbers: IntArray, out: FloatArray, is_scored: BoolArray) -> FloatArray:
    """Write the scores of baskets that are not close to singular to their rows ``numbers`` of ``out``, and mark these.

    Returns for each item the value below which a score counts as zero.
    """
    kernel, table = form.kernel, _table(form, baskets)
    stacks, thresholds = list(_stacks(form, baskets, table)), np.zeros(kernel.n_items)
    left, right = table.q @ form.core.T, table.q @ form.core
    is_skew, is_whole = not (form.core + form.core.T).any(), len(kernel.support) == kernel.n_items
    for stack in stacks:
        is_scored[numbers[stack.numbers]] = True
    for block, Q in kernel.q_blocks():
        for start in range(block.start, block.stop, BLOCK_ROWS):
            here = slice(start, min(start + BLOCK_ROWS, block.stop))
            rows, items, factor = Q[start - block.start :][:BLOCK_ROWS], kernel.support[here], form.factor[here]
            lines = right @ rows.T  # A_ji, j over the table
            columns = lines if is_skew else left @ rows.T  # A_ij; its negative if the core is skew
            diagonal = form.diagonal[here] + np.einsum("ij,ij->i", rows @ form.core, rows)
            thresholds[items] = least = (
                ZERO_SCORE * factor * (((rows * form.scale) ** 2).sum(axis=1) + form.diagonal[here])
            )
            for stack in stacks:
                step = max(1, STACK_ENTRIES // max(1, stack.places.shape[1] * len(rows)))
                for part in (slice(i, i + step) for i in range(0, len(stack.numbers), step)):
                    picked = lines[stack.places[part]]
                    other = picked if is_skew else columns[stack.places[part]]
                    explained = np.einsum("bki,bki->bi", stack.inverse[part] @ picked, other)
                    found = factor * (diagonal + explained if is_skew else diagonal - explained)
                    found[found <= least] = 0.0
                    # A slice of columns is written much faster than a list of them.
                    to = numbers[stack.numbers[part]]
                    out[(to, here) if is_whole else np.ix_(to, items)] = found
    return thresholds


def _table(form: Form, baskets: Baskets) -> ItemTable:
    distinct, places = np.unique(baskets.indices, return_inverse=True)
    at = form.kernel.rows_of(distinct)
    q = form.kernel.q_rows(at)
    squares = (q * form.scale) ** 2
    norms = np.sqrt(squares.sum(axis=1) + form.diagonal[at])
    norms[norms == 0] = 1.0
    noise = np.sqrt(squares @ form.noise**2) / norms + form.kernel.row_noise(at, norms)
    return ItemTable(q / norms[:, None], norms, noise, form.diagonal[at] / norms**2, form.factor[at], places)


def _stacks(form: Form, baskets: Baskets, table: ItemTable) -> Iterator[Stack]:
    """Yield the baskets whose A_J is not close to singular, those of one size together."""
    right = table.q @ form.core
    for size in np.unique(baskets.sizes):
        numbers = np.flatnonzero(baskets.sizes == size)
        places = table.places[baskets.indptr[numbers][:, None] + np.arange(size)]
        A = right[places] @ table.q[places].swapaxes(1, 2)
        A[:, np.arange(size), np.arange(size)] += table.diagonal[places]
        sign, log_det = np.linalg.slogdet(A)
        keep = (sign > 0) & np.isfinite(log_det)
        numbers, places, log_det, inverse = numbers[keep], places[keep], log_det[keep], np.linalg.inv(A[keep])
        # A change δA of the matrix changes log det by tr A⁻¹δA; entries are of order one, so rounding is of order ε and their noise.
        errors = np.abs(inverse).sum(axis=2)
        sure = (errors * (ROUNDING + 2 * table.noise[places])).sum(axis=1) <= MAX_LOSS
        log_det = log_det + np.log(table.norms[places] ** 2 * table.factor[places]).sum(axis=1)
        yield Stack(numbers[sure], places[sure], inverse[sure], log_det[sure])


def _noise(coords: Coordinates) -> FloatArray:
    """Return how much more the directions are off than rounding explains, relative to their scale."""
    return (coords.noise - EPS).clip(0.0) + ROUNDING / 2 * (coords.excess**2 - 1)


def _possible(kernel: WeighedSets, baskets: Baskets) -> BoolArray:
    """Return which baskets are small enough and hold only items that can occur."""
    fits = np.asarray(baskets.sizes <= kernel.largest[0])
    if len(kernel.support) < kernel.n_items:
        owner = np.repeat(np.arange(len(baskets)), baskets.sizes)
        fits[owner[~np.isin(baskets.indices, kernel.support)]] = False
    return fits


def _chunks(sizes: IntArray, chosen: BoolArray) -> Iterator[IntArray]:
    """Yield the numbers of the chosen baskets, about ``CHUNK_ITEMS`` items at a time."""
    numbers = np.flatnonzero(chosen)
    edges = np.flatnonzero(np.diff(np.cumsum(sizes[numbers] + 1) // CHUNK_ITEMS)) + 1
    yield from (numbers[i:j] for i, j in pairwise([0, *edges.tolist(), len(numbers)]) if i < j)
