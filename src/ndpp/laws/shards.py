"""X in several safetensors files of one folder, written and read block by block; at most one shard is in memory."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ndpp._types import AnyArray
from ndpp.errors import InvalidInputError
from ndpp.laws.header import MOST, Shard, read_raw
from ndpp.rows import FileRows, Rows, Stacked

SHARD_BYTES = 128 * 2**20
"""Bytes of a shard."""

DTYPES = {"F32": np.float32, "F64": np.float64}


def write_shards(X: Rows, folder: Path) -> list[Shard]:
    """Write the rows of X to files of about ``SHARD_BYTES``."""
    shards = []
    for i, part in enumerate(_regrouped(X, max(1, SHARD_BYTES // (X.shape[1] * X.dtype.itemsize)))):
        name = f"X-{i:05}.safetensors"
        save_file({"X": part}, folder / name)
        shards.append(Shard(name, len(part), zlib.crc32(part.data)))
    return shards


def _regrouped(X: Rows, n_rows: int) -> Iterator[AnyArray]:
    """Yield the rows of X, ``n_rows`` at a time. Each array overwrites the one before."""
    space, filled = np.empty((min(n_rows, len(X)), X.shape[1]), X.dtype), 0
    for _, block in X.stream():
        while len(block):
            taken = min(len(block), len(space) - filled)
            space[filled : filled + taken] = block[:taken]
            block, filled = block[taken:], filled + taken
            if filled == len(space):
                yield space
                filled = 0
    if filled:
        yield space[:filled]


def open_shards(folder: Path, shards: Sequence[Shard]) -> Rows:
    """Return the X of a folder as a row source; raise if a shard is missing, truncated or corrupt."""
    for shard in shards:
        if not inside(folder, shard.name):
            raise InvalidInputError(f"{shard.name!r} is a link to another folder")
    parts = [open_tensor(folder / shard.name, "X") for shard in shards]
    for shard, part in zip(shards, parts):
        if len(part) != shard.n_rows:
            raise InvalidInputError(f"{part.name} should hold {shard.n_rows} rows; it holds {len(part)}")
        if crc32(part) != shard.crc32:
            raise InvalidInputError(f"{part.name} does not match its checksum; it is corrupt")
    return Stacked(parts)


def inside(folder: Path, name: str) -> bool:
    """Return whether the file ``name`` of a folder is there, and not a link to a file elsewhere."""
    return Path(os.path.realpath(folder / name)).parent == Path(os.path.realpath(folder))


def open_tensor(path: str | os.PathLike[str], name: str) -> FileRows:
    """Return a matrix of a safetensors file as a row source."""
    header, start = read_raw(path)
    try:
        with safe_open(path, framework="np") as file:  # checks types, shapes and places
            known = name in file.keys()  # noqa: SIM118  not a mapping
    except SafetensorError as reason:
        raise InvalidInputError(f"{str(path)!r} is truncated, corrupt or no safetensors file ({reason})") from None
    entry: dict[str, Any] = header[name] if known else {"dtype": "missing", "shape": []}
    shape = entry["shape"]
    if entry["dtype"] not in DTYPES or len(shape) != 2 or not all(0 < n <= MOST for n in shape):
        raise InvalidInputError(
            f"{name} in {str(path)!r} should be a matrix of floats; it is {entry['dtype']}, {shape}"
        )
    return FileRows(str(path), tuple(shape), DTYPES[entry["dtype"]], start + entry["data_offsets"][0])


def crc32(rows: Rows, crc: int = 0) -> int:
    """Return the checksum of all rows, read block by block."""
    for _, block in rows.blocks():
        crc = zlib.crc32(block.data, crc)
    return crc
