"""Operations of the exact engine that many small torch calls would be slow at: a Triton kernel each, and its plain twin.

The twin runs where there is no Triton, on CPU tensors (unless Triton's interpreter is on, as in tests) and for matrices too large for a
kernel's registers.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

from ndpp.samplers.gpu.arrays import log_det_of_factors

try:
    import triton

    from ndpp.samplers.gpu import _kernels
except ImportError:  # the plain twins do
    triton = None

LARGEST = 64
"""Largest matrix that a kernel borders or inverts, and most of its rows that one judges at a time."""
SMALL, TILE, WIDTH = 8, 16, (64, 16)
"""Largest matrix of a program that judges without the matrix units, rows of a tile of one that uses them, and candidates of either."""
BORDER = {8: (8, 4, 1, 1), 16: (16, 4, 1, 1), 24: (16, 4, 3, 1), 32: (16, 8, 3, 1), 64: (16, 8, 3, 2)}
"""Columns and rows of a tile, how many tiles are under way, and warps of a program that borders, by the size of its matrix. Several warps
must fetch ahead."""


def usable(device: torch.device) -> bool:
    """Tell whether kernels run on this device."""
    return triton is not None and (device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1")


def _power(n: int, least: int) -> int:
    return max(least, 1 << (n - 1).bit_length())


# -- candidates ------------------------------------------------------------------------------------------------------------------


def propose(
    table: tuple[Tensor, Tensor, Tensor], index: Tensor, key: tuple[int, int], where: int, count: int
) -> tuple[Tensor, Tensor]:
    """Return :meth:`Streams.propose` of samples whose counters are ``index``; its twin is there."""
    threshold, alias, leverage = table
    rows = torch.empty(len(index), count, dtype=torch.int64, device=index.device)
    bars = torch.empty(len(index), count, dtype=torch.float64, device=index.device)
    grid = (triton.cdiv(rows.numel(), 512),)
    _kernels.propose[grid](
        threshold, alias, leverage, index, rows, bars, rows.numel(), len(alias), count, *key, where, BLOCK=512
    )
    return rows, bars


def weighed_rows(table: Tensor, rows: Tensor, weights: Tensor, less: Tensor | None = None) -> Tensor:
    """Return Σ_j table[row, j] weights[s, j] for rows (S, c) and weights (S, p), less Σ_j less[s, j], shape (S, c)."""
    if not usable(table.device):
        value = torch.bmm(table[rows], weights[:, :, None])[:, :, 0]
        return value if less is None else value - less.sum(1)
    rows, out = rows.contiguous(), torch.empty(rows.shape, dtype=weights.dtype, device=table.device)
    (S, count), width, half = rows.shape, table.shape[1], 0 if less is None else less.shape[1]
    less = weights if less is None else less.contiguous()
    _kernels.weighed_rows[(S, triton.cdiv(count, 32))](
        table, rows, weights, less, out, count, width, half, C=32, W=_power(width, 2)
    )
    return out


def judge(products: Tensor, inverse: Tensor, w: Tensor) -> Tensor:
    """Return Re w_j xᵀG_j⁻¹y at each node, shape (S, h, c), for candidates with products x = qᵀU_j, y = V_jq.

    ``products`` (S, n, h, 4, c) holds Re x, Im x, Re y, Im y, ``inverse`` is (S·h, 2, room, room) as in :func:`tight`, ``w`` (S, h).
    Kernels take 16 bytes at a time: c is a multiple of 8, room is even, and a column behind the n-th is finite.
    """
    (S, n, h, _, c), room = products.shape, inverse.shape[2]
    if usable(products.device) and c % 8 == room % 2 == 0:
        out = torch.empty(S, h, c, dtype=inverse.dtype, device=inverse.device)
        C = WIDTH[n > SMALL]
        grid, sizes = (S * h * triton.cdiv(c, C),), (n, h, c // 8, room // 2)
        arrays = products, inverse, torch.view_as_real(w), out
        if n <= SMALL:
            N = _power(n, 4)
            _kernels.judge_small[grid](*arrays, *sizes, N=N, C=C, U=16 // N, num_warps=1)
        else:
            tiles, turns = min(triton.cdiv(n, TILE), LARGEST // TILE), triton.cdiv(n, LARGEST)
            _kernels.judge[grid](
                *arrays, *sizes, N=TILE, C=C, T=tiles, TURNS=turns, num_warps=1, num_stages=min(2, tiles)
            )
        return out
    G = pairs(tight(inverse, n)).view(S, h, n, n)
    x, y = (pairs(products[:, :, :, side : side + 2].permute(0, 3, 2, 1, 4)) for side in (0, 2))  # (S, h, n, c)
    return (w[:, :, None] * (x * (G @ y)).sum(2)).real


# -- the small matrices of a sample ----------------------------------------------------------------------------------------------


def invert(G: Tensor, n: int) -> Tensor:
    """Invert matrices of n rows in place, (b, 2, room, room) as in :func:`tight`; return log det, (b,).

    Kernels take pivots as they come, and the monitors judge.
    """
    b, room = len(G), G.shape[2]
    if usable(G.device) and n <= LARGEST and room % 2 == 0:
        log_abs, unit = torch.empty_like(G[:, 0, 0, 0]), torch.empty(b, dtype=torch.complex128, device=G.device)
        _kernels.invert[(b,)](G, log_abs, torch.view_as_real(unit), n, room // 2, N=TILE, num_warps=1)
        return torch.complex(log_abs, unit.angle())
    LU, pivots, _ = torch.linalg.lu_factor_ex(pairs(tight(G, n)))
    identity = torch.eye(n, dtype=LU.dtype, device=G.device).expand_as(LU)
    split(torch.linalg.lu_solve(LU, pivots, identity), tight(G, n))
    return log_det_of_factors(LU, pivots)


def border(inverse: Tensor, inner: Tensor, parts: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """Border G⁻¹ and (VU)ᵀ, both (b, 2, room, room), with an item, in place; return the pivots and tr(G⁻¹VU), both (b,).

    G⁻¹, which is written as a whole, is kept as in :func:`tight`; of (VU)ᵀ only the border is written, and rows stay where they are.
    ``parts`` (b, 4, n) holds q̂Zq, real and imaginary, and qZq̂ᵀ likewise, the new item last; ``squares`` the same for Z².
    """
    b, n, room = len(parts), parts.shape[2], inverse.shape[2]
    if usable(inverse.device) and n <= LARGEST and room % 2 == 0:
        out = torch.empty(2, b, dtype=torch.complex128, device=parts.device)
        width, rows, ahead, warps = next(setting for largest, setting in BORDER.items() if n <= largest)
        _kernels.border[(b,)](
            inverse, inner, parts, squares, *map(torch.view_as_real, out), n, room // 2,
            W=width, T=triton.cdiv(n, width), R=rows, AHEAD=ahead, num_warps=warps,
        )  # fmt: skip
        return out[0], out[1]
    (column, row), old = (pairs(parts[:, :2]), pairs(parts[:, 2:])), pairs(tight(inverse, n - 1))
    x = torch.bmm(old, column[:, : n - 1, None])
    y = torch.bmm(row[:, None, : n - 1], old)
    pivots = column[:, n - 1] - torch.bmm(row[:, None, : n - 1], x)[:, 0, 0]
    x, y = torch.nn.functional.pad(x, (0, 0, 0, 1), value=-1), torch.nn.functional.pad(y, (0, 1), value=-1)
    new = torch.bmm(x / pivots[:, None, None], y)  # (x, −1)(y, −1)ᵀ/π
    new[:, : n - 1, : n - 1] += old
    split(new, tight(inverse, n))
    inner[:, :, :n, n - 1], inner[:, :, n - 1, :n] = squares[:, 2:], squares[:, :2]
    return pivots, (new * pairs(inner[:, :, :n, :n])).sum((1, 2))


def tight(matrices: Tensor, n: int) -> Tensor:
    """Return the n rows and columns in use, (b, 2, n, n): rows follow each other at the next even number, so that no gaps are read."""
    even = n + n % 2
    return matrices.flatten(2)[:, :, : n * even].unflatten(2, (n, even))[..., :n]


def split(matrices: Tensor, to: Tensor) -> None:
    """Put complex matrices (b, n, n) into their real and imaginary parts (b, 2, n, n)."""
    to[:, 0], to[:, 1] = matrices.real, matrices.imag


def pairs(parts: Tensor) -> Tensor:
    """Return complex numbers (b, …) from their real and imaginary parts (b, 2, …)."""
    return torch.complex(parts[:, 0].contiguous(), parts[:, 1].contiguous())
