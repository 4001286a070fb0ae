"""Products x = qᵀZ_jq̂ᵀ and y = q̂Z_jq of proposals with the items chosen, at every node, in coordinates in which all Z_j are diagonal.

In the coordinates of :mod:`ndpp.samplers.gpu.diagonal`, a product is Σ_k (l_k g_k + l_{k^1} h_k) r_k, where l and r are rows of 2K numbers
that do not depend on the node, and g and h belong to the node: what samples would otherwise store for every item and node is computed on
the fly, from rows that stay in the caches.
"""

import torch
from torch import Tensor

from ndpp.samplers.gpu.diagonal import swapped
from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.runtime import TILE, jit, tl, triton

SETTINGS = 16, 128, 4, 1
"""Pairs of a node and a proposal, and items, per program; warps; stages. Chosen by timing on an H200."""


def node_products(factors: Tensor, table: Tensor, rows: Tensor, which: Tensor, items: Tensor, n: int) -> Tensor:
    """Return Re x, Im x, Re y, Im y of proposals (P, c) of the samples at ``which`` (P,) with their n items, shape (P, n, h, 4, c).

    ``factors`` (4, h, 2K) are Re g, Im g, Re h, Im h. Proposals are rows of ``table`` (N, 2, 2K), which has l and r; ``items``
    (2, S, capacity, 2K) are r and l of the items of all samples.
    """
    (P, c), (_, h, width), (_, S, capacity, _) = rows.shape, factors.shape, items.shape
    if not (runtime.usable(rows.device) and c % 8 == 0 and width % TILE == 0):
        return node_products_plain(factors, table, rows, which, items, n)
    out = torch.empty(P, n, h, 4, c, dtype=items.dtype, device=items.device)
    rows = rows.contiguous()
    M, N, warps, stages = SETTINGS
    N = min(N, max(TILE, triton.next_power_of_2(n)))
    node_products_kernel[(P * 2 * triton.cdiv(h * c, M) * triton.cdiv(n, N),)](
        factors, table, rows, which, items, out, n, h, c // 8, capacity, width // TILE, S,
        M=M, N=N, D=TILE, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out


def node_products_plain(factors: Tensor, table: Tensor, rows: Tensor, which: Tensor, items: Tensor, n: int) -> Tensor:
    """Twin of :func:`node_products`."""
    (P, c), (_, h, width) = rows.shape, factors.shape
    out = torch.empty(P, n, h, 4, c, dtype=items.dtype, device=items.device)
    for side, first in enumerate(table[rows].unbind(2)):
        for part in range(2):
            g, k = factors[part, :, None], factors[2 + part, :, None]
            scaled = first[:, None] * g + (1 - 2 * side) * swapped(first)[:, None] * k
            products = torch.bmm(items[side, which, :n], scaled.view(P, h * c, width).mT)
            out[:, :, :, 2 * side + part] = products.view(P, n, h, c)
    return out


@jit(do_not_specialize=["n", "half", "count_by_8", "capacity", "width_by_tile", "samples"])
def node_products_kernel(
    factors, table, rows, which, items, out, n, half, count_by_8, capacity, width_by_tile, samples,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Write out (P, n, half, 4, count), count = 8·count_by_8, rows of 2K = D·width_by_tile numbers; twin: :func:`node_products_plain`.

    Grid: P·⌈half·count/M⌉·⌈n/N⌉·2 programs, each for x or y of M pairs of a node and a proposal of one sample, and N of its items.
    """
    count, width, blocks = 8 * count_by_8, D * width_by_tile, tl.cdiv(n, N)
    every = 2 * blocks * tl.cdiv(half * count, M)
    p, block = (tl.program_id(0) // every).to(tl.int64), tl.program_id(0) % every
    side, m, i = block % 2, block // 2 // blocks * M + tl.arange(0, M), block // 2 % blocks * N + tl.arange(0, N)
    node, proposal, here, inside = m // count, m % count, (m < half * count)[:, None], (i < n)[None, :]
    sign, plane = 1.0 - 2.0 * side, half * width
    row = tl.load(rows + p * count + proposal, mask=m < half * count, other=0)
    table += row[:, None] * (2 * width) + side * width
    items += (side * samples + tl.load(which + p)) * capacity * width
    re, im = tl.zeros((M, N), tl.float64), tl.zeros((M, N), tl.float64)
    for tile in range(width_by_tile):
        k = tile * D + tl.arange(0, D)
        f = factors + (node[:, None] * width + k[None, :])
        a = tl.load(table + k[None, :], mask=here, other=0.0)
        b = sign * tl.load(table + (k ^ 1)[None, :], mask=here, other=0.0)
        item = tl.load(items + (i[None, :] * width + k[:, None]), mask=inside, other=0.0)
        g, h = tl.load(f, mask=here, other=0.0), tl.load(f + 2 * plane, mask=here, other=0.0)
        re = tl.dot(a * g + b * h, item, re, input_precision="ieee", out_dtype=tl.float64)
        g, h = tl.load(f + plane, mask=here, other=0.0), tl.load(f + 3 * plane, mask=here, other=0.0)
        im = tl.dot(a * g + b * h, item, im, input_precision="ieee", out_dtype=tl.float64)
    out += p * n * half * (4 * count) + 2 * side * count
    to = out + ((i[None, :] * half + node[:, None]) * (4 * count) + proposal[:, None])
    tl.store(to, re, mask=here & inside)
    tl.store(to + count, im, mask=here & inside)
