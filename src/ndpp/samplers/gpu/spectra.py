"""Resolvents of a kernel, or of many components of a mixture with shared ties, in coordinates in which they are diagonal.

The part T of component c has rows √p_i q_i and the inner matrix W, both in the coordinates of the base (:mod:`ndpp.laws.tied`). With
Σ_i p_i q_i q_iᵀ = F Fᵀ, the rows q̂_i = √p_i F⁻¹ q_i are orthonormal, and T has the kernel Q̂ B Q̂ᵀ, B = Fᵀ W F. With B = V diag(λ) V⁻¹,

    q̂_aᵀ R(s) q̂_b = Re Σ_k l_ak f_k r_bk,        R(s) = sB(I + sB)⁻¹,  f = sλ/(1 + sλ),  l_a = q̂_aᵀ V,  r_b = V⁻¹ q̂_b.

So a resolvent at any s costs O(r), whatever s is. Of two conjugate eigenvalues one is kept, and its l counted twice. If W is skew, so is B,
and V is unitary. Components whose decomposition (:class:`~ndpp.linalg.eigen.EigenBasis`) disagrees with their resolvents are not
``diagonal``, and are drawn on the CPU.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp._types import FloatArray
from ndpp.items.table import alias_table
from ndpp.linalg.eigen import EigenBasis, is_skew
from ndpp.samplers.gpu.arrays import TORCH
from ndpp.samplers.gpu.kernels.forms import COLUMNS
from ndpp.samplers.gpu.kernels.propose import AliasTable

PADDED_TO = COLUMNS // 2
"""The number of eigenvalues is a multiple of this."""
RANK_TOLERANCE = 1e-13
"""Eigenvalues of Σ p_i q_i q_iᵀ below this, relative to the largest, are zero."""


class Spectra(NamedTuple):
    """Of C components: eigenvalues (C, K) and how often each counts; ``rows`` (C·n, 3, 2K), as pairs of reals: l, r̄ and the products lr.

    ``items`` proposes by leverage; ``diagonal`` (C,) are components whose decomposition agrees with their resolvents.
    """

    eigenvalues: Tensor
    multiplicity: Tensor
    rows: Tensor
    items: AliasTable
    diagonal: Tensor
    rank: int

    @property
    def n_rows(self) -> int:
        """Items of the support, rows per component."""
        return self.items.n_rows

    def factors(self, which: Tensor, x: Tensor) -> Tensor:
        """Return f (S, K) of these components at s = exp(−x)."""
        scaled = self.eigenvalues[which] * torch.exp(-x)[:, None]
        return scaled / (1 + scaled)


def n_bytes(n_rows: int, rank: int) -> int:
    """Return about how many bytes a component takes."""
    return n_rows * (24 * rank + 48)


def of_components(q: Tensor, core: Tensor, odds: FloatArray) -> Spectra:
    """Decompose the components with these odds (C, n), given the rows q (n, r) and W, both on the device."""
    (C, n), r, device = odds.shape, q.shape[1], q.device
    p = torch.from_numpy(odds / (1 + odds)).to(device)
    F, F_inverse = _roots(torch.stack([(q * one[:, None]).mT @ q for one in p]) if r else q.new_zeros(C, 0, 0))
    found, diagonal = EigenBasis.of_many(F.mT @ core @ F, is_skew=is_skew(core.cpu().numpy()), ops=TORCH)
    basis = _padded(found)
    every, leverage = q.new_empty(C, n, 3, 2 * basis.V.shape[2]), q.new_zeros(C, n)
    for c in range(C):
        rows = (q * p[c].sqrt()[:, None]) @ F_inverse[c].mT
        every[c], leverage[c] = _of_rows(basis, c, rows), rows.square().sum(1)
    items = alias_tables(leverage.cpu().numpy(), device)
    return Spectra(basis.values, basis.multiplicity, every.flatten(0, 1), items, diagonal, r)


def of_kernel(q: Tensor, basis: EigenBasis, items: AliasTable) -> Spectra:
    """Return the tables of one kernel with this basis and rows q (n, r) on the device; ``items`` proposes them by leverage."""
    on_device = _padded(EigenBasis(*(torch.from_numpy(np.array(part)[None]).to(q.device) for part in basis)))
    every = torch.ones(1, dtype=torch.bool, device=q.device)
    return Spectra(on_device.values, on_device.multiplicity, _of_rows(on_device, 0, q), items, every, q.shape[1])


def _padded(basis: EigenBasis) -> EigenBasis:
    """Return the basis with zeros up to a number of eigenvalues that kernels can process."""
    K, pad = basis.values.shape[-1], torch.nn.functional.pad
    more = max(PADDED_TO, K + -K % PADDED_TO) - K
    values, multiplicity, V = (pad(part, (0, more)) for part in basis[:3])
    return EigenBasis(values, multiplicity, V, pad(basis.inverse, (0, 0, 0, more)))


def _of_rows(basis: EigenBasis, c: int, rows: Tensor) -> Tensor:
    """Return l, r̄ and lr of rows (n, r) of Q, for component c, as pairs of reals (n, 3, 2K)."""
    left = rows @ reals(basis.V[c] * basis.multiplicity[c])
    right = rows @ reals(basis.inverse[c].mH.resolve_conj().contiguous())
    return torch.stack([left, right, reals(complexes(left) * complexes(right).conj())], 1)


def reals(values: Tensor) -> Tensor:
    """Return complex numbers (…, K) as pairs of reals (…, 2K). The dot product of a and b̄ as reals is Re Σ ab."""
    return torch.view_as_real(values).flatten(-2)


def complexes(values: Tensor) -> Tensor:
    """Return complex numbers (…, K) from pairs of reals (…, 2K)."""
    return torch.view_as_complex(values.view(*values.shape[:-1], values.shape[-1] // 2, 2))


def _roots(A: Tensor) -> tuple[Tensor, Tensor]:
    """Return F with A = F Fᵀ, and its inverse; zero in directions in which A is zero."""
    F, failed = torch.linalg.cholesky_ex(A)
    pivots = F.diagonal(dim1=-2, dim2=-1)
    failed = (
        (failed > 0) | ~(pivots.amin(1) ** 2 > RANK_TOLERANCE * pivots.amax(1) ** 2) if len(A.mT[0]) else failed > 0
    )
    eye = torch.eye(A.shape[1], dtype=A.dtype, device=A.device)
    F = torch.where(failed[:, None, None], eye, F)
    inverse = torch.linalg.solve_triangular(F, eye.expand_as(F), upper=False)
    for c in failed.nonzero()[:, 0].tolist():
        values, vectors = torch.linalg.eigh(A[c])
        root = values.clamp(min=0).sqrt()
        some = values > RANK_TOLERANCE * values[-1].clamp(min=torch.finfo(values.dtype).tiny)
        F[c] = vectors * torch.where(some, root, 0.0)
        inverse[c] = (vectors * torch.where(some, 1 / root, 0.0)).mT
    return F, inverse


def alias_tables(weights: FloatArray, device: torch.device) -> AliasTable:
    """Return the alias tables of C distributions (C, n), one after another; those without weight are never used."""
    C, n = weights.shape
    threshold, alias = np.ones((C, n)), np.tile(np.arange(n), (C, 1))
    for c in np.flatnonzero(weights.sum(axis=1) > 0).tolist():
        threshold[c], alias[c] = alias_table(weights[c])
    alias += n * np.arange(C)[:, None]
    parts = [torch.from_numpy(part.reshape(-1)).to(device) for part in (threshold, alias, weights)]
    return AliasTable(parts[0], parts[1], parts[2], n)
