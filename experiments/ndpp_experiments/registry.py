"""Every table and figure of the paper by name, and :func:`reproduce`, which runs them and writes the report.

Only the installed package is needed. If the environment variable ``NDPP_DATA`` names a folder of real data, its learned kernels and
baskets are used; otherwise synthetic kernels of the paper's sizes, and the report says so.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import threadpoolctl

from ndpp.errors import InvalidInputError, MissingExtraError
from ndpp_experiments.record import Result, load_average, machine, read, report, write

ALL = "all"


@dataclass(frozen=True)
class Experiment:
    """One table or figure. Its module has a function ``measure(*, quick, seed, say)`` that returns a ``Result``."""

    name: str
    title: str

    def run(self, output: Path, *, quick: bool, seed: int, progress: bool) -> None:
        """Run the experiment with one BLAS thread, and write its tables, figure and record into ``output``."""
        began, where = time.perf_counter(), machine()

        def say(text: str) -> None:
            if progress:
                print(f"{self.name} {time.perf_counter() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

        module = f"ndpp_experiments.{self.name.replace('-', '_')}"
        measure: Callable[..., Result] = importlib.import_module(module).measure
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
            result = measure(quick=quick, seed=seed, say=say)
        where["load_average_after"] = load_average()
        seconds = round(time.perf_counter() - began, 1)
        about = {"quick": quick, "seed": seed, "seconds": seconds, "machine": where}
        write(self.name, self.title, result, Path(output), about=about)
        say("done")


EXPERIMENTS: dict[str, Experiment] = {
    name: Experiment(name, title)
    for name, title in {
        "fig1": "Figure 1: distance to the true distribution",
        "fig2": "Figure 2: time against n and k",
        "table1": "Table 1: costs, with measured exponents",
        "theorem4": "The paper's Theorem 4: proposals per step and their bound",
        "table2": "Table 2: time and rejections, NDPP kernels",
        "table3": "Table 3: time and rejections, ONDPP kernels",
        "samplers": "Every sampler on two learned kernels",
        "psrf": "PSRF: empirical mixing time",
        "map-init": "Starting a walk at the greedy MAP set",
        "beyond": "Beyond the paper: exact samples against the walk",
        "limits": "Beyond the paper: exact samples under limits",
        "prices": "Beyond the paper: what a price does to the odds of a product",
        "registries": "Densities: test log-likelihood beside that of circuits",
        "next_basket": "The next basket of known customers",
        "new_items": "New products: hidden items placed by name and by features",
        "a-year": "A year in monthly steps: updates beside new fits",
    }.items()
}
"""Experiments by name, in the order of the paper, and then those that are not in it."""


def reproduce(
    names: Sequence[str], output: Path, *, quick: bool, seed: int = 0, progress: bool = False, resume: bool = False
) -> Path:
    """Run experiments and return the path of the report.

    Parameters
    ----------
    names : sequence of str
        Keys of ``EXPERIMENTS``, or "all".
    output : path
        Folder for CSV, JSON, PNG, SVG and ``report.md``, which covers every experiment ever run into it.
    quick : bool
        Use small settings that take a minute or two in all.
    seed : int
        Seed of all random numbers.
    progress : bool
        Report progress on standard error.
    resume : bool
        Skip experiments that ``output`` already holds with the same seed and settings.

    Examples
    --------
    >>> reproduce(["fig9"], Path("nowhere"), quick=True)
    Traceback (most recent call last):
        ...
    ndpp.errors.InvalidInputError: unknown experiment 'fig9'; expected one of fig1, fig2, ..., a-year, all
    """
    known = [*EXPERIMENTS, ALL]
    for name in names:
        if name not in known:
            raise InvalidInputError(f"unknown experiment {name!r}; expected one of {', '.join(known)}")
    if not names:
        raise InvalidInputError(f"no experiment was named; expected one of {', '.join(known)}")
    if importlib.util.find_spec("matplotlib") is None:  # fail before the first hour, not after it
        raise MissingExtraError("matplotlib", "plot", "Reproducing figures")
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    for name, experiment in EXPERIMENTS.items():
        if name not in names and ALL not in names:
            continue
        record = read(output, name) if resume else None
        if record is None or (record["quick"], record["seed"]) != (quick, seed):
            experiment.run(output, quick=quick, seed=seed, progress=progress)
            report(output, list(EXPERIMENTS))
    return report(output, list(EXPERIMENTS))
