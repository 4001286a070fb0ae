"""Inverses of many small real matrices, with row exchanges.

:mod:`.invert` does without exchanges, since monitors watch what it inverts. The matrices of :mod:`ndpp.samplers.gpu.clock` are nearly
skew once the clock has run down, with small numbers on the diagonal; these need exchanges.
"""

import torch
from torch import Tensor

from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.runtime import LARGEST, TILE, jit, tl, triton


def invert_pivoted(G: Tensor) -> Tensor:
    """Return the inverses of matrices (b, n, n). A singular matrix gives infinite or undefined numbers."""
    n = G.shape[1]
    if not (runtime.usable(G.device) and 0 < n <= LARGEST and len(G)):
        return invert_pivoted_plain(G)
    out, tile = torch.empty_like(G), max(TILE, triton.next_power_of_2(n))
    invert_pivoted_kernel[(len(G),)](G.contiguous(), out, n, N=tile, num_warps=1 if tile <= 32 else 4)
    return out


def invert_pivoted_plain(G: Tensor) -> Tensor:
    """Twin of :func:`invert_pivoted`."""
    return torch.linalg.inv_ex(G)[0]


@jit(do_not_specialize=["n"])
def invert_pivoted_kernel(G, out, n, N: tl.constexpr):
    """Write the inverses of G (b, n, n), n ≤ N, to ``out``; twin: :func:`invert_pivoted_plain`.

    Grid: b programs, one matrix each, in registers. Gauss–Jordan in place: for each column, exchange the row with the largest entry to the
    diagonal, then eliminate. ``origin`` says which row of G is in which place; the columns of the result go back by it.
    """
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    start, inside = tl.program_id(0).to(tl.int64) * n * n, (i < n) & (j < n)
    A, origin = tl.load(G + start + i * n + j, mask=inside, other=0.0), j
    for p in range(n):
        size = tl.where((j == p) & (i >= p), tl.abs(A), -1.0)
        largest = tl.max(tl.max(size, 1), 0)
        k = tl.min(tl.min(tl.where(size == largest, i, N), 1), 0)
        row_p = tl.sum(tl.where(i == p, A, 0.0), 0)[None, :]
        row_k = tl.sum(tl.where(i == k, A, 0.0), 0)[None, :]
        A = tl.where(i == p, row_k, tl.where(i == k, row_p, A))
        origin_p, origin_k = (
            tl.sum(tl.where(j == p, origin, 0), 1)[:, None],
            tl.sum(tl.where(j == k, origin, 0), 1)[:, None],
        )
        origin = tl.where(j == p, origin_k, tl.where(j == k, origin_p, origin))
        column = tl.sum(tl.where(j == p, A, 0.0), 1)[:, None]
        pivot = tl.sum(tl.where(j == p, row_k, 0.0), 1)[:, None]
        row = tl.where(j == p, 1.0, row_k) / pivot
        A = tl.where(i == p, row, tl.where(j == p, 0.0, A) - column * row)
    tl.store(out + start + i * n + origin, A, mask=inside)
