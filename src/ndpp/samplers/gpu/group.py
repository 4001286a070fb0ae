"""Samples on one circle, in the shared form of the state.

All samples on a circle share its matrices Z_j. For a sample with items Y, q̂ an orthonormal basis of their rows, U_j = Z_j q̂ᵀ, V_j = q̂ Z_j
and G_j = q̂ Z_j q̂ᵀ, and a proposal with row q,

    qᵀMq = Re Σ_j w_j [qᵀZ_jq − (qᵀU_j) G_j⁻¹ (V_jq)]        (docs/theory: M given Y)

so neither M nor any Z given Y is formed. A sample stores q̂ and G_j⁻¹, and what its form of the state (:mod:`.states`) needs for qᵀU_j and
V_jq. In large products, complex numbers are stored as pairs of real ones, so that all of these are real matrix products. The CPU's form of
the same step is :meth:`ndpp.samplers.exact.nodes.Nodes.condition`.

Monitors, on every item: tr M = number of missing items, where tr Z_j given Y = tr Z_j − tr(G_j⁻¹ V_jU_j); the surviving fraction;
acceptance probabilities within [0, 1]. On every sample, before its last item: M q̂ᵀ = 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ndpp.samplers.exact import Exact
from ndpp.samplers.exact.plan import RUNG_STEP, Tolerances
from ndpp.samplers.exact.routes import Done
from ndpp.samplers.gpu.circles import Circles, DeviceCircle
from ndpp.samplers.gpu.diagonal import Ceiling
from ndpp.samplers.gpu.kernels.forms import weighted_rows
from ndpp.samplers.gpu.kernels.invert import invert
from ndpp.samplers.gpu.kernels.runtime import even, tight
from ndpp.samplers.gpu.memory import DeviceRows
from ndpp.samplers.gpu.proposals import (
    CHEAP_PROPOSALS,
    Streams,
    accept,
    ceiling_pays,
    first_round,
    round_of_survivors,
)
from ndpp.samplers.gpu.states import DiagonalRows, StoredSides

DROPPED_WEIGHT = 1e-10
"""Largest weight of a node that is not used, on entering a circle; they decrease from each to the next."""
MAX_OFFSET = 1
"""How many rungs the ceiling may be off its centre before another one is built."""


class Samples(NamedTuple):
    """Samples that want the same number of items.

    ``numbers`` (S,) are their indices in the call, ``rows`` (S, wanted) the rows of the support chosen so far, ``basis`` (S, wanted, r) an
    orthonormal basis q̂ of these rows of Q. The caller knows how many are chosen; entries beyond that are not used. The rest are counters
    (S,), with the names of ``Draws.info``: circles used, whether the CPU finished the sample, the worst values of the monitors.
    """

    numbers: Tensor
    rows: Tensor
    basis: Tensor
    proposals: Tensor
    recentred: Tensor
    on_cpu: Tensor
    trace_error: Tensor
    fraction: Tensor

    @classmethod
    def begin(cls, numbers: Tensor, wanted: int, rank: int) -> Samples:
        """Return samples without items."""
        S = len(numbers)
        basis = torch.zeros(S, wanted, rank, dtype=torch.float64, device=numbers.device)
        whole, real = numbers.new_zeros(3, S), basis.new_zeros(2, S)
        rows = numbers.new_zeros(S, wanted)
        return cls(numbers, rows, basis, whole[0], whole[1], whole[2], real[0], real[1] + 1)

    @property
    def wanted(self) -> int:
        """Final number of items per sample, in addition to the given ones."""
        return self.rows.shape[1]

    @property
    def counters(self) -> dict[str, Tensor]:
        """All counters by name."""
        return dict(zip(self._fields[3:], self[3:]))

    def take(self, which: Tensor) -> Samples:
        """Return some of the samples, by a mask or by positions."""
        return Samples(*(part[which] for part in self))

    def finish(self, i: int, done: Done) -> None:
        """Take the items of the i-th sample from the CPU."""
        self.rows[i] = torch.from_numpy(done.rows)
        self.proposals[i] += done.proposals
        self.on_cpu[i] = 1

    @classmethod
    def join(cls, parts: Sequence[Samples]) -> Samples:
        """Return the samples of all parts."""
        return parts[0] if len(parts) == 1 else cls(*map(torch.cat, zip(*parts)))


def orthonormal(q: Tensor, basis: Tensor) -> Tensor:
    """Return the part of q (S, 1, r) that is orthogonal to the rows of ``basis`` (S, n, r), with norm one (S, r)."""
    for _ in range(2):  # twice is enough [Giraud et al., Numer. Math. 2005]
        q = q / torch.linalg.vector_norm(q, dim=2, keepdim=True)
        q = q - torch.bmm(torch.bmm(q, basis.mT), basis)
    return torch.div(q, torch.linalg.vector_norm(q, dim=2, keepdim=True))[:, 0]


@dataclass(frozen=True, eq=False)
class Context:
    """What all groups of a call share."""

    sampler: Exact
    device_rows: DeviceRows
    circles: Circles
    streams: Streams
    tolerances: Tolerances


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
        S, h, diagonal = len(samples.numbers), circle.half, context.circles.diagonal
        self.context, self.samples, self.n, self.circle = context, samples, n, circle
        self.table = circle.table_for(S * CHEAP_PROPOSALS * max(1, capacity - n + 1))
        self.alive = torch.ones(S, dtype=torch.bool, device=samples.numbers.device) if alive is None else alive
        self.state = (
            StoredSides(circle, samples.basis, n, capacity)
            if diagonal is None or circle.factors is None
            else DiagonalRows(circle, diagonal, samples.basis, n, capacity)
        )
        self.power = len(context.sampler.given) + samples.wanted  # the coefficient of t^power is needed
        self.log_w = (circle.log_w - self.power * circle.log_t).expand(S, h)
        self.removed_trace: Tensor | None = None  # tr(G⁻¹VU) (S, h), if there are items
        if n:
            log_det, self.removed_trace = self.state.enter(n)
            self.log_w = self.log_w + log_det
        self.log_dropped = self._log_dropped()  # the largest log|w| of nodes that are not used (S,), on entering
        samples.recentred.add_(1)
        self.ceiling_factor: Tensor | None = None  # (S,), C of the ceiling
        self.node_weights, self.trusted = self._weigh()

    def _log_dropped(self) -> Tensor | None:
        """Return the largest log|w| (S,) of the nodes that are not used; None if all are."""
        dropped = self.circle.dropped
        if dropped is None:
            return None
        S, d, n = len(self.alive), dropped.half, self.n
        log_w = (dropped.log_w - self.power * dropped.log_t).expand(S, d)
        if n:
            G = self.samples.basis.new_zeros(S * d, 2, even(n), even(n))
            self.state.write_minors(dropped, tight(G, n).view(S, d, 2, n, n))
            log_w = log_w + invert(G, n).view(S, d)
        return log_w.real.amax(1)

    def condition(self) -> None:
        """Condition on the newest item: border G⁻¹, and update weights and monitors."""
        pivots, self.removed_trace = self.state.add(self.n)
        self.log_w = self.log_w + torch.log(pivots)
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
            trace = trace - self.removed_trace
        left = self.samples.wanted - self.n
        error = ((w * trace).real.sum(1) - left).abs()
        edge = torch.zeros_like(error) if self.circle.dropped is None else w[:, -1].abs()
        trusted = self.context.tolerances.accepts(error, fraction) & (edge <= self.context.tolerances.trace)
        if self.log_dropped is not None:
            trusted &= torch.exp(self.log_dropped - largest) <= DROPPED_WEIGHT * total
            self.log_dropped = None
        if self.n and left == 1:
            trusted &= self.state.chosen_excess(w, self.n) <= self.context.tolerances.chosen
        trusted &= self.alive
        worst = self.samples
        torch.maximum(worst.trace_error, torch.where(trusted, error, 0.0), out=worst.trace_error)
        torch.minimum(worst.fraction, torch.where(trusted, fraction, 1.0), out=worst.fraction)
        self.ceiling_factor = self._ceiling_factor(largest, total)
        return NodeWeights(w, error, fraction, edge), trusted

    def _ceiling_factor(self, largest: Tensor, total: Tensor) -> Tensor | None:
        """Return C of the ceiling (S,), where Σ w = ``total``·exp(``largest``); None if it would bound less than the leverage left."""
        state, key, circles = self.state, self.circle.key, self.context.circles
        if not self.n or not isinstance(state, DiagonalRows):
            return None
        if not ceiling_pays(self.samples.basis.shape[2], self.n, self.samples.wanted - self.n):
            return None
        centre = circles.centres.get((self.samples.wanted, self.n), key.rung)
        if state.ceiling is None or abs(state.ceiling.peak.rung - centre) > MAX_OFFSET:
            peak = circles.peak(centre)
            if peak is None:
                return None
            state.ceiling = Ceiling(peak, state.items, self.n)
        log_peak = state.ceiling.log_det - self.power * state.ceiling.peak.rung * RUNG_STEP
        return torch.exp(log_peak - largest) * key.n_nodes / (2 * total)

    def remove(self, which: Tensor) -> list[Samples]:
        """Remove the samples in ``which`` (S,) that are still in the group; return them as a list of one, or an empty one."""
        leaving, self.alive = self.alive & which, self.alive & ~which
        return [self.samples.take(leaving)] if leaving.any() else []

    def draw(self) -> Tensor:
        """Draw and add the next item of all samples alive; return which met a probability outside [0, 1] (S,) and drew none."""
        samples, context, rank = self.samples, self.context, self.samples.basis.shape[2]
        left, bounds, judged = samples.wanted - self.n, None, 0
        count = first_round(rank, left)
        if self.n and isinstance(self.state, DiagonalRows):
            typical = math.inf if self.ceiling_factor is None else float(self.ceiling_factor.nanmedian())
            (count, judged), bounds = round_of_survivors(rank, self.n, left, typical), self.bounds
        drawn = accept(
            context.streams, context.device_rows.table, samples.numbers, self.alive.nonzero()[:, 0], self.n, count,
            context.tolerances.chance, self.probabilities, bounds=bounds, judged=judged,
        )  # fmt: skip
        samples.proposals.add_(drawn.proposals)
        self._add(drawn.rows)
        return drawn.out_of_range

    def bounds(self, rows: Tensor, which: Tensor | None) -> Tensor:
        """Return what qᵀMq of proposals (P, c) cannot exceed, for all samples or for those at positions ``which``; not with sides."""
        assert isinstance(self.state, DiagonalRows)
        factor = self.ceiling_factor if self.ceiling_factor is None or which is None else self.ceiling_factor[which]
        return self.state.bounds(rows, factor, self._places(which), self.n)

    def probabilities(self, rows: Tensor, which: Tensor | None) -> Tensor:
        """Return qᵀMq of proposals (P, c), for all samples or for those at positions ``which``."""
        w = self.node_weights.w if which is None else self.node_weights.w[which]
        w_parts, table = torch.stack([w.real, -w.imag], 2).flatten(1), self.table
        if self.n == 0 and table is not None:
            return weighted_rows(table, rows, w_parts)
        q = self.context.device_rows.take(rows)
        minus = self.state.correction(q, rows, w, self._places(which), self.n) if self.n else None
        if table is None:
            table, rows = (
                self.circle.forms(q.flatten(0, 1)),
                torch.arange(rows.numel(), device=rows.device).view(rows.shape),
            )
        return weighted_rows(table, rows, w_parts, minus)

    def _places(self, which: Tensor | None) -> Tensor:
        return torch.arange(len(self.alive), device=self.alive.device) if which is None else which

    def _add(self, chosen: Tensor) -> None:
        """Add one row (S,) to each sample, and to its basis."""
        q = self.context.device_rows.take(chosen)[:, None]
        self.samples.basis[:, self.n] = orthonormal(q, self.samples.basis[:, : self.n])
        self.samples.rows[:, self.n] = chosen
        self.n += 1
