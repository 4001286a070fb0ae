"""What is kept of each customer: decayed counts of items, in memory or in a file that is read where it is needed.

Counts are those at the time of the customer's last order and are never touched until the next one: decay multiplies all counts of a
customer and the number of baskets alike, so that a query applies it by one factor. An order is counted once: one that is older than the
customer's last counts as known, and one of the same time is recognised by 64 bits of a hash of its id, its mark. Without times the marks of
all orders are kept. A new order is taken for one of k known ones with probability k / 2⁶⁴. Where an id is missing, or was not kept by
version 0.2, the mark is 0, and orders that cannot be told from it are refused.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import zlib
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
from ndpp.customers.others import Others
from ndpp.errors import InvalidInputError, ModelFileError
from ndpp.laws.header import NO_DIGEST, digest, read_raw, seal

IdArray: TypeAlias = NDArray[np.bytes_]
SingleArray: TypeAlias = NDArray[np.float32]
FORMAT = "ndpp-customers"
VERSION = 3
"""The newest version that this library reads; files of version 1 have no digest, those of version 3 have what others buy."""
CORRUPT = "it is corrupt. Copy it again from where it came"
TYPES = {"indptr": ("I64", 1), "last": ("I64", 1), "marks_indptr": ("I64", 1), "marks": ("U64", 1), "items": ("I32", 1),
         "counts": ("F32", 1), "mass": ("F32", 1), "missions": ("F32", 2), "ids": ("U8", 2)}  # fmt: skip
"""The arrays of a file: their types and numbers of dimensions."""
OF_OTHERS = {"others_items": ("F32", 2), "others_pulls": ("F32", 2), "others_shift": ("F32", 1)}
OLD_TYPES = {name: one for name, one in TYPES.items() if "marks" not in name} | {"seen": ("U64", 1)}
OLD_FIELDS = {"customers", "format", "format_version"}
"""The arrays and fields of files of version 1; ``seen`` is a filter that cannot tell all orders from each other, and is not used."""
MAX_ID_BYTES = 256
"""Longest id of a customer."""
BLOCK = 1024
"""Customers that are in memory at a time while a file is written, and orders whose missions are."""
CHECKED = 2**14
"""Entries of a file that are in memory at a time while it is checked."""
NEVER = np.iinfo(np.int64).min
WEEK = 7 * 86400
CODES = {"U8": np.uint8, "I32": np.int32, "F32": np.float32, "I64": np.int64, "U64": np.uint64}


def encoded(ids: Sequence[object] | WordArray) -> IdArray:
    """Return customers' ids as bytes; raise for those that a file cannot hold."""
    try:
        words = [str(word).encode() for word in np.asarray(ids, object).ravel().tolist()]
    except UnicodeEncodeError:
        problem = "a customer's id must be text in UTF-8; one has a character that is half of a pair (a surrogate)"
        raise InvalidInputError(problem) from None
    wrong = next((word for word in words if not 0 < len(word) <= MAX_ID_BYTES or word.endswith(b"\0")), None)
    if wrong is not None:
        raise InvalidInputError(f"a customer's id must have 1 to {MAX_ID_BYTES} bytes; got one of {len(wrong)}")
    return np.array(words, bytes) if words else np.empty(0, "S1")


class Trips(NamedTuple):
    """Orders of the customers ``who``, 0, 1, …, one customer's after another's, and each's in order of time."""

    who: IntArray
    baskets: Baskets
    times: TimeArray | None
    weights: FloatArray
    """How often each counts."""

    @classmethod
    def of(cls, orders: Orders) -> tuple[IdArray, Trips]:
        """Return the ids of the customers, ascending, and their orders."""
        ids, who = np.unique(encoded([] if orders.customers is None else orders.customers), return_inverse=True)
        order = np.argsort(who, kind="stable") if orders.times is None else np.lexsort((orders.times, who))
        weights = np.ones(len(who)) if orders.weights is None else orders.weights
        return ids, cls(who, orders.baskets, orders.times, weights).take(order)

    def take(self, key: IntArray) -> Trips:
        """Return some of the orders."""
        times = None if self.times is None else self.times[key]
        return Trips(self.who[key], self.baskets[key], times, self.weights[key])

    def seconds(self) -> IntArray:
        """Return the times in seconds; ``NEVER`` if they are not known."""
        return np.full(len(self.who), NEVER) if self.times is None else self.times.astype(np.int64)


class CustomerCounts(NamedTuple):
    """The customers ``ids``, ascending: customer i has ``counts[indptr[i]:indptr[i + 1]]`` of ``items`` in ``mass[i]`` baskets.

    ``last`` is the time of the last order, in seconds, and ``marks[marks_indptr[i]:marks_indptr[i + 1]]`` are those of all orders at this
    time. ``missions`` is the sum of the posteriors of the components, if they are kept. A customer without mass is forgotten.
    """

    ids: IdArray
    indptr: IntArray
    items: AnyArray
    counts: SingleArray
    mass: SingleArray
    last: IntArray
    marks_indptr: IntArray
    marks: NDArray[np.uint64]
    missions: SingleArray

    @classmethod
    def blank(cls, ids: IdArray, n_missions: int = 0) -> CustomerCounts:
        """Return customers who have not bought anything."""
        n = len(ids)
        return cls(
            ids, np.zeros(n + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), np.zeros(n, np.float32),
            np.full(n, NEVER), np.zeros(n + 1, np.int64), np.empty(0, np.uint64), np.zeros((n, n_missions), np.float32),
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

        def entries(ends: IntArray) -> tuple[IntArray, IntArray]:
            start, sizes = ends[safe], np.where(known, ends[safe + 1] - ends[safe], 0)
            indptr = np.concatenate([[0], np.cumsum(sizes)])
            return indptr, np.arange(indptr[-1]) + np.repeat(start - indptr[:-1], sizes)

        (indptr, where), (marks_indptr, marked) = entries(self.indptr), entries(self.marks_indptr)
        return CustomerCounts(
            np.asarray(self.ids[safe]), indptr, self.items[where], self.counts[where],
            mass=np.where(known, self.mass[safe], np.float32(0)),
            last=np.where(known, self.last[safe], NEVER),
            marks_indptr=marks_indptr, marks=self.marks[marked],
            missions=self.missions[safe] * known[:, None],
        )  # fmt: skip

    def placed(self, place: IntArray) -> CustomerCounts:
        """Return the store with the item ``place[a]`` instead of a, −1 for items that are no more."""
        return self._replace(items=np.where(self.items < 0, -1, place[self.items]).astype(np.int32))

    @property
    def owners(self) -> IntArray:
        """The customer of each count."""
        return np.repeat(np.arange(len(self.mass)), np.diff(self.indptr))

    @property
    def marked(self) -> IntArray:
        """The customer of each mark."""
        return np.repeat(np.arange(len(self.mass)), np.diff(self.marks_indptr))


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
        joined = CustomerCounts(*(np.concatenate(pair) for pair in zip(*parts)))
        ends = {
            name: np.concatenate([first, first[-1] + second[1:]])
            for name, first, second in zip(CustomerCounts._fields, *parts)
            if name.endswith("indptr")
        }
        return joined._replace(**ends).rows(np.argsort(np.argsort(is_changed, kind="stable")))

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
    store: CustomerCounts, trips: Trips, decay: float, by_time: bool, counted: FloatArray, posterior: Callable[[IntArray], AnyArray] | None
) -> CustomerCounts:  # fmt: skip
    """Return the store after orders of each of its customers, none of which is in it yet.

    ``counted`` is for how many baskets each order counts when it is new; ``posterior`` returns P(component | basket) of orders by their
    places in ``trips``, if missions are kept.
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
            rows = posterior(np.arange(len(who))[part])
            missions = missions if missions.shape[1] else np.zeros((n, rows.shape[1]))
            of, at = np.unique(who[part], return_inverse=True)
            missions[of] += sparse.csr_array((weights[part], (at, np.arange(len(at)))), shape=(len(of), len(at))) @ rows
    is_last, stays = times == last[who], (last == store.last)[store.marked]
    marked = np.concatenate([store.marked[stays], who[is_last]])
    order = np.argsort(marked, kind="stable")
    marks = np.concatenate([store.marks[stays], marks_of(trips.baskets[is_last])])[order]
    return CustomerCounts(
        store.ids, np.searchsorted(pairs, np.arange(n + 1) * n_items), (pairs % n_items).astype(np.int32),
        counts.astype(np.float32), (store.mass * fade + np.bincount(who, weights, n)).astype(np.float32), last,
        np.searchsorted(marked[order], np.arange(n + 1)), marks, missions.astype(np.float32),
    )  # fmt: skip


def marks_of(baskets: Baskets) -> NDArray[np.uint64]:
    """Return the mark of each order: 64 bits of a hash of its id, 0 for orders without ids."""
    if baskets.basket_ids is None:
        return np.zeros(len(baskets), np.uint64)
    digests = b"".join(
        hashlib.blake2b(str(one).encode("utf-8", "surrogatepass"), digest_size=8).digest() for one in baskets.basket_ids
    )
    return np.maximum(np.frombuffer(digests, "<u8").astype(np.uint64), np.uint64(1))


def is_counted(store: CustomerCounts, trips: Trips) -> BoolArray:
    """Return which orders are counted already, or occur before among these; raise if it cannot be told."""
    who, times, marks, n_known = trips.who, trips.seconds(), marks_of(trips.baskets), len(store.marks)
    last, has = store.last[who], store.mass[who] > 0
    if (has & ((last == NEVER) == (trips.times is not None))).any():
        raise InvalidInputError(
            f"must have {'no ' if trips.times is not None else ''}times, as earlier orders of the same customers: without, nothing tells "
            "which orders are counted already", argument="orders", advice="Fit the customers anew to change this",
        )  # fmt: skip
    codes = np.unique(np.concatenate([store.marks, marks]), return_inverse=True)[1]
    pairs = np.concatenate([store.marked, who]) * len(codes) + codes
    known = (times == last) & np.isin(pairs[n_known:], pairs[:n_known]) & (marks > 0)
    order = np.lexsort((codes[n_known:], times, who))
    same = (np.diff(pairs[n_known:][order]) == 0) & (np.diff(times[order]) == 0)
    known[order[1:][same]] |= marks[order[1:][same]] > 0
    unsure = has & (times == last) & ~known & ((marks == 0) | np.isin(who, store.marked[store.marks == 0]))
    if unsure.any():
        shared = "customer" if trips.times is None else "customer and time"
        raise InvalidInputError(
            f"must have ids, now and before: {np.sum(unsure):,} of {len(who):,} have the {shared} of a counted order, and "
            "nothing tells whether they are the same. Versions before 0.3 did not keep ids", argument="orders",
            advice="Leave out orders that are not later than the last update, or fit the customers anew, with ids",
        )  # fmt: skip
    return np.asarray((times < last) | known)


# -- files ----------------------------------------------------------------------------------------------------------------------


def write(path: str | os.PathLike[str], layers: Layers, metadata: Mapping[str, str], others: Others | None) -> None:
    """Write all customers to a safetensors file, some of them in memory at a time."""
    tables = {} if others is None else dict(zip(OF_OTHERS, others))
    at = layers.all()
    ends_of = {
        name: np.concatenate(
            [
                [0],
                np.cumsum(np.concatenate([np.diff(getattr(part, name)) for part in (layers.base, layers.changed)])[at]),
            ]
        )
        for name in ("indptr", "marks_indptr")
    }
    n, nobody = len(at), layers.rows(at[:0])
    n_counts, n_marks = (int(one[-1]) for one in ends_of.values())
    width, columns = nobody.ids.itemsize, nobody.missions.shape[1]
    shapes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(TYPES, (n,)), **dict.fromkeys(ends_of, (n + 1,)), "items": (n_counts,), "counts": (n_counts,),
        "marks": (n_marks,), "missions": (n, columns), "ids": (n, width),
        **{name: table.shape for name, table in tables.items()},
    }  # fmt: skip
    codes = {name: code for name, (code, _) in {**TYPES, **OF_OTHERS}.items() if name in shapes}
    crcs = dict.fromkeys(codes, 2**32)
    ends = np.cumsum(
        [0, *(int(np.prod(shapes[name])) * np.dtype(CODES[code]).itemsize for name, code in codes.items())]
    )
    about = {
        "format": FORMAT,
        "format_version": str(VERSION if tables else 2),
        "ndpp_version": importlib.metadata.version("ndpp"),
    }
    header: dict[str, Any] = {"__metadata__": {**metadata, **about, "crc32": json.dumps(crcs), "digest": NO_DIGEST}}
    for (name, code), start, end in zip(codes.items(), ends.tolist(), ends[1:].tolist()):
        header[name] = {"dtype": code, "shape": shapes[name], "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with one_writer(path), replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        cursors, crcs = dict(zip(codes, (ends[:-1] + file.tell()).tolist())), dict.fromkeys(codes, 0)

        def put(name: str, values: NDArray[Any]) -> None:
            data = np.ascontiguousarray(values).tobytes()
            file.seek(cursors[name])
            cursors[name] += file.write(data)
            crcs[name] = zlib.crc32(data, crcs[name])

        for name, values in {**ends_of, **tables}.items():
            put(name, values)
        for start in range(0, n, BLOCK):
            part = layers.rows(at[start : start + BLOCK])
            for name, values in part._replace(ids=part.ids.astype(f"S{width}"))._asdict().items():
                if name not in ends_of:
                    put(name, values)
        file.flush()
        seal(temporary, crc32=json.dumps(crcs))


def read(path: str | os.PathLike[str]) -> tuple[CustomerCounts, dict[str, Any], Others | None]:
    """Return the customers of a file, which is read once to check it and then where it is needed; what else its header says, and as
    ``is_sealed`` whether a digest vouches for all of it; and what others buy.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no file of customers at {os.fspath(path)!r}")
    try:
        with safe_open(path, framework="np"):  # checks types, shapes and places
            header, start = read_raw(path)
    except (SafetensorError, ValueError) as reason:
        raise bad(path, f"it is truncated, corrupt or of another kind ({reason}). Copy it again") from None
    fields = header.get("__metadata__") or {}
    if fields.get("format") != FORMAT:
        raise bad(path, "it does not hold customers; `Customers.save` writes files that do")
    if (version := str(fields.get("format_version"))) not in ("1", "2", str(VERSION)):
        raise bad(path, f"it has version {version}, and this library reads up to {VERSION}; update ndpp")
    is_sealed = version != "1"
    if is_sealed and fields.get("digest") != digest(header):
        raise bad(path, f"its header does not match its digest; {CORRUPT}")
    if not is_sealed and set(fields) != OLD_FIELDS:
        raise bad(path, f"its header has unknown fields; {CORRUPT}")
    del header["__metadata__"]
    types = {**TYPES, **(OF_OTHERS if version == "3" else {})} if is_sealed else OLD_TYPES
    if set(header) != set(types):
        raise bad(path, f"expected the arrays {', '.join(types)}; it holds {', '.join(sorted(header))}")
    try:
        facts, crcs, found = json.loads(fields["customers"]), json.loads(fields["crc32"]) if is_sealed else {}, {}
        for name, entry in header.items():
            if (entry["dtype"], len(entry["shape"])) != types[name]:
                raise ValueError(f"{name} is {entry['dtype']}, {entry['shape']}")
            shape, dtype, place = tuple(entry["shape"]), CODES[entry["dtype"]], start + entry["data_offsets"][0]
            found[name] = np.asarray(
                np.memmap(path, dtype, "r", place, shape) if np.prod(shape) else np.empty(shape, dtype)
            )
        n = len(found["ids"])
        if not is_sealed:
            del found["seen"]
            found |= {"marks_indptr": np.arange(n + 1), "marks": np.zeros(n, np.uint64)}
        sizes = {"indptr": n + 1, "marks_indptr": n + 1, **dict.fromkeys(("mass", "last", "missions"), n)}
        for ends, names in {"indptr": ("items", "counts"), "marks_indptr": ("marks",)}.items():
            sizes |= dict.fromkeys(names, int(found[ends][-1]) if len(found[ends]) else 0)
        if version == "3":
            n_items, k = int(facts["n_items"]), len(found["others_pulls"])
            sizes |= {"others_items": n_items, "others_shift": n_items}
            if found["others_pulls"].shape != (k, n_items) or found["others_items"].shape[1] != k:
                raise ValueError("others_pulls have a wrong shape")
        if wrong := [name for name, size in sizes.items() if len(found[name]) != size]:
            raise ValueError(f"{wrong[0]} has a wrong length")
        for name, array in found.items():
            if _checked(name, array, int(facts["n_items"])) != crcs.get(name) and is_sealed:
                raise ValueError(f"{name} does not match its checksum")
    except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as reason:
        raise bad(path, f"its arrays are damaged ({reason}); {CORRUPT}") from None
    width = found["ids"].shape[1]
    found["ids"] = found["ids"].view(f"S{width}").ravel() if width else np.empty(0, "S1")
    others = Others(*(found.pop(name) for name in OF_OTHERS)) if "others_shift" in found else None
    return CustomerCounts(**found), {**facts, "is_sealed": is_sealed}, others


def _checked(name: str, array: AnyArray, n_items: int) -> int:
    """Return the CRC-32 of an array of a file, block by block; raise a ValueError if it holds what no customer can have."""
    crc, step = 0, max(1, CHECKED // max(1, array.shape[-1] if array.ndim > 1 else 1))
    before = array[:0]
    for start in range(0, len(array), step):
        block = np.ascontiguousarray(array[start : start + step])
        crc = zlib.crc32(block.data, crc)
        if name == "ids" and block.size:
            block = np.concatenate([before, block])
            words = block.view(f"S{block.shape[1]}").ravel()
            if not (words[0] and (words[1:] > words[:-1]).all()):
                raise ValueError("ids are not ascending")
            np.pad(block, ((0, 0), (0, 1))).tobytes().decode()
            before = block[-1:]
        elif name.endswith("indptr"):
            ends = np.concatenate([before if start else np.zeros(1, np.int64), block])
            if (start == 0 and block[0]) or (ends[1:] < ends[:-1]).any():
                raise ValueError(f"{name} is not ascending from 0")
            before = block[-1:]
        elif name == "items" and not ((block >= -1) & (block < n_items)).all():
            raise ValueError("items are not those of the law")
        elif name in OF_OTHERS:
            if not np.isfinite(block).all():
                raise ValueError(f"{name} are not finite numbers")
        elif block.dtype.kind == "f" and not ((block >= 0) & (block < np.inf)).all():
            raise ValueError(f"{name} are not finite numbers, at least zero")
    return crc


def bad(path: str | os.PathLike[str], why: str) -> ModelFileError:
    """Return the error for a file that does not hold customers, or a damaged one."""
    return ModelFileError(f"cannot load {os.fspath(path)!r}: {why}")
