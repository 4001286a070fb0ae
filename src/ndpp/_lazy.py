"""Old names of modules and functions, which keep working with a DeprecationWarning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any


def renamed(
    module: str, gone: Mapping[str, str] = MappingProxyType({}), /, *, moved_to: str = "", **names: str
) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module some of whose names have changed, given as old="new" or old="package.module.new".

    Old names keep working, with a DeprecationWarning, as do all others if the module itself has moved. ``gone`` says what to use in
    place of names that nothing replaces one to one.
    """

    def find(name: str) -> Any:
        if name in gone:
            raise AttributeError(f"{module}.{name} is gone; use {gone[name]}")
        new = names.get(name, f"{moved_to}.{name}" if moved_to else "")
        place, _, attribute = (new if "." in new else f"{module}.{new}").rpartition(".")
        if not attribute or not hasattr(import_module(place), attribute):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is now {place}.{attribute}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(place), attribute)

    return find
