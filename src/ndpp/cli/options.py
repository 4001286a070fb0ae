"""Arguments and options that several commands share."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ndpp.errors import NDPPError
from ndpp.laws.files import load_header


class Format(StrEnum):
    """How baskets lie in a file."""

    text = "text"
    csv = "csv"
    tsv = "tsv"
    parquet = "parquet"


def _labels(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the items of the model that begin like this, for the shell to complete; what goes wrong stays silent."""
    # While an option waits for its value the arguments are not parsed yet: the model is among the words typed so far.
    typed = os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()
    for word in filter(None, [ctx.params.get("model"), *typed]):
        try:
            labels = load_header(word).labels or ()
        except (NDPPError, OSError):
            continue
        *before, last = incomplete.split(",")
        return [",".join([*before, label]) for label in labels if label.startswith(last)][:100]
    return []


def _items(*names: str, help: str) -> Any:
    return typer.Option(
        *names,
        metavar="ITEMS",
        help=f"{help} Labels or ids, commas between, or the option several times.",
        autocompletion=_labels,
        show_default=False,
    )


Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file, as [bold]ndpp fit[/] writes it.", show_default=False)
]
BasketFile = Annotated[
    str, typer.Argument(metavar="BASKETS", help="A file of baskets; - is standard input.", show_default=False)
]
MaybeBaskets = Annotated[
    str | None,
    typer.Argument(metavar="BASKETS", help="A file of baskets, each one taken as --given; - is standard input."),
]
Given = Annotated[list[str] | None, _items("--given", "-g", help="Items that are in.")]
Exclude = Annotated[list[str] | None, _items("--exclude", "-x", help="Items that never are.")]
Size = Annotated[
    int | None,
    typer.Option(
        "--size", "-k", metavar="N", min=0, help="Items of each basket, given ones included; any number if left out."
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Of all random numbers: the same seed, the same result.")]
FreshSeed = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=0, help="Of all random numbers: the same seed, the same baskets. Left out: a fresh one."
    ),
]


def _jobs(number: int) -> int:
    if number == 0:
        raise typer.BadParameter("expected a number of threads, or -1 for all cores; got 0")
    return number


Jobs = Annotated[
    int,
    typer.Option(
        "--jobs", "-j", metavar="N", help="Threads; -1 for all cores. Results do not depend on it.", callback=_jobs
    ),
]
Device = Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda or cuda:1.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to this file instead of standard output; it is replaced whole or not at all.",
        callback=lambda path: None if str(path) in ("-", "/dev/stdout") else path,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON, for machines.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue what an interrupted run has left, to the same result.")
]
To = Annotated[
    Format | None,
    typer.Option("--to", help="Format of the baskets written; by default the suffix of -o tells, else text."),
]
From = Annotated[
    Format | None, typer.Option("--from", help="Format of the baskets read; by default the suffix tells, else text.")
]
Ids = Annotated[
    bool, typer.Option("--ids", help="Items are ids (0, 1, 2, …) in and out, even where the model has labels.")
]
AsLabels = Annotated[
    bool | None,
    typer.Option(
        "--labels/--ids", help="Whole numbers in the file are names, or positions in the catalogue (the default)."
    ),
]
BasketColumn = Annotated[
    str, typer.Option("--basket", metavar="NAME", help="Column of CSV or Parquet that names the basket.")
]
ItemColumn = Annotated[
    str, typer.Option("--item", metavar="NAME", help="Column of CSV or Parquet that names the item.")
]
