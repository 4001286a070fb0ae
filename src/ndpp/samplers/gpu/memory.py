"""How many samples fit on a device."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ndpp.samplers.gpu.proposals import CEILING_FACTOR, first_round, round_of_survivors

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
            turn = round_of_survivors(rank, stop - 1, left, CEILING_FACTOR * left**0.5)
            c, m = turn.proposals, turn.judged or turn.proposals
            own = stop * (8 * rank + 4 * stop) + 4 * m * (h * stop + rank) + 2 * (h + dropped) * stop * stop + 4 * c
        peak = max(peak, own)
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
