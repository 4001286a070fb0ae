"""Weighted sums of rows of a table: qᵀMq of candidates before any item is chosen, and the first part of it later."""

import torch
from torch import Tensor

from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.runtime import jit, tl, triton

CANDIDATES = 32
"""Candidates of a program: one for each thread of a warp. Rows of the table come from anywhere, and memory is all it waits for."""


def weighed_rows(table: Tensor, rows: Tensor, weights: Tensor, less: Tensor | None = None) -> Tensor:
    """Return Σ_j table[row, j] weights[s, j] for rows (S, c) of the table (n, p) and weights (S, p), less Σ_j less[s, j]; shape (S, c).

    ``less`` (S, h, c) is what :func:`~ndpp.samplers.gpu.kernels.judge.judge` gives.
    """
    if not runtime.usable(table.device):
        return weighed_rows_plain(table, rows, weights, less)
    rows, out = rows.contiguous(), torch.empty(rows.shape, dtype=weights.dtype, device=table.device)
    (S, count), width, half = rows.shape, table.shape[1], 0 if less is None else less.shape[1]
    less = weights if less is None else less.contiguous()
    weighed_rows_kernel[(S, triton.cdiv(count, CANDIDATES))](
        table, rows, weights, less, out, count, width, half, C=CANDIDATES, W=runtime.power_of_two(width, 2)
    )
    return out


def weighed_rows_plain(table: Tensor, rows: Tensor, weights: Tensor, less: Tensor | None = None) -> Tensor:
    """Return what :func:`weighed_rows` does, by torch."""
    value = torch.bmm(table[rows], weights[:, :, None])[:, :, 0]
    return value if less is None else value - less.sum(1)


@jit(do_not_specialize=["count", "width", "half"])
def weighed_rows_kernel(table, rows, weights, less, out, count, width, half, C: tl.constexpr, W: tl.constexpr):
    """Write out (S, count) from table (n, width), rows (S, count), weights (S, width), less (S, half, count), none if half is 0.

    Grid: (S, ⌈count/C⌉); a program has C candidates of one sample and reads rows of W ≥ width entries, the rest masked. Twin:
    :func:`weighed_rows_plain`.
    """
    s, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * C + tl.arange(0, C)
    j = tl.arange(0, W)
    row = tl.load(rows + s * count + c, mask=c < count, other=0)
    weight = tl.load(weights + s * width + j, mask=j < width, other=0.0)
    value = tl.load(
        table + row[:, None] * width + j[None, :], mask=(c < count)[:, None] & (j < width)[None, :], other=0.0
    )
    total = tl.sum(value * weight[None, :], 1)
    for node in range(half):
        total -= tl.load(less + (s * half + node) * count + c, mask=c < count, other=0.0)
    tl.store(out + s * count + c, total, mask=c < count)
