"""Old names of modules and functions, which keep working with a DeprecationWarning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any


def moved(old: str, new: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a module that has moved: it looks names up in the new module, with a warning."""

    place = f"ndpp or {new}" if new.startswith("ndpp.laws.") else new

    def find(name: str) -> Any:
        try:
            found = getattr(import_module(new), name)
        except AttributeError:
            raise AttributeError(f"module {old!r} has no attribute {name!r}") from None
        warnings.warn(f"{old} has moved; import {name} from {place}", DeprecationWarning, stacklevel=2)
        return found

    return find


def renamed(module: str, gone: Mapping[str, str] = MappingProxyType({}), /, **names: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module some of whose names have changed, given as old="new" or old="package.module.new".

    Old names keep working, with a DeprecationWarning. ``gone`` says what to use in place of names that nothing replaces one to one.
    """

    def find(name: str) -> Any:
        if name in gone:
            raise AttributeError(f"{module}.{name} is gone; use {gone[name]}")
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new = names[name] if "." in names[name] else f"{module}.{names[name]}"
        warnings.warn(f"{module}.{name} is now {new}", DeprecationWarning, stacklevel=2)
        place, _, attribute = new.rpartition(".")
        return getattr(import_module(place), attribute)

    return find
