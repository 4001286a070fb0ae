"""``ndpp evaluate`` and ``ndpp diagnose``: how good is a model, and has a walk on it converged?"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack, cast

import numpy as np
import typer

from ndpp._show import Table
from ndpp.baskets import Baskets
from ndpp.baskets.labels import many, places
from ndpp.baskets.orders import Orders
from ndpp.baskets.times import CALENDAR
from ndpp.cli import options as o
from ndpp.cli.draw import WALKS, Steps, WalkStart, prepare, sampler_option
from ndpp.cli.files import Law, Source, check_table, context_of, load_kernel, load_model, require
from ndpp.cli.output import Report, emit, working
from ndpp.errors import InvalidInputError
from ndpp.samplers import Walk
from ndpp.samplers.registry import WALK, Request

if TYPE_CHECKING:
    from ndpp.diagnostics.agreement import Agreement
    from ndpp.metrics import Comparison
    from ndpp.metrics.ranking import RankOptions

VALIDATION = (
    "Baskets that choose the penalty of the baseline EASE, none of those in BASKETS; default: a penalty of 100."
)
HELD_OUT = "Which item of each basket is held out; published numbers use largest-id."
TIME = "CSV or Parquet column of the time, from which weekday, month, season and hour follow, if the model depends on them."
AGAINST = "Another model, to compare with basket by basket; may be repeated. Gains are then over the first of these."
EASE = "EASE"
JUDGED = "This is about the Markov chain, not about the fit of the model; for that, see ndpp evaluate."
PER_CHAIN = "Baskets per long chain, number of independent chains, and number of exact samples."


def evaluate(
    model: o.Model,
    baskets: o.BasketFile,
    train: Annotated[str | None, o.file("Baskets that the model was fitted on, for simple baselines.")] = None,
    validation: Annotated[str | None, o.file(VALIDATION)] = None,
    against: Annotated[list[Path] | None, o.file(AGAINST, kind="MODEL")] = None,
    top: Annotated[int, o.number("Rank within which a held-out item counts as found.", least=1)] = 10,
    holdout: Annotated[Literal["random", "largest-id"], typer.Option(help=HELD_OUT)] = "random",
    level: Annotated[float, o.number("Level of the intervals.", most=1.0)] = 0.95,
    bootstrap: Annotated[int, o.number("Resamples for the intervals.")] = 1000,
    seed: o.Seed = 0,
    at: o.At = None,
    time: Annotated[str | None, o.word(TIME)] = None,
    output: o.Output = None,
    json: o.Json = False,
    ids: o.Ids = False,
    *,
    reading: o.ReadingFor,
) -> None:
    """Evaluate a model on baskets that it was not fitted on, and compare it with simple baselines.

    All means are over the same baskets, with the same items held out. With --train, the baselines are independent items, item-item
    cosine and EASE; without, the model itself with independent items of the same frequencies. A model that was fitted with context judges
    each basket in its own, by the columns of the file; a note names those that are missing.

    \b
    Examples:
      ndpp evaluate model.safetensors model.test.csv --train model.train.csv
      ndpp evaluate model.safetensors test.txt --json -o result.json
      ndpp evaluate tonight.safetensors test.csv --against yesterday.safetensors
      ndpp sample model.safetensors -n 500 | ndpp evaluate model.safetensors -
    """
    check_table(output, model, baskets, train, validation, *(against or ()))
    require(validation is None or train is not None, "--validation is for the baselines, which need --train")
    situation, source = context_of(at), Source(baskets, reading)
    law = load_model(model).at(situation, unknown=reading.unknown)
    others = {path.stem: load_model(path).at(situation, unknown="skip") for path in against or ()}
    require(len(others) == len(against or ()), "--against takes models in files of different names")
    options: RankOptions = {"holdout": holdout, "level": level, "n_boot": bootstrap, "rng": seed}
    with working("evaluating"):
        judged, found, notes = compare(
            law, source, train, validation, ids=ids, time=time, k=top, others=others, **options
        )
    results = [
        {"model": own.name, "metric": estimate.name, **{n: v for n, v in asdict(estimate).items() if n != "name"}}
        for own in found.rows
        for estimate in own.estimates
    ]
    data = {
        "n_baskets": found.n_baskets, "n_impossible": found.n_impossible, "n_held_out": found.n_held_out,
        "n_unranked": found.n_unranked, "base": found.base, "level": level, "seed": seed, "results": results,
        **({"at": sorted(at)} if at else {}), **({"context": list(judged.context)} if law.context else {}),
    }  # fmt: skip
    table = Table(list(results[0]), [list(result.values()) for result in results])
    emit(Report(data, table, [Table(*shown) for shown in found.tables()], notes), output, as_json=json)


def compare(
    law: Law,
    source: Source,
    train: str | None,
    validation: str | None = None,
    *,
    ids: bool,
    time: str | None = None,
    k: int = 10,
    others: Mapping[str, Law] | None = None,
    **options: Unpack[RankOptions],
) -> tuple[Baskets, Comparison, list[str]]:
    """Compare a model with simple ones, made from the baskets of --train or else from itself; return the baskets, the result and notes.

    With other models, gains are over the first of them, and all are judged on the items that all of them have.
    """
    from ndpp import metrics
    from ndpp.metrics.regression import MAX_ITEMS

    test = source.read_for(law, ids=ids, context=list(law.context), time=time, partial=True)
    if not len(test):
        raise InvalidInputError(f"{source.name} holds no basket; evaluation needs at least one")
    law, test, own, shared = in_common(law, test, others or {})
    if shared and train is not None:
        raise InvalidInputError("--train goes with models of the same items; these differ")
    models: dict[str, Any] = {"model": law, **own}
    if train is None and not others:
        models["independent items (the model's own)"] = metrics.independent_margins(law)
    elif train is not None:
        seen = source.sibling(train).read_for(law, ids=ids)
        other = None if validation is None else source.sibling(validation).read_for(law, ids=ids)
        models["independent items"] = metrics.independent_items(seen)
        models["item-item cosine"] = metrics.item_item_cosine(seen)
        if law.n_items <= MAX_ITEMS:
            models[EASE] = metrics.ease(seen, validation=other)
    found = metrics.compare_models(models, test, k=k, base=next(iter(own), None), **options)
    notes = [*found.notes(), *shared, f"± is half the width of a {options.get('level', 0.95):.0%} interval."]
    notes += context_notes(law, test, source.name)
    if train is not None and EASE not in models:
        notes.append(f"{EASE} is left out: it takes the square of {law.n_items:,} items in memory.")
    return test, found, notes


def in_common(
    law: Law, test: Orders, others: Mapping[str, Law], argument: str = "against"
) -> tuple[Law, Orders, dict[str, Law], list[str]]:
    """Return the models and baskets over the items that all models have, and a note if these are not all items of each.

    ``argument`` is what names the others.
    """
    if all(other.labels == law.labels and other.n_items == law.n_items for other in others.values()):
        return law, test, dict(others), []
    if law.labels is None or any(other.labels is None for other in others.values()):
        raise InvalidInputError(
            "has other items than the model; such models are compared by the names of items, and one has none",
            argument=argument,
        )
    common = set(law.labels).intersection(*(other.labels or () for other in others.values()))
    if not common:
        raise InvalidInputError("has no item of the model", argument=argument)
    made = [one.remove([name for name in one.labels or () if name not in common]) for one in (law, *others.values())]
    if any(one.labels != made[0].labels for one in made):
        raise InvalidInputError(
            "has the items of the model in another order; ndpp update keeps it, a new fit may not", argument=argument
        )
    judged = test._placed(places(law.labels, made[0].labels or ()), made[0].labels, made[0].n_items)
    told = f"Judged on the {many(len(common), 'item')} that all models have; the model has {law.n_items:,}."
    return made[0], judged, dict(zip(others, made[1:])), [told]


def context_notes(law: Law, baskets: Baskets, name: str) -> list[str]:
    """Return in which context baskets are judged, and what is not known of it, in sentences; nothing for a model without context."""
    used = [column for column in law.context if column in baskets.context]
    lacking = [column for column in law.context if column not in used]
    told = [f"Each basket is judged in its own context, by {' and '.join(used)}."] if used else []
    if lacking:
        how = f"without {'it' if len(lacking) == 1 else 'them'}" if used else "with its plain weights"
        derived = f"; --time derives {'it' if len(lacking) == 1 else 'them'}" if set(lacking) <= set(CALENDAR) else ""
        told.append(f"{name} has no column {' and '.join(map(repr, lacking))}: the model is judged {how}{derived}.")
    words = baskets.context
    strange = {column: int(np.sum(~np.isin(words[column], ["", *law.context[column]]))) for column in used}
    new = (
        f"The model does not know the {column} of {many(n, 'basket')}, and ignores it there."
        for column, n in strange.items()
        if n
    )
    return [*told, *new]


def diagnose(
    model: o.Model,
    size: Annotated[
        int | None,
        o.number("Items per basket; default: the likeliest number of at least two.", "--size", "-k", least=2),
    ] = None,
    walk: Annotated[str, sampler_option("Walk", WALKS)] = WALK.name,
    steps: Steps = None,
    start: WalkStart = "uniform",
    chains: Annotated[int, o.number("Number of long chains.", least=2)] = 4,
    number: Annotated[int, o.number(PER_CHAIN, "--number", "-n", least=20)] = 200,
    seed: o.Seed = 0,
    jobs: o.Jobs = 1,
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Compare a walk with exact samples, and report whether it has converged.

    This judges a Markov chain that draws from the model, not how well the model fits; ndpp evaluate does that.

    \b
    Examples:
      ndpp diagnose model.safetensors --size 10
      ndpp diagnose model.safetensors --size 10 --steps 20
      ndpp diagnose model.safetensors --size 10 --walk rejection-walk --json
    """
    from ndpp import diagnostics

    check_table(output, model)
    kernel = load_kernel(model, "its samples are exact, and only walks on a single kernel need a diagnosis")
    size = int(np.argmax(kernel.size_distribution()[2:])) + 2 if size is None else size
    ready = cast(Walk, prepare(walk, kernel, Request(size=size, steps=steps, start=start)))
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
    emit(Report(data, table, notes=[*str(found).splitlines(), verdict, JUDGED]), output, as_json=json)


def _agreement(found: Agreement) -> dict[str, Any]:
    return {name: getattr(found, name) for name in ("agrees", "largest", "limit", "worst", "n_draws")}
