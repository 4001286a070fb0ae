"""Uniform numbers that belong to a sample: Philox4x32-10 [Salmon et al., SC 2011] as a function of seed, sample, step and place.

Nothing is consumed in order, so no batch, group or round can change what a sample sees.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ndpp._types import AnyArray
from ndpp.samplers.gpu import _fused

MASK = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 256
"""Most rounds of candidates in a step."""


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


class Streams:
    """The streams of one seed on one device."""

    def __init__(self, key: AnyArray, device: torch.device) -> None:
        self.key = int(key[0]) & MASK, int(key[0]) >> 32
        self._flip = int(np.uint64(key[1]).astype(np.int64))
        self.device = device

    def uniforms(self, samples: Tensor, step: int, turn: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return three uniforms for each of ``count`` candidates of each sample, shapes (samples, count)."""
        index = samples ^ self._flip  # distinct samples stay distinct
        where = torch.full((), ROUNDS * step + turn, dtype=torch.int64, device=self.device)
        place = 2 * torch.arange(count, device=self.device)
        words: list[Tensor] = []
        for half in range(2):
            counter = torch.broadcast_tensors(
                place + half, where, (index & MASK)[:, None], (index >> 32 & MASK)[:, None]
            )
            words.extend(philox(counter, self.key))
        return unit(words[0], words[1]), unit(words[2], words[3]), unit(words[4], words[5])

    def propose(
        self, table: tuple[Tensor, Tensor, Tensor], samples: Tensor, step: int, turn: int, count: int
    ) -> tuple[Tensor, Tensor]:
        """Return rows drawn by their leverage and, beside each, leverage times a uniform: a row is taken where qᵀMq is above it."""
        if _fused.usable(self.device):
            return _fused.propose(table, samples ^ self._flip, self.key, ROUNDS * step + turn, count)
        threshold, alias, leverage = table
        cell, coin, chance = self.uniforms(samples, step, turn, count)
        cells = (cell * len(alias)).long().clamp(max=len(alias) - 1)  # a product may be rounded up
        rows = torch.where(coin < threshold[cells], cells, alias[cells])
        return rows, chance * leverage[rows]
