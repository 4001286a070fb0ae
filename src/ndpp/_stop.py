"""Long work that can be stopped: every loop that may take long calls :func:`look`, which raises once somebody wants it to stop.

Whoever starts the work says when, for the thread in which it runs. Nothing else is ever stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def stopping(check: Callable[[], None]) -> Iterator[None]:
    """Have the work of this block call ``check``, which raises to stop it, every few milliseconds.

    Examples
    --------
    >>> from ndpp.datasets import make_kernel
    >>> def out_of_time():
    ...     raise TimeoutError
    >>> with stopping(out_of_time):
    ...     make_kernel(10, 2, rng=0).sample(rng=0)
    Traceback (most recent call last):
    TimeoutError
    """
    before = _check.set(check)
    try:
        yield
    finally:
        _check.reset(before)


def look() -> None:
    """Raise if the work of this thread should stop."""
    check = _check.get()
    if check is not None:
        check()
