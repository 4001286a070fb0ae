"""``ndpp demo``, ``ndpp reproduce`` and ``ndpp bench``: the experiments, from the command line.

The command imports this module for its help pages; the experiments themselves are imported when they are run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ndpp._show import Table
from ndpp.cli import options as o
from ndpp.cli.files import check_table, load_kernel, require
from ndpp.cli.guard import Interrupted
from ndpp.cli.output import Report, emit, working
from ndpp.datasets import make_kernel
from ndpp.errors import InvalidInputError

NO_MIXTURES = "the samplers that are compared need a single kernel"
NAMES = "Names of experiments, such as fig1 or table2, or all; --list shows them."


def _complete(incomplete: str) -> list[str]:
    from ndpp_experiments.registry import ALL, EXPERIMENTS

    return [name for name in (*EXPERIMENTS, ALL) if name.startswith(incomplete)]


Experiments = Annotated[list[str] | None, typer.Argument(metavar="NAME", help=NAMES, autocompletion=_complete)]
Quick = Annotated[bool, typer.Option("--quick", help="Use small settings, to check that everything runs in minutes.")]
Skip = Annotated[bool, typer.Option("--resume", help="Skip what the folder already holds with these settings.")]
List = Annotated[bool, typer.Option("--list", help="List the experiments, and run none.")]


def demo(
    output: Annotated[Path, o.file("Folder for the model and a map of it.", "--output", "-o", kind="FOLDER")] = Path(
        "demo-output"
    ),
) -> None:
    """Learn from a year of real groceries why people shop and what goes together, recommend, draw baskets: two minutes.

    \b
    Examples:
      ndpp demo
      ndpp demo -o somewhere
    """
    from ndpp_experiments import demo as demonstration

    _check_folder(output)
    output.mkdir(parents=True, exist_ok=True)  # fail now, not after two minutes
    demonstration.run(output, progress=sys.stderr.isatty())


def reproduce(
    names: Experiments = None,
    quick: Quick = False,
    output: Annotated[
        Path, o.file("Folder for tables, figures and report.md.", "--output", "-o", kind="FOLDER")
    ] = Path("results"),
    seed: o.Seed = 0,
    resume: Skip = False,
    list_: List = False,
    json: o.Json = False,
) -> None:
    """Reproduce tables and figures of the paper.

    \b
    Examples:
      ndpp reproduce --list
      ndpp reproduce fig1 --quick
      ndpp reproduce all --quick -o quick-results
    """
    from ndpp_experiments import registry

    if list_:
        table = Table(("name", "title"), [(one.name, one.title) for one in registry.EXPERIMENTS.values()])
        data: dict[str, Any] = {"experiments": [dict(zip(*pair)) for pair in ((table.header, e) for e in table.lines)]}
        emit(Report(data, table), None, as_json=json)
        return
    require(bool(names), "name at least one experiment, or all; --list shows them")
    for name in names or ():
        require(name in (*registry.EXPERIMENTS, registry.ALL), f"there is no experiment {name!r}; --list shows all")
    _check_folder(output)
    show = sys.stderr.isatty()
    try:
        report = registry.reproduce(names or (), output, quick=quick, seed=seed, progress=show, resume=resume)
    except KeyboardInterrupt:
        raise Interrupted(f"finished experiments are in {os.fspath(output)!r}; --resume continues") from None
    path = os.fspath(report)
    emit(Report({"report": path}, Table(("report",), [(path,)])), None, as_json=json)


def bench(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help="A model; default: a random kernel.")] = None,
    items: Annotated[int, o.number("Items of the random kernel.", least=1)] = 10_000,
    rank: Annotated[int, o.number("Rank of the random kernel.", least=2)] = 100,
    size: Annotated[int, o.number("Items per basket.", "--size", "-k")] = 10,
    any_size: Annotated[bool, typer.Option("--any-size", help="Draw baskets of any size instead.")] = False,
    device: o.Device = "cpu",
    seconds: Annotated[float, o.number("Sampling time per sampler, after the warm-up.")] = 2.0,
    seed: o.Seed = 0,
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Time the samplers on this machine. Compare ratios: seconds depend on the load of the machine.

    \b
    Examples:
      ndpp bench
      ndpp bench model.safetensors --size 5
      ndpp bench --items 100000 --rank 100 --any-size --json
    """
    from ndpp_experiments.bench import measure_all
    from ndpp_experiments.record import machine, table_of

    check_table(output, model)
    wanted = None if any_size else size
    with working("making the kernel") as show:
        kernel = make_kernel(items, rank, rng=seed) if model is None else load_kernel(model, NO_MIXTURES)
        how: dict[str, Any] = {"device": device, "seconds": seconds, "seed": seed}
        timings = measure_all(kernel, wanted, **how, say=lambda name: show(f"timing {name}"))
    if all(timing.seconds is None for timing in timings):
        raise InvalidInputError(timings[0].note)
    shown = Table(
        ("sampler", "first basket (s)", "per basket (ms)", "against exact", "baskets"),
        [
            (t.sampler, t.prepare, t.seconds and 1e3 * t.seconds, "–" if t.ratio is None else f"{t.ratio:,.1f} ×", t.n_samples)
            for t in timings
        ],
    )  # fmt: skip
    about = {"items": kernel.n_items, "rank": kernel.rank, "size": wanted, "device": device, "seed": seed}
    data = {**about, "machine": machine(), "timings": [timing._asdict() for timing in timings]}
    head = f"{kernel.n_items:,} items, rank {kernel.rank}, baskets of {'any size' if any_size else f'{size} items'}."
    notes = [head, *(f"{t.sampler}: {t.note}" for t in timings if t.note)]
    emit(Report(data, table_of(timings), shown, notes), output, as_json=json)


def _check_folder(path: Path) -> None:
    """Raise if a folder for results is a file."""
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"expected a folder for the results; {os.fspath(path)!r} is a file")
