"""Circles of the ladder on the device, and plans of circles from the mean and variance of the remaining size, for many samples at once."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp._types import FloatArray, IntArray
from ndpp.linalg import nodes
from ndpp.samplers.exact.ladder import Ladder
from ndpp.samplers.exact.monitors import RUNG_STEP
from ndpp.samplers.exact.plan import centre, moments, plan_from_moments
from ndpp.samplers.gpu.arrays import TORCH
from ndpp.samplers.gpu.device_rows import DeviceRows
from ndpp.samplers.gpu.diagonal import Diagonal


class CircleKey(NamedTuple):
    """A rung of the ladder and an even number of nodes, of which only one of each conjugate pair is computed.

    If ``kept`` is not zero, only so many of these are used, those closest to the positive axis: the weights of the others are negligible.
    """

    rung: int
    n_nodes: int
    kept: int = 0

    @property
    def halves(self) -> tuple[int, int]:
        """How many nodes are used, and how many are dropped, one of each conjugate pair."""
        used = self.kept or self.n_nodes // 2
        return used, self.n_nodes // 2 - used


class Dropped(NamedTuple):
    """Nodes that are not used: ``q @ columns`` is Re Zq, Im Zq at each; log w and log t."""

    columns: Tensor  # (r, d·2·r)
    log_w: Tensor
    log_t: Tensor


@dataclass(eq=False)
class DeviceCircle:
    """Z at the h nodes of one circle, shared by all samples on it.

    ``q @ to_sides`` is Re Zq, Im Zq, Re Zᵀq, Im Zᵀq at each node; ``to_squares`` does the same for Z².
    """

    to_sides: Tensor  # (r, h·4·r)
    to_squares: Tensor
    trace: Tensor  # (h,), complex: tr Z, log w and log t
    log_w: Tensor
    log_t: Tensor
    device_rows: DeviceRows
    memory: int  # maximum bytes of the table
    dropped: Dropped | None = None
    factors: Tensor | None = (
        None  # (2, 4, h, 2K), of Z and Z² in the coordinates of `Circles.diagonal`, if there are any
    )
    lookups: int = 0  # rows of the table requested so far

    @cached_property
    def table(self) -> Tensor | None:
        """(n, 2h): qᵀZq of every item, real and imaginary parts side by side; None if it would exceed ``memory``."""
        q = self.device_rows.q
        return None if q is None or q.element_size() * 2 * self.half * len(q) > self.memory else self.forms(q)

    def table_for(self, lookups: int) -> Tensor | None:
        """Count these lookups; return the table once the total reaches its number of rows, so that computing it pays."""
        self.lookups += lookups
        return self.table if self.lookups >= self.device_rows.kernel.n_rows else None

    @cached_property
    def columns(self) -> Tensor:
        """(r, h·2·r): the part of ``to_sides`` that gives only Zq."""
        return _columns(self.to_sides, self.half)

    @cached_property
    def square_columns(self) -> Tensor:
        """(r, h·2·r): the part of ``to_squares`` that gives only Z²q."""
        return _columns(self.to_squares, self.half)

    @property
    def half(self) -> int:
        """Number of nodes h."""
        return len(self.log_w)

    @property
    def n_bytes(self) -> int:
        """Bytes in use."""
        table = self.__dict__.get("table")
        dropped = 0 if self.dropped is None else self.dropped.columns.nbytes
        return self.to_sides.nbytes + self.to_squares.nbytes + dropped + (0 if table is None else table.nbytes)

    def forms(self, q: Tensor) -> Tensor:
        """Return qᵀZq for rows q (m, r), shape (m, 2h)."""
        r = q.shape[1]
        sides = self.columns
        out = torch.empty((len(q), 2 * self.half), dtype=q.dtype, device=q.device)
        block = max(1, 2**26 // max(1, sides.shape[1]))
        for start in range(0, len(q), block):
            part = q[start : start + block]
            out[start : start + block] = torch.einsum("mjr,mr->mj", (part @ sides).view(len(part), -1, r), part)
        return out


class Circles:
    """The ladder's circles on one device, computed on first use; the most recently used are kept, within ``memory`` bytes.

    If ``diagonal`` is not None, samples do not store their sides: products with them are computed in these coordinates.
    """

    def __init__(self, ladder: Ladder, device_rows: DeviceRows, memory: int, diagonal: Diagonal | None = None) -> None:
        self.ladder, self.device_rows, self.memory, self.diagonal = ladder, device_rows, memory, diagonal
        self._kept: OrderedDict[CircleKey, DeviceCircle] = OrderedDict()
        self._real: dict[int, Tensor] = {}

    def __getitem__(self, key: CircleKey) -> DeviceCircle:
        if key not in self._kept:
            t = torch.from_numpy(nodes(np.exp(key.rung * RUNG_STEP), key.n_nodes)).to(self.device_rows.device)
            (every, log_w), (used, n_dropped) = self.ladder.at(t, TORCH), key.halves
            Z, rest, log_t = every[:used], every[used:], t.log()
            self._kept[key] = DeviceCircle(
                _sides(Z), _sides(Z @ Z), TORCH.trace(Z), log_w[:used], log_t[:used], self.device_rows, self.memory // 4,
                dropped=Dropped(_columns(_sides(rest), n_dropped), log_w[used:], log_t[used:]) if n_dropped else None,
                factors=None if self.diagonal is None else self.diagonal.factors(t[:used], Z),
            )  # fmt: skip
            while len(self._kept) > 1 and sum(circle.n_bytes for circle in self._kept.values()) > self.memory:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def plan(self, q: Tensor, left: int, rungs: IntArray) -> list[CircleKey]:
        """Return a suitable circle for each sample, given orthonormal rows q (S, i, r) of its items and initial rungs."""
        plans = plan_from_moments(*centre(partial(self._moments, q), left, rungs), left)
        return [CircleKey(*plan) for plan in plans]

    def _moments(self, q: Tensor, rung: int, which: IntArray) -> tuple[FloatArray, FloatArray]:
        if rung not in self._real:
            t = torch.full((1,), np.exp(rung * RUNG_STEP), dtype=torch.complex128, device=q.device)
            self._real[rung] = self.ladder.at(t, TORCH)[0][0].real.contiguous()
        mean, variance = moments(self._real[rung], q[torch.from_numpy(which).to(q.device)], TORCH)
        return mean.cpu().numpy(), variance.cpu().numpy()


def _columns(sides: Tensor, half: int) -> Tensor:
    """Return the part of ``to_sides`` or ``to_squares`` that gives only Zq, (r, h·2·r)."""
    r = len(sides)
    return sides.view(r, half, 4, r)[:, :, :2].reshape(r, -1)


def _sides(Z: Tensor) -> Tensor:
    """Return (r, h·4·r) with q @ sides = Re Zq, Im Zq, Re Zᵀq, Im Zᵀq at each node."""
    parts = torch.stack([Z.real.mT, Z.imag.mT, Z.real, Z.imag], 1)  # (h, 4, r, r)
    return parts.permute(2, 0, 1, 3).reshape(Z.shape[1], -1).contiguous()
