"""Figure 1: the distance of drawn sets from the true law against their number; n = 10, d = 8, k = 5, t = k² [Han22].

The paper's "total variation" is max_S |p(S) − q(S)|; this and the usual ½ Σ|p − q| are both drawn, with the band in which a
perfect sampler stays. Samplers are run as they are up to a number of draws that takes minutes to an hour each, which is kept in
:func:`ndpp.datasets.cache_folder` as it grows; walks go on to 10⁶ through the table of their transition probabilities, which
the same figure shows to be theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp.datasets import cache_folder, make_kernel
from ndpp.diagnostics import sup_distance, total_variation
from ndpp.experiments.enumerated import tabled_random_size, tabled_walk
from ndpp.experiments.kept import drawn
from ndpp.experiments.record import Finding, Result, Row, number
from ndpp.kernel import LowRankKernel
from ndpp.plots import Curve, Panel, convergence
from ndpp.samplers import Cholesky, Clock, DirectUp, Exact, Naive, NaiveUp, RandomSize, Rejection, RejectionUp, Walk
from ndpp.samplers.base import Sampler

N_ITEMS, RANK, SIZE = 10, 8, 5
SHORT = 2
"""Steps of a walk that is too short: a control, which must leave the band."""
SIGMAS = 4.0
"""A sampler further from the law than this many standard deviations of a perfect one does not draw from that law."""


class Distance(NamedTuple):
    """A distance between two distributions: its name, the name of its axis, and the function."""

    name: str
    axis: str
    between: Callable[[FloatArray, FloatArray], float]


DISTANCES = (
    Distance("sup-norm", "max |p − q| (the paper's)", sup_distance),
    Distance("total variation", "total variation, ½ Σ |p − q|", total_variation),
)


class TabledWalk(NamedTuple):
    """A walk drawn from its table: its label, the distribution of its last set, and what the paper says of it."""

    label: str
    law: FloatArray
    claim: str = ""


class Run(NamedTuple):
    """A sampler as it is, how many sets to draw, and whether it is a walk, which is only nearly of the true law."""

    label: str
    sampler: Sampler
    n_draws: int
    is_walk: bool = False


class Task(NamedTuple):
    """One column of the figure: its name, that of its files, all sets as masks, the true law, walks and samplers."""

    name: str
    file: str
    masks: IntArray
    law: FloatArray
    walks: Sequence[TabledWalk]
    runs: Sequence[Run]


class Line(NamedTuple):
    """One sampler: distances, of shape (looks, distances), at some numbers of draws.

    Of a perfect sampler these are medians, and ``spread``, of shape (looks, distances, 4), has the ends of the interval of 95 %,
    the mean and the standard deviation. A walk is only nearly of the true law.
    """

    label: str
    is_walk: bool
    samples: list[int]
    values: FloatArray
    spread: FloatArray | None = None

    def rows(self, task: str) -> list[Row]:
        """Return rows of a table."""
        out: list[Row] = []
        for i, n in enumerate(self.samples):
            for j, distance in enumerate(DISTANCES):
                where = {"task": task, "sampler": self.label, "samples": n, "distance": distance.name}
                spread = () if self.spread is None else zip(("low", "high", "mean", "deviation"), self.spread[i, j])
                out.append({**where, "value": self.values[i, j], **dict(spread)})
        return out


def measure(*, quick: bool, seed: int, say: Callable[[str], None]) -> Result:
    """Draw, count, compare."""
    kernel = make_kernel(N_ITEMS, RANK, rng=seed)
    most = 10_000 if quick else 10**6
    tasks = _tasks(kernel, quick)
    found = [_curves(task, most, seed, say, keep=None if quick else cache_folder()) for task in tasks]
    settings = {"n": N_ITEMS, "d": RANK, "k": SIZE, "t": "k²", "samples": f"up to {most:,}"}
    panels = [_panel(task, lines, j) for j in range(len(DISTANCES)) for task, lines in zip(tasks, found)]
    findings = [finding for task, lines in zip(tasks, found) for finding in _findings(task, lines[1:], seed)]
    rows = [row for task, lines in zip(tasks, found) for line in lines for row in line.rows(task.name)]
    return Result(settings, findings, {"": rows}, {"": convergence(panels)}, NOTES)


NOTES = (
    "The paper prints no numbers for this figure; it says that the distance of the walk with t = k² decays as fast as that "
    "of the exact sampler. So it does on this kernel: the walk's own error after k² steps, computed from its transition matrix, "
    "is far below the sampling noise of a million draws. A walk of two steps shows what a visible error looks like: a curve "
    "that levels off, which no number of samples gets lower.",
    "Samplers are run as they are up to the last marker of their curves; *by its table* draws the last set of the same chain "
    "from its transition probabilities, which the tests show to be those of all three up-steps. A z is the distance in "
    "standard deviations of a perfect sampler at as many draws. All draws take about an hour of one core; those of earlier runs are kept, "
    "and the seconds below are of the last run alone.",
)


def _tasks(kernel: LowRankKernel, quick: bool) -> list[Task]:
    # Half a millisecond, a few, ten and forty for each draw: an hour of one core in all.
    fast, slow, slower, slowest = (1000, 100, 25, 20) if quick else (10**6, 10**5, 10**4, 3000)
    fixed = Naive.prepare(kernel, size=SIZE)
    walk = tabled_walk(kernel, SIZE)
    full, enough = "walk of k² steps, by its table", "k² steps are sufficient"
    walks = [
        TabledWalk(full, walk.after(SIZE**2), enough),
        TabledWalk(f"walk of {SHORT} steps, by its table", walk.after(SHORT)),
    ]
    masks, law, walk_law = tabled_random_size(kernel)
    return [
        Task(
            f"k-NDPP, k = {SIZE}", "k-NDPP", fixed.masks, fixed.law, walks,
            [
                Run("Exact", Exact.prepare(kernel, size=SIZE), fast),
                Run("Rejection", Rejection.prepare(kernel, size=SIZE), slow),
                Run("Walk(DirectUp)", Walk.prepare(kernel, size=SIZE, up=DirectUp()), slow, is_walk=True),
                Run("Walk(RejectionUp)", Walk.prepare(kernel, size=SIZE, up=RejectionUp()), slowest, is_walk=True),
                Run("Walk(NaiveUp)", Walk.prepare(kernel, size=SIZE, up=NaiveUp()), slower, is_walk=True),
            ],
        ),
        Task(
            "NDPP, any size", "NDPP", masks, law, [TabledWalk(full, walk_law, enough)],
            [
                Run("Exact", Exact.prepare(kernel), fast),
                Run("Rejection", Rejection.prepare(kernel), slow),
                Run("Walk(DirectUp)", RandomSize.prepare(kernel), slow, is_walk=True),
                Run("Walk(RejectionUp)", RandomSize.prepare(kernel, up=RejectionUp()), slowest, is_walk=True),
                Run("Cholesky", Cholesky.prepare(kernel), fast),
                Run("Clock", Clock.prepare(kernel), slow),
            ],
        ),
    ]  # fmt: skip


def _curves(task: Task, most: int, seed: int, say: Callable[[str], None], *, keep: Path | None) -> list[Line]:
    """Return distances at numbers of draws that grow by half a decade: perfect sampler, tables of walks, samplers."""
    rng = np.random.default_rng([seed, 1])
    lines = [_perfect(task, most, rng)]
    for walk in task.walks:
        last = rng.choice(len(walk.law), most, p=walk.law / walk.law.sum())
        lines.append(_line(task, walk.label, last, is_walk=True))
    order = np.argsort(task.masks)
    for label, sampler, n_draws, is_walk in task.runs:
        file = None if keep is None else keep / f"fig1-{task.file}-{label}-{seed}.npy"
        masks = drawn(sampler, n_draws, seed=seed, keep=file, say=_sayer(f"{task.name}: {label}", n_draws, say))
        found = order[np.searchsorted(task.masks, masks, sorter=order)]
        lines.append(_line(task, label, found, is_walk=is_walk))
    return lines


def _perfect(task: Task, most: int, rng: np.random.Generator) -> Line:
    looks = _looks(most)
    values = np.array([
        [[d.between(rng.multinomial(n, task.law) / n, task.law) for _ in range(60)] for d in DISTANCES] for n in looks
    ])  # fmt: skip
    low, middle, high = np.quantile(values, [0.025, 0.5, 0.975], axis=2)
    spread = np.stack([low, high, values.mean(axis=2), values.std(axis=2, ddof=1)], axis=2)
    return Line("perfect sampler", False, looks, middle, spread)


def _sayer(what: str, n_draws: int, say: Callable[[str], None]) -> Callable[[int], None]:
    """Return what tells of every tenth part of the draws."""

    def told(done: int) -> None:
        if done == n_draws or done % max(n_draws // 10, 1) == 0:
            say(f"{what}, {done:,} of {n_draws:,} draws")

    return told


def _looks(most: int) -> list[int]:
    return [round(10 ** (e / 2)) for e in range(2, 13) if 10 ** (e / 2) <= most * 1.0001]


def _line(task: Task, label: str, drawn: IntArray, *, is_walk: bool) -> Line:
    looks = [n for n in _looks(len(drawn)) if n < len(drawn)] + [len(drawn)]
    laws = [np.bincount(drawn[:n], minlength=len(task.law)) / n for n in looks]
    values = np.array([[distance.between(law, task.law) for distance in DISTANCES] for law in laws])
    return Line(label, is_walk, looks, values)


def _panel(task: Task, lines: Sequence[Line], j: int) -> Panel:
    """Return the panel of distance number ``j``; the first line is that of a perfect sampler."""
    perfect, *others = lines
    assert perfect.spread is not None
    curves = [Curve(line.label, line.samples, line.values[:, j].tolist()) for line in others]
    ends = (perfect.spread[:, j, side].tolist() for side in (0, 1))
    band = Curve("perfect sampler, 95 %", perfect.samples, perfect.values[:, j].tolist(), *ends)
    return Panel(task.name, "samples", DISTANCES[j].axis, curves, band)


def _findings(task: Task, lines: Sequence[Line], seed: int) -> list[Finding]:
    found = []
    for label, law, claim in task.walks:
        errors = ", ".join(number(distance.between(law, task.law)) for distance in DISTANCES)
        found.append(Finding(f"{task.name}: {label}, error without noise, sup-norm and TV", claim, errors))
    for line in lines:
        n, last = line.samples[-1], line.values[-1].tolist()
        z = [_z(task, n, value, d, np.random.default_rng([seed, 2])) for value, d in zip(last, DISTANCES)]
        values = ", ".join(f"{number(value)} (z = {v:.1f})" for value, v in zip(last, z))
        holds = None if line.is_walk else max(z) < SIGMAS
        found.append(Finding(f"{task.name}: {line.label}, {n:,} draws, sup-norm and TV", "", values, holds))
    return found


def _z(task: Task, n: int, value: float, distance: Distance, rng: np.random.Generator) -> float:
    """Return the distance in standard deviations of a perfect sampler at as many draws."""
    perfect = [distance.between(rng.multinomial(n, task.law) / n, task.law) for _ in range(200)]
    return float((value - np.mean(perfect)) / np.std(perfect, ddof=1))
