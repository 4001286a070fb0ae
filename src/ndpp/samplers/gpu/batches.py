"""Drawing on a device in batches: what to do when its memory runs out, or when it is lost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import nullcontext

import torch
from torch import Tensor

from ndpp._types import AnyArray
from ndpp.errors import DeviceError
from ndpp.samplers.base import Draws
from ndpp.samplers.gpu.proposals import Streams

DeviceLost: type[Exception] = getattr(torch, "AcceleratorError", torch.cuda.CudaError)


class BatchEngine(ABC):
    """Draws ``batch_factor * max_samples`` samples per batch; ``max_samples`` is halved when memory runs out."""

    device: torch.device
    max_samples: int
    batch_factor: int = 1

    def draws(self, key: AnyArray, first: int, n_samples: int) -> Iterator[Draws]:
        """Yield the samples first, first + 1, … in order, some at a time.

        Raises
        ------
        DeviceError
            The memory does not hold one sample, or the device was lost. Everything yielded before is valid.
        """
        streams, times = Streams(key, self.device), self.batch_factor
        begin, last = first, first + n_samples
        # Kernels start on the current device, whatever device their arguments are on.
        here = torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()
        while begin < last:
            numbers = torch.arange(begin, min(last, begin + times * self.max_samples), device=self.device)
            try:
                with here:
                    drawn = self._draws(streams, key, numbers)
            except torch.cuda.OutOfMemoryError as error:
                if len(numbers) == 1:
                    raise DeviceError(
                        f"the memory of {self.device} does not hold one sample",
                        advice="Free some, or draw on the CPU with {device:'cpu'}.",
                    ) from error
                self.max_samples = max(1, len(numbers) // (2 * times))
                times = 1 if self.max_samples == 1 else times
                torch.cuda.empty_cache()
            except DeviceLost as error:
                raise DeviceError(
                    f"{self.device} was lost: {str(error).splitlines()[0]}",
                    advice=f"Start a new process; with the same seed, {{first:{begin}}} continues from here.",
                ) from error
            else:
                begin += len(numbers)
                yield drawn

    @abstractmethod
    def _draws(self, streams: Streams, key: AnyArray, numbers: Tensor) -> Draws:
        """Draw the samples with these consecutive numbers."""
