"""Every sampler on the two kernels learned from UK Retail: the times that the README and docs/benchmarks.md quote.

``benchmarks/bench_samplers.py`` runs this, measures what else the pages quote, and ``experiments/publish/figures.py`` writes them. A small
synthetic kernel replaces the learned ones if their files are missing.
"""

from __future__ import annotations

from ndpp_experiments.kernels import from_files, kernels
from ndpp_experiments.record import Result, Say
from ndpp_experiments.table2 import PAPER_TABLE, runtime_table

SIZES = (10, 50, 100, None)
SECONDS = 2.0
"""Time spent on each number."""


def measure(*, quick: bool, seed: int, say: Say) -> Result:
    """Time every sampler on the learned kernels."""
    learned = list(from_files(say))
    named = learned or kernels(orthogonal=False, quick=True, seed=seed, say=say)
    sizes = SIZES if learned else (SIZES[0], None)
    notes = NOTES if learned else (MISSING, *NOTES)
    return runtime_table(named, PAPER_TABLE, notes, quick=quick, seed=seed, say=say, sizes=sizes, seconds=SECONDS)


MISSING = "**The files of the learned kernels are missing**, so that this is a synthetic kernel, which the paper has no numbers for."
NOTES = (
    "Seconds are medians of the CPU time of one core, with one BLAS thread; the CSV file also has the minimum and the wall-clock time. A "
    "walk is timed per step, from an exact draw, and counts the paper's k² steps per sample; for a random size, E[k²] steps at the "
    "median size. (*) marks the time of a proposal times the expected number of proposals, in closed form, where drawing would take "
    "more than a few seconds. Rejections are per sample for `Rejection` and per step for the walk. The paper's numbers are of its own "
    "kernel of UK Retail, which is not public. Its walk draws through a tree of 256 MB, with the items per leaf listed below.",
)
