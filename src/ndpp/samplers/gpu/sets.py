"""What engines share: batches, when memory runs out or the device is lost; sets proposed until one is accepted; unions of sets."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import pdtr, pdtrik
from torch import Tensor

from ndpp._types import FloatArray, KeyArray
from ndpp.baskets import Baskets
from ndpp.errors import BudgetExceededError, DeviceError
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers.base import MAX_EMPTY, Draws
from ndpp.samplers.exact import Exact
from ndpp.samplers.gpu.kernels.propose import AliasTable, propose
from ndpp.samplers.gpu.proposals import Streams, look_up_cdf
from ndpp.samplers.gpu.spectra import alias_tables
from ndpp.samplers.proposer import MAX_PROPOSALS, Proposer, given_up

COMPONENT_STEP, HITS_STEP, ALONE_STEP = 1 << 22, (1 << 22) + 1, (1 << 22) + 2
"""Steps whose random numbers determine the component, the number of hits, and the items hit."""
ATTEMPT_BIT = 40
"""Proposal j for sample i has the number i + j · 2^40 in the streams."""
MAX_BATCH = 2**17
"""Maximum number of samples in parallel. The device is busy with fewer; with more, fewer moves and launches are needed per sample."""
DeviceLost: type[Exception] = getattr(torch, "AcceleratorError", torch.cuda.CudaError)


class DrawnSets(NamedTuple):
    """Sets (S, w) as items, after them the number of all items; their sizes (S,), −1 if rejected; counters by name, (S,) each."""

    ids: Tensor
    sizes: Tensor
    counters: dict[str, Tensor]

    def take(self, at: Tensor) -> DrawnSets:
        """Return the sets at these positions."""
        return DrawnSets(self.ids[at], self.sizes[at], {name: values[at] for name, values in self.counters.items()})

    @classmethod
    def scattered(cls, parts: Sequence[tuple[Tensor, DrawnSets]], count: int, fill: int) -> DrawnSets:
        """Return ``count`` sets, given in parts with the positions of each; counters are those that all parts have."""
        one = parts[0][1]
        ids = one.ids.new_full((count, max(part.ids.shape[1] for _, part in parts)), fill)
        names = [name for name in one.counters if all(name in part.counters for _, part in parts)]
        every = cls(ids, one.sizes.new_empty(count), {name: one.counters[name].new_empty(count) for name in names})
        for at, part in parts:
            every.ids[at, : part.ids.shape[1]], every.sizes[at] = part.ids, part.sizes
            for name in names:
                every.counters[name][at] = part.counters[name]
        return every


class BatchEngine(ABC):
    """Draws at most ``max_samples`` samples per batch, half as many when memory runs out."""

    sampler: Exact | Proposer
    device: torch.device
    max_samples: int = MAX_BATCH

    @abstractmethod
    def drawn(self, streams: Streams, key: KeyArray, numbers: Tensor) -> DrawnSets:
        """Draw the samples with these numbers; ``proposals`` and ``rejections`` are among the counters."""

    def draws(self, key: KeyArray, first: int, n_samples: int) -> Iterator[Draws]:
        """Yield the samples first, first + 1, … in order, some at a time.

        Raises
        ------
        DeviceError
            The memory does not hold one sample, or the device was lost. Everything yielded before is valid.
        """
        streams, begin, last = Streams(key, self.device), first, first + n_samples
        # Kernels start on the current device, whatever device their arguments are on.
        here = torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()
        while begin < last:
            numbers = torch.arange(begin, min(last, begin + self.max_samples), device=self.device)
            try:
                with here:
                    draws = self._draws(streams, key, numbers)
            except torch.cuda.OutOfMemoryError as error:
                if len(numbers) == 1:
                    raise DeviceError(
                        f"the memory of {self.device} does not hold one sample",
                        advice="Free some, or draw on the CPU with {device:'cpu'}.",
                    ) from error
                self.max_samples = len(numbers) // 2
                torch.cuda.empty_cache()
            except DeviceLost as error:
                raise DeviceError(
                    f"{self.device} was lost: {str(error).splitlines()[0]}",
                    advice=f"Start a new process; with the same seed, {{first:{begin}}} continues from here.",
                ) from error
            else:
                begin += len(numbers)
                yield draws

    def _draws(self, streams: Streams, key: KeyArray, numbers: Tensor) -> Draws:
        began, kernel = time.perf_counter(), self.sampler.kernel
        ids, sizes, counters = self._allowed(streams, key, numbers)
        inside = torch.arange(ids.shape[1], device=self.device) < sizes[:, None]
        ends = np.append(0, np.cumsum(sizes.cpu().numpy()))
        baskets = Baskets._trusted(ends, ids.sort(dim=1).values[inside].cpu().numpy(), kernel.n_items, kernel.labels)
        seconds = np.full(len(numbers), (time.perf_counter() - began) / len(numbers))
        return Draws(baskets, {**{name: values.cpu().numpy() for name, values in counters.items()}, "seconds": seconds})

    def _allowed(self, streams: Streams, key: KeyArray, numbers: Tensor) -> DrawnSets:
        """Draw samples, again while they are empty if the distribution leaves out the empty set."""
        if not self.sampler.kernel.nonempty:
            return self.drawn(streams, key, numbers)

        def check(tried: int) -> None:
            if tried >= MAX_EMPTY:
                raise BudgetExceededError(
                    f"{tried} sets were drawn for a sample, all of them empty, and the empty set is left out: items are too rare",
                    count=tried,
                )

        return self._first(numbers, partial(self.drawn, streams, key), lambda _, found: found.sizes > 0, check)

    def _first(
        self,
        numbers: Tensor,
        propose: Callable[[Tensor], DrawnSets],
        accept: Callable[[Tensor, DrawnSets], Tensor],
        check: Callable[[int], None],
    ) -> DrawnSets:
        """Return for each sample its first proposal that is accepted; its counters include the proposals before it.

        ``propose(index)`` returns sets for numbers in the streams, and ``accept(index, sets)`` which of them are accepted; ``check(tried)``
        raises if ``tried`` proposals for one sample exceed the budget.
        """
        pending, rejected = torch.arange(len(numbers), device=numbers.device), torch.zeros_like(numbers)
        found, tried = list[tuple[Tensor, DrawnSets]](), 0
        while len(pending):
            check(tried)
            # Once few samples are left, each makes many proposals at once. Its first success counts, however many are made.
            n_each = max(1, min(self.max_samples // len(pending), tried + 1))
            index = numbers[pending, None] + (torch.arange(tried, tried + n_each, device=numbers.device) << ATTEMPT_BIT)
            proposed = propose(index.view(-1))
            good = accept(index.view(-1), proposed).view(-1, n_each)
            done, place = good.any(1), good.int().argmax(1)
            cost = proposed.counters["proposals"].view(-1, n_each)
            before = rejected[pending] + (cost.cumsum(1) - cost).gather(1, place[:, None])[:, 0]
            taken = proposed.take((torch.arange(len(pending), device=numbers.device) * n_each + place)[done])
            for name in ("proposals", "rejections"):
                taken.counters[name].add_(before[done])
            found.append((pending[done], taken))
            rejected[pending] += cost.sum(1)
            pending, tried = pending[~done], tried + n_each
        return DrawnSets.scattered(found, len(numbers), self.sampler.kernel.n_items)


class LawEngine(BatchEngine):
    """Draws from sets that are proposed for many samples at once; ``size`` is the number of items to propose, if not any number."""

    sampler: Proposer
    size: int | None

    @abstractmethod
    def propose(self, streams: Streams, key: KeyArray, index: Tensor) -> DrawnSets:
        """Return a set for each number in the streams, without the given items."""

    def accept(self, streams: Streams, index: Tensor, proposed: DrawnSets) -> Tensor:
        """Return which of the sets that were proposed for numbers in the streams are accepted."""
        return proposed.sizes >= 0 if self.size is None else proposed.sizes == self.size

    def check(self, tried: int) -> None:
        """Raise if ``tried`` proposals for one sample exceed the budget."""
        if tried >= MAX_PROPOSALS:
            raise given_up(tried, within_limits=False)

    def drawn(self, streams: Streams, key: KeyArray, numbers: Tensor) -> DrawnSets:
        """Draw the samples with these numbers."""

        def propose(index: Tensor) -> DrawnSets:
            proposed, one = self.propose(streams, key, index), torch.ones_like(index)
            return proposed._replace(counters={**proposed.counters, "proposals": one, "rejections": one - 1})

        found = self._first(numbers, propose, partial(self.accept, streams), self.check)
        given = torch.from_numpy(self.sampler.given).to(self.device).expand(len(numbers), -1)
        return found._replace(ids=torch.cat([found.ids, given], 1), sizes=found.sizes + given.shape[1])


def look_up_component(cdf: Tensor, streams: Streams, index: Tensor) -> Tensor:
    """Return the component of each number in the streams, as a position in ``cdf`` (C,)."""
    return look_up_cdf(cdf, streams.uniform(index, COMPONENT_STEP))


def items_of(kernel: LowRankKernel, device: torch.device) -> Tensor:
    """Return the items of the support, and after them the number of all items (n + 1,)."""
    return torch.from_numpy(np.append(kernel.catalogue_ids(np.arange(kernel.n_rows)), kernel.n_items)).to(device)


class AloneTables(NamedTuple):
    """R of C components: :class:`ndpp.samplers.unions.Alone` for many samples. P(N ≤ k) of the number of hits (C, m), and what they hit."""

    cdf: Tensor
    table: AliasTable

    @classmethod
    def of(cls, odds: FloatArray, device: torch.device) -> AloneTables:
        """Tabulate the hits of items with these odds (C, n): Poisson(log(1 + o)) of each."""
        rates = np.log1p(odds)
        mean = rates.sum(axis=1)
        most = int(pdtrik(1 - 1e-16, float(mean.max()))) + 20 if mean.max() > 0 else 0
        cdf = np.asarray(pdtr(np.arange(most + 1), mean[:, None]))
        cdf[:, -1] = 1.0
        return cls(torch.from_numpy(cdf).to(device), alias_tables(rates, device))

    def draw(self, streams: Streams, which: Tensor, index: Tensor) -> Tensor:
        """Return R of samples of these components (S,), as rows of the support with repetitions; after them, their number."""
        starts, coins = which * self.table.n_rows, streams.uniform(index, HITS_STEP)
        count = torch.searchsorted(self.cdf[which], coins[:, None], right=True)
        rows, _ = propose(self.table, starts, *streams.counters(index), ALONE_STEP, 0, max(1, int(count.max())))
        places = torch.arange(rows.shape[1], device=index.device)
        return torch.where(places < count, rows - starts[:, None], self.table.n_rows)


def union(rows: Tensor, fill: int) -> tuple[Tensor, Tensor]:
    """Return rows (S, w) sorted, without repetitions and filled up with ``fill``, and how many there are."""
    rows = rows.sort(dim=1).values
    rows[:, 1:][rows[:, 1:] == rows[:, :-1]] = fill
    sizes = (rows < fill).sum(1)
    return rows.sort(dim=1).values[:, : int(sizes.max())], sizes
