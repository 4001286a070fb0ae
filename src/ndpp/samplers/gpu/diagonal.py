"""Real coordinates in which B, and with it Z at every node, is diagonal but for blocks of two.

With B = T D T⁻¹, a pair of conjugate eigenvalues α ± iβ has the block [[α, β], [−β, α]] of D. Any function f of D has the block
[[g, h], [−h, g]] there, with g = (f(λ) + f(λ̄))/2 and h = (f(λ) − f(λ̄))/2i, both complex for a complex f. So, with l = qᵀT and r = T⁻¹q,

    q_aᵀ f(B) q_b = Σ_k (l_k g_k + l_{k^1} h_k) r_k,

where h has the sign of its column and is zero for a real eigenvalue, and k^1 is the other column of the pair.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp.linalg import EigenBasis
from ndpp.linalg.eigen import SPECTRUM_TOLERANCE
from ndpp.samplers.gpu.kernels.layout import swapped
from ndpp.samplers.gpu.kernels.runtime import TILE

FORMS_BLOCK = 2**18
"""Items whose forms are computed at a time."""


class Diagonal(NamedTuple):
    """T (r, 2K) and the transpose of T⁻¹, with columns of zeros up to a multiple of ``TILE``; λ and the sign of h of each column (2K,).

    ``table`` (n, 2, 2K) has r and l of every item.
    """

    to_left: Tensor
    to_right: Tensor
    values: Tensor
    sign: Tensor
    table: Tensor

    @classmethod
    def of(cls, q: Tensor, basis: EigenBasis) -> Diagonal:
        """Return the coordinates of the items with rows q (n, r) on a device."""
        sides, order = basis.to_sides, basis.in_pairs
        K, D = len(basis.values), sides.shape[2]
        width = -(-D // TILE) * TILE
        both, values, sign = np.zeros((2, len(basis.V), width)), np.zeros(width, complex), np.zeros(width)
        both[:, :, :D], values[:D] = sides[:, :, order], basis.values[order % K]
        sign[: 2 * (D - K)] = np.tile([-1.0, 1.0], D - K)
        to_left, to_right, of_columns, signs = (
            torch.from_numpy(part).to(q.device) for part in (both[0], both[1], values, sign)
        )
        return cls(to_left, to_right, of_columns, signs, torch.stack([q @ to_right, q @ to_left], 1))

    def factors(self, t: Tensor, Z: Tensor) -> Tensor | None:
        """Return Re g, Im g, Re h, Im h of Z(t) = tB(I + tB)⁻¹ at nodes t (h,), and of its square, shape (2, 4, h, 2K).

        None if they do not give these Z (h, r, r), which are computed directly.
        """
        one, other = t[:, None] * self.values, t[:, None] * self.values.conj()
        one, other = one / (1 + one), other / (1 + other)
        both = torch.stack(
            [torch.stack([(a + b) / 2, (a - b) / 2j * self.sign]) for a, b in ((one, other), (one**2, other**2))]
        )
        left, (g, k) = self.to_left.to(both.dtype), both[0, :, :, None]
        error = (left * g + swapped(left) * k) @ self.to_right.to(both.dtype).mT - Z
        if not bool(error.abs().max() <= SPECTRUM_TOLERANCE * Z.abs().max()):
            return None
        return torch.view_as_real(both).permute(0, 1, 4, 2, 3).flatten(1, 2).contiguous()

    def forms(self, g: Tensor, h: Tensor) -> Tensor:
        """Return q_aᵀ f(B) q_a of every item (n,), for real factors g and h (2K,)."""
        out = self.table.new_empty(len(self.table))
        for first in range(0, len(out), FORMS_BLOCK):
            right, left = self.table[first : first + FORMS_BLOCK].unbind(1)
            out[first : first + FORMS_BLOCK] = ((left * g + swapped(left) * h) * right).sum(1)
        return out
