"""Bilinear forms l f(D) r at every node, of complex rows l and r in coordinates in which f(D) is diagonal but for blocks of two.

See :mod:`ndpp.samplers.gpu.diagonal`. With f² in place of f, and what an item leaves over of l and r, this is qᵀ(Z given Y)²q.
"""

import torch
from torch import Tensor

from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.layout import swapped
from ndpp.samplers.gpu.kernels.runtime import jit, tl, triton


def node_forms(factors: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Return Σ_k (l_k g_k + l_{k^1} h_k) r_k, shape (S, h), complex; l and r are (S, h, 2, 2K), their real parts first.

    ``factors`` (4, h, 2K) are Re g, Im g, Re h, Im h.
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
