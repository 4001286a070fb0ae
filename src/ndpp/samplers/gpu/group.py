"""Samples on one circle, in the shared form of the state.

All samples on a circle share its matrices Z_j. A sample with items Y stores an orthonormal basis q̂ of their rows, the sides U_j = Z_j q̂ᵀ
and V_j = q̂ Z_j, and the inverse of G_j = q̂ Z_j q̂ᵀ. For a proposal with row q,

    qᵀMq = Re Σ_j w_j [qᵀZ_jq − (qᵀU_j) G_j⁻¹ (V_jq)]        (docs/theory: M given Y)

so neither M nor any Z given Y is formed. Samples of many items do not store their sides, which would be most of their memory, but the
rows of q̂ in coordinates in which all Z_j are diagonal (:mod:`.diagonal`). In large products, complex numbers are stored as pairs of real ones, so that all of these are real
matrix products: one more item is q̂·[Z_j] for the whole batch at once, a block of proposals is sides·Qᵀ for each sample, and the inverse
is bordered. The CPU's form of the same step is :meth:`ndpp.samplers.exact.nodes.Nodes.condition`.

Monitors, on every item: tr M = number of missing items, where tr Z_j given Y = tr Z_j − tr(G_j⁻¹ V_jU_j); the surviving fraction;
acceptance probabilities within [0, 1]. On every sample, before its last item: M q̂ᵀ = 0.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from ndpp.samplers.gpu.kernels.node_forms import node_forms
from ndpp.samplers.gpu.kernels.node_products import node_products
from ndpp.samplers.gpu.kernels.weighted_rows import weighted_rows
from ndpp.samplers.gpu.proposals import CHEAP_PROPOSALS, Round, Streams, accept, first_round, round_of_survivors
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


BLOCK = 2**29
"""Largest number of entries of an intermediate result with Zq̂ᵀ of every item; samples are processed some at a time."""


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
        # Sides (S, capacity, h, 4, r): Re Zq̂, Im Zq̂ (U), Re Zᵀq̂, Im Zᵀq̂ (V), and (VU)ᵀ = (q̂Z²q̂ᵀ)ᵀ; or the items' r and l.
        self.sides: Tensor | None = None
        self.inner: Tensor | None = None
        self.items: Tensor | None = None  # (2, S, capacity, 2K)
        self._begin_sides(capacity)
        self.log_w, self.removed_trace = self._enter()  # log w (S, h); tr(G⁻¹VU) (S·h,), None without items
        self.log_dropped = self._log_dropped()  # the largest log|w| of nodes that are not used (S,), on entering
        samples.counters.recentred.add_(1)
        self.node_weights, self.trusted = self._weigh()

    def _begin_sides(self, capacity: int) -> None:
        basis, (S, _, r), circle = self.samples.basis, self.samples.basis.shape, self.circle
        diagonal = self.context.circles.diagonal
        if circle.factors is not None and diagonal is not None:
            self.items = basis.new_empty(2, S, capacity, diagonal.to_left.shape[1])
            for part, to in zip(self.items, (diagonal.to_right, diagonal.to_left)):
                part[:, : self.n] = basis[:, : self.n] @ to
            return
        self.inner = torch.empty_like(self.inverse)
        if self.n:
            # Rows after the n-th are overwritten later; computing them reserves their memory.
            every = basis[:, :capacity].reshape(S * capacity, r) @ circle.to_sides
            self.sides = every.view(S, capacity, circle.half, 4, r)
        else:
            self.sides = basis.new_empty(S, capacity, circle.half, 4, r)

    def _enter(self) -> tuple[Tensor, Tensor | None]:
        """Build G⁻¹ and VU for the items chosen; return the weights' logarithms and tr(G⁻¹VU)."""
        n, circle, inverse, inner = self.n, self.circle, self.inverse, self.inner
        S, h = len(self.alive), circle.half
        power = len(self.context.sampler.given) + self.samples.wanted  # the coefficient of t^power is needed
        log_w = (circle.log_w - power * circle.log_t).expand(S, h)
        if not n:
            return log_w, None
        G = tight(inverse, n).view(S, h, 2, n, n)
        if self.sides is None:
            for some, minors in self._minors_of(circle.columns, n):
                G[some] = minors.mT
        else:
            G.copy_(self._minors(self.samples.basis, self.sides[:, :n]).mT)
        log_det, removed = invert(inverse, n), torch.empty_like(log_w)
        for some, squares in self._minors_of(circle.square_columns, n):
            if inner is not None:
                inner.view(S, h, 2, *inner.shape[2:])[some, ..., :n, :n] = squares
            removed[some] = (torch.complex(*G[some].unbind(2)) * torch.complex(*squares.unbind(2))).sum((2, 3))
        return log_w + log_det.view(S, h), removed.view(-1)

    def _log_dropped(self) -> Tensor | None:
        """Return the largest log|w| (S,) of the nodes that are not used; None if all are."""
        basis, n, dropped = self.samples.basis, self.n, self.circle.dropped
        if dropped is None:
            return None
        S, d = len(basis), len(dropped.log_w)
        power = len(self.context.sampler.given) + self.samples.wanted
        log_w = (dropped.log_w - power * dropped.log_t).expand(S, d)
        if n:
            G = basis.new_zeros(S * d, 2, even(n), even(n))
            for some, minors in self._minors_of(dropped.columns, n):
                tight(G, n).view(S, d, 2, n, n)[some] = minors
            log_w = log_w + invert(G, n).view(S, d)
        return log_w.real.amax(1)

    def _minors_of(self, columns: Tensor, n: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield some samples at a time, and (q̂Zq̂ᵀ)ᵀ of these, (s, h, 2, n, n), where ``q @ columns`` is Re Zq, Im Zq at each node."""
        basis, r = self.samples.basis[:, :n], self.samples.basis.shape[2]
        for some in self._parts(n * columns.shape[1]):
            products = basis[some].reshape(-1, r) @ columns
            yield some, self._minors(basis[some], products.view(-1, n, columns.shape[1] // (2 * r), 2, r))

    def _parts(self, entries: int) -> list[slice]:
        """Return the samples in parts with at most ``BLOCK`` entries, if each sample has so many."""
        S, step = len(self.alive), max(1, BLOCK // max(1, entries))
        return [slice(first, first + step) for first in range(0, S, step)]

    @staticmethod
    def _minors(basis: Tensor, columns: Tensor) -> Tensor:
        """Return (q̂Zq̂ᵀ)ᵀ at each node, shape (S, h, 2, n, n), from the columns Zq̂ᵀ, which come first in (S, n, h, 2 or 4, r)."""
        S, n, h, p, r = columns.shape
        parts = torch.bmm(columns.view(S, n * h * p, r), basis[:, :n].mT).view(S, n, h, p, n)
        return parts[:, :, :, :2].permute(0, 2, 3, 1, 4)

    def condition(self) -> None:
        """Condition on the newest item: border U, V, G⁻¹ and VU, and update weights and monitors."""
        new, basis = self.samples.basis[:, self.n - 1], self.samples.basis[:, : self.n].mT
        (S, r), h, diagonal = new.shape, self.circle.half, self.context.circles.diagonal
        to = None if self.sides is None else self.sides[:, self.n - 1].flatten(1)
        side = torch.mm(new, self.circle.to_sides, out=to)
        parts = torch.bmm(side.view(S, h * 4, r), basis).view(S * h, 4, self.n)
        if self.items is not None and diagonal is not None:
            self.items[0, :, self.n - 1], self.items[1, :, self.n - 1] = new @ diagonal.to_right, new @ diagonal.to_left
            pivots, _ = border(self.inverse, None, parts, None)
            self.removed_trace = self._removed_by_newest(pivots) + (
                0 if self.removed_trace is None else self.removed_trace
            )
        else:
            squares = torch.bmm(torch.mm(new, self.circle.to_squares).view(S, h * 4, r), basis).view(S * h, 4, self.n)
            pivots, self.removed_trace = border(self.inverse, self.inner, parts, squares)
        self.log_w = self.log_w + torch.log(pivots).view(S, h)
        self.node_weights, self.trusted = self._weigh()

    def _removed_by_newest(self, pivots: Tensor) -> Tensor:
        """Return the decrease of tr Z given Y (S·h,) by the newest item, qᵀZ²q/π with Z given the others.

        The last row and column of G⁻¹ are combinations of items that leave qᵀZ/π and Zq/π.
        """
        assert self.items is not None
        assert self.circle.factors is not None
        n, h = self.n, self.circle.half
        G = tight(self.inverse, n).unflatten(0, (-1, h))
        left, right = (
            torch.bmm(part.reshape(-1, 2 * h, n), items[:, :n]).unflatten(1, (h, 2))
            for part, items in ((G[..., n - 1, :], self.items[1]), (G[..., n - 1], self.items[0]))
        )
        return pivots * node_forms(self.circle.factors[1], left, right).view(-1)

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
        n, h, r = self.n, self.circle.half, self.samples.basis.shape[2]
        G, out = tight(self.inverse, n).unflatten(0, (-1, h)), torch.empty_like(w.real[:, 0])
        for some in self._parts(n * h * 4 * r):
            basis = self.samples.basis[some, :n]
            every = basis.reshape(-1, r) @ self.circle.to_sides if self.sides is None else self.sides[some, :n]
            sides = every.reshape(-1, n * h * 4, r)
            products = torch.bmm(sides, basis.mT).view(-1, n, h, 4, n)[:, :, :, 2:]
            right = pairs(products.permute(0, 2, 3, 1, 4).reshape(-1, 2, n, n))
            rest = torch.bmm(pairs(G[some].flatten(0, 1)), right)  # G⁻¹ V q̂ᵀ, which should be the identity
            rest = (torch.eye(n, dtype=rest.dtype, device=rest.device) - rest) * w[some].reshape(-1, 1, 1)
            factors = sides.new_zeros(
                len(basis), n, h, 4, n
            )  # zero for V, so that the sides are read without gathering
            factors[:, :, :, 0], factors[:, :, :, 1] = (
                part.view(-1, h, n, n).transpose(1, 2) for part in (rest.real, -rest.imag)
            )
            out[some] = torch.bmm(factors.view(-1, n * h * 4, n).mT, sides).abs().amax((1, 2))
        return out

    def remove(self, which: Tensor) -> list[Samples]:
        """Remove the samples in ``which`` (S,) that are still in the group; return them as a list of one, or an empty one."""
        leaving, self.alive = self.alive & which, self.alive & ~which
        return [self.samples.take(leaving)] if leaving.any() else []

    def draw(self) -> Tensor:
        """Draw and add the next item of all samples alive; return which met a probability outside [0, 1] (S,) and drew none."""
        samples, context, left, rank = (
            self.samples,
            self.context,
            self.samples.wanted - self.n,
            self.samples.basis.shape[2],
        )
        turn = Round(first_round(rank, left)) if self.items is None else round_of_survivors(rank, self.n, left)
        drawn = accept(
            context.streams, context.device_rows.table, samples.numbers, self.alive.nonzero()[:, 0], self.n, turn,
            context.tolerances.chance, self.probabilities, bounds=self.bounds,
        )  # fmt: skip
        samples.counters.proposals.add_(drawn.proposals)
        self._add(drawn.rows)
        return drawn.out_of_range

    def bounds(self, rows: Tensor, which: Tensor | None) -> Tensor:
        """Return ‖q − q̂ᵀq̂q‖² of proposals (P, c), which qᵀMq cannot exceed, for all samples or for those at ``which``."""
        basis, device_rows = self.samples.basis[:, : self.n], self.context.device_rows
        explained = torch.bmm(basis if which is None else basis[which], device_rows.take(rows).mT)
        return device_rows.table.leverage[rows] - explained.square().sum(1)

    def probabilities(self, rows: Tensor, which: Tensor | None) -> Tensor:
        """Return qᵀMq of proposals (P, c), for all samples or for those at positions ``which``."""
        (P, c), h, r = rows.shape, self.circle.half, self.samples.basis.shape[2]
        w = self.node_weights.w if which is None else self.node_weights.w[which]
        w_parts = torch.stack([w.real, -w.imag], 2).view(P, 2 * h)
        if self.n == 0 and self.table is not None:
            return weighted_rows(self.table, rows, w_parts)
        minus = correction(self._products(rows, which), self.inverse, w, self._places(which)) if self.n else None
        if self.table is not None:
            return weighted_rows(self.table, rows, w_parts, minus)
        forms = self.circle.forms(self.context.device_rows.take(rows).view(P * c, r)).view(P, c, 2 * h)
        own = torch.bmm(forms, w_parts[:, :, None])[:, :, 0]
        return own if minus is None else own - minus.sum(1)

    def _products(self, rows: Tensor, which: Tensor | None) -> Tensor:
        """Return Re qᵀU, Im qᵀU, Re Vq, Im Vq of proposals (P, c), shape (P, n, h, 4, c)."""
        (P, c), n, h, circles = rows.shape, self.n, self.circle.half, self.context.circles
        if self.items is not None and self.circle.factors is not None and circles.diagonal is not None:
            table = circles.diagonal.table
            return node_products(self.circle.factors[0], table, rows, self._places(which), self.items, n)
        assert self.sides is not None
        sides = self.sides[:, :n] if which is None else self.sides[:, :n][which]
        q = self.context.device_rows.take(rows)
        return torch.bmm(sides.view(P, n * h * 4, -1), q.mT).view(P, n, h, 4, c)

    def _places(self, which: Tensor | None) -> Tensor:
        return torch.arange(len(self.alive), device=self.alive.device) if which is None else which

    def _add(self, chosen: Tensor) -> None:
        """Add one row (S,) to each sample, and to its basis."""
        q, basis = self.context.device_rows.take(chosen)[:, None], self.samples.basis[:, : self.n]
        for _ in range(2):  # twice is enough [Giraud et al., Numer. Math. 2005]
            q = q / torch.linalg.vector_norm(q, dim=2, keepdim=True)
            q = q - torch.bmm(torch.bmm(q, basis.mT), basis)
        self.samples.basis[:, self.n] = (q / torch.linalg.vector_norm(q, dim=2, keepdim=True))[:, 0]
        self.samples.rows[:, self.n] = chosen
        self.n += 1
