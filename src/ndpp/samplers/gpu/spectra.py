"""Resolvents of a kernel, or of many components of a mixture with shared ties, in coordinates in which they are diagonal.

The part T of component c has rows √p_i q_i and the inner matrix W, both in the coordinates of the base (:mod:`ndpp.laws.tied`). With
Σ_i p_i q_i q_iᵀ = F Fᵀ, the rows q̂_i = √p_i F⁻¹ q_i are orthonormal, and T has the kernel Q̂ B Q̂ᵀ, B = Fᵀ W F. With B = V diag(λ) V⁻¹,

    q̂_aᵀ R(s) q̂_b = Re Σ_k l_ak f_k r_bk,        R(s) = sB(I + sB)⁻¹,  f = sλ/(1 + sλ),  l_a = q̂_aᵀ V,  r_b = V⁻¹ q̂_b.

So a resolvent at any s costs O(r), whatever s is. Of two conjugate eigenvalues one is kept, and its l counted twice. If W is skew, so is B,
and V is unitary; for other W a general eigensolver is used. A decomposition is compared with resolvents computed directly: components
where they differ, as they do where B has hardly any eigenvectors, are not ``diagonal``, and are drawn on the CPU.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp._types import AnyArray, FloatArray
from ndpp.items.table import alias_table
from ndpp.samplers.gpu.kernels.propose import AliasTable
from ndpp.samplers.gpu.kernels.remaining import COLUMNS

TESTED_AT = 1.0, np.exp(-4.0), np.exp(-10.0)
"""Values of s at which a decomposition is tested."""
SPECTRUM_TOLERANCE = 1e-10
"""Largest error of a resolvent from the decomposition, relative to its largest entry."""
PADDED_TO = COLUMNS // 2
"""The number of eigenvalues is a multiple of this."""
RANK_TOLERANCE = 1e-13
"""Eigenvalues of Σ p_i q_i q_iᵀ below this, relative to the largest, are zero."""


class Spectra(NamedTuple):
    """Of C components: eigenvalues (C, K) and how often each counts; ``rows`` (C·n, 3, 2K), as pairs of reals: l, r̄ and the products lr.

    ``items`` proposes by leverage, ``alone`` by log(1 + o_i); ``alone_rate`` (C,) is the sum of the latter.
    """

    eigenvalues: Tensor
    multiplicity: Tensor
    rows: Tensor
    items: AliasTable
    alone: AliasTable
    alone_rate: Tensor
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


def prepare(q: Tensor, core: Tensor, odds: FloatArray) -> Spectra:
    """Decompose the components with these odds (C, n), given the rows q (n, r) and W, both on the device."""
    (C, n), r, device = odds.shape, q.shape[1], q.device
    p = torch.from_numpy(odds / (1 + odds)).to(device)
    F, F_inverse = _roots(torch.stack([(q * one[:, None]).mT @ q for one in p]) if r else q.new_zeros(C, 0, 0))
    found = _decompose(F.mT @ core @ F, is_skew=_is_skew(core))
    every, leverage = q.new_empty(C, n, 3, 2 * found.V.shape[2]), q.new_zeros(C, n)
    for c in range(C):
        rows = (q * p[c].sqrt()[:, None]) @ F_inverse[c].mT
        every[c], leverage[c] = found.of_rows(c, rows), rows.square().sum(1)
    rates = np.log1p(odds)
    return Spectra(
        found.eigenvalues, found.multiplicity, every.flatten(0, 1), _tables(leverage.cpu().numpy(), device),
        _tables(rates, device), torch.from_numpy(rates.sum(1)).to(device), found.diagonal, r,
    )  # fmt: skip


def of_kernel(q: Tensor, B: FloatArray, items: AliasTable) -> Spectra | None:
    """Decompose the kernel Q B Qᵀ as one component, of which nothing comes alone; None if it has hardly any eigenvectors.

    q (n, r) are its rows on the device, and ``items`` proposes them by leverage.
    """
    inner = torch.from_numpy(np.array(B)).to(q.device)[None]
    found = _decompose(inner, is_skew=_is_skew(inner[0])) if bool(inner.isfinite().all()) else None
    if found is None or not found.diagonal.all():
        return None
    return Spectra(
        found.eigenvalues, found.multiplicity, found.of_rows(0, q), items, items, q.new_zeros(1), found.diagonal,
        q.shape[1],
    )  # fmt: skip


class _Decomposition(NamedTuple):
    """B = V diag(λ) V⁻¹ of C components, and for which of them this gives their resolvents."""

    eigenvalues: Tensor
    multiplicity: Tensor
    V: Tensor
    V_inverse: Tensor
    diagonal: Tensor

    def of_rows(self, c: int, rows: Tensor) -> Tensor:
        """Return l, r̄ and lr of rows (n, r) of Q, for component c, as pairs of reals (n, 3, 2K)."""
        left = rows @ reals(self.V[c] * self.multiplicity[c])
        right = rows @ reals(self.V_inverse[c].mH.resolve_conj().contiguous())
        return torch.stack([left, right, reals(pairs(left) * pairs(right).conj())], 1)


def _decompose(B: Tensor, *, is_skew: bool) -> _Decomposition:
    parts = _padded(*(_skew_parts(B) if is_skew else _parts(B)))
    return _Decomposition(*parts, _agrees(B, *parts))


def reals(values: Tensor) -> Tensor:
    """Return complex numbers (…, K) as pairs of reals (…, 2K). The dot product of a and b̄ as reals is Re Σ ab."""
    return torch.view_as_real(values).flatten(-2)


def pairs(values: Tensor) -> Tensor:
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


def _is_skew(core: Tensor) -> bool:
    return bool((core + core.mT).abs().max() <= 1e-14 * core.abs().max()) if core.numel() else True


def _skew_parts(B: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return λ, multiplicities, V and the rows of V⁻¹ of skew B, from the eigenvalues μ ≥ 0 of the Hermitian iB."""
    half = (B.shape[1] + 1) // 2
    skew = (B - B.mT) / 2
    values, vectors = torch.linalg.eigh(1j * skew)
    values, vectors = values[:, -half:] if half else values, vectors[:, :, -half:] if half else vectors
    return -1j * values, torch.full_like(values, 2.0), vectors, vectors.mH.contiguous()


def _parts(B: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return λ, multiplicities, V and the rows of V⁻¹ of any B; the columns that a component does not need are zero."""
    every, vectors = np.linalg.eig(B.cpu().numpy())
    every, vectors = every.astype(complex), vectors.astype(complex)
    usable = np.linalg.cond(vectors) < 1 / np.finfo(float).eps
    vectors[~usable] = np.eye(B.shape[1])
    inverses = np.linalg.inv(vectors)
    chosen = [np.flatnonzero(one.imag >= 0) for one in every]
    K = max(map(len, chosen))
    values, times = np.zeros((len(B), K), complex), np.zeros((len(B), K))
    V, V_inverse = np.zeros((len(B), B.shape[1], K), complex), np.zeros((len(B), K, B.shape[1]), complex)
    for c, some in enumerate(chosen):
        k = len(some)
        values[c, :k], times[c, :k] = every[c, some], np.where(every[c, some].imag > 0, 2.0, 1.0)
        V[c, :, :k], V_inverse[c, :k] = vectors[c][:, some], inverses[c][some]
    parts: list[AnyArray] = [values, times, V, V_inverse]
    one, two, three, four = (torch.from_numpy(part).to(B.device) for part in parts)
    return one, two, three, four


def _padded(
    values: Tensor, multiplicity: Tensor, V: Tensor, V_inverse: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the same with zeros up to a number of eigenvalues that kernels can process."""
    more = -values.shape[1] % PADDED_TO
    pad = torch.nn.functional.pad
    return pad(values, (0, more)), pad(multiplicity, (0, more)), pad(V, (0, more)), pad(V_inverse, (0, 0, 0, more))


def _agrees(B: Tensor, values: Tensor, multiplicity: Tensor, V: Tensor, V_inverse: Tensor) -> Tensor:
    """Tell for which components (C,) the decomposition gives the resolvents."""
    good = torch.ones(len(B), dtype=torch.bool, device=B.device)
    eye = torch.eye(B.shape[1], dtype=B.dtype, device=B.device)
    for s in TESTED_AT if B.shape[1] else ():
        expected = torch.linalg.solve_ex(eye + s * B, s * B)[0]
        f = s * values / (1 + s * values)
        error = ((V * (multiplicity * f)[:, None]) @ V_inverse).real - expected
        good &= error.abs().amax((1, 2)) <= SPECTRUM_TOLERANCE * expected.abs().amax((1, 2))
    return good


def _tables(weights: FloatArray, device: torch.device) -> AliasTable:
    """Return the alias tables of C distributions (C, n), one after another; those without weight are never used."""
    C, n = weights.shape
    threshold, alias = np.ones((C, n)), np.tile(np.arange(n), (C, 1))
    for c in np.flatnonzero(weights.sum(axis=1) > 0).tolist():
        threshold[c], alias[c] = alias_table(weights[c])
    alias += n * np.arange(C)[:, None]
    parts = [torch.from_numpy(part.reshape(-1)).to(device) for part in (threshold, alias, weights)]
    return AliasTable(parts[0], parts[1], parts[2], n)
