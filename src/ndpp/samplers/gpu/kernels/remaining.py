"""Inclusion probabilities q_aᵀ Z q_a of proposals; Z is what remains after items have appeared (:mod:`ndpp.samplers.gpu.clock`)."""

from typing import NamedTuple

import torch
from torch import Tensor

from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.runtime import LARGEST, TILE, jit, tl, triton

PROPOSALS, COLUMNS = 32, 16
"""Proposals per program, and columns that it multiplies at a time. Programs read all of f r_Y and H, so few proposals would be wasteful."""


class Forms(NamedTuple):
    """Z of S samples with up to m items: f̄ (S, 2K), and f r_Y conjugate and H (S, m, 2K), all as pairs of reals."""

    f: Tensor
    f_right: Tensor
    H: Tensor

    @property
    def is_fused(self) -> bool:
        """Whether a kernel computes them, without intermediate results in memory."""
        m, width = self.H.shape[1:]
        return runtime.usable(self.f.device) and m <= LARGEST and width > 0 and width % COLUMNS == 0


def remaining_forms(forms: Forms, table: Tensor, rows: Tensor, which: Tensor) -> Tensor:
    """Return q_aᵀZq_a = l_a f r_a − (l_a f r_Y)(H r_a) of proposals (P, c) for the samples at ``which`` (P,).

    Proposals are rows of ``table`` (N, 3, 2K), which has l_a, the conjugate of r_a and their products l_a r_a.
    """
    (P, c), (m, width) = rows.shape, forms.H.shape[1:]
    if not forms.is_fused or not rows.numel():
        return remaining_forms_plain(forms, table, rows, which)
    out, tile = torch.empty(P, c, dtype=torch.float64, device=rows.device), max(TILE, triton.next_power_of_2(m))
    warps = {16: 2, 32: 4, 64: 4, 128: 8}[tile]
    remaining_forms_kernel[(P, triton.cdiv(c, PROPOSALS))](
        *forms, table, rows, which, out, c, m, width, C=PROPOSALS, D=COLUMNS, M=tile, num_warps=warps
    )
    return out


def remaining_forms_plain(forms: Forms, table: Tensor, rows: Tensor, which: Tensor) -> Tensor:
    """Twin of :func:`remaining_forms`."""
    f, f_right, H = (part[which] for part in forms)
    left, right, own = table[rows].unbind(2)
    return (own @ f[:, :, None])[:, :, 0] - ((left @ f_right.mT) * (right @ H.mT)).sum(2)


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
