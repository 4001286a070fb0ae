"""Samples of a symmetric kernel by its eigenvectors: :mod:`ndpp.samplers.exact.spectral` for many samples at once.

Every sample chooses as many eigenvectors of Z as it wants items, the rows of V (k, r), and draws from the projection onto them. The
coordinates of an item are y = Vq. With an orthonormal basis E of the coordinates of the items chosen so far,

    P(a is the next item) ∝ ‖y‖² − ‖Ey‖²,

and items are proposed by leverage, as everywhere. V is never changed, and E has at most k rows of k numbers.

Monitor, on every proposal: acceptance probabilities lie within [0, 1]. A sample that fails it is drawn on the CPU, from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ndpp.errors import PrecisionError
from ndpp.samplers.exact.routes import Done
from ndpp.samplers.exact.spectral import Spectrum
from ndpp.samplers.gpu.group import Context, Samples, orthonormal
from ndpp.samplers.gpu.kernels.propose import choose
from ndpp.samplers.gpu.memory import samples_that_fit
from ndpp.samplers.gpu.proposals import accept, first_round

CHOICE_STEP = 1 << 18
"""The step whose random numbers choose eigenvectors. Items use the steps below."""


class Projections:
    """Samples of ``wanted`` items of a symmetric kernel. ``rng(i)`` is the CPU's stream of sample i, used if the CPU must draw it."""

    def __init__(self, context: Context, rng: Callable[[int], np.random.Generator], wanted: int) -> None:
        self.context, self.rng, self.wanted = context, rng, wanted
        sampler, device = context.sampler, context.device_rows.device
        key, coords, given = ("eigenvectors in Q", wanted), sampler.kernel.coordinates, sampler.ladder.given
        spectrum = sampler.ladder.cache.remember(key, lambda: Spectrum.of(coords, given, wanted))
        self.vectors, self.chance, self.heads = (torch.from_numpy(part).to(device) for part in spectrum)

    @property
    def fit(self) -> int:
        """How many samples the memory holds."""
        k, r = self.wanted, self.vectors.shape[1]
        c = max(first_round(r, k), first_round(r, 1))
        numbers = 2 * k * r + c * (2 * r + 4 * k + 8) + 2 * k * k
        return samples_that_fit(self.vectors.device, 8 * numbers)

    def draw(self, numbers: Tensor) -> Samples:
        """Return the samples with these numbers."""
        streams, items, k = self.context.streams, self.context.device_rows, self.wanted
        chosen = choose(self.chance, self.heads, *streams.counters(numbers), CHOICE_STEP)
        samples, V = Samples.begin(numbers, k, k), self.vectors[chosen]
        alive = torch.ones_like(numbers, dtype=torch.bool)
        for n in range(k):
            E = samples.basis[:, :n]

            def probabilities(rows: Tensor, which: Tensor | None, E: Tensor = E) -> Tensor:
                some, basis = (V, E) if which is None else (V[which], E[which])
                y = torch.bmm(some, items.take(rows).mT)
                return y.square().sum(1) - torch.bmm(basis, y).square().sum(1)

            count = first_round(V.shape[2], k - n)
            drawn = accept(
                streams, items.table, numbers, alive.nonzero()[:, 0], n, count, self.context.tolerances.chance,
                probabilities,
            )  # fmt: skip
            alive &= ~drawn.out_of_range
            samples.proposals.add_(drawn.proposals)
            samples.rows[:, n] = drawn.rows
            samples.basis[:, n] = orthonormal(torch.bmm(V, items.take(drawn.rows)[:, :, None])[:, None, :, 0], E)
        for i in (~alive).nonzero()[:, 0].tolist():
            route = self.context.sampler.route_for(k)
            assert route is not None
            done = route.draw(self.rng(int(numbers[i])))
            assert isinstance(done, Done)
            samples.finish(i, done)
        ordered = samples.rows.sort(dim=1).values
        if bool((ordered[:, 1:] == ordered[:, :-1]).any()):
            raise PrecisionError("a projection DPP drew an item twice: its probability is nothing but rounding")
        return samples
