"""Inverses of many small real matrices, with row exchanges.

:mod:`.invert` does without exchanges, since monitors watch what it inverts. The matrices of :mod:`ndpp.samplers.gpu.clock` are nearly
skew once the clock has run down, with small numbers on the diagonal; these need exchanges.
"""

import torch
from torch import Tensor

from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.runtime import LARGEST, TILE, jit, tl, triton


def invert_pivoted(G: Tensor, n: Tensor) -> Tensor:
    """Return the inverses of the first n (b,) rows and columns of matrices (b, m, m), zero elsewhere.

    A singular matrix gives infinite or undefined numbers.
    """
    m = G.shape[1]
    if not (runtime.usable(G.device) and 0 < m <= LARGEST and len(G)):
        return invert_pivoted_plain(G, n)
    out, tile = torch.empty_like(G), max(TILE, triton.next_power_of_2(m))
    warps = {16: 1, 32: 1, 64: 4, 128: 16}[tile]
    invert_pivoted_kernel[(len(G),)](G.contiguous(), n, out, m, N=tile, num_warps=warps)
    return out


def invert_pivoted_plain(G: Tensor, n: Tensor) -> Tensor:
    """Twin of :func:`invert_pivoted`."""
    inside = torch.arange(G.shape[1], device=G.device) < n[:, None]
    square = inside[:, :, None] & inside[:, None, :]
    eye = torch.eye(G.shape[1], dtype=G.dtype, device=G.device)
    return torch.where(square, torch.linalg.inv_ex(torch.where(square, G, eye))[0], 0.0)


@jit(do_not_specialize=["m"])
def invert_pivoted_kernel(G, counts, out, m, N: tl.constexpr):
    """Write the inverses of the first ``counts`` (b,) rows and columns of G (b, m, m), m ≤ N, to ``out``.

    Twin: :func:`invert_pivoted_plain`. Grid: b programs, one matrix each, in registers. Gauss–Jordan in place: column p is eliminated by
    the row k with the largest entry there, among those not used before. Rows stay where they are; at the end, row k is row p of the
    inverse, and column p its column k.
    """
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    b = tl.program_id(0).to(tl.int64)
    n, start = tl.load(counts + b).to(tl.int32), b * m * m
    inside = (i < n) & (j < n)
    A = tl.load(G + start + i * m + j, mask=inside, other=0.0)
    row_place, column_place = tl.where(i < n, -1, i), j
    for p in range(n):
        column = tl.sum(tl.where(j == p, A, 0.0), 1)[:, None]
        size = tl.where(row_place < 0, tl.abs(column), -1.0)
        k = tl.min(tl.where(size == tl.max(size, 0)[None, :], i, N), 0)[None, :]
        row = tl.sum(tl.where(i == k, A, 0.0), 0)[None, :]
        pivot = tl.sum(tl.where(j == p, row, 0.0), 1)[:, None]
        row = tl.where(j == p, 1.0, row) / pivot
        A = tl.where(i == k, row, tl.where(j == p, 0.0, A) - column * row)
        row_place, column_place = tl.where(i == k, p, row_place), tl.where(j == p, k, column_place)
    tl.store(out + start + row_place * m + column_place, A, mask=(i < m) & (j < m) & (column_place < m))
