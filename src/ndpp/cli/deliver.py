"""Writing baskets as they are drawn: to standard output, or to a file that is complete or not there."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import IO, NamedTuple

from ndpp._progress import ProgressBar
from ndpp._show import in_full, printable, to_json
from ndpp.answers.records import Drawn, Item
from ndpp.baskets import Baskets
from ndpp.baskets import files as basket_files
from ndpp.baskets.lines import COMPLETION, Columns
from ndpp.cli.files import OTHER_FORMATS, check_output, is_regular, require
from ndpp.cli.guard import Interrupted, is_interrupt, say
from ndpp.cli.options import Format, Writing
from ndpp.cli.output import plain, progress


class Starts(NamedTuple):
    """What was in the baskets before: each of ``baskets``, ``number`` times; ``from_file`` says whether they have ids of their own."""

    baskets: Baskets
    number: int = 1
    from_file: bool = True

    @property
    def ids(self) -> list[int | str]:
        """The id of each basket that is written."""
        if not self.from_file:
            return list(range(len(self.baskets) * self.number))
        return [i for i in self.baskets.ids_or_numbers for _ in range(self.number)]

    @property
    def header(self) -> list[str]:
        """The columns of a table: what was added is marked, and several completions of one basket are numbered."""
        return ["basket", *([COMPLETION] if self.from_file and self.number > 1 else []), "item", "added"]

    def records(self, rows: Iterable[Sequence[int]], name: Callable[[int], Item], first: int) -> Iterator[Drawn]:
        """Yield each basket as a record, given items first."""
        for i, row in enumerate(rows, first):
            given = self.baskets[i // self.number].tolist()
            added = [item for item in row if item not in given]
            yield Drawn(tuple(map(name, given + added)), tuple(map(name, added)))

    def table(self, drawn: Iterable[Drawn], first: int) -> Iterator[Sequence[object]]:
        """Yield the lines of a table of these columns."""
        for i, (key, one) in enumerate(zip(self.ids[first:], drawn), first):
            start = [key, i % self.number + 1] if COMPLETION in self.header else [key]
            n_given = len(one.items) - len(one.added)
            yield from ([*start, item, k >= n_given] for k, item in enumerate(one.items))
            if not one.items:
                yield [*start, None, None]


class BasketOutput(NamedTuple):
    """Where baskets go, in which format, and the number of the first; ``labels`` is None if they are written as ids."""

    writing: Writing
    labels: tuple[str, ...] | None
    starts: Starts | None = None
    first: int = 0

    @classmethod
    def checked(
        cls, writing: Writing, labels: tuple[str, ...] | None, *inputs: str | Path | None, first: int = 0
    ) -> BasketOutput:
        """Return where baskets go; raise if they cannot be written, or would overwrite one of the ``inputs``, before anything is drawn."""
        output, to = writing.output, writing.to
        require(not (writing.json and to), "use either --json or --to")
        binary = to is Format.parquet and output is None and sys.stdout.isatty()
        require(not binary, "Parquet is a binary format; write it to a file with -o")
        formats = (".tsv", ".parquet") if to is None else OTHER_FORMATS  # --to overrides any suffix
        chosen = None if to is None or str(output).endswith(".gz") else "text"
        kind = "a Parquet table" if to is Format.parquet else chosen
        check_output(output, *formats, inputs=inputs, kind=kind)
        target = cls(writing, None if writing.ids else labels, first=first)
        basket_files.check_names(target.kind, target.labels or ())
        return target

    @property
    def kind(self) -> str:
        """The format, by name."""
        output, to = self.writing.output, self.writing.to
        is_json = self.writing.json or (output is not None and output.suffix.lower() == ".json" and not to)
        return "json" if is_json else basket_files.format_of(output or "", to)

    def write(self, baskets: Iterable[Sequence[int]], head: Mapping[str, object]) -> None:
        """Write baskets of ids; ``head`` comes first if the format is JSON."""
        labels, kind, output, starts = self.labels, self.kind, self.writing.output, self.starts
        if labels is not None and output is None and sys.stdout.isatty():
            labels = tuple(printable(in_full(label) if kind == "text" else label) for label in labels)
        name: Callable[[int], Item] = int if labels is None else labels.__getitem__
        stream: IO[bytes] | IO[str] = sys.stdout.buffer if kind == "parquet" else sys.stdout
        target = stream if output is None else output
        if labels is not None and kind in basket_files.DELIMITERS:
            labels = tuple(map(plain, labels))
            name = labels.__getitem__
        if starts is None:
            rows: Iterable[Sequence[Item]] = (list(map(name, row)) for row in baskets)
        else:
            drawn = starts.records(baskets, name, self.first)
            if kind not in ("json", "text"):
                basket_files.check_names(kind, map(str, starts.ids))
                basket_files.write_table(target, starts.header, starts.table(drawn, self.first), kind, labels or ())
                return
            rows = (one.items for one in drawn)
            if starts.baskets.basket_ids is not None:
                head = {**head, "basket_ids": starts.ids[self.first :]}
        if kind != "json":
            basket_files.write(target, rows, count(self.first), Columns(), kind, labels or ())
            return
        with basket_files.writer(target) as file:  # one object, with the baskets last and one per line, as they come
            file.write(to_json(head)[:-1] + ', "baskets": [')
            for i, items in enumerate(rows):
                file.write((",\n" if i else "\n") + to_json(list(items)))
            file.write("\n]}\n")


def deliver(parts: Iterable[Baskets], n_baskets: int, target: BasketOutput, *, made_with: Mapping[str, object]) -> None:
    """Write ``n_baskets`` baskets as they are drawn. A file appears when it is complete; --first draws what is missing elsewhere."""
    began, output, seed = time.perf_counter(), target.writing.output, made_with["seed"]
    whole = is_regular(output)
    try:
        with progress(n_baskets, "drawing", show=whole or not sys.stdout.isatty()) as bar:
            target.write(_flushed(parts, bar), made_with)
    except BaseException as error:
        if not is_interrupt(error):
            raise
        if output is not None and whole:
            raise Interrupted(f"{os.fspath(output)!r} was not written; --first draws it in parts") from None
        raise Interrupted(f"--seed {seed} --first N continues after N baskets") from None
    if output is not None and whole:
        seconds = time.perf_counter() - began
        say(f"{n_baskets:,} baskets in {seconds:.1f} s, seed {seed}, in {os.fspath(output)!r}")


def _flushed(parts: Iterable[Baskets], bar: ProgressBar) -> Iterator[list[int]]:
    """Yield the baskets of each part, and flush standard output before the next part is drawn."""
    for part in parts:
        yield from part.to_lists()
        sys.stdout.flush()
        bar.advance(len(part))
