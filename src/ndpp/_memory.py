"""What laws and samplers keep for the next call, within a budget of bytes."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

ENTRY_BYTES = 300
"""Bytes that a value takes in addition to its arrays: its key, and its places in two dictionaries."""
MEASURED_EVERY = 64
"""Number of uses after which values that grow are measured again."""

Value = TypeVar("Value")
Key = TypeVar("Key", bound=Hashable)


class Counted(Protocol):
    """Something that says how many bytes it keeps alive."""

    @property
    def n_bytes(self) -> int:
        """Bytes of its arrays, without those that others keep alive and count."""


def n_bytes_of(value: object) -> int:
    """Return the bytes of an array, of a tuple of arrays at any depth, or of what says so by ``n_bytes``; 0 for anything else."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    own: int | None = getattr(value, "n_bytes", None)
    if own is not None:
        return own
    return sum(map(n_bytes_of, value)) if isinstance(value, tuple) else 0


class Memory:
    """Values that depend on their keys alone, so that what is kept changes times and never results. Threads may share it.

    The values used last are kept, at most ``budget`` bytes of them, but always the last one. Values that say ``grows = True`` are measured
    again when another is made, and after some uses. A memory may be a value of another. What is kept for a law must not refer to it, so
    that the law is freed with its last user.

    Parameters
    ----------
    budget : int
        Maximum number of bytes.
    beside : Counted, optional
        Counts as well, and is always kept.

    Attributes
    ----------
    n_forgotten : int
        How often something was forgotten: while it is the same, all that was kept still is.

    Examples
    --------
    >>> memory = Memory(10_000)
    >>> memory.remember("zeros", lambda: np.zeros(1000)) is memory.remember("zeros", lambda: np.zeros(1000))
    True
    >>> memory.remember("ones", lambda: np.ones(1000)).sum(), "zeros" in memory  # both would be too much
    (np.float64(1000.0), False)
    """

    __slots__ = ("__dict__", "__weakref__", "_name")
    grows: ClassVar[bool] = True

    def __init__(self, budget: int, beside: Counted | None = None) -> None:
        self._name: weakref.ref[Memory] | None = None
        self._gone: list[weakref.ref[Memory]] = []
        self.budget, self.beside = budget, beside
        self.n_forgotten = 0
        self._lock = threading.Lock()
        self._clear()

    def __reduce__(self) -> tuple[type[Memory], tuple[int, Counted | None]]:
        return Memory, (self.budget, self.beside)

    def __contains__(self, key: Hashable) -> bool:
        return (self._name, key) in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def _clear(self) -> None:
        self._kept: OrderedDict[tuple[object, Hashable], Any] = OrderedDict()
        self._sizes: dict[tuple[object, Hashable], int] = {}
        self._total, self._uses, self._changed = 0, 0, set[tuple[object, Hashable]]()

    def within(self, budget: int) -> Memory:
        """Return the memory with this budget. If it had another, it forgets everything, as values may depend on it."""
        with self._lock:
            if budget != self.budget:
                self._clear()
                self.budget, self.n_forgotten = budget, self.n_forgotten + 1
        return self

    def part(self) -> Memory:
        """Return this memory with keys of its own, for another law: one budget for both; what is kept there goes with the part."""
        made = object.__new__(Memory)
        made.__dict__, made._name = self.__dict__, weakref.ref(made, self._gone.append)  # all but the name is shared
        return made

    def remember(self, key: Hashable, make: Callable[[], Value], *, uses: Iterable[Hashable] = ()) -> Value:
        """Return the value of ``key``, computed by ``make`` if there is none.

        ``uses`` are keys of values that it refers to. They are forgotten after it, since until then they take their bytes in any case.
        """
        named, used = (self._name, key), [(self._name, one) for one in uses]
        with self._lock:
            if found := named in self._kept:
                self._refresh(named, *used)
                self._uses += 1
                value: Value = self._kept[named]
                if self._uses < MEASURED_EVERY:
                    return value
        if not found:
            value = make()
        with self._lock:
            if not found:
                self._kept[named] = value
                self._refresh(named, *used)
                self._changed.add(named)
            self._trim()
        return value

    def remember_many(self, keys: list[Key], make: Callable[[list[Key]], Iterable[Value]]) -> list[Value]:
        """Return the values of different keys, those that are missing computed together."""
        found: dict[Key, Value] = {}
        with self._lock:
            for key in keys:
                if (named := (self._name, key)) in self._kept:
                    found[key] = self._kept[named]
                    self._kept.move_to_end(named)
        if missing := [key for key in keys if key not in found]:
            found.update(zip(missing, make(missing)))
            with self._lock:
                self._kept.update({(self._name, key): found[key] for key in missing})
                self._changed.update((self._name, key) for key in missing)
                self._trim()
        return [found[key] for key in keys]

    def _refresh(self, *keys: tuple[object, Hashable]) -> None:
        """Put keys last, in this order: those before them are forgotten first."""
        for key in keys:
            if key in self._kept:
                self._kept.move_to_end(key)

    def _trim(self) -> None:
        """Count the bytes of the values that were made since, and of those that grow; forget what is too much."""
        for key in self._changed:
            before, self._sizes[key] = self._sizes.get(key, 0), ENTRY_BYTES + n_bytes_of(self._kept[key])
            self._total += self._sizes[key] - before
        self._changed = {key for key in self._changed if getattr(self._kept[key], "grows", False)}
        self._uses, budget = 0, self.budget - n_bytes_of(self.beside)
        if names := [self._gone.pop() for _ in range(len(self._gone))]:
            for key in [key for key in self._kept if key[0] in names]:
                self._forget(key)
        while len(self._kept) > 1 and self._total > budget:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: tuple[object, Hashable]) -> None:
        del self._kept[key]
        self._total -= self._sizes.pop(key)
        self._changed.discard(key)
        self.n_forgotten += 1

    @property
    def n_bytes(self) -> int:
        """Bytes of all values, and of what is beside them."""
        with self._lock:
            self._trim()
            return self._total + n_bytes_of(self.beside)
