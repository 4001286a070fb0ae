"""X in several safetensors files of one folder, written and read block by block; at most one shard is in memory."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save_file

from ndpp._types import AnyArray
from ndpp.errors import InvalidInputError
from ndpp.rows import FileRows, Rows, Stacked

SHARD_BYTES = 128 * 2**20
"""Bytes of a shard."""

DTYPES = {"F32": np.float32, "F64": np.float64}


class Shard(NamedTuple):
    """A file of the folder, the number of rows in it, and their CRC-32."""

    name: str
    n_rows: int
    crc32: int


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
    parts = [open_tensor(folder / shard.name, "X") for shard in shards]
    for shard, part in zip(shards, parts):
        if len(part) != shard.n_rows:
            raise InvalidInputError(f"{part.name} should hold {shard.n_rows} rows; it holds {len(part)}")
        if crc32(part) != shard.crc32:
            raise InvalidInputError(f"{part.name} does not match its checksum; it is corrupt")
    return Stacked(parts)


def open_tensor(path: str | os.PathLike[str], name: str) -> FileRows:
    """Return a matrix of a safetensors file as a row source."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > os.stat(path).st_size:
            raise InvalidInputError(f"{str(path)!r} is truncated or not a safetensors file")
        entry = json.loads(file.read(size))[name]
    if entry["dtype"] not in DTYPES or len(entry["shape"]) != 2:
        raise InvalidInputError(
            f"{name} in {str(path)!r} should be a matrix of floats; it is {entry['dtype']}, {entry['shape']}"
        )
    return FileRows(str(path), tuple(entry["shape"]), DTYPES[entry["dtype"]], 8 + size + entry["data_offsets"][0])


def crc32(rows: Rows, crc: int = 0) -> int:
    """Return the checksum of all rows, read block by block."""
    for _, block in rows.blocks():
        crc = zlib.crc32(block.data, crc)
    return crc
