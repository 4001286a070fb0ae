"""Table 2: time and rejections of all samplers on NDPP kernels, for k = 10, k = 50 and any size [Han22].

The paper's kernels are not public. Ours are learned from its data sets, or what can be had of them, beside synthetic ones of
the paper's n for every data set; see :mod:`ndpp.experiments.kernels`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from ndpp.experiments.kernels import PAPER, Named, kernels
from ndpp.experiments.record import Finding, Result, Row, markdown_table, number
from ndpp.experiments.samplers_timed import CHOLESKY, EXACT, PAPERS_WALK, REJECTION, sampler_rows, times_exact
from ndpp.experiments.timing import prepared
from ndpp.items import Tree
from ndpp.laws.kernel import LowRankKernel
from ndpp.plots import Bar, rejections

SIZES = (10, 50, None)
ORDER = tuple(data.title for data in PAPER)
Published = dict[tuple[int | None, str, str], tuple[str, ...]]

PAPER_TABLE: Published = {
    (10, REJECTION, "seconds"): ("406", "2.1", "93.7", "0.13", "0.46"),
    (10, PAPERS_WALK, "seconds"): ("25.4", "14.5", "21.0", "9.5", "23.7"),
    (10, REJECTION, "rejections"): ("20880", "79.2", "3102", "2.2", "8.5"),
    (10, PAPERS_WALK, "rejections"): ("7.8", "3.5", "6.0", "0.8", "6.8"),
    (50, REJECTION, "seconds"): ("5.11·10^12 (*)", "9.55·10^5 (*)", "9.50·10^5 (*)", "1.45·10^12 (*)", "4.06·10^6 (*)"),
    (50, PAPERS_WALK, "seconds"): ("334", "229", "242", "488", "374"),
    (50, REJECTION, "rejections"): ("2.83·10^13 (*)", "4.94·10^6 (*)", "4.63·10^6 (*)", "4.66·10^12 (*)", "1.65·10^7 (*)"),
    (50, PAPERS_WALK, "rejections"): ("3.8", "1.3", "1.6", "5.4", "3.2"),
    (None, CHOLESKY, "seconds"): ("5.6", "11.5", "71.1", "537", "1540"),
    (None, REJECTION, "seconds"): ("1.34·10^8 (*)", "1.0", "1351.6", "1.89·10^10 (*)", "1022"),
    (None, PAPERS_WALK, "seconds"): ("75.3", "11.8", "21", "281", "80"),
    (None, REJECTION, "rejections"): ("1.50·10^9 (*)", "45.3", "27941.7", "6.91·10^10 (*)", "13924.5"),
    (None, PAPERS_WALK, "rejections"): ("6.0", "3.6", "5.7", "7.2", "9.8"),
    (0, PAPERS_WALK, "seconds"): ("1.0", "2.2", "14.0", "30.8", "74.3"),
}  # fmt: skip
"""By size, sampler and what is measured, one entry for each data set; size 0 stands for preparation."""


def measure(*, quick: bool, seed: int, say: Callable[[str], None]) -> Result:
    """Time every sampler on the NDPP kernels."""
    named = kernels(orthogonal=False, quick=quick, seed=seed, say=say)
    return runtime_table(named, PAPER_TABLE, NOTES, quick=quick, seed=seed, say=say)


def runtime_table(
    named: Iterable[Named],
    published: Published,
    notes: Sequence[str],
    *,
    quick: bool,
    seed: int,
    say: Callable[[str], None],
    sizes: Sequence[int | None] = SIZES,
    seconds: float = 0.6,
) -> Result:
    """Time every sampler on every kernel: tables 2 and 3, and the samplers on the kernels that the README quotes.

    ``seconds`` is the time for each figure. Quick runs take a sixth of it, and the first size and any size only.
    """
    sizes, seconds = ((sizes[0], None), seconds / 6) if quick else (sizes, seconds)
    rows: list[Row] = []
    origins: list[list[str]] = []
    for data, name, origin, kernel in named:
        tree, preparation = prepared(partial(_prepare, kernel), repeats=1)
        origins.append([data.title, name, f"{kernel.n_items:,}", f"{_mean_size(kernel):.1f}", origin])
        shared = {"data": data.title, "kernel": name, "n": kernel.n_items, "rank": kernel.rank}
        rows.append(
            {**shared, "task": "preparation", "sampler": PAPERS_WALK, "seconds": preparation, "expected": False}
        )
        for size in sizes:
            found = sampler_rows(tree.kernel, tree, size, seed=seed, seconds=seconds)
            rows += [{**shared, "task": task_name(size), "size": size, **row} for row in found]
            say(f"{data.title}, {name}, {task_name(size)}")
    *some, last = ("any" if size is None else str(size) for size in sizes)
    return told(rows, origins, published, notes, {"k": f"{', '.join(some)} and {last}", "d": rows[0]["rank"]})


def told(
    rows: Sequence[Row], origins: Sequence[Sequence[str]], published: Published, notes: Sequence[str], settings: Row
) -> Result:
    """Return what the rows of a table say: findings, the picture of rejections, and notes with the kernels and all times."""
    bars = [
        Bar(f"{row['data']}, {row['kernel']}", row["sampler"], row["rejections"], row["expected"], row["task"])
        for row in rows
        if row.get("rejections") is not None and (row["kernel"].startswith("learned") or row["data"] == ORDER[0])
    ]
    kernels_ = markdown_table(["data", "kernel", "items", "mean size", "from"], origins)
    text = (*notes, "The kernels:", kernels_, "Seconds for one sample, by kernel:", _markdown(rows))
    return Result(settings, _findings(rows, published), {"": rows}, {"": rejections(bars)}, text)


NOTES = (
    "The paper's learned kernels are not public, so its numbers and ours are of different kernels: what compares is which "
    "sampler finishes, and by how much. (*) marks expected values in closed form where a sampler does not finish, as in the "
    "paper. Rejections are of one sample for `Rejection`, of one step for the walk, both expected values in closed form (the "
    "walk's averaged over the sets it met). Seconds are CPU time of one core; walks are timed by the step, k² steps a sample.",
    "Learned kernels are of what can be had of the paper's data sets, with fewer items than the paper's where those are samples; "
    "synthetic ones have the paper's n. Our NDPP gives nine tenths of its columns to the skew part, the paper's a half: that suits "
    "baskets better, and costs samplers that reject the more. A larger weight γ of ONDPP buys fewer "
    "rejections with log-likelihood; the paper's are 0.5, 0.1, 0.001, 0.2 and 0.1.",
    "Not in the paper: `Exact`, `Walk(DirectUp)` and `Clock`. The picture shows rejections on learned kernels and on the "
    "synthetic one of the smallest data set.",
)


def _prepare(kernel: LowRankKernel) -> Tree:
    """Pay for coordinates and tree, which is what the paper's table calls preprocessing."""
    return Tree.prepare(LowRankKernel(kernel.X, kernel.W))


def task_name(size: int | None) -> str:
    """Return how a task is called in tables."""
    return "any size" if size is None else f"k = {size}"


def _mean_size(kernel: LowRankKernel) -> float:
    law = kernel.size_distribution()
    return float(law @ np.arange(len(law)))


def _findings(rows: Sequence[Row], published: Published) -> list[Finding]:
    found = []
    for i, data in enumerate(ORDER):
        for (size, sampler, metric), values in published.items():
            task = "preparation" if size == 0 else task_name(size)
            same = [row for row in rows if (row["data"], row["task"], row["sampler"]) == (data, task, sampler)]
            ours = "; ".join(f"{_mark(row, metric)} ({row['kernel']})" for row in same)
            if same:
                found.append(Finding(f"{data}, {task}: {metric} of `{sampler}`", values[i], ours))
    gains = [times_exact(rows, row) for row in rows if row["sampler"] == PAPERS_WALK and row["task"] != "preparation"]
    text = f"{number(min(gains))} to {number(max(gains))} times"
    found.append(Finding("`Exact` faster than the paper's walk, both of this library", "", text, min(gains) > 1))
    return found


def _mark(row: Row, metric: str) -> str:
    return number(row[metric]) + " (*)" * row["expected"]


def _markdown(rows: Sequence[Row]) -> str:
    samplers = [EXACT, *(n for n in dict.fromkeys(row["sampler"] for row in rows[1:]) if n != EXACT)]
    lines = []
    for key in dict.fromkeys((row["data"], row["kernel"], row["task"]) for row in rows if row["task"] != "preparation"):
        own = {row["sampler"]: row for row in rows if (row["data"], row["kernel"], row["task"]) == key}
        least = min(own.values(), key=lambda row: row["seconds"])
        cells = [_mark(own[name], "seconds") if name in own else "" for name in samplers]
        cells = [f"**{cell}**" if own.get(name) is least else cell for name, cell in zip(samplers, cells)]
        lines.append([*key, *cells])
    return markdown_table(["data", "kernel", "task", *(f"`{name}`" for name in samplers)], lines)
