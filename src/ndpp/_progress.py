"""The one progress bar, on standard error, where one is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from ndpp.errors import MissingExtraError

Part = TypeVar("Part", bound=Sized)


class ProgressBar(NamedTuple):
    """A bar that may be shown or not."""

    shown: Any = None
    task: Any = None

    def advance(self, count: int = 1) -> None:
        """Count what was done since the last call."""
        if self.shown is not None:
            self.shown.advance(self.task, count)

    def tell(self, what: str) -> None:
        """Show what is going on, in place of what the bar was called."""
        if self.shown is not None:
            self.shown.update(self.task, description=what)


@contextmanager
def progress_bar(
    total: int, what: str, *, done: int = 0, show: bool = True, keep: bool = True, left: str = "left"
) -> Iterator[ProgressBar]:
    """Give a bar over ``total`` things, of which ``done`` are done.

    ``keep`` leaves it on the screen at the end; ``left`` is what it says before the time that remains.
    """
    if not show:
        yield ProgressBar()
        return
    try:
        from rich import console, progress
    except ImportError:
        raise MissingExtraError("rich", "cli", "A progress bar") from None
    columns = (
        progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(), progress.TextColumn(left), progress.TimeRemainingColumn(),
    )  # fmt: skip
    screen = console.Console(stderr=True)
    with progress.Progress(*columns, console=screen, transient=not keep, redirect_stdout=False) as shown:
        yield ProgressBar(shown, shown.add_task(what, total=total, completed=done))


def counted(parts: Iterator[Part], total: int, show: bool | str, what: str) -> Iterator[Part]:
    """Yield the parts, and count what is in them on a bar called ``what``, or ``show`` if that is a name."""
    with progress_bar(total, show if isinstance(show, str) else what, show=bool(show)) as bar:
        for part in parts:
            yield part
            bar.advance(len(part))
