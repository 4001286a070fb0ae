"""Many samples of the exact sampler side by side, in the shared form of the state.

All samples on a circle share its matrices Z_j. A sample with items Y carries an orthonormal basis q̂ of their rows, the sides U_j = Z_j q̂ᵀ
and V_j = q̂ Z_j, and the inverse of G_j = q̂ Z_j q̂ᵀ, so that for a candidate with row q

    qᵀMq = Re Σ_j w_j [qᵀZ_jq − (qᵀU_j) G_j⁻¹ (V_jq)]        (docs/theory: M of the law given Y)

without M or any Z given Y being formed. Complex numbers are kept as pairs of real ones where products are large, so that all of these
are real matrix products: one item more is q̂·[Z_j] for the whole batch at once, a block of candidates is F·Qᵀ for each sample, and the
inverse is bordered. Moving to another circle rebuilds U, V and G⁻¹ from the basis; circles with fewer nodes suffice as a sample fills.

Monitors, on every item: tr M = items still to come, with tr Z_j given Y = tr Z_j − tr(G_j⁻¹ V_jU_j); the surviving fraction; acceptance
probabilities within [0, 1]. On every sample, before its last item: M q̂ᵀ = 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ndpp.samplers.exact.monitors import Tolerances
from ndpp.samplers.gpu import _fused
from ndpp.samplers.gpu._accept import CHEAP, accept, candidates
from ndpp.samplers.gpu._catalogue import Catalogue
from ndpp.samplers.gpu._circles import Circle
from ndpp.samplers.gpu._streams import Streams


class Counters(NamedTuple):
    """One entry a sample: candidates looked at, circles used, and the worst the monitors have shown."""

    proposals: Tensor
    recentred: Tensor
    trace_error: Tensor
    fraction: Tensor

    @classmethod
    def zero(cls, count: int, device: torch.device) -> Counters:
        """Return the counters of samples not begun."""
        whole = torch.zeros(2, count, dtype=torch.int64, device=device)
        real = torch.zeros(2, count, dtype=torch.float64, device=device)
        return cls(whole[0], whole[1], real[0], real[1] + 1)

    def take(self, which: Tensor) -> Counters:
        """Return the counters of some of the samples."""
        return Counters(*(part[which] for part in self))


class Seeds(NamedTuple):
    """What a group is made from: numbers of the samples, rows chosen (S, wanted), their basis q̂ (S, wanted, r), and counters."""

    samples: Tensor
    rows: Tensor
    q: Tensor
    counters: Counters

    def take(self, which: Tensor) -> Seeds:
        """Return some of the samples."""
        return Seeds(self.samples[which], self.rows[which], self.q[which], self.counters.take(which))

    @classmethod
    def join(cls, parts: list[Seeds]) -> Seeds:
        """Return all of them as one."""
        if len(parts) == 1:
            return parts[0]
        samples, rows, q = (torch.cat([part[i] for part in parts]) for i in range(3))
        return cls(samples, rows, q, Counters(*map(torch.cat, zip(*(part.counters for part in parts)))))


class Group:
    """Samples that want the same number of items, have the same number of them, and are on the same circle."""

    def __init__(self, catalogue: Catalogue, streams: Streams, tolerances: Tolerances, seeds: Seeds, n: int) -> None:
        self.catalogue, self.streams, self.tolerances = catalogue, streams, tolerances
        self.seeds, self.n = seeds, n
        self.wanted = seeds.rows.shape[1]
        self.alive = torch.ones(len(seeds.samples), dtype=torch.bool, device=catalogue.device)

    # -- the state on a circle -------------------------------------------------------------------------------------------------

    def seat(self, circle: Circle, power: int, room: int) -> None:
        """Go to a circle: build U, V, G⁻¹ and VU for the items chosen, with room for ``room`` items; w has t to the ``power``-th."""
        q, n = self.seeds.q, self.n
        S, h, r = len(q), circle.half, q.shape[2]
        self.circle, self.table = circle, circle.table_for(S * CHEAP * max(1, room - n + 1))
        even = room + room % 2  # kernels read 16 bytes at a time, and a column more where n is odd
        self.inverse, self.inner = q.new_zeros(S * h, 2, even, even), q.new_empty(S * h, 2, even, even)
        self.log_w = (circle.log_w - power * circle.log_t).expand(S, h)
        if n:
            # Rows of q behind the n-th are zero: the product also makes room for the items to come.
            F = (q[:, :room].reshape(S * room, r) @ circle.sides).view(S, room, h, 4, r)
            _fused.tight(self.inverse, n).unflatten(0, (S, h)).copy_(self._minors(F[:, :n]).mT)
            log_det = _fused.invert(self.inverse, n)
            self.F = F
            squares = (q[:, :n].reshape(S * n, r) @ circle.square_columns).view(S, n, h, 2, r)
            self.inner.view(S, h, 2, even, even)[..., :n, :n] = self._minors(squares)
            inverse, inner = _fused.tight(self.inverse, n), self.inner[:, :, :n, :n]
            self.lost = (_fused.pairs(inverse) * _fused.pairs(inner)).sum((1, 2))
            self.log_w = self.log_w + log_det.view(S, h)
        else:
            self.F = q.new_empty(S, room, h, 4, r)
        self.seeds.counters.recentred.add_(1)

    def _minors(self, columns: Tensor) -> Tensor:
        """Return (q̂Zq̂ᵀ)ᵀ at each node, shape (S, h, 2, n, n), from the columns Zq̂ᵀ, which come first in (S, n, h, 2 or 4, r)."""
        S, n, h, p, r = columns.shape
        parts = torch.bmm(columns.view(S, n * h * p, r), self.seeds.q[:, :n].mT).view(S, n, h, p, n)
        return parts[:, :, :, :2].permute(0, 2, 3, 1, 4)

    def condition(self) -> None:
        """Take the newest item into U, V, G⁻¹ and VU: the inverse is bordered."""
        S, _, h, _, r = self.F.shape
        new, basis = self.seeds.q[:, self.n - 1], self.seeds.q[:, : self.n].mT
        side = torch.mm(new, self.circle.sides, out=self.F[:, self.n - 1].flatten(1))
        squares = torch.mm(new, self.circle.squares)
        parts = [torch.bmm(four.view(S, h * 4, r), basis).view(S * h, 4, self.n) for four in (side, squares)]
        pivots, self.lost = _fused.border(self.inverse, self.inner, *parts)
        self.log_w = self.log_w + torch.log(pivots).view(S, h)

    def weigh(self) -> Tensor:
        """Set the weights of the nodes; return which samples the monitors trust, and note what they showed."""
        w = torch.exp(self.log_w - self.log_w.real.amax(1, keepdim=True))
        total = w.real.sum(1)
        fraction = total / w.abs().sum(1)
        self.w = w / total[:, None]
        trace = self.circle.trace.expand_as(self.w)
        if self.n:
            trace = trace - self.lost.view(self.w.shape)
        trace = (self.w * trace).real.sum(1)
        error = (trace - (self.wanted - self.n)).abs()
        self.error, self.fraction = error, fraction
        good = self.tolerances.accepts(error, fraction)
        if self.n and self.n == self.wanted - 1:
            good &= self._chosen_excess() <= self.tolerances.chosen
        good &= self.alive
        counters = self.seeds.counters
        torch.maximum(counters.trace_error, torch.where(good, error, 0.0), out=counters.trace_error)
        torch.minimum(counters.fraction, torch.where(good, fraction, 1.0), out=counters.fraction)
        return good

    def _chosen_excess(self) -> Tensor:
        """Return the largest entry of M q̂ᵀ, which is zero for items already chosen."""
        n, S, h, F = self.n, len(self.F), self.F.shape[2], self.F[:, : self.n].flatten(1, 3)
        products = torch.bmm(F, self.seeds.q[:, :n].mT).view(S, n, h, 4, n)[:, :, :, 2:]
        right = _fused.pairs(products.permute(0, 2, 3, 1, 4).reshape(S * h, 2, n, n))
        rest = torch.bmm(_fused.pairs(_fused.tight(self.inverse, n)), right)  # G⁻¹ V q̂ᵀ, which should be the identity
        rest = (torch.eye(n, dtype=rest.dtype, device=rest.device) - rest) * self.w.view(-1, 1, 1)
        weights = F.new_zeros(S, n, h, 4, n)  # of V none: F is read as it is
        weights[:, :, :, 0], weights[:, :, :, 1] = (
            part.view(S, h, n, n).transpose(1, 2) for part in (rest.real, -rest.imag)
        )
        return torch.bmm(weights.view(S, -1, n).mT, F).abs().amax((1, 2))

    # -- drawing ---------------------------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Draw the next item of every sample that is alive, and add it."""
        seeds = self.seeds
        count = candidates(seeds.q.shape[2], self.wanted - self.n)
        drawn = accept(
            self.streams, self.catalogue.table, seeds.samples, self.alive.nonzero()[:, 0], self.n, count,
            self.tolerances.chance, self.values,
        )  # fmt: skip
        seeds.counters.proposals.add_(drawn.proposals)
        self.alive = self.alive & ~drawn.bad
        self.add(drawn.rows)

    def values(self, rows: Tensor, which: Tensor | None) -> Tensor:
        """Return qᵀMq for candidates (S, c) of all samples, or of some of them."""
        (S, c), (_, _, h, _, r) = rows.shape, self.F.shape
        w = self.w if which is None else self.w[which]
        weights = torch.stack([w.real, -w.imag], 2).view(S, 2 * h)
        if self.n == 0 and self.table is not None:
            return _fused.weighed_rows(self.table, rows, weights)
        q, less = self.catalogue.rows(rows), None
        if self.n:
            F, inverse = self.F[:, : self.n], self.inverse
            if which is not None:
                F, inverse = F[which], inverse.view(-1, h, *inverse.shape[1:])[which].flatten(0, 1)
            less = _fused.judge(torch.bmm(F.view(S, -1, r), q.mT).view(S, self.n, h, 4, c), inverse, w)
        if self.table is not None:
            return _fused.weighed_rows(self.table, rows, weights, less)
        forms = self.circle.forms(q.view(S * c, r)).view(S, c, 2 * h)
        own = torch.bmm(forms, weights[:, :, None])[:, :, 0]
        return own if less is None else own - less.sum(1)

    def add(self, chosen: Tensor) -> None:
        """Take one more row for each sample: into the rows chosen, and into their basis."""
        q, basis = self.catalogue.rows(chosen)[:, None], self.seeds.q[:, : self.n]
        for _ in range(2):  # twice is enough [Giraud et al., Numer. Math. 2005]
            q = q / torch.linalg.vector_norm(q, dim=2, keepdim=True)
            q = q - torch.bmm(torch.bmm(q, basis.mT), basis)
        self.seeds.q[:, self.n] = (q / torch.linalg.vector_norm(q, dim=2, keepdim=True))[:, 0]
        self.seeds.rows[:, self.n] = chosen
        self.n += 1
