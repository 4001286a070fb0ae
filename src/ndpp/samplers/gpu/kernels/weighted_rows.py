"""Weighted sums of rows of a table: qᵀMq of proposals before any item is chosen, and the first part of it later."""

import torch
from torch import Tensor

from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.runtime import jit, tl, triton

WIDTH = 32
"""Proposals per program: one for each thread of a warp. Rows of the table are scattered, and the kernel is limited by memory."""


def weighted_rows(table: Tensor, rows: Tensor, w: Tensor, minus: Tensor | None = None) -> Tensor:
    """Return Σ_j table[row, j] w[s, j] − Σ_j minus[s, j] for rows (S, c) of the table (n, p) and weights (S, p); shape (S, c).

    ``minus`` (S, h, c) comes from :func:`~ndpp.samplers.gpu.kernels.correction.correction`.
    """
    if not runtime.usable(table.device):
        return weighted_rows_plain(table, rows, w, minus)
    rows, out = rows.contiguous(), torch.empty(rows.shape, dtype=w.dtype, device=table.device)
    (S, count), width, half = rows.shape, table.shape[1], 0 if minus is None else minus.shape[1]
    minus = w if minus is None else minus.contiguous()
    weighted_rows_kernel[(S, triton.cdiv(count, WIDTH))](
        table, rows, w, minus, out, count, width, half, C=WIDTH, W=max(2, triton.next_power_of_2(width))
    )
    return out


def weighted_rows_plain(table: Tensor, rows: Tensor, w: Tensor, minus: Tensor | None = None) -> Tensor:
    """Twin of :func:`weighted_rows`."""
    value = torch.bmm(table[rows], w[:, :, None])[:, :, 0]
    return value if minus is None else value - minus.sum(1)


@jit(do_not_specialize=["count", "width", "half"])
def weighted_rows_kernel(table, rows, w, minus, out, count, width, half, C: tl.constexpr, W: tl.constexpr):
    """Write out (S, count) from table (n, width), rows (S, count), w (S, width), minus (S, half, count), unused if half is 0.

    Grid: (S, ⌈count/C⌉); each program has C proposals of one sample and reads rows of W ≥ width entries, the rest masked. Twin:
    :func:`weighted_rows_plain`.
    """
    s, c = tl.program_id(0).to(tl.int64), tl.program_id(1) * C + tl.arange(0, C)
    j = tl.arange(0, W)
    row = tl.load(rows + s * count + c, mask=c < count, other=0)
    weight = tl.load(w + s * width + j, mask=j < width, other=0.0)
    inside = (c < count)[:, None] & (j < width)[None, :]
    value = tl.load(table + row[:, None] * width + j[None, :], mask=inside, other=0.0)
    total = tl.sum(value * weight[None, :], 1)
    for node in range(half):
        total -= tl.load(minus + (s * half + node) * count + c, mask=c < count, other=0.0)
    tl.store(out + s * count + c, total, mask=c < count)
