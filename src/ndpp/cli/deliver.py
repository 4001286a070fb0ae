"""Baskets as they are drawn: on standard output at once, or in a journal until the file they are meant for is whole."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from ndpp._atomic import one_writer, replacing
from ndpp._progress import Bar
from ndpp.baskets import Baskets
from ndpp.baskets import files as basket_files
from ndpp.cli.files import OTHERS, check_output, is_plain, need
from ndpp.cli.guard import Interrupted, say
from ndpp.cli.journal import Journal
from ndpp.cli.options import Format
from ndpp.cli.output import progress, write_json_rows


class Target(NamedTuple):
    """Where baskets go, and how they are written."""

    output: Path | None
    format: Format | None
    as_json: bool
    labels: tuple[str, ...] | None

    def check(self, *inputs: str | Path | None, resume: bool) -> None:
        """Refuse what cannot be written, or is one of the ``inputs``, before anything is drawn."""
        need(not resume or is_plain(self.output), "--resume continues the file that -o names; give one")
        need(not (self.as_json and self.format), "--json and --to exclude each other")
        binary = self.format is Format.parquet and self.output is None and sys.stdout.isatty()
        need(not binary, "Parquet is no text; write it to a file with -o")
        known = (".tsv", ".parquet") if self.format is None else OTHERS  # as told, whatever the name says
        check_output(self.output, *known, inputs=inputs)

    def write(self, rows: Iterable[Sequence[int]], head: Mapping[str, Any]) -> None:
        """Write rows of ids to the output, by their labels if there are any."""
        named = ([self.labels[item] for item in row] for row in rows) if self.labels else rows
        if self.as_json or (self.output is not None and self.output.suffix.lower() == ".json"):
            if self.output is None:
                write_json_rows(sys.stdout, head, named)
                return
            with replacing(self.output) as path, open(path, "w", encoding="utf-8", newline="\n") as file:
                write_json_rows(file, head, named)
            return
        kind = None if self.format is None else self.format.value
        stream: IO[Any] = sys.stdout.buffer if kind == "parquet" else sys.stdout
        basket_files.write(stream if self.output is None else self.output, named, self.labels, format=kind)


def deliver(
    draw: Callable[[int], Iterator[Baskets]],
    n_baskets: int,
    target: Target,
    *,
    made_with: Mapping[str, Any],
    resume: bool,
) -> None:
    """Write ``n_baskets`` baskets; ``draw(i)`` yields them from number i on.

    What is meant for a plain file is journaled beside it, so that whatever ends the run, ``resume`` goes on from there.
    """
    began = time.perf_counter()
    if not is_plain(target.output):
        with progress(n_baskets, "drawing", show=not sys.stdout.isatty()) as bar:
            target.write(_as_they_come(draw(0), bar), made_with)
        return
    assert target.output is not None
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
            raise Interrupted(
                f"{len(journal):,} of {n_baskets:,} baskets are kept in {os.fspath(journal.path)!r}; --resume continues"
            ) from None
        with closing(journal.rows()) as rows:  # Windows removes no file that is open
            target.write(islice(rows, n_baskets), made_with)
        journal.remove()
    seconds = time.perf_counter() - began
    say(f"{n_baskets:,} baskets in {seconds:.1f} s, seed {made_with['seed']}, in {os.fspath(target.output)!r}")


def _as_they_come(parts: Iterable[Baskets], bar: Bar) -> Iterator[list[int]]:
    """Yield the rows of each part, and hand what was written to the system before the next part is drawn."""
    for part in parts:
        yield from part.to_lists()
        sys.stdout.flush()
        bar.advance(len(part))
