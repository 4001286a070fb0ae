"""Which eigenvectors each of many samples chooses: coins with given chances, conditioned on the number of heads.

The coins are tossed from the last to the first. With j heads still to come among the first i + 1 coins, coin i shows heads with probability
p_i P(j − 1 among the first i) / P(j among the first i + 1), as in :func:`ndpp.samplers.symmetric.given_heads`.
"""

import torch
from torch import Tensor

from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.propose import philox_words, uniforms, unit_of
from ndpp.samplers.gpu.kernels.runtime import jit, tl, triton

BLOCK = 128
"""Samples per program."""


def choose(chance: Tensor, heads: Tensor, index: Tensor, key: tuple[int, int], where: int) -> Tensor:
    """Return which coins show heads, (S, k) in ascending order, by their chances (p,) and P(j heads among the first i) (p + 1, k + 1).

    ``index`` (S,), ``key`` and ``where`` as for :func:`~ndpp.samplers.gpu.kernels.propose.propose`; coin i takes the i-th uniform.
    """
    if not runtime.usable(index.device):
        return choose_plain(chance, heads, index, key, where)
    chosen = torch.empty(len(index), heads.shape[1] - 1, dtype=torch.int64, device=index.device)
    choose_kernel[(triton.cdiv(len(index), BLOCK),)](
        chance, heads, index, chosen, len(index), len(chance), heads.shape[1] - 1, *key, where, BLOCK=BLOCK
    )
    return chosen


def choose_plain(chance: Tensor, heads: Tensor, index: Tensor, key: tuple[int, int], where: int) -> Tensor:
    """Twin of :func:`choose`."""
    u, k = uniforms(index, key, where, 0, len(chance))[0], heads.shape[1] - 1
    left, rows = torch.full_like(index, k), torch.arange(len(index), device=index.device)
    chosen = torch.zeros(
        len(index), k + 1, dtype=torch.int64, device=index.device
    )  # the last column takes what is not chosen
    for i in range(len(chance) - 1, -1, -1):
        is_head = (left > 0) & (u[:, i] * heads[i + 1, left] < chance[i] * heads[i, (left - 1).clamp(min=0)])
        is_head |= left > i
        left = left - is_head.long()
        chosen[rows, torch.where(is_head, left, k)] = i
    return chosen[:, :k]


@jit(do_not_specialize=["total", "coins", "k", "key_low", "key_high", "where"])
def choose_kernel(chance, heads, samples, chosen, total, coins, k, key_low, key_high, where, BLOCK: tl.constexpr):
    """Write chosen (S, k), total = S; chance (coins,), heads (coins + 1, k + 1); twin: :func:`choose_plain`.

    Grid: ⌈S/BLOCK⌉ programs, one sample for each of BLOCK threads.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here, zero = at < total, at * 0
    sample = tl.load(samples + at, mask=here, other=0)
    low, high, left = sample & 0xFFFFFFFF, (sample >> 32) & 0xFFFFFFFF, zero + k
    for step in range(coins):
        i = coins - 1 - step
        w0, w1, _, _ = philox_words(zero + 2 * i, zero + where, low, high, zero + key_low, zero + key_high)
        now = tl.load(heads + (i + 1) * (k + 1) + left)
        before = tl.load(heads + i * (k + 1) + left - 1, mask=left > 0, other=0.0)
        is_head = (left > i) | ((left > 0) & (unit_of(w0, w1) * now < tl.load(chance + i) * before))
        left -= is_head.to(tl.int64)
        tl.store(chosen + at * k + left, zero + i, mask=here & is_head)
