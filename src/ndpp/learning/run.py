"""One call of ``fit``: its seed, the time that it may take, what it says, and where it keeps what it has found."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ndpp._progress import say_line
from ndpp._stop import stopping
from ndpp.learning import checkpoint
from ndpp.learning.checkpoint import Checkpoint

MAX_SILENCE = 10.0
"""Seconds after which work that goes on says so."""


class OutOfTime(Exception):
    """A stage has used up its share of the time."""


@dataclass
class Deadline:
    """The time for training: ``limit`` seconds from ``began`` on, of which ``reserve`` are for what comes after the last step."""

    limit: float = float("inf")
    reserve: float = 0.0
    began: float = field(default_factory=lambda: time.monotonic())
    spent: float = 0.0
    """Seconds before the first stage, which shares of the time do not count."""

    def left(self, share: float = 1.0) -> float:
        """Return the seconds left, or those until a share of the time for stages has passed."""
        return self.began + self.spent + share * (self.limit - self.reserve - self.spent) - time.monotonic()

    @property
    def passed(self) -> float:
        """The share of the time that has passed; 0 without a limit."""
        return 0.0 if self.limit == float("inf") else 1 - max(0.0, self.left()) / max(self.limit - self.reserve, 1e-9)


@dataclass
class TrainingRun:
    """What all stages of one call of ``fit`` share."""

    seed: int
    clock: Deadline = field(default_factory=Deadline)
    progress: bool | Callable[[str], None] = False
    path: str | os.PathLike[str] | None = None
    made_with: Mapping[str, Any] = field(default_factory=dict)
    saved: Checkpoint = checkpoint.FRESH
    """What the run continues."""
    epoch_seconds: float = 0.0
    """How long an epoch takes, as far as it is known before training."""
    spoke: float = field(default_factory=lambda: time.monotonic())

    @property
    def done(self) -> int:
        """Epochs before those of this run."""
        return len(self.saved.record["history"])

    def say(self, line: str) -> None:
        """Say a line about the stage that begins."""
        say_line(line, self.progress)
        self.spoke = time.monotonic()

    @contextmanager
    def stage(self, what: str, share: float) -> Iterator[None]:
        """Name a stage, say now and then that it goes on, and have :func:`ndpp._stop.look` end it after a share of the time."""
        self.say(what)
        began = time.monotonic()

        def check() -> None:
            self.tick(f"{what}, {time.monotonic() - began:.0f} s so far")
            if self.clock.left(share) < 0:
                raise OutOfTime

        with stopping(check):
            yield

    def tick(self, line: str) -> None:
        """Say a line if nothing was said for a while."""
        if time.monotonic() > self.spoke + MAX_SILENCE:
            self.say(line)

    def keep(self, state: Checkpoint) -> None:
        """Write a checkpoint, from which a run with the same settings continues."""
        if self.path is not None:
            checkpoint.write(
                self.path, state.tensors, {**state.record, "seed": self.seed, "made_with": dict(self.made_with)}
            )
