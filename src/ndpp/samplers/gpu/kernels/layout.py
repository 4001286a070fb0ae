"""How complex matrices lie in memory: real and imaginary parts apart, and rows without gaps.

A sample's small matrices are (b, 2, room, room), b = S·h: for each node of each sample the real part, then the imaginary part, with room
for the items to come. Kernels read 16 bytes, two numbers, at a time, so ``room`` is even.

Of VU the n × n part in use is the upper left corner, as one would expect. G⁻¹ is read as a whole at every step, and a corner would be
read with gaps; so its rows follow each other at a distance of n, or n + 1 if n is odd (:func:`tight`). They move as n grows, which costs
nothing since bordering writes all of them anyway.
"""

from __future__ import annotations

import torch
from torch import Tensor


def even(n: int) -> int:
    """Return n, or n + 1 if n is odd."""
    return n + n % 2


def tight(matrices: Tensor, n: int) -> Tensor:
    """Return a view of the n rows and columns in use, (b, 2, n, n), of matrices whose rows are at a distance of ``even(n)``."""
    return matrices.flatten(2)[:, :, : n * even(n)].unflatten(2, (n, even(n)))[..., :n]


def split(matrices: Tensor, to: Tensor) -> None:
    """Put complex matrices (b, n, n) into their real and imaginary parts (b, 2, n, n)."""
    to[:, 0], to[:, 1] = matrices.real, matrices.imag


def pairs(parts: Tensor) -> Tensor:
    """Return complex numbers (b, …) from their real and imaginary parts (b, 2, …)."""
    return torch.complex(parts[:, 0].contiguous(), parts[:, 1].contiguous())
