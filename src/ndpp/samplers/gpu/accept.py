"""One item for each of many samples, proposed by leverage and accepted in rounds: :class:`~ndpp.items.LeverageTable` side by side."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ndpp.errors import BudgetExceededError
from ndpp.samplers.gpu.streams import ROUNDS, Streams

FEW, MANY, CHEAP = 2, 4, 48
"""Candidates of a first round, as multiples of the mean number needed, and how many cost nothing next to what is read for one.

With twice the mean number one sample in seven needs a second round (e⁻²), with four times one in fifty (e⁻⁴). Chosen by the time of whole
samples on an H200 (``benchmarks/gpu.py --only small``); no distribution depends on them."""
GROWTH = 1, 1, 2, 4
"""By how much rounds grow: few samples are left for the later ones, which cost their launches and no more."""


class Accepted(NamedTuple):
    """A row for each sample, the candidates looked at, and which samples met a probability outside [0, 1]: these have no row."""

    rows: Tensor
    proposals: Tensor
    out_of_range: Tensor


def first_round(rank: int, left: int) -> int:
    """Return how many candidates a first round has when ``left`` of ``rank`` are accepted on average; a multiple of eight."""
    mean = rank / left
    few = FEW if left > 1 else 1  # for the last item candidates cost more than what is read anew in another round
    return 8 * math.ceil(max(few * mean, min(MANY * mean, CHEAP)) / 8)


def accept(
    streams: Streams,
    table: tuple[Tensor, Tensor, Tensor],
    samples: Tensor,
    pending: Tensor,
    step: int,
    count: int,
    tolerance: float,
    probabilities: Callable[[Tensor, Tensor | None], Tensor],
) -> Accepted:
    """Return the first candidate of each pending sample that is accepted.

    Parameters
    ----------
    streams, table
        Where candidates come from: random numbers, and the leverage table on the device.
    samples, pending : (S,) and (P,) Tensor
        The samples' numbers, and the places of those that want an item.
    step, count : int
        The step that the random numbers belong to, and the candidates of a first round.
    tolerance : float
        How far outside [0, 1] rounding may take a probability of acceptance.
    probabilities : callable
        ``probabilities(rows, which)`` is qᵀMq for candidates (P, c) of the samples at the places ``which``, None being all of them.
    """
    rows, proposals = torch.zeros_like(samples), torch.zeros_like(samples)
    out_of_range = torch.zeros_like(samples, dtype=torch.bool)
    total = 0
    for turn in range(ROUNDS):
        if not len(pending):
            return Accepted(rows, proposals, out_of_range)
        width = count * GROWTH[min(turn, len(GROWTH) - 1)]
        places, total = torch.arange(width, device=samples.device), total + width
        which = None if len(pending) == len(samples) else pending
        drawn, bar = streams.propose(table, samples if which is None else samples[which], step, turn, width)
        value = probabilities(drawn, which)
        low, high = torch.aminmax(value / table[2][drawn], dim=1)
        off = ~((low >= -tolerance) & (high <= 1 + tolerance))
        place = torch.where(value > bar, places, width).amin(1)
        found = (place < width) & ~off
        taken = drawn.gather(1, place.clamp(max=width - 1)[:, None])[:, 0]
        rows[pending] = torch.where(found, taken, 0)
        proposals[pending] += torch.where(found, place + 1, width)
        out_of_range[pending] = off
        pending = pending[~(found | off)]
    raise BudgetExceededError(
        f"{total} items were proposed by their leverage and rejected in {ROUNDS} rounds, where the first of them has more than are needed "
        "on average. Draw on the CPU, with a Tree.",
        count=total,
    )
