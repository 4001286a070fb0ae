"""Products l f(D) r of proposals with the items of a sample, at every node, where f(D) is diagonal but for blocks of two.

See :mod:`ndpp.samplers.gpu.diagonal`. For each sample this is one matrix product: the items' rows times the proposals' rows at the nodes.
The latter are many times larger than the proposals themselves; for few items, a kernel computes them tile by tile where they are needed.
"""

import torch
from torch import Tensor

from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.node_rows import node_rows
from ndpp.samplers.gpu.kernels.runtime import TILE, jit, tl, triton

FUSED_UP_TO, COPIED_UP_TO = 32, 64
"""Largest numbers of items for the kernel; the second if items or products would have to be copied otherwise. Chosen by timing on an H200.
For more items, the matrix products of cuBLAS are so much faster that writing all rows at the nodes first pays."""
COLUMNS = 32
"""Proposals times nodes times two, per program."""
BLOCK = 2**29
"""Largest number of entries of rows at the nodes; samples are processed some at a time."""


def node_products(factors: Tensor, rows: Tensor, items: Tensor, which: Tensor | None, out: Tensor) -> None:
    """Write l_i f(D) r_c and, if there are two ``rows``, l_c f(D) r_i to ``out`` (1 or 2, P, n, h, 2, c), real parts before imaginary ones.

    ``factors`` (4, h, 2K) are Re g, Im g, Re h, Im h; ``rows`` (1 or 2, P, c, 2K) are r_c and l_c; ``items`` (2, S, n, 2K) are r_i and l_i,
    for the samples at ``which`` (P,) or for all. Only the last axis of rows and items must be without gaps.
    """
    sides, P, n, h, _, c = out.shape
    most = FUSED_UP_TO if which is None and out.is_contiguous() else COPIED_UP_TO
    if not (runtime.usable(rows.device) and n <= most):
        return node_products_plain(factors, rows, items, which, out)
    M = max(TILE, triton.next_power_of_2(n))
    node_products_kernel[(P * sides * triton.cdiv(2 * h * c, COLUMNS),)](
        factors, rows, items, rows if which is None else which, out, n, h, c, rows.shape[3] // TILE,
        *rows.stride()[:3], *items.stride()[:3], *out.stride(),
        SIDES=sides, ALL=which is None, M=M, N=COLUMNS, K=TILE, num_warps=2,
    )  # fmt: skip
    return None


def parts(S: int, entries: int) -> list[slice]:
    """Return S samples in parts that have at most ``BLOCK`` entries, if each sample has so many."""
    step = max(1, BLOCK // max(1, entries))
    return [slice(first, min(S, first + step)) for first in range(0, S, step)]


def node_products_plain(factors: Tensor, rows: Tensor, items: Tensor, which: Tensor | None, out: Tensor) -> None:
    """Twin of :func:`node_products`, by rows at the nodes and matrix products."""
    _, P, n, h, _, c = out.shape
    for some in parts(P, 2 * h * c * rows.shape[3]):
        chosen = items[:, some, :n] if which is None else items[:, which[some], :n]
        for side, (part, opposite) in enumerate(zip(rows[:, some], (chosen[1], chosen[0]))):
            columns = node_rows(factors, part, left=side == 1).flatten(1, 3)
            to = out[side, some]
            if to.is_contiguous():
                torch.bmm(opposite, columns.mT, out=to.view(-1, n, 2 * h * c))
            else:
                to.copy_(torch.bmm(opposite, columns.mT).view(-1, n, h, 2, c))


@jit(
    do_not_specialize=[
        *("n", "half", "count", "steps"),
        *("out_side", "out_sample", "out_item", "out_node", "out_part", "out_row"),
    ]
)
def node_products_kernel(
    factors, rows, items, which, out, n, half, count, steps, rows_side, rows_sample, rows_row, items_side, items_sample, items_item,
    out_side, out_sample, out_item, out_node, out_part, out_row,
    SIDES: tl.constexpr, ALL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Write out, with strides out_…, from rows and items, with strides rows_… and items_…, and factors (4, half, steps·K).

    Grid: P·SIDES·⌈2·half·count/N⌉ programs, those of a sample adjacent; each for all n ≤ M items and N pairs of a node's part and a row.
    Twin: :func:`node_products_plain`.
    """
    columns, width, at = 2 * half * count, steps * K, tl.program_id(0)
    blocks = tl.cdiv(columns, N)
    p, side = (at // (blocks * SIDES)).to(tl.int64), at // blocks % SIDES
    i, column, k = tl.arange(0, M), at % blocks * N + tl.arange(0, N), tl.arange(0, K)
    node, part, row = column // (2 * count), column // count % 2, column % count
    sample = p if ALL else tl.load(which + p)
    items += (1 - side).to(tl.int64) * items_side + sample * items_sample
    rows += side.to(tl.int64) * rows_side + p * rows_sample
    item = items + (i * items_item)[:, None] + k[None, :]
    here, inside = (i < n)[:, None], (column < columns)[None, :]
    straight, crossed = (
        rows + (row * rows_row)[None, :] + k[:, None],
        rows + (row * rows_row)[None, :] + (k ^ 1)[:, None],
    )
    g = factors + ((part * half + node) * width)[None, :] + k[:, None]
    h, sign = g + 2 * half * width, 2.0 * side - 1.0
    total = tl.zeros((M, N), tl.float64)
    for step in range(steps):
        own = tl.load(straight + step * K, mask=inside, other=0.0) * tl.load(g + step * K, mask=inside, other=0.0)
        other = tl.load(crossed + step * K, mask=inside, other=0.0) * tl.load(h + step * K, mask=inside, other=0.0)
        some = tl.load(item + step * K, mask=here, other=0.0)
        total = tl.dot(some, own + sign * other, total, input_precision="ieee", out_dtype=tl.float64)
    out += side.to(tl.int64) * out_side + p * out_sample
    place = i.to(tl.int64)[:, None] * out_item + (node * out_node + part * out_part + row * out_row)[None, :]
    tl.store(out + place, total, mask=here & inside)
