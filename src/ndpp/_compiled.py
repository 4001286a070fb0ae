"""numba's ``njit`` with types: a compiled function keeps the signature of its source.

The name of the decorator, ``@njit``, is how coverage recognises functions whose lines Python never runs (``pyproject.toml``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def njit(*, nogil: bool = True, **options: Any) -> Callable[[Function], Function]:
    """Compile a function on its first call and cache the machine code on disk; ``options`` are those of ``numba.njit``."""
    decorator: Callable[[Function], Function] = numba.njit(cache=True, nogil=nogil, **options)
    return decorator


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C inside a compiled function be a KeyboardInterrupt, also where numba turns it into a SystemError."""
    try:
        yield
    except SystemError as error:
        reason: BaseException | None = error
        while reason is not None:
            if isinstance(reason, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            reason = reason.__cause__ or reason.__context__
        raise
