"""What samples draw from counter-based random numbers: proposals by leverage, and which eigenvectors they choose.

Philox4x32-10 [Salmon et al., SC 2011] turns a counter of four words into four random words. The counter contains the place of the proposal,
the step and round, and the number of the sample, so batches, groups and rounds cannot change what a sample sees.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ndpp.samplers.gpu.kernels import runtime
from ndpp.samplers.gpu.kernels.runtime import jit, tl, triton

MASK = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
BLOCK = 512
"""Proposals per program. The kernel is short and limited by memory; any few hundred do."""
SAMPLES = 128
"""Samples per program that chooses eigenvectors."""


class AliasTable(NamedTuple):
    """Thresholds, aliases and leverages (n,) of :class:`~ndpp.items.LeverageTable`, on a device.

    Several tables of ``n_rows`` rows each may follow one another; aliases are then rows of all of them.
    """

    threshold: Tensor
    alias: Tensor
    leverage: Tensor
    n_rows: int


def propose(
    table: AliasTable, starts: Tensor, index: Tensor, key: tuple[int, int], where: int, first: int, count: int
) -> tuple[Tensor, Tensor]:
    """Return rows drawn by leverage, and leverage times a uniform for each: a row is accepted if qᵀMq exceeds it. Both (S, count).

    ``starts`` (S,) is the first row of the table that each sample uses. ``index`` (S,) is the part of the counter that distinguishes
    samples, ``where`` the part that distinguishes steps, and ``first`` the number of the first proposal.
    """
    if not runtime.usable(index.device):
        return propose_plain(table, starts, index, key, where, first, count)
    rows = torch.empty(len(index), count, dtype=torch.int64, device=index.device)
    bars = torch.empty(len(index), count, dtype=torch.float64, device=index.device)
    propose_kernel[(triton.cdiv(rows.numel(), BLOCK),)](
        *table[:3], starts, index, rows, bars, rows.numel(), table.n_rows, count, *key, where, first, BLOCK=BLOCK
    )
    return rows, bars


def propose_plain(
    table: AliasTable, starts: Tensor, index: Tensor, key: tuple[int, int], where: int, first: int, count: int
) -> tuple[Tensor, Tensor]:
    """Twin of :func:`propose`."""
    cell, coin, chance = uniforms(index, key, where, first, count)
    cells = starts[:, None] + (cell * table.n_rows).long().clamp(max=table.n_rows - 1)  # a product may be rounded up
    rows = torch.where(coin < table.threshold[cells], cells, table.alias[cells])
    return rows, chance * table.leverage[rows]


def uniforms(index: Tensor, key: tuple[int, int], where: int, first: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return three uniforms for each of ``count`` proposals of each sample, (S, count) each; arguments as for :func:`propose`."""
    step = torch.full((), where, dtype=torch.int64, device=index.device)
    place = 2 * torch.arange(first, first + count, device=index.device)
    low, high = index[:, None] & MASK, index[:, None] >> 32 & MASK
    a, b, c, d = philox((place, step, low, high), key)
    e, f, _, _ = philox((place + 1, step, low, high), key)
    return unit(a, b), unit(c, d), unit(e, f)


def philox(
    counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return four words of 32 bits, held in int64, for counters and a key held likewise.

    Examples
    --------
    >>> zero = torch.zeros((), dtype=torch.int64)
    >>> [hex(int(word)) for word in philox((zero, zero, zero, zero), (0, 0))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        p, q = a * MULTIPLIERS[0], c * MULTIPLIERS[1]  # wrap modulo 2**64: the bits are those of the unsigned product
        a, b, c, d = (q >> 32 & MASK) ^ b ^ k0, q & MASK, (p >> 32 & MASK) ^ d ^ k1, p & MASK
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return a, b, c, d


def unit(high: Tensor, low: Tensor) -> Tensor:
    """Return 53 bits of two words as a number in [0, 1)."""
    return ((high >> 5) * 2**26 + (low >> 6)).double() * 2.0**-53


@jit(do_not_specialize=["total", "n", "count", "key_low", "key_high", "where", "first"])
def propose_kernel(
    threshold, alias, leverage, starts, samples, rows, bars, total, n, count, key_low, key_high, where, first,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write rows and bars (S, count), total = S·count entries; twin: :func:`propose_plain`.

    Grid: ⌈total/BLOCK⌉ programs; each draws BLOCK consecutive proposals, across samples.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here, zero = at < total, at * 0
    sample = tl.load(samples + at // count, mask=here, other=0)
    place, low, high = 2 * (first + at % count), sample & 0xFFFFFFFF, (sample >> 32) & 0xFFFFFFFF
    w0, w1, w2, w3 = philox_words(place, zero + where, low, high, zero + key_low, zero + key_high)
    w4, w5, _, _ = philox_words(place + 1, zero + where, low, high, zero + key_low, zero + key_high)
    cell = tl.minimum((unit_of(w0, w1) * (zero + n).to(tl.float64)).to(tl.int64), n - 1)  # n, if rounded up
    cell += tl.load(starts + at // count, mask=here, other=0)
    keep = unit_of(w2, w3) < tl.load(threshold + cell, mask=here, other=0.0)
    row = tl.where(keep, cell, tl.load(alias + cell, mask=here, other=0))
    tl.store(rows + at, row, mask=here)
    tl.store(bars + at, unit_of(w4, w5) * tl.load(leverage + row, mask=here, other=0.0), mask=here)


@jit()
def philox_words(a, b, c, d, k0, k1):
    """Return the four words of :func:`philox`."""
    for _ in tl.static_range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b = ((q >> 32) & 0xFFFFFFFF) ^ b ^ k0, q & 0xFFFFFFFF
        c, d = ((p >> 32) & 0xFFFFFFFF) ^ d ^ k1, p & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


@jit()
def unit_of(high, low):
    """Return :func:`unit`."""
    return ((high >> 5) * 67108864 + (low >> 6)).to(tl.float64) * 1.1102230246251565e-16


def choose(chance: Tensor, heads: Tensor, index: Tensor, key: tuple[int, int], where: int) -> Tensor:
    """Return which coins show heads, (S, k) in ascending order, by their chances (p,) and P(j heads among the first i) (p + 1, k + 1).

    These are the eigenvectors that samples choose, conditioned on their number. Coins are tossed from the last to the first: with j heads
    still to come among the first i + 1, coin i shows heads with probability p_i P(j − 1 among the first i) / P(j among the first i + 1), as
    in :func:`ndpp.samplers.exact.spectral.given_heads`.

    ``index`` (S,), ``key`` and ``where`` as for :func:`propose`; coin i takes the i-th uniform.
    """
    if not runtime.usable(index.device):
        return choose_plain(chance, heads, index, key, where)
    chosen = torch.empty(len(index), heads.shape[1] - 1, dtype=torch.int64, device=index.device)
    choose_kernel[(triton.cdiv(len(index), SAMPLES),)](
        chance, heads, index, chosen, len(index), len(chance), heads.shape[1] - 1, *key, where, BLOCK=SAMPLES
    )
    return chosen


def choose_plain(chance: Tensor, heads: Tensor, index: Tensor, key: tuple[int, int], where: int) -> Tensor:
    """Twin of :func:`choose`."""
    u, k = uniforms(index, key, where, 0, len(chance))[0], heads.shape[1] - 1
    left, rows = torch.full_like(index, k), torch.arange(len(index), device=index.device)
    chosen = index.new_zeros(len(index), k + 1)  # the last column takes what is not chosen
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
