"""The items of samples at the nodes of a circle, by their rows in coordinates in which all Z_j are diagonal (:mod:`.diagonal`).

A product with Z_j costs O(r) in these coordinates, so samples need not store their sides, and only proposals that pass cheaper bounds
(:mod:`.ceiling`) are judged at all nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ndpp.samplers.gpu.ceiling import MARGIN, Ceiling
from ndpp.samplers.gpu.circles import DeviceCircle
from ndpp.samplers.gpu.diagonal import Diagonal
from ndpp.samplers.gpu.kernels.border import border
from ndpp.samplers.gpu.kernels.correction import correction
from ndpp.samplers.gpu.kernels.invert import invert
from ndpp.samplers.gpu.kernels.layout import even, pairs, swapped, tight
from ndpp.samplers.gpu.kernels.node_forms import node_forms
from ndpp.samplers.gpu.kernels.node_rows import node_rows

BLOCK = 2**29
"""Largest number of entries of an intermediate result for all items; samples are processed some at a time."""


class Coordinates:
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
        G = self._tight(n)
        for some, minors in self._minors(self.factors[0], n):
            G[some] = minors
        log_det = invert(self.inverse, n).view(S, h)
        self.removed = torch.empty_like(log_det)
        for some, squares in self._minors(self.factors[1], n):
            self.removed[some] = (torch.complex(*G[some].unbind(2)) * torch.complex(*squares.mT.unbind(2))).sum((2, 3))
        return log_det, self.removed

    def _tight(self, n: int) -> Tensor:
        """Return G⁻¹ (S, h, 2, n, n)."""
        return tight(self.inverse, n).view(-1, self.circle.half, 2, n, n)

    def log_det_dropped(self, n: int) -> Tensor:
        """Return log det G (S, d) at the nodes that are not used."""
        dropped, S = self.circle.dropped, len(self.basis)
        assert dropped is not None
        assert dropped.factors is not None
        d = len(dropped.log_w)
        G = self.basis.new_zeros(S * d, 2, even(n), even(n))
        for some, minors in self._minors(dropped.factors[0], n):
            tight(G, n).view(S, d, 2, n, n)[some] = minors
        return invert(G, n).view(S, d)

    def _minors(self, factors: Tensor, n: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield some samples at a time, and q̂Zq̂ᵀ of these at each node, (s, h, 2, n, n)."""
        h, width = factors.shape[1:]
        for some in self._parts(n * h * 4 * width):
            right, left = self.items[:, some, :n]
            columns = node_rows(factors, right, left=False).flatten(1, 3)
            yield some, torch.bmm(left, columns.mT).view(-1, n, h, 2, n).permute(0, 2, 3, 1, 4)

    def _parts(self, entries: int) -> list[slice]:
        """Return the samples in parts with at most ``BLOCK`` entries, if each sample has so many."""
        S, step = len(self.basis), max(1, BLOCK // max(1, entries))
        return [slice(first, first + step) for first in range(0, S, step)]

    def add(self, n: int) -> tuple[Tensor, Tensor]:
        """Border G⁻¹ with the n-th item; return the pivots and tr(G⁻¹q̂Z²q̂ᵀ), both (S, h)."""
        new, S, h = self.basis[:, n - 1], len(self.basis), self.circle.half
        for part, to in zip(self.items, (self.diagonal.to_right, self.diagonal.to_left)):
            part[:, n - 1] = new @ to
        right, left = self.items[:, :, n - 1 : n]
        x, y = self._products(left, right, None, n)
        parts = torch.cat([y, x], 3)[..., 0].permute(0, 2, 3, 1).reshape(S * h, 4, n)
        pivots, _ = border(self.inverse, None, parts, None)
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

    def _products(self, left: Tensor, right: Tensor, which: Tensor | None, n: int) -> tuple[Tensor, Tensor]:
        """Return x = qᵀZq̂ᵀ and y = q̂Zq, each (P, n, h, 2, c), of rows l and r (P, c, 2K) of all samples or of those at ``which``."""
        (P, c, _), h = left.shape, self.circle.half
        items = self.items[:, :, :n] if which is None else self.items[:, :, :n][:, which]
        x, y = (
            torch.bmm(some, node_rows(self.factors[0], rows, left=is_left).flatten(1, 3).mT).view(P, n, h, 2, c)
            for some, rows, is_left in ((items[0], left, True), (items[1], right, False))
        )
        return x, y

    def correction(self, q: Tensor, rows: Tensor, w: Tensor, which: Tensor, n: int) -> Tensor:
        """Return Re w_j (qᵀU_j) G_j⁻¹ (V_jq) at each node (P, h, c), of proposals with rows q (P, c, r) of the samples at ``which``."""
        left, right = self.diagonal.table[rows].unbind(2)
        x, y = self._products(left, right, None if len(which) == len(self.basis) else which, n)
        return correction(x, y, self.inverse, w, which)

    def bounds(self, q: Tensor, rows: Tensor, factor: Tensor | None, which: Tensor, n: int) -> Tensor:
        """Return what qᵀMq of proposals (P, c) cannot exceed: ‖q − q̂ᵀq̂q‖² and, with its ``factor`` (P,), the ceiling."""
        everyone = len(which) == len(self.basis)
        basis, leverage = self.basis[:, :n], self.circle.device_rows.table.leverage[rows]
        out = leverage - torch.bmm(basis if everyone else basis[which], q.mT).square().sum(1)
        if factor is not None and self.ceiling is not None:
            left, right = self.diagonal.table[rows].unbind(2)
            forms = self.ceiling.forms(rows, left, right, None if everyone else which)
            ceiling = factor[:, None] * (forms + MARGIN * leverage)
            out = torch.where(ceiling < out, ceiling, out)  # a NaN bounds nothing
        return out + MARGIN * leverage

    def chosen_excess(self, w: Tensor, n: int) -> Tensor:
        """Return the largest entry of M q̂ᵀ (S,), which is zero for items already chosen in exact arithmetic."""
        h, inverse, out = self.circle.half, self._tight(n), torch.empty_like(w.real[:, 0])
        g, k = (torch.complex(*self.factors[0, i : i + 2])[:, :, None] for i in (0, 2))
        eye = torch.eye(n, dtype=w.dtype, device=w.device)
        for some, minors in self._minors(self.factors[0], n):
            rest = eye - torch.bmm(pairs(inverse[some].flatten(0, 1)), pairs(minors.flatten(0, 1)))
            rest = (rest.view(-1, h, n, n) * w[some, :, None, None]).transpose(1, 2).flatten(2)  # (s, n, h·n)
            parts = (torch.bmm(self.items[0, some, :n].mT, part) for part in (rest.real, rest.imag))
            spread = torch.complex(
                *(part.view(*part.shape[:2], h, n).transpose(1, 2) for part in parts)
            )  # (s, h, 2K, n)
            columns = (spread * g - swapped(spread.mT).mT * k).real.sum(1)
            out[some] = (self.diagonal.to_left @ columns).abs().amax((1, 2))
        return out
