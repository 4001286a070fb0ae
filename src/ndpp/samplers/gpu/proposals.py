"""One item for each of many samples, proposed by leverage and accepted in rounds: :class:`~ndpp.items.LeverageTable` in parallel.

Random numbers are a function of seed, sample, step and place. None are consumed in sequence, so batches, groups and rounds cannot change
what a sample sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ndpp._types import KeyArray
from ndpp.errors import BudgetExceededError
from ndpp.samplers.gpu.kernels.propose import MASK, AliasTable, propose, uniforms

MAX_ROUNDS = 256
"""Maximum number of rounds per step."""
ROUND_FACTOR, CHEAP_ROUND_FACTOR, CHEAP_PROPOSALS = 2, 4, 48
"""Proposals in a first round, as multiples of the expected number; the larger multiple applies up to a number that costs next to nothing.
With twice the expected number, one sample in seven needs a second round (e⁻²); with four times, one in fifty (e⁻⁴). Chosen by timing whole
samples on an H200 (``benchmarks/gpu.py --only small``); no distribution depends on them."""
SURVIVORS_FACTOR, MAX_BOUNDED_PROPOSALS, JUDGED_FACTOR, JUDGED_STEP = 2.5, 256, 1, 2
"""If bounds are computed first, proposals in a first round, and how many of those that pass their bound are judged together, as multiples
of the expected numbers: bounds cost little. Chosen by timing on an H200."""
CEILING_FACTOR = 2.5
"""√2π: the ceiling is used once the rank left exceeds this times left^1.5, where left bounds the variance of the size; earlier, what
items leave of the leverage is the better bound."""
ROUND_GROWTH, SURVIVORS_GROWTH = (1, 1, 2, 4), (1, 3, 8, 16)
"""Growth of later rounds, in which few samples are left and launches dominate the cost; the second if bounds are computed first."""

Probabilities: TypeAlias = Callable[[Tensor, Tensor | None], Tensor]
"""A number for each proposal (P, c) of the samples at some positions (P,), or of all samples (None)."""


class Streams:
    """The random numbers of one seed on one device."""

    def __init__(self, key: KeyArray, device: torch.device) -> None:
        self.key = int(key[0]) & MASK, int(key[0]) >> 32
        self.device = device
        self._flip = int(np.uint64(key[1]).astype(np.int64))  # distinct samples stay distinct

    def counters(self, samples: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Return the part of the counter that distinguishes samples (S,), and the key: what :mod:`.kernels.propose` takes."""
        return samples ^ self._flip, self.key

    def uniform(self, samples: Tensor, step: int) -> Tensor:
        """Return the first uniform of a step for each sample (S,)."""
        return uniforms(*self.counters(samples), step, 0, 1)[0][:, 0]


def flipped(key: KeyArray, bits: int) -> KeyArray:
    """Return the key of other streams."""
    return np.asarray(key, np.uint64) ^ np.array([0, bits % 2**64], np.uint64)


def look_up_cdf(cdf: Tensor, uniforms: Tensor) -> Tensor:
    """Return an index for each uniform in [0, 1), by the sums of weights ``cdf`` (m,): :func:`ndpp.items.base.look_up_cdf` on a device.

    Rows of uniforms (P, c) are looked up in rows of sums (P, m).
    """
    total = cdf[..., -1:].contiguous()
    return torch.minimum(torch.searchsorted(cdf, uniforms * total, right=True), torch.searchsorted(cdf, total))


class Accepted(NamedTuple):
    """The accepted row of each sample, the number of proposals, and which samples met a probability outside [0, 1] and have no row."""

    rows: Tensor
    proposals: Tensor
    out_of_range: Tensor


def first_round(rank: int, left: int) -> int:
    """Return the number of proposals in a first round, a multiple of eight, if ``left`` out of ``rank`` are accepted on average."""
    mean = rank / left
    # For the last item, proposals cost more than what another round reads again.
    factor = ROUND_FACTOR if left > 1 else 1
    return 8 * math.ceil(max(factor * mean, min(CHEAP_ROUND_FACTOR * mean, CHEAP_PROPOSALS)) / 8)


def ceiling_pays(rank: int, n: int, left: int) -> bool:
    """Tell whether the ceiling bounds more than what n items leave of the leverage."""
    return rank - n >= CEILING_FACTOR * left * math.sqrt(left)


def round_of_survivors(rank: int, n: int, left: int, ceiling: float) -> tuple[int, int]:
    """Return the number of proposals in a first round, and how many of those that pass their bounds are judged together.

    Samples have n items, and ``left`` to come. On average (rank − n)/left proposals that pass the first bound are needed, and ``ceiling``
    that pass the second.
    """
    needed = min((rank - n) / left, ceiling)  # the first if the ceiling is not a number
    proposals = 8 * math.ceil(min(SURVIVORS_FACTOR * rank / left, max(MAX_BOUNDED_PROPOSALS, rank / left)) / 8)
    return proposals, min(proposals, max(JUDGED_STEP, JUDGED_STEP * round(JUDGED_FACTOR * needed / JUDGED_STEP)))


def accept(
    streams: Streams,
    table: AliasTable,
    samples: Tensor,
    pending: Tensor,
    step: int,
    count: int,
    tolerance: float,
    probabilities: Probabilities,
    starts: Tensor | None = None,
    bounds: Probabilities | None = None,
    judged: int = 0,
) -> Accepted:
    """Return the first accepted proposal of each sample.

    ``samples`` (S,) are numbers, ``pending`` the positions of those that need an item, ``count`` the proposals in the first round, and
    ``tolerance`` how far rounding may move an acceptance probability outside [0, 1]. ``probabilities`` are qᵀMq. ``starts`` (S,) is where
    the table of each sample starts, if there are several. ``bounds`` are upper bounds of ``probabilities`` that cost less: proposals that
    they reject are not judged, and of the others ``judged`` together.
    """
    starts = torch.zeros_like(samples) if starts is None else starts
    rows, proposals = torch.zeros_like(samples), torch.zeros_like(samples)
    out_of_range = torch.zeros_like(samples, dtype=torch.bool)
    total, growth = 0, ROUND_GROWTH if bounds is None else SURVIVORS_GROWTH
    for turn in range(MAX_ROUNDS):
        if not len(pending):
            return Accepted(rows, proposals, out_of_range)
        times = growth[min(turn, len(growth) - 1)]
        width = count * times
        places = torch.arange(width, device=samples.device)
        which = None if len(pending) == len(samples) else pending
        first, index = (starts, samples) if which is None else (starts[which], samples[which])
        proposed, threshold = propose(table, first, *streams.counters(index), step, total, width)
        total += width
        bound = leverage = table.leverage[proposed]
        if bounds is None:
            value = probabilities(proposed, which)
        else:
            bound = bounds(proposed, which)
            value = _of_survivors(proposed, threshold, bound, pending, which, judged * times, probabilities)
        low, high = torch.aminmax(value / leverage, dim=1).min, ((value - bound) / leverage).amax(1)
        off = ~((low >= -tolerance) & (high <= tolerance))
        place = torch.where(value > threshold, places, width).amin(1)
        found = (place < width) & ~off
        taken = proposed.gather(1, place.clamp(max=width - 1)[:, None])[:, 0]
        rows[pending] = torch.where(found, taken, 0)
        proposals[pending] += torch.where(found, place + 1, width)
        out_of_range[pending] = off
        pending = pending[~(found | off)]
    raise BudgetExceededError(
        f"{total} items were proposed by their leverage and rejected in {MAX_ROUNDS} rounds, although the first round alone has more than "
        "are needed on average. Draw on the CPU.",
        count=total,
    )


def _of_survivors(
    proposed: Tensor,
    threshold: Tensor,
    bound: Tensor,
    pending: Tensor,
    which: Tensor | None,
    judged: int,
    probabilities: Probabilities,
) -> Tensor:
    """Return the probabilities of proposals (P, c), up to the first that exceeds its threshold; zero for those whose bounds do not.

    Of each sample, ``judged`` survivors are judged together, and then more and more, until one is accepted.
    """
    hopeful, value = bound > threshold, torch.zeros_like(threshold)
    order, count = torch.argsort((~hopeful).to(torch.uint8), dim=1, stable=True), hopeful.sum(1)
    places = order[:, :judged]
    value.scatter_(1, places, probabilities(proposed.gather(1, places), which))
    first, stop, turn = 0, judged, 1
    while stop < proposed.shape[1]:
        some = ((count > stop) & ~(value > threshold).any(1)).nonzero()[:, 0]
        if not len(some):
            break
        first, stop = stop, stop + judged * ROUND_GROWTH[min(turn, len(ROUND_GROWTH) - 1)]
        places = order[some, first:stop]
        found = probabilities(proposed[some].gather(1, places), pending[some])
        value[some] = value[some].scatter(1, places, found)
        turn += 1
    return value
