"""Mini-batches: baskets sorted by size, so that the baskets of each size form a dense block.

A CPU needs no padding, though larger blocks may pay. On a GPU, where kernel launches cost more than arithmetic, sizes are rounded up,
and the padding refers to a row of zeros after the last item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from ndpp._types import AnyArray, FloatArray, IntArray
from ndpp._validation import by_name
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.laws.gate import words_of

CUDA_MULTIPLE = 16
"""On a GPU, sizes of baskets are rounded up to a multiple of this."""
EVALUATED = 2000
"""Baskets whose probabilities are computed at a time."""


@dataclass(frozen=True, eq=False, repr=False)
class WeightedBaskets(Baskets):
    """Baskets that count ``weights`` times each, as if they were repeated, in ``context``. Parts of them keep both."""

    weights: FloatArray | None = None
    context: Mapping[str, AnyArray] = field(default_factory=dict)
    """Columns with a word for each basket."""

    @classmethod
    def of(cls, baskets: Baskets, weights: FloatArray | None, context: Mapping[str, AnyArray] | None = None) -> Baskets:
        """Return the baskets with weights and context, or as they are without."""
        if weights is None and not context:
            return baskets
        made = cls._trusted(baskets.indptr, baskets.indices, baskets.n_items, baskets.labels, baskets.basket_ids)
        for name, value in {"weights": weights, "context": context or {}}.items():
            object.__setattr__(made, name, value)
        return made

    @cached_property
    def mean_weight(self) -> float:
        """The mean of the weights."""
        return float(np.mean(1.0 if self.weights is None else self.weights))

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        if not isinstance(part, Baskets):
            return part
        key = key if isinstance(key, slice) or len(key) else slice(0)
        context = {name: words[key] for name, words in self.context.items()}
        return self.of(part, None if self.weights is None else self.weights[key], context)


def weighted(baskets: Baskets, weights: Any, name: str) -> Baskets:
    """Return the baskets with their weights, without those whose weight is zero."""
    if weights is None:
        return baskets
    values = np.asarray(weights) if baskets.basket_ids is None and not isinstance(weights, Mapping) else weights
    if np.ndim(values) != 1 and not isinstance(values, Mapping):
        raise InvalidInputError(f"must be one number per basket; got the shape {np.shape(values)}", argument=name)
    found, has = by_name(values, baskets.basket_ids, len(baskets), name)
    if not has.all():
        lacking = baskets.ids_or_numbers[int(np.argmin(has))]
        raise InvalidInputError(
            f"lacks {np.sum(~has):,} of {len(has):,} baskets, such as {lacking!r}", argument=name,
            advice="Give each a weight, in their order as an array, or by the ids of the baskets.",
        )  # fmt: skip
    array = np.asarray(found, np.float64)
    if not np.isfinite(array).all() or (array < 0).any() or not array.any():
        raise InvalidInputError("must be finite numbers, at least zero and not all zero", argument=name)
    return WeightedBaskets.of(baskets, array, context_of(baskets))[array > 0]


def in_context(baskets: Baskets, context: Any, name: str) -> Baskets:
    """Return the baskets with columns of context, from a mapping or data frame with a value of each column per basket."""
    if context is None:
        return baskets
    if not hasattr(context, "keys") and not hasattr(context, "columns"):
        raise InvalidInputError(
            f"must be a mapping from columns to a value per basket; got {context!r:.60}", argument=name
        )
    columns = {str(column): words_of(context[column]) for column in getattr(context, "columns", None) or context}
    for column, words in columns.items():
        if len(words) != len(baskets):
            problem = f"must have {len(baskets):,} values of {column!r}, one per basket; got {len(words):,}"
            raise InvalidInputError(problem, argument=name)
    return WeightedBaskets.of(baskets, weights_of(baskets), columns)


def context_of(baskets: Baskets) -> Mapping[str, AnyArray]:
    """Return the columns of context of the baskets, as words."""
    return baskets.context if isinstance(baskets, WeightedBaskets) else {}


def weights_of(baskets: Baskets) -> FloatArray | None:
    """Return the weights of the baskets; None if all count once."""
    return baskets.weights if isinstance(baskets, WeightedBaskets) else None


def total_weight(baskets: Baskets) -> float:
    """Return how many baskets there are, by weight."""
    return float(np.sum(weights)) if (weights := weights_of(baskets)) is not None else len(baskets)


class Batch(NamedTuple):
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


def pack(baskets: Baskets, which: IntArray, *, device: str | torch.device = "cpu", multiple: int = 1) -> Batch:
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
    if isinstance(baskets, WeightedBaskets) and (own := weights_of(chosen)) is not None:
        weights = torch.from_numpy(own / baskets.mean_weight).to(device)
    return Batch(torch.from_numpy(items).to(device), blocks, len(chosen), len(items) > len(chosen.indices), weights)


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
