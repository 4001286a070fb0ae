"""``ndpp customers``: what is known of each customer, in a file beside the model."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ndpp._atomic import one_writer, replacing
from ndpp._show import Table
from ndpp.baskets.orders import Orders
from ndpp.cli import options as o
from ndpp.cli.files import OTHER_FORMATS, Law, Source, check_output, load_model
from ndpp.cli.output import Report, emit, working
from ndpp.customers import Customers

ORDERS = (
    "Order lines: CSV or Parquet with columns of the basket, the item, the customer and the time; - is standard input."
)
OrderFile = Annotated[str, typer.Argument(metavar="ORDERS", help=ORDERS)]
CustomerFile = Annotated[
    Path, typer.Argument(metavar="CUSTOMERS", help="A file that [bold]ndpp customers fit[/] wrote.")
]
Written = Annotated[Path | None, o.file("The file to write; default: CUSTOMERS itself.", "--output", "-o")]


@dataclass(frozen=True)
class OrderReading(o.ReadingFor):
    """How order lines are read."""

    customer: Annotated[str, o.word("Column of the customer.")] = "customer"
    time: Annotated[str | None, o.word("Column of the time, such as 2026-03-01 12:30.")] = "time"


def read_orders(law: Law, path: str, reading: OrderReading) -> Orders:
    """Return order lines over the items of a model."""
    with working("reading the orders"):
        return Source(path, reading).read_for(law, ids=None)


def customers_fit(
    model: o.Model,
    orders: OrderFile,
    output: Annotated[Path, o.file("The file of customers to write.", "--output", "-o")],
    seed: o.Seed = 0,
    json: o.Json = False,
    *,
    reading: OrderReading,
) -> None:
    """Learn what each customer buys from their orders, for personal recommendations.

    Of each customer the file keeps the id, the items bought with how often, old orders counting less, and the time of the last order.
    How fast orders fade, and how much they count, is fitted on customers' last baskets.

    \b
    Examples:
      ndpp customers fit shop.safetensors orders.csv -o shop.customers
      ndpp customers fit shop.safetensors orders.csv --customer household --time date -o shop.customers
    """
    check_output(output, *OTHER_FORMATS, inputs=(model, orders), kind="customers")
    law = load_model(model)
    read = read_orders(law, orders, reading)
    with working("fitting"):
        found = Customers.fit(law, read, random_state=seed)
    found.save(output)
    emit(_report(output, found), None, as_json=json)


def customers_update(
    model: o.Model, customers: CustomerFile, orders: OrderFile, output: Written = None, json: o.Json = False, *, reading: OrderReading
) -> None:  # fmt: skip
    """Count new orders. Only customers who have bought change, and an order that was counted before is not counted again.

    \b
    Examples:
      ndpp customers update shop.safetensors shop.customers tonight.csv
    """
    check_output(output, *OTHER_FORMATS, inputs=(model, orders), kind="customers")
    law = load_model(model)
    _rewritten(law, customers, output, lambda found: found.update(read_orders(law, orders, reading)), as_json=json)


def customers_forget(
    model: o.Model,
    customers: CustomerFile,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="The customer's id.")],
    output: Written = None,
    json: o.Json = False,
) -> None:
    """Delete customers: the file is written again without anything of theirs, and a service reads it again.

    \b
    Examples:
      ndpp customers forget shop.safetensors shop.customers 17
    """
    check_output(output, *OTHER_FORMATS, inputs=(model,), kind="customers")

    def without(found: Customers) -> Customers:
        for one in ids:
            found = found.forget(one)
        return found

    _rewritten(load_model(model), customers, output, without, as_json=json)


def customers_info(model: o.Model, customers: CustomerFile, json: o.Json = False) -> None:
    """Say how many customers a file has, and how their orders count.

    \b
    Examples:
      ndpp customers info shop.safetensors shop.customers
    """
    emit(_report(customers, Customers.load(customers, load_model(model))), None, as_json=json)


def _rewritten(
    law: Law, path: Path, output: Path | None, change: Callable[[Customers], Customers], *, as_json: bool
) -> None:
    """Write changed customers to the output, by default to the file that they come from, and report."""
    target = path if output is None else output
    with one_writer(target), replacing(target) as temporary:  # nobody else changes the file between reading and writing
        changed = change(Customers.load(path, law))
        changed.save(temporary)
    emit(_report(target, changed), None, as_json=as_json)


def _report(path: Path, found: Customers) -> Report:
    """Return what there is to say about a file of customers: never an id."""
    data = {"file": os.fspath(path), "customers": len(found), **found.habits._asdict(), "report": dict(found.report)}
    header = ("file", "customers", "decay", "strength", "prior")
    unit = "week" if found.habits.by_time else "basket"
    decay = f"{found.habits.decay:.3f} per {unit}"
    row = (os.fspath(path), len(found), decay, found.habits.strength, found.habits.prior)
    return Report(data, Table(header, [row]))
