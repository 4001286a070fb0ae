"""``ndpp info``: what a file holds, a model or baskets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from safetensors import safe_open

from ndpp._types import FloatArray
from ndpp.baskets import Baskets
from ndpp.cli import options as o
from ndpp.cli.files import Source, check_output, fingerprint
from ndpp.cli.journal import read_made_with
from ndpp.cli.output import Report, Row, emit
from ndpp.laws.files import load, load_header

BAR = 40
"""Characters of the longest bar."""
FEWEST = 0.0005
"""Probabilities below this are not shown to people."""


def info(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A model, or a file of baskets; - is standard input.", show_default=False),
    ],
    top: Annotated[int, typer.Option(metavar="N", min=0, help="How many of the most frequent items to list.")] = 5,
    output: o.Output = None,
    as_json: o.Json = False,
    labels: o.AsLabels = None,
    from_: o.From = None,
    basket: o.BasketColumn = "basket",
    item: o.ItemColumn = "item",
) -> None:
    """Tell what a file holds: shape, rank, labels, sizes, how a model was trained.

    \b
    Examples:
      ndpp info model.safetensors
      ndpp info orders.csv --basket order_id --item product
      ndpp sample model.safetensors -n 1000 | ndpp info -
    """
    check_output(output, inputs=(file,))
    source = Source(file, from_, basket, item)
    if file.endswith(".ndpp-part"):
        report = _unfinished(Path(file))
    elif _is_model(source):
        report = _model(Path(file), top)
    else:
        report = _baskets(source.read(as_labels=labels), source.name, top)
    emit(report, output, as_json=as_json)


def _is_model(source: Source) -> bool:
    """Return whether a file looks like safetensors: after eight bytes of length comes a JSON object."""
    if source.path == "-" or source.format is not None:
        return False
    path = Path(source.path)
    if path.suffix == ".safetensors" or path.is_dir():
        return True
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(9)[8:] == b"{"


def _model(path: Path, top: int) -> Report:
    header, kernel = load_header(path), load(path)
    law, often = kernel.size_distribution(), kernel.inclusion_probabilities()
    sizes = np.arange(len(law))
    mean = float(law @ sizes)
    facts: dict[str, Any] = {
        "kind": "model", "items": kernel.n_items, "columns": header.n_columns, "rank": kernel.rank,
        "items_that_can_occur": len(kernel.support), "labels": kernel.labels is not None,
        "mean_size": mean, "sd_of_size": float(np.sqrt(law @ (sizes - mean) ** 2)),
        "precision": str(kernel.X.dtype), "ndpp_version": header.ndpp_version, "crc32": fingerprint(path),
    }  # fmt: skip
    data = {**facts, "size_law": law, "training": header.metadata}
    rows = _lines({**facts, **header.metadata}, path.name)
    return Report(data, rows, notes=_notes(law, "P(size)", _most(often, kernel.labels, top)))


def _baskets(baskets: Baskets, name: str, top: int) -> Report:
    sizes = baskets.sizes
    shares = np.bincount(sizes) / max(1, len(sizes))
    spread = {
        word: float(f(sizes)) if len(sizes) else None
        for word, f in (("mean_size", np.mean), ("median_size", np.median))
    }
    facts: dict[str, Any] = {
        "kind": "baskets", "baskets": len(baskets), "items": baskets.n_items, "labels": baskets.labels is not None,
        "entries": len(baskets.indices), "largest": int(sizes.max(initial=0)), "empty": int(np.sum(sizes == 0)), **spread,
    }  # fmt: skip
    often = np.bincount(baskets.indices, minlength=baskets.n_items) / max(1, len(baskets))
    return Report(
        {**facts, "size_shares": shares},
        _lines(facts, name),
        notes=_notes(shares, "share", _most(often, baskets.labels, top)),
    )


def _unfinished(path: Path) -> Report:
    """Return what an interrupted run has left: baskets in a journal, or the state of training."""
    if _is_model(Source(os.fspath(path))):
        with safe_open(path, framework="np") as file:
            record = json.loads((file.metadata() or {}).get("record", "{}"))
        history = record.get("history", [])
        facts: dict[str, Any] = {"kind": "unfinished training", "epochs": len(history), **record.get("made_with", {})}
    else:
        made_with = read_made_with(path.with_suffix(""))
        with open(path, "rb") as lines:
            facts = {"kind": "unfinished baskets", "baskets": max(0, sum(1 for _ in lines) - 1), **(made_with or {})}
    return Report(
        facts, _lines(facts, path.name), notes=["", "The command that was interrupted goes on with --resume."]
    )


def _notes(law: FloatArray, head: str, most: str) -> list[str]:
    seen = [k for k, p in enumerate(law) if p >= FEWEST]
    scale = BAR / max(float(law.max(initial=0.0)), 1e-300)
    bars = [f"{k:>5}  {law[k]:6.1%}  {'█' * max(1, round(scale * law[k]))}" for k in seen]
    return ["", f" size  {head}", *bars, *([most] if most else [])]


def _most(often: FloatArray, labels: tuple[str, ...] | None, top: int) -> str:
    best = np.argsort(-often, kind="stable")[:top].tolist()
    names = ", ".join(f"{i if labels is None else labels[i]} ({often[i]:.1%})" for i in best)
    return f"\nMost frequent: {names}" if names else ""


def _lines(tree: dict[str, Any], name: str, prefix: str = "") -> list[Row]:
    """Return nested facts as rows of two columns."""
    lines: list[Row] = []
    for key, value in tree.items():
        word = prefix + key.replace("_", " ")
        lines += _lines(value, name, f"{word}, ") if isinstance(value, dict) else [{"": word, name: value}]
    return lines
