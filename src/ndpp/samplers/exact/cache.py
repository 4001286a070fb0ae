"""A cache with a budget in bytes: the values used last are kept, and every byte of them counts."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np

Value = TypeVar("Value")


def n_bytes_of(value: Any) -> int:
    """Return the bytes of the arrays of a record, at any depth; a value that counts its own says so by ``n_bytes``."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if hasattr(value, "n_bytes"):
        return int(value.n_bytes)
    return sum(map(n_bytes_of, value)) if isinstance(value, tuple) else 0


class Cache:
    """Values that depend on their keys alone, so that the cache changes times and never results. Threads may share it.

    At least one value is kept, whatever its size, and those that are pinned, which others refer to: their bytes count, too.
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self._pinned: dict[Hashable, Any] = {}
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Cache], tuple[int]]:
        return Cache, (self.memory,)

    def remember(self, key: Hashable, make: Callable[[], Value], *, pinned: bool = False) -> Value:
        """Return the value of ``key``, computed by ``make`` if there is none."""
        values = self._pinned if pinned else self._kept
        with self._lock:
            if key in values:
                if not pinned:
                    self._kept.move_to_end(key)
                return values[key]  # type: ignore[no-any-return]
        value = make()
        with self._lock:
            values[key] = value
            while len(self._kept) > 1 and self.n_bytes > self.memory:
                self._kept.popitem(last=False)
        return value

    @property
    def n_bytes(self) -> int:
        """Bytes of all values."""
        return sum(n_bytes_of(value) for values in (self._pinned, self._kept) for value in values.values())
