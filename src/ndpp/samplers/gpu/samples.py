"""Samples in progress: their numbers, the rows chosen so far, and counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Counters(NamedTuple):
    """One entry per sample (S,): proposals, circles used, whether the CPU finished it, and the worst values of the monitors.

    Fields are names in ``Draws.info``.
    """

    proposals: Tensor
    recentred: Tensor
    on_cpu: Tensor
    trace_error: Tensor
    fraction: Tensor

    @classmethod
    def zero(cls, count: int, device: torch.device) -> Counters:
        """Return the counters of new samples."""
        whole = torch.zeros(3, count, dtype=torch.int64, device=device)
        real = torch.zeros(2, count, dtype=torch.float64, device=device)
        return cls(whole[0], whole[1], whole[2], real[0], real[1] + 1)


class Samples(NamedTuple):
    """Samples that want the same number of items.

    ``numbers`` (S,) are their indices in the call, ``rows`` (S, wanted) the rows of the support chosen so far, ``basis`` (S, wanted, r) an
    orthonormal basis q̂ of these rows of Q. The caller knows how many are chosen; entries beyond that are not used.
    """

    numbers: Tensor
    rows: Tensor
    basis: Tensor
    counters: Counters

    @classmethod
    def begin(cls, numbers: Tensor, wanted: int, rank: int = 0) -> Samples:
        """Return samples without items."""
        S, device = len(numbers), numbers.device
        rows = torch.zeros(S, wanted, dtype=torch.int64, device=device)
        basis = torch.zeros(S, wanted, rank, dtype=torch.float64, device=device)
        return cls(numbers, rows, basis, Counters.zero(S, device))

    @property
    def wanted(self) -> int:
        """Final number of items per sample, in addition to the given ones."""
        return self.rows.shape[1]

    def take(self, which: Tensor) -> Samples:
        """Return some of the samples, by a mask or by positions."""
        counters = Counters(*(part[which] for part in self.counters))
        return Samples(self.numbers[which], self.rows[which], self.basis[which], counters)

    @classmethod
    def join(cls, parts: Sequence[Samples]) -> Samples:
        """Return the samples of all parts."""
        if len(parts) == 1:
            return parts[0]
        arrays = zip(*((part.numbers, part.rows, part.basis, *part.counters) for part in parts))
        numbers, rows, basis, *counters = map(torch.cat, arrays)
        return cls(numbers, rows, basis, Counters(*counters))
