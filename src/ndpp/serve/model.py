"""A model as the service knows it: the law, the names of its items, and what many answers share, computed once."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ndpp
from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_items
from ndpp.errors import InvalidInputError, NDPPError, UnknownItemError, UnknownLabelError
from ndpp.explain import Mission, missions
from ndpp.laws.files import INDEX, load_header
from ndpp.serve.atlas import Atlas
from ndpp.serve.draws import Drawer
from ndpp.serve.labels import LabelIndex
from ndpp.serve.logs import event
from ndpp.serve.scores import Scorer

Item = int | str
SIZED_AT_ONCE = 64
"""Components of a mixture up to which its size distribution is awaited."""
MISSION_ITEMS = 12
"""Items by which a mission is described."""
WATCH_SECONDS = 0.25
"""Time between two looks at the file."""


class Stamp(NamedTuple):
    """What tells one version of a file from another."""

    device: int
    inode: int
    modified: int
    size: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """Return the stamp of a model file, or of the index of a folder."""
        found = os.stat(path / INDEX if path.is_dir() else path)
        return cls(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)


class Served:
    """A law with names. It never changes; a replaced file becomes another one.

    Parameters
    ----------
    law : LowRankKernel or another law
        What ``ndpp.load`` returns.
    name : str
        What people call the model.
    checksum : str
        Tells versions of the model apart.
    """

    def __init__(self, law: Any, name: str, checksum: str = "") -> None:
        self.law, self.name, self.checksum = law, name, checksum
        self.n_items: int = law.n_items
        self.labels: tuple[str, ...] | None = law.labels
        self._id_of = {label: i for i, label in enumerate(self.labels or ())}
        self._lock = threading.RLock()
        self.popularity: FloatArray = law.inclusion_probabilities()
        self.sizes: FloatArray | None = None
        self.scorer = Scorer.prepare(law)
        self.drawer = Drawer(law)
        names = [str(i) for i in range(self.n_items)] if self.labels is None else self.labels
        self.index = LabelIndex(names, self.popularity)
        self.drawer.warm(int(self.index.popular[0]))
        if len(getattr(law, "weights", ())) <= SIZED_AT_ONCE:
            self.sizes = np.asarray(law.size_distribution())
        else:
            threading.Thread(target=self._find_sizes, name="ndpp-sizes", daemon=True).start()

    def _find_sizes(self) -> None:
        """Compute the size distribution of hundreds of components, which takes a minute; until then ``sizes`` is None."""
        try:
            self.sizes = np.asarray(self.law.size_distribution())
        except NDPPError as error:  # the rest of the model can be served
            event("no size distribution", level=logging.ERROR, reason=str(error))

    @classmethod
    def load(cls, path: Path) -> Served:
        """Read a model file."""
        law = ndpp.load(path)
        return cls(law, path.stem if path.is_file() else path.name, f"{load_header(path).crc32:08x}")

    # -- names ---------------------------------------------------------------------------------------------------------------

    def ids(self, items: Sequence[Item], argument: str = "basket") -> IntArray:
        """Return ids of items: a string is a label, an integer an id. They must be distinct."""
        found = np.array([self._id(item, argument) for item in items], np.int64)
        return check_items(found, self.n_items, argument)

    def _id(self, item: Item, argument: str) -> int:
        if isinstance(item, int):
            if item >= self.n_items:
                raise UnknownItemError(item, self.n_items, argument=argument)
            return item
        if self.labels is None:
            raise InvalidInputError(
                f"holds {item!r}, and this model has no labels; name items by their ids, 0..{self.n_items - 1}",
                argument=argument,
            )
        if item not in self._id_of:
            raise self._unknown(item)
        return self._id_of[item]

    def _unknown(self, label: str) -> UnknownLabelError:
        """Return the library's error; similar labels come from the index, since comparing all of them would take a second."""
        error = UnknownLabelError(label, [(self.labels or ())[i] for i in self.index.search(label, 5).items])
        error.n_labels = self.n_items
        if not error.suggestions:
            error.args = (f"unknown label {label!r}; it is not among the {self.n_items} labels of the catalogue",)
        return error

    def names(self, items: Any, *, ids: bool = False) -> list[Item]:
        """Return items as labels, or as ids where these are wanted or there are no labels."""
        numbers: list[int] = np.asarray(items, np.int64).tolist()
        return list(numbers) if ids or self.labels is None else [self.labels[i] for i in numbers]

    # -- what many answers share ---------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int | None:
        """The rank of a kernel; a mixture has none."""
        return getattr(self.law, "rank", None)

    @cached_property
    def log_absent(self) -> float:
        """Σ log(1 − P(i)) over all items."""
        return float(np.log1p(-np.minimum(self.popularity, 1 - 1e-12)).sum())

    @property
    def missions(self) -> tuple[Mission, ...]:
        """The missions of a mixture, similar components merged, largest first; a kernel has none. Computed when first asked for."""
        with self._lock:
            return self._missions

    @cached_property
    def _missions(self) -> tuple[Mission, ...]:
        return missions(self.law, n_items=MISSION_ITEMS) if isinstance(self.law, ndpp.Mixture) else ()

    @property
    def atlas(self) -> Atlas:
        """Places of the most popular items in the plane. Computed when first asked for."""
        with self._lock:
            return self._atlas

    @cached_property
    def _atlas(self) -> Atlas:
        return Atlas.of(self.law, self.popularity)


class Holder:
    """Holds the current model of a file, or of a folder of shards.

    A replaced file is loaded beside it and takes its place in one step; requests under way keep the old one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp = Stamp.of(path)  # before loading: what is written meanwhile is noticed
        self.current = Served.load(path)

    async def watch(self, changed: Callable[[bool], None]) -> None:
        """Look at the file for ever; ``changed`` is told whether a new version was loaded, or refused."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                stamp = Stamp.of(self.path)
            except OSError:  # between two versions there may be none; the old one goes on
                continue
            if stamp == self._stamp:
                continue
            self._stamp = stamp
            try:
                self.current = await asyncio.to_thread(Served.load, self.path)
            except (NDPPError, OSError) as error:
                event("model refused", level=logging.ERROR, path=str(self.path), reason=str(error))
                changed(False)
            else:
                event("model replaced", path=str(self.path), checksum=self.current.checksum)
                changed(True)
