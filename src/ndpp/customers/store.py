"""What is kept of each customer: decayed counts of items, in memory or in a file that is read where it is needed.

Counts are those at the time of the customer's last order and are never touched until the next one: decay multiplies all counts of a
customer and the number of baskets alike, so that a query applies it by one factor. An order is counted once: one that is older than the
customer's last counts as known, and one of the same time, or without times one of the last few, is recognised by its id in a 64-bit Bloom
filter (8 bytes per customer; a new order is taken for a known one once in some 10,000 such cases).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from scipy import sparse

from ndpp._atomic import one_writer, replacing
from ndpp._types import AnyArray, BoolArray, FloatArray, IntArray, TimeArray, WordArray
from ndpp.baskets import Baskets
from ndpp.baskets.orders import Orders
from ndpp.errors import InvalidInputError, ModelFileError
from ndpp.laws.header import read_raw

IdArray: TypeAlias = NDArray[np.bytes_]
SingleArray: TypeAlias = NDArray[np.float32]
FORMAT = "ndpp-customers"
VERSION = 1
MAX_ID_BYTES = 256
"""Longest id of a customer."""
N_REMEMBERED = 4
"""Orders without times that are recognised if they come again, the last ones of each customer."""
BLOCK = 1024
"""Customers that are in memory at a time while a file is written, and orders whose missions are."""
NEVER = np.iinfo(np.int64).min
WEEK = 7 * 86400
MARK_BITS = 4
"""Bits of an order in the Bloom filter."""
CODES = {"U8": np.uint8, "I32": np.int32, "F32": np.float32, "I64": np.int64, "U64": np.uint64, "F64": np.float64}


def encoded(ids: Sequence[object] | WordArray) -> IdArray:
    """Return customers' ids as bytes; raise for those that a file cannot hold."""
    words = [str(word).encode() for word in np.asarray(ids, object).ravel().tolist()]
    wrong = next((word for word in words if not 0 < len(word) <= MAX_ID_BYTES or word.endswith(b"\0")), None)
    if wrong is not None:
        raise InvalidInputError(f"a customer's id must have 1 to {MAX_ID_BYTES} bytes; got one of {len(wrong)}")
    return np.array(words, bytes) if words else np.empty(0, "S1")


class Trips(NamedTuple):
    """Orders of the customers ``who``, 0, 1, …, one customer's after another's, and each's in order of time."""

    who: IntArray
    baskets: Baskets
    times: TimeArray | None

    @classmethod
    def of(cls, orders: Orders) -> tuple[IdArray, Trips]:
        """Return the ids of the customers, ascending, and their orders."""
        ids, who = np.unique(encoded([] if orders.customers is None else orders.customers), return_inverse=True)
        order = np.argsort(who, kind="stable") if orders.times is None else np.lexsort((orders.times, who))
        return ids, cls(who, orders.baskets, orders.times).take(order)

    def take(self, key: IntArray) -> Trips:
        """Return some of the orders."""
        return Trips(self.who[key], self.baskets[key], None if self.times is None else self.times[key])

    def seconds(self) -> IntArray:
        """Return the times in seconds; ``NEVER`` if they are not known."""
        return np.full(len(self.who), NEVER) if self.times is None else self.times.astype(np.int64)


class CustomerCounts(NamedTuple):
    """The customers ``ids``, ascending: customer i has ``counts[indptr[i]:indptr[i + 1]]`` of ``items`` in ``mass[i]`` baskets.

    ``last`` is the time of the last order, in seconds, ``seen`` the Bloom filter, and ``missions`` the sum of the posteriors of the
    components, if they are kept. A customer without mass is forgotten.
    """

    ids: IdArray
    indptr: IntArray
    items: AnyArray
    counts: SingleArray
    mass: SingleArray
    last: IntArray
    seen: NDArray[np.uint64]
    missions: SingleArray

    @classmethod
    def blank(cls, ids: IdArray, n_missions: int = 0) -> CustomerCounts:
        """Return customers who have not bought anything."""
        n = len(ids)
        return cls(
            ids, np.zeros(n + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), np.zeros(n, np.float32),
            np.full(n, NEVER), np.zeros(n, np.uint64), np.zeros((n, n_missions), np.float32),
        )  # fmt: skip

    def find(self, ids: IdArray) -> IntArray:
        """Return the places of customers, −1 for those that are not here. Only the ids that a binary search meets are read."""
        if not len(self.ids) or not len(ids):
            return np.full(len(ids), -1)
        short = ids.astype(self.ids.dtype)
        at = np.minimum(np.searchsorted(self.ids, short), len(self.ids) - 1)
        return np.where((self.ids[at] == short) & (np.char.str_len(ids) <= self.ids.itemsize), at, -1)

    def rows(self, at: IntArray) -> CustomerCounts:
        """Return some customers, in this order, −1 for one without orders; what was in a file is in memory."""
        known = at >= 0
        safe = np.where(known, at, 0)
        if not len(self.ids):
            return CustomerCounts.blank(np.empty(len(at), self.ids.dtype), self.missions.shape[1])
        start, sizes = self.indptr[safe], np.where(known, self.indptr[safe + 1] - self.indptr[safe], 0)
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        where = np.arange(indptr[-1]) + np.repeat(start - indptr[:-1], sizes)
        return CustomerCounts(
            np.asarray(self.ids[safe]), indptr, self.items[where], self.counts[where],
            mass=np.where(known, self.mass[safe], np.float32(0)),
            last=np.where(known, self.last[safe], NEVER),
            seen=np.where(known, self.seen[safe], np.uint64(0)),
            missions=self.missions[safe] * known[:, None],
        )  # fmt: skip

    def placed(self, place: IntArray) -> CustomerCounts:
        """Return the store with the item ``place[a]`` instead of a, −1 for items that are no more."""
        return self._replace(items=np.where(self.items < 0, -1, place[self.items]).astype(np.int32))

    @property
    def owners(self) -> IntArray:
        """The customer of each count."""
        return np.repeat(np.arange(len(self.mass)), np.diff(self.indptr))


@dataclass(frozen=True)
class Layers:
    """Customers as they were loaded or fitted, and over them those who have changed since."""

    base: CustomerCounts
    changed: CustomerCounts
    place: IntArray | None = None
    """The item that each item of the base is now, −1 for none."""

    def find(self, ids: IdArray) -> IntArray:
        """Return the places of customers, those of changed ones after all others, −1 for customers that are not here."""
        mine = self.changed.find(ids)
        return np.where(mine >= 0, len(self.base.ids) + mine, self.base.find(ids))

    def rows(self, at: IntArray) -> CustomerCounts:
        """Return the customers at these places, in memory."""
        is_changed = at >= len(self.base.ids)
        parts = [self.base.rows(at[~is_changed]), self.changed.rows(at[is_changed] - len(self.base.ids))]
        if self.place is not None:
            parts[0] = parts[0].placed(self.place)
        width, columns = max(part.ids.itemsize for part in parts), max(part.missions.shape[1] for part in parts)
        parts = [
            part._replace(ids=part.ids.astype(f"S{width}"), missions=np.resize(part.missions, (len(part.ids), columns)))
            for part in parts
        ]
        joined = [np.concatenate(pair) for pair in zip(*parts)]
        joined[1] = np.concatenate([parts[0].indptr, parts[0].indptr[-1] + parts[1].indptr[1:]])
        return CustomerCounts(*joined).rows(np.argsort(np.argsort(is_changed, kind="stable")))

    def placed(self, place: IntArray) -> Layers:
        """Return the layers with the item ``place[a]`` instead of a, none if that is −1."""
        first = place if self.place is None else np.where(self.place < 0, -1, place[self.place])
        return Layers(self.base, self.changed.placed(place), first)

    def without_missions(self) -> Layers:
        """Return the layers without the missions of customers."""
        base, changed = (part._replace(missions=part.missions[:, :0]) for part in (self.base, self.changed))
        return replace(self, base=base, changed=changed)

    def with_changed(self, store: CustomerCounts) -> Layers:
        """Return the layers with these customers, ascending, as they are now."""
        kept = np.flatnonzero(store.find(self.changed.ids) < 0)
        both = Layers(self.changed.rows(kept), store)
        order = np.argsort(np.concatenate([self.changed.ids[kept], store.ids]), kind="stable")
        return replace(self, changed=both.rows(order))

    def all(self) -> IntArray:
        """Return the places of all customers, by id."""
        replaced = self.base.find(self.changed.ids)
        old = np.delete(np.arange(len(self.base.ids)), replaced[replaced >= 0])
        new = np.flatnonzero(self.changed.mass > 0)
        ids = np.concatenate([self.base.ids[old] if len(replaced) else self.base.ids, self.changed.ids[new]])
        return np.concatenate([old, len(self.base.ids) + new])[np.argsort(ids, kind="stable")]

    def __len__(self) -> int:
        n_replaced = int(np.sum(self.base.find(self.changed.ids) >= 0))
        return len(self.base.ids) - n_replaced + int(np.sum(self.changed.mass > 0))


def added(
    store: CustomerCounts, trips: Trips, decay: float, by_time: bool, counted: FloatArray, posterior: Callable[[Baskets], FloatArray] | None
) -> CustomerCounts:  # fmt: skip
    """Return the store after orders of each of its customers, none of which is in it yet.

    ``counted`` is for how many baskets each order counts when it is new; ``posterior`` returns P(component | basket), if missions are kept.
    """
    who, times, lines = trips.who, trips.seconds(), np.repeat(np.arange(len(trips.who)), trips.baskets.sizes)
    n, n_new = len(store.mass), np.bincount(who, minlength=len(store.mass))
    left = np.cumsum(n_new)[who] - 1 - np.arange(len(who))  # orders of the same customer that follow
    last = store.last.copy()
    np.maximum.at(last, who, times)
    since = last - np.where(store.last == NEVER, last, store.last)
    ages, passed = ((last[who] - times) / WEEK, since / WEEK) if by_time else (left, n_new)
    weights, fade = counted * decay**ages, np.asarray(decay**passed, np.float64)
    n_items = max(trips.baskets.n_items, int(store.items.max(initial=-1)) + 1)
    keys = np.concatenate([store.owners * n_items + store.items, who[lines] * n_items + trips.baskets.indices])
    pairs, place = np.unique(keys, return_inverse=True)
    counts = np.bincount(place, np.concatenate([store.counts * fade[store.owners], weights[lines]]), len(pairs))
    missions = np.zeros((n, 0))
    if posterior is not None:
        missions = store.missions * fade[:, None]
        for start in range(0, len(who), BLOCK):
            part = slice(start, start + BLOCK)
            rows = posterior(trips.baskets[part])
            missions = missions if missions.shape[1] else np.zeros((n, rows.shape[1]))
            of, at = np.unique(who[part], return_inverse=True)
            missions[of] += sparse.csr_array((weights[part], (at, np.arange(len(at)))), shape=(len(of), len(at))) @ rows
    recent = left < N_REMEMBERED if trips.times is None else times == last[who]
    seen = np.where((last > store.last) | (trips.times is None), np.uint64(0), store.seen)
    np.bitwise_or.at(seen, who[recent], marks(trips.baskets[recent]))
    return CustomerCounts(
        store.ids, np.searchsorted(pairs, np.arange(n + 1) * n_items), (pairs % n_items).astype(np.int32),
        counts.astype(np.float32), (store.mass * fade + np.bincount(who, weights, n)).astype(np.float32), last, seen,
        missions.astype(np.float32),
    )  # fmt: skip


def marks(baskets: Baskets) -> NDArray[np.uint64]:
    """Return the bits of each order in a Bloom filter; none for orders without ids."""
    out = np.zeros(len(baskets), np.uint64)
    for i, word in enumerate(baskets.basket_ids or ()):
        for byte in hashlib.blake2b(str(word).encode(), digest_size=MARK_BITS).digest():
            out[i] |= np.uint64(1) << np.uint64(byte % 64)
    return out


def is_counted(store: CustomerCounts, trips: Trips) -> BoolArray:
    """Return which orders are counted already."""
    found, seen = marks(trips.baskets), store.seen[trips.who]
    known, times, last = (found > 0) & ((seen & found) == found), trips.seconds(), store.last[trips.who]
    return np.asarray(known) if trips.times is None else (times < last) | ((times == last) & (known | (found == 0)))


# -- files ----------------------------------------------------------------------------------------------------------------------


def write(path: str | os.PathLike[str], layers: Layers, metadata: Mapping[str, str]) -> None:
    """Write all customers to a safetensors file, some of them in memory at a time."""
    at = layers.all()
    sizes = np.concatenate([np.diff(layers.base.indptr), np.diff(layers.changed.indptr)])[at]
    n, total, nobody = len(at), int(sizes.sum()), layers.rows(at[:0])
    width, columns = nobody.ids.itemsize, nobody.missions.shape[1]
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "indptr": ("I64", (n + 1,)), "last": ("I64", (n,)), "seen": ("U64", (n,)), "items": ("I32", (total,)),
        "counts": ("F32", (total,)), "mass": ("F32", (n,)), "missions": ("F32", (n, columns)),
        "ids": ("U8", (n, width)),
    }  # fmt: skip
    ends = np.cumsum([0, *(int(np.prod(shape)) * np.dtype(CODES[code]).itemsize for code, shape in shapes.values())])
    header: dict[str, Any] = {"__metadata__": {**metadata, "format": FORMAT, "format_version": str(VERSION)}}
    for (name, (code, shape)), start, end in zip(shapes.items(), ends.tolist(), ends[1:].tolist()):
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with one_writer(path), replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        cursors = dict(zip(shapes, (ends[:-1] + file.tell()).tolist()))

        def put(name: str, values: NDArray[Any]) -> None:
            file.seek(cursors[name])
            cursors[name] += file.write(np.ascontiguousarray(values).tobytes())

        put("indptr", np.concatenate([[0], np.cumsum(sizes)]))
        for start in range(0, n, BLOCK):
            part = layers.rows(at[start : start + BLOCK])
            for name, values in part._replace(ids=part.ids.astype(f"S{width}"))._asdict().items():
                if name != "indptr":
                    put(name, values)


def read(path: str | os.PathLike[str]) -> tuple[CustomerCounts, dict[str, str]]:
    """Return the customers of a file, which is read where they are needed, and what else its header says."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no file of customers at {os.fspath(path)!r}")
    try:
        with safe_open(path, framework="np"):  # checks types, shapes and places
            header, start = read_raw(path)
    except (SafetensorError, InvalidInputError) as reason:
        raise bad(path, f"it is truncated, corrupt or of another kind ({reason}). Copy it again") from None
    about = header.pop("__metadata__", {})
    if about.get("format") != FORMAT:
        raise bad(path, "it does not hold customers; `Customers.save` writes files that do")
    if about.get("format_version") != str(VERSION):
        raise bad(path, f"it has version {about.get('format_version')}, and this library reads {VERSION}; update ndpp")
    if set(header) != set(wanted := CustomerCounts._fields):
        raise bad(path, f"expected the arrays {', '.join(wanted)}; it holds {', '.join(sorted(header))}")
    found = {}
    for name, entry in header.items():
        shape, dtype = tuple(entry["shape"]), CODES.get(entry["dtype"], np.uint8)
        place = start + entry["data_offsets"][0]
        found[name] = np.memmap(path, dtype, "r", place, shape) if np.prod(shape) else np.empty(shape, dtype)
    width = found["ids"].shape[-1]
    found["ids"] = found["ids"].view(f"S{width}").ravel() if width else np.empty(0, "S1")
    store, n = CustomerCounts(**{name: np.asarray(values) for name, values in found.items()}), len(found["ids"])
    lengths = {len(store.indptr) - 1, len(store.mass), len(store.last), len(store.seen), len(store.missions)}
    n_counts = {len(store.items), len(store.counts), int(store.indptr[-1])} if len(store.indptr) else set()
    if lengths != {n} or len(n_counts) != 1 or store.indptr[0] != 0:
        raise bad(path, "its arrays do not fit together; it is corrupt. Copy it again")
    return store, about


def bad(path: str | os.PathLike[str], why: str) -> ModelFileError:
    """Return the error for a file that does not hold customers, or a damaged one."""
    return ModelFileError(f"cannot load {os.fspath(path)!r}: {why}")
