"""Model files, folders of shards and baskets with bytes changed; a part of :mod:`fuzz`."""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import ndpp
from ndpp import rows
from ndpp.errors import NDPPError


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


def same_kernel(first: Any, second: Any) -> bool:
    """Return whether two kernels and their labels are the same."""
    arrays = [np.asarray(k.X[:] if not hasattr(k.X, "read") else k.X.read()) for k in (first, second)]
    return np.array_equal(*arrays) and np.array_equal(first.W, second.W) and first.labels == second.labels


MODEL_ERRORS = (NDPPError, OSError)


FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-")
"""Where files are tried, one after another."""
ABOUT = {"seed": 3, "note": "tea"}


@cache
def saved_model(number: int) -> tuple[Any, bytes]:
    """Return a model and its file; saving waits for the disk, so few models serve many cases."""
    kernel, path = small_model(random.Random(number)), Path(FOLDER.name) / "saved.safetensors"
    ndpp.save(kernel, path, metadata=ABOUT)
    return kernel, path.read_bytes()


def model_case(seed: int) -> None:
    """Load a model file that was changed: the same model or a clear error."""
    draw = random.Random(seed)
    kernel, content = saved_model(seed % 40)
    path = Path(FOLDER.name) / "m.safetensors"
    path.write_bytes(mutated(content, draw))
    try:
        again = ndpp.load(path)
        metadata = ndpp.load_metadata(path)
    except MODEL_ERRORS:
        return
    check(same_kernel(kernel, again), f"another model was loaded: {again!r}, labels {again.labels}")
    check(metadata == ABOUT, f"other metadata were loaded: {metadata}")


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
        same = same_kernel(kernel, ndpp.load(path))
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
