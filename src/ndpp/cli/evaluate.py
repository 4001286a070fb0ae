"""``ndpp evaluate`` and ``ndpp diagnose``: how good is a model, and has a walk on it converged?"""

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
from ndpp.cli.files import Law, Source, check_output, load_kernel, load_model
from ndpp.cli.output import Report, emit, working
from ndpp.cli.samplers import WALKS, WalkStart, prepare, sampler_option
from ndpp.errors import InvalidInputError
from ndpp.experiments.record import Table
from ndpp.samplers.registry import WALK, Request

if TYPE_CHECKING:
    from ndpp.metrics import Estimate, ModelScores

HELD_OUT = "Which item of each basket is held out; published numbers use largest-id."
PER_CHAIN = "Baskets per long chain, number of independent chains, and number of exact samples."


class HoldoutName(StrEnum):
    """Which item of a basket is held out."""

    random = "random"
    largest_id = "largest-id"


def evaluate(
    model: o.Model,
    baskets: o.BasketFile,
    train: Annotated[str | None, o.file("Baskets that the model was fitted on, for simple baselines.")] = None,
    top: Annotated[int, o.number("Rank within which a held-out item counts as found.", least=1)] = 10,
    holdout: Annotated[HoldoutName, typer.Option(help=HELD_OUT)] = HoldoutName.random,
    level: Annotated[float, o.number("Level of the intervals.", max=1.0)] = 0.95,
    bootstrap: Annotated[int, o.number("Resamples for the intervals.")] = 1000,
    seed: o.Seed = 0,
    output: o.Output = None,
    json: o.Json = False,
    ids: o.Ids = False,
    from_: o.From = None,
    basket: o.BasketColumn = "basket",
    item: o.ItemColumn = "item",
) -> None:
    """Evaluate a model on baskets that it was not fitted on, and compare it with simple baselines.

    Without --train, the baseline is the model itself with independent items of the same frequencies.

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
    test = source.read_for(kernel, ids=ids)
    if not len(test):
        raise InvalidInputError(f"{source.name} holds no basket; evaluation needs at least one")
    seen = None if train is None else source.sibling(train).read_for(kernel, ids=ids)
    rule = metrics.LargestId() if holdout is HoldoutName.largest_id else metrics.RandomHoldout()
    models = {"model": kernel, **_baselines(kernel, seen)}
    with working("evaluating"):
        scores = metrics.compare_models(models, test, k=top, holdout=rule, level=level, n_boot=bootstrap, rng=seed).rows
    notes = [f"{len(test):,} baskets; {level:.0%} intervals in brackets."]
    if n_zero := max(estimate.n_zero for estimate in scores[0].estimates):
        notes.append(f"{n_zero:,} baskets have probability zero under the model; only AUC includes them.")
    results = [_record(own.name, estimate) for own in scores for estimate in own.estimates]
    data = {"n_baskets": len(test), "level": level, "seed": seed, "results": results}
    table = Table(list(results[0]), [list(result.values()) for result in results])
    emit(Report(data, table, _side_by_side(scores), notes), output, as_json=json)


def _baselines(kernel: Law, train: Baskets | None) -> dict[str, Any]:
    """Return simple models to compare with, made from the baskets of --train or else from the model itself."""
    from ndpp import metrics

    if train is None:
        return {"independent items (the model's own)": metrics.independent_margins(kernel)}
    return {"independent items": metrics.independent_items(train), "item-item cosine": metrics.item_item_cosine(train)}


def _record(model: str, estimate: Estimate) -> dict[str, Any]:
    """Return the fields of an estimate, without its classes of sizes."""
    fields = asdict(estimate)
    del fields["by_size"]
    return {"model": model, "metric": fields.pop("name"), **fields}


def _side_by_side(scores: Sequence[ModelScores]) -> Table:
    """Return a table with a line per model and a column per metric."""
    cells = [{estimate.name: _cell(estimate) for estimate in own.estimates} for own in scores]
    names = list(cells[0])
    lines = [[own.name, *(cell.get(name, "–") for name in names)] for own, cell in zip(scores, cells)]
    return Table(["", *names], lines)


def _cell(estimate: Estimate) -> str:
    interval = "" if np.isnan(estimate.low) else f" ({estimate.low:.4g} to {estimate.high:.4g})"
    return f"{estimate.value:.4g}{interval}"


def diagnose(
    model: o.Model,
    size: Annotated[
        int | None,
        o.number("Items per basket; default: the likeliest number of at least two.", "--size", "-k", least=2),
    ] = None,
    walk: Annotated[str, sampler_option("Walk", WALKS)] = WALK.name,
    steps: Annotated[int | None, o.number("Steps of the walk; default: size².")] = None,
    start: Annotated[WalkStart, typer.Option(help="Where the walk starts.")] = WalkStart.uniform,
    chains: Annotated[int, o.number("Number of long chains.", least=2)] = 4,
    number: Annotated[int, o.number(PER_CHAIN, "--number", "-n", least=20)] = 200,
    seed: o.Seed = 0,
    jobs: o.Jobs = 1,
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Compare a walk with exact samples, and report whether it has converged.

    \b
    Examples:
      ndpp diagnose model.safetensors --size 10
      ndpp diagnose model.safetensors --size 10 --steps 20
      ndpp diagnose model.safetensors --size 10 --walk rejection-walk --json
    """
    from ndpp import diagnostics

    check_output(output, inputs=(model,))
    kernel = load_kernel(model, "its samples are exact, and only walks on a single kernel need a diagnosis")
    size = int(np.argmax(kernel.size_distribution()[2:])) + 2 if size is None else size
    ready: Any = prepare(walk, kernel, Request(size=size, steps=steps, start=start.value))
    show = sys.stderr.isatty()
    found = diagnostics.diagnose_walk(ready, n_chains=chains, n_draws=number, rng=seed, n_jobs=jobs, progress=show)
    long = found.chains
    data = {
        "converged": found.converged, "size": found.size, "steps": found.steps, "walk": walk, "seed": seed,
        "chains": {
            "converged": long.converged, "problems": long.problems, "n_chains": long.n_chains, "n_draws": long.n_draws,
            "max_psrf": long.psrf.max(), "psrf_allowed": long.psrf_allowed, "effective_draws": long.effective_draws,
        },
        "law": _agreement(found.law), "exact": _agreement(found.exact),
    }  # fmt: skip
    worst = [(long.names[i], long.psrf[i], long.ess[i]) for i in np.argsort(-long.psrf)[:5].tolist()]
    verdict = "CONVERGED, as far as these diagnostics show."
    if not found.converged:
        verdict = "NOT CONVERGED: do not trust this walk at this length."
    table = Table(("functional", "R-hat", "effective draws"), worst)
    emit(Report(data, table, notes=[*str(found).splitlines(), verdict]), output, as_json=json)


def _agreement(found: Any) -> dict[str, Any]:
    return {
        "agrees": found.agrees, "largest": found.largest, "limit": found.limit, "worst": found.worst, "n_draws": found.n_draws,
    }  # fmt: skip
