"""The operations of :class:`ndpp.linalg.operations.Operations` for torch, which let the CPU's algorithms run on the device.

Nothing here synchronises with the device. A singular matrix shows in the monitors, not as an error. Determinants are of complex matrices.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ndpp.linalg.operations import Operations


def _eye(n: int, like: Tensor) -> Tensor:
    return torch.eye(n, dtype=like.dtype, device=like.device)


def _log_det(A: Tensor) -> tuple[Tensor, Tensor]:
    sign, log_abs = torch.linalg.slogdet(A)
    return log_abs, sign.log()


def _inverse(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    LU, pivots, _ = torch.linalg.lu_factor_ex(A)
    exchanges = (pivots != torch.arange(1, LU.shape[-1] + 1, device=LU.device)).sum(-1) % 2  # each flips the sign
    log_det = LU.diagonal(dim1=-2, dim2=-1).log().sum(-1) + 1j * (torch.pi * exchanges.double())
    return torch.linalg.lu_solve(LU, pivots, _eye(A.shape[-1], A).expand_as(LU)), log_det.real, 1j * log_det.imag


TORCH = Operations(
    array=lambda values, like: torch.from_numpy(values).to(like),  # torch does not multiply real and complex matrices
    numpy=lambda A: A.cpu().numpy(),
    eye=_eye,
    log=torch.log,
    trace=lambda A: A.diagonal(dim1=-2, dim2=-1).sum(-1),
    largest=lambda A: A.amax((-2, -1)),
    eigh=torch.linalg.eigh,
    solve=lambda A, B: torch.linalg.solve_ex(A, B)[0],
    log_det=_log_det,
    inverse=_inverse,
)
