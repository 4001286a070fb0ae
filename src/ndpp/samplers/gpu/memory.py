"""How many samples a device holds side by side."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ndpp.samplers.gpu.accept import first_round

MOST_SAMPLES = 65536
"""Most samples side by side. More would make no product larger than the device is busy with anyway."""
USED = 0.8
"""Share of the free memory that samples may take; the rest is for what the estimate leaves out."""


class Stay(NamedTuple):
    """A stay on one circle, for an estimate of its memory: its number of nodes, and how many items are chosen at its end."""

    n_nodes: int
    stop: int


def free_memory(device: torch.device) -> int:
    """Return bytes free on the device, those that torch holds in reserve included; 4 GiB stand for a CPU's."""
    if device.type != "cuda":
        return 4 * 2**30
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def bytes_per_sample(rank: int, wanted: int, stays: list[Stay]) -> int:
    """Return the most memory that a sample takes on these circles.

    On a circle with h nodes, until n items are chosen, with c candidates in a round: the sides and, while entering, those of Z² (6hnr);
    products of candidates with the sides, and temporaries (6hnc); G⁻¹, VU and temporaries (12hn²); the candidates' rows (3cr). On any
    circle: the basis and a copy of it (2·wanted·r). An estimate: if it is too low, memory runs out and the batch is halved.
    """
    peak = 0
    for n_nodes, stop in stays:
        h, c = n_nodes // 2, first_round(rank, max(1, wanted - stop + 1))
        peak = max(peak, h * stop * (6 * rank + 6 * c + 12 * stop) + 3 * c * rank)
    return 8 * (peak + 2 * wanted * rank + 1)


def batch_size(device: torch.device, rank: int, wanted: int, stays: list[Stay], most: int) -> int:
    """Return for how many samples, ``most`` at most, there is memory on these circles; never less than one."""
    return int(max(1, min(most, USED * free_memory(device) // bytes_per_sample(rank, wanted, stays))))
