"""How many samples fit on a device."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ndpp.samplers.gpu.proposals import first_round

MAX_SAMPLES = 65536
"""Maximum number of samples in parallel. The device is busy with fewer; more would only take memory."""
MEMORY_SHARE = 0.8
"""Share of the free memory that samples may take; the rest is for what the estimate leaves out."""


def free_memory(device: torch.device) -> int:
    """Return the free bytes on the device, including those that torch holds in reserve; 4 GiB for CPU tensors."""
    if device.type != "cuda":
        return 4 * 2**30
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def bytes_per_sample(rank: int, wanted: int, stages: Iterable[tuple[int, int, int]]) -> int:
    """Estimate the peak memory per sample over stages (nodes kept and dropped, number of items at the end).

    On a circle with h nodes, up to n items, with c proposals per round: the sides (4hnr) and, on entering, the basis times Z² or times Z
    at dropped nodes, whichever are more (2hnr); products of proposals with the sides, and temporaries (6hnc); G⁻¹, VU and temporaries
    (12hn²); the proposals' rows (3cr). On any circle: the basis and a copy of it (2·wanted·r). If the estimate is too low, memory runs out
    and the batch is halved.
    """
    peak = 0
    for h, dropped, stop in stages:
        c = first_round(rank, max(1, wanted - stop + 1))
        own = h * stop * (4 * rank + 6 * c + 12 * stop) + 3 * c * rank
        peak = max(peak, own + max(h * 2 * rank, dropped * 2 * (rank + stop)) * stop)
    return 8 * (peak + 2 * wanted * rank + 1)


def samples_that_fit(
    device: torch.device, rank: int, wanted: int, stages: Iterable[tuple[int, int, int]], max_samples: int
) -> int:
    """Return how many samples the memory holds through these stages: at least one, at most ``max_samples``."""
    fit = MEMORY_SHARE * free_memory(device) // bytes_per_sample(rank, wanted, stages)
    return int(max(1, min(max_samples, fit)))
