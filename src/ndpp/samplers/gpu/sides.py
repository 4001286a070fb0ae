"""The items of samples at the nodes of a circle, by their sides U_j = Z_j q̂ᵀ and V_j = q̂ Z_j: for any kernel.

The sides are most of a sample's memory. :mod:`.coordinates` does without them, if the kernel has a basis of eigenvectors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ndpp.samplers.gpu.circles import DeviceCircle
from ndpp.samplers.gpu.kernels.border import border
from ndpp.samplers.gpu.kernels.forms import correction
from ndpp.samplers.gpu.kernels.invert import invert
from ndpp.samplers.gpu.kernels.layout import even, pairs, tight


class Sides:
    """U, V, G⁻¹ and VU of samples with basis q̂ (S, wanted, r), of which the first n rows exist, and space for ``capacity`` items."""

    def __init__(self, circle: DeviceCircle, basis: Tensor, n: int, capacity: int) -> None:
        (S, _, r), h = basis.shape, circle.half
        self.circle, self.basis = circle, basis
        shape = S * h, 2, even(capacity), even(capacity)
        self.inverse = basis.new_zeros(shape)  # G⁻¹, see `tight`; the column after an odd n must be finite
        self.inner = basis.new_empty(shape)  # (VU)ᵀ = (q̂Z²q̂ᵀ)ᵀ
        # Re Zq̂, Im Zq̂ (U), Re Zᵀq̂, Im Zᵀq̂ (V). Rows after the n-th are overwritten later; computing them reserves their memory.
        every = basis[:, :capacity].reshape(S * capacity, r) @ circle.to_sides if n else None
        self.sides = (basis.new_empty(S * capacity, h * 4 * r) if every is None else every).view(S, capacity, h, 4, r)

    def enter(self, n: int) -> tuple[Tensor, Tensor]:
        """Build G⁻¹ and VU for the items chosen; return log det G and tr(G⁻¹VU), both (S, h)."""
        (S, _, r), h = self.basis.shape, self.circle.half
        tight(self.inverse, n).view(S, h, 2, n, n).copy_(self._minors(self.sides[:, :n]).mT)
        log_det = invert(self.inverse, n)
        squares = (self.basis[:, :n].reshape(S * n, r) @ self.circle.square_columns).view(S, n, h, 2, r)
        self.inner.view(S, h, 2, *self.inner.shape[2:])[..., :n, :n] = self._minors(squares)
        removed = (pairs(tight(self.inverse, n)) * pairs(self.inner[:, :, :n, :n])).sum((1, 2))
        return log_det.view(S, h), removed.view(S, h)

    def write_minors(self, circle: DeviceCircle, to: Tensor) -> None:
        """Write (q̂Zq̂ᵀ)ᵀ of the first n items at each node of a circle to ``to`` (S, h, 2, n, n)."""
        (S, _, r), n = self.basis.shape, to.shape[3]
        to.copy_(self._minors((self.basis[:, :n].reshape(S * n, r) @ circle.columns).view(S, n, -1, 2, r)))

    def _minors(self, every: Tensor) -> Tensor:
        """Return (q̂Zq̂ᵀ)ᵀ at each node, shape (S, h, 2, n, n), from the columns Zq̂ᵀ, which come first in (S, n, h, 2 or 4, r)."""
        S, n, h, p, r = every.shape
        parts = torch.bmm(every.view(S, n * h * p, r), self.basis[:, :n].mT).view(S, n, h, p, n)
        return parts[:, :, :, :2].permute(0, 2, 3, 1, 4)

    def add(self, n: int) -> tuple[Tensor, Tensor]:
        """Border U, V, G⁻¹ and VU with the n-th item; return the pivots and tr(G⁻¹VU), both (S, h)."""
        S, _, h, _, r = self.sides.shape
        new, basis = self.basis[:, n - 1], self.basis[:, :n].mT
        side = torch.mm(new, self.circle.to_sides, out=self.sides[:, n - 1].flatten(1))
        squares = torch.mm(new, self.circle.to_squares)
        parts = [torch.bmm(four.view(S, h * 4, r), basis).view(S * h, 4, n) for four in (side, squares)]
        pivots, removed = border(self.inverse, self.inner, *parts)
        assert removed is not None
        return pivots.view(S, h), removed.view(S, h)

    def correction(self, q: Tensor, rows: Tensor, w: Tensor, which: Tensor, n: int) -> Tensor:
        """Return Re w_j (qᵀU_j) G_j⁻¹ (V_jq) at each node (P, h, c), of proposals with rows q (P, c, r) of the samples at ``which``."""
        (P, c, r), h = q.shape, self.circle.half
        sides = self.sides[:, :n] if len(self.sides) == P else self.sides[:, :n][which]
        products = torch.bmm(sides.view(P, n * h * 4, r), q.mT).view(P, n, h, 4, c)
        return correction(products[:, :, :, :2], products[:, :, :, 2:], self.inverse, w, which)

    def chosen_excess(self, w: Tensor, n: int) -> Tensor:
        """Return the largest entry of M q̂ᵀ (S,), which is zero for items already chosen in exact arithmetic."""
        S, _, h, _, _ = self.sides.shape
        sides = self.sides[:, :n].flatten(1, 3)
        products = torch.bmm(sides, self.basis[:, :n].mT).view(S, n, h, 4, n)[:, :, :, 2:]
        right = pairs(products.permute(0, 2, 3, 1, 4).reshape(S * h, 2, n, n))
        rest = torch.bmm(pairs(tight(self.inverse, n)), right)  # G⁻¹ V q̂ᵀ, which should be the identity
        rest = (torch.eye(n, dtype=rest.dtype, device=rest.device) - rest) * w.view(-1, 1, 1)
        factors = sides.new_zeros(S, n, h, 4, n)  # zero for V, so that the sides are read without gathering
        factors[:, :, :, 0], factors[:, :, :, 1] = (
            part.view(S, h, n, n).transpose(1, 2) for part in (rest.real, -rest.imag)
        )
        return torch.bmm(factors.view(S, -1, n).mT, sides).abs().amax((1, 2))
