"""How many samples fit on a device."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ndpp.samplers.gpu.proposals import first_round, round_of_survivors

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


def bytes_per_sample(
    rank: int, wanted: int, stages: Iterable[tuple[int, int, int]], *, keeps_sides: bool = True
) -> int:
    """Estimate the peak memory per sample over stages (nodes kept and dropped, number of items at the end).

    On a circle with h nodes, up to n items, with c proposals per round: the sides (4hnr) or rows of the items (3nr); products of
    proposals with the sides, and temporaries (6hnc); G⁻¹, VU and temporaries (12hn², or 3hn² without VU), or G at dropped nodes (2dn²) on entering; sides of
    the newest item (8hr); the proposals' rows (3cr). On any circle: the basis and a copy of it (2·wanted·r). If the estimate is too low,
    memory runs out and the batch is halved.
    """
    peak = 0
    for h, dropped, stop in stages:
        left = max(1, wanted - stop + 1)
        c = first_round(rank, left) if keeps_sides else round_of_survivors(rank, stop - 1, left).proposals
        sides = h * stop * 4 * rank if keeps_sides else 3 * stop * rank
        own = sides + h * stop * (6 * c + (12 if keeps_sides else 3) * stop) + 8 * h * rank + 3 * c * rank
        peak = max(peak, own + 2 * dropped * stop * stop)
    return 8 * (peak + 2 * wanted * rank + 1)


def samples_that_fit(
    device: torch.device,
    rank: int,
    wanted: int,
    stages: Iterable[tuple[int, int, int]],
    max_samples: int,
    *,
    keeps_sides: bool = True,
) -> int:
    """Return how many samples the memory holds through these stages: at least one, at most ``max_samples``."""
    fit = MEMORY_SHARE * free_memory(device) // bytes_per_sample(rank, wanted, stages, keeps_sides=keeps_sides)
    return int(max(1, min(max_samples, fit)))
