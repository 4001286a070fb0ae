"""The one reader of CSV: rows with the numbers of their lines, and errors that name them."""

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
    """Yield the rows that are not blank, each with the number of the line where it begins.

    Parameters
    ----------
    lines : iterable of str
        Lines with their ends; one that lies inside quotes goes on in the next.
    name : str
        What errors call the file.
    delimiter : str
        What stands between values.
    quoted : bool
        Whether values may stand in quotes.

    Examples
    --------
    >>> list(records(["a,b\\n", "\\n", '1,"two\\n', 'lines"\\n'], "the file"))
    [(1, ['a', 'b']), (3, ['1', 'two\\nlines'])]
    """
    ended = False

    def until_the_end() -> Iterator[str]:
        nonlocal ended
        yield from lines
        ended = True

    rows = csv.reader(until_the_end(), delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
    line = 1
    try:
        for row in rows:
            if ended:  # the reader asked for another line in the middle of this row
                raise BadLineError(name, line, 'a quote (") is opened and never closed')
            if row:
                yield line, row
            line = rows.line_num + 1
    except csv.Error as reason:  # a field of 128 kB
        raise BadLineError(name, line, f'{reason}; perhaps a quote (") is opened and never closed') from None
