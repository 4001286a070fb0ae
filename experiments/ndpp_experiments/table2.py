"""Table 2: time and rejections of all samplers on NDPP kernels, for k = 10, k = 50 and any size [Han22].

The paper's kernels are not public. Ours are learned from its data sets, or from what is available of them; in addition there is a
synthetic kernel with the paper's n for every data set. See :mod:`ndpp_experiments.kernels`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Literal

import numpy as np

from ndpp.laws.kernel import LowRankKernel
from ndpp_experiments import samplers_timed
from ndpp_experiments.claims import Claim
from ndpp_experiments.kernels import PAPER, Named, kernels, missing
from ndpp_experiments.plots import Bar, rejections
from ndpp_experiments.record import Finding, Result, Say, grouped, markdown_table, number
from ndpp_experiments.samplers_timed import CHOLESKY, EXACT, PAPERS_WALK, PREPARATION, REJECTION, SamplerTime
from ndpp_experiments.timing import afresh, prepared
from ndpp_experiments.tree import Tree

SIZES = (10, 50, None)
ORDER = tuple(data.title for data in PAPER)
LARGE, FEW, MINUTES, HOUR = 1000, 0.01, 600, 3600
"""Items from which on the paper's claims are judged; bounds on rejections per item, and on seconds."""
Published = dict[tuple[str, str, Literal["seconds", "rejections"]], tuple[str, ...]]
"""The paper's numbers by task, sampler and metric, one for each data set."""

PAPER_TABLE: Published = {
    ("k = 10", REJECTION, "seconds"): ("406", "2.1", "93.7", "0.13", "0.46"),
    ("k = 10", PAPERS_WALK, "seconds"): ("25.4", "14.5", "21.0", "9.5", "23.7"),
    ("k = 10", REJECTION, "rejections"): ("20880", "79.2", "3102", "2.2", "8.5"),
    ("k = 10", PAPERS_WALK, "rejections"): ("7.8", "3.5", "6.0", "0.8", "6.8"),
    ("k = 50", REJECTION, "seconds"): ("5.11·10^12 (*)", "9.55·10^5 (*)", "9.50·10^5 (*)", "1.45·10^12 (*)", "4.06·10^6 (*)"),
    ("k = 50", PAPERS_WALK, "seconds"): ("334", "229", "242", "488", "374"),
    ("k = 50", REJECTION, "rejections"): ("2.83·10^13 (*)", "4.94·10^6 (*)", "4.63·10^6 (*)", "4.66·10^12 (*)", "1.65·10^7 (*)"),
    ("k = 50", PAPERS_WALK, "rejections"): ("3.8", "1.3", "1.6", "5.4", "3.2"),
    ("any size", CHOLESKY, "seconds"): ("5.6", "11.5", "71.1", "537", "1540"),
    ("any size", REJECTION, "seconds"): ("1.34·10^8 (*)", "1.0", "1351.6", "1.89·10^10 (*)", "1022"),
    ("any size", PAPERS_WALK, "seconds"): ("75.3", "11.8", "21", "281", "80"),
    ("any size", REJECTION, "rejections"): ("1.50·10^9 (*)", "45.3", "27941.7", "6.91·10^10 (*)", "13924.5"),
    ("any size", PAPERS_WALK, "rejections"): ("6.0", "3.6", "5.7", "7.2", "9.8"),
    (PREPARATION, PAPERS_WALK, "seconds"): ("1.0", "2.2", "14.0", "30.8", "74.3"),
}  # fmt: skip


def measure(*, quick: bool, seed: int, say: Say) -> Result:
    """Time every sampler on the NDPP kernels."""
    return learned_table(PAPER_TABLE, orthogonal=False, quick=quick, seed=seed, say=say)


def learned_table(published: Published, *, orthogonal: bool, quick: bool, seed: int, say: Say) -> Result:
    """Time every sampler on the kernels of table 2, or of table 3 if ``orthogonal``; name those of the paper's recipe that are missing."""
    named = kernels(orthogonal=orthogonal, quick=quick, seed=seed, say=say)
    absent = [] if quick else missing(orthogonal=orthogonal, seed=seed)
    notes = [*NOTES, MISSING.format(", ".join(absent))] if absent else NOTES
    return runtime_table(named, published, notes, quick=quick, seed=seed, say=say)


def runtime_table(
    named: Iterable[Named],
    published: Published,
    notes: Sequence[str],
    *,
    quick: bool,
    seed: int,
    say: Say,
    sizes: Sequence[int | None] = SIZES,
    seconds: float = 0.6,
) -> Result:
    """Time every sampler on every kernel, for tables 2 and 3 and for the kernels that the README quotes.

    ``seconds`` is the time spent on each number. Quick runs take a twentieth of it, and only the first size and any size.
    """
    sizes, seconds = ((sizes[0], None), seconds / 20) if quick else (sizes, seconds)
    times: list[SamplerTime] = []
    origins: list[list[str]] = []
    pictured: set[tuple[str, str]] = set()
    for data, name, origin, kernel, learned in named:
        tree, preparation = prepared(partial(_prepare, kernel), repeats=1)
        law = kernel.size_distribution()
        mean = f"{law @ np.arange(len(law)):.1f}"
        origins.append([data.title, name, f"{kernel.n_items:,}", mean, f"{tree.leaf:,}", origin])
        if learned or data.title == ORDER[0]:
            pictured.add((data.title, name))
        about = (data.title, name, kernel.n_items, kernel.rank)
        times.append(SamplerTime(*about, PREPARATION, None, PAPERS_WALK, preparation))
        for size in sizes:
            times += samplers_timed.time_samplers(
                tree.kernel, tree, size, seed=seed, seconds=seconds, data=data.title, name=name
            )
            say(f"{data.title}, {name}, {samplers_timed.task_name(size)}")
    *some, last = ("any" if size is None else str(size) for size in sizes)
    bars = [
        Bar(f"{t.data}, {t.kernel}", t.sampler, t.rejections, t.expected, t.task)
        for t in times
        if t.rejections is not None and (t.data, t.kernel) in pictured
    ]
    table = markdown_table(["data", "kernel", "items", "mean size", "items per leaf", "from"], origins)
    text = (*notes, "The kernels:", table, "Seconds per sample, by kernel:", _markdown(times))
    settings = {"k": f"{', '.join(some)} and {last}", "d": times[0].rank}
    return Result(settings, [*_findings(times, published)], {"": times}, rejections(bars), text)


NOTES = (
    "The paper's learned kernels are not public, so its numbers and ours are of different kernels: compare which sampler finishes, and "
    "by how much. (*) marks expected values in closed form where a sampler does not finish, as in the paper. Rejections are per sample "
    "for `Rejection` and per step for the walk, both as expected values in closed form (the walk's averaged over the sets it visited). "
    "Seconds are CPU time of one core; walks are timed per step, with k² steps per sample. The paper's walk draws through a tree "
    "of 256 MB, with the items per leaf listed below; the paper's tree has one, or 8 from 10⁵ items on. Figure 2 times both.",
    "Learned kernels come from what is available of the paper's data sets; those that are samples have fewer items than the paper's. "
    "Synthetic kernels have the paper's n. One set is learned by the paper's recipe and one by ours, which gives nine tenths of the "
    "columns of an NDPP to the skew part, the paper's one half: that fits baskets better, but costs samplers that reject more. A larger "
    "weight γ of ONDPP trades log-likelihood for fewer rejections.",
    "Not in the paper: `Exact`, `Walk(DirectUp)` and `Clock`. The figure shows rejections on the learned kernels and on the synthetic "
    "one of the smallest data set.",
)


MISSING = "Kernels of the paper's recipe are missing for {}: `experiments/publish/published.py` learns them, on a GPU within ten minutes."


def _prepare(kernel: LowRankKernel) -> Tree:
    """Compute coordinates and tree, which the paper's table calls preprocessing."""
    return Tree.prepare(afresh(kernel))


def _findings(times: Sequence[SamplerTime], published: Published) -> Iterator[Finding]:
    for i, data in enumerate(ORDER):
        for (task, sampler, metric), values in published.items():
            same = [t for t in times if (t.data, t.task, t.sampler) == (data, task, sampler)]
            ours = "; ".join(f"{_marked(t, metric)} ({t.kernel})" for t in same)
            if same:
                paper = values[i] if any(t.n == PAPER[i].n_items for t in same) else ""  # not beside other catalogues
                yield Finding(f"{data}, {task}: {metric} of `{sampler}`", paper, ours)
    yield from _claimed([t for t in times if t.n >= LARGE], published)
    gains = [samplers_timed.times_exact(times, t) for t in times if t.sampler == PAPERS_WALK and t.task != PREPARATION]
    text = f"{number(min(gains))} to {number(max(gains))} times"
    yield Finding("`Exact` faster than the paper's walk, both of this library", "", text, min(gains) > 1)


def _claimed(times: Sequence[SamplerTime], published: Published) -> Iterator[Finding]:
    """Yield what the paper says of its walk, and in table 2 of rejection, on all large catalogues."""
    shares = [t.rejections / t.n for t in times if t.sampler == PAPERS_WALK and t.rejections is not None]
    walks, drawn = ([t.seconds for t in times if (t.size, t.sampler) == (50, s)] for s in (PAPERS_WALK, REJECTION))
    if shares:
        text = f"at most {number(max(shares))} n (bound {FEW})"
        yield Finding(
            "rejections per step of the paper's walk", "very few compared to n", text, max(shares) <= FEW, Claim.FEW
        )
    if walks:
        text = f"at most {number(max(walks))} s (bound {MINUTES})"
        yield Finding("k = 50: the paper's walk", "within a few minutes", text, max(walks) <= MINUTES, Claim.MINUTES)
    if drawn and published is PAPER_TABLE:
        text = f"at least {number(min(drawn))} s, expected (bound {HOUR})"
        yield Finding("k = 50: `Rejection`", "infeasible on all data sets", text, min(drawn) >= HOUR, Claim.INFEASIBLE)


def _marked(time: SamplerTime, metric: Literal["seconds", "rejections"] = "seconds") -> str:
    return number(time.seconds if metric == "seconds" else time.rejections) + " (*)" * time.expected


def _markdown(times: Sequence[SamplerTime]) -> str:
    drawn = [t for t in times if t.task != PREPARATION]
    samplers = list(dict.fromkeys([EXACT, *(t.sampler for t in drawn)]))
    lines = []
    for key, own in grouped(drawn, lambda t: (t.data, t.kernel, t.task)).items():
        least = min(own, key=lambda t: t.seconds)
        cells = {t.sampler: f"**{_marked(t)}**" if t is least else _marked(t) for t in own}
        lines.append([*key, *(cells.get(name, "") for name in samplers)])
    return markdown_table(["data", "kernel", "task", *(f"`{name}`" for name in samplers)], lines)
