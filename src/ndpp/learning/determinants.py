"""Determinants of stacks of matrices with their gradient, and the minors of a batch of baskets: what every likelihood is made of.

:mod:`~ndpp.learning.kernel_objective` uses them in gradients that are written out, :mod:`ndpp.torch` in backward passes of autograd.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import torch
from torch import Tensor

from ndpp.learning.batches import PackedBaskets

Factors: TypeAlias = tuple[Tensor, Tensor]
"""LU, and the exchanges of rows."""


def log_det_inverse(A: Tensor) -> tuple[Tensor, Tensor, Factors]:
    """Return log|det A|, A⁻¹, whose transpose is the gradient of log det A, and the factors of each matrix, real or complex.

    Nothing here waits for a GPU. A singular matrix has a log of −inf.
    """
    LU, pivots, _ = torch.linalg.lu_factor_ex(A)
    inverse = torch.linalg.lu_solve(LU, pivots, torch.eye(LU.shape[-1], dtype=LU.dtype, device=LU.device).expand_as(LU))
    return LU.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1), inverse, (LU, pivots)


def unit(factors: Factors) -> Tensor:
    """Return det A/|det A|, the sign of a real determinant."""
    LU, pivots = factors
    exchanges = (pivots != torch.arange(1, LU.shape[-1] + 1, device=LU.device)).sum(-1)  # each flips the sign
    return LU.diagonal(dim1=-2, dim2=-1).sgn().prod(-1) * (1 - 2 * (exchanges % 2))


def minors(
    left: Tensor, right: Tensor, batch: PackedBaskets, padding: int, diagonal: float | Tensor = 0.0
) -> Iterator[tuple[slice, Tensor]]:
    """Yield the place of the baskets of each size in the batch, and their minors, left_Y right_Yᵀ + diagonal, in double precision.

    ``left`` and ``right`` have a row for each entry of the batch, and ``diagonal`` may have a number for each. The part of entries with
    the id ``padding`` is an identity.
    """
    for start, m, k in batch.blocks:
        here = slice(start, start + m * k)
        G = (left[here].view(m, k, -1) @ right[here].view(m, k, -1).mT).double()
        on_diagonal = G.diagonal(dim1=-2, dim2=-1)
        on_diagonal.add_(diagonal[here].view(m, k) if isinstance(diagonal, Tensor) else diagonal)
        if batch.padded:
            on_diagonal.masked_fill_((batch.items[here] == padding).view(m, k), 1.0)
        yield here, G
