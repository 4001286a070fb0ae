"""Every table and figure of the paper by name, and :func:`reproduce`, which runs them and writes the report.

Nothing but the installed package is needed. Where the environment variable ``NDPP_DATA`` names a folder of real data, its
learned kernels and baskets are used; without it, synthetic kernels of the paper's sizes, and the report says so.
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
from ndpp.experiments.record import Result, load_average, machine, read, report, write

Say = Callable[[str], None]
"""Where an experiment tells how far it is."""

ALL = "all"


@dataclass(frozen=True)
class Experiment:
    """One table or figure. ``module`` has a function ``measure(*, quick, seed, say)`` that returns a ``Result``."""

    name: str
    title: str
    module: str

    def run(self, output: Path, *, quick: bool, seed: int, progress: bool) -> None:
        """Run the experiment and write its tables, pictures and record into ``output``; BLAS is held to one thread."""
        began, about = time.perf_counter(), machine()

        def say(text: str) -> None:
            if progress:
                print(f"{self.name} {time.perf_counter() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

        measure: Callable[..., Result] = importlib.import_module(f"ndpp.experiments.{self.module}").measure
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
            result = measure(quick=quick, seed=seed, say=say)
        about["load_average_after"] = load_average()
        seconds = round(time.perf_counter() - began, 1)
        write(
            self.name,
            self.title,
            result,
            Path(output),
            about={"quick": quick, "seed": seed, "seconds": seconds, "machine": about},
        )
        say("done")


EXPERIMENTS: dict[str, Experiment] = {
    name: Experiment(name, title, name.replace("-", "_"))
    for name, title in {
        "fig1": "Figure 1: distance to the true law",
        "fig2": "Figure 2: time against n and k",
        "table1": "Table 1: costs, with measured exponents",
        "table2": "Table 2: time and rejections, NDPP kernels",
        "table3": "Table 3: time and rejections, ONDPP kernels",
        "samplers": "Every sampler on two learned kernels",
        "psrf": "PSRF: empirical mixing time",
        "map-init": "Starting a walk at the greedy MAP set",
        "beyond": "Beyond the paper: exact samples against the walk",
    }.items()
}
"""Names of the command line, in the order of the paper."""


def reproduce(
    names: Sequence[str],
    output: Path,
    *,
    quick: bool,
    seed: int = 0,
    progress: bool = False,
    resume: bool = False,
) -> Path:
    """Run experiments and return the path of the report.

    Parameters
    ----------
    names : sequence of str
        Keys of ``EXPERIMENTS``, or "all".
    output : path
        Folder for CSV, JSON, PNG, SVG and ``report.md``, which tells of all experiments that were ever run into it.
    quick : bool
        Settings of a minute or two in all, instead of the paper's.
    seed : int
        Seed of all random numbers.
    progress : bool
        Say on stderr how far it is.
    resume : bool
        Leave out experiments that were already recorded in ``output`` with the same seed and settings.

    Examples
    --------
    >>> reproduce(["fig9"], Path("nowhere"), quick=True)
    Traceback (most recent call last):
        ...
    ndpp.errors.InvalidInputError: unknown experiment 'fig9'; there are fig1, fig2, ..., beyond, all
    """
    chosen = _chosen(names)
    if importlib.util.find_spec("matplotlib") is None:  # said before the first hour, not after it
        raise MissingExtraError("matplotlib", "plot", "Reproducing figures")
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    for experiment in chosen:
        if not (resume and _is_done(output, experiment.name, quick=quick, seed=seed)):
            experiment.run(output, quick=quick, seed=seed, progress=progress)
            report(output, list(EXPERIMENTS))
    return report(output, list(EXPERIMENTS))


def _chosen(names: Sequence[str]) -> list[Experiment]:
    for name in names:
        if name not in EXPERIMENTS and name != ALL:
            raise InvalidInputError(f"unknown experiment {name!r}; there are {', '.join([*EXPERIMENTS, ALL])}")
    if not names:
        raise InvalidInputError(f"no experiment was named; there are {', '.join([*EXPERIMENTS, ALL])}")
    return [experiment for name, experiment in EXPERIMENTS.items() if name in names or ALL in names]


def _is_done(output: Path, name: str, *, quick: bool, seed: int) -> bool:
    record = read(output, name)
    return record is not None and (record["quick"], record["seed"]) == (quick, seed)
