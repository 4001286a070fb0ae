"""Inverses of many small matrices: of G_j, when samples with items enter a circle, and of those that the clocks need.

The first does without row exchanges: G is no worse than the minors that the monitors watch, so they detect what goes wrong. The matrices of
:mod:`ndpp.samplers.gpu.clock` are nearly skew once the clock has run down, with small numbers on the diagonal; these need exchanges.
"""

import torch
from torch import Tensor

from ndpp.samplers.gpu.arrays import TORCH
from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.runtime import (
    LARGEST_MATRIX,
    TILE,
    jit,
    pairs,
    reciprocal,
    split,
    tight,
    times,
    tl,
    triton,
)


def invert(G: Tensor, n: int) -> Tensor:
    """Invert matrices of n rows in place; return log det (b,).

    G is (b, 2, capacity, capacity), rows as in :func:`~ndpp.samplers.gpu.kernels.runtime.tight`.
    """
    b, capacity = len(G), G.shape[2]
    if not (runtime.usable(G.device) and capacity % 2 == 0):
        return invert_plain(G, n)
    log_abs, unit = torch.empty_like(G[:, 0, 0, 0]), torch.empty(b, dtype=torch.complex128, device=G.device)
    invert_kernel[(b,)](G, log_abs, torch.view_as_real(unit), n, capacity // 2, N=TILE, num_warps=1)
    return torch.complex(log_abs, unit.angle())


def invert_plain(G: Tensor, n: int) -> Tensor:
    """Twin of :func:`invert`, with row exchanges."""
    inverse, log_abs, log_unit = TORCH.inverse(pairs(tight(G, n)))
    split(inverse, tight(G, n))
    log_det: Tensor = log_abs + log_unit
    return log_det


@jit(do_not_specialize=["n", "capacity_by_2"])
def invert_kernel(G, log_abs, unit, n, capacity_by_2, N: tl.constexpr):
    """Overwrite G (b, 2, capacity, capacity), capacity = 2·capacity_by_2, with its inverse; write log|det G| (b,) and det G/|det G| (b, 2).

    Twin: :func:`invert_plain`. Grid: b programs of one warp, one matrix each. Gauss–Jordan by blocks of N × N: invert the pivot block in
    registers, multiply its block row, subtract products from all other blocks, then write the block column.
    """
    b, i, j = tl.program_id(0).to(tl.int64), tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    even, tiles = (n + 1) // 2 * 2, tl.cdiv(n, N)
    plane, G = 4 * capacity_by_2 * capacity_by_2, G + b * 8 * capacity_by_2 * capacity_by_2
    log_modulus = tl.load(G) * 0.0
    u_re, u_im = log_modulus + 1.0, log_modulus
    for turn in range(tiles):
        p = turn * N
        at, inside = (p + i) * even + p + j, (p + i < n) & (p + j < n)
        re, im = tl.load(G + at, mask=inside, other=0.0), tl.load(G + plane + at, mask=inside, other=0.0)
        re, im, log_modulus, u_re, u_im = _eliminate(re, im, i, j, tl.minimum(N, n - p), log_modulus, u_re, u_im)
        tl.store(G + at, re, mask=inside)
        tl.store(G + plane + at, im, mask=inside)
        for other in range(1, tiles):
            q = (turn + other) % tiles * N
            at, inside = (p + i) * even + q + j, (p + i < n) & (q + j < n)
            b_re, b_im = tl.load(G + at, mask=inside, other=0.0), tl.load(G + plane + at, mask=inside, other=0.0)
            b_re, b_im = times(re, im, b_re, b_im)
            tl.store(G + at, b_re, mask=inside)
            tl.store(G + plane + at, b_im, mask=inside)
        tl.debug_barrier()  # all threads see the row
        for below in range(1, tiles):
            r = (turn + below) % tiles * N
            left, here = (r + i) * even + p + j, (r + i < n) & (p + j < n)
            a_re, a_im = tl.load(G + left, mask=here, other=0.0), tl.load(G + plane + left, mask=here, other=0.0)
            for other in range(1, tiles):
                q = (turn + other) % tiles * N
                at, inside = (p + i) * even + q + j, (p + i < n) & (q + j < n)
                b_re, b_im = tl.load(G + at, mask=inside, other=0.0), tl.load(G + plane + at, mask=inside, other=0.0)
                b_re, b_im = times(a_re, a_im, b_re, b_im)
                at, inside = (r + i) * even + q + j, (r + i < n) & (q + j < n)
                c_re, c_im = tl.load(G + at, mask=inside, other=0.0), tl.load(G + plane + at, mask=inside, other=0.0)
                tl.store(G + at, c_re - b_re, mask=inside)
                tl.store(G + plane + at, c_im - b_im, mask=inside)
            a_re, a_im = times(a_re, a_im, re, im)
            tl.store(G + left, -a_re, mask=here)
            tl.store(G + plane + left, -a_im, mask=here)
        tl.debug_barrier()
    tl.store(log_abs + b, log_modulus)
    tl.store(unit + 2 * b, u_re)
    tl.store(unit + 2 * b + 1, u_im)


@jit()
def _eliminate(re, im, i, j, n, log_modulus, u_re, u_im):
    """Return the inverse of the first n rows and columns of a tile, and log|det| and det/|det| updated with those of the tile.

    Each pivot's row and column become those of the inverse; their product is subtracted from the rest.
    """
    for p in range(n):
        row_re, row_im = tl.sum(tl.where(i == p, re, 0.0), 0)[None, :], tl.sum(tl.where(i == p, im, 0.0), 0)[None, :]
        col_re, col_im = tl.sum(tl.where(j == p, re, 0.0), 1)[:, None], tl.sum(tl.where(j == p, im, 0.0), 1)[:, None]
        p_re = tl.sum(tl.sum(tl.where(j == p, row_re, 0.0), 1), 0)
        p_im = tl.sum(tl.sum(tl.where(j == p, row_im, 0.0), 1), 0)
        scale = tl.sqrt(p_re * p_re + p_im * p_im)
        log_modulus += tl.log(scale)
        u_re, u_im = (u_re * p_re - u_im * p_im) / scale, (u_re * p_im + u_im * p_re) / scale
        v_re, v_im = reciprocal(p_re, p_im)
        row_re, row_im = row_re * v_re - row_im * v_im, row_re * v_im + row_im * v_re
        row_re, row_im = tl.where(j == p, v_re, row_re), tl.where(j == p, v_im, row_im)
        re = tl.where(i == p, row_re, tl.where(j == p, 0.0, re) - (col_re * row_re - col_im * row_im))
        im = tl.where(i == p, row_im, tl.where(j == p, 0.0, im) - (col_re * row_im + col_im * row_re))
    return re, im, log_modulus, u_re, u_im


def invert_pivoted(G: Tensor, n: Tensor) -> Tensor:
    """Return the inverses of the first n (b,) rows and columns of matrices (b, m, m), zero elsewhere.

    A singular matrix gives infinite or undefined numbers.
    """
    m = G.shape[1]
    if not (runtime.usable(G.device) and 0 < m <= LARGEST_MATRIX and len(G)):
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
