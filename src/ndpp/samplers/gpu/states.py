"""The items of samples at the nodes of a circle, in one of two forms with the same operations.

:class:`StoredSides` are U_j = Z_j q̂ᵀ and V_j = q̂ Z_j, for any kernel; they are most of a sample's memory. :class:`DiagonalRows` are rows in
coordinates in which all Z_j are diagonal (:mod:`.diagonal`). A product with Z_j costs O(r) there, so samples need not store their sides,
and only proposals that pass cheaper bounds are judged at all nodes. Each form is faster where it is used (``docs/gpu-internals.md``).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ndpp.samplers.gpu.circles import DeviceCircle
from ndpp.samplers.gpu.diagonal import MARGIN, Ceiling, Diagonal
from ndpp.samplers.gpu.kernels.border import border
from ndpp.samplers.gpu.kernels.forms import correction
from ndpp.samplers.gpu.kernels.invert import invert
from ndpp.samplers.gpu.kernels.nodes import node_forms, node_products, node_rows
from ndpp.samplers.gpu.kernels.runtime import even, pairs, parts, tight


class StoredSides:
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


class DiagonalRows:
    """r and l of the items, and G⁻¹, of samples with basis q̂ (S, wanted, r), whose first n rows exist; space for ``capacity`` items."""

    def __init__(self, circle: DeviceCircle, diagonal: Diagonal, basis: Tensor, n: int, capacity: int) -> None:
        assert circle.factors is not None
        self.circle, self.diagonal, self.basis, self.factors = circle, diagonal, basis, circle.factors
        S = len(basis)
        self.items = basis.new_empty(2, S, capacity, diagonal.to_left.shape[1])  # r and l
        for part, to in zip(self.items, (diagonal.to_right, diagonal.to_left)):
            part[:, :n] = basis[:, :n] @ to
        # G⁻¹, see `tight`; the column after an odd n must be finite
        self.inverse = basis.new_zeros(S * circle.half, 2, even(capacity), even(capacity))
        self.removed = torch.zeros((), dtype=torch.complex128, device=basis.device)
        self.ceiling: Ceiling | None = None

    def enter(self, n: int) -> tuple[Tensor, Tensor]:
        """Build G⁻¹ for the items chosen; return log det G and tr(G⁻¹q̂Z²q̂ᵀ), both (S, h)."""
        S, h = len(self.basis), self.circle.half
        self._write_minors(self.factors[0], self._tight(n))
        log_det = invert(self.inverse, n).view(S, h)
        self.removed = torch.empty_like(log_det)
        for some in parts(S, 8 * h * n * n):
            squares = self.basis.new_empty(len(self.removed[some]), h, 2, n, n)
            self._write_minors(self.factors[1], squares, some)
            inverse = pairs(self._tight(n)[some].flatten(0, 1))
            self.removed[some] = (inverse * pairs(squares.flatten(0, 1)).mT).sum((1, 2)).view(-1, h)
        return log_det, self.removed

    def _tight(self, n: int) -> Tensor:
        """Return G⁻¹ (S, h, 2, n, n)."""
        return tight(self.inverse, n).view(-1, self.circle.half, 2, n, n)

    def write_minors(self, circle: DeviceCircle, to: Tensor) -> None:
        """Write q̂Zq̂ᵀ of the first n items at each node of a circle to ``to`` (S, h, 2, n, n)."""
        assert circle.factors is not None
        self._write_minors(circle.factors[0], to)

    def _write_minors(self, factors: Tensor, to: Tensor, some: slice = slice(None)) -> None:
        """Write q̂Zq̂ᵀ of some samples at each node to ``to`` (s, h, 2, n, n)."""
        items = self.items[:, some, : to.shape[3]]
        node_products(factors, items[:1], items, None, to.permute(0, 3, 1, 2, 4)[None])

    def add(self, n: int) -> tuple[Tensor, Tensor]:
        """Border G⁻¹ with the n-th item; return the pivots and tr(G⁻¹q̂Z²q̂ᵀ), both (S, h)."""
        new, S, h = self.basis[:, n - 1], len(self.basis), self.circle.half
        for part, to in zip(self.items, (self.diagonal.to_right, self.diagonal.to_left)):
            part[:, n - 1] = new @ to
        new_parts = new.new_empty(S, h, 2, 2, n)  # q̂Zq and qᵀZq̂ᵀ
        to = new_parts.permute(2, 0, 4, 1, 3)[..., None]
        node_products(self.factors[0], self.items[:, :, n - 1 : n], self.items[:, :, :n], None, to)
        pivots, _ = border(self.inverse, None, new_parts.view(S * h, 4, n), None)
        self.removed = self.removed + self._removed_by(n, pivots.view(S, h))
        if self.ceiling is not None:
            self.ceiling.add()
        return pivots.view(S, h), self.removed

    def _removed_by(self, n: int, pivots: Tensor) -> Tensor:
        """Return the decrease of tr Z given Y (S, h) by the n-th item, qᵀZ²q/π with Z given the others.

        The last row and column of G⁻¹ are combinations of items that leave qᵀZ/π and Zq/π.
        """
        h, width, G = self.circle.half, self.items.shape[3], self._tight(n)
        left, right = (
            torch.bmm(part.reshape(-1, 2 * h, n), items[:, :n]).view(-1, h, 2, width)
            for part, items in ((G[..., n - 1, :], self.items[1]), (G[..., n - 1], self.items[0]))
        )
        return pivots * node_forms(self.factors[1], left, right)

    def correction(self, q: Tensor, rows: Tensor, w: Tensor, which: Tensor, n: int) -> Tensor:
        """Return Re w_j (qᵀU_j) G_j⁻¹ (V_jq) at each node (P, h, c), of proposals with rows q (P, c, r) of the samples at ``which``."""
        proposed, everyone = self.diagonal.table[rows].permute(2, 0, 1, 3), len(which) == len(self.basis)
        y, x = out = q.new_empty(2, len(q), n, self.circle.half, 2, q.shape[1])
        node_products(self.factors[0], proposed, self.items[:, :, :n], None if everyone else which, out)
        return correction(x, y, self.inverse, w, which)

    def bounds(self, rows: Tensor, factor: Tensor | None, which: Tensor, n: int) -> Tensor:
        """Return what qᵀMq of proposals (P, c) cannot exceed: ‖q − q̂ᵀq̂q‖² and, with its ``factor`` (P,), the ceiling."""
        out, width = torch.empty(rows.shape, dtype=self.basis.dtype, device=rows.device), self.items.shape[3]
        for some in parts(len(rows), rows.shape[1] * (4 * width + 4 * n)):
            own = None if factor is None else factor[some]
            out[some] = self._bounds(rows[some], own, some if len(which) == len(self.basis) else which[some], n)
        return out

    def _bounds(self, rows: Tensor, factor: Tensor | None, which: slice | Tensor, n: int) -> Tensor:
        device_rows = self.circle.device_rows
        leverage = device_rows.table.leverage[rows]
        out = leverage - torch.bmm(self.basis[which, :n], device_rows.take(rows).mT).square().sum(1)
        if factor is not None and self.ceiling is not None:
            right, left = self.diagonal.table[rows].unbind(2)
            ceiling = factor[:, None] * (self.ceiling.forms(rows, left, right, which) + MARGIN * leverage)
            out = torch.where(ceiling < out, ceiling, out)  # a NaN bounds nothing
        return out + MARGIN * leverage

    def chosen_excess(self, w: Tensor, n: int) -> Tensor:
        """Return the largest entry of M q̂ᵀ (S,), which is zero for items already chosen in exact arithmetic.

        This is q̂ᵀ times Re Σ_j w_j Z_j (I − G_j⁻¹G_j), summed over nodes and items in one product.
        """
        h, width, inverse, out = self.circle.half, self.items.shape[3], self._tight(n), torch.empty_like(w.real[:, 0])
        eye = torch.eye(n, dtype=w.dtype, device=w.device)
        for some in parts(len(out), 2 * h * n * (n + width)):
            minors = inverse.new_empty(len(out[some]), h, 2, n, n)
            self._write_minors(self.factors[0], minors, some)
            rest = eye - torch.bmm(pairs(inverse[some].flatten(0, 1)), pairs(minors.flatten(0, 1)))
            rest = (rest.view(-1, h, n, n) * w[some, :, None, None]).conj()
            weighted = torch.view_as_real(rest.resolve_conj()).movedim(4, 2).flatten(1, 3)  # Re and −Im, (s, 2hn, n)
            spread = node_rows(self.factors[0], self.items[0, some, :n], left=False).flatten(1, 3)
            out[some] = (self.diagonal.to_left @ torch.bmm(spread.mT, weighted)).abs().amax((1, 2))
        return out
