"""``ndpp demo``, ``reproduce`` and ``bench``: what the experiments do, from the command line."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ndpp.cli import options as o
from ndpp.cli.files import check_folder, check_output, load_model, need
from ndpp.cli.guard import Interrupted
from ndpp.cli.output import Report, emit, working
from ndpp.datasets import make_kernel
from ndpp.errors import InvalidInputError
from ndpp.experiments import bench as benchmark
from ndpp.experiments import registry
from ndpp.experiments.record import machine
from ndpp.samplers.registry import Request, offered

MOST_PROPOSALS = 100
"""Proposals per basket above which a benchmark does not wait for the rejection sampler."""


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the kernel and a picture of it.")
    ] = Path("demo-output"),
) -> None:
    """Learn a kernel from a year of real groceries, read it, complete baskets, compare samplers: two minutes.

    \b
    Examples:
      ndpp demo
      ndpp demo -o somewhere
    """
    from ndpp.experiments import demo as demonstration

    check_folder(output)
    output.mkdir(parents=True, exist_ok=True)  # now, not after two minutes
    demonstration.run(output, progress=sys.stderr.isatty())


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help=f"{', '.join(registry.EXPERIMENTS)}, or all.",
            autocompletion=lambda incomplete: [
                name for name in (*registry.EXPERIMENTS, "all") if name.startswith(incomplete)
            ],
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small settings, minutes in all, to see that everything runs.")
    ] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for tables, pictures and report.md.")
    ] = Path("results"),
    seed: o.Seed = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Leave out what the folder already holds, with the same seed and settings.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the experiments, and run none.")] = False,
    json: o.Json = False,
) -> None:
    """Reproduce tables and figures of the paper.

    \b
    Examples:
      ndpp reproduce --list
      ndpp reproduce fig1 --quick
      ndpp reproduce all --quick -o quick-results
    """
    if list_:
        rows = [{"name": name, "title": experiment.title} for name, experiment in registry.EXPERIMENTS.items()]
        emit(Report({"experiments": rows}, rows), None, as_json=json)
        return
    need(bool(names), "name at least one experiment, or all; --list shows them")
    for name in names or ():
        known = name in registry.EXPERIMENTS or name == registry.ALL
        need(known, f"there is no experiment {name!r}; --list shows all")
    check_folder(output)
    try:
        report = registry.reproduce(
            names or (), output, quick=quick, seed=seed, progress=sys.stderr.isatty(), resume=resume
        )
    except KeyboardInterrupt:
        raise Interrupted(f"what was finished is in {os.fspath(output)!r}; --resume goes on with the rest") from None
    emit(Report({"report": os.fspath(report)}, [{"report": os.fspath(report)}]), None, as_json=json)


def bench(
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL", help="A model file; left out, a random kernel.")
    ] = None,
    items: Annotated[int, typer.Option(metavar="N", min=1, help="Items of the random kernel.")] = 10_000,
    rank: Annotated[int, typer.Option(metavar="N", min=2, help="Rank of the random kernel.")] = 100,
    size: Annotated[int, typer.Option("--size", "-k", metavar="N", min=0, help="Items of each basket.")] = 10,
    any_size: Annotated[bool, typer.Option("--any-size", help="Draw baskets of any size instead.")] = False,
    device: o.Device = "cpu",
    seconds: Annotated[
        float, typer.Option(metavar="N", min=0.0, help="Drawing time of each sampler, once it is warm.")
    ] = 2.0,
    seed: o.Seed = 0,
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Time the samplers on this machine. Look at the ratios: seconds depend on what else the machine does.

    \b
    Examples:
      ndpp bench
      ndpp bench model.safetensors --size 5
      ndpp bench --items 100000 --rank 100 --any-size --json
    """
    check_output(output, inputs=(model,))
    with working("making the kernel") as now:
        kernel = make_kernel(items, rank, rng=seed) if model is None else load_model(model)
        wanted = None if any_size else size
        request = Request(wanted, max_proposals=MOST_PROPOSALS)
        ready = {
            spec.name: partial(spec.prepare, kernel, request._replace(device=device) if spec.on_gpu else request)
            for spec in offered(wanted)
        }
        # A tiny kernel first: what is compiled or imported once is nobody's time.
        tiny, small = make_kernel(20, 4, rng=seed), Request(None if any_size else min(2, size))
        benchmark.measure({spec.name: partial(spec.prepare, tiny, small) for spec in offered(wanted)}, seconds=0.0)
        timings = benchmark.measure(ready, seconds=seconds, seed=seed, say=lambda name: now(f"timing {name}"))
    if all(timing.seconds is None for timing in timings):
        raise InvalidInputError(timings[0].note)
    rows = [timing._asdict() for timing in timings]
    shown = [
        {
            "sampler": t.sampler, "prepare (s)": t.prepare, "per basket (ms)": None if t.seconds is None else 1e3 * t.seconds,
            "against exact": "–" if t.ratio is None else f"{t.ratio:,.1f} ×", "baskets": t.n_samples,
        }
        for t in timings
    ]  # fmt: skip
    about: dict[str, Any] = {
        "items": kernel.n_items,
        "rank": kernel.rank,
        "size": wanted,
        "device": device,
        "seed": seed,
    }
    notes = [f"{t.sampler}: {t.note}" for t in timings if t.note]
    head = f"{kernel.n_items:,} items, rank {kernel.rank}, baskets of {'any size' if any_size else f'{size} items'}."
    emit(Report({**about, "machine": machine(), "timings": rows}, rows, shown, [head, *notes]), output, as_json=json)
