"""Operations of the exact engine that many small torch calls would be slow at: a Triton kernel each, and its plain twin.

The twin runs where there is no Triton, on CPU tensors (unless Triton's interpreter is on, as in tests) and for matrices too large for a
kernel's registers.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

try:
    import triton

    from ndpp.samplers.gpu import _kernels
except ImportError:  # the plain twins do
    triton = None

LARGEST = 64
"""Largest matrix that a kernel holds in registers."""
SMALL, JUDGE = (64, 1, 2), (32, 2, 2)
"""Candidates, warps and stages of a program that judges."""
WARPS = {16: 1, 32: 1, 64: 2}
"""Warps of a program that holds one small matrix, by its size."""
INVERTED = 16
"""Largest matrix that is inverted in one piece."""


def usable(device: torch.device) -> bool:
    """Tell whether kernels run on this device."""
    return triton is not None and (device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1")


def _power(n: int, least: int = 16) -> int:
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


def weighed_rows(table: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """Return Σ_j table[row, j] weights[s, j] for rows (S, c) and weights (S, p), shape (S, c)."""
    if not usable(table.device):
        return torch.bmm(table[rows], weights[:, :, None])[:, :, 0]
    rows, out = rows.contiguous(), torch.empty(rows.shape, dtype=table.dtype, device=table.device)
    (S, count), width = rows.shape, table.shape[1]
    _kernels.weighed_rows[(S, triton.cdiv(count, 32))](
        table, rows, weights, out, count, width, C=32, W=_power(width, 2)
    )
    return out


def judge(products: Tensor, inverse: Tensor, w: Tensor, own: Tensor) -> Tensor:
    """Return own − Re Σ_j w_j xᵀG_j⁻¹y for candidates with products x = qᵀU_j, y = V_jq.

    ``products`` (S, n, h, 4, c) holds Re x, Im x, Re y, Im y, ``inverse`` (S·h, 2, room, room) real and imaginary parts, ``w`` (S, h).
    """
    (S, n, h, _, c), room = products.shape, inverse.shape[2]
    if usable(products.device):
        out = torch.empty_like(own)
        small = n <= 16 < c  # then a product on the matrix units would be mostly padding
        kernel, (C, warps, stages) = (_kernels.judge_small, SMALL) if small else (_kernels.judge, JUDGE)
        kernel[(S, triton.cdiv(c, C))](
            products,
            inverse,
            torch.view_as_real(w),
            own,
            out,
            n,
            h,
            c,
            room,
            N=16,
            C=C,
            num_warps=warps,
            num_stages=stages,
        )
        return out
    G = pairs(inverse[:, :, :n, :n]).view(S, h, n, n)
    x, y = (pairs(products[:, :, :, side : side + 2].permute(0, 3, 2, 1, 4)) for side in (0, 2))  # (S, h, n, c)
    form = (x * (G @ y)).sum(2)
    return own - (w[:, :, None] * form).real.sum(1)


# -- the small matrices of a sample ----------------------------------------------------------------------------------------------


def invert(G: Tensor) -> tuple[Tensor, Tensor]:
    """Return G⁻¹ and log det G for complex matrices (b, n, n); kernels take pivots as they come, and the monitors judge."""
    n = G.shape[1]
    if not usable(G.device):
        LU, pivots, _ = torch.linalg.lu_factor_ex(G)
        swaps = (pivots != torch.arange(1, n + 1, device=G.device)).sum(1) % 2
        log_det = torch.log(LU.diagonal(dim1=1, dim2=2)).sum(1).to(torch.complex128)
        identity = torch.eye(n, dtype=G.dtype, device=G.device).expand_as(G)
        return torch.linalg.lu_solve(LU, pivots, identity), log_det + 1j * (torch.pi * swaps.double())
    if n > INVERTED:
        return _invert_blocks(G, n // 2)
    out = G.clone(memory_format=torch.contiguous_format)
    log_abs, unit = torch.empty(len(G), dtype=out.real.dtype, device=G.device), torch.empty_like(out[:, 0, 0])
    _kernels.invert[(len(G),)](torch.view_as_real(out), log_abs, torch.view_as_real(unit), n, N=_power(n), num_warps=1)
    return out, torch.complex(log_abs.double(), unit.angle().double())


def _invert_blocks(G: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """Invert by a Schur complement: products for all but the blocks on the diagonal."""
    first, log_first = invert(G[:, :m, :m])
    left, right = torch.bmm(G[:, m:, :m], first), torch.bmm(first, G[:, :m, m:])
    last, log_last = invert(torch.baddbmm(G[:, m:, m:], left, G[:, :m, m:], alpha=-1))
    out = torch.empty_like(G, memory_format=torch.contiguous_format)
    right = torch.bmm(right, last)
    out[:, m:, m:], out[:, :m, m:], out[:, m:, :m] = last, -right, -torch.bmm(last, left)
    torch.baddbmm(first, right, left, out=first)
    out[:, :m, :m] = first
    return out, log_first + log_last


def border(inverse: Tensor, inner: Tensor, parts: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """Border G⁻¹ and (VU)ᵀ, both (b, 2, room, room), with an item, in place; return the pivots and tr(G⁻¹VU), both (b,).

    ``parts`` (b, 4, n) holds q̂Zq, real and imaginary, and qZq̂ᵀ likewise, the new item last; ``squares`` the same for Z².
    """
    b, n, room = len(parts), parts.shape[2], inverse.shape[2]
    if usable(inverse.device) and n <= LARGEST:
        out = torch.empty(2, b, dtype=_wide(parts), device=parts.device)
        space, N = parts.new_empty(b, 2, _power(n)), _power(n)
        _kernels.border[(b,)](
            inverse, inner, parts, squares, space, *map(torch.view_as_real, out), n, room, N=N, R=16 if N > 16 else N,
            num_warps=WARPS[N],
        )  # fmt: skip
        return out[0], out[1]
    (column, row), old = (pairs(parts[:, :2]), pairs(parts[:, 2:])), pairs(inverse[:, :, : n - 1, : n - 1])
    x = torch.bmm(old, column[:, : n - 1, None])
    y = torch.bmm(row[:, None, : n - 1], old)
    pivots = column[:, n - 1] - torch.bmm(row[:, None, : n - 1], x)[:, 0, 0]
    x, y = torch.nn.functional.pad(x, (0, 0, 0, 1), value=-1), torch.nn.functional.pad(y, (0, 1), value=-1)
    new = torch.bmm(x / pivots[:, None, None], y)  # (x, −1)(y, −1)ᵀ/π
    new[:, : n - 1, : n - 1] += old
    inverse[:, :, :n, :n] = torch.stack([new.real, new.imag], 1)
    inner[:, :, :n, n - 1], inner[:, :, n - 1, :n] = squares[:, 2:], squares[:, :2]
    return pivots, (new * pairs(inner[:, :, :n, :n])).sum((1, 2))


def pairs(parts: Tensor) -> Tensor:
    """Return complex numbers (b, …) from their real and imaginary parts (b, 2, …)."""
    return torch.complex(parts[:, 0].contiguous(), parts[:, 1].contiguous())


def _wide(real: Tensor) -> torch.dtype:
    return torch.complex64 if real.dtype == torch.float32 else torch.complex128
