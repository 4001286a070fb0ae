"""Models and baskets in: files, standard input, items on the command line."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer

from ndpp._types import IntArray
from ndpp.baskets import Baskets
from ndpp.baskets.files import format_of
from ndpp.cli.options import Format
from ndpp.errors import ImpossibleSizeError, InvalidInputError, ModelFileError, UnknownItemError, UnknownLabelError
from ndpp.laws.files import load, load_header
from ndpp.laws.kernel import LowRankKernel

OTHERS = (".parquet", ".tsv", ".xlsx", ".xls", ".ods", ".html", ".pdf", ".arrow", ".feather", ".npz", ".safetensors")
"""Suffixes that promise a format; whatever else a file is called, it holds text."""


class Source(NamedTuple):
    """A file of baskets, or "-", and how to read it."""

    path: str
    format: Format | None = None
    basket: str = "basket"
    item: str = "item"

    @classmethod
    def maybe(cls, path: str | None, *how: Any) -> Source | None:
        """Return the source, None where no file is named."""
        return None if path is None else cls(path, *how)

    @property
    def name(self) -> str:
        """What to call it."""
        return "standard input" if self.path == "-" else self.path

    def beside(self, path: str) -> Source:
        """Return another file that is read in the same manner; if it is text, it has no columns."""
        told = None if self.format is None else self.format.value
        return Source(path, self.format) if format_of(path, told) == "text" else self._replace(path=path)

    def read(self, **options: Any) -> Baskets:
        """Return the baskets; ``options`` are those of ``Baskets.read``."""
        target: Any = self.path
        if self.format is None and Path(self.path).suffix.lower() == ".json":
            raise InvalidInputError(
                f"{self.path!r} is JSON, which is written and not read; baskets are read from text, CSV or Parquet (--from)"
            )
        if target == "-":
            target = io.BytesIO(sys.stdin.buffer.read())
            target.name = "standard input"
        format = None if self.format is None else self.format.value
        try:
            return Baskets.read(target, format=format, basket=self.basket, item=self.item, **options)
        except UnknownItemError as unknown:
            unknown.advice = "Is this the catalogue of the model?"
            raise

    def read_for(self, kernel: LowRankKernel, *, ids: bool) -> Baskets:
        """Return the baskets over the items of a model, named as the model names them."""
        if kernel.labels is None or ids:
            made = self.read(n_items=kernel.n_items, as_labels=False)
            return Baskets(made.indptr, made.indices, kernel.n_items, kernel.labels)
        return self.read_with(kernel.labels, hint="If the baskets hold ids, say --ids.")

    def read_with(self, labels: tuple[str, ...], *, hint: str = "") -> Baskets:
        """Return the baskets over a labelled catalogue."""
        try:
            return self.read(labels=labels, as_labels=True)
        except UnknownLabelError as unknown:
            raise InvalidInputError(f"{self.name}: {unknown}", advice=hint) from None


def load_model(path: Path) -> LowRankKernel:
    """Return the kernel of a model file; where a file of baskets was named instead, say so."""
    try:
        return load(path)
    except ModelFileError:
        if path.is_file() and path.suffix != ".safetensors" and _is_text(path):
            raise ModelFileError(
                f"{str(path)!r} is no model but text; a model is what `ndpp fit {path} -o model.safetensors` makes of baskets"
            ) from None
        raise


def fingerprint(path: Path) -> str:
    """Return the checksum of a model's arrays."""
    return f"{load_header(path).crc32:08x}"


def _is_text(path: Path) -> bool:
    with open(path, "rb") as file:
        start = file.read(1000)
    try:
        start.decode()
    except UnicodeDecodeError as odd:
        return odd.start > 990  # a letter that was cut in two
    return b"\0" not in start


def item_ids(kernel: LowRankKernel, words: Sequence[str] | None, *, ids: bool) -> IntArray:
    """Return the ids of items named on the command line, "a,b" or "a" "b"."""
    known = set(kernel.labels or ())
    # A label may hold a comma; a word that is a label as a whole is not taken apart.
    names = [name for word in words or () for name in ([word] if word in known else map(str.strip, word.split(",")))]
    if kernel.labels is not None and not ids:
        try:
            return kernel.ids(names)
        except UnknownLabelError as unknown:
            unknown.advice = "Ids need --ids." if unknown.label.isdigit() else ""
            raise
    for name in names:
        if not name.isdigit():
            why = "as --ids asks" if ids else "since this model has no labels"
            raise InvalidInputError(f"{name!r} is no item id; items are whole numbers, {why}")
    return kernel.catalogue_ids(kernel.rows_of([int(name) for name in names]))


def check_totals(kernel: LowRankKernel, starts: Baskets, totals: Sequence[int | None]) -> None:
    """Refuse a file with a basket that cannot be completed before any of it is."""
    for i, (given, total) in enumerate(zip(starts.sizes.tolist(), totals)):
        most = kernel.rank if total is None else total
        if given > most:
            raise ImpossibleSizeError(f"basket {i} of the file holds {given} items; it cannot be completed to {most}")
        if most > kernel.rank:
            raise ImpossibleSizeError(
                f"basket {i} of the file would have {most} items; no basket of this model has more than {kernel.rank}"
            )


def excluding(
    kernel: LowRankKernel, words: Sequence[str] | None, given: IntArray, *, ids: bool
) -> tuple[LowRankKernel, IntArray]:
    """Return the kernel without the items of --exclude, and these; none of them may be given."""
    never = item_ids(kernel, words, ids=ids)
    both = np.intersect1d(never, given)
    if both.size:
        name = str(both[0]) if ids or kernel.labels is None else kernel.labels[both[0]]
        raise InvalidInputError(
            f"{name!r} is among the given items and among those of --exclude; it can be in one of them"
        )
    return (kernel.exclude(never) if len(never) else kernel), never


def given_baskets(kernel: LowRankKernel, given: Sequence[str] | None, source: Source | None, *, ids: bool) -> Baskets:
    """Return the baskets of a file or, where none is named, the one basket of --given."""
    need(source is None or not given, "the items come from a file of baskets or from --given, not from both")
    if source is not None:
        return source.read_for(kernel, ids=ids)
    return Baskets.from_lists([item_ids(kernel, given, ids=ids)], n_items=kernel.n_items, labels=kernel.labels)


def is_plain(path: Path | None) -> bool:
    """Return whether ``path`` is, or would become, a plain file that can be replaced: not a pipe or a device."""
    return path is not None and (path.is_file() or not os.path.lexists(path))


def check_output(output: Path | None, *known: str, inputs: Sequence[str | Path | None] = ()) -> None:
    """Refuse a file that cannot be written as its name promises, before any work; ``known`` are suffixes beside .txt, .csv, .json.

    Nor may it be one of the ``inputs``, which would be lost.
    """
    if output is None:
        return
    for path in inputs:
        if path is not None and output.is_file() and os.path.exists(path) and output.samefile(path):
            raise FileExistsError(
                f"{os.fspath(output)!r} would be overwritten, and is read here; write to another file"
            )
    if output.is_dir():
        raise IsADirectoryError(f"expected the path of a file to write; {os.fspath(output)!r} is a folder")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"no folder {os.fspath(output.parent)!r} to write {output.name!r} in; create it first")
    if is_plain(output) and not os.access(output.parent, os.W_OK):
        raise PermissionError(f"{os.fspath(output)!r} cannot be written: its folder is read-only; choose another")
    kinds = (".txt", ".csv", *known, ".json")
    suffix = output.suffix.lower()
    need(
        suffix in kinds or suffix not in OTHERS,
        f"{suffix} files are not written; name one that ends in {', '.join(kinds)}",
    )


def check_folder(path: Path) -> None:
    """Refuse a file in the place of a folder of results."""
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"expected a folder for the results; {os.fspath(path)!r} is a file")


def need(condition: bool, message: str) -> None:
    """Raise a usage error unless ``condition`` holds."""
    if not condition:
        raise typer.BadParameter(message)
