"""The memory of a device: how many samples fit; rows of Q, leverages and their alias table there."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from ndpp.items import LeverageTable
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers.gpu.kernels.propose import AliasTable
from ndpp.samplers.gpu.proposals import CEILING_FACTOR, first_round, round_of_survivors

MEMORY_SHARE = 0.8
"""Share of the free memory that samples may take; the rest is for what the estimate leaves out."""


def free_memory(device: torch.device) -> int:
    """Return the free bytes on the device, including those that torch holds in reserve; 4 GiB for CPU tensors."""
    if device.type != "cuda":
        return 4 * 2**30
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def bytes_per_sample(
    rank: int, wanted: int, stages: Iterable[tuple[int, int, int]], *, keeps_sides: bool = True
) -> int:
    """Estimate the peak memory per sample over stages (nodes kept and dropped, number of items at the end).

    On a circle with h nodes, up to n items, with c proposals per round, of which m are judged together. With sides: these (4hnr) and, on
    entering, the basis times Z² or times Z at dropped nodes, whichever are more (2hnr); products of proposals with the sides, and
    temporaries (6hnc); the proposals' rows (3cr); G⁻¹, VU and temporaries (12hn²). In coordinates: rows of the items and of the ceiling
    (8nr + 4n²); products of judged proposals with the items (4hmn), and their rows (4mr); G⁻¹, also at dropped nodes (2hn² + 2dn²); all
    proposals (4c). On any circle: the basis and a copy of it (2·wanted·r). If the estimate is too low, memory runs out and the batch is
    halved.
    """
    peak = 0
    for h, dropped, stop in stages:
        left = max(1, wanted - stop + 1)
        if keeps_sides:
            c = first_round(rank, left)
            own = h * stop * (4 * rank + 6 * c + 12 * stop) + 3 * c * rank
            own += max(h * 2 * rank, dropped * 2 * (rank + stop)) * stop
        else:
            c, m = round_of_survivors(rank, stop - 1, left, CEILING_FACTOR * left**0.5)
            own = stop * (8 * rank + 4 * stop) + 4 * m * (h * stop + rank) + 2 * (h + dropped) * stop * stop + 4 * c
        peak = max(peak, own)
    return 8 * (peak + 2 * wanted * rank + 1)


def samples_that_fit(device: torch.device, n_bytes: float) -> int:
    """Return how many samples of ``n_bytes`` bytes each fit in memory, at least one."""
    return int(max(1, MEMORY_SHARE * free_memory(device) // n_bytes))


def rows_of(kernel: LowRankKernel, device: torch.device) -> Tensor:
    """Return Q (n, r) on a device."""
    if kernel.coordinates.Q is not None:
        return torch.from_numpy(kernel.coordinates.Q).to(device)
    q = torch.empty(kernel.n_rows, kernel.rank, dtype=torch.float64, device=device)
    to_q = torch.from_numpy(kernel.coordinates.to_q).to(device)
    for block, part in kernel.x_blocks():
        q[block] = torch.from_numpy(np.array(part)).to(device).double() @ to_q
    return q


class DeviceRows:
    """Rows of Q for any rows of the support.

    ``q`` is Q (n, r) on the device, or None if Q would take more than a third of the free memory; rows are then copied from the host when
    needed.
    """

    def __init__(self, kernel: LowRankKernel, device: torch.device, index: LeverageTable | None = None) -> None:
        self.kernel, self.device = kernel, device
        index = LeverageTable.prepare(kernel) if index is None else index
        threshold, alias, leverage = (
            torch.from_numpy(np.array(part)).to(device)
            for part in (index.threshold, index.alias.astype(np.int64), index.leverage)
        )
        self.table = AliasTable(threshold, alias, leverage, kernel.n_rows)
        fits = 8 * kernel.n_rows * kernel.rank <= free_memory(device) // 3
        self.q = rows_of(kernel, device) if fits else None

    def take(self, rows: Tensor) -> Tensor:
        """Return rows of Q, shape (*rows.shape, r)."""
        if self.q is not None:
            return self.q[rows]
        q = torch.from_numpy(self.kernel.q_rows(rows.reshape(-1).cpu().numpy()))
        return q.to(self.device).view(*rows.shape, -1)
