"""Mini-batches: baskets sorted by size, so that the baskets of each size form a dense block.

A CPU needs no padding, though larger blocks may pay. On a GPU, where kernel launches cost more than arithmetic, sizes are rounded up,
and the padding refers to a row of zeros after the last item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from ndpp._types import FloatArray, IntArray
from ndpp.baskets import Baskets

CUDA_MULTIPLE = 16
"""On a GPU, sizes of baskets are rounded up to a multiple of this."""
EVALUATED = 2000
"""Baskets whose probabilities are computed at a time."""


class PackedBaskets(NamedTuple):
    """The items of many baskets in one flat tensor, smallest baskets first.

    ``blocks`` holds (start, number of baskets, size) for each size: the baskets of that size are
    ``items[start : start + number * size]``. Empty baskets have no block but count in ``n_baskets``. Padding has the id
    n_items; ``padded`` says whether there is any. ``weights`` are those of the baskets, empty ones first, relative to the mean over all
    baskets, of which a batch is a part; None if all count once.
    """

    items: torch.Tensor
    blocks: tuple[tuple[int, int, int], ...]
    n_baskets: int
    padded: bool
    weights: torch.Tensor | None = None

    def entry_weights(self) -> torch.Tensor | None:
        """Return the weight of the basket of each entry of ``items``."""
        if self.weights is None:
            return None
        sizes = torch.tensor([k for _, m, k in self.blocks for _ in range(m)], device=self.weights.device)
        return self.weights[self.n_baskets - len(sizes) :].repeat_interleave(sizes)


def pack(baskets: Baskets, which: IntArray, *, device: str | torch.device = "cpu", multiple: int = 1) -> PackedBaskets:
    """Return the baskets at the indices ``which`` as one batch, with sizes rounded up to a multiple of ``multiple`` on the CPU.

    Examples
    --------
    >>> batch = pack(Baskets.from_lists([[0, 3], [1], [2, 4]]), np.arange(3))
    >>> batch.items.tolist(), batch.blocks
    ([1, 0, 3, 2, 4], ((0, 1, 1), (1, 2, 2)))
    >>> pack(Baskets.from_lists([[0, 3], [1], [2, 4]]), np.arange(2), multiple=2).items.tolist()
    [1, 5, 0, 3]
    """
    chosen = baskets[which[np.argsort(baskets.sizes[which], kind="stable")]]
    multiple = multiple if torch.device(device).type == "cpu" else CUDA_MULTIPLE
    room = -(-chosen.sizes // multiple) * multiple
    items = np.full(room.sum(), baskets.n_items, np.int64)
    begin = np.cumsum(room) - room
    items[np.arange(len(chosen.indices)) + np.repeat(begin - chosen.indptr[:-1], chosen.sizes)] = chosen.indices
    sizes, counts = np.unique(room, return_counts=True)
    starts = np.cumsum(sizes * counts) - sizes * counts
    blocks = tuple((int(i), int(m), int(k)) for i, m, k in zip(starts, counts, sizes) if k)
    weights = None
    if (own := chosen.weights) is not None:
        weights = torch.from_numpy(own * (len(baskets) / baskets.total_weight)).to(device)
    return PackedBaskets(
        torch.from_numpy(items).to(device), blocks, len(chosen), len(items) > len(chosen.indices), weights
    )


def shuffled(rng: np.random.Generator, n_baskets: int, batch_size: int) -> Iterator[IntArray]:
    """Yield the indices of all baskets once, in random order, in batches of nearly equal length."""
    n_batches = max(1, round(n_baskets / batch_size))
    yield from np.array_split(rng.permutation(n_baskets), n_batches)


def evaluated(sizes: IntArray, log_probs: Callable[[IntArray], torch.Tensor]) -> FloatArray:
    """Return log P of baskets of these sizes, some at a time; ``log_probs`` takes the indices of baskets, smallest first."""
    out, order = np.empty(len(sizes)), np.argsort(sizes, kind="stable")
    for start in range(0, len(sizes), EVALUATED):
        which = order[start : start + EVALUATED]
        out[which] = log_probs(which).cpu().numpy()
    return out
