"""G⁻¹ with one more item, by bordering; and, in the same pass, a trace that the monitors need, unless there is another way to it.

With a new column g, a new row r and a new corner d of G, and π = d − rᵀG⁻¹g,

    [G  g]⁻¹     [G⁻¹  0]   1  [x]
    [rᵀ d]    =  [0    0] + —  [−1] [y, −1],        x = G⁻¹g,   y = rᵀG⁻¹.
                            π

Real and imaginary parts are separate, so a vector is two arrays here.
"""

import torch
from torch import Tensor

from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.runtime import LARGEST_MATRIX, jit, pairs, put, reciprocal, split, tight, tl, triton

SETTINGS = {
    8: (8, 4, 1, 1),
    16: (16, 4, 1, 1),
    24: (16, 4, 3, 1),
    32: (16, 8, 3, 1),
    64: (16, 8, 3, 2),
    96: (16, 8, 2, 2),
    128: (16, 4, 2, 2),
}
"""By the largest n: columns and rows of a tile, tiles fetched ahead, and warps per program. Chosen by timing on an H200;
``benchmarks/gpu.py --only kernels`` measures the result and ``docs/gpu-internals.md`` shows it. Several warps must fetch ahead: they then
share what they fetch, and wait for each other before any of them writes."""


def border(
    inverse: Tensor, inner: Tensor | None, parts: Tensor, squares: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Border G⁻¹ and (VU)ᵀ, both (b, 2, capacity, capacity), with an item, in place; return the pivots π and tr(G⁻¹VU), both (b,).

    G⁻¹ is stored as in :func:`~ndpp.samplers.gpu.kernels.runtime.tight` and rewritten completely; of (VU)ᵀ only the border is written.
    ``parts`` (b, 4, n) holds q̂Zq, real and imaginary, and qZq̂ᵀ likewise, the new item last; ``squares`` the same for Z². Without VU
    and these, there is no trace.
    """
    b, n, capacity = len(parts), parts.shape[2], inverse.shape[2]
    if not (runtime.usable(inverse.device) and n <= LARGEST_MATRIX and capacity % 2 == 0):
        return border_plain(inverse, inner, parts, squares)
    out = torch.empty(2, b, dtype=torch.complex128, device=parts.device)
    width, rows, ahead, warps = next(setting for largest, setting in SETTINGS.items() if n <= largest)
    border_kernel[(b,)](
        inverse, inverse if inner is None else inner, parts, parts if squares is None else squares,
        *map(torch.view_as_real, out), n, capacity // 2,
        W=width, T=triton.cdiv(n, width), R=rows, AHEAD=ahead, INNER=inner is not None, num_warps=warps,
    )  # fmt: skip
    return out[0], None if inner is None else out[1]


def border_plain(
    inverse: Tensor, inner: Tensor | None, parts: Tensor, squares: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Twin of :func:`border`."""
    n = parts.shape[2]
    (column, row), old = (pairs(parts[:, :2]), pairs(parts[:, 2:])), pairs(tight(inverse, n - 1))
    x = torch.bmm(old, column[:, : n - 1, None])
    y = torch.bmm(row[:, None, : n - 1], old)
    pivots = column[:, n - 1] - torch.bmm(row[:, None, : n - 1], x)[:, 0, 0]
    x, y = torch.nn.functional.pad(x, (0, 0, 0, 1), value=-1), torch.nn.functional.pad(y, (0, 1), value=-1)
    new = torch.bmm(x / pivots[:, None, None], y)  # (x, −1)(y, −1)ᵀ/π
    new[:, : n - 1, : n - 1] += old
    split(new, tight(inverse, n))
    if inner is None or squares is None:
        return pivots, None
    inner[:, :, :n, n - 1], inner[:, :, n - 1, :n] = squares[:, 2:], squares[:, :2]
    return pivots, (new * pairs(inner[:, :, :n, :n])).sum((1, 2))


@jit(do_not_specialize=["n", "capacity_by_2"])
def border_kernel(
    inverse, inner, parts, squares, pivots, removed_trace, n, capacity_by_2,
    W: tl.constexpr, T: tl.constexpr, R: tl.constexpr, AHEAD: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """Border inverse and inner (b, 2, capacity, capacity), capacity = 2·capacity_by_2, in place; write pivots and tr(G⁻¹VU), both (b, 2).

    parts and squares are (b, 4, n); twin: :func:`border_plain`. Grid: b programs, one matrix each, in tiles of R rows and W columns, T of
    them side by side. G⁻¹ is read twice: for y, and for x with the new inverse. Unless INNER, inner and traces are left alone.
    """
    b, last, capacity = tl.program_id(0).to(tl.int64), n - 1, 2 * capacity_by_2
    plane = capacity * capacity
    before, after = n // 2 * 2, (n + 1) // 2 * 2  # distances of rows of G⁻¹
    inverse, inner = inverse + b * 2 * plane, inner + b * 2 * plane
    parts, squares = parts + b * 4 * n, squares + b * 4 * n
    zero = tl.zeros((R, W), tl.float64)
    sum_re, sum_im = _row_times_inverse(inverse, parts, n, before, plane, W, T, R, AHEAD)
    g_re, g_im, y_re, y_im, p_re, p_im = _column_and_pivot(parts, sum_re, sum_im, n, W, T)
    tl.store(pivots + 2 * b, p_re)
    tl.store(pivots + 2 * b + 1, p_im)
    y_re, y_im = _over_pivot(y_re, y_im, p_re, p_im, last, W, T)
    trace_re, trace_im = zero, zero
    # From the last rows up, since each row moves to where later rows were. All R rows are read before any is written: a warp sums over
    # them, and several warps wait for each other, as they share what they fetch ahead.
    for first in tl.range(0, n, R, num_stages=AHEAD):
        i = (n - 1) // R * R - first + tl.arange(0, R)[:, None]
        m_re, m_im, u_re, u_im = (zero,) * T, (zero,) * T, (zero,) * T, (zero,) * T
        sums_re, sums_im = zero, zero
        for t in tl.static_range(T):
            re, im = _load(inverse, i, t * W, last, before, plane, W)
            m_re, m_im = put(m_re, t, re), put(m_im, t, im)
            if INNER:
                re, im = _load(inner, i, t * W, last, capacity, plane, W)
                u_re, u_im = put(u_re, t, re), put(u_im, t, im)
        for t in tl.static_range(T):
            sums_re += m_re[t] * g_re[t] - m_im[t] * g_im[t]
            sums_im += m_re[t] * g_im[t] + m_im[t] * g_re[t]
        x_re, x_im = tl.where(i == last, -1.0, tl.sum(sums_re, 1)[:, None]), tl.sum(sums_im, 1)[:, None]
        if INNER:
            d_re = tl.load(squares + 2 * n + i, mask=i < n, other=0.0)
            d_im = tl.load(squares + 3 * n + i, mask=i < n, other=0.0)
        for t in tl.static_range(T):
            j = t * W + tl.arange(0, W)[None, :]
            re = m_re[t] + (x_re * y_re[t] - x_im * y_im[t])
            im = m_im[t] + (x_re * y_im[t] + x_im * y_re[t])
            _store(inverse, i, j, after, plane, re, im, (i < n) & (j < after))
            if INNER:
                # VU is stored transposed: its last row is the new column q̂Z²q, its last column the new row.
                c_re = tl.load(squares + j, mask=j < n, other=0.0)
                c_im = tl.load(squares + n + j, mask=j < n, other=0.0)
                a_re = tl.where(i == last, c_re, tl.where(j == last, d_re, u_re[t]))
                a_im = tl.where(i == last, c_im, tl.where(j == last, d_im, u_im[t]))
                _store(inner, i, j, capacity, plane, a_re, a_im, (i < n) & (j < n) & ((i == last) | (j == last)))
                trace_re += re * a_re - im * a_im
                trace_im += re * a_im + im * a_re
    if INNER:
        tl.store(removed_trace + 2 * b, tl.sum(tl.sum(trace_re, 0), 0))
        tl.store(removed_trace + 2 * b + 1, tl.sum(tl.sum(trace_im, 0), 0))


@jit()
def _row_times_inverse(
    inverse, parts, n, before, plane, W: tl.constexpr, T: tl.constexpr, R: tl.constexpr, AHEAD: tl.constexpr
):
    """Return T tiles of R × W whose columns sum to y = rᵀG⁻¹, r being the new row without its last entry."""
    last, zero = n - 1, tl.zeros((R, W), tl.float64)
    sum_re, sum_im = (zero,) * T, (zero,) * T
    for first in tl.range(0, last, R, num_stages=AHEAD):
        i = first + tl.arange(0, R)[:, None]
        r_re = tl.load(parts + 2 * n + i, mask=i < last, other=0.0)
        r_im = tl.load(parts + 3 * n + i, mask=i < last, other=0.0)
        for t in tl.static_range(T):
            re, im = _load(inverse, i, t * W, last, before, plane, W)
            sum_re = put(sum_re, t, sum_re[t] + (re * r_re - im * r_im))
            sum_im = put(sum_im, t, sum_im[t] + (re * r_im + im * r_re))
    return sum_re, sum_im


@jit()
def _column_and_pivot(parts, sum_re, sum_im, n, W: tl.constexpr, T: tl.constexpr):
    """Return the new column g, without its last entry d, and y, both in T tiles of W columns, and the pivot d − yg."""
    last, line = n - 1, tl.zeros((1, W), tl.float64)
    y_re, y_im, g_re, g_im = (line,) * T, (line,) * T, (line,) * T, (line,) * T
    less_re, less_im = line, line
    for t in tl.static_range(T):
        j = t * W + tl.arange(0, W)[None, :]
        g_re = put(g_re, t, tl.load(parts + j, mask=j < last, other=0.0))
        g_im = put(g_im, t, tl.load(parts + n + j, mask=j < last, other=0.0))
        y_re, y_im = put(y_re, t, tl.sum(sum_re[t], 0)[None, :]), put(y_im, t, tl.sum(sum_im[t], 0)[None, :])
        less_re += y_re[t] * g_re[t] - y_im[t] * g_im[t]
        less_im += y_re[t] * g_im[t] + y_im[t] * g_re[t]
    p_re = tl.load(parts + last) - tl.sum(tl.sum(less_re, 1), 0)
    p_im = tl.load(parts + n + last) - tl.sum(tl.sum(less_im, 1), 0)
    return g_re, g_im, y_re, y_im, p_re, p_im


@jit()
def _over_pivot(y_re, y_im, p_re, p_im, last, W: tl.constexpr, T: tl.constexpr):
    """Return (y, −1)/π in T tiles."""
    v_re, v_im = reciprocal(p_re, p_im)
    for t in tl.static_range(T):
        j = t * W + tl.arange(0, W)[None, :]
        e_re, e_im = tl.where(j == last, -1.0, y_re[t]), tl.where(j == last, 0.0, y_im[t])
        y_re, y_im = put(y_re, t, e_re * v_re - e_im * v_im), put(y_im, t, e_re * v_im + e_im * v_re)
    return y_re, y_im


@jit()
def _load(matrix, i, first, n, stride, plane, W: tl.constexpr):
    """Return rows i and W columns from ``first`` on, real and imaginary, zero outside n rows and columns."""
    j = first + tl.arange(0, W)[None, :]
    at, inside = matrix + i * stride + j, (i < n) & (j < (n + 1) // 2 * 2)
    re, im = tl.load(at, mask=inside, other=0.0), tl.load(at + plane, mask=inside, other=0.0)
    return tl.where(j < n, re, 0.0), tl.where(j < n, im, 0.0)


@jit()
def _store(matrix, i, j, stride, plane, re, im, inside):
    """Write rows i and columns j, real and imaginary."""
    at = matrix + i * stride + j
    tl.store(at, re, mask=inside)
    tl.store(at + plane, im, mask=inside)
