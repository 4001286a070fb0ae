"""Figure 1: the distance of drawn sets from the true law against their number; n = 10, d = 8, k = 5, t = k² [Han22].

The paper's "total variation" is max_S |p(S) − q(S)|; this and the usual ½ Σ|p − q| are both drawn, with the band in which a
perfect sampler stays. Samplers are run as they are up to a number of draws that takes minutes to an hour each, which is kept in
:func:`ndpp.datasets.cache_folder` as it grows; walks go on to 10⁶ through the table of their transition probabilities, which
the same figure shows to be theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
DISTANCES: Mapping[str, Callable[[FloatArray, FloatArray], float]] = {
    "sup-norm": sup_distance,
    "total variation": total_variation,
}
FULL_WALK = "walk of k² steps, by its table"
SHORT = 2
"""Steps of a walk that is too short: a control, which must leave the band."""
SIGMAS = 4.0
"""A sampler further from the law than this many standard deviations of a perfect one does not draw from that law."""


class Task(NamedTuple):
    """One column of the figure: its name, all sets as masks, the true law, that of walks, samplers and draws of each."""

    name: str
    masks: IntArray
    law: FloatArray
    walks: Mapping[str, FloatArray]
    samplers: Mapping[str, tuple[Sampler, int]]


def measure(*, quick: bool, seed: int, say: Callable[[str], None]) -> Result:
    """Draw, count, compare."""
    kernel = make_kernel(N_ITEMS, RANK, rng=seed)
    most = 10_000 if quick else 10**6
    rows: list[Row] = []
    findings, panels = [], []
    for task in _tasks(kernel, quick):
        found = _curves(task, most, seed, say, keep=None if quick else cache_folder())
        rows += found
        panels += [_panel(task, found, distance) for distance in DISTANCES]
        findings += _findings(task, found, seed)
    settings = {"n": N_ITEMS, "d": RANK, "k": SIZE, "t": "k²", "samples": f"up to {most:,}"}
    panels = [panels[0], panels[2], panels[1], panels[3]]  # sup-norm above, total variation below
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
    fast, slow, slower, slowest = (2000, 200, 50, 40) if quick else (10**6, 10**5, 10**4, 3000)
    fixed = Naive.prepare(kernel, size=SIZE)
    walk = tabled_walk(kernel, SIZE)
    walks = {FULL_WALK: walk.after(SIZE**2), f"walk of {SHORT} steps, by its table": walk.after(SHORT)}
    masks, law, walk_law = tabled_random_size(kernel)
    return [
        Task(
            f"k-NDPP, k = {SIZE}", fixed.masks, fixed.law, walks,
            {
                "Exact": (Exact.prepare(kernel, size=SIZE), fast),
                "Rejection": (Rejection.prepare(kernel, size=SIZE), slow),
                "Walk(DirectUp)": (Walk.prepare(kernel, size=SIZE, up=DirectUp()), slow),
                "Walk(RejectionUp)": (Walk.prepare(kernel, size=SIZE, up=RejectionUp()), slowest),
                "Walk(NaiveUp)": (Walk.prepare(kernel, size=SIZE, up=NaiveUp()), slower),
            },
        ),
        Task(
            "NDPP, any size", masks, law, {FULL_WALK: walk_law},
            {
                "Exact": (Exact.prepare(kernel), fast),
                "Rejection": (Rejection.prepare(kernel), slow),
                "Walk(DirectUp)": (RandomSize.prepare(kernel), slow),
                "Walk(RejectionUp)": (RandomSize.prepare(kernel, up=RejectionUp()), slowest),
                "Cholesky": (Cholesky.prepare(kernel), fast),
                "Clock": (Clock.prepare(kernel), slow),
            },
        ),
    ]  # fmt: skip


def _curves(task: Task, most: int, seed: int, say: Callable[[str], None], *, keep: Path | None) -> list[Row]:
    """Return distances at numbers of draws that grow by half a decade: perfect sampler, table of the walk, samplers."""
    rng = np.random.default_rng([seed, 1])
    rows = []
    for n in _looks(most):
        for distance, measure_ in DISTANCES.items():
            perfect = [measure_(rng.multinomial(n, task.law) / n, task.law) for _ in range(60)]
            low, middle, high = np.quantile(perfect, [0.025, 0.5, 0.975])
            shared = {"low": low, "high": high, "mean": np.mean(perfect), "deviation": np.std(perfect, ddof=1)}
            rows.append(_row(task, "perfect sampler", n, distance, float(middle), **shared))
    for label, law in task.walks.items():
        rows += _distances(task, label, rng.choice(len(law), most, p=law / law.sum()))
    order = np.argsort(task.masks)
    for label, (sampler, n_draws) in task.samplers.items():
        file = None if keep is None else keep / f"fig1-{task.name.split(',')[0]}-{label}-{seed}.npy"
        masks = drawn(sampler, n_draws, seed=seed, keep=file, say=_sayer(f"{task.name}: {label}", n_draws, say))
        rows += _distances(task, label, order[np.searchsorted(task.masks, masks, sorter=order)])
    return rows


def _sayer(what: str, n_draws: int, say: Callable[[str], None]) -> Callable[[int], None]:
    """Return what tells of every tenth part of the draws."""

    def told(done: int) -> None:
        if done == n_draws or done % max(n_draws // 10, 1) == 0:
            say(f"{what}, {done:,} of {n_draws:,} draws")

    return told


def _looks(most: int) -> list[int]:
    return [round(10 ** (e / 2)) for e in range(2, 13) if 10 ** (e / 2) <= most * 1.0001]


def _distances(task: Task, label: str, drawn: IntArray) -> list[Row]:
    looks = [n for n in _looks(len(drawn)) if n < len(drawn)] + [len(drawn)]
    rows = []
    for n in looks:
        law = np.bincount(drawn[:n], minlength=len(task.law)) / n
        rows += [_row(task, label, n, name, distance(law, task.law)) for name, distance in DISTANCES.items()]
    return rows


def _row(task: Task, sampler: str, n: int, distance: str, value: float, **more: float) -> Row:
    return {"task": task.name, "sampler": sampler, "samples": n, "distance": distance, "value": value, **more}


def _panel(task: Task, rows: list[Row], distance: str) -> Panel:
    own = [row for row in rows if row["distance"] == distance]
    names = dict.fromkeys(row["sampler"] for row in own)
    lines = {name: [row for row in own if row["sampler"] == name] for name in names}
    floor = lines.pop("perfect sampler")

    def column(line: list[Row], name: str) -> list[float]:
        return [row[name] for row in line]

    curves = [Curve(name, column(line, "samples"), column(line, "value")) for name, line in lines.items()]
    band = Curve("perfect sampler, 95 %", *(column(floor, name) for name in ("samples", "value", "low", "high")))
    label = {"sup-norm": "max |p − q| (the paper's)", "total variation": "total variation, ½ Σ |p − q|"}[distance]
    return Panel(task.name, "samples", label, curves, band)


def _findings(task: Task, rows: list[Row], seed: int) -> list[Finding]:
    found = []
    for label, law in task.walks.items():
        errors = ", ".join(number(distance(law, task.law)) for distance in DISTANCES.values())
        claim = "k² steps are sufficient" if label == FULL_WALK else ""
        found.append(Finding(f"{task.name}: {label}, error without noise, sup-norm and TV", claim, errors))
    for name in dict.fromkeys(row["sampler"] for row in rows if row["sampler"] != "perfect sampler"):
        last = [row for row in rows if row["sampler"] == name][-2:]
        z = [_z(task, row, np.random.default_rng([seed, 2])) for row in last]
        values = ", ".join(f"{number(row['value'])} (z = {v:.1f})" for row, v in zip(last, z))
        holds = None if "alk" in name else max(z) < SIGMAS  # walks are only nearly of the law
        found.append(Finding(f"{task.name}: {name}, {last[0]['samples']:,} draws, sup-norm and TV", "", values, holds))
    return found


def _z(task: Task, row: Row, rng: np.random.Generator) -> float:
    """Return the distance in standard deviations of a perfect sampler at as many draws."""
    n, distance = row["samples"], DISTANCES[row["distance"]]
    perfect = [distance(rng.multinomial(n, task.law) / n, task.law) for _ in range(200)]
    return float((row["value"] - np.mean(perfect)) / np.std(perfect, ddof=1))
