"""Circles of the ladder on the device, and which one suits a sample: planned by mean and variance, for many samples at once."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ndpp._types import IntArray
from ndpp.linalg import Coordinates, nodes
from ndpp.linalg.minors import row_basis
from ndpp.samplers.exact.ladder import Ladder
from ndpp.samplers.exact.monitors import RUNG
from ndpp.samplers.exact.plan import plan_circle
from ndpp.samplers.gpu._catalogue import Catalogue


@dataclass(eq=False)
class Circle:
    """Z at the h nodes of one circle, shared by every sample on it.

    ``sides`` (r, h·4·r) turns a row q into Re Zq, Im Zq, Re Zᵀq, Im Zᵀq at each node, ``squares`` does so for Z²; ``trace`` is tr Z.
    """

    sides: Tensor
    squares: Tensor
    trace: Tensor
    log_w: Tensor
    log_t: Tensor
    catalogue: Catalogue
    memory: int
    looked_up: int = 0

    @cached_property
    def table(self) -> Tensor | None:
        """(n, 2h): qᵀZq of every item, real and imaginary parts side by side; None where memory does not allow it."""
        q = self.catalogue.q
        return None if q is None or q.element_size() * 2 * self.half * len(q) > self.memory else self.forms(q)

    def table_for(self, uses: int) -> Tensor | None:
        """Return the table for so many more rows to look up; None until as many were wanted as it has, when it pays to make it."""
        self.looked_up += uses
        return self.table if self.looked_up >= self.catalogue.kernel.n_rows else None

    @cached_property
    def square_columns(self) -> Tensor:
        """(r, h·2·r): the part of ``squares`` that gives Z²q alone."""
        return _columns(self.squares, self.half)

    @property
    def half(self) -> int:
        """Number of nodes h."""
        return len(self.log_w)

    @property
    def n_bytes(self) -> int:
        """Bytes held."""
        table = self.__dict__.get("table")
        return self.sides.nbytes + self.squares.nbytes + (0 if table is None else table.nbytes)

    def forms(self, q: Tensor) -> Tensor:
        """Return qᵀZq for rows q (m, r), shape (m, 2h)."""
        r = q.shape[1]
        sides = _columns(self.sides, self.half)
        out = torch.empty((len(q), 2 * self.half), dtype=q.dtype, device=q.device)
        block = max(1, 2**26 // max(1, sides.shape[1]))
        for start in range(0, len(q), block):
            part = q[start : start + block]
            out[start : start + block] = torch.einsum("mjr,mr->mj", (part @ sides).view(len(part), -1, r), part)
        return out


class Circles:
    """The ladder's circles on one device, made when first wanted and kept within ``memory`` bytes."""

    def __init__(self, ladder: Ladder, catalogue: Catalogue, memory: int) -> None:
        self.ladder, self.catalogue, self.memory = ladder, catalogue, memory
        self._kept: OrderedDict[tuple[int, int], Circle] = OrderedDict()
        self._real: dict[int, Tensor] = {}

    def __getitem__(self, key: tuple[int, int]) -> Circle:
        if key not in self._kept:
            self._kept[key] = self._make(*key)
            while len(self._kept) > 1 and sum(circle.n_bytes for circle in self._kept.values()) > self.memory:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def _make(self, rung: int, count: int) -> Circle:
        t = torch.from_numpy(nodes(np.exp(rung * RUNG), count)).to(self.catalogue.device)
        Z, log_w = self._at(t)
        trace = Z.diagonal(dim1=1, dim2=2).sum(1)
        return Circle(_sides(Z), _sides(Z @ Z), trace, log_w, t.log(), self.catalogue, self.memory // 4)

    def _at(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return Z(t) and log w(t) given the ladder's items; what :class:`Ladder` computes, on the device."""
        R, log_w = _resolvent(self.ladder.coords, t)
        if not len(self.ladder.given):
            return R, log_w
        rows, height = row_basis(self.ladder.given)
        basis = torch.from_numpy(rows).to(R)
        right = basis @ R
        minor = right @ basis.T
        sign, log_abs = torch.linalg.slogdet(minor)
        Z = R - (R @ basis.T) @ torch.linalg.solve(minor, right)
        return Z, log_w + log_abs + sign.log() + 2 * float(np.log(height).sum())

    # -- the plan ----------------------------------------------------------------------------------------------------------------

    def plan(self, q: Tensor, left: int, rung: IntArray) -> list[tuple[int, int]]:
        """Return the circle that suits each sample, for orthonormal rows q (S, i, r) of its items and a rung to begin at."""
        rungs, mean, variance = self._centre(q, left, rung)
        out = []
        for at, m, v in zip(rungs, mean, variance):
            shift, count = plan_circle(float(m), float(v), left)
            out.append((2 * ((int(at) + round(shift / RUNG)) // 2), count))
        return out

    def _centre(self, q: Tensor, left: int, rung: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return where about ``left`` more items are expected, with mean and variance there: Exact's Newton steps, sample by sample."""
        rung, low, high = rung.copy(), np.full(len(q), -(10**9)), np.full(len(q), 10**9)
        mean, variance, open_ = np.zeros(len(q)), np.ones(len(q)), np.ones(len(q), bool)
        for _ in range(100):
            for at in np.unique(rung[open_]):
                here = np.flatnonzero(open_ & (rung == at))
                mean[here], variance[here] = self._moments(q[torch.from_numpy(here).to(q.device)], int(at))
            variance = np.maximum(variance, 1e-3)
            step = np.round(np.clip((left - mean) / (variance * RUNG), -12, 12)).astype(np.int64)
            open_ &= ~((step == 0) | (np.abs(mean - left) <= 0.3) | ~np.isfinite(mean))
            low, high = np.where(open_ & (step > 0), rung, low), np.where(open_ & (step < 0), rung, high)
            open_ &= high - low >= 2
            inside = (low < rung + step) & (rung + step < high)
            rung = np.where(open_, np.where(inside, rung + step, (low + high) // 2), rung)
            if not open_.any():
                break
        return rung, np.nan_to_num(mean, nan=1.0), np.nan_to_num(variance, nan=1.0)

    def _moments(self, q: Tensor, rung: int) -> tuple[IntArray, IntArray]:
        """Return mean tr Z and variance tr Z − tr Z² of the number still to come, Z = R − RQᵀ(QRQᵀ)⁻¹QR at the real radius."""
        if rung not in self._real:
            t = torch.full((1,), np.exp(rung * RUNG), dtype=torch.complex128, device=q.device)
            self._real[rung] = self._at(t)[0][0].real.contiguous()
        R = self._real[rung]
        right, left = q @ R, q @ R.T
        inner = torch.linalg.solve_ex(right @ q.mT, torch.cat([right @ left.mT, (right @ R) @ left.mT], 2))[0]
        first, second = inner.split(q.shape[1], 2)
        square = (R * R.T).sum() - 2 * second.diagonal(dim1=1, dim2=2).sum(1) + (first * first.mT).sum((1, 2))
        mean = R.trace() - first.diagonal(dim1=1, dim2=2).sum(1)
        return mean.cpu().numpy(), (mean - square).cpu().numpy()


def _resolvent(coords: Coordinates, t: Tensor) -> tuple[Tensor, Tensor]:
    """Return tB(I + tB)⁻¹ and log det(I + tB): :func:`ndpp.linalg.resolvent` on the device."""
    B, scale = (torch.from_numpy(part).to(t.device) for part in (coords.B, coords.scale))
    eye = torch.eye(len(B), dtype=t.dtype, device=t.device)
    balance = torch.clamp(t.abs().sqrt()[:, None] * scale, min=1.0)
    both = balance[:, :, None] * balance[:, None, :]
    LU, pivots, _ = torch.linalg.lu_factor_ex((eye + t[:, None, None] * B) / both)
    swaps = (pivots != torch.arange(1, len(B) + 1, device=t.device)).sum(1) % 2
    log_det = LU.diagonal(dim1=1, dim2=2).log().sum(1) + 2 * balance.log().sum(1) + 1j * (torch.pi * swaps.double())
    inverse = torch.linalg.lu_solve(LU, pivots, eye.expand_as(LU)) / both
    R = eye - inverse
    small = t.abs().max().sqrt() * scale < 0.5
    R[:, :, small] = t[:, None, None] * (inverse @ B[:, small].to(inverse))
    return R, log_det


def _columns(sides: Tensor, half: int) -> Tensor:
    r = len(sides)
    return sides.view(r, half, 4, r)[:, :, :2].reshape(r, -1)


def _sides(Z: Tensor) -> Tensor:
    """Return (r, h·4·r) with q @ sides = Re Zq, Im Zq, Re Zᵀq, Im Zᵀq at each node."""
    parts = torch.stack([Z.real.mT, Z.imag.mT, Z.real, Z.imag], 1)  # (h, 4, r, r)
    return parts.permute(2, 0, 1, 3).reshape(Z.shape[1], -1).contiguous()
