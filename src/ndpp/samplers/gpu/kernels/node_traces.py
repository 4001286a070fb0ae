"""Traces of products of two complex matrices at every node."""

import torch
from torch import Tensor

from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.layout import even, pairs, tight
from ndpp.samplers.gpu.kernels.runtime import jit, tl

BLOCK = 512
"""Entries that a program multiplies at a time."""


def node_traces(one: Tensor, other: Tensor, n: int) -> Tensor:
    """Return Σ_ik A_ik B_ik of n × n matrices, shape (b,), complex: the trace of ABᵀ.

    Both are (b, 2, capacity, capacity), each with a capacity of its own, stored as in :func:`~ndpp.samplers.gpu.kernels.layout.tight`.
    """
    if not runtime.usable(one.device):
        return node_traces_plain(one, other, n)
    out = torch.empty(len(one), 2, dtype=one.dtype, device=one.device)
    node_traces_kernel[(len(one),)](one, other, out, n, even(n), one.shape[2], other.shape[2], BLOCK=BLOCK, num_warps=4)
    return torch.view_as_complex(out)


def node_traces_plain(one: Tensor, other: Tensor, n: int) -> Tensor:
    """Twin of :func:`node_traces`."""
    return (pairs(tight(one, n)) * pairs(tight(other, n))).sum((1, 2))


@jit(do_not_specialize=["n", "even", "one_capacity", "other_capacity"])
def node_traces_kernel(one, other, out, n, even, one_capacity, other_capacity, BLOCK: tl.constexpr):
    """Write out (b, 2); one and other (b, 2, capacity, capacity), n rows that lie ``even`` apart; twin: :func:`node_traces_plain`.

    Grid: b programs, one trace each.
    """
    b = tl.program_id(0).to(tl.int64)
    plane, other_plane = one_capacity * one_capacity, other_capacity * other_capacity
    one, other = one + b * 2 * plane, other + b * 2 * other_plane
    re, im = tl.zeros((BLOCK,), tl.float64), tl.zeros((BLOCK,), tl.float64)
    for first in range(0, n * even, BLOCK):
        at = first + tl.arange(0, BLOCK)
        here = (at < n * even) & (at % even < n)
        a_re, a_im = tl.load(one + at, mask=here, other=0.0), tl.load(one + plane + at, mask=here, other=0.0)
        b_re = tl.load(other + at, mask=here, other=0.0)
        b_im = tl.load(other + other_plane + at, mask=here, other=0.0)
        re, im = re + a_re * b_re - a_im * b_im, im + a_re * b_im + a_im * b_re
    tl.store(out + 2 * b, tl.sum(re, 0))
    tl.store(out + 2 * b + 1, tl.sum(im, 0))
