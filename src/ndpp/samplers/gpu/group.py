"""Samples side by side on one circle, in the shared form of the state.

All samples on a circle share its matrices Z_j. A sample with items Y carries an orthonormal basis q̂ of their rows, the sides U_j = Z_j q̂ᵀ
and V_j = q̂ Z_j, and the inverse of G_j = q̂ Z_j q̂ᵀ, so that for a candidate with row q

    qᵀMq = Re Σ_j w_j [qᵀZ_jq − (qᵀU_j) G_j⁻¹ (V_jq)]        (docs/theory: M of the law given Y)

without M or any Z given Y being formed. Complex numbers are kept as pairs of real ones where products are large, so that all of these
are real matrix products: one item more is q̂·[Z_j] for the whole batch at once, a block of candidates is sides·Qᵀ for each sample, and the
inverse is bordered. The CPU's form of the same step is :meth:`ndpp.samplers.exact.nodes.Nodes.condition`.

Monitors, on every item: tr M = items still to come, with tr Z_j given Y = tr Z_j − tr(G_j⁻¹ V_jU_j); the surviving fraction; acceptance
probabilities within [0, 1]. On every sample, before its last item: M q̂ᵀ = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ndpp.samplers.exact import Exact
from ndpp.samplers.exact.monitors import Tolerances
from ndpp.samplers.gpu.accept import CHEAP, accept, first_round
from ndpp.samplers.gpu.catalogue import Catalogue
from ndpp.samplers.gpu.circles import Circle, Circles
from ndpp.samplers.gpu.kernels.border import border
from ndpp.samplers.gpu.kernels.invert import invert
from ndpp.samplers.gpu.kernels.judge import judge
from ndpp.samplers.gpu.kernels.layout import even, pairs, tight
from ndpp.samplers.gpu.kernels.weighed_rows import weighed_rows
from ndpp.samplers.gpu.samples import Samples
from ndpp.samplers.gpu.streams import Streams


@dataclass(frozen=True, eq=False)
class Context:
    """What all groups of a call share: the sampler, its items and circles on the device, random numbers, bounds of the monitors."""

    sampler: Exact
    catalogue: Catalogue
    circles: Circles
    streams: Streams
    tolerances: Tolerances


class Weights(NamedTuple):
    """Weights of the nodes (S, h), which sum to one, and what the monitors show (S,): |tr M − left| and the surviving fraction."""

    w: Tensor
    trace_error: Tensor
    fraction: Tensor


class _Entered(NamedTuple):
    """What a group begins with on a circle; see :class:`Group`."""

    sides: Tensor
    log_w: Tensor
    lost: Tensor | None


class Group:
    """Samples that want the same number of items, have the same number of them, and are on the same circle.

    Attributes
    ----------
    samples, n
        The samples, and how many items each has.
    circle, table
        The circle, and its table of qᵀZq of all items, if there is one.
    sides : (S, room, h, 4, r) Tensor
        Re Zq̂, Im Zq̂, Re Zᵀq̂, Im Zᵀq̂ of the items chosen; the first two are U, the others V.
    inverse, inner : (S·h, 2, even(room), even(room)) Tensor
        G⁻¹, as in :func:`~ndpp.samplers.gpu.kernels.layout.tight`, and (VU)ᵀ = (q̂Z²q̂ᵀ)ᵀ.
    log_w, lost
        Logarithms of the weights (S, h), and tr(G⁻¹VU) (S·h,), None before the first item.
    weights : Weights
        Normalised weights and monitors, for the items chosen.
    trusted, alive : (S,) Tensor
        Whom the monitors trust, and who still belongs to the group. Those who do not keep their place and are not looked at.
    """

    def __init__(
        self, context: Context, samples: Samples, n: int, circle: Circle, room: int, alive: Tensor | None = None
    ) -> None:
        """Take samples with n items to a circle, with room for ``room`` items."""
        S, h = len(samples.numbers), circle.half
        self.context, self.samples, self.n, self.circle = context, samples, n, circle
        self.table = circle.table_for(S * CHEAP * max(1, room - n + 1))
        self.alive = torch.ones(S, dtype=torch.bool, device=samples.numbers.device) if alive is None else alive
        self.inverse = samples.basis.new_zeros(
            S * h, 2, even(room), even(room)
        )  # the column after an odd n must be finite
        self.inner = samples.basis.new_empty(S * h, 2, even(room), even(room))
        self.sides, self.log_w, self.lost = self._enter(room)
        samples.counters.recentred.add_(1)
        self.weights, self.trusted = self._weigh()

    # -- the state on a circle -------------------------------------------------------------------------------------------------

    def _enter(self, room: int) -> _Entered:
        """Build U, V, G⁻¹ and VU for the items chosen."""
        basis, n, circle, inverse, inner = self.samples.basis, self.n, self.circle, self.inverse, self.inner
        S, h, r = len(basis), circle.half, basis.shape[2]
        power = len(self.context.sampler.given) + self.samples.wanted  # of t, whose coefficient is wanted
        log_w = (circle.log_w - power * circle.log_t).expand(S, h)
        if not n:
            return _Entered(basis.new_empty(S, room, h, 4, r), log_w, None)
        # What lies behind the n-th row is overwritten later: the product also makes room for the items to come.
        sides = (basis[:, :room].reshape(S * room, r) @ circle.to_sides).view(S, room, h, 4, r)
        tight(inverse, n).unflatten(0, (S, h)).copy_(self._minors(sides[:, :n]).mT)
        log_det = invert(inverse, n)
        squares = (basis[:, :n].reshape(S * n, r) @ circle.square_columns).view(S, n, h, 2, r)
        inner.view(S, h, 2, *inner.shape[2:])[..., :n, :n] = self._minors(squares)
        lost = (pairs(tight(inverse, n)) * pairs(inner[:, :, :n, :n])).sum((1, 2))
        return _Entered(sides, log_w + log_det.view(S, h), lost)

    def _minors(self, columns: Tensor) -> Tensor:
        """Return (q̂Zq̂ᵀ)ᵀ at each node, shape (S, h, 2, n, n), from the columns Zq̂ᵀ, which come first in (S, n, h, 2 or 4, r)."""
        S, n, h, p, r = columns.shape
        parts = torch.bmm(columns.view(S, n * h * p, r), self.samples.basis[:, :n].mT).view(S, n, h, p, n)
        return parts[:, :, :, :2].permute(0, 2, 3, 1, 4)

    def condition(self) -> None:
        """Take the newest item into U, V, G⁻¹ and VU, by bordering, and weigh anew."""
        S, _, h, _, r = self.sides.shape
        new, basis = self.samples.basis[:, self.n - 1], self.samples.basis[:, : self.n].mT
        side = torch.mm(new, self.circle.to_sides, out=self.sides[:, self.n - 1].flatten(1))
        squares = torch.mm(new, self.circle.to_squares)
        parts = [torch.bmm(four.view(S, h * 4, r), basis).view(S * h, 4, self.n) for four in (side, squares)]
        pivots, self.lost = border(self.inverse, self.inner, *parts)
        self.log_w = self.log_w + torch.log(pivots).view(S, h)
        self.weights, self.trusted = self._weigh()

    # -- the monitors ----------------------------------------------------------------------------------------------------------

    def _weigh(self) -> tuple[Weights, Tensor]:
        """Return the weights of the nodes and which samples the monitors trust; count what they show of these."""
        w = torch.exp(self.log_w - self.log_w.real.amax(1, keepdim=True))
        total = w.real.sum(1)
        fraction = total / w.abs().sum(1)
        w = w / total[:, None]
        trace = self.circle.trace.expand_as(w)
        if self.lost is not None:
            trace = trace - self.lost.view(w.shape)
        left = self.samples.wanted - self.n
        error = ((w * trace).real.sum(1) - left).abs()
        trusted = self.context.tolerances.accepts(error, fraction)
        if self.n and left == 1:
            trusted &= self._chosen_excess(w) <= self.context.tolerances.chosen
        trusted &= self.alive
        counters = self.samples.counters
        torch.maximum(counters.trace_error, torch.where(trusted, error, 0.0), out=counters.trace_error)
        torch.minimum(counters.fraction, torch.where(trusted, fraction, 1.0), out=counters.fraction)
        return Weights(w, error, fraction), trusted

    def _chosen_excess(self, w: Tensor) -> Tensor:
        """Return the largest entry of M q̂ᵀ (S,), which is zero for items already chosen."""
        n, S, h, sides = self.n, len(self.sides), self.sides.shape[2], self.sides[:, : self.n].flatten(1, 3)
        products = torch.bmm(sides, self.samples.basis[:, :n].mT).view(S, n, h, 4, n)[:, :, :, 2:]
        right = pairs(products.permute(0, 2, 3, 1, 4).reshape(S * h, 2, n, n))
        rest = torch.bmm(pairs(tight(self.inverse, n)), right)  # G⁻¹ V q̂ᵀ, which should be the identity
        rest = (torch.eye(n, dtype=rest.dtype, device=rest.device) - rest) * w.view(-1, 1, 1)
        weights = sides.new_zeros(S, n, h, 4, n)  # of V none: the sides are read as they lie
        weights[:, :, :, 0], weights[:, :, :, 1] = (
            part.view(S, h, n, n).transpose(1, 2) for part in (rest.real, -rest.imag)
        )
        return torch.bmm(weights.view(S, -1, n).mT, sides).abs().amax((1, 2))

    def remove(self, which: Tensor) -> list[Samples]:
        """Let those of ``which`` (S,) go that still belong to the group; return them, or nothing if there are none."""
        leaving, self.alive = self.alive & which, self.alive & ~which
        return [self.samples.take(leaving)] if leaving.any() else []

    # -- drawing ---------------------------------------------------------------------------------------------------------------

    def draw(self) -> Tensor:
        """Draw the next item of everyone alive and add it; return who met a probability outside [0, 1] (S,) and has none."""
        samples, context = self.samples, self.context
        count = first_round(samples.basis.shape[2], samples.wanted - self.n)
        drawn = accept(
            context.streams, context.catalogue.table, samples.numbers, self.alive.nonzero()[:, 0], self.n, count,
            context.tolerances.chance, self.probabilities,
        )  # fmt: skip
        samples.counters.proposals.add_(drawn.proposals)
        self._add(drawn.rows)
        return drawn.out_of_range

    def probabilities(self, rows: Tensor, which: Tensor | None) -> Tensor:
        """Return qᵀMq for candidates (S, c) of all samples, or of those at the places ``which``."""
        (S, c), (_, _, h, _, r) = rows.shape, self.sides.shape
        w = self.weights.w if which is None else self.weights.w[which]
        weights = torch.stack([w.real, -w.imag], 2).view(S, 2 * h)
        if self.n == 0 and self.table is not None:
            return weighed_rows(self.table, rows, weights)
        q, less = self.context.catalogue.rows(rows), None
        if self.n:
            sides, inverse = self.sides[:, : self.n], self.inverse
            if which is not None:
                sides, inverse = sides[which], inverse.view(-1, h, *inverse.shape[1:])[which].flatten(0, 1)
            less = judge(torch.bmm(sides.view(S, -1, r), q.mT).view(S, self.n, h, 4, c), inverse, w)
        if self.table is not None:
            return weighed_rows(self.table, rows, weights, less)
        forms = self.circle.forms(q.view(S * c, r)).view(S, c, 2 * h)
        own = torch.bmm(forms, weights[:, :, None])[:, :, 0]
        return own if less is None else own - less.sum(1)

    def _add(self, chosen: Tensor) -> None:
        """Take one more row (S,) for each sample: into the rows chosen, and into their basis."""
        q, basis = self.context.catalogue.rows(chosen)[:, None], self.samples.basis[:, : self.n]
        for _ in range(2):  # twice is enough [Giraud et al., Numer. Math. 2005]
            q = q / torch.linalg.vector_norm(q, dim=2, keepdim=True)
            q = q - torch.bmm(torch.bmm(q, basis.mT), basis)
        self.samples.basis[:, self.n] = (q / torch.linalg.vector_norm(q, dim=2, keepdim=True))[:, 0]
        self.samples.rows[:, self.n] = chosen
        self.n += 1
