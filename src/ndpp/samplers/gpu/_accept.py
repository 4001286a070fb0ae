"""One item for each of many samples, proposed by leverage and judged in rounds: :class:`~ndpp.items.LeverageTable` side by side."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ndpp.errors import BudgetExceededError
from ndpp.samplers.gpu._streams import ROUNDS, Streams

FEW, MANY, CHEAP = 2, 4, 48
"""Candidates of a round, as multiples of the mean number needed: one sample in seven needs a second round, or one in fifty, while more
candidates cost nothing beside what is read for one. No law depends on them."""
GROWTH = 1, 1, 2, 4
"""By how much rounds grow: few samples are left for the later ones, which cost their launches and no more."""


class Accepted(NamedTuple):
    """A row for each sample, candidates looked at, and which samples met a chance outside [0, 1] and so have no row."""

    rows: Tensor
    proposals: Tensor
    bad: Tensor


def candidates(rank: int, left: int) -> int:
    """Return how many candidates a first round has where ``left`` of ``rank`` are taken on average."""
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
    values: Callable[[Tensor, Tensor | None], Tensor],
) -> Accepted:
    """Return the first candidate of each pending sample that is taken, ``values(rows, which)`` being qᵀMq.

    ``samples`` are their numbers, ``pending`` the places of those that want an item; ``which`` is None where that is all of them.
    """
    rows, proposals = torch.zeros_like(samples), torch.zeros_like(samples)
    bad = torch.zeros_like(samples, dtype=torch.bool)
    total = 0
    for turn in range(ROUNDS):
        if not len(pending):
            return Accepted(rows, proposals, bad)
        width = count * GROWTH[min(turn, len(GROWTH) - 1)]
        places, total = torch.arange(width, device=samples.device), total + width
        which = None if len(pending) == len(samples) else pending
        drawn, bar = streams.propose(table, samples if which is None else samples[which], step, turn, width)
        value = values(drawn, which)
        low, high = torch.aminmax(value / table[2][drawn], dim=1)
        off = ~((low >= -tolerance) & (high <= 1 + tolerance))
        place = torch.where(value > bar, places, width).amin(1)
        found = (place < width) & ~off
        taken = drawn.gather(1, place.clamp(max=width - 1)[:, None])[:, 0]
        rows[pending] = torch.where(found, taken, 0)
        proposals[pending] += torch.where(found, place + 1, width)
        bad[pending] = off
        pending = pending[~(found | off)]
    raise BudgetExceededError(
        f"{total} items were proposed by their leverage and rejected in {ROUNDS} rounds, where the first of them has more than are needed "
        "on average. Draw on the CPU, with a Tree.",
        count=total,
    )
