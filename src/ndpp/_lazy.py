"""Names that are imported when they are first needed.

A module that must not import another one, because the other imports it or because it is heavy, names what it needs as
"package.module:attribute" and loads it on first use. These names are constants, so ``git grep '"ndpp\\..*:'`` lists them all.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def load(name: str) -> Any:
    """Return the attribute that "module:attribute" names; the module is imported now if it was not before.

    Examples
    --------
    >>> load("math:sqrt")(9.0)
    3.0
    """
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
