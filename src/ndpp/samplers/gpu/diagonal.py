"""Real coordinates in which B, and with it Z at every node, is diagonal but for blocks of two.

With B = T D T⁻¹, a pair of conjugate eigenvalues α ± iβ has the block [[α, β], [−β, α]] of D. Any function f of D has the block
[[g, h], [−h, g]] there, with g = (f(λ) + f(λ̄))/2 and h = (f(λ) − f(λ̄))/2i, both complex for a complex f. So, with l = qᵀT and r = T⁻¹q,

    q_aᵀ f(B) q_b = Σ_k (l_k g_k + l_{k^1} h_k) r_k,

where h has the sign of its column and is zero for a real eigenvalue, and k^1 is the other column of the pair.

One real node gives upper bounds of qᵀMq, so that few proposals need all nodes of a circle. Let g(t) = Σ_S t^|S| det(L_S), over the sets S
that contain the items Y and a further item a. Its coefficients are not negative, so the one of t^k is at most t⁻ᵏ g(t), for any t > 0.
Divided by the coefficient of t^k for the sets that contain Y, which is what the weights of the circle sum to, this says

    q_aᵀMq_a ≤ C q_aᵀZq_a,        C = 1 / P(|S| = k | Y ⊆ S),

with Z given Y at the real node t, and P the distribution with odds t. If t is the radius of the circle, k is about the mean of |S|, and C
is about 2.5 standard deviations of |S|. The other bound is ‖q − q̂ᵀq̂q‖² (Theorem 5 in docs/theory); early on it is the better one.

A proposal is rejected if a uniform exceeds qᵀMq/‖q‖²; one that exceeds the bound is rejected without computing qᵀMq, so no draw changes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp.linalg.eigen import SPECTRUM_TOLERANCE, EigenBasis
from ndpp.samplers.gpu.kernels.invert import invert
from ndpp.samplers.gpu.kernels.runtime import TILE, even, swapped, tight

MARGIN = 1e-9
"""What rounding may add to a bound, relative to the leverage: far above it, and far below what would let more proposals pass."""
FORMS_BLOCK = 2**18
"""Items whose forms are computed at a time."""


class Peak(NamedTuple):
    """The real node of a rung: factors of Z (2K,), log det(I + tB) (1,), the rung, and qᵀZq of every item (n,)."""

    g: Tensor
    h: Tensor
    log_det: Tensor
    rung: int
    forms: Tensor


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

    def peak(self, rung: int, t: Tensor, Z: Tensor, log_det: Tensor) -> Peak | None:
        """Return the real node t of a rung from Z (1, r, r) and log det(I + tB) (1,) there; None if the coordinates do not give this Z."""
        factors = self.factors(t, Z)
        if factors is None:
            return None
        g, h = factors[0, 0, 0], factors[0, 2, 0]
        forms = []
        for part in torch.split(self.table, FORMS_BLOCK):
            right, left = part.unbind(1)
            forms.append(((left * g + swapped(left) * h) * right).sum(1))
        return Peak(g, h, log_det, rung, torch.cat(forms))


class Ceiling:
    """The real node given the items of each sample; ``items`` (2, S, capacity, 2K) are r and l, of which the first n exist."""

    def __init__(self, peak: Peak, items: Tensor, n: int) -> None:
        self.peak, self.items, self.n = peak, items, n
        _, S, capacity, _ = items.shape
        right, left = items[:, :, :n]
        self.scaled = torch.empty_like(items)  # f(D) r and l f(D)
        self.scaled[0, :, :n], self.scaled[1, :, :n] = self._scaled(right, left)
        self.inverse = items.new_zeros(S, capacity, capacity)
        G = items.new_zeros(S, 2, even(n), even(n))
        tight(G, n)[:, 0] = torch.bmm(left, self.scaled[0, :, :n].mT)
        self.log_det = peak.log_det + invert(G, n).real
        self.inverse[:, :n, :n] = tight(G, n)[:, 0]

    def _scaled(self, right: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        g, h = self.peak.g, self.peak.h
        return right * g - swapped(right) * h, left * g + swapped(left) * h

    def add(self) -> None:
        """Condition on one more item."""
        n, new = self.n, self.items[:, :, self.n]
        right, left = self._scaled(*new)
        column = torch.bmm(self.items[1, :, :n], right[:, :, None])  # q̂Zq
        row = torch.bmm(left[:, None], self.items[0, :, :n].mT)
        inverse = self.inverse[:, :n, :n]
        x, y = torch.bmm(inverse, column), torch.bmm(row, inverse)
        pivot = (left * new[0]).sum(1)[:, None, None] - torch.bmm(row, x)
        inverse.baddbmm_(x / pivot, y)
        self.inverse[:, :n, n], self.inverse[:, n, :n] = (-x / pivot)[:, :, 0], (-y / pivot)[:, 0]
        self.inverse[:, n, n] = 1 / pivot[:, 0, 0]
        self.scaled[0, :, n], self.scaled[1, :, n] = right, left
        self.log_det = self.log_det + pivot[:, 0, 0].log()
        self.n += 1

    def forms(self, rows: Tensor, left: Tensor, right: Tensor, which: slice | Tensor) -> Tensor:
        """Return qᵀZq given the items of proposals (P, c) with rows l and r (P, c, 2K), for the samples at ``which``."""
        scaled, inverse = self.scaled[:, which, : self.n], self.inverse[which, : self.n, : self.n]
        x, y = torch.bmm(left, scaled[0].mT), torch.bmm(right, scaled[1].mT)
        return self.peak.forms[rows] - (torch.bmm(x, inverse) * y).sum(2)
