"""Memory layout of complex matrices: real and imaginary parts separate, rows without gaps.

The small matrices of a sample are (b, 2, capacity, capacity), b = S·h: for each node of each sample the real part, then the imaginary part,
with space for items to come. Kernels read 16 bytes (two numbers) at a time, so ``capacity`` is even.

Of VU, the n × n part in use is the upper left corner. G⁻¹ is read completely at every step, and a corner would be read with gaps; so its
rows lie n apart, or n + 1 if n is odd (:func:`tight`). They move as n grows, at no extra cost: bordering writes all of them anyway.
"""

from __future__ import annotations

import torch
from torch import Tensor

MAX_ENTRIES = 2**29
"""Largest number of entries of an intermediate array; samples are processed some at a time."""


def even(n: int) -> int:
    """Return n, or n + 1 if n is odd."""
    return n + n % 2


def tight(matrices: Tensor, n: int) -> Tensor:
    """Return a view of the n rows and columns in use, (b, 2, n, n), of matrices whose rows lie ``even(n)`` apart."""
    return matrices.flatten(2)[:, :, : n * even(n)].view(len(matrices), 2, n, even(n))[..., :n]


def split(matrices: Tensor, to: Tensor) -> None:
    """Write complex matrices (b, n, n) to their real and imaginary parts (b, 2, n, n)."""
    to[:, 0], to[:, 1] = matrices.real, matrices.imag


def pairs(parts: Tensor) -> Tensor:
    """Return complex numbers (b, …) from their real and imaginary parts (b, 2, …)."""
    return torch.complex(parts[:, 0].contiguous(), parts[:, 1].contiguous())


def swapped(rows: Tensor) -> Tensor:
    """Return rows (…, 2K) with columns 2k and 2k + 1 exchanged."""
    return rows.reshape(*rows.shape[:-1], -1, 2).flip(-1).flatten(-2)


def parts(S: int, entries: int) -> list[slice]:
    """Return S samples in parts that have at most ``MAX_ENTRIES`` entries, if each sample has so many."""
    step = max(1, MAX_ENTRIES // max(1, entries))
    return [slice(first, min(S, first + step)) for first in range(0, S, step)]
