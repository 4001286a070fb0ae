"""Samples in progress: which they are, the rows chosen so far, and what is counted about each."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Counters(NamedTuple):
    """One entry per sample (S,): candidates looked at, circles used, and the worst that the monitors have shown."""

    proposals: Tensor
    recentred: Tensor
    trace_error: Tensor
    fraction: Tensor

    @classmethod
    def zero(cls, count: int, device: torch.device) -> Counters:
        """Return the counters of samples not begun."""
        whole = torch.zeros(2, count, dtype=torch.int64, device=device)
        real = torch.zeros(2, count, dtype=torch.float64, device=device)
        return cls(whole[0], whole[1], real[0], real[1] + 1)

    def take(self, which: Tensor) -> Counters:
        """Return the counters of some of the samples."""
        return Counters(*(part[which] for part in self))


class Samples(NamedTuple):
    """Samples that want the same number of items.

    ``numbers`` (S,) are their indices in the call, ``rows`` (S, wanted) the rows of the support chosen so far, ``basis`` (S, wanted, r) an
    orthonormal basis q̂ of these rows of Q. How many are chosen is known to whoever holds the samples; what lies behind is not used.
    """

    numbers: Tensor
    rows: Tensor
    basis: Tensor
    counters: Counters

    @classmethod
    def begin(cls, numbers: Tensor, wanted: int, rank: int) -> Samples:
        """Return samples that have no items yet."""
        S, device = len(numbers), numbers.device
        rows = torch.zeros(S, wanted, dtype=torch.int64, device=device)
        basis = torch.zeros(S, wanted, rank, dtype=torch.float64, device=device)
        return cls(numbers, rows, basis, Counters.zero(S, device))

    @property
    def wanted(self) -> int:
        """How many items each sample will have, beyond the given ones."""
        return self.rows.shape[1]

    def take(self, which: Tensor) -> Samples:
        """Return some of the samples: a mask or their places."""
        return Samples(self.numbers[which], self.rows[which], self.basis[which], self.counters.take(which))

    @classmethod
    def join(cls, parts: list[Samples]) -> Samples:
        """Return all of them as one."""
        if len(parts) == 1:
            return parts[0]
        numbers, rows, basis = (torch.cat([part[i] for part in parts]) for i in range(3))
        return cls(numbers, rows, basis, Counters(*map(torch.cat, zip(*(part.counters for part in parts)))))
