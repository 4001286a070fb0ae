"""A journal of baskets next to the file they will go to, so that an interrupted run loses none of them.

``out.csv.ndpp-part`` starts with a line of JSON that marks it as a journal and says how its baskets are made, followed by one
basket of ids per line. Lines are flushed as they come: a process killed at any time leaves complete lines and perhaps a partial
one, which the next run cuts off. Any other file of that name is left alone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator, Mapping
from typing import IO, Any

from ndpp._atomic import check_same, part_path
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError, UnfinishedRunError

KIND = "ndpp_journal"
VERSION = 1
MARK = f'{{"{KIND}": {VERSION}'.encode()
"""How the first line of every journal begins."""
BASKET = re.compile(rb"(\d+( \d+)*)?\n")


class Journal:
    """An open journal of the baskets that ``target`` will hold. ``len`` is the number of baskets in it.

    ``made_with`` is what they depend on, as JSON. With ``resume`` a journal made with the same values is continued; without it, a journal
    that holds baskets is an error.

    Examples
    --------
    >>> import tempfile
    >>> target = tempfile.mkdtemp() + "/out.txt"
    >>> with Journal(target, {"seed": 1}) as journal:
    ...     journal.append(Baskets.from_lists([[0, 2], []]))
    >>> with Journal(target, {"seed": 1}, resume=True) as journal:
    ...     len(journal), list(journal.baskets())
    (2, [[0, 2], []])
    >>> journal.remove()
    """

    def __init__(self, target: str | os.PathLike[str], made_with: Mapping[str, Any], *, resume: bool = False) -> None:
        self.path = part_path(target)
        self._length = 0
        old = read_made_with(target)
        if old is not None and not resume:
            raise UnfinishedRunError(str(self.path), "the baskets")
        if old is not None:
            check_same(self.path, old, made_with)
        self._file: IO[bytes] = open(self.path, "wb" if old is None else "rb+")  # noqa: SIM115  closed by __exit__
        if old is None:
            self._write(json.dumps({KIND: VERSION, **made_with}) + "\n")
        else:
            self._length = self._cut_partial_line() - 1

    def _cut_partial_line(self) -> int:
        """Remove what follows the last complete line, and return the number of complete lines."""
        end, lines = len(self._file.readline()), 1
        for line in self._file:
            if line.endswith(b"\n"):
                if not BASKET.fullmatch(line):
                    self._file.close()
                    raise InvalidInputError(
                        f"line {lines + 1} of {str(self.path)!r} is damaged", advice="Delete the file."
                    )
                lines, end = lines + 1, end + len(line)
        self._file.truncate(end)
        self._file.seek(end)
        return lines

    def __len__(self) -> int:
        return self._length

    def append(self, baskets: Baskets) -> None:
        """Write baskets and flush them."""
        self._write("".join(" ".join(map(str, items)) + "\n" for items in baskets.to_lists()))
        self._length += len(baskets)

    def _write(self, text: str) -> None:
        self._file.write(text.encode())
        self._file.flush()

    def baskets(self) -> Generator[list[int], None, None]:
        """Yield the ids of each basket. The file stays open until the generator is exhausted or closed."""
        with open(self.path, "rb") as file:
            next(file)
            yield from ([int(word) for word in line.split()] for line in file)

    def remove(self) -> None:
        """Delete the journal, once its baskets have reached their file."""
        self._file.close()
        self.path.unlink()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read_made_with(target: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return how the baskets in the journal of ``target`` are made, None if there are none; raise if it is another file."""
    path = part_path(target)
    if not path.exists():
        return None
    foreign = InvalidInputError(
        f"{str(path)!r} is not a journal of baskets, or it is damaged", advice="Move it out of the way."
    )
    if not path.is_file():
        raise foreign
    with open(path, "rb") as file:
        first, more = file.readline(), file.read(1)
    if not first.endswith(b"\n") and (MARK.startswith(first) or first.startswith(MARK)):
        return None  # killed within the first line
    try:
        made_with = json.loads(first)
    except ValueError:
        raise foreign from None
    if not isinstance(made_with, dict) or made_with.pop(KIND, None) != VERSION:
        raise foreign
    return made_with if more else None  # killed before there was a basket
