"""Batches of samples on a device that may run out of memory or be lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ndpp._types import IntArray
from ndpp.baskets import Baskets
from ndpp.errors import DeviceError
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers.base import Draws


class Limited(Protocol):
    """What draws in batches: on a device, at most so many samples at a time."""

    device: torch.device
    most: int


LOST = getattr(torch, "AcceleratorError", torch.cuda.CudaError)


def in_batches(
    engine: Limited, draw: Callable[[Tensor], Draws], first: int, n_samples: int, times: int = 1
) -> Iterator[Draws]:
    """Yield ``draw`` of the samples first, first + 1, …, at most ``times·engine.most`` at a time; ``most`` is halved if memory runs out.

    Raises
    ------
    DeviceError
        The memory does not hold one sample, or the device was lost. What was yielded before is sound.
    """
    begin, last = first, first + n_samples
    while begin < last:
        samples = torch.arange(begin, min(last, begin + times * engine.most), device=engine.device)
        # Kernels start on the current device, whatever device their arguments are on.
        here = torch.cuda.device(engine.device) if engine.device.type == "cuda" else nullcontext()
        try:
            with here:
                drawn = draw(samples)
        except torch.cuda.OutOfMemoryError as error:
            if len(samples) == 1:
                raise DeviceError(
                    f"the memory of {engine.device} does not hold one sample. Free some, or draw on the CPU (device=None)."
                ) from error
            engine.most = max(1, len(samples) // (2 * times))
            times = 1 if engine.most == 1 else times
            torch.cuda.empty_cache()
            continue
        except LOST as error:
            raise DeviceError(
                f"{engine.device} was lost: {str(error).splitlines()[0]}. Start a new process; with the same seed, "
                f"first={begin} goes on from here."
            ) from error
        begin += len(samples)
        yield drawn


def baskets_of(kernel: LowRankKernel, rows: Tensor, sizes: IntArray) -> Baskets:
    """Return the baskets of rows (S, k) of the support; row i holds ``sizes[i]`` of them, and then numbers above all rows."""
    ids = kernel.catalogue_ids(torch.sort(rows, dim=1).values.cpu().numpy()[np.arange(rows.shape[1]) < sizes[:, None]])
    return Baskets._trusted(np.append(0, np.cumsum(sizes)), ids, kernel.n_items, kernel.labels)
