"""The walk with ``DirectUp`` on a CUDA device: independent chains side by side.

A step is that of :mod:`ndpp.samplers.up_direct`: two items leave, B^A is formed for what is kept, and the pair that joins is drawn as two
items from the forms of its first and of its second one. Chains whose forms have lost too many digits take the safe route, for that item
alone and together: the law of the exact sampler given what is kept. Cost a step and chain: O(r³), one product; memory about
40r² + 100r·k bytes a chain.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp._types import AnyArray
from ndpp.errors import BudgetExceededError, InvalidInputError, PrecisionError
from ndpp.samplers.base import Draws
from ndpp.samplers.gpu._accept import accept, candidates
from ndpp.samplers.gpu._batches import baskets_of, in_batches
from ndpp.samplers.gpu._catalogue import Catalogue, free_memory
from ndpp.samplers.gpu._circles import Circles
from ndpp.samplers.gpu._run import Run
from ndpp.samplers.gpu._streams import Streams
from ndpp.samplers.gpu.exact import TOLERANCES, ExactEngine
from ndpp.samplers.up_direct import EPS, LOSS, PreparedDirectUp
from ndpp.samplers.walk import START_BUDGET

if TYPE_CHECKING:
    from ndpp.samplers.walk import Walk

MOST = 16384
"""Most chains at a time."""
PARTS = 4
"""Draws of a step: the items that leave, the first and the second that join."""
CLEAR = 1e-8
"""A set whose scaled minor is further from singular than this surely has positive probability."""


class Form(NamedTuple):
    """M (S, r, r) of the next item, and an estimate of its relative error."""

    M: Tensor
    loss: Tensor


@dataclass(eq=False)
class WalkEngine:
    """Runs the chains of one :class:`~ndpp.samplers.Walk` on one device."""

    walk: Walk
    device: torch.device
    catalogue: Catalogue
    B: Tensor
    most: int

    @classmethod
    def prepare(cls, walk: Walk, device: torch.device, precision: str) -> WalkEngine | None:
        """Bring the catalogue to the device; None for sets of less than two items, which need no chain."""
        if walk.size < 2:
            return None
        if not isinstance(walk.up, PreparedDirectUp) or walk.thin is not None or precision != "double":
            raise InvalidInputError(
                "on a GPU the walk is for independent chains with up=DirectUp() in double precision; leave thin= and precision= out, "
                "or leave device= out"
            )
        kernel = walk.kernel
        room = 8 * (5 * kernel.rank**2 + 2 * candidates(kernel.rank, 1) * kernel.rank + 12 * walk.size * kernel.rank)
        B = torch.from_numpy(walk.up.B).to(device)
        most = int(max(1, min(MOST, 0.5 * free_memory(device) // room)))
        return cls(walk, device, Catalogue(kernel, device, torch.float64, walk.up.index), B, most)

    @cached_property
    def exact(self) -> ExactEngine:
        """The exact sampler of the same sets, for the safe route."""
        from ndpp.samplers.exact import Exact

        up: PreparedDirectUp = self.walk.up  # type: ignore[assignment]
        sampler = Exact.prepare(self.walk.kernel, size=self.walk.size, index=lambda _: up.index)
        circles = Circles(sampler.ladder, self.catalogue, free_memory(self.device) // 8)
        return ExactEngine(sampler, self.device, TOLERANCES["double"], self.catalogue, circles)

    def draws(self, key: AnyArray, first: int, n_samples: int) -> Iterator[Draws]:
        """Yield the last sets of chains first, first + 1, … in order, some at a time."""
        return in_batches(self, lambda samples: self._draws(key, samples), first, n_samples)

    def _draws(self, key: AnyArray, samples: Tensor) -> Draws:
        began, walk = time.perf_counter(), self.walk
        run = _Chains(self, key, samples)
        steps = walk.burn_in + walk.steps
        for step in range(1, steps + 1):
            run.step(step)
        counts = {"candidates": run.candidates.cpu().numpy(), "fallbacks": run.fallbacks.cpu().numpy()}
        fixed = {
            "steps": steps,
            "proposals": steps,
            "rejections": 0,
            "seconds": (time.perf_counter() - began) / len(samples),
        }
        info = {name: np.full(len(samples), value) for name, value in fixed.items()} | counts
        return Draws(baskets_of(walk.kernel, run.rows, np.full(len(samples), walk.size)), info)


class _Chains:
    """Where the chains of a batch stand."""

    def __init__(self, engine: WalkEngine, key: AnyArray, samples: Tensor) -> None:
        self.engine, self.key, self.samples = engine, key, samples
        self.streams = Streams(key, engine.device)
        self.candidates = torch.zeros_like(samples)
        self.fallbacks = torch.zeros_like(samples)
        start = engine.walk.start
        if start is None:
            self.rows = self._uniform()
        else:
            self.rows = torch.from_numpy(start.copy()).to(engine.device).expand(len(samples), -1).contiguous()

    def step(self, step: int) -> None:
        """Take two items out of each set, and put a pair in."""
        k, S = self.engine.walk.size, len(self.samples)
        one, other, _ = (u[:, 0] for u in self.streams.uniforms(self.samples, PARTS * step, 0, 1))
        out = (one * k).long()
        also = (other * (k - 1)).long()
        also = also + (also >= out)
        keep = torch.ones_like(self.rows, dtype=torch.bool)
        keep.scatter_(1, torch.stack([out, also], 1), False)
        kept = self.rows[keep].view(S, k - 2)
        inner, error = condition(self.engine.B, self.engine.catalogue.rows(kept))
        first = self._draw(first_form(inner, error), kept, 2, PARTS * step + 1)
        kept = torch.cat([kept, first[:, None]], 1)
        second = self._draw(second_form(inner, error, self.engine.catalogue.rows(first)), kept, 1, PARTS * step + 2)
        self.rows = torch.cat([kept, second[:, None]], 1)

    def _draw(self, form: Form, kept: Tensor, missing: int, step: int) -> Tensor:
        """Draw an item from its form; where that has too few digits, by the safe route."""
        catalogue = self.engine.catalogue
        safe = form.loss <= LOSS

        def values(rows: Tensor, which: Tensor | None) -> Tensor:
            q, M = catalogue.rows(rows), form.M if which is None else form.M[which]
            return (torch.bmm(q, M) * q).sum(2)

        count = candidates(catalogue.kernel.rank, missing)
        drawn = accept(self.streams, catalogue.table, self.samples, safe.nonzero()[:, 0], step, count, LOSS, values)
        if drawn.bad.any():
            raise PrecisionError(
                f"the chances of {int(drawn.bad.sum())} chains left [0, 1] by more than {LOSS:g}: double precision cannot carry this step. "
                "Rescale X or drop its smallest directions."
            )
        self.candidates += drawn.proposals
        if len(rest := (~safe).nonzero()[:, 0]):
            drawn.rows[rest], looked_at = self._safe(self.samples[rest], kept[rest], step)
            self.candidates[rest] += looked_at
            self.fallbacks[rest] += 1
        return drawn.rows

    def _safe(self, samples: Tensor, kept: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Draw an item that joins the rows kept without L_A⁻¹: the exact sampler's, given these rows."""
        engine, n = self.engine, kept.shape[1]

        def rng(index: int) -> np.random.Generator:  # a stream of this chain and step, beside those of the CPU
            return np.random.Generator(np.random.Philox(key=self.key, counter=[0, 0, step, index]))

        streams = Streams(self.key, engine.device, step - n)
        return Run(engine.exact, streams, rng, engine.walk.size).draw_next(samples, kept)

    def _uniform(self) -> Tensor:
        """Return sets drawn uniformly among those of positive probability, by rejection from all sets of items that can occur."""
        engine, k = self.engine, self.engine.walk.size
        possible = (engine.catalogue.table[2] > 0).nonzero()[:, 0]
        rows = torch.zeros(len(self.samples), k, dtype=torch.int64, device=engine.device)
        pending = torch.arange(len(self.samples), device=engine.device)
        for turn in range(START_BUDGET):
            if not len(pending):
                return rows
            # A uniform sequence of distinct items: the j-th among those not yet taken, in order.
            u = self.streams.uniforms(self.samples[pending], PARTS * (turn + 1) + 3, 0, k)[0]
            places = distinct(u, len(possible))
            rows[pending] = possible[places]
            pending = pending[~self._positive(rows[pending])]
        raise BudgetExceededError(
            f"none of {START_BUDGET} uniform sets of {k} items has positive probability: such sets are rare. "
            'Begin with start="greedy", or with the items of an exact sample, start=kernel.sample(size=…)[0].',
            count=START_BUDGET,
        )

    def _positive(self, rows: Tensor) -> Tensor:
        kernel, q = self.engine.walk.kernel, self.engine.catalogue.rows(rows)
        minors = q @ self.engine.B @ q.mT
        scale = minors.square().sum(2).sqrt()
        scaled = torch.nan_to_num(minors / (scale[:, :, None] * scale[:, None, :]).sqrt())
        sign, _ = torch.linalg.slogdet(scaled)
        clear = (sign > 0) & (torch.linalg.svdvals(scaled)[:, -1] > CLEAR)
        for i in (~clear).nonzero()[:, 0].tolist():
            clear[i] = kernel.log_det(kernel.catalogue_ids(rows[i].cpu().numpy())) > -np.inf
        return clear


def distinct(uniforms: Tensor, n: int) -> Tensor:
    """Return k distinct numbers below n from k uniforms, all sequences alike: the j-th is drawn among the n − j not yet taken.

    Examples
    --------
    >>> distinct(torch.tensor([[0.0, 0.0, 0.9]]), 4).tolist()
    [[0, 1, 3]]
    """
    out: list[Tensor] = []
    for j in range(uniforms.shape[1]):
        place = (uniforms[:, j] * (n - j)).long()
        for taken in torch.stack(out, 1).sort(1).values.unbind(1) if out else ():
            place = place + (place >= taken)
        out.append(place)
    return torch.stack(out, 1)


def condition(B: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return B^A (S, r, r) for the rows of Q kept, and an estimate of its rounding error: the batch of ``up_direct.condition``."""
    if rows.shape[1] == 0:
        return B.expand(len(rows), -1, -1), EPS * torch.linalg.matrix_norm(B).expand(len(rows))
    rows = rows / torch.linalg.vector_norm(rows, dim=2, keepdim=True)
    F, G = rows @ B, rows @ B.T
    LU, pivots, _ = torch.linalg.lu_factor_ex(F @ rows.mT)
    X = torch.linalg.lu_solve(LU, pivots, F)
    U = torch.linalg.lu_solve(LU, pivots, G.mT, left=False)
    inner = B - G.mT @ X
    spread = torch.linalg.matrix_norm(U * torch.linalg.vector_norm(F, dim=2)[:, None, :])
    return inner, EPS * (torch.linalg.matrix_norm(B) + spread * (1 + torch.linalg.matrix_norm(X)))


def first_form(inner: Tensor, error: Tensor) -> Form:
    """Return tr(B^A)B^A − (B^A)², scaled to trace 2."""
    square = inner @ inner
    trace = _trace(inner)
    pairs = trace**2 - _trace(square)
    loss = _ratio(2 * error * (trace.abs() + 3 * torch.linalg.matrix_norm(inner)), pairs)
    return Form((trace[:, None, None] * inner - square) * (2 / pairs)[:, None, None], loss)


def second_form(inner: Tensor, error: Tensor, q: Tensor) -> Form:
    """Return (qᵀB^Aq)B^A − B^Aq qᵀB^A for the first item's row q, scaled to trace 1."""
    q = (q / torch.linalg.vector_norm(q, dim=1, keepdim=True))[:, :, None]
    after, before = inner @ q, (inner.mT @ q).mT
    p = (before @ q)[:, 0, 0]
    total = p * _trace(inner) - (before @ after)[:, 0, 0]
    sizes = torch.linalg.matrix_norm(inner) + p.abs() + after.norm(dim=(1, 2)) + before.norm(dim=(1, 2))
    M = torch.baddbmm(inner * p[:, None, None], after, before, alpha=-1) / total[:, None, None]
    return Form(M, _ratio(error * sizes, total))


def _trace(M: Tensor) -> Tensor:
    return M.diagonal(dim1=1, dim2=2).sum(1)


def _ratio(error: Tensor, total: Tensor) -> Tensor:
    return torch.where((total > 0) & torch.isfinite(error), error / total, torch.inf)
