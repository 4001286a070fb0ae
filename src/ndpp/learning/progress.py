"""A progress bar with loss, validation log-likelihood and the time left, where one is asked for."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ndpp.errors import MissingExtraError


class Progress:
    """A bar over ``total`` steps, which shows nothing unless ``show``. Training may end before ``total``."""

    def __init__(self, total: int, done: int, *, show: bool) -> None:
        self._bar: Any = None
        if not show:
            return
        try:
            from rich import console, progress
        except ImportError:
            raise MissingExtraError("rich", "cli", "A progress bar") from None
        self._bar = progress.Progress(
            progress.TextColumn("epoch {task.fields[epoch]}"),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[figures]}"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("at most"),
            progress.TimeRemainingColumn(),
            console=console.Console(stderr=True),
        )
        self._task = self._bar.add_task("training", total=total, completed=done, epoch=0, figures="")

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self) -> None:
        """Count one step."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def epoch(self, record: dict[str, float]) -> None:
        """Show the figures of an epoch."""
        if self._bar is not None:
            figures = f"loss {record['loss']:.3f}  validation {record['validation']:.3f}"
            self._bar.update(self._task, epoch=int(record["epoch"]), figures=figures)
