"""Rows times f(D) at every node, in coordinates in which f(D) is diagonal but for blocks of two: :mod:`ndpp.samplers.gpu.diagonal`.

Products of proposals with the items of a sample are then ordinary matrix products, with these rows on one side.
"""

import torch
from torch import Tensor

from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.layout import swapped
from ndpp.samplers.gpu.kernels.runtime import jit, tl, triton

ROWS, NODES = 4, 4
"""Most rows and nodes per program, which share what it reads."""


def node_rows(factors: Tensor, rows: Tensor, *, left: bool) -> Tensor:
    """Return l f(D) for rows l = ``rows`` (P, c, 2K), or f(D) r for rows r; shape (P, h, 2, c, 2K), real parts first.

    ``factors`` (4, h, 2K) are Re g, Im g, Re h, Im h. Only the last axis of ``rows`` must be without gaps.
    """
    (P, c, width), h = rows.shape, factors.shape[1]
    if not runtime.usable(rows.device):
        return node_rows_plain(factors, rows, left=left)
    out = torch.empty(P, h, 2, c, width, dtype=rows.dtype, device=rows.device)
    C = min(ROWS, triton.next_power_of_2(c))
    node_rows_kernel[(P * triton.cdiv(c, C), triton.cdiv(h, NODES))](
        factors, rows, out, h, c, width, *rows.stride()[:2], 1.0 if left else -1.0,
        C=C, H=NODES, W=triton.next_power_of_2(width), num_warps=4,
    )  # fmt: skip
    return out


def node_rows_plain(factors: Tensor, rows: Tensor, *, left: bool) -> Tensor:
    """Twin of :func:`node_rows`."""
    g, k = (part.transpose(0, 1)[None, :, :, None] for part in (factors[:2], factors[2:]))  # (1, h, 2, 1, 2K)
    rows, sign = rows[:, None, None], 1 if left else -1
    out: Tensor = rows * g + sign * swapped(rows) * k
    return out


@jit(do_not_specialize=["half", "count", "width", "sign"])
def node_rows_kernel(
    factors, rows, out, half, count, width, sample, row, sign, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr
):
    """Write out (P, half, 2, count, width); rows (P, count, width), factors (4, half, width), width ≤ W; twin: :func:`node_rows_plain`.

    Samples are ``sample`` apart in rows, and rows ``row`` apart. Grid: (P·⌈count/C⌉, ⌈half/H⌉) programs, each for C rows at H nodes.
    """
    blocks = tl.cdiv(count, C)
    p, c, k = (
        (tl.program_id(0) // blocks).to(tl.int64),
        tl.program_id(0) % blocks * C + tl.arange(0, C),
        tl.arange(0, W),
    )
    place, inside = c[:, None] * width + k[None, :], (c < count)[:, None] & (k < width)[None, :]
    rows += p * sample + c[:, None] * row
    a = tl.load(rows + k[None, :], mask=inside, other=0.0)
    b = sign * tl.load(rows + (k ^ 1)[None, :], mask=inside, other=0.0)
    plane, out = half * width, out + p * half * 2 * count * width
    for i in tl.static_range(H):
        node = tl.program_id(1) * H + i
        f, here = factors + node * width + k, (k < width) & (node < half)
        for part in tl.static_range(2):
            g = tl.load(f + part * plane, mask=here, other=0.0)[None, :]
            h = tl.load(f + (2 + part) * plane, mask=here, other=0.0)[None, :]
            tl.store(out + (2 * node + part) * count * width + place, a * g + b * h, mask=inside & (node < half))
