"""Probabilities of proposals: qᵀMq on a circle, in two parts, and q_aᵀ Z q_a of clocks (:mod:`ndpp.samplers.gpu.clock`).

On a circle, the first part is a weighted sum of rows of a table. The items chosen subtract Re w_j xᵀG_j⁻¹y at every node, x = qᵀU_j and
y = V_jq. Products of proposals with the sides are one large matrix product, by cuBLAS. What is left is a small quadratic form for each
proposal, node and sample. Up to ``SMALL`` items, a program multiplies with ordinary instructions; above that, tiles of G⁻¹ and y go through
the matrix units.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.runtime import LARGEST_MATRIX, TILE, jit, pairs, parts, put, tight, tl, triton

ROW_WIDTH = 32
"""Proposals per program: one for each thread of a warp. Rows of the table are scattered, and the kernel is limited by memory."""
SMALL = 8
"""Maximum number of items for the kernel without matrix units: half a tile."""
WIDTH = (64, 16)
"""Proposals per program, without and with matrix units. Chosen by timing on an H200; ``docs/gpu-internals.md`` has the measurements of
``benchmarks/gpu.py --only kernels``."""
ROWS_PER_TURN = 64
"""Maximum number of rows of G⁻¹y that are summed at a time: what the registers of a warp hold."""
PROPOSALS, COLUMNS = 32, 16
"""Proposals per program, and columns that it multiplies at a time. Programs read all of f r_Y and H, so few proposals would be wasteful."""


def weighted_rows(table: Tensor, rows: Tensor, w: Tensor, minus: Tensor | None = None) -> Tensor:
    """Return Σ_j table[row, j] w[s, j] − Σ_j minus[s, j] for rows (S, c) of the table (n, p) and weights (S, p); shape (S, c).

    ``minus`` (S, h, c) comes from :func:`correction`.
    """
    if not runtime.usable(table.device):
        return weighted_rows_plain(table, rows, w, minus)
    rows, out = rows.contiguous(), torch.empty(rows.shape, dtype=w.dtype, device=table.device)
    (S, count), width, half = rows.shape, table.shape[1], 0 if minus is None else minus.shape[1]
    minus = w if minus is None else minus.contiguous()
    weighted_rows_kernel[(S, triton.cdiv(count, ROW_WIDTH))](
        table, rows, w, minus, out, count, width, half, C=ROW_WIDTH, W=max(2, triton.next_power_of_2(width))
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


def correction(x: Tensor, y: Tensor, inverse: Tensor, w: Tensor, which: Tensor) -> Tensor:
    """Return Re w_j xᵀG_j⁻¹y at each node, shape (P, h, c), for the samples at ``which`` (P,).

    x and y (P, n, h, 2, c) are real and imaginary parts; each is an array of its own, or both lie together in one of shape (P, n, h, 4, c).
    ``inverse`` (S·h, 2, capacity, capacity) holds G⁻¹ of all samples as in :func:`~ndpp.samplers.gpu.kernels.runtime.tight`; ``w`` is
    (P, h). Kernels read 16 bytes at a time: c must be a multiple of 2, capacity even, and the column after the n-th finite.
    """
    (P, n, h, _, c), capacity = x.shape, inverse.shape[2]
    if not (runtime.usable(x.device) and c % 2 == 0 and capacity % 2 == 0):
        return correction_plain(x, y, inverse, w, which)
    out = torch.empty(P, h, c, dtype=inverse.dtype, device=inverse.device)
    C = WIDTH[n > SMALL]
    grid, shape = (P * h * triton.cdiv(c, C),), (n, h, c // 2, capacity // 2)
    arrays, planes = (x, y, inverse, torch.view_as_real(w), which, out), x.stride(2) // c
    if n <= SMALL:
        N = max(4, triton.next_power_of_2(n))
        correction_small_kernel[grid](*arrays, *shape, PARTS=planes, N=N, C=C, U=16 // N, num_warps=1)
    else:
        turns = triton.cdiv(n, ROWS_PER_TURN)
        tiles = triton.cdiv(triton.cdiv(n, TILE), turns)
        options = {"num_warps": 1, "num_stages": min(2, tiles)}
        correction_kernel[grid](*arrays, *shape, PARTS=planes, N=TILE, C=C, T=tiles, TURNS=turns, **options)
    return out


def correction_plain(x: Tensor, y: Tensor, inverse: Tensor, w: Tensor, which: Tensor) -> Tensor:
    """Twin of :func:`correction`."""
    _, n, h, _, _ = x.shape
    G = pairs(tight(inverse, n).view(-1, h, 2, n, n)[which].flatten(0, 1)).view(-1, h, n, n)
    x, y = (pairs(part.permute(0, 3, 2, 1, 4)) for part in (x, y))  # (P, h, n, c)
    out: Tensor = (w[:, :, None] * (x * (G @ y)).sum(2)).real
    return out


@jit()
def _place(half, count, C: tl.constexpr):
    """Return the matrix of a program, its sample and node, and its C proposals.

    Programs that share a matrix are adjacent, so that it is read from memory once.
    """
    blocks = tl.cdiv(count, C)
    node = tl.program_id(0).to(tl.int64) // blocks
    return node, node // half, node % half, tl.program_id(0) % blocks * C + tl.arange(0, C)


@jit(do_not_specialize=["n", "half", "count_by_2", "capacity_by_2"])
def correction_small_kernel(
    x, y, inverse, w, which, out, n, half, count_by_2, capacity_by_2,
    PARTS: tl.constexpr, N: tl.constexpr, C: tl.constexpr, U: tl.constexpr,
):  # fmt: skip
    """Write out (P, half, count) for n ≤ N ≤ 8 items, row by row of G⁻¹; twin: :func:`correction_plain`.

    x and y (P, n, half, 2, count), with PARTS·count numbers from one node to the next; inverse (S·half, 2, capacity, capacity),
    w (P, half, 2), which (P,). count = 2·count_by_2 and capacity = 2·capacity_by_2, so that the compiler knows their divisors.
    Grid: P·half·⌈count/C⌉ programs of one warp, each for C proposals at one
    node of one sample; y is kept in registers, the loop over rows is unrolled U times.
    """
    count, capacity, even, i = 2 * count_by_2, 2 * capacity_by_2, (n + 1) // 2 * 2, tl.arange(0, N)
    node, s, j, c = _place(half, count, C)
    step, total = half * PARTS * count, tl.zeros((C,), tl.float64)
    g, at = inverse + (tl.load(which + s) * half + j) * 2 * capacity * capacity, (s * n * half + j) * PARTS * count
    x, y = x + at, y + at
    y, inside = y + i[:, None] * step + c[None, :], (i < n)[:, None] & (c < count)[None, :]
    y_re, y_im = tl.load(y, mask=inside, other=0.0), tl.load(y + count, mask=inside, other=0.0)
    w_re, w_im = tl.load(w + 2 * node), tl.load(w + 2 * node + 1)
    for k in tl.range(0, n, loop_unroll_factor=U):
        g_re = tl.load(g + k * even + i, mask=i < even, other=0.0)[:, None]
        g_im = tl.load(g + capacity * capacity + k * even + i, mask=i < even, other=0.0)[:, None]
        x_re = tl.load(x + k * step + c, mask=c < count, other=0.0)
        x_im = tl.load(x + k * step + count + c, mask=c < count, other=0.0)
        re, im = tl.sum(g_re * y_re - g_im * y_im, 0), tl.sum(g_re * y_im + g_im * y_re, 0)
        total += (w_re * x_re - w_im * x_im) * re - (w_re * x_im + w_im * x_re) * im
    tl.store(out + node * count + c, total, mask=c < count)


@jit(do_not_specialize=["n", "half", "count_by_2", "capacity_by_2"])
def correction_kernel(
    x, y, inverse, w, which, out, n, half, count_by_2, capacity_by_2,
    PARTS: tl.constexpr, N: tl.constexpr, C: tl.constexpr, T: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """Write out (P, half, count) by tiles of N × N entries of G⁻¹ and N × C of y; twin: :func:`correction_plain`.

    Arrays and grid as for :func:`correction_small_kernel`. T tiles of G⁻¹y are summed at a time, in registers, so that y is read once;
    more than T·N items take several TURNS.
    """
    count, capacity, even = 2 * count_by_2, 2 * capacity_by_2, (n + 1) // 2 * 2
    node, s, j, c = _place(half, count, C)
    step, total = half * PARTS * count, tl.zeros((C,), tl.float64)
    g, at = inverse + (tl.load(which + s) * half + j) * 2 * capacity * capacity, (s * n * half + j) * PARTS * count
    x, y = x + at, y + at
    w_re, w_im = tl.load(w + 2 * node), tl.load(w + 2 * node + 1)
    for turn in tl.static_range(TURNS):
        zero = tl.zeros((N, C), tl.float64)
        re, im = (zero,) * T, (zero,) * T
        for tile in range(T * TURNS):
            m = tile * N + tl.arange(0, N)
            place, inside = m[:, None] * step + c[None, :], (m < n)[:, None] & (c < count)[None, :]
            y_re = tl.load(y + place, mask=inside, other=0.0)
            y_im = tl.load(y + count + place, mask=inside, other=0.0)
            for t in tl.static_range(T):
                i = (turn * T + t) * N + tl.arange(0, N)
                place, inside = i[:, None] * even + m[None, :], (i < n)[:, None] & (m < even)[None, :]
                g_re = tl.load(g + place, mask=inside, other=0.0)
                g_im = tl.load(g + capacity * capacity + place, mask=inside, other=0.0)
                a = tl.dot(g_re, y_re, re[t], input_precision="ieee", out_dtype=tl.float64)
                b = tl.dot(g_re, y_im, im[t], input_precision="ieee", out_dtype=tl.float64)
                b = tl.dot(g_im, y_re, b, input_precision="ieee", out_dtype=tl.float64)
                a = tl.dot(-g_im, y_im, a, input_precision="ieee", out_dtype=tl.float64)
                re, im = put(re, t, a), put(im, t, b)
        for t in tl.static_range(T):
            i = (turn * T + t) * N + tl.arange(0, N)
            place, inside = i[:, None] * step + c[None, :], (i < n)[:, None] & (c < count)[None, :]
            x_re = tl.load(x + place, mask=inside, other=0.0)
            x_im = tl.load(x + count + place, mask=inside, other=0.0)
            total += tl.sum(x_re * (w_re * re[t] - w_im * im[t]) - x_im * (w_re * im[t] + w_im * re[t]), 0)
    tl.store(out + node * count + c, total, mask=c < count)


class Forms(NamedTuple):
    """Z of S samples with up to m items: f̄ (S, 2K), and f r_Y conjugate and H (S, m, 2K), all as pairs of reals."""

    f: Tensor
    f_right: Tensor
    H: Tensor


def remaining_forms(forms: Forms, table: Tensor, rows: Tensor, which: Tensor) -> Tensor:
    """Return q_aᵀZq_a = l_a f r_a − (l_a f r_Y)(H r_a) of proposals (P, c) for the samples at ``which`` (P,).

    Proposals are rows of ``table`` (N, 3, 2K), which has l_a, the conjugate of r_a and their products l_a r_a.
    """
    (P, c), (m, width) = rows.shape, forms.H.shape[1:]
    if not (runtime.usable(rows.device) and m <= LARGEST_MATRIX and width % COLUMNS == 0 and width * rows.numel()):
        return remaining_forms_plain(forms, table, rows, which)
    out, tile = torch.empty(P, c, dtype=torch.float64, device=rows.device), max(TILE, triton.next_power_of_2(m))
    warps = {16: 2, 32: 4, 64: 4, 128: 8}[tile]
    remaining_forms_kernel[(P, triton.cdiv(c, PROPOSALS))](
        *forms, table, rows, which, out, c, m, width, C=PROPOSALS, D=COLUMNS, M=tile, num_warps=warps
    )
    return out


def remaining_forms_plain(forms: Forms, table: Tensor, rows: Tensor, which: Tensor) -> Tensor:
    """Twin of :func:`remaining_forms`."""
    out = torch.empty(rows.shape, dtype=table.dtype, device=rows.device)
    for some in parts(len(rows), 4 * rows.shape[1] * table.shape[2]):
        f, f_right, H = (part[which[some]] for part in forms)
        left, right, own = table[rows[some]].unbind(2)
        out[some] = (own @ f[:, :, None])[:, :, 0] - ((left @ f_right.mT) * (right @ H.mT)).sum(2)
    return out


@jit(do_not_specialize=["count", "m", "width"])
def remaining_forms_kernel(
    f, f_right, H, table, rows, which, out, count, m, width, C: tl.constexpr, D: tl.constexpr, M: tl.constexpr
):
    """Write forms (P, count); f (S, width), f_right and H (S, m, width), m ≤ M, table (N, 3, width), rows (P, count), which (P,).

    Twin: :func:`remaining_forms_plain`. Grid: P × ⌈count/C⌉ programs, C proposals of a sample each.
    """
    at, j = tl.program_id(1) * C + tl.arange(0, C), tl.arange(0, M)
    here, sample = at < count, tl.load(which + tl.program_id(0))
    row = tl.load(rows + tl.program_id(0).to(tl.int64) * count + at, mask=here, other=0)
    first = tl.zeros((C, M), dtype=tl.float64)
    second = tl.zeros((C, M), dtype=tl.float64)
    own = tl.zeros((C,), dtype=tl.float64)
    for start in range(0, width, D):
        k = start + tl.arange(0, D)
        place = row[:, None] * (3 * width) + k[None, :]
        left = tl.load(table + place, mask=here[:, None], other=0.0)
        right = tl.load(table + place + width, mask=here[:, None], other=0.0)
        product = tl.load(table + place + 2 * width, mask=here[:, None], other=0.0)
        own += tl.sum(product * tl.load(f + sample * width + k)[None, :], 1)
        there = (sample * m + j)[None, :] * width + k[:, None]
        inside = (j < m)[None, :] & (k < width)[:, None]
        near, far = tl.load(f_right + there, mask=inside, other=0.0), tl.load(H + there, mask=inside, other=0.0)
        first = tl.dot(left, near, first, input_precision="ieee", out_dtype=tl.float64)
        second = tl.dot(right, far, second, input_precision="ieee", out_dtype=tl.float64)
    tl.store(out + tl.program_id(0).to(tl.int64) * count + at, own - tl.sum(first * second, 1), mask=here)
