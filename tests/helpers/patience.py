"""Waiting that never depends on how fast a machine is: a test waits for events, and a clock only ends one that hangs.

``tests/test_clocks.py`` holds all tests to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
HANG_SECONDS = 600.0
"""A test that waits this long for one event hangs. No machine is that slow; the guard only keeps a run from waiting for ever."""


def until(condition: Callable[[], T], *, pause: float = 0.02) -> T:
    """Return the first value of ``condition`` that is true; raise if it hangs."""
    end = time.monotonic() + HANG_SECONDS
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"what a test waits for did not happen within {HANG_SECONDS:g} s")
        time.sleep(pause)
    return found


def serve_patiently() -> None:
    """Let a server of this process wait for its clients, and for its own last answers, as long as a test may take."""
    from ndpp.serve import gate, run

    gate.BODY_SECONDS = gate.SEND_SECONDS = run.HEADER_SECONDS = HANG_SECONDS
    run.GRACE_SECONDS = run.START_SECONDS = int(HANG_SECONDS)


def serve_without_grace() -> None:
    """Let a server of this process refuse at once, after a signal, what it has not answered."""
    from ndpp.serve import run

    serve_patiently()
    run.GRACE_SECONDS, run.LAST_SECONDS = 0, int(HANG_SECONDS)
