"""The model of the service: a prepared law with a name, read from a file and replaced when the file is."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ndpp
from ndpp._stop import stopping
from ndpp._types import FloatArray
from ndpp._validation import by_name
from ndpp.answers import ItemTable, Prepared, changes, complete, recommend
from ndpp.answers.heard import Heard
from ndpp.answers.prepared import N_ADDED
from ndpp.answers.records import Changes
from ndpp.baskets.groups import read_factors, read_groups
from ndpp.customers import Customers
from ndpp.errors import InvalidInputError, NDPPError
from ndpp.inference import PerCategory
from ndpp.laws.files import load_header, load_metadata
from ndpp.laws.header import INDEX
from ndpp.laws.law import Law
from ndpp.serve.operations import event
from ndpp.serve.work import UNDER_WAY

SIZED_AT_ONCE = 64
"""Components of a mixture up to which its size distribution is awaited."""
SIZED_ITEMS = 10_000
"""Most items of a mixture for which the sizes of the baskets that contain them are computed, the most popular ones."""
WARM_SECONDS = 5.0
"""How long a model may take to warm up; what is slower than that is compiled and prepared when it is asked for."""
STEPS = "reading the files", "preparing draws", "preparing recommendations", "counting how large baskets are"
"""What is done before a model can be asked."""
ALONE = "this server compares its model with no earlier one; start it with `ndpp serve MODEL --since OLD`"
"""What is said of changes then."""
WATCH_SECONDS = 0.25
"""Time between two looks at the file."""


class Settings(NamedTuple):
    """What to serve, and where. Replaced files are read again: a model with its tables, or the customers alone."""

    path: str | Path
    host: str = "127.0.0.1"
    """The name by which clients may reach a server without a token, in addition to addresses and ``localhost``."""
    port: int = 8000
    token_file: str | Path | None = None
    """Holds a token that every request but those for the health of the server must carry."""
    workers: int = 1
    seconds: float = 10.0
    """Most seconds of work for one answer; for a batch, for each basket."""
    category_of: str | Path | None = None
    table: str | Path | None = None
    boost: str | Path | None = None
    customers: str | Path | None = None
    threads: int = 2
    """Requests that one of the workers computes at a time."""
    waiting: int = 64
    """Requests that may wait for a thread; further ones are turned away with status 503."""
    more: Sequence[str | Path] = ()
    """Further models, at /models/NAME/ as the first one is; the tables are for all of them."""
    since: str | Path | None = None
    """An earlier version of the first model, to say what has changed."""
    pictures: str | Path | None = None
    """A folder of pictures of the items, which is served at /pictures."""

    def by_name(self) -> dict[str, Settings]:
        """Return the settings of each model by its name, that of its file without the suffix; the first is what is served at /."""
        paths = [Path(path) for path in (self.path, *self.more)]
        names = list(map(_name_of, paths))
        if again := {name for name in names if names.count(name) > 1}:
            raise InvalidInputError(
                f"two models are called {min(again)!r}; their names, those of the files, are in their addresses"
            )
        if self.more and self.customers is not None:
            raise InvalidInputError(
                f"is about one model, and {len(names)} were named; serve the model of these customers by itself",
                argument="customers",
            )
        others = {name: self._replace(path=path, more=(), since=None) for name, path in zip(names[1:], paths[1:])}
        return {names[0]: self._replace(more=()), **others}

    @property
    def files(self) -> list[Path]:
        """What is read, the customers last."""
        found = (self.path, self.since, self.category_of, self.table, self.boost, self.customers)
        return [Path(path) for path in found if path is not None]


def _name_of(path: Path) -> str:
    return path.stem if path.is_file() else path.name


def stamp(path: Path) -> tuple[int, ...]:
    """Return what tells one version of a model file, or of the index of a folder, from another."""
    found = os.stat(path / INDEX if path.is_dir() else path)
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


class Served(Prepared):
    """A prepared law, its name, and a checksum that tells versions apart. It never changes, other than its customers; a replaced file
    becomes another one.
    """

    sizes: FloatArray | None = None

    def __init__(
        self,
        law: Law,
        name: str,
        checksum: str = "",
        category_of: Sequence[str | None] | None = None,
        table: ItemTable | None = None,
        boost: Mapping[int, float] | None = None,
        customers: Customers | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        earlier: Callable[[], Prepared] | None = None,
        tell: Callable[[int], None] = lambda step: None,
    ) -> None:
        super().__init__(law, table, boost, customers, metadata=metadata)
        self.name, self.checksum, self.category_of = name, checksum, category_of
        self._changes: Changes | InvalidInputError | None = InvalidInputError(ALONE) if earlier is None else None
        self._sized: dict[int, FloatArray] = {}
        tell(1)
        self._warm(int(self.index.popular[0]))
        tell(2)
        recommend(self, [])  # prepares the ranking
        tell(3)
        if law.sizes_at_hand or len(law.weights) <= SIZED_AT_ONCE:
            self.sizes = law.size_distribution()
        if law.sizes_at_hand:
            self._count_sizes()
        with contextlib.suppress(OSError, TypeError, AttributeError):  # of glibc: pages that only loading needed
            ctypes.CDLL(None).malloc_trim(0)
        threading.Thread(target=self._prepare_rest, args=(earlier,), name="ndpp-prepare", daemon=True).start()

    def _warm(self, item: int) -> None:
        """Draw a little, so that the first request does not wait for the compiler. The item is one that occurs."""
        end = time.monotonic() + WARM_SECONDS

        def check() -> None:
            if time.monotonic() > end:
                raise TimeoutError

        for size in (None, 1 + N_ADDED):
            # What cannot be drawn, or not soon, is told to those who ask for it.
            with contextlib.suppress(NDPPError, TimeoutError), stopping(check):
                complete(self, [item], size=size, seed=0)

    def _prepare_rest(self, earlier: Callable[[], Prepared] | None) -> None:
        """Compute what has changed since an earlier model, and what takes minutes for hundreds of components: draws from them, their
        sizes, and those of baskets with each item.

        Until then ``sizes`` is None, and :meth:`sizes_with` returns None. Requests come first.
        """
        try:
            with stopping(UNDER_WAY.give_way):
                if earlier is not None:
                    self._compare(earlier)
                if len(self.law.weights) == 1:
                    return
                if len(self.law.weights) > SIZED_AT_ONCE:
                    Heard.of(self).prepare_components()
                if self.sizes is None:
                    self.sizes = self.law.size_distribution()
                if not self._sized:
                    self._count_sizes()
        except (NDPPError, np.linalg.LinAlgError) as error:  # the rest of the model can be served
            event("no size distribution", level=logging.ERROR, reason=str(error))

    def _count_sizes(self) -> None:
        items = np.sort(self.index.popular[:SIZED_ITEMS])
        self._sized = dict(zip(items.tolist(), self.law.sizes_with(items).astype(np.float32)))

    def _compare(self, earlier: Callable[[], Prepared]) -> None:
        try:
            self._changes = changes(self, earlier())
        except (NDPPError, OSError) as error:
            unknown = InvalidInputError(f"what has changed is not known: {error}")
            self._changes = error if isinstance(error, InvalidInputError) else unknown
            event("no changes", level=logging.ERROR, reason=str(error))

    @property
    def changes(self) -> Changes:
        """What has changed since the earlier model; raises :class:`NotReadyError` as long as that is being computed."""
        if self._changes is None:
            raise NotReadyError("what has changed is being computed; try again in a second")
        if isinstance(self._changes, InvalidInputError):
            raise self._changes.with_traceback(None)
        return self._changes

    def sizes_with(self, item: int) -> FloatArray | None:
        """Return P(|S| = k) of the baskets with an item; of a mixture if it is among the most popular items, once it is known."""
        return self._sized.get(item) if len(self.law.weights) > 1 else super().sizes_with(item)

    def limit(
        self, category_of: Mapping[str, str] | None, most: int | None, only: list[str] | None
    ) -> PerCategory | None:
        """Return the limit by category that a request asks for: by its own table or, without one, by that of the server."""
        if most is None and only is None:
            if category_of is not None:
                raise InvalidInputError("goes with per_category or categories", argument="category_of")
            return None
        if category_of is not None:
            return PerCategory(by_name(category_of, self.law.labels, self.law.n_items, "category_of")[0], most, only)
        if self.category_of is None:
            raise InvalidInputError(
                "needs a table of categories, and this server has none. Start it with `ndpp serve --category-of FILE`, "
                "or send the category of each item as category_of",
                argument="categories" if most is None else "per_category",
            )
        return PerCategory(self.category_of, most, only)

    @classmethod
    def load(cls, settings: Settings, tell: Callable[[int], None] = lambda step: None) -> Served:
        """Read the files; ``tell`` is told which of ``STEPS`` begins."""
        path, groups, table, boost = Path(settings.path), settings.category_of, settings.table, settings.boost
        law = ndpp.load(path)
        category_of = None if groups is None else read_groups(groups, "category", law.n_items, law.labels)
        items = None if table is None else ItemTable.read(table, law)
        # A shop sells more than the model knows: such items are left out, and the log says so.
        factors = None if boost is None else read_factors(boost, law.n_items, law.labels, unknown="skip")
        people = None if settings.customers is None else Customers.load(settings.customers, law)
        name, checksum = _name_of(path), f"{load_header(path).crc32:08x}"
        earlier = None if settings.since is None else partial(_earlier, settings.since, table)
        return cls(
            law, name, checksum, category_of, items, factors, people, metadata=load_metadata(path), earlier=earlier, tell=tell
        )  # fmt: skip

    def meet(self, customers: str | Path) -> None:
        """Read a file of customers in place of those known so far; nothing that was made for one of these is kept."""
        found = Customers.load(customers, self.law)
        with self._lock:
            self.customers = found
            self._of_customers.clear()


def _earlier(path: str | Path, table: str | Path | None) -> Prepared:
    law = ndpp.load(path)
    return Prepared(law, None if table is None else ItemTable.read(table, law), metadata=load_metadata(path))


class NotReadyError(Exception):
    """No model is loaded yet."""


class Holder:
    """Holds the current model of a file, or of a folder of shards, and its tables, if there are any, once it is loaded.

    A replaced file is loaded beside it and takes its place in one step; requests under way keep the old one.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._stamp: list[tuple[int, ...]] | None = None
        self._current: Served | None = None
        self._tell(0)

    def _tell(self, step: int) -> None:
        """Say what is being done, to those who ask before there is a model."""
        self._reason = (
            f"the model is being loaded, step {step + 1} of {len(STEPS)}: {STEPS[step]}; try again in a second"
        )

    @property
    def current(self) -> Served:
        """The model; raises :class:`NotReadyError` as long as there is none."""
        if self._current is None:
            raise NotReadyError(self._reason)
        return self._current

    async def watch(self, changed: Callable[[Exception | None], None]) -> None:
        """Load the files, and each version that replaces one, until cancelled; ``changed`` is told why one was refused, or None."""
        while True:
            with contextlib.suppress(OSError):  # between two versions there may be none; the old one goes on
                found = [stamp(path) for path in self.settings.files]
                if found != self._stamp:
                    before, self._stamp = self._stamp, found  # before loading: what is written meanwhile is noticed
                    same = self._current is not None and before is not None and before[:-1] == found[:-1]
                    await self._load(changed, self.settings.customers if same else None)
            await asyncio.sleep(WATCH_SECONDS)

    async def _load(self, changed: Callable[[Exception | None], None], customers: str | Path | None) -> None:
        """Load all files, or the customers alone, if only they are new."""
        refused: Exception | None = None
        what, path = ("model", self.settings.path) if customers is None else ("customers", customers)
        first = self._current is None
        try:
            if customers is not None:
                await asyncio.to_thread(self.current.meet, customers)
            else:
                self._current = await asyncio.to_thread(Served.load, self.settings, self._tell)
        except Exception as error:  # whatever is wrong with a file, the next one may be good
            surprise = None if isinstance(error, NDPPError | OSError) else error
            refused, why = error, str(error) if surprise is None else "the log says why"
            self._reason = f"the {what} cannot be loaded: {why}"
            event(f"{what} refused", level=logging.ERROR, error=surprise, path=str(path), reason=str(error))
        else:
            event(f"{what} loaded" if first else f"{what} replaced", path=str(path), checksum=self.current.checksum)
        changed(refused)
