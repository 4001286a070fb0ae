"""Circles of the ladder on the device, and plans of circles from the mean and variance of the remaining size, for many samples at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp._memory import Memory
from ndpp._types import FloatArray, IntArray, cached_property
from ndpp.linalg.size_law import nodes
from ndpp.linalg.tilts import LEAST_VARIANCE, solve_each
from ndpp.samplers.exact.plan import RUNG_STEP
from ndpp.samplers.exact.routes import Ladder
from ndpp.samplers.gpu.arrays import TORCH
from ndpp.samplers.gpu.diagonal import Diagonal, Peak
from ndpp.samplers.gpu.memory import DeviceRows


class CircleKey(NamedTuple):
    """A rung of the ladder and an even number of nodes, of which only one of each conjugate pair is computed.

    If ``kept`` is not zero, only this many of them are used, those closest to the positive axis: the others have negligible weights.
    """

    rung: int
    n_nodes: int
    kept: int = 0

    @property
    def halves(self) -> tuple[int, int]:
        """How many nodes are used, and how many are dropped, one of each conjugate pair."""
        used = self.kept or self.n_nodes // 2
        return used, self.n_nodes // 2 - used


@dataclass(eq=False)
class DeviceCircle:
    """Z (h, r, r) at the h nodes of one circle, shared by all samples on it; tr Z, log w and log t (h,), complex.

    ``factors`` (2, 4, h, 2K) are those of Z and Z² in the coordinates of `Circles.diagonal`, if there are any; ``dropped`` has the nodes
    that are not used. The table takes at most ``memory`` bytes; ``lookups`` counts the rows requested of it.
    """

    Z: Tensor
    log_w: Tensor
    log_t: Tensor
    factors: Tensor | None
    key: CircleKey
    device_rows: DeviceRows
    memory: int
    dropped: DeviceCircle | None = None
    lookups: int = 0

    def part(self, some: slice) -> DeviceCircle:
        """Return the circle with some of its nodes only."""
        factors = None if self.factors is None else self.factors[:, :, some].contiguous()
        return replace(self, Z=self.Z[some], log_w=self.log_w[some], log_t=self.log_t[some], factors=factors)

    @cached_property
    def trace(self) -> Tensor:
        """tr Z (h,)."""
        trace: Tensor = TORCH.trace(self.Z)
        return trace

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
        return _side_by_side(self.Z, self.Z.mT)

    @cached_property
    def to_squares(self) -> Tensor:
        """(r, h·4·r): the same for Z²."""
        square = self.Z @ self.Z
        return _side_by_side(square, square.mT)

    @cached_property
    def columns(self) -> Tensor:
        """(r, h·2·r): the part of ``to_sides`` that gives only Zq."""
        return _side_by_side(self.Z)

    @cached_property
    def square_columns(self) -> Tensor:
        """(r, h·2·r): the part of ``to_squares`` that gives only Z²q."""
        return _side_by_side(self.Z @ self.Z)

    @property
    def half(self) -> int:
        """Number of nodes h."""
        return len(self.log_w)

    @property
    def n_bytes(self) -> int:
        """Bytes in use."""
        own = sum(array.nbytes for array in vars(self).values() if isinstance(array, Tensor))
        return own + (0 if self.dropped is None else self.dropped.n_bytes)

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

    If ``diagonal`` is not None, samples do not store their sides: products with them are computed in these coordinates. ``centres``
    maps (items wanted, items drawn) to the rung at which such samples miss the rest on average, as far as it is known.
    """

    def __init__(self, ladder: Ladder, device_rows: DeviceRows, memory: int) -> None:
        self.ladder, self.device_rows, self.cache, self._radii = ladder, device_rows, Memory(memory), Memory(memory)
        self.diagonal: Diagonal | None = None
        self.centres: dict[tuple[int, int], int] = {}

    def __getitem__(self, key: CircleKey) -> DeviceCircle:
        return self.cache.remember(key, lambda: self._circle(key))

    def _circle(self, key: CircleKey) -> DeviceCircle:
        t = torch.from_numpy(nodes(np.exp(key.rung * RUNG_STEP), key.n_nodes)).to(self.device_rows.device)
        (Z, log_w), used = self.ladder.at(t, TORCH), key.halves[0]
        factors = None if self.diagonal is None else self.diagonal.factors(t, Z)
        circle = DeviceCircle(Z, log_w, t.log(), factors, key, self.device_rows, self.cache.budget // 4)
        if used == len(Z):
            return circle
        return replace(circle.part(slice(used)), dropped=circle.part(slice(used, None)))

    def _at_radius(self, rung: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the radius t, complex, and Z (1, r, r) and log det(I + tB) (1,) there, both real."""

        def real() -> tuple[Tensor, Tensor, Tensor]:
            t = torch.full((1,), np.exp(rung * RUNG_STEP), dtype=torch.complex128, device=self.device_rows.device)
            Z, log_det = self.ladder.at(t, TORCH)
            return t, Z.real.contiguous(), log_det.real

        return self._radii.remember(("radius", rung), real)

    def peak(self, rung: int) -> Peak | None:
        """Return the real node of this rung, in the coordinates of ``diagonal``; None if there are none."""
        diagonal = self.diagonal
        if diagonal is None:
            return None
        return self._radii.remember(("peak", rung), lambda: diagonal.peak(rung, *self._at_radius(rung)))

    def centre(self, q: Tensor, left: int, rung: int) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the rung on which each sample expects about ``left`` more items, and mean and variance there, for ``plan_from_moments``.

        Samples have items with orthonormal rows q (S, i, r), and are on this rung.
        """
        mean, variance = np.zeros(len(q)), np.ones(len(q))

        def on_rungs(log_radius: FloatArray, which: IntArray) -> tuple[FloatArray, FloatArray]:
            here = np.round(log_radius / RUNG_STEP).astype(np.int64)
            for one in np.unique(here):
                there = which[here == one]
                found = moments(self._at_radius(int(one))[1][0], q[torch.from_numpy(there).to(q.device)])
                mean[there], variance[there] = (part.cpu().numpy() for part in found)
            return mean[which], variance[which]

        found = solve_each(on_rungs, left, np.full(len(q), RUNG_STEP * rung), max_step=12 * RUNG_STEP, unit=RUNG_STEP)
        rungs = np.round(found / RUNG_STEP).astype(np.int64)
        return rungs, np.nan_to_num(mean, nan=1.0), np.maximum(np.nan_to_num(variance, nan=1.0), LEAST_VARIANCE)


def moments(R: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean tr Z and the variance tr Z − tr Z² of the remaining size, both (S,).

    Z = R − RQᵀ(QRQᵀ)⁻¹QR for one real R (r, r) and orthonormal rows Q in ``basis`` (S, i, r); no Z is formed.
    """
    i = basis.shape[1]
    right, left = basis @ R, basis @ R.T
    inner = TORCH.solve(right @ basis.mT, torch.cat([right @ left.mT, (right @ R) @ left.mT], 2))
    first, second = inner[:, :, :i], inner[:, :, i:]
    square = (R * R.T).sum() - 2 * TORCH.trace(second) + (first * first.mT).sum((1, 2))
    mean = R.trace() - TORCH.trace(first)
    return mean, mean - square


def _side_by_side(*matrices: Tensor) -> Tensor:
    """Return (r, h·2m·r) with q @ result = Re Zq, Im Zq of each of m matrices Z (h, r, r) at each node."""
    parts = torch.stack([part for Z in matrices for part in (Z.real.mT, Z.imag.mT)], 1)
    return parts.permute(2, 0, 1, 3).reshape(parts.shape[2], -1).contiguous()
