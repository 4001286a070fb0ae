"""Rows, products and forms at every node, in coordinates in which f(D) is diagonal but for blocks of two.

See :mod:`ndpp.samplers.gpu.diagonal`. Everywhere, ``factors`` (4, h, 2K) are Re g, Im g, Re h, Im h of f(D) at h nodes, and of ``rows``
and ``items`` only the last axis must be without gaps. Products of proposals with the items of a sample are one matrix product: the items'
rows times the proposals' rows at the nodes. The latter are many times larger than the proposals themselves; for few items, a kernel
computes them tile by tile where they are needed.
"""

import torch
from torch import Tensor

from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.runtime import TILE, jit, parts, swapped, tl, triton

ROWS, NODES = 4, 4
"""Most rows and nodes per program, which share what it reads."""
FUSED_UP_TO, COPIED_UP_TO = 32, 64
"""Largest numbers of items for the kernel; the second if items or products would have to be copied otherwise. Chosen by timing on an H200.
For more items, the matrix products of cuBLAS are so much faster that writing all rows at the nodes first pays."""
COLUMNS = 32
"""Proposals times nodes times two, per program."""


def node_rows(factors: Tensor, rows: Tensor, *, left: bool) -> Tensor:
    """Return l f(D) for rows l = ``rows`` (P, c, 2K), or f(D) r for rows r; shape (P, h, 2, c, 2K), real parts first."""
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
    p, k = (tl.program_id(0) // blocks).to(tl.int64), tl.arange(0, W)
    c = tl.program_id(0) % blocks * C + tl.arange(0, C)
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


def node_products(factors: Tensor, rows: Tensor, items: Tensor, which: Tensor | None, out: Tensor) -> None:
    """Write l_i f(D) r_c and, if there are two ``rows``, l_c f(D) r_i to ``out`` (1 or 2, P, n, h, 2, c), real parts before imaginary ones.

    ``rows`` (1 or 2, P, c, 2K) are r_c and l_c; ``items`` (2, S, n, 2K) are r_i and l_i, for the samples at ``which`` (P,) or for all.
    """
    sides, P, n, h, _, c = out.shape
    most = FUSED_UP_TO if which is None and out.is_contiguous() else COPIED_UP_TO
    if not (runtime.usable(rows.device) and n <= most):
        return node_products_plain(factors, rows, items, which, out)
    M = max(TILE, triton.next_power_of_2(n))
    node_products_kernel[(P * sides * triton.cdiv(2 * h * c, COLUMNS),)](
        factors, rows, items, rows if which is None else which, out, n, h, c, rows.shape[3] // TILE,
        *rows.stride()[:3], *items.stride()[:3], *out.stride(),
        SIDES=sides, ALL=which is None, M=M, N=COLUMNS, K=TILE, num_warps=2,
    )  # fmt: skip
    return None


def node_products_plain(factors: Tensor, rows: Tensor, items: Tensor, which: Tensor | None, out: Tensor) -> None:
    """Twin of :func:`node_products`, by rows at the nodes and matrix products."""
    _, P, n, h, _, c = out.shape
    for some in parts(P, 2 * h * c * rows.shape[3]):
        chosen = items[:, some, :n] if which is None else items[:, which[some], :n]
        for side, (part, opposite) in enumerate(zip(rows[:, some], (chosen[1], chosen[0]))):
            columns = node_rows(factors, part, left=side == 1).flatten(1, 3)
            to = out[side, some]
            if to.is_contiguous():
                torch.bmm(opposite, columns.mT, out=to.view(-1, n, 2 * h * c))
            else:
                to.copy_(torch.bmm(opposite, columns.mT).view(-1, n, h, 2, c))


@jit(
    do_not_specialize=[
        *("n", "half", "count", "steps"),
        *("out_side", "out_sample", "out_item", "out_node", "out_part", "out_row"),
    ]
)
def node_products_kernel(
    factors, rows, items, which, out, n, half, count, steps, rows_side, rows_sample, rows_row, items_side, items_sample, items_item,
    out_side, out_sample, out_item, out_node, out_part, out_row,
    SIDES: tl.constexpr, ALL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Write out, with strides out_…, from rows and items, with strides rows_… and items_…, and factors (4, half, steps·K).

    Grid: P·SIDES·⌈2·half·count/N⌉ programs, those of a sample adjacent; each for all n ≤ M items and N pairs of a node's part and a row.
    Twin: :func:`node_products_plain`.
    """
    columns, width, at = 2 * half * count, steps * K, tl.program_id(0)
    blocks = tl.cdiv(columns, N)
    p, side = (at // (blocks * SIDES)).to(tl.int64), at // blocks % SIDES
    i, column, k = tl.arange(0, M), at % blocks * N + tl.arange(0, N), tl.arange(0, K)
    node, part, row = column // (2 * count), column // count % 2, column % count
    sample = p if ALL else tl.load(which + p)
    items += (1 - side).to(tl.int64) * items_side + sample * items_sample
    rows += side.to(tl.int64) * rows_side + p * rows_sample
    item = items + (i * items_item)[:, None] + k[None, :]
    here, inside = (i < n)[:, None], (column < columns)[None, :]
    straight = rows + (row * rows_row)[None, :] + k[:, None]
    crossed = rows + (row * rows_row)[None, :] + (k ^ 1)[:, None]
    g = factors + ((part * half + node) * width)[None, :] + k[:, None]
    h, sign = g + 2 * half * width, 2.0 * side - 1.0
    total = tl.zeros((M, N), tl.float64)
    for step in range(steps):
        own = tl.load(straight + step * K, mask=inside, other=0.0) * tl.load(g + step * K, mask=inside, other=0.0)
        other = tl.load(crossed + step * K, mask=inside, other=0.0) * tl.load(h + step * K, mask=inside, other=0.0)
        some = tl.load(item + step * K, mask=here, other=0.0)
        total = tl.dot(some, own + sign * other, total, input_precision="ieee", out_dtype=tl.float64)
    out += side.to(tl.int64) * out_side + p * out_sample
    place = i.to(tl.int64)[:, None] * out_item + (node * out_node + part * out_part + row * out_row)[None, :]
    tl.store(out + place, total, mask=here & inside)


def node_forms(factors: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return Σ_k (l_k g_k + l_{k^1} h_k) r_k, shape (S, h), complex; l and r are (S, h, 2, 2K), their real parts first.

    With f² in place of f, and what an item leaves over of l and r, this is qᵀ(Z given Y)²q.
    """
    S, h, _, width = left.shape
    if not runtime.usable(left.device):
        return node_forms_plain(factors, left, right)
    out = torch.empty(S, h, 2, dtype=left.dtype, device=left.device)
    left, right = left.contiguous(), right.contiguous()
    node_forms_kernel[(S * h,)](factors, left, right, out, h, width, W=triton.next_power_of_2(width), num_warps=2)
    return torch.view_as_complex(out)


def node_forms_plain(factors: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Twin of :func:`node_forms`."""
    g, k = torch.complex(factors[0], factors[1]), torch.complex(factors[2], factors[3])
    a, b, r = (torch.complex(*part.unbind(2)) for part in (left, swapped(left), right))
    return ((a * g + b * k) * r).sum(2)


@jit(do_not_specialize=["half", "width"])
def node_forms_kernel(factors, left, right, out, half, width, W: tl.constexpr):
    """Write out (S, half, 2); left and right (S, half, 2, width), factors (4, half, width), width ≤ W; twin: :func:`node_forms_plain`.

    Grid: S·half programs, one form each.
    """
    b, k, plane = tl.program_id(0).to(tl.int64), tl.arange(0, W), half * width
    here, f = k < width, factors + tl.program_id(0) % half * width + k
    left, right = left + b * 2 * width, right + b * 2 * width + k
    g_re, g_im = tl.load(f, mask=here, other=0.0), tl.load(f + plane, mask=here, other=0.0)
    h_re, h_im = tl.load(f + 2 * plane, mask=here, other=0.0), tl.load(f + 3 * plane, mask=here, other=0.0)
    a_re, a_im = tl.load(left + k, mask=here, other=0.0), tl.load(left + width + k, mask=here, other=0.0)
    b_re, b_im = tl.load(left + (k ^ 1), mask=here, other=0.0), tl.load(left + width + (k ^ 1), mask=here, other=0.0)
    r_re, r_im = tl.load(right, mask=here, other=0.0), tl.load(right + width, mask=here, other=0.0)
    re = a_re * g_re - a_im * g_im + b_re * h_re - b_im * h_im
    im = a_re * g_im + a_im * g_re + b_re * h_im + b_im * h_re
    tl.store(out + 2 * b, tl.sum(re * r_re - im * r_im, 0))
    tl.store(out + 2 * b + 1, tl.sum(re * r_im + im * r_re, 0))
