"""numba's ``njit`` with types: a compiled function keeps the signature of its source.

The name of the decorator, ``@njit``, is how coverage recognises functions whose lines Python never runs (``pyproject.toml``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numba
import numpy as np
from numba.extending import register_jitable

Function = TypeVar("Function", bound=Callable[..., Any])

write = np.positive
"""``write(values, out)`` in compiled functions, instead of an assignment of an array to a slice.

The message of the error of such an assignment has shapes in it; to compile it takes seconds, and every caller's code is ten times as long.
"""


def njit(*, nogil: bool = True, **options: Any) -> Callable[[Function], Function]:
    """Compile a function on its first call and cache the machine code on disk; ``options`` are those of ``numba.njit``.

    Python must not call one that returns a named tuple: with Ctrl-C pending, numba would crash when it makes one.
    """
    decorator: Callable[[Function], Function] = numba.njit(cache=True, nogil=nogil, **options)
    return decorator


def jitable(**options: Any) -> Callable[[Function], Function]:
    """Compile a function where compiled functions call it; where Python does, it is interpreted, with arguments of any type."""
    decorator: Callable[[Function], Function] = register_jitable(**options)
    return decorator


def interpreted(function: Function) -> Function:
    """Return the source of a compiled function, which takes arguments of any type."""
    source: Function = getattr(function, "py_func", function)
    return source


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
