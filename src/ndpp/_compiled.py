"""numba's ``njit`` with types: a compiled function keeps the signature of its source.

The name of the decorator, ``@njit``, is how coverage recognises functions whose lines Python never runs (``pyproject.toml``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def njit(*, nogil: bool = True, **options: Any) -> Callable[[Function], Function]:
    """Compile a function on its first call and cache the machine code on disk; ``options`` are those of ``numba.njit``."""
    decorator: Callable[[Function], Function] = numba.njit(cache=True, nogil=nogil, **options)
    return decorator
