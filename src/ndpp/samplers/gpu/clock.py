"""The clock of :class:`~ndpp.samplers.clock.Clock` for many samples at once, each of its own component.

A sample has a time x = −log s, the rate tr Z of further items, and the items Y that have appeared; Z = R − R Q_Yᵀ(Q_Y R Q_Yᵀ)⁻¹Q_Y R with
R = R(s). In the coordinates of :mod:`.spectra`, R is diagonal: with the rows l_Y, r_Y of the items, G = l_Y f r_Yᵀ and H = G⁻¹ l_Y f,

    q_aᵀ Z q_b = l_a f r_b − (l_a f r_Yᵀ)(H r_b),        tr Z = Σ f − Σ H f r_Y.

In one move, every sample proposes a time, accepts it by the ratio of the rates, and if so draws an item by leverage. Samples differ in
their component, time and number of items; none waits for another, and nothing is shared between them.

Monitors: rates never increase, and acceptance probabilities lie within [0, 1]. A sample that fails one is completed by the CPU's clock,
from the time and the items it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ndpp._validation import PROBABILITY_TOLERANCE
from ndpp.errors import BudgetExceededError
from ndpp.samplers.clock import MAX_TIME, NEGLIGIBLE_RATE, RATE_TOLERANCE, Clock
from ndpp.samplers.exact.routes import Unfinished
from ndpp.samplers.gpu.kernels.forms import Forms, remaining_forms
from ndpp.samplers.gpu.kernels.invert import invert_pivoted
from ndpp.samplers.gpu.kernels.propose import uniforms
from ndpp.samplers.gpu.memory import samples_that_fit
from ndpp.samplers.gpu.proposals import Streams, accept
from ndpp.samplers.gpu.sets import DrawnSets
from ndpp.samplers.gpu.spectra import Spectra, complexes, reals

MAX_MOVES = 100_000
"""Maximum number of moves per sample."""
MOVES_PER_BLOCK = 64
"""Moves whose random numbers are computed together."""
TIME_STEP = 1 << 20
"""First of the steps whose random numbers are times. Items use the steps below."""
CAPACITY_STEP = 8
"""The space for items grows in steps of this many."""
MIN_LIVE_SHARE = 0.6
"""Finished samples are dropped once fewer than this share are still running."""
ROUND_FACTOR, LARGEST_ROUND = 1.5, 0.6
"""Proposals of a first round: a multiple of the expected number, and at most this share of the rank, which is the largest expected number.
Found by timing on an H200; no draw depends on them."""
ENTRY_BYTES = 160
"""Bytes per item and entry of l_a that a sample takes, with those for drawing its items; 16 items more than expected have space."""


def draw_by_clocks(
    spectra: Spectra,
    streams: Streams,
    which: Tensor,
    index: Tensor,
    given: Tensor,
    clock_of: Callable[[int], Clock],
    rng: Callable[[int], np.random.Generator],
) -> DrawnSets:
    """Draw samples of components ``which`` (S,) with numbers ``index`` (S,), as rows of the support, as many together as fit into memory.

    All contain the rows ``given``. ``clock_of(c)`` is the CPU's clock of a component, and ``rng(i)`` its stream of sample i.
    """
    rates = (spectra.multiplicity * (spectra.eigenvalues / (1 + spectra.eigenvalues)).real).sum(1)
    mean, found = len(given) + float(rates[which].mean()), list[tuple[Tensor, DrawnSets]]()
    fit = samples_that_fit(which.device, ENTRY_BYTES * (spectra.rank + 1) * (mean + 16))
    for part in torch.split(torch.arange(len(which), device=which.device), fit):
        clocks = ClockGroup(spectra, streams, which[part], index[part], given)
        on_cpu = clocks.run(clock_of, rng)
        found.append((part, DrawnSets(clocks.rows, clocks.n, {"proposals": clocks.proposals, "on_cpu": on_cpu})))
    return DrawnSets.scattered(found, len(which), spectra.n_rows)


class ClockGroup:
    """Samples whose clocks run together, as in :func:`draw_by_clocks`.

    Given items Y have appeared when the clock starts: sL given Y is s times L given Y, so this is the clock of the kernel given Y.

    Results: ``rows`` (S, capacity) are items of the support, ``n`` (S,) their number; ``proposals`` (S,).
    """

    def __init__(self, spectra: Spectra, streams: Streams, which: Tensor, index: Tensor, given: Tensor) -> None:
        S, K, n = len(which), spectra.eigenvalues.shape[1], len(given)
        capacity = CAPACITY_STEP * (n // CAPACITY_STEP + 1)
        self.spectra, self.streams = spectra, streams
        self.rows = torch.full((S, capacity), spectra.n_rows, device=which.device)
        self.n, self.proposals = torch.full_like(which, n), torch.zeros_like(which)
        self.unfinished: dict[int, Unfinished] = {}
        self.component, self.number = which, index
        # Of the samples at the positions ``live`` of the results, in order:
        self.live, self.which, self.index = torch.arange(S, device=which.device), which, index
        self.x = torch.zeros(S, dtype=torch.float64, device=which.device)
        self.left = torch.zeros(S, capacity, 2 * K, dtype=torch.float64, device=which.device)
        self.right = torch.zeros_like(self.left)
        self.rows[:, :n] = given
        self.left[:, :n], self.right[:, :n], _ = spectra.rows[given + which[:, None] * spectra.n_rows].unbind(2)
        self.rate = self._remaining(self.x)[1] if S else self.x
        self.uniforms = self.right.new_empty(2, S, 0)

    def run(self, clock_of: Callable[[int], Clock], rng: Callable[[int], np.random.Generator]) -> Tensor:
        """Run all clocks down; return 1 for samples that the CPU drew or completed, and 0 for others (S,).

        These are samples that failed a monitor, and all of components without eigenvectors.
        """
        able = self.spectra.diagonal[self.which]
        self.unfinished = {at: Unfinished(np.empty(0, np.int64), 0) for at in (~able).nonzero()[:, 0].tolist()}
        self._drop(able & (self.rate > NEGLIGIBLE_RATE), at_once=True)
        for move in range(MAX_MOVES):
            if not len(self.live):
                return self._complete(clock_of, rng)
            self._move(move)
        raise BudgetExceededError(
            f"{len(self.live)} clocks moved {MAX_MOVES} times and still expect items. Draw on the CPU.", count=MAX_MOVES
        )

    def _move(self, move: int) -> None:
        if move % MOVES_PER_BLOCK == 0:
            step = TIME_STEP + move // MOVES_PER_BLOCK
            self.uniforms = torch.stack(uniforms(*self.streams.counters(self.index), step, 0, MOVES_PER_BLOCK)[:2])
        time, coin = self.uniforms[:, :, move % MOVES_PER_BLOCK]
        x = self.x - torch.log1p(-time) / self.rate
        running = x <= MAX_TIME  # False for samples that have finished, whose rate is zero
        forms, now = self._remaining(torch.where(running, x, 0.0))
        risen = running & ~(now <= (1 + RATE_TOLERANCE) * self.rate + RATE_TOLERANCE)
        appears = running & ~risen & (coin * self.rate < now)
        rate, failed = self._add_items(forms, now, appears, move)
        bound = torch.where(risen, self.rate, now)
        for i in (risen | failed).nonzero()[:, 0].tolist():
            at = int(self.live[i])
            rows = self.rows[at, : int(self.n[at])].cpu().numpy()
            self.unfinished[at] = Unfinished(rows, 0, moment=(float(x[i]), float(bound[i])))
        self.x = x
        self.rate = torch.where(running & ~risen & ~failed & (rate > NEGLIGIBLE_RATE), rate, 0.0)
        self._drop(self.rate > 0)

    def _remaining(self, x: Tensor) -> tuple[Forms, Tensor]:
        """Return Z and its trace, the rate (S,), at these times."""
        n = self.n[self.live]
        m, S = int(n.max()), len(n)
        f = self.spectra.factors(self.which, x)
        f_bar = f.conj().resolve_conj()
        rate = (self.spectra.multiplicity[self.which] * f.real).sum(1)
        f_left, f_right = (
            reals(complexes(part[:, :m]) * one[:, None]) for part, one in ((self.left, f), (self.right, f_bar))
        )
        if not m:
            return Forms(reals(f_bar), f_right, f_left), rate
        H = invert_pivoted(self.left[:, :m] @ f_right.mT, n) @ f_left
        return Forms(reals(f_bar), f_right, H), rate - torch.bmm(H.view(S, 1, -1), f_right.view(S, -1, 1))[:, 0, 0]

    def _add_items(self, forms: Forms, rate: Tensor, appears: Tensor, move: int) -> tuple[Tensor, Tensor]:
        """Draw an item of each sample in which one ``appears``; return the rates of what remains, and which samples failed."""
        chosen, failed = self._draw_items(forms, rate, appears.nonzero()[:, 0], move)
        # Z less what the new item explains: tr Z − qᵀZ²q / qᵀZq
        added, (left, right, own), f_bar = appears & ~failed, self.spectra.rows[chosen].unbind(1), complexes(forms.f)
        z, y = (forms.f_right @ left[:, :, None])[:, :, 0], (forms.H @ right[:, :, None])[:, :, 0]
        row = reals(complexes(left) * f_bar.conj()) - (z[:, None] @ forms.H)[:, 0]
        column = complexes(right) * f_bar - complexes((y[:, None] @ forms.f_right)[:, 0])
        value = (own * forms.f).sum(1) - (z * y).sum(1)
        rest = rate - (row * reals(column)).sum(1) / value
        self._append(chosen, left, right, added, forms.H.shape[1])
        return torch.where(added, rest, rate), failed

    def _draw_items(self, forms: Forms, rate: Tensor, pending: Tensor, move: int) -> tuple[Tensor, Tensor]:
        """Return an item for each sample at the positions ``pending``, as a row of the tables, and which samples failed."""
        spectra = self.spectra
        bound, every = rate.clamp(max=1.0), torch.arange(len(rate), device=rate.device)  # Z ⪯ I, and Z ⪯ tr Z

        def probabilities(rows: Tensor, which: Tensor | None) -> Tensor:
            which = every if which is None else which
            return remaining_forms(forms, spectra.rows, rows, which) / bound[which, None]

        if not len(pending):
            return torch.zeros_like(self.index), torch.zeros_like(self.index, dtype=torch.bool)
        expected = spectra.rank * float((bound / rate)[pending].mean())
        count = 8 * math.ceil(min(ROUND_FACTOR * expected, LARGEST_ROUND * spectra.rank) / 8)
        drawn = accept(
            self.streams, spectra.items, self.index, pending, move, count, PROBABILITY_TOLERANCE, probabilities,
            self.which * spectra.n_rows,
        )  # fmt: skip
        self.proposals[self.live] += drawn.proposals
        return drawn.rows, drawn.out_of_range

    def _append(self, chosen: Tensor, left: Tensor, right: Tensor, added: Tensor, m: int) -> None:
        """Store the row chosen by each sample in ``added``, with its l and r̄. Samples have up to m items."""
        here = added.nonzero()[:, 0]
        at = self.live[here]
        n = self.n[at]
        if m == self.left.shape[1]:
            self.left, self.right = (
                torch.nn.functional.pad(part, (0, 0, 0, CAPACITY_STEP)) for part in (self.left, self.right)
            )
        if self.left.shape[1] > self.rows.shape[1]:
            self.rows = torch.nn.functional.pad(self.rows, (0, CAPACITY_STEP), value=self.spectra.n_rows)
        self.left[here, n], self.right[here, n] = left[here], right[here]
        self.rows[at, n] = chosen[here] - self.which[here] * self.spectra.n_rows
        self.n[at] += 1

    def _complete(self, clock_of: Callable[[int], Clock], rng: Callable[[int], np.random.Generator]) -> Tensor:
        on_cpu = torch.zeros_like(self.n)
        for at, begun in self.unfinished.items():
            clock, stream = clock_of(int(self.component[at])), rng(int(self.number[at]))
            drawn = clock.draw(stream) if begun.moment is None else clock.resume(stream, begun.rows, *begun.moment)
            more = max(0, len(drawn.rows) - self.rows.shape[1])
            self.rows = torch.nn.functional.pad(self.rows, (0, more), value=self.spectra.n_rows)
            self.rows[at, : len(drawn.rows)] = torch.from_numpy(drawn.rows).to(self.rows)
            self.n[at], on_cpu[at] = len(drawn.rows), 1
        return on_cpu

    def _drop(self, live: Tensor, *, at_once: bool = False) -> None:
        """Drop samples that have finished, if they are enough for that to pay."""
        if at_once or float(live.double().mean()) < MIN_LIVE_SHARE:
            self.live, self.which, self.index = self.live[live], self.which[live], self.index[live]
            self.x, self.rate, self.uniforms = self.x[live], self.rate[live], self.uniforms[:, live]
            self.left, self.right = self.left[live], self.right[live]
