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
from ndpp.samplers.gpu.ceiling import Peak
from ndpp.samplers.gpu.diagonal import Diagonal
from ndpp.samplers.gpu.memory import DeviceRows


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
    """Nodes that are not used, as in :class:`DeviceCircle`."""

    Z: Tensor
    log_w: Tensor
    log_t: Tensor
    factors: Tensor | None


@dataclass(eq=False)
class DeviceCircle:
    """Z (h, r, r) at the h nodes of one circle, shared by all samples on it; tr Z, log w and log t (h,), complex."""

    Z: Tensor
    trace: Tensor
    log_w: Tensor
    log_t: Tensor
    device_rows: DeviceRows
    memory: int  # maximum bytes of the table
    key: CircleKey
    dropped: Dropped | None = None
    factors: Tensor | None = (
        None  # (2, 4, h, 2K) of Z and Z² in the coordinates of `Circles.diagonal`, if there are any
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
    def to_sides(self) -> Tensor:
        """(r, h·4·r): ``q @ to_sides`` is Re Zq, Im Zq, Re Zᵀq, Im Zᵀq at each node."""
        return _sides(self.Z)

    @cached_property
    def to_squares(self) -> Tensor:
        """(r, h·4·r): the same for Z²."""
        return _sides(self.Z @ self.Z)

    @cached_property
    def columns(self) -> Tensor:
        """(r, h·2·r): the part of ``to_sides`` that gives only Zq."""
        return columns(self.Z)

    @cached_property
    def square_columns(self) -> Tensor:
        """(r, h·2·r): the part of ``to_squares`` that gives only Z²q."""
        return columns(self.Z @ self.Z)

    @property
    def half(self) -> int:
        """Number of nodes h."""
        return len(self.log_w)

    @property
    def n_bytes(self) -> int:
        """Bytes in use."""
        derived = [self.__dict__.get(name) for name in ("table", "to_sides", "to_squares", "columns", "square_columns")]
        every = [
            self.Z,
            *derived,
            *(() if self.dropped is None else self.dropped),
        ]
        return sum(array.nbytes for array in every if isinstance(array, Tensor))

    def forms(self, q: Tensor) -> Tensor:
        """Return qᵀZq for rows q (m, r), shape (m, 2h)."""
        r, sides = q.shape[1], self.columns
        out = torch.empty((len(q), 2 * self.half), dtype=q.dtype, device=q.device)
        block = max(1, 2**26 // max(1, sides.shape[1]))
        for start in range(0, len(q), block):
            part = q[start : start + block]
            out[start : start + block] = torch.einsum("mjr,mr->mj", (part @ sides).view(len(part), -1, r), part)
        return out


class Circles:
    """The ladder's circles on one device, computed on first use; the most recently used are kept, within ``memory`` bytes.

    If ``diagonal`` is not None, samples do not store their sides: products with them are computed in these coordinates. ``centres`` has the
    rung at which samples that want so many items, and have so many, miss the rest on average, as far as it is known.
    """

    def __init__(self, ladder: Ladder, device_rows: DeviceRows, memory: int, diagonal: Diagonal | None = None) -> None:
        self.ladder, self.device_rows, self.memory, self.diagonal = ladder, device_rows, memory, diagonal
        self._kept: OrderedDict[CircleKey, DeviceCircle] = OrderedDict()
        self.centres: dict[tuple[int, int], int] = {}
        self._peaks: dict[int, Peak | None] = {}
        self._real: dict[int, Tensor] = {}

    def __getitem__(self, key: CircleKey) -> DeviceCircle:
        if key not in self._kept:
            self._kept[key] = self._circle(key)
            while len(self._kept) > 1 and sum(circle.n_bytes for circle in self._kept.values()) > self.memory:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def _circle(self, key: CircleKey) -> DeviceCircle:
        radius, device, diagonal = np.exp(key.rung * RUNG_STEP), self.device_rows.device, self.diagonal
        t = torch.from_numpy(nodes(radius, key.n_nodes)).to(device)
        (every, log_w), used, log_t = self.ladder.at(t, TORCH), key.halves[0], t.log()
        factors = None if diagonal is None else diagonal.factors(t, every)
        Z, rest, dropped = every[:used], every[used:], None
        if len(rest):
            of_rest = None if factors is None else factors[:, :, used:].contiguous()
            dropped = Dropped(rest, log_w[used:], log_t[used:], of_rest)
        return DeviceCircle(
            Z, TORCH.trace(Z), log_w[:used], log_t[:used], self.device_rows, self.memory // 4, key, dropped,
            None if factors is None else factors[:, :, :used].contiguous(),
        )  # fmt: skip

    def peak(self, rung: int) -> Peak | None:
        """Return the real node of this rung, in the coordinates of ``diagonal``; None if there are none."""
        if rung not in self._peaks:
            t = torch.full((1,), np.exp(rung * RUNG_STEP), dtype=torch.complex128, device=self.device_rows.device)
            (Z, log_det), peak = self.ladder.at(t, TORCH), None
            factors = None if self.diagonal is None else self.diagonal.factors(t, Z)
            if self.diagonal is not None and factors is not None:
                g, h = factors[0, 0, 0], factors[0, 2, 0]
                peak = Peak(g, h, log_det.real, rung, self.diagonal.forms(g, h))
            self._peaks[rung] = peak
        return self._peaks[rung]

    def plan(self, q: Tensor, left: int, rungs: IntArray) -> list[CircleKey]:
        """Return a suitable circle for each sample, given orthonormal rows q (S, i, r) of its items and initial rungs."""
        return [CircleKey(*plan) for plan in plan_from_moments(*self.centre(q, left, rungs), left)]

    def centre(self, q: Tensor, left: int, rungs: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the rung on which each sample expects about ``left`` more items, and mean and variance there; arguments as above."""
        return centre(partial(self._moments, q), left, rungs)

    def _moments(self, q: Tensor, rung: int, which: IntArray) -> tuple[FloatArray, FloatArray]:
        if rung not in self._real:
            t = torch.full((1,), np.exp(rung * RUNG_STEP), dtype=torch.complex128, device=q.device)
            self._real[rung] = self.ladder.at(t, TORCH)[0][0].real.contiguous()
        mean, variance = moments(self._real[rung], q[torch.from_numpy(which).to(q.device)], TORCH)
        return mean.cpu().numpy(), variance.cpu().numpy()


def columns(Z: Tensor) -> Tensor:
    """Return (r, h·2·r) with q @ columns = Re Zq, Im Zq at each node."""
    return torch.stack([Z.real.mT, Z.imag.mT], 1).permute(2, 0, 1, 3).reshape(Z.shape[1], -1).contiguous()


def _sides(Z: Tensor) -> Tensor:
    """Return (r, h·4·r) with q @ sides = Re Zq, Im Zq, Re Zᵀq, Im Zᵀq at each node."""
    parts = torch.stack([Z.real.mT, Z.imag.mT, Z.real, Z.imag], 1)  # (h, 4, r, r)
    return parts.permute(2, 0, 1, 3).reshape(Z.shape[1], -1).contiguous()
