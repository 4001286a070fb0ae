"""A CSV reader that knows line numbers, for error messages."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from ndpp.errors import InvalidInputError


class BadLineError(InvalidInputError):
    """Line ``line`` of the file ``name`` cannot be read."""

    def __init__(self, name: str, line: int, reason: str) -> None:
        self.name, self.line = name, line
        super().__init__(f"{name}, line {line}: {reason}", advice="Repair or drop this line.")


def records(
    lines: Iterable[str], name: str, *, delimiter: str = ",", quoted: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with the number of its first line. ``name`` is what errors call the file.

    Examples
    --------
    >>> list(records(["a,b\\n", "\\n", '1,"two\\n', 'lines"\\n'], "the file"))
    [(1, ['a', 'b']), (3, ['1', 'two\\nlines'])]
    """
    ended = False

    def lines_until_end() -> Iterator[str]:
        nonlocal ended
        yield from lines
        ended = True

    rows = csv.reader(lines_until_end(), delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
    line = 1
    try:
        for row in rows:
            if ended:  # the reader requested another line in the middle of this row
                raise BadLineError(name, line, 'an opening quote (") is never closed')
            if row:
                yield line, row
            line = rows.line_num + 1
    except csv.Error as reason:  # a field of more than 128 kB
        raise BadLineError(name, line, f'{reason}; perhaps an opening quote (") is never closed') from None
