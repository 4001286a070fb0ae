"""Files of models and customers with bytes or arrays changed, folders of shards, and baskets; a part of :mod:`fuzz`."""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

import ndpp
from law_table import LAWS
from ndpp import rows
from ndpp.baskets.orders import Orders
from ndpp.customers import Habits
from ndpp.errors import NDPPError
from ndpp.laws import header
from ndpp.laws.files import _crc32


class Failure(Exception):
    """What a case should not have done."""


def check(good: bool, problem: str) -> None:
    """Fail unless ``good``."""
    if not good:
        raise Failure(problem)


# -- bytes -------------------------------------------------------------------------------------------------------------------


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Return the content with something changed."""
    data = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 5])):
        at = draw.randrange(len(data) + 1) if draw.random() < 0.5 else draw.randrange(min(len(data), 600) + 1)
        kind = draw.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = draw.randrange(256)
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            data[at:at] = bytes(draw.randrange(256) for _ in range(draw.randint(1, 9)))
        elif kind == 4:
            del data[at : at + draw.randint(1, 40)]
        else:
            words = [
                b"null",
                b"-1",
                b"1e999",
                b"[" * 2000,
                b"99999999999999999999",
                b'"',
                b"\\u0000",
                b"F64",
                b"0",
                b"{}",
            ]
            data[at : at + draw.randint(0, 4)] = draw.choice(words)
    return bytes(data)


def same_law(first: Any, second: Any) -> bool:
    """Return whether two distributions, their labels and the names of their components are the same."""
    arrays = [
        {
            name: np.asarray(array.read() if isinstance(array, rows.Rows) else array)
            for name, array in law._arrays().items()
        }
        for law in (first, second)
    ]
    return (
        (type(first), first.labels, first.names) == (type(second), second.labels, second.names)
        and arrays[0].keys() == arrays[1].keys()
        and all(np.array_equal(array, arrays[1][name]) for name, array in arrays[0].items())
    )


MODEL_ERRORS = (NDPPError, OSError)


FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-")
"""Where files are tried, one after another."""
ABOUT = {"seed": 3, "note": "tea"}


@cache
def saved_model(number: int) -> tuple[Any, bytes]:
    """Return a distribution and its file; saving waits for the disk, so few of them serve many cases."""
    kind, base = LAWS[number]
    law, path = kind.build(base), Path(FOLDER.name) / "saved.safetensors"
    ndpp.save(law, path, metadata=ABOUT)
    return law, path.read_bytes()


def model_case(seed: int) -> None:
    """Load a model file that was changed: the same model or a clear error."""
    draw = random.Random(seed)
    law, content = saved_model(seed % len(LAWS))
    path = Path(FOLDER.name) / "m.safetensors"
    path.write_bytes(mutated(content, draw))
    try:
        again = ndpp.load(path)
        metadata = ndpp.load_metadata(path)
    except MODEL_ERRORS:
        return
    check(same_law(law, again), f"another model was loaded: {again!r}, labels {again.labels}")
    check(metadata == ABOUT, f"other metadata were loaded: {metadata}")


def crafted_case(seed: int) -> None:
    """Load a model file with right checksums and an array that is wrong: a clear error, or a distribution that can be asked."""
    draw = random.Random(seed)
    path = Path(FOLDER.name) / "c.safetensors"
    path.write_bytes(saved_model(seed % len(LAWS))[1])
    fields, arrays = header.read_raw(path)[0]["__metadata__"], load_file(path)
    craft(arrays, draw)
    save_file(arrays, path, {**fields, "crc32": str(_crc32(arrays))})
    header.seal(path)
    try:
        law = ndpp.load(path)
        sizes = law.size_distribution()
        drawn = law.sample(3, rng=0)
    except MODEL_ERRORS:
        return
    check(bool(np.isfinite(sizes).all()), f"sizes {sizes} of {law!r}")
    check(len(drawn) == 3, f"{drawn!r} of {law!r}")


def craft(arrays: dict[str, Any], draw: random.Random) -> None:
    """Change one array: its shape, its type or one of its numbers."""
    name = draw.choice(sorted(arrays))
    array = arrays[name].copy()
    change = draw.randrange(7)
    if change == 0:
        array = array[: draw.randrange(len(array))] if array.ndim else array[None]
    elif change == 1:
        array = np.concatenate([array, array[:1]]) if array.ndim else array[None]
    elif change == 2:
        array = array[..., None] if draw.random() < 0.5 else array.reshape(-1)
    elif change == 3:
        array = array.astype(draw.choice([np.float16, np.float32, np.int64, np.float64]))
    elif array.size and array.dtype.kind == "f":
        array.flat[draw.randrange(array.size)] = draw.choice(
            [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, -1e300, 1e-300, 5e-324, 1e160]
        )
    elif array.size:
        array.flat[draw.randrange(array.size)] = draw.choice([-1, 0, 1, 5, 6, 2**40, 2**63 - 1, -(2**63)])
    arrays[name] = np.ascontiguousarray(array)


@cache
def saved_folder(number: int) -> tuple[Any, Path, dict[str, bytes]]:
    """Return a model, the folder it was saved to, and the files of that."""
    kernel = small_model(random.Random(number))
    np.save(Path(FOLDER.name) / f"X{number}.npy", kernel.X)
    source = rows.as_rows(np.load(Path(FOLDER.name) / f"X{number}.npy", mmap_mode="r"))
    path = Path(FOLDER.name) / f"folder{number}"
    ndpp.save(ndpp.LowRankKernel(source, kernel.W, labels=kernel.labels), path)
    return kernel, path, {file.name: file.read_bytes() for file in path.iterdir()}


def folder_case(seed: int) -> None:
    """Load a folder of shards in which one file was changed."""
    draw = random.Random(seed)
    kernel, path, files = saved_folder(seed % 20)
    name = draw.choice(sorted(files))
    (path / name).write_bytes(mutated(files[name], draw))
    try:
        same = same_law(kernel, ndpp.load(path))
    except MODEL_ERRORS:
        return
    finally:
        (path / name).write_bytes(files[name])
    check(same, f"another model was loaded from {name}")


def small_model(draw: random.Random) -> Any:
    """Return a small kernel with labels."""
    rng = np.random.default_rng(draw.randrange(1000))
    n = draw.randint(1, 5)
    labels = [f"tea {i}" for i in range(n)] if draw.random() < 0.8 else None
    return ndpp.LowRankKernel(rng.normal(size=(n, 2)), np.eye(2), labels=labels)


@cache
def saved_customers() -> tuple[Any, bytes]:
    """Return a law of eight items, and the file of forty customers with missions of their own."""
    rng = np.random.default_rng(0)
    odds, labels = rng.uniform(0.02, 0.4, (3, 8)), [f"item {a}" for a in range(8)]
    law = ndpp.Mixture.tied(odds, rng.normal(size=(8, 2)) / 3, [[0.0, 0.3], [-0.3, 0.0]], np.ones(3) / 3, labels=labels)
    baskets = ndpp.Baskets.from_lists(rng.integers(8, size=(200, 3)).tolist(), labels=labels, basket_ids=range(200))
    when = np.datetime64("2026-01-05", "s") + np.sort(rng.integers(0, 90 * 86400, 200)).astype("timedelta64[s]")
    orders = Orders(baskets, [f"customer {i}" for i in rng.integers(40, size=200)], when)
    path = Path(FOLDER.name) / "saved.customers"
    ndpp.Customers(law, Habits(mission_prior=2.0)).update(orders).save(path)
    return law, path.read_bytes()


def same_customers(first: Any, second: Any) -> bool:
    """Return whether all that files of two customers hold is the same."""
    return (first.habits, first.report, first.clock, list(first)) == (
        second.habits, second.report, second.clock, list(second)
    ) and all(np.array_equal(*pair) for pair in zip(first.layers.base, second.layers.base))  # fmt: skip


def customers_case(seed: int) -> None:
    """Load a customers' file that was changed: the same customers or a clear error."""
    law, content = saved_customers()
    path = Path(FOLDER.name) / "c.customers"
    path.write_bytes(content)
    saved = ndpp.Customers.load(path, law)
    changed = Path(FOLDER.name) / "changed.customers"
    changed.write_bytes(mutated(content, random.Random(seed)))
    try:
        again = ndpp.Customers.load(changed, law)
    except MODEL_ERRORS:
        return
    check(same_customers(saved, again), f"other customers were loaded: {again!r}")


# -- baskets -----------------------------------------------------------------------------------------------------------------

AWKWARD = ["a", "tea", " ", "b ", " b", "\t", "\n", "\r", "\r\n", "\0", '"', "'", ",", ";", "|", "\ufeff", "é", "é", "茶", "☕", "0", "-1",
           "007", "nan", "NA", "null", "<b>", "\x1b[31m", "\u202e", "\x85", "\u2028", "#", "\\", "x" * 300]  # fmt: skip


def basket_case(seed: int) -> None:
    """Write baskets and read them again; then change the file and read that."""
    draw = random.Random(seed)
    labels = sorted({"".join(draw.choices(AWKWARD, k=draw.randint(1, 3))) for _ in range(draw.randint(1, 6))})
    sets = [draw.sample(labels, draw.randint(0, len(labels))) for _ in range(draw.randint(1, 6))]
    suffix = draw.choice([".txt", ".csv", ".tsv", ".txt.gz", ".csv.gz", ".parquet"])
    names = [AWKWARD, range(-3, 9), None][draw.randrange(3)]
    ids = None if names is None else draw.sample(names, len(sets))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"b{suffix}"
        try:
            baskets = ndpp.Baskets.from_lists(
                sets, labels=labels, basket_ids=None if suffix.startswith(".txt") else ids
            )
            baskets.write(path)
        except NDPPError:
            return  # refused before anything was written
        finally:
            check(sorted(p.name for p in Path(folder).iterdir()) in ([], [path.name]), "something else was left behind")
        try:
            again = ndpp.Baskets.read(path, labels=labels, as_labels=True)
        except NDPPError as reason:
            raise Failure(f"written and then refused: {labels!r} {sets!r} {suffix}: {reason}") from None
        check(again == baskets, f"read back otherwise: {labels!r} {sets!r} {ids!r} {suffix}: {again.to_lists()}")
        path.write_bytes(mutated(path.read_bytes(), draw))
        try:
            ndpp.Baskets.read(path)
        except MODEL_ERRORS:
            return
