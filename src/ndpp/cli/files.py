"""Input of models and baskets: files, standard input, items on the command line; and checks of output files."""

from __future__ import annotations

import codecs
import io
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import typer

from ndpp._types import IntArray
from ndpp._validation import check_items
from ndpp.answers import ItemTable, Prepared
from ndpp.answers.records import Item
from ndpp.baskets import Baskets
from ndpp.baskets.files import format_of
from ndpp.baskets.frames import needs_pyarrow
from ndpp.baskets.labels import many
from ndpp.baskets.lines import Columns, MissingColumnError
from ndpp.baskets.orders import Orders
from ndpp.cli.options import Reading, ReadingFor
from ndpp.customers.store import FORMAT as CUSTOMERS
from ndpp.errors import (
    DataWarning,
    ImpossibleSizeError,
    InvalidInputError,
    ModelFileError,
    UnknownItemError,
    UnknownLabelError,
)
from ndpp.laws.files import load, load_header, load_metadata
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law as Law

OTHER_FORMATS = (
    ".parquet", ".tsv", ".xlsx", ".xls", ".ods", ".html", ".pdf", ".arrow", ".feather", ".npz", ".safetensors",
)  # fmt: skip
"""Suffixes that promise a format other than text, CSV or JSON. Files with any other suffix hold text."""
JSON = (".json", ".jsonl", ".ndjson")
MODELS = ("a model", "customers")
"""What :func:`kind_of` calls the files of ndpp that hold no baskets."""
LIST_ITEMS = "`ndpp info MODEL --top N` lists the N most frequent items."
LEAVE_OUT = "Leave such items out with {unknown:'skip'}"


class HeldInput(io.BytesIO):
    """What standard input holds."""

    name = "standard input"


def rewind(target: str | HeldInput) -> None:
    """Let what standard input holds be read from its beginning again."""
    if isinstance(target, HeldInput):
        target.seek(0)


class Source(NamedTuple):
    """A file of baskets, or "-" for standard input, and how to read it."""

    path: str
    reading: Reading = Reading()
    may_differ: bool = False

    @property
    def name(self) -> str:
        """The name to show."""
        return "standard input" if self.path == "-" else self.path

    @property
    def target(self) -> str | HeldInput:
        """The path, or what standard input holds, which cannot be had twice."""
        return HeldInput(sys.stdin.buffer.read()) if self.path == "-" else self.path

    @property
    def columns(self) -> Columns:
        """The columns of a table; those of the basket are separated by commas."""
        basket, item = self.reading.basket, self.reading.item
        return Columns.of([name.strip() for name in basket.split(",")], item)

    def sibling(self, path: str) -> Source:
        """Return another file, to be read in the same way.

        --basket and --item describe BASKETS: a text file has no columns, and another table may have those that ndpp writes.
        """
        sibling = Source(path, self.reading, may_differ=True)
        return sibling.own() if format_of(path, self.reading.from_) == "text" else sibling

    def own(self) -> Source:
        """Return the file, to be read as one that ndpp wrote."""
        return self._replace(reading=replace(self.reading, basket="basket", item="item"), may_differ=False)

    def check(self) -> None:
        """Raise if the file is one of ndpp that holds no baskets."""
        if self.path != "-" and (kind := kind_of(Path(self.path))) in MODELS:
            advice = "`ndpp info` describes it, `ndpp update` continues the training of a model, and `ndpp fit BASKETS -o MODEL` makes one"
            raise InvalidInputError(f"{self.path!r} holds {kind}, not baskets", advice=advice)

    def read(self, target: str | HeldInput | None = None, **options: Any) -> Orders:
        """Return the orders; ``options`` are those of ``Orders.read``, and ``items``, a file of labels.

        A ``target`` that is read again is passed; it is read from its beginning.
        """
        how: dict[str, Any] = {**vars(self.reading), **options}
        format, time_format = how.pop("from_"), how.pop("time_format")
        how["basket"] = self.columns.basket
        target = self.target if target is None else target
        rewind(target)
        self.check()
        if format is None and Path(self.path).suffix.lower() in JSON:
            raise InvalidInputError(f"{self.path!r} is JSON; baskets are read from text, CSV or Parquet (--from)")
        try:
            if "items" in how:
                return Orders(Baskets.read(target, format=format, **how))
            return Orders.read(target, format=format, time_format=time_format, **how)
        except MissingColumnError as missing:
            if not self.may_differ or not set(Columns().names) <= set(missing.there):
                raise
            return self.own().read(target, **options)
        except UnknownItemError as unknown:
            unknown.advice = f"Is this the catalogue of the model? {LEAVE_OUT}"
            raise

    def read_timed(self, time: str | None, **options: Any) -> Orders:
        """Return the orders with the times of this column or, if None is named, of a column "time" if there is one."""
        if time is not None or format_of(self.path, self.reading.from_) == "text":
            return self.read(time=time, **options)
        target = self.target
        try:
            return self.read(target, time="time", **options)
        except MissingColumnError as missing:
            if missing.column != "time":
                raise
        return self.read(target, **options)

    def read_for(self, kernel: Law | Baskets, *, ids: bool | None, **context: Any) -> Orders:
        """Return the baskets over the items of a model, or of other baskets, in context as :meth:`read` takes it.

        ``ids`` is None where the command has no --ids.
        """
        if kernel.labels is None or ids:
            made = self.read(**context, n_items=kernel.n_items, as_labels=False)
            return made.with_labels(kernel.labels)
        try:
            return self.read(**context, labels=kernel.labels, as_labels=True)
        except UnknownLabelError as unknown:
            may_be_id = unknown.label.isdigit() and ids is not None
            advice = "If the baskets hold ids, use --ids." if may_be_id else LEAVE_OUT
            advice = advice if isinstance(self.reading, ReadingFor) else ""  # fit has no such options
            raise InvalidInputError(f"{self.name}: {unknown}", advice=advice) from None


def load_model(path: Path) -> Law:
    """Return the kernel or mixture of a model file; if the file holds text, the error says how to fit a model to it."""
    try:
        return Law.required(load(path))
    except ModelFileError:
        if path.is_file() and path.suffix != ".safetensors" and _is_text(path):
            raise ModelFileError(
                f"{str(path)!r} is text, not a model; `ndpp fit {path} -o model.safetensors` fits a model to baskets"
            ) from None
        raise


def load_prepared(
    path: Path, table: str | None = None, *, ids: bool = False, encoding: str | None = None, law: Law | None = None
) -> Prepared:
    """Return the model of a file, or another one in its place, with the table of --table, by default the one that the file holds."""
    law = load_model(path) if law is None else law
    found = None if table is None else ItemTable.read(Source(table).target, law, ids=ids, encoding=encoding)
    return Prepared(law, found, metadata=load_metadata(path))


def context_of(at: Sequence[str] | None) -> dict[str, str]:
    """Return the columns and values of --at."""
    for word in at or ():
        require(word.find("=") > 0, f"--at takes a column and a value, such as store=3; got {word!r}")
    context = {name.strip(): value for name, _, value in (word.partition("=") for word in at or ())}
    require(len(context) == len(at or ()), "--at takes each column once")
    return context


def load_kernel(path: Path, why: str) -> LowRankKernel:
    """Return the kernel of a model file; ``why`` says why a mixture will not do."""
    kernel: LowRankKernel | None = load_model(path).as_kernel
    if kernel is None:
        raise ModelFileError(f"{str(path)!r} holds a mixture; {why}. `ndpp fit --model ndpp` learns a single kernel")
    return kernel


def _is_text(path: Path) -> bool:
    with open(path, "rb") as file:
        start = file.read(1000)
    try:
        return "\0" not in codecs.getincrementaldecoder("utf-8")().decode(start)  # the last character may be cut in two
    except UnicodeDecodeError:
        return False


def fingerprint(path: Path) -> str:
    """Return the checksum of a model's arrays."""
    return f"{load_header(path).crc32:08x}"


def item_ids(own: Prepared, words: Sequence[str] | None, *, ids: bool, unknown: str = "error") -> IntArray:
    """Return the ids of items on the command line, "a,b" or "a" "b", by label or name; with ``unknown="skip"`` of those that are there."""
    kernel = own.law
    # A label may contain commas: a word that is a label, or a name, is not split.
    names = [name for word in words or () for name in ([word] if own.knows(word) else map(str.strip, word.split(",")))]
    if kernel.labels is not None and not ids:
        skipped: list[Item] | None = [] if unknown == "skip" else None
        try:
            found = own.ids(list(dict.fromkeys(names)), "items", skipped)
            if skipped:
                text = f"skipped {many(len(set(skipped)), 'unknown item')}, such as {skipped[0]!r}"
                warnings.warn(text, DataWarning, stacklevel=1)
            return found
        except UnknownLabelError as unknown:
            unknown.advice = "Ids need --ids." if unknown.label.isdigit() else "" if unknown.suggestions else LIST_ITEMS
            if any("," in word for word in words or ()):
                unknown.advice = "Commas separate items: for a name that contains one, repeat --given or --exclude."
            raise
    for name in names:
        if not name.isdecimal():
            why = "with --ids" if ids else "since this model has no labels"
            raise InvalidInputError(f"{name!r} is not an item id; items are integers {why}")
    return check_items([int(name) for name in names], kernel.n_items)


def given_baskets(
    own: Prepared, given: Sequence[str] | None, path: str | None, reading: ReadingFor, *, ids: bool
) -> Baskets:
    """Return the baskets of a file, or the one basket of --given."""
    require(path is None or not given, "items come from a file of baskets or from --given, not from both")
    kernel = own.law
    if path is not None:
        return Source(path, reading).read_for(kernel, ids=ids)
    found = item_ids(own, given, ids=ids, unknown=reading.unknown)
    return Baskets.from_lists([found], n_items=kernel.n_items, labels=kernel.labels)


def check_sizes(kernel: Law, starts: Baskets, sizes: Sequence[int | None]) -> None:
    """Raise if any basket of a file cannot be completed to its size, before any of them is."""
    for i, (given, size) in enumerate(zip(starts.sizes.tolist(), sizes)):
        most = kernel.max_size if size is None else size
        if given > most:
            raise ImpossibleSizeError(f"basket {i} of the file holds {given} items; it cannot be completed to {most}")
        if most > kernel.max_size:
            raise ImpossibleSizeError(
                f"basket {i} of the file would have {most} items; no basket of this model has more than {kernel.max_size}"
            )


def is_regular(path: Path | None) -> bool:
    """Return whether ``path`` is, or would become, a regular file that can be replaced: not a pipe or a device."""
    return path is not None and (path.is_file() or not os.path.lexists(path))


def check_output(
    output: Path | None, *formats: str, inputs: Sequence[str | Path | None] = (), kind: str | None = None
) -> None:
    """Raise if the output cannot be written, is one of the ``inputs``, or holds something of another kind, before any work.

    ``formats`` are the suffixes that can be written in addition to .txt, .csv and .json; ``kind`` is as in :func:`kind_of`, by default
    what the suffix says.
    """
    if output is None:
        return
    name = repr(os.fspath(output))
    for path in inputs:
        if path is not None and output.is_file() and os.path.exists(path) and output.samefile(path):
            raise FileExistsError(f"{name} is also an input and would be overwritten; write to another file")
    if output.is_dir():
        raise IsADirectoryError(f"expected the path of a file to write; {name} is a folder")
    wanted, there = kind or KINDS.get(output.suffix.lower(), "text"), kind_of(output)
    if there not in (None, wanted):
        raise FileExistsError(
            f"{name} holds {there}, which {wanted} would overwrite; choose another name, or remove it first"
        )
    if not output.parent.is_dir():
        raise FileNotFoundError(f"no folder {os.fspath(output.parent)!r} to write {output.name!r} in; create it first")
    if is_regular(output) and not os.access(output.parent, os.W_OK):
        raise PermissionError(f"{name} cannot be written: its folder is read-only; choose another")
    known, suffix = (".txt", ".csv", *formats, ".json"), output.suffix.lower()
    supported = suffix in known or suffix not in OTHER_FORMATS
    require(supported, f"cannot write {suffix} files; use a name that ends in {', '.join(known)}")


KINDS = {".parquet": "a Parquet table", ".gz": "a gzip file"}
"""Kinds of files by their suffix; others hold text."""


def kind_of(path: Path) -> str | None:
    """Return in words what a file holds; None if it is empty, or no file."""
    if not path.is_file() or not path.stat().st_size:
        return None
    with open(path, "rb") as file:
        start = file.read(4096)
        is_safetensors = start[6:9] == b"\0\0{"  # the length of a header in JSON comes first
        if is_safetensors:
            start += file.read(int.from_bytes(start[:8], "little"))  # all of the header, whose fields are in any order
    if is_safetensors:
        return "customers" if CUSTOMERS.encode() in start else "a model"
    marks = {b"PAR1": "a Parquet table", b"\x1f\x8b": "a gzip file"}
    found = next((kind for mark, kind in marks.items() if start.startswith(mark)), None)
    return found or ("text" if _is_text(path) else "binary data")


def check_table(output: Path | None, *inputs: str | Path | None) -> None:
    """Raise if a table cannot be written to the output, or would overwrite one of the ``inputs``, before any work."""
    check_output(output, ".parquet", inputs=inputs)
    if output is not None and output.suffix.lower() == ".parquet":
        needs_pyarrow("Writing Parquet")


def require(condition: bool, message: str) -> None:
    """Raise a usage error unless ``condition`` holds."""
    if not condition:
        raise typer.BadParameter(message)
