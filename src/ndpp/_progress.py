"""The progress of long jobs: a bar on standard error, or lines for a function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ndpp.errors import needing

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Part = TypeVar("Part", bound=Sized)


class ProgressBar(NamedTuple):
    """A progress bar; without ``shown`` and ``say`` it does nothing."""

    shown: Progress | None = None
    task: TaskID | None = None
    say: Callable[[str], None] | None = None

    def advance(self, count: int = 1) -> None:
        """Advance by ``count``."""
        if self.shown is not None and self.task is not None:
            self.shown.advance(self.task, count)

    def tell(self, what: str, line: str = "") -> None:
        """Replace the description; where there is no bar, say ``line`` instead."""
        if self.shown is not None and self.task is not None:
            self.shown.update(self.task, description=what)
        elif self.say is not None:
            self.say(line or what)


@contextmanager
def progress_bar(
    total: int,
    what: str,
    *,
    done: int = 0,
    show: bool | Callable[[str], None] = True,
    keep: bool = True,
    left: str = "left",
) -> Iterator[ProgressBar]:
    """Yield a bar for ``total`` steps, ``done`` of them completed. ``keep`` leaves it on the screen at the end.

    ``left`` is the text before the remaining time. If ``show`` is a function, there is no bar, and it is called with each line.
    """
    if show is False or callable(show):
        yield ProgressBar(say=show or None)
        return
    with needing("rich", "cli", "A progress bar"):
        from rich import console, progress
    columns = (
        progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(), progress.TextColumn(left), progress.TimeRemainingColumn(),
    )  # fmt: skip
    screen = console.Console(stderr=True)
    with progress.Progress(*columns, console=screen, transient=not keep, redirect_stdout=False) as shown:
        yield ProgressBar(shown, shown.add_task(what, total=total, completed=done))


def say_line(line: str, show: bool | Callable[[str], None]) -> None:
    """Say a line: to the function ``show``, or on standard error if it is true."""
    if callable(show):
        show(line)
    elif show:
        sys.stderr.write(line + "\n")


def counted(parts: Iterator[Part], total: int, show: bool | str, what: str) -> Iterator[Part]:
    """Yield the parts and advance a bar by their lengths. It is labelled ``what``, or ``show`` if that is a string."""
    with progress_bar(total, show if isinstance(show, str) else what, show=bool(show)) as bar:
        for part in parts:
            yield part
            bar.advance(len(part))
