"""``ndpp items``: new, renamed and withdrawn products in a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from ndpp._show import Table
from ndpp.answers import ItemTable
from ndpp.answers.table import ATTACHED
from ndpp.baskets.files import read_table
from ndpp.baskets.groups import read_items
from ndpp.baskets.labels import many, word_of
from ndpp.cli import options as o
from ndpp.cli.files import Law, Source, check_output, load_model, require
from ndpp.cli.guard import say
from ndpp.cli.output import Report, emit, working
from ndpp.errors import InvalidInputError
from ndpp.laws.files import load_metadata, save
from ndpp.laws.similar import similar_items

ADD = (
    "Table of new items: the column item; optionally like, an item that it behaves like, with weight, one per row, and popularity, its "
    "expected share of baskets. Items without like are placed by their names."
)
REMOVE = "File of items to remove, one per line, or the column item of a table."
KEEP = (
    "What stays as it was: shares, how often the others are bought, or sets without new items, relative to each other. "
    "Where many items join at once, shares ranks better."
)
Keep = StrEnum("Keep", "shares sets")


def items(
    model: o.Model,
    add: Annotated[str | None, o.file(ADD)] = None,
    remove: Annotated[str | None, o.file(REMOVE)] = None,
    rename: Annotated[str | None, o.file("Table of new names: the columns old and new.")] = None,
    table: o.KeptTable = None,
    keep: Annotated[Keep, o.word(KEEP, metavar="shares|sets")] = Keep.shares,
    output: Annotated[Path | None, o.file("The model file to write.", "--output", "-o")] = None,
    encoding: o.Encoding = None,
    unknown: o.UnknownItems = o.Unknown.error,
    as_json: o.Json = False,
) -> None:
    """Add, remove and rename items of a model, without fitting it again.

    Items are renamed first, then new ones are added, then others are removed: a new item may be like one that is removed. By default the
    other items are bought as often as before (--keep). New items are listed with what they are like and their share of baskets.

    \b
    Examples:
      ndpp items shop.safetensors --add new.csv --remove gone.txt --rename names.csv -o shop2.safetensors
    """
    require(output is not None, "-o names the model file to write")
    require(
        any((add, remove, rename, table)), "--add, --remove, --rename and --table say what to change; none is given"
    )
    assert output is not None
    check_output(output, ".safetensors", inputs=(model, add, remove, rename, table), kind="a model")
    law = load_model(model)
    about = load_metadata(model)
    if rename is not None:
        names = _names(rename, encoding)
        law, about = law.rename(names), _renamed(about, names)
    new: dict[str, Any] = {}
    popularity: dict[str, float] = {}
    if add is not None:
        new, popularity = _new(add, law, encoding)
        with working("Placing the new items"):
            law = law.add_items(new, popularity, keep=keep.value)
    n_gone = 0
    if remove is not None:
        gone = read_items(remove, law.n_items, law.labels, encoding=encoding, unknown=unknown)
        n_gone, law = len(gone), law.remove(gone)
        left = {label: share for label, share in popularity.items() if label in law.catalogue}
        law = law.tilt_to(left) if left else law
    if table is not None:
        about |= ItemTable.read(Source(table).target, law, encoding=encoding).attach()
    save(law, output, metadata=about)
    shares = dict(zip(law.labels or (), law.inclusion_probabilities())) if new else {}
    rows = [(label, ", ".join(map(str, like)), shares[label]) for label, like in new.items() if label in shares]
    data = {
        "items": law.n_items,
        "added": [{"item": i, "like": like, "popularity": p} for i, like, p in rows],
        "removed": n_gone,
    }
    emit(Report(data, Table(("item", "like", "popularity"), rows)), None, as_json=as_json)
    say(f"{str(output)!r} has {many(law.n_items, 'item')}: {len(new):,} new, {n_gone:,} gone")


def _rows(
    path: str, encoding: str | None, needed: Sequence[str], also: Sequence[str] = ()
) -> Iterator[tuple[str, list[str]]]:
    """Yield where each row of a table is, in words, and its words in these columns, "" for what is missing."""
    advice = f"The table needs the column{'s' * (len(needed) > 1)} {' and '.join(map(repr, needed))}"
    table = read_table(Source(path).target, encoding, needed=needed, also=also, advice=advice)
    n_rows = len(table.columns[needed[0]])
    columns = [table.columns.get(name, [None] * n_rows) for name in (*needed, *also)]
    for i, values in enumerate(zip(*columns)):
        yield table.place(i), list(map(word_of, values))


def _names(path: str, encoding: str | None) -> dict[str, str]:
    out: dict[str, str] = {}
    for where, (old, new) in _rows(path, encoding, ("old", "new")):
        if not old or not new or out.get(old, new) != new:
            raise InvalidInputError(f"{where}: expected an old and a new name, one for each item; got {old!r}, {new!r}")
        out[old] = new
    return out


def _renamed(about: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata of a model with the new names of the items that ``ndpp update`` remembers, and of its table."""
    memory = dict(about.get("memory", {}))
    for name in ("young", "unsold"):
        if name in memory:
            memory[name] = _with_keys(memory[name], names)
    if memory:
        about = about | {"memory": memory}
    if ATTACHED in about:
        columns = {column: _with_keys(words, names) for column, words in about[ATTACHED]["columns"].items()}
        about = about | {ATTACHED: about[ATTACHED] | {"columns": columns}}
    return about


def _with_keys(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return what is said of items under their new names."""
    return {names.get(item, item): value for item, value in values.items()}


def _new(path: str, law: Law, encoding: str | None) -> tuple[dict[str, Any], dict[str, float]]:
    """Return what new items are like, by name where the table does not say, and their shares where it does."""
    like: dict[str, dict[str, float]] = {}
    popularity: dict[str, float] = {}
    for where, (item, other, weight, share) in _rows(path, encoding, ("item",), ("like", "weight", "popularity")):
        if not item:
            raise InvalidInputError(f"{where}: expected an item; there is none")
        own = like.setdefault(item, {})
        if other in own:
            raise InvalidInputError(f"{where}: {item!r} is like {other!r} already")
        if other:
            own[other] = _number(where, "weight", weight or "1")
        if share:
            found = _number(where, "popularity", share)
            if popularity.setdefault(item, found) != found:
                raise InvalidInputError(f"{where}: {item!r} has another popularity already, {popularity[item]:g}")
    if not like:
        raise InvalidInputError(f"{path} names no item to add")
    nameless = [item for item, own in like.items() if not own]
    return like | similar_items(law, nameless), popularity


def _number(where: str, column: str, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise InvalidInputError(f"{where}: {column} should be a number; got {word!r}") from None
