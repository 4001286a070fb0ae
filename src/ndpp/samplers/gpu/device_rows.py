"""Rows of Q, leverages and their alias table on the device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ndpp.items import ItemIndex, LeverageTable
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers.gpu.kernels.propose import AliasTable
from ndpp.samplers.gpu.memory import free_memory


class DeviceRows:
    """Rows of Q for any rows of the support.

    ``q`` is Q (n, r) on the device, or None if Q would take more than a third of the free memory; rows are then copied from the host when
    needed.
    """

    def __init__(self, kernel: LowRankKernel, device: torch.device, index: ItemIndex | None = None) -> None:
        self.kernel, self.device = kernel, device
        index = index if isinstance(index, LeverageTable) else LeverageTable.prepare(kernel)
        threshold, alias, leverage = (
            torch.from_numpy(np.array(part)).to(device)
            for part in (index.threshold, index.alias.astype(np.int64), index.leverage)
        )
        self.table = AliasTable(threshold, alias, leverage, kernel.n_rows)
        fits = 8 * kernel.n_rows * kernel.rank <= free_memory(device) // 3
        self.q = self._all_rows() if fits else None

    def _all_rows(self) -> Tensor:
        kernel = self.kernel
        if kernel.coordinates.Q is not None:
            return torch.from_numpy(kernel.coordinates.Q).to(self.device)
        q = torch.empty(kernel.n_rows, kernel.rank, dtype=torch.float64, device=self.device)
        to_q = torch.from_numpy(kernel.coordinates.to_q).to(self.device)
        for block, part in kernel.x_blocks():
            q[block] = torch.from_numpy(np.array(part)).to(self.device).double() @ to_q
        return q

    def take(self, rows: Tensor) -> Tensor:
        """Return rows of Q, shape (*rows.shape, r)."""
        if self.q is not None:
            return self.q[rows]
        q = torch.from_numpy(self.kernel.q_rows(rows.reshape(-1).cpu().numpy()))
        return q.to(self.device).view(*rows.shape, -1)
