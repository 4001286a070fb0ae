"""Random numbers that belong to a sample: a function of seed, sample, step, round and place.

Nothing is consumed in order, so no batch, group or round can change what a sample sees.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ndpp._types import AnyArray
from ndpp.samplers.gpu.kernels.propose import MASK, propose, uniforms

ROUNDS = 256
"""Most rounds of candidates in a step."""


class Streams:
    """The streams of one seed on one device. A step has up to ``ROUNDS`` rounds of candidates."""

    def __init__(self, key: AnyArray, device: torch.device) -> None:
        self.key = int(key[0]) & MASK, int(key[0]) >> 32
        self.device = device
        self._flip = int(np.uint64(key[1]).astype(np.int64))  # distinct samples stay distinct

    def uniforms(self, samples: Tensor, step: int, turn: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return three uniforms for each of ``count`` places of each sample (S,), shapes (S, count)."""
        return uniforms(samples ^ self._flip, self.key, ROUNDS * step + turn, count)

    def propose(
        self, table: tuple[Tensor, Tensor, Tensor], samples: Tensor, step: int, turn: int, count: int
    ) -> tuple[Tensor, Tensor]:
        """Return rows drawn by their leverage and, for each, leverage times a uniform: a row is taken if qᵀMq is above that."""
        return propose(table, samples ^ self._flip, self.key, ROUNDS * step + turn, count)
