"""``ndpp info``: what a file holds, a model or baskets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from safetensors import safe_open

from ndpp import answers
from ndpp._show import Table, called
from ndpp._types import FloatArray
from ndpp.answers.table import ATTACHED
from ndpp.baskets.files import manner, read_table
from ndpp.baskets.orders import Orders
from ndpp.baskets.times import written
from ndpp.cli import options as o
from ndpp.cli.files import HeldInput, Source, check_table, fingerprint, load_prepared, rewind
from ndpp.cli.output import Report, emit
from ndpp.laws.files import load_header
from ndpp.laws.gate import Gain, some_of
from ndpp.laws.pooled import PooledMixture

BAR = 40
"""Length of the longest bar."""
SMALLEST_SHOWN = 0.0005
"""Smaller probabilities have no bar, and are left out at both ends."""
QUICK = 10**9
"""Components × items × columns² up to which the distribution of sizes of a mixture is computed unasked: a few seconds."""
SIZES = "Compute the distribution of sizes even if it takes minutes, as for mixtures of hundreds of components."
SKIPPED = "The distribution of sizes of so many components takes a while; --sizes computes it."
FIRST = 3
"""Baskets that are listed."""
SEPARATORS = {" ": "blanks", "\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
TIME = "CSV or Parquet column of the time, to see how it is read."
FILE = "A model or a file of baskets; - is standard input."


def info(
    file: Annotated[str, typer.Argument(metavar="FILE", help=FILE)],
    top: Annotated[int, o.number("How many of the most frequent items to list.")] = 5,
    sizes: Annotated[bool, typer.Option("--sizes", help=SIZES)] = False,
    output: o.Output = None,
    as_json: o.Json = False,
    labels: o.AsLabels = None,
    time: Annotated[str | None, o.word(TIME)] = None,
    *,
    reading: o.Reading,
) -> None:
    """Describe a file: shape, rank, sizes and missions of a model, and how it was trained; baskets, and how they were read.

    \b
    Examples:
      ndpp info model.safetensors
      ndpp info orders.csv --basket order_id --item product
      ndpp info till.csv --basket customer,date --item product --time date
      ndpp sample model.safetensors -n 1000 | ndpp info -
    """
    check_table(output, file)
    source = Source(file, reading)
    if file.endswith(".ndpp-part") and _is_model(source):
        report = _unfinished(Path(file))
    elif _is_model(source):
        report = _model(Path(file), top, sizes=sizes)
    else:
        target = source.target
        orders = source.read(target, as_labels=labels, time=time)
        report = _baskets(orders, source.name, _how_read(source, target, orders, time), top)
    emit(report, output, as_json=as_json)


def _is_model(source: Source) -> bool:
    """Return whether a file looks like safetensors: a JSON object after eight bytes of length."""
    if source.path == "-" or source.reading.from_ is not None:
        return False
    path = Path(source.path)
    if path.suffix == ".safetensors" or path.is_dir():
        return True
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(9)[8:] == b"{"


def _model(path: Path, top: int, *, sizes: bool) -> Report:
    header, own = load_header(path), load_prepared(path)
    law = own.law
    n_components = len(law.weights)
    quick = n_components == 1 or n_components * law.n_items * header.n_columns**2 <= QUICK
    found = answers.describe(own, n=top, sizes=sizes or quick)
    fits = {"fits": len(law.laws)} if isinstance(law, PooledMixture) else {}
    shape: dict[str, Any] = {**fits, "components": n_components, "columns": header.n_columns}
    if (kernel := law.as_kernel) is not None:
        occurring = {"items_that_can_occur": len(kernel.support), "precision": str(kernel.X.dtype)}
        shape = {"columns": header.n_columns, "rank": kernel.rank, **occurring}
    facts: dict[str, Any] = {
        "kind": "mixture" if kernel is None else "model", "items": found.n_items,
        **shape, "labels": found.labelled,
        "ndpp_version": header.ndpp_version, "crc32": fingerprint(path), "mean_size": found.mean_size,
    }  # fmt: skip
    size_law, notes = found.size_distribution, ["", SKIPPED]
    if size_law is not None:
        variance = np.array(size_law) @ (np.arange(len(size_law)) - found.mean_size) ** 2
        facts["sd_of_size"] = float(np.sqrt(variance))
        notes = _bars(np.array(size_law), "P(size)")
    told = found.data()
    data = {**facts, "size_law": size_law, "popular": told["popular"], "missions": told["missions"]}
    notes += _most_frequent([(one.item, one.probability) for one in found.popular])
    if found.missions:
        notes += ["", "Missions, similar components together (ndpp sample --mission draws from one):"]
        notes += [f"{i:>3}  {one}" for i, one in enumerate(found.missions, 1)]
    trained = dict(header.metadata)
    if own.table is not None:
        trained[ATTACHED] = f"{own.table.name}: {', '.join(own.table.columns)}"
    if gains := [Gain(**one) for one in _entries(trained.get("context")) if one.keys() == set(Gain._fields)]:
        del trained["context"]
    if gains or law.context:
        notes += ["", "Context (choose one with --at):", *(f"  {one}" for one in gains)]
        notes += [f"  {name}: {some_of(values)}" for name, values in law.context.items()]
        data["context"] = law.context
    if memory := trained.pop("memory", None):  # of orders one by one, which is not for people
        trained |= {"updates": memory["updates"], "orders_seen": round(memory["orders"])}
    table = _facts({**facts, **trained}, path.name)
    return Report({**data, "training": header.metadata | trained}, table, notes=notes)


def _entries(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list that may be anything."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _how_read(source: Source, target: str | HeldInput, orders: Orders, time: str | None) -> dict[str, Any]:
    """Return how a file of baskets was read."""
    reading, columns = source.reading, source.columns
    rewind(target)
    how = manner(target, reading.from_, columns.names, reading.encoding)
    read: dict[str, Any] = {"format": how.format, "separator": SEPARATORS.get(how.separator or "")}
    if how.columns:
        read |= {"columns": how.columns, "basket": columns.basket, "item": columns.item}
    if time is not None and orders.times is not None and len(orders):
        rewind(target)
        table = read_table(target, reading.encoding, format=reading.from_, needed=(*columns.names, time), also=())
        written_as = reading.time_format or written(table.columns[time], table.name) or "ISO 8601"
        read |= {
            "time": time,
            "time_format": written_as,
            "first_time": str(orders.times[0]),
            "last_time": str(orders.times[-1]),
        }
    return read


def _baskets(baskets: Orders, name: str, read: dict[str, Any], top: int) -> Report:
    sizes, frequencies = baskets.sizes, np.bincount(baskets.indices, minlength=baskets.n_items) / max(1, len(baskets))
    shares = np.bincount(sizes) / max(1, len(sizes))
    facts: dict[str, Any] = {
        "baskets": len(baskets), "items": baskets.n_items, "labels": baskets.labels is not None,
        "entries": len(baskets.indices), "largest": int(sizes.max(initial=0)), "empty": int(np.sum(sizes == 0)),
        "mean_size": float(np.mean(sizes)) if len(sizes) else None,
        "median_size": float(np.median(sizes)) if len(sizes) else None,
    }  # fmt: skip
    names = range(baskets.n_items) if baskets.labels is None else baskets.labels
    best = [(names[i], float(frequencies[i])) for i in np.argsort(-frequencies, kind="stable")[:top].tolist()]
    some = baskets[:FIRST]
    first = list(zip(some.ids_or_numbers, [[names[a] for a in basket] for basket in some]))
    notes = [*_bars(shares, "share"), *_most_frequent(best)]
    notes += (
        ["", "First baskets:", *(f"  {i}: {some_of(list(map(str, items)))}" for i, items in first)] if first else []
    )
    shown = {word: ", ".join(value) if isinstance(value, tuple) else value for word, value in read.items()}
    listed = [dict(zip(("basket", "items"), one)) for one in first]
    data = {"kind": "baskets", **facts, "size_shares": shares, "read": read, "first_baskets": listed}
    return Report(data, _facts({"kind": "baskets", **facts, "read as": shown}, name), notes=notes)


def _unfinished(path: Path) -> Report:
    """Describe what interrupted training left."""
    with safe_open(path, framework="np") as file:
        record = json.loads((file.metadata() or {}).get("record", "{}"))
    facts = {"kind": "unfinished training", "epochs": len(record.get("history", [])), **record.get("made_with", {})}
    return Report(facts, _facts(facts, path.name), notes=["", "Run the interrupted command with --resume to continue."])


def _bars(law: FloatArray, head: str) -> list[str]:
    scale = BAR / max(float(law.max(initial=0.0)), 1e-300)
    bars = [f"{k:>5}  {p:6.1%}  {'█' * max(1, round(scale * p))}" for k, p in enumerate(law) if p >= SMALLEST_SHOWN]
    return ["", f" size  {head}", *bars]


def _most_frequent(shares: Sequence[tuple[Any, float]]) -> list[str]:
    names = ", ".join(f"{called(name)} ({share:.1%})" for name, share in shares)
    return ["", f"Most frequent: {names}"] if names else []


def _facts(tree: dict[str, Any], name: str) -> Table:
    """Return nested facts as a table of two columns."""
    return Table(("", name), list(_flat(tree)))


def _flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        word = prefix + key.replace("_", " ")
        if isinstance(value, dict):
            yield from _flat(value, f"{word}, ")
        else:
            yield word, value
