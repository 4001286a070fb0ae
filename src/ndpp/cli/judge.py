"""``ndpp evaluate`` and ``ndpp diagnose``: is the model any good, and is a walk on it to be trusted?"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Any

import numpy as np
import typer

from ndpp.cli import options as o
from ndpp.cli.files import Source, check_output, load_model
from ndpp.cli.output import Report, emit, working
from ndpp.cli.samplers import WALKS, Start, names_option, prepare
from ndpp.errors import InvalidInputError
from ndpp.samplers.registry import WALK, Request


class Holdout(StrEnum):
    """Which item of a basket is held out."""

    random = "random"
    largest_id = "largest-id"


def evaluate(
    model: o.Model,
    baskets: o.BasketFile,
    train: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Baskets the model was fitted on: simple baselines are made from them."),
    ] = None,
    top: Annotated[
        int,
        typer.Option("--top", metavar="N", min=1, help="Count how often the held-out item is among the first so many."),
    ] = 10,
    holdout: Annotated[
        Holdout, typer.Option(help="Which item of a basket is held out; largest-id is that of published figures.")
    ] = Holdout.random,
    level: Annotated[float, typer.Option(metavar="N", min=0.0, max=1.0, help="Of the intervals.")] = 0.95,
    bootstrap: Annotated[int, typer.Option(metavar="N", min=0, help="Resamples behind the intervals.")] = 1000,
    seed: o.Seed = 0,
    output: o.Output = None,
    json: o.Json = False,
    ids: o.Ids = False,
    from_: o.From = None,
    basket: o.BasketColumn = "basket",
    item: o.ItemColumn = "item",
) -> None:
    """Judge a model on baskets it was not fitted on, beside simple baselines, with intervals.

    Without --train the baseline is the model itself with all ties between items cut.

    \b
    Examples:
      ndpp evaluate model.safetensors model.test.csv --train model.train.csv
      ndpp evaluate model.safetensors test.txt --json -o result.json
      ndpp sample model.safetensors -n 500 | ndpp evaluate model.safetensors -
    """
    from ndpp import metrics

    check_output(output, inputs=(model, baskets, train))
    kernel = load_model(model)
    source = Source(baskets, from_, basket, item)
    asked = source.read_for(kernel, ids=ids)
    if not len(asked):
        raise InvalidInputError(f"{source.name} holds no basket; at least one is needed to judge a model on")
    models: dict[str, Any] = {"model": kernel}
    if train is None:
        models["independent items (the model's own)"] = metrics.independent_margins(kernel)
    else:
        seen = source.beside(train).read_for(kernel, ids=ids)
        models |= {
            "independent items": metrics.independent_items(seen),
            "item-item cosine": metrics.item_item_cosine(seen),
        }
    rule = metrics.LargestId() if holdout is Holdout.largest_id else metrics.RandomHoldout()
    rows, shown = [], []
    with working("evaluating") as now:
        for name, judged in models.items():  # one at a time to tell how far it is; the seed holds out the same items
            now(f"evaluating {name}")
            result = metrics.compare(
                {name: judged}, asked, k=top, holdout=rule, level=level, n_boot=bootstrap, rng=seed
            )
            estimates = [estimate for estimate in result.rows[0][1:] if estimate is not None]
            rows += [
                {
                    "model": name,
                    "metric": e.name,
                    **{k: getattr(e, k) for k in ("value", "low", "high", "level", "n", "n_zero")},
                }
                for e in estimates
            ]
            cells = {
                e.name: f"{e.value:.4g}" + ("" if np.isnan(e.low) else f" ({e.low:.4g} to {e.high:.4g})")
                for e in estimates
            }
            shown.append({"": name, **cells})
    shown = [{key: row.get(key, "–") for key in shown[0]} for row in shown]
    zero = max(row["n_zero"] for row in rows if row["model"] == "model")
    notes = [f"{len(asked):,} baskets; {level:.0%} intervals in brackets."]
    if zero:
        notes.append(f"{zero:,} baskets have probability zero under the model and count in AUC alone.")
    emit(
        Report({"n_baskets": len(asked), "level": level, "seed": seed, "results": rows}, rows, shown, notes),
        output,
        as_json=json,
    )


def diagnose(
    model: o.Model,
    size: Annotated[
        int | None,
        typer.Option(
            "--size",
            "-k",
            metavar="N",
            min=2,
            help="Items of each basket; left out, the likeliest number of at least two.",
        ),
    ] = None,
    walk: Annotated[str, names_option(WALKS, help="Which walk")] = WALK.name,
    steps: Annotated[int | None, typer.Option(metavar="N", min=0, help="Steps of a walk; size² if left out.")] = None,
    start: Annotated[Start, typer.Option(help="Where a walk begins.")] = Start.uniform,
    chains: Annotated[int, typer.Option(metavar="N", min=2, help="Long chains.")] = 4,
    number: Annotated[
        int,
        typer.Option(
            "--number",
            "-n",
            metavar="N",
            min=20,
            help="Baskets of each long chain, of independent chains, and exact ones.",
        ),
    ] = 200,
    seed: o.Seed = 0,
    jobs: o.Jobs = 1,
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Run a walk against exact samples, and say in words whether it has converged.

    \b
    Examples:
      ndpp diagnose model.safetensors --size 10
      ndpp diagnose model.safetensors --size 10 --steps 20
      ndpp diagnose model.safetensors --size 10 --walk rejection-walk --json
    """
    from ndpp import diagnostics

    check_output(output, inputs=(model,))
    kernel = load_model(model)
    size = int(np.argmax(kernel.size_distribution()[2:])) + 2 if size is None else size
    ready: Any = prepare(walk, kernel, Request(size=size, steps=steps, start=start.value))
    found = diagnostics.diagnose_walk(
        ready, n_chains=chains, n_draws=number, rng=seed, n_jobs=jobs, progress=sys.stderr.isatty()
    )
    verdict = (
        "CONVERGED, as far as these signs tell"
        if found.converged
        else "NOT CONVERGED: do not trust this walk at this length"
    )
    watched = found.chains
    worst = np.argsort(-watched.psrf)[:5].tolist()
    rows = [
        {"functional": watched.names[i], "R-hat": watched.psrf[i], "effective draws": watched.ess[i]} for i in worst
    ]
    data = {
        "converged": found.converged, "size": found.size, "steps": found.steps, "walk": walk, "seed": seed,
        "chains": {
            "converged": watched.converged, "problems": watched.problems, "n_chains": watched.n_chains, "n_draws": watched.n_draws,
            "max_psrf": watched.psrf.max(), "psrf_allowed": watched.psrf_allowed, "effective_draws": watched.effective_draws,
        },
        "law": _agreement(found.law), "exact": _agreement(found.exact),
    }  # fmt: skip
    emit(Report(data, rows, notes=[*str(found).splitlines(), f"{verdict}."]), output, as_json=json)


def _agreement(found: Any) -> dict[str, Any]:
    return {
        "agrees": found.agrees,
        "largest": float(np.abs(found.z).max(initial=0.0)),
        "limit": found.limit,
        "worst": found.worst,
        "n_draws": found.n_draws,
    }
