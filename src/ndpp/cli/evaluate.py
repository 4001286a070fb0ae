"""``ndpp evaluate`` and ``ndpp diagnose``: is the model any good, and is a walk on it to be trusted?"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from ndpp.baskets import Baskets
from ndpp.cli import options as o
from ndpp.cli.files import Source, check_output, load_model
from ndpp.cli.output import Report, Row, emit, working
from ndpp.cli.samplers import WALKS, Start, names_option, prepare
from ndpp.errors import InvalidInputError
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers.registry import WALK, Request

if TYPE_CHECKING:
    from ndpp.metrics import Estimate, ModelScores


class HoldoutName(StrEnum):
    """Which item of a basket is held out."""

    random = "random"
    largest_id = "largest-id"


TrainFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Baskets the model was fitted on: simple baselines are made from them."),
]
Top = Annotated[
    int, typer.Option("--top", metavar="N", min=1, help="Count how often the held-out item is among the first so many.")
]
HoldoutRule = Annotated[
    HoldoutName, typer.Option(help="Which item of a basket is held out; largest-id is that of published figures.")
]
Level = Annotated[float, typer.Option(metavar="N", min=0.0, max=1.0, help="Of the intervals.")]
Resamples = Annotated[int, typer.Option(metavar="N", min=0, help="Resamples behind the intervals.")]
WalkSize = Annotated[
    int | None,
    typer.Option(
        "--size", "-k", metavar="N", min=2, help="Items of each basket; left out, the likeliest number of at least two."
    ),
]
WalkName = Annotated[str, names_option(WALKS, help="Which walk")]
Steps = Annotated[int | None, typer.Option(metavar="N", min=0, help="Steps of a walk; size² if left out.")]
StartOption = Annotated[Start, typer.Option(help="Where a walk begins.")]
Chains = Annotated[int, typer.Option(metavar="N", min=2, help="Long chains.")]
PerChain = Annotated[
    int,
    typer.Option(
        "--number", "-n", metavar="N", min=20, help="Baskets of each long chain, of independent chains, and exact ones."
    ),
]


def evaluate(
    model: o.Model,
    baskets: o.BasketFile,
    train: TrainFile = None,
    top: Top = 10,
    holdout: HoldoutRule = HoldoutName.random,
    level: Level = 0.95,
    bootstrap: Resamples = 1000,
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
    seen = None if train is None else source.beside(train).read_for(kernel, ids=ids)
    rule = metrics.LargestId() if holdout is HoldoutName.largest_id else metrics.RandomHoldout()
    options: dict[str, Any] = {"k": top, "holdout": rule, "level": level, "n_boot": bootstrap, "rng": seed}
    scores: list[ModelScores] = []
    with working("evaluating") as now:
        for name, compared in {"model": kernel, **_baselines(kernel, seen)}.items():  # one at a time, to show progress
            now(f"evaluating {name}")
            # The seed holds out the same items for every model.
            scores += metrics.compare_models({name: compared}, asked, **options).rows
    notes = [f"{len(asked):,} baskets; {level:.0%} intervals in brackets."]
    if zero := max(estimate.n_zero for estimate in scores[0].estimates):
        notes.append(f"{zero:,} baskets have probability zero under the model and count in AUC alone.")
    rows = [_record(own.name, estimate) for own in scores for estimate in own.estimates]
    data = {"n_baskets": len(asked), "level": level, "seed": seed, "results": rows}
    emit(Report(data, rows, _side_by_side(scores), notes), output, as_json=json)


def _baselines(kernel: LowRankKernel, train: Baskets | None) -> dict[str, Any]:
    """Return simple models to compare with, made from the baskets of --train or, without them, from the model itself."""
    from ndpp import metrics

    if train is None:
        return {"independent items (the model's own)": metrics.independent_margins(kernel)}
    return {"independent items": metrics.independent_items(train), "item-item cosine": metrics.item_item_cosine(train)}


def _record(model: str, estimate: Estimate) -> Row:
    """Return the fields of an estimate, without its classes of sizes."""
    fields = asdict(estimate)
    del fields["by_size"]
    return {"model": model, "metric": fields.pop("name"), **fields}


def _side_by_side(scores: Sequence[ModelScores]) -> list[Row]:
    """Return a row per model and a column per metric."""
    rows = [{"": own.name, **{estimate.name: _cell(estimate) for estimate in own.estimates}} for own in scores]
    return [dict.fromkeys(rows[0], "–") | row for row in rows]


def _cell(estimate: Estimate) -> str:
    interval = "" if np.isnan(estimate.low) else f" ({estimate.low:.4g} to {estimate.high:.4g})"
    return f"{estimate.value:.4g}{interval}"


def diagnose(
    model: o.Model,
    size: WalkSize = None,
    walk: WalkName = WALK.name,
    steps: Steps = None,
    start: StartOption = Start.uniform,
    chains: Chains = 4,
    number: PerChain = 200,
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
        "largest": found.largest,
        "limit": found.limit,
        "worst": found.worst,
        "n_draws": found.n_draws,
    }
