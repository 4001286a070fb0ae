"""Samples on one circle, in the shared form of the state.

All samples on a circle share its matrices Z_j. A sample with items Y stores an orthonormal basis q̂ of their rows, the sides U_j = Z_j q̂ᵀ
and V_j = q̂ Z_j, and the inverse of G_j = q̂ Z_j q̂ᵀ. For a proposal with row q,

    qᵀMq = Re Σ_j w_j [qᵀZ_jq − (qᵀU_j) G_j⁻¹ (V_jq)]        (docs/theory: M given Y)

so neither M nor any Z given Y is formed. In large products, complex numbers are stored as pairs of real ones, so that all of these are real
matrix products: one more item is q̂·[Z_j] for the whole batch at once, a block of proposals is sides·Qᵀ for each sample, and the inverse
is bordered. The CPU's form of the same step is :meth:`ndpp.samplers.exact.nodes.Nodes.condition`.

Monitors, on every item: tr M = number of missing items, where tr Z_j given Y = tr Z_j − tr(G_j⁻¹ V_jU_j); the surviving fraction;
acceptance probabilities within [0, 1]. On every sample, before its last item: M q̂ᵀ = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ndpp.samplers.exact import Exact
from ndpp.samplers.exact.monitors import Tolerances
from ndpp.samplers.gpu.circles import Circles, DeviceCircle
from ndpp.samplers.gpu.device_rows import DeviceRows
from ndpp.samplers.gpu.kernels.border import border
from ndpp.samplers.gpu.kernels.correction import correction
from ndpp.samplers.gpu.kernels.invert import invert
from ndpp.samplers.gpu.kernels.layout import even, pairs, tight
from ndpp.samplers.gpu.kernels.weighted_rows import weighted_rows
from ndpp.samplers.gpu.proposals import CHEAP_PROPOSALS, Streams, accept, first_round
from ndpp.samplers.gpu.samples import Samples


@dataclass(frozen=True, eq=False)
class Context:
    """What all groups of a call share."""

    sampler: Exact
    device_rows: DeviceRows
    circles: Circles
    streams: Streams
    tolerances: Tolerances


DROPPED_WEIGHT = 1e-10
"""Largest weight of a node that is not used, on entering a circle; they decrease from each to the next."""


class NodeWeights(NamedTuple):
    """Weights of the nodes (S, h), which sum to one, and the monitors (S,).

    These are |tr M − left|, the surviving fraction, and |w| of the last node before those that are dropped, zero if none are.
    """

    w: Tensor
    trace_error: Tensor
    fraction: Tensor
    edge: Tensor


class Group:
    """Samples with the same number of items, wanted and so far, on the same circle: ``n`` items of ``samples.wanted``.

    ``trusted`` (S,) are the samples that pass the monitors, ``alive`` (S,) those still in the group. The others keep their position and are
    ignored. ``docs/gpu-internals.md`` shows how the arrays lie in memory.
    """

    def __init__(
        self,
        context: Context,
        samples: Samples,
        n: int,
        circle: DeviceCircle,
        capacity: int,
        alive: Tensor | None = None,
    ) -> None:
        """Move samples with n items to a circle, with space for ``capacity`` items."""
        S, h = len(samples.numbers), circle.half
        self.context, self.samples, self.n, self.circle = context, samples, n, circle
        self.table = circle.table_for(S * CHEAP_PROPOSALS * max(1, capacity - n + 1))
        self.alive = torch.ones(S, dtype=torch.bool, device=samples.numbers.device) if alive is None else alive
        shape = S * h, 2, even(capacity), even(capacity)
        self.inverse = samples.basis.new_zeros(shape)  # G⁻¹, see `tight`; the column after an odd n must be finite
        self.inner = samples.basis.new_empty(shape)  # (VU)ᵀ = (q̂Z²q̂ᵀ)ᵀ
        # Sides (S, capacity, h, 4, r): Re Zq̂, Im Zq̂ (U), Re Zᵀq̂, Im Zᵀq̂ (V); log w (S, h); tr(G⁻¹VU) (S·h,), None without items.
        self.sides, self.log_w, self.removed_trace = self._enter(capacity)
        self.log_dropped = self._log_dropped()  # the largest log|w| of nodes that are not used (S,), on entering
        samples.counters.recentred.add_(1)
        self.node_weights, self.trusted = self._weigh()

    def _enter(self, capacity: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Build G⁻¹ and VU for the items chosen; return the sides, the weights' logarithms and tr(G⁻¹VU)."""
        basis, n, circle, inverse, inner = self.samples.basis, self.n, self.circle, self.inverse, self.inner
        S, h, r = len(basis), circle.half, basis.shape[2]
        power = len(self.context.sampler.given) + self.samples.wanted  # the coefficient of t^power is needed
        log_w = (circle.log_w - power * circle.log_t).expand(S, h)
        if not n:
            return basis.new_empty(S, capacity, h, 4, r), log_w, None
        # Rows after the n-th are overwritten later; computing them reserves their memory.
        sides = (basis[:, :capacity].reshape(S * capacity, r) @ circle.to_sides).view(S, capacity, h, 4, r)
        tight(inverse, n).view(S, h, 2, n, n).copy_(self._minors(sides[:, :n]).mT)
        log_det = invert(inverse, n)
        squares = (basis[:, :n].reshape(S * n, r) @ circle.square_columns).view(S, n, h, 2, r)
        inner.view(S, h, 2, *inner.shape[2:])[..., :n, :n] = self._minors(squares)
        removed_trace = (pairs(tight(inverse, n)) * pairs(inner[:, :, :n, :n])).sum((1, 2))
        return sides, log_w + log_det.view(S, h), removed_trace

    def _log_dropped(self) -> Tensor | None:
        """Return the largest log|w| (S,) of the nodes that are not used; None if all are."""
        basis, n, dropped = self.samples.basis, self.n, self.circle.dropped
        if dropped is None:
            return None
        S, d, r = len(basis), len(dropped.log_w), basis.shape[2]
        power = len(self.context.sampler.given) + self.samples.wanted
        log_w = (dropped.log_w - power * dropped.log_t).expand(S, d)
        if n:
            columns = (basis[:, :n].reshape(S * n, r) @ dropped.columns).view(S, n, d, 2, r)
            G = basis.new_zeros(S * d, 2, even(n), even(n))
            tight(G, n).view(S, d, 2, n, n).copy_(self._minors(columns))
            log_w = log_w + invert(G, n).view(S, d)
        return log_w.real.amax(1)

    def _minors(self, columns: Tensor) -> Tensor:
        """Return (q̂Zq̂ᵀ)ᵀ at each node, shape (S, h, 2, n, n), from the columns Zq̂ᵀ, which come first in (S, n, h, 2 or 4, r)."""
        S, n, h, p, r = columns.shape
        parts = torch.bmm(columns.view(S, n * h * p, r), self.samples.basis[:, :n].mT).view(S, n, h, p, n)
        return parts[:, :, :, :2].permute(0, 2, 3, 1, 4)

    def condition(self) -> None:
        """Condition on the newest item: border U, V, G⁻¹ and VU, and update weights and monitors."""
        S, _, h, _, r = self.sides.shape
        new, basis = self.samples.basis[:, self.n - 1], self.samples.basis[:, : self.n].mT
        side = torch.mm(new, self.circle.to_sides, out=self.sides[:, self.n - 1].flatten(1))
        squares = torch.mm(new, self.circle.to_squares)
        parts = [torch.bmm(four.view(S, h * 4, r), basis).view(S * h, 4, self.n) for four in (side, squares)]
        pivots, self.removed_trace = border(self.inverse, self.inner, *parts)
        self.log_w = self.log_w + torch.log(pivots).view(S, h)
        self.node_weights, self.trusted = self._weigh()

    def _weigh(self) -> tuple[NodeWeights, Tensor]:
        """Return the node weights and which samples pass the monitors; record the monitors of these."""
        largest = self.log_w.real.amax(1)
        w = torch.exp(self.log_w - largest[:, None])
        total = w.real.sum(1)
        fraction = total / w.abs().sum(1)
        w = w / total[:, None]
        trace = self.circle.trace.expand_as(w)
        if self.removed_trace is not None:
            trace = trace - self.removed_trace.view(w.shape)
        left = self.samples.wanted - self.n
        error = ((w * trace).real.sum(1) - left).abs()
        edge = torch.zeros_like(error) if self.circle.dropped is None else w[:, -1].abs()
        trusted = self.context.tolerances.accepts(error, fraction) & (edge <= self.context.tolerances.trace)
        if self.log_dropped is not None:
            trusted &= torch.exp(self.log_dropped - largest) <= DROPPED_WEIGHT * total
            self.log_dropped = None
        if self.n and left == 1:
            trusted &= self._chosen_excess(w) <= self.context.tolerances.chosen
        trusted &= self.alive
        counters = self.samples.counters
        torch.maximum(counters.trace_error, torch.where(trusted, error, 0.0), out=counters.trace_error)
        torch.minimum(counters.fraction, torch.where(trusted, fraction, 1.0), out=counters.fraction)
        return NodeWeights(w, error, fraction, edge), trusted

    def _chosen_excess(self, w: Tensor) -> Tensor:
        """Return the largest entry of M q̂ᵀ (S,), which is zero for items already chosen in exact arithmetic."""
        n, S, h, sides = self.n, len(self.sides), self.sides.shape[2], self.sides[:, : self.n].flatten(1, 3)
        products = torch.bmm(sides, self.samples.basis[:, :n].mT).view(S, n, h, 4, n)[:, :, :, 2:]
        right = pairs(products.permute(0, 2, 3, 1, 4).reshape(S * h, 2, n, n))
        rest = torch.bmm(pairs(tight(self.inverse, n)), right)  # G⁻¹ V q̂ᵀ, which should be the identity
        rest = (torch.eye(n, dtype=rest.dtype, device=rest.device) - rest) * w.view(-1, 1, 1)
        factors = sides.new_zeros(S, n, h, 4, n)  # zero for V, so that the sides are read without gathering
        factors[:, :, :, 0], factors[:, :, :, 1] = (
            part.view(S, h, n, n).transpose(1, 2) for part in (rest.real, -rest.imag)
        )
        return torch.bmm(factors.view(S, -1, n).mT, sides).abs().amax((1, 2))

    def remove(self, which: Tensor) -> list[Samples]:
        """Remove the samples in ``which`` (S,) that are still in the group; return them as a list of one, or an empty one."""
        leaving, self.alive = self.alive & which, self.alive & ~which
        return [self.samples.take(leaving)] if leaving.any() else []

    def draw(self) -> Tensor:
        """Draw and add the next item of all samples alive; return which met a probability outside [0, 1] (S,) and drew none."""
        samples, context = self.samples, self.context
        count = first_round(samples.basis.shape[2], samples.wanted - self.n)
        drawn = accept(
            context.streams, context.device_rows.table, samples.numbers, self.alive.nonzero()[:, 0], self.n, count,
            context.tolerances.chance, self.probabilities,
        )  # fmt: skip
        samples.counters.proposals.add_(drawn.proposals)
        self._add(drawn.rows)
        return drawn.out_of_range

    def probabilities(self, rows: Tensor, which: Tensor | None) -> Tensor:
        """Return qᵀMq of proposals (S, c), for all samples or for those at positions ``which``."""
        (S, c), (_, _, h, _, r) = rows.shape, self.sides.shape
        w = self.node_weights.w if which is None else self.node_weights.w[which]
        w_parts = torch.stack([w.real, -w.imag], 2).view(S, 2 * h)
        if self.n == 0 and self.table is not None:
            return weighted_rows(self.table, rows, w_parts)
        q, minus = self.context.device_rows.take(rows), None
        if self.n:
            sides, inverse = self.sides[:, : self.n], self.inverse
            if which is not None:
                sides, inverse = sides[which], inverse.view(-1, h, *inverse.shape[1:])[which].flatten(0, 1)
            minus = correction(torch.bmm(sides.view(S, -1, r), q.mT).view(S, self.n, h, 4, c), inverse, w)
        if self.table is not None:
            return weighted_rows(self.table, rows, w_parts, minus)
        forms = self.circle.forms(q.view(S * c, r)).view(S, c, 2 * h)
        own = torch.bmm(forms, w_parts[:, :, None])[:, :, 0]
        return own if minus is None else own - minus.sum(1)

    def _add(self, chosen: Tensor) -> None:
        """Add one row (S,) to each sample, and to its basis."""
        q, basis = self.context.device_rows.take(chosen)[:, None], self.samples.basis[:, : self.n]
        for _ in range(2):  # twice is enough [Giraud et al., Numer. Math. 2005]
            q = q / torch.linalg.vector_norm(q, dim=2, keepdim=True)
            q = q - torch.bmm(torch.bmm(q, basis.mT), basis)
        self.samples.basis[:, self.n] = (q / torch.linalg.vector_norm(q, dim=2, keepdim=True))[:, 0]
        self.samples.rows[:, self.n] = chosen
        self.n += 1
