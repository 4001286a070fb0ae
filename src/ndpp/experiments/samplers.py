"""Every sampler on the two learned kernels of UK Retail: the times that the README and the page of benchmarks quote.

``benchmarks/bench_samplers.py`` runs this, takes what else is quoted in the same run, and ``docs/figures.py`` writes the pages.
Without the files of the kernels, a small synthetic one stands in.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from ndpp.experiments.kernels import from_files, kernels
from ndpp.experiments.record import Result
from ndpp.experiments.table2 import PAPER_TABLE, runtime_table

SIZES = (10, 50, 100, None)
SECONDS = 2.0
"""Time for each figure."""


def measure(*, quick: bool, seed: int, say: Callable[[str], None]) -> Result:
    """Time every sampler on the learned kernels."""
    found = from_files(say)
    first = next(found, None)
    named = chain([first], found) if first else kernels(orthogonal=False, quick=True, seed=seed, say=say)
    sizes = SIZES if first else (SIZES[0], None)
    return runtime_table(named, PAPER_TABLE, NOTES, quick=quick, seed=seed, say=say, sizes=sizes, seconds=SECONDS)


NOTES = (
    "Seconds are medians of the CPU time of one core, one BLAS thread; the CSV file has the least and the wall-clock time beside them. "
    "A walk is timed by the step, from an exact draw, and counted with the paper's k² steps; where the size is random, with E[k²] steps "
    "of the median size. (*) marks the time of a proposal times the expected number of proposals, known in closed form, where drawing "
    "would take more than a few seconds. Rejections are of one sample for `Rejection` and of one step for the walk. The paper's numbers "
    "are of its own kernel of UK Retail, which is not public.",
)
