"""Minors and conditional diagonals of many baskets J at once, in stacked LAPACK and BLAS calls.

They are computed for two matrices A: the kernel L, where det A_J is the weight of J and A_ii − A_iJ A_J⁻¹ A_Ji the factor that item i
adds to it, and the marginal kernel K = L(I + L)⁻¹, where these are P(J ⊆ S) and P(i ∈ S | J ⊆ S). In the coordinates of the low-rank part
of S, rows q and B, R = B(I + B)⁻¹, with background δ (zero if there is none),

    L = (1 + δ)^½ (diag(δ/(1 + δ)) + Q B Qᵀ) (1 + δ)^½,        K = (1 + δ)^−½ (diag(δ) + Q R Qᵀ) (1 + δ)^−½.

Baskets of one size form one stack of matrices. The columns A_·j and rows A_j· of the distinct items j of all baskets are computed once:
O(n r) per distinct item and O(n |J|²) per basket. Where only a few are asked for, they are kept for the next baskets. Rows are scaled to
norm one. Baskets whose matrix is still too close to singular are left to the slower routines for single baskets, which cost O(n r²).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ndpp._memory import Memory
from ndpp._types import BoolArray, FloatArray, IntArray, cached_property
from ndpp.baskets import Baskets
from ndpp.laws.support import ItemRows
from ndpp.linalg.scaling import EPS, ROUNDING, inverted, quadratic_forms
from ndpp.linalg.schur import MAX_LOSS

CHUNK_ITEMS = 50_000
"""Number of items in the baskets that are processed together, and so of rows of Q in memory."""
ZERO_SCORE = 1e-12
"""Scores below this fraction of the bound ‖q · scale‖² of their item are rounding errors of zero."""
STACK_ENTRIES = 2**16
"""Entries of the arrays of the innermost loop, which should stay in the cache."""
BLOCK_ROWS = 1024
"""Items of the catalogue that are scored at a time."""
MAX_KEPT_ITEMS = 64
"""Columns and rows of A are kept if at most this many distinct items are requested."""
KEPT_BYTES = 128 * 2**20
"""Most bytes of them that are kept, within half of the memory of the law."""


@dataclass(frozen=True, eq=False)
class Form:
    """The matrix A = factor^½ (diag(diagonal) + Q core Qᵀ) factor^½ over the rows of the support; |core_ij| ≤ scale_i scale_j.

    ``name`` is that of A, L or K.
    """

    kernel: ItemRows
    core: FloatArray
    scale: FloatArray
    diagonal: FloatArray
    factor: FloatArray
    name: str

    @cached_property
    def noise(self) -> FloatArray:
        """How much more the directions are off than rounding explains, relative to their scale."""
        coords = self.kernel.coordinates
        return (coords.noise - EPS).clip(0.0) + ROUNDING / 2 * (coords.excess**2 - 1)

    @cached_property
    def own(self) -> FloatArray:
        """A_ii, without its factor, and the bound ‖q · scale‖² + diagonal of its terms, for every row of the support. O(n r²), once."""
        parts = self.kernel.q_map(partial(_own, core=self.core, scale=self.scale))
        return np.asarray(np.concatenate([part for _, part in parts], axis=1) + self.diagonal)

    @cached_property
    def least(self) -> FloatArray:
        """The score below which that of a row counts as zero."""
        return np.asarray(ZERO_SCORE * self.factor * self.own[1])

    @cached_property
    def blur(self) -> float:
        """The largest error of A_ii that follows from that of the directions."""
        parts = self.kernel.q_map(partial(_own, core=self.core, scale=self.scale * np.sqrt(2 * self.noise)))
        return float((self.factor * np.concatenate([part[1] for _, part in parts])).max())

    @cached_property
    def is_skew(self) -> bool:
        """Whether A_ij = −A_ji."""
        return not (self.core + self.core.T).any()

    @property
    def most(self) -> int:
        """Number of items whose lines may be kept."""
        return KEPT_BYTES // (16 * self.kernel.n_rows)

    def lines(self, rows: IntArray, memory: Memory) -> FloatArray:
        """Return q_j core Qᵀ and q_j coreᵀ Qᵀ of a few rows j of the support, shape (len(rows), 2, n_rows). O(n r) for each new one."""

        def make(missing: list[tuple[str, int]]) -> list[FloatArray]:
            q = self.kernel.q_rows(np.array([j for _, j in missing]))
            sides = np.stack([q @ self.core, q @ self.core.T], axis=1).reshape(2 * len(q), len(self.core))
            lines = self.kernel.q_times(sides.T).T.reshape(len(q), 2, self.kernel.n_rows)
            return [line.copy() for line in lines]

        kept = memory.remember("lines", lambda: Memory(min(KEPT_BYTES, memory.budget // 2)))
        found = kept.remember_many([(self.name, j) for j in rows.tolist()], make)
        return np.array(found).reshape(len(rows), 2, self.kernel.n_rows)


def _own(Q: FloatArray, core: FloatArray, scale: FloatArray) -> FloatArray:
    return np.stack([quadratic_forms(Q, core), ((Q * scale) ** 2).sum(axis=1)])


class DistinctItems(NamedTuple):
    """The distinct items of some baskets: rows of the support, of Q and the diagonal, scaled to norm one, the norms, their relative errors,
    and the place of each entry."""

    rows: IntArray
    q: FloatArray
    norms: FloatArray
    noise: FloatArray
    diagonal: FloatArray
    factor: FloatArray
    places: IntArray


class Stack(NamedTuple):
    """Baskets of one size: their numbers, places of their items, A_J⁻¹ in the scale of the table, log det A_J, and its error."""

    numbers: IntArray
    places: IntArray
    inverse: FloatArray
    log_dets: FloatArray
    loss: FloatArray


def log_dets(form: Form, baskets: Baskets) -> FloatArray:
    """Return log det A_J of each basket J, −inf where it is zero and NaN where its matrix is too close to singular."""
    possible = _possible(form.kernel, baskets)
    out = np.where(possible, np.nan, -np.inf)
    for chosen in _chunks(baskets.sizes, possible):
        part = baskets[chosen]
        for stack in _stacks(form, part, _table(form, part)):
            out[chosen[stack.numbers]] = stack.log_dets
    return out


def scores(form: Form, baskets: Baskets, memory: Memory) -> tuple[FloatArray, BoolArray]:
    """Return A_ii − A_iJ A_J⁻¹ A_Ji for each basket J and item i, shape (len(baskets), n_items), and which baskets were scored.

    Items of the basket and excluded items score zero, as do all items if J is as large as a sample can be. A basket is not scored, and
    its row is zero, if it is impossible, if its matrix is too close to singular, or if rounding matters compared with its best score.
    ``memory`` keeps lines of A.
    """
    out, most, sizes = np.zeros((len(baskets), form.kernel.n_items)), form.kernel.largest[0], baskets.sizes
    is_scored = np.zeros(len(baskets), bool)
    losses, largest = np.full(len(baskets), np.inf), (form.factor * form.own[1]).max()
    for chosen in _chunks(sizes, _possible(form.kernel, baskets)):
        _score(form, baskets[chosen], memory, chosen, out, losses)
        # Scores below ``least`` were set to zero, which is only acceptable if the best score is far larger.
        best = out[chosen].max(axis=1)
        errors = form.blur + losses[chosen] * largest
        is_scored[chosen] = (errors <= MAX_LOSS * best) | ((losses[chosen] < np.inf) & (sizes[chosen] == most))
        doubtful = (sizes[chosen] < most) & (form.least.max() > MAX_LOSS * best)
        for i in chosen[is_scored[chosen] & doubtful]:
            others = np.delete(form.least, form.kernel.rows_of(baskets[i]))
            is_scored[i] = others.max(initial=0.0) <= MAX_LOSS * out[i].max()
    out[~is_scored | (sizes == most)] = 0.0
    out[np.repeat(np.arange(len(baskets)), sizes), baskets.indices] = 0.0
    return out, is_scored


def _score(
    form: Form, baskets: Baskets, memory: Memory, numbers: IntArray, out: FloatArray, losses: FloatArray
) -> None:
    """Write the scores of baskets that are not close to singular, and their losses, to their rows ``numbers`` of ``out``."""
    kernel, table = form.kernel, _table(form, baskets)
    stacks = list(_stacks(form, baskets, table))
    is_whole = len(kernel.support) == kernel.n_items
    for stack in stacks:
        losses[numbers[stack.numbers]] = stack.loss
    for here, lines, columns in _lines(form, table, memory):
        diagonal, items, factor, least = form.own[0, here], kernel.support[here], form.factor[here], form.least[here]
        for stack in stacks:
            step = max(1, STACK_ENTRIES // max(1, stack.places.shape[1] * len(items)))
            for part in (slice(i, i + step) for i in range(0, len(stack.numbers), step)):
                picked = lines[stack.places[part]]
                other = picked if form.is_skew else columns[stack.places[part]]
                explained = np.einsum("bki,bki->bi", stack.inverse[part] @ picked, other)
                found = factor * (diagonal + explained if form.is_skew else diagonal - explained)
                found[found <= least] = 0.0
                # A slice of columns is written much faster than a list of them.
                to = numbers[stack.numbers[part]]
                out[(to, here) if is_whole else np.ix_(to, items)] = found


def _lines(form: Form, table: DistinctItems, memory: Memory) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
    """Yield some rows i of the support, and A_ji and A_ij of the items j of the table, in its scale and without the factor of i."""
    kernel = form.kernel
    if len(table.rows) <= min(MAX_KEPT_ITEMS, form.most) and isinstance(kernel.X, np.ndarray):
        both = form.lines(table.rows, memory)
        both /= table.norms[:, None, None]
        yield slice(0, kernel.n_rows), both[:, 0], both[:, 1]
        return
    left, right = table.q @ form.core.T, table.q @ form.core
    for block, Q in kernel.q_blocks():
        for start in range(block.start, block.stop, BLOCK_ROWS):
            here, rows = slice(start, min(start + BLOCK_ROWS, block.stop)), Q[start - block.start :][:BLOCK_ROWS]
            lines = right @ rows.T
            yield here, lines, lines if form.is_skew else left @ rows.T


def _table(form: Form, baskets: Baskets) -> DistinctItems:
    distinct, places = np.unique(baskets.indices, return_inverse=True)
    at = form.kernel.rows_of(distinct)
    q = form.kernel.q_rows(at)
    squares = (q * form.scale) ** 2
    norms = np.sqrt(squares.sum(axis=1) + form.diagonal[at])
    norms[norms == 0] = 1.0
    noise = np.sqrt(squares @ form.noise**2) / norms + form.kernel.row_noise(at, norms)
    return DistinctItems(at, q / norms[:, None], norms, noise, form.diagonal[at] / norms**2, form.factor[at], places)


def _stacks(form: Form, baskets: Baskets, table: DistinctItems) -> Iterator[Stack]:
    """Yield the baskets whose A_J is not close to singular, those of one size together."""
    right, sizes = table.q @ form.core, baskets.sizes
    for size in np.unique(sizes):
        numbers = np.flatnonzero(sizes == size)
        places = table.places[baskets.indptr[numbers][:, None] + np.arange(size)]
        A = right[places] @ table.q[places].swapaxes(1, 2)
        A[:, np.arange(size), np.arange(size)] += table.diagonal[places]
        sign, log_det = np.linalg.slogdet(A)
        keep = (sign > 0) & np.isfinite(log_det)
        numbers, places, log_det, inverse = numbers[keep], places[keep], log_det[keep], inverted(A[keep])
        # A change δA of the matrix changes log det by tr A⁻¹δA; entries are of order one, so rounding is of order ε and their noise.
        errors = np.abs(inverse).sum(axis=2)
        loss = (errors * (ROUNDING + 2 * table.noise[places])).sum(axis=1)
        sure = loss <= MAX_LOSS
        log_det = log_det + np.log(table.norms[places] ** 2 * table.factor[places]).sum(axis=1)
        yield Stack(numbers[sure], places[sure], inverse[sure], log_det[sure], loss[sure])


def _possible(kernel: ItemRows, baskets: Baskets) -> BoolArray:
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
