"""``ndpp update``: a model after another night of orders, and the customers' file with it."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ndpp import answers
from ndpp._atomic import one_writer, replacing
from ndpp._show import Table, called
from ndpp.cli import options as o
from ndpp.cli.files import OTHER_FORMATS, Source, check_output, item_ids, load_prepared
from ndpp.cli.fit import progress, stage
from ndpp.cli.output import Report, emit
from ndpp.customers import Customers
from ndpp.laws.files import save

if TYPE_CHECKING:
    from ndpp.learning import Updated

SHOWN = 3
"""Items, and missions, that are named as the most changed."""
CUSTOMERS = "The customers' file, which counts tonight's orders, too: either both files are replaced or none."
VALIDATION = "Orders that judge the new model; default: a tenth of ORDERS, which is not learned from."
TIME = "Column of the time, for --customers, and for weekday, month, season and hour, if the model depends on them; default: time."
HALF = "Number of new orders after which the weight of old ones is halved; default: it never is."
LEAST_ORDERS = "Minimum number of orders with a new item before it enters the model."
AFTER = "Remove items that were not sold in this many updates in a row."
KEEP = "No item enters or leaves: new items are left out of the orders, and the ids of the items stay as they are."
FORCE = "Write the model though it is worse, and learn from orders that were seen before or are unlike all others."


@dataclass(frozen=True)
class Continuing:
    """How training continues, and which items enter and leave."""

    seen: Annotated[float | None, o.number("How many orders the model has seen, if its file does not say.")] = None
    old_weight: Annotated[float, o.number("Weight of an order that the model has seen, relative to a new one.")] = 0.25
    half_life: Annotated[float | None, o.number(HALF)] = None
    least_orders: Annotated[int, o.number(LEAST_ORDERS, least=1)] = 3
    drop_after: Annotated[int | None, o.number(AFTER, least=1)] = None
    keep_catalogue: Annotated[bool, typer.Option("--keep-catalogue", help=KEEP)] = False
    force: Annotated[bool, typer.Option("--force", help=FORCE)] = False
    max_epochs: Annotated[int, o.number("Passes over the orders.")] = 3
    learning_rate: Annotated[float, o.number("Learning rate of Adam.")] = 0.005


def update(
    model: o.Model,
    orders: Annotated[str, typer.Argument(metavar="ORDERS", help="A file of baskets; - is standard input.")],
    output: Annotated[Path, o.file("The model file to write; it may be MODEL.", "--output", "-o")],
    customers: Annotated[Path | None, o.file(CUSTOMERS)] = None,
    customer: Annotated[str, o.word("Column of the customer, for --customers.")] = "customer",
    time: Annotated[str | None, o.word(TIME)] = None,
    validation: Annotated[str | None, o.file(VALIDATION)] = None,
    drop: Annotated[
        list[str] | None, o.word("Items to remove, separated by commas; may be repeated.", metavar="ITEMS")
    ] = None,
    seed: o.Seed = 0,
    device: o.Device = "cpu",
    json: o.Json = False,
    *,
    continuing: Continuing,
    reading: o.Reading,
) -> None:
    """Continue the training of a model with new orders, in minutes; the old ones are not needed.

    Exact samples of the model stand for the orders that it has seen. New items enter, items that nobody buys any more fade. Tonight's
    orders must not contain those of an earlier update. If the new model is worse on validation orders, beyond noise, or the orders look
    like those of another shop, nothing is written and the exit code is 1; --force writes anyway. Context that the model depends on is
    learned anew where the orders have its columns. An interrupted update leaves all files as they were.

    \b
    Examples:
      ndpp update shop.safetensors tonight.csv -o shop.safetensors
      ndpp update shop.safetensors tonight.csv --basket order_id --item product -o shop2.safetensors
      ndpp update shop.safetensors tonight.csv -o shop.safetensors --customers shop.customers
    """
    check_output(output, *OTHER_FORMATS, inputs=(orders, validation), kind="a model")
    check_output(customers, ".customers", *OTHER_FORMATS, inputs=(orders, validation, model), kind="customers")
    with one_writer(output), contextlib.nullcontext() if customers is None else one_writer(customers):
        own, source = load_prepared(model), Source(orders, reading)
        law = own.law
        with stage(f"reading {source.name}"):
            known: dict[str, Any] = {"context": list(law.context), "partial": True}
            known |= {"as_labels": True} if law.labels else {"as_labels": False, "n_items": law.n_items}
            tonight = source.read_timed(time, **known, customer=None if customers is None else customer)
            judges = None if validation is None else source.sibling(validation).read_timed(time, **known)
            if customers is not None:
                with warnings.catch_warnings(action="ignore"):  # errors come before the training, warnings after it
                    Customers.load(customers, law).update(tonight)
        with stage("loading torch"):
            from ndpp.learning.updating import update as updated
        leaving = [law.labels[i] if law.labels else int(i) for i in item_ids(own, drop, ids=False)]
        found = updated(
            model, tonight, validation=judges, drop=leaving, **asdict(continuing), device=device, random_state=seed,
            progress=progress(),
        )  # fmt: skip
        # The customers' file is replaced just before the model: an update that runs again counts no order twice.
        beside = contextlib.nullcontext(Path()) if customers is None else replacing(customers)
        with stage(f"saving {os.fspath(output)}"), replacing(output) as made, beside as new_customers:
            save(found, made)
            if customers is not None:
                Customers.load(customers, found.law_).update(tonight).save(new_customers)
    told = [name for name in tonight.context if judges is None or name in judges.context]
    emit(
        _report(output, found, told, trained=continuing.max_epochs > 0, keeps=continuing.keep_catalogue),
        None,
        as_json=json,
    )


def _report(output: Path, found: Updated, known: Sequence[str], *, trained: bool, keeps: bool) -> Report:
    """Return what the command prints; ``known`` are the columns of context that orders and validation orders have."""
    data = {name: value for name, value in vars(found).items() if name not in ("law_", "metadata", "shares_before")}
    data = {"output": os.fspath(output), **data, "seen": found.metadata["memory"]["orders"]}
    data["changed"] = [one._asdict() for one in found.changed]
    data["context"] = None if found.context is None else found.context._asdict()
    own = answers.Prepared(found.law_, metadata=found.metadata)
    names = {str(label): called(label) for label in own.labels or ()}
    notes = [
        f"{name}: {', '.join(names.get(str(item), str(item)) for item in items[:SHOWN])}{', …' if len(items) > SHOWN else ''}"
        for name, items in {
            "New": found.entered,
            "Gone": found.left,
            "Not entered" if keeps else "Too rare to enter": found.skipped,
        }.items()
        if items
    ]
    changes = ", ".join(
        f"{names.get(str(one.item), one.item)} ({one.before:.2%} → {one.after:.2%})" for one in found.changed[:SHOWN]
    )
    notes.append(f"Items that changed most: {changes}")
    if len(found.law_.weights) > 1:
        shares = [
            (one.name, float(found.shares_before[list(one.components)].sum()), one.share)
            for one in answers.missions(own)
        ]
        shares.sort(key=lambda one: -abs(one[2] - one[1]))
        data["missions"] = [dict(zip(("name", "before", "after"), one)) for one in shares]
        told = ", ".join(f"{name} ({before:.1%} → {after:.1%})" for name, before, after in shares[:SHOWN])
        notes.append(f"Missions that changed most: {told}")
    if found.law_.context:
        notes.append(_about_context(found, known) if trained else "Context carried over: there was no training")
    header = ("model", "orders", "seen", "validation log-likelihood", "before", "standard error of the difference")
    row = (data["output"], found.n_orders, round(data["seen"]), found.after, found.before, found.error)
    return Report(data, Table(header, [row]), notes=notes)


def _about_context(found: Updated, known: Sequence[str]) -> str:
    """Return in a sentence what became of the context."""
    gain, lacking = found.context, [name for name in found.law_.context if name not in known]
    without = f"the orders, or those of --validation, have no column {' and '.join(map(repr, lacking))}"
    if gain is None:
        why = without if lacking else f"the orders have one value of {' and '.join(known)}"
        return f"Context carried over: {why}"
    what = f"{gain.gain:+.4f} ± {gain.error:.4f} log-likelihood per validation order"
    told = f"Context learned anew, by {gain.column}: {what}"
    if not gain.kept:
        told = f"Context carried over: to learn it anew, by {gain.column}, gains no more than chance, {what}"
    return f"{told}; {without}" if lacking else told
