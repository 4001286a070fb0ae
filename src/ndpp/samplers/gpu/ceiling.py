"""Upper bounds of qᵀMq from one real node, so that few proposals need all nodes of a circle.

Let g(t) = Σ_S t^|S| det(L_S), over the sets S that contain the items Y and a further item a. Its coefficients are not negative, so the one
of t^k is at most t⁻ᵏ g(t), for any t > 0. Divided by the coefficient of t^k for the sets that contain Y, which is what the weights of the
circle sum to, this says

    q_aᵀMq_a ≤ C q_aᵀZq_a,        C = 1 / P(|S| = k | Y ⊆ S),

with Z given Y at the real node t, and P the distribution with odds t. If t is the radius of the circle, k is about the mean of |S|, and C
is about 2.5 standard deviations of |S|. The other bound is ‖q − q̂ᵀq̂q‖² (Theorem 5 in docs/theory); early on it is the better one.

A proposal is rejected if a uniform exceeds qᵀMq/‖q‖²; one that exceeds the bound is rejected without computing qᵀMq, so no draw changes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ndpp.samplers.gpu.kernels.invert import invert
from ndpp.samplers.gpu.kernels.layout import even, swapped, tight

MARGIN = 1e-9
"""What rounding may add to a bound, relative to the leverage: far above it, and far below what would let more proposals pass."""


class Peak(NamedTuple):
    """The real node of a rung: factors of Z (2K,), log det(I + tB) (1,), the rung, and qᵀZq of every item (n,)."""

    g: Tensor
    h: Tensor
    log_det: Tensor
    rung: int
    forms: Tensor


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
