"""torch's spelling of :class:`ndpp.linalg.operations.Operations`: with it, the algorithms of the CPU run on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ndpp._types import FloatArray


class TorchOperations:
    """torch's. Nothing here waits for the device, and what is singular shows in the monitors, not as an error."""

    def array(self, values: FloatArray, like: Tensor) -> Tensor:
        """Return ``values`` on the device and of the type of ``like``: torch does not multiply real and complex matrices."""
        return torch.from_numpy(values).to(like)

    def eye(self, n: int, like: Tensor) -> Tensor:
        """Return the identity."""
        return torch.eye(n, dtype=like.dtype, device=like.device)

    def sqrt(self, x: Tensor) -> Tensor:
        """Return √x."""
        return x.sqrt()

    def log(self, x: Tensor) -> Tensor:
        """Return log x."""
        return x.log()

    def concat(self, arrays: Sequence[Tensor], axis: int) -> Tensor:
        """Return the arrays joined along an axis."""
        return torch.cat(list(arrays), axis)

    def trace(self, A: Tensor) -> Tensor:
        """Return tr A."""
        return A.diagonal(dim1=-2, dim2=-1).sum(-1)

    def solve(self, A: Tensor, B: Tensor) -> Tensor:
        """Return A⁻¹B."""
        return torch.linalg.solve_ex(A, B)[0]

    def log_det(self, A: Tensor) -> tuple[Tensor, Tensor]:
        """Return log|det A| and the logarithm of det A/|det A|, for complex A."""
        sign, log_abs = torch.linalg.slogdet(A)
        return log_abs, sign.log()

    def inverse(self, A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return A⁻¹ and log det A, for complex A, from one factorisation."""
        LU, pivots, _ = torch.linalg.lu_factor_ex(A)
        identity = self.eye(A.shape[-1], A).expand_as(LU)
        log_det = log_det_of_factors(LU, pivots)
        return torch.linalg.lu_solve(LU, pivots, identity), log_det.real, 1j * log_det.imag


def log_det_of_factors(LU: Tensor, pivots: Tensor) -> Tensor:
    """Return log det of complex matrices from what ``lu_factor_ex`` gave: every exchange of rows turns the sign."""
    swaps = (pivots != torch.arange(1, LU.shape[-1] + 1, device=LU.device)).sum(-1) % 2
    return LU.diagonal(dim1=-2, dim2=-1).log().sum(-1) + 1j * (torch.pi * swaps.double())


TORCH = TorchOperations()
