"""Arguments and options that several commands share, one by one and in groups, and short ways to declare others.

A group is a dataclass whose fields are options. A command takes it as one parameter, and :func:`flattened` declares its fields.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.models import OptionInfo

from ndpp.cli import completion

Format = StrEnum("Format", "text csv tsv parquet")
"""File formats of baskets."""
Unknown = StrEnum("Unknown", "error skip")
"""What to do about items that the model does not know."""
Missing = StrEnum("Missing", "error skip keep")
"""What to do about missing values."""


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the fields of its groups of options in place of the groups."""
    hints, groups = get_type_hints(command, include_extras=True), {}
    options: list[tuple[str, Any, Any]] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(group := hints[name]):
            groups[name] = [field.name for field in fields(group)]
            own = get_type_hints(group, include_extras=True)
            options += [(field.name, own[field.name], field.default) for field in fields(group)]
        else:
            options.append((name, hints[name], parameter.default))

    @functools.wraps(command)
    def run(**given: object) -> None:
        made = {name: hints[name](**{field: given.pop(field) for field in own}) for name, own in groups.items()}
        command(**given, **made)

    run.__annotations__ = {name: hint for name, hint, _ in options}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=a, default=d) for name, a, d in options]
    )
    return run


def word(
    help: str,
    *names: str,
    metavar: str = "NAME",
    least: float | None = None,
    most: float | None = None,
    panel: str | None = None,
) -> OptionInfo:
    """Declare an option that takes a value, a word unless ``metavar`` says otherwise."""
    found: OptionInfo = typer.Option(*names, metavar=metavar, min=least, max=most, help=help, rich_help_panel=panel)
    return found


def number(help: str, *names: str, least: float | None = 0, most: float | None = None) -> OptionInfo:
    """Declare an option that takes a number."""
    return word(help, *names, metavar="N", least=least, most=most)


def file(help: str, *names: str, kind: str = "FILE") -> OptionInfo:
    """Declare an option that takes a path."""
    return word(help, *names, metavar=kind)


def _items(help: str, *names: str) -> OptionInfo:
    help += " Labels or ids, separated by commas; may be repeated."
    found: OptionInfo = typer.Option(*names, metavar="ITEMS", help=help, autocompletion=completion.items)
    return found


def _jobs(jobs: int) -> int:
    if jobs == 0:
        raise typer.BadParameter("expected a number of threads, or -1 for all cores; got 0")
    return jobs


def _output(path: Path | None) -> Path | None:
    return None if str(path) in ("-", "/dev/stdout") else path


def _no_resume(wanted: bool) -> None:
    if wanted:
        raise typer.BadParameter(
            "draws have no --resume any more: with the same --seed, --first N continues after N baskets"
        )


_REPLACED = "Write to this file instead of standard output; it is replaced atomically."
_JOBS = "Threads; -1 for all cores. Does not affect the result."
_NUMBERS = "Whether integers in the file are labels (default), or ids, that is, positions in the catalogue."
_UNKNOWN = "Items of files that the model does not know; skip leaves them out and counts them."
_FROM = "Input format; default: by the suffix, else text."
_TO = "Output format; default: by the suffix of -o, else text."
_CANDIDATES = "File of such items, one per line, or the column item of a table."
_CATEGORIES = "The only categories to recommend from, separated by commas; may be repeated."
_LIMIT = "A limit on each basket: dairy=1..2, dairy<=2, price<=20, weight>=2; given items count. May be repeated."
_AT = "Use the model in this context, such as store=3; ndpp info lists what there is. May be repeated."
_MISSION = "Baskets of one mission of a mixture: its name, or its number in ndpp info."
_TABLE = (
    "Table of the items: the column item; name, which people read and ask by; for limits, categories to count and numbers to add up. "
    "Default: the one in the model, if it has any."
)
_KEPT = "Table of the items that the model keeps: the column item, name, categories, prices and the like."
_BOOST = "Table with the columns item and factor: the odds of items times factors; 0 is out of stock."
_CUSTOMERS = "A file of customers, as written by [bold]ndpp customers fit[/], for --customer."
_HISTORY = "A file of one customer's baskets, oldest first, instead of --customer."
_BASKET = "CSV or Parquet column of the basket, or several that name it together, such as customer,date."
_TIME_FORMAT = "How times are written, such as %d/%m/%Y, if the column leaves open whether the day is first."
_MISSING = "Rows without a basket or an item (empty, NA, NaN, null); keep takes NA and the like for names."
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, as written by [bold]ndpp fit[/].")]
Models = Annotated[
    list[Path], typer.Argument(metavar="MODEL...", help="Model files, the first of which is served at /, too.")
]
BasketFile = Annotated[str, typer.Argument(metavar="BASKETS", help="A file of baskets; - is standard input.")]
MaybeBaskets = Annotated[
    str | None,
    typer.Argument(metavar="BASKETS", help="A file of baskets, each of them used as --given; - is standard input."),
]
Items = Annotated[
    list[str] | None,
    typer.Argument(metavar="ITEM", help="Labels or ids of items.", autocompletion=completion.items),
]
Given = Annotated[list[str] | None, _items("Items that are in every basket.", "--given", "-g")]
Exclude = Annotated[list[str] | None, _items("Items that are in no basket.", "--exclude", "-x")]
At = Annotated[list[str] | None, word(_AT, "--at", metavar="COLUMN=VALUE")]
Size = Annotated[int | None, number("Items per basket, including given ones; default: any number.", "--size", "-k")]
Seed = Annotated[int, number("Seed of all random numbers.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", metavar="N", help=_JOBS, callback=_jobs)]
Device = Annotated[str, word("cpu, cuda or cuda:1.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help=_REPLACED, callback=_output)]
ModelOutput = Annotated[Path, file("The model file to write.", "--output", "-o")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run, to the same result.")]
NoResume = Annotated[bool, typer.Option("--resume", hidden=True, callback=_no_resume)]
Ids = Annotated[bool, typer.Option("--ids", help="Read and print ids (0, 1, 2, …) even if the model has labels.")]
AsLabels = Annotated[bool | None, typer.Option("--labels/--ids", help=_NUMBERS)]
Encoding = Annotated[str | None, word("Encoding of the file; default: UTF-8.")]
CategoryOf = Annotated[str | None, file("Table of categories, with the columns item and category.")]
ItemTable = Annotated[str | None, file(_TABLE)]
KeptTable = Annotated[str | None, file(_KEPT)]
Boost = Annotated[str | None, file(_BOOST)]
UnknownItems = Annotated[Unknown, word(_UNKNOWN, "--unknown", metavar="error|skip")]


@dataclass(frozen=True)
class Reading:
    """How a file of baskets is read."""

    from_: Annotated[Format | None, typer.Option("--from", help=_FROM)] = None
    basket: Annotated[str, word(_BASKET)] = "basket"
    item: Annotated[str, word("CSV or Parquet column of the item.")] = "item"
    time_format: Annotated[str | None, word(_TIME_FORMAT, metavar="FORMAT")] = None
    encoding: Encoding = None
    missing: Annotated[Missing, word(_MISSING, "--missing", metavar="error|skip|keep")] = Missing.error


@dataclass(frozen=True)
class ReadingFor(Reading):
    """How a file of baskets over the items of a model is read."""

    unknown: UnknownItems = Unknown.error


@dataclass(frozen=True)
class ConditionOptions:
    """In which situation, which items may be added, how many, how much more likely, and whose basket it is."""

    at: At = None
    mission: Annotated[str | None, word(_MISSION)] = None
    only: Annotated[list[str] | None, _items("The only items that may be added.", "--only")] = None
    candidates_file: Annotated[str | None, file(_CANDIDATES)] = None
    exclude: Exclude = None
    exclude_file: Annotated[str | None, file("File of items that are in no basket.")] = None
    limit: Annotated[list[str] | None, word(_LIMIT, metavar="LIMIT")] = None
    table: ItemTable = None
    boost: Boost = None
    customers: Annotated[Path | None, file(_CUSTOMERS)] = None
    customer: Annotated[list[str] | None, word("The customer's id, as in the orders.", metavar="ID")] = None
    history: Annotated[str | None, file(_HISTORY)] = None

    @property
    def files(self) -> tuple[str | Path | None, ...]:
        """What is read."""
        return self.candidates_file, self.exclude_file, self.table, self.boost, self.customers, self.history


@dataclass(frozen=True)
class Categories:
    """How many items of a category may be recommended, and from which categories."""

    category_of: CategoryOf = None
    max_per_category: Annotated[int | None, number("Most items of a category per basket.", least=1)] = None
    categories: Annotated[list[str] | None, word(_CATEGORIES, metavar="NAMES")] = None


@dataclass(frozen=True)
class Drawing:
    """How baskets are drawn."""

    seed: Annotated[int | None, number("Seed of all random numbers; default: a fresh one.")] = None
    jobs: Jobs = 1
    device: Device = "cpu"


@dataclass(frozen=True)
class Writing:
    """How baskets are written."""

    output: Output = None
    to: Annotated[Format | None, typer.Option("--to", help=_TO)] = None
    json: Json = False
    ids: Ids = False
