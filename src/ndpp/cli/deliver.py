"""Writing baskets as they are drawn: straight to standard output, or to a journal until the output file is complete."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import count, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from ndpp._atomic import one_writer, replacing
from ndpp._json import to_json
from ndpp._progress import ProgressBar
from ndpp._show import printable
from ndpp.baskets import Baskets
from ndpp.baskets import files as basket_files
from ndpp.baskets.lines import COMPLETION
from ndpp.cli.files import OTHER_FORMATS, check_output, is_regular, require
from ndpp.cli.guard import Interrupted, say
from ndpp.cli.journal import Journal
from ndpp.cli.options import Format, Writing
from ndpp.cli.output import progress


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

    def first(self, rows: Iterable[Sequence[int]]) -> Iterator[tuple[list[int], list[int]]]:
        """Yield what was given and what was added, for each basket."""
        for i, row in enumerate(rows):
            given = self.baskets[i // self.number].tolist()
            yield given, [item for item in row if item not in given]

    def table(self, rows: Iterable[Sequence[int]], name: Callable[[int], Any]) -> Iterator[list[Any]]:
        """Yield the records of a table of these columns."""
        for i, (key, (given, added)) in enumerate(zip(self.ids, self.first(rows))):
            start = [key, i % self.number + 1] if COMPLETION in self.header else [key]
            yield from ([*start, name(item), False] for item in given)
            yield from ([*start, name(item), True] for item in added)
            if not given and not added:
                yield [*start, None, None]


class Target(NamedTuple):
    """Where baskets go and in which format; ``labels`` is None if they are written as ids."""

    output: Path | None
    format: Format | None
    as_json: bool
    labels: tuple[str, ...] | None
    starts: Starts | None = None

    @classmethod
    def of(cls, writing: Writing, labels: tuple[str, ...] | None) -> Target:
        """Return where the options say that baskets of a model with these labels go."""
        return cls(writing.output, writing.to, writing.json, None if writing.ids else labels)

    @property
    def kind(self) -> str:
        """The format, by name."""
        is_json = self.as_json or (
            self.output is not None and self.output.suffix.lower() == ".json" and not self.format
        )
        return "json" if is_json else basket_files.format_of(self.output or "", self.format)

    def check(self, *inputs: str | Path | None, resume: bool) -> None:
        """Raise if the baskets cannot be written, or would overwrite one of the ``inputs``, before anything is drawn."""
        require(not resume or is_regular(self.output), "--resume continues the file named by -o; name one")
        require(not (self.as_json and self.format), "use either --json or --to")
        binary = self.format is Format.parquet and self.output is None and sys.stdout.isatty()
        require(not binary, "Parquet is a binary format; write it to a file with -o")
        formats = (".tsv", ".parquet") if self.format is None else OTHER_FORMATS  # --to overrides any suffix
        check_output(self.output, *formats, inputs=inputs)
        basket_files.check_names(self.kind, self.labels or ())

    def write(self, baskets: Iterable[Sequence[int]], head: Mapping[str, Any]) -> None:
        """Write baskets of ids; ``head`` comes first if the format is JSON."""
        labels, kind = self.labels, self.kind
        if labels is not None and self.output is None and sys.stdout.isatty():
            labels = tuple(map(printable, labels))
        name: Callable[[int], Any] = int if labels is None else labels.__getitem__
        stream: IO[Any] = sys.stdout.buffer if kind == "parquet" else sys.stdout
        target = stream if self.output is None else self.output
        if self.starts is not None and kind not in ("json", "text"):
            basket_files.check_names(kind, map(str, self.starts.ids))
            basket_files.write_table(target, self.starts.header, self.starts.table(baskets, name), kind, labels or ())
            return
        rows = baskets if self.starts is None else ([*given, *added] for given, added in self.starts.first(baskets))
        named = (list(map(name, row)) for row in rows)
        if kind != "json":
            basket_files.write(target, named, labels, format=kind, basket_ids=count())
            return
        if self.starts is not None and self.starts.baskets.basket_ids is not None:
            head = {**head, "basket_ids": self.starts.ids}
        if self.output is None:
            _write_json(sys.stdout, head, named)
            return
        with replacing(self.output) as path, open(path, "w", encoding="utf-8", newline="\n") as file:
            _write_json(file, head, named)


def _write_json(file: IO[str], head: Mapping[str, Any], baskets: Iterable[Sequence[Any]]) -> None:
    """Write one JSON object, with the baskets last and one per line, as they come."""
    file.write(to_json(head)[:-1] + ', "baskets": [')
    for i, items in enumerate(baskets):
        file.write((",\n" if i else "\n") + to_json(list(items)))
    file.write("\n]}\n")


def deliver(
    draw: Callable[[int], Iterator[Baskets]],
    n_baskets: int,
    target: Target,
    *,
    made_with: Mapping[str, Any],
    resume: bool,
) -> None:
    """Write ``n_baskets`` baskets; ``draw(i)`` yields them from number i on.

    If the output is a regular file, a journal next to it holds the baskets until all are drawn, so that ``resume`` can continue.
    """
    began = time.perf_counter()
    if target.output is None or not is_regular(target.output):
        with progress(n_baskets, "drawing", show=not sys.stdout.isatty()) as bar:
            target.write(_flushed(draw(0), bar), made_with)
        return
    with one_writer(target.output), Journal(target.output, made_with, resume=resume) as journal:
        try:
            with progress(n_baskets, "drawing", done=len(journal)) as bar:
                for part in draw(len(journal)) if len(journal) < n_baskets else ():
                    journal.append(part)
                    bar.advance(len(part))
        except KeyboardInterrupt:
            if not len(journal):
                journal.remove()
                raise Interrupted("no basket was drawn yet") from None
            done = f"{len(journal):,} of {n_baskets:,} baskets"
            raise Interrupted(f"saved {done} in {os.fspath(journal.path)!r}; --resume continues") from None
        with closing(journal.baskets()) as baskets:  # Windows does not remove open files
            target.write(islice(baskets, n_baskets), made_with)
        journal.remove()
    seconds = time.perf_counter() - began
    say(f"{n_baskets:,} baskets in {seconds:.1f} s, seed {made_with['seed']}, in {os.fspath(target.output)!r}")


def _flushed(parts: Iterable[Baskets], bar: ProgressBar) -> Iterator[list[int]]:
    """Yield the baskets of each part, and flush standard output before the next part is drawn."""
    for part in parts:
        yield from part.to_lists()
        sys.stdout.flush()
        bar.advance(len(part))
