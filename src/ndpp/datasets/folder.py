"""Prepared baskets in a folder: NAME.baskets.gz, a line of item ids for each, and NAME.items.gz, line i naming item i.

The environment variable NDPP_DATA names the folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from ndpp.baskets import Baskets
from ndpp.baskets.files import read_lines
from ndpp.datasets._tables import distinct
from ndpp.errors import DataNotFoundError

VARIABLE = "NDPP_DATA"


def load_baskets(name: str, *, folder: str | os.PathLike[str] | None = None) -> Baskets:
    """Return the baskets ``name`` of a folder, with names of the items where there is a file of them.

    Parameters
    ----------
    name : str
        The file is ``name``.baskets.gz, or .baskets.
    folder : path, optional
        The folder; by default the one that the environment variable ``NDPP_DATA`` names.

    Raises
    ------
    DataNotFoundError
        There is no such folder or no such file; it says which names there are.
    """
    if folder is None and not (folder := os.environ.get(VARIABLE)):
        raise DataNotFoundError(
            f"no folder to look for {name}.baskets.gz in; set the environment variable {VARIABLE}, or pass folder="
        )
    where = Path(folder)
    if not where.is_dir():
        raise DataNotFoundError(
            f"no folder {str(where)!r} (from {VARIABLE} or folder=) to look for {name}.baskets.gz in"
        )
    found = _first(where, f"{name}.baskets")
    if found is None:
        there = ", ".join(sorted({path.name.split(".baskets")[0] for path in where.glob("*.baskets*")})) or "none"
        raise DataNotFoundError(f"{str(where)!r} has no {name}.baskets.gz; the baskets there: {there}")
    items = _first(where, f"{name}.items")
    labels = None if items is None else distinct(read_lines(items))
    return Baskets.read(found, format="text", labels=labels, as_labels=False)


def _first(folder: Path, stem: str) -> Path | None:
    return next((folder / name for name in (f"{stem}.gz", stem) if (folder / name).is_file()), None)
