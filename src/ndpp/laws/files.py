"""Kernels and mixtures on disk: a safetensors file with arrays, and JSON metadata in its header.

A kernel ("xw") is X, W and, where they matter, support, weights and background. A mixture with shared ties ("tied") is its base, odds,
component_weights and perhaps log_normalizers; one over families ("families") has item_odds, families and states as well. Both may have
what ``mixture.prepared()`` adds. Any other mixture ("mixture") has the arrays of component c under names such as "0.X", and what the header
says of each component under ``components``, unless all are kernels. If the weights of
a mixture depend on context, there is an array ``gate`` of β (:mod:`ndpp.laws.gate`). The header carries ``format`` ("ndpp-kernel"),
``format_version``, ``parametrisation``, ``ndpp_version``, ``nonempty`` if the empty set is left out, ``context`` if there is any, a CRC-32
of the arrays, the labels, the names of components, whatever the caller adds, such as the training configuration, and a digest of all of
this (:mod:`ndpp.laws.header`). Nothing is ever unpickled, and nothing outside the folder of a model is read. A file is replaced whole or
not at all.

A kernel whose X is not in memory (:mod:`ndpp.rows`) becomes a folder: X in shards, and ``kernel.safetensors`` with all the
rest (``format_version`` 2). Loading checks the shards and leaves X in them.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ndpp._atomic import disk_errors, replacing, replacing_folder
from ndpp._show import plain
from ndpp._types import AnyArray
from ndpp.errors import InvalidInputError
from ndpp.laws.header import (
    FORMAT,
    INDEX,
    MAX_COUNT,
    NO_DIGEST,
    ModelHeader,
    Shard,
    bad,
    inside,
    open_model,
    read_raw,
    seal,
)
from ndpp.laws.law import KINDS, Law
from ndpp.rows import FileRows, Rows, Stacked

DTYPES = {"F16", "F32", "F64", "I64"}
"""Types of arrays, as safetensors names them."""
MATRIX_DTYPES = {"F32": np.float32, "F64": np.float64}
"""Types of an X that is not read at once."""
SHARD_BYTES = 128 * 2**20
"""Bytes of a shard of X; at most one is in memory."""


def save(law: object, path: str | os.PathLike[str], *, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a kernel or mixture, with its labels and support, to a safetensors file, or to a folder of them where X is not in memory.

    Parameters
    ----------
    law : LowRankKernel, Mixture or fitted estimator
        The model. Arrays keep their precision.
    path : path
        A plain file, or a folder where X is a row source; if it exists it is replaced once the new one is complete.
    metadata : mapping, optional
        Anything JSON can hold, such as the training configuration; :func:`load_metadata` returns it. For an estimator, it is by default
        how the model was made: what ``ndpp info`` shows.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> path = tempfile.mkdtemp() + "/model.safetensors"
    >>> from ndpp import LowRankKernel
    >>> save(LowRankKernel(np.eye(3), np.eye(3)), path, metadata={"rank": 3})
    >>> load(path).n_items, load_metadata(path)
    (3, {'rank': 3})
    """
    about, law = getattr(law, "about", None), Law.required(law)
    if metadata is None and about is not None:
        metadata = about()
    stored = law.stored_arrays()
    # safetensors writes memory as it is, so arrays must be in C order.
    arrays = {name: np.ascontiguousarray(array) for name, array in stored.items() if not isinstance(array, Rows)}
    if isinstance(X := stored.get("X"), Rows):
        with replacing_folder(path, INDEX) as folder, disk_errors(path):
            shards = _write_shards(X, folder)
            _write(folder / INDEX, law, arrays, metadata, shards)
        return
    if Path(path).exists() and not Path(path).is_file():
        raise InvalidInputError(f"a model is saved to a plain file; {str(path)!r} is something else")
    _write(path, law, arrays, metadata)


def _write(
    path: str | os.PathLike[str],
    law: Law,
    arrays: Mapping[str, AnyArray],
    metadata: Mapping[str, Any] | None,
    shards: Sequence[Shard] = (),
) -> None:
    header = {
        "format": FORMAT,
        "format_version": str(max(law.format_version, 2 if shards else 1, 6 * law.nonempty, 7 * bool(law.context))),
        "ndpp_version": importlib.metadata.version("ndpp"),
        "n_items": str(law.n_items),
        "n_columns": str(len(arrays.get("W", arrays.get("0.W", (0,))))),
        "labels": _json(law.labels, "labels"),
        "crc32": str(_crc32(arrays)),
        "digest": NO_DIGEST,
        "metadata": _json({} if metadata is None else dict(metadata), "metadata"),
    } | ({"shards": _json(shards, "shards")} if shards else {})
    header |= {name: value if isinstance(value, str) else _json(value, name) for name, value in law.facts().items()}
    with replacing(path) as temporary, disk_errors(path):
        save_file(dict(arrays), temporary, header)
        seal(temporary)


def load(path: str | os.PathLike[str], *, lazy: bool = False) -> Any:
    """Return the kernel or mixture that :func:`save` wrote.

    Parameters
    ----------
    path : path
        A file, or a folder that was written from an X that was not in memory.
    lazy : bool
        Leave X in the file and read rows when they are needed, as is always done for a folder.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ModelFileError
        The file is empty, truncated, corrupt, foreign, or of a newer format than this library knows.
    """
    with open_model(path) as (file, header):
        try:
            wanted, optional = _names(header)
        except KeyError as unknown:
            raise bad(path, f"it is a law of the kind {unknown}; import the module that defines it first") from None
        wanted = wanted - ({"X"} if header.shards else set())
        names = set(file.keys())
        if not wanted <= names <= wanted | optional:
            expected = f"{', '.join(sorted(wanted, reverse=True))}, perhaps {', '.join(sorted(optional, reverse=True))}"
            raise bad(path, f"expected the arrays {expected}; it holds {', '.join(sorted(names))}")
        for name in names:
            if (dtype := file.get_slice(name).get_dtype()) not in DTYPES:
                raise bad(path, f"{name} should be floats or ids; it is {dtype}")
        lazy = lazy and "X" in wanted and not header.n_families
        arrays = {name: file.get_tensor(name) for name in names if name != "X" or not lazy}
    try:
        if lazy:
            arrays["X"] = _open_x(path)
        crc = _crc32(arrays)
        if header.shards:
            arrays["X"] = _open_shards(Path(path), header.shards)
    except (OSError, InvalidInputError, ValueError, KeyError) as reason:
        raise bad(path, f"its X cannot be read: {reason}. Copy it again") from reason
    for name, n_rows in {"X": header.n_families or header.n_items, "W": header.n_columns}.items():
        shape = n_rows, header.n_columns
        if name in arrays and (arrays[name].shape != shape or arrays[name].dtype.kind != "f"):
            raise bad(path, f"{name} should be {shape} floats; it is {arrays[name].shape}, {arrays[name].dtype}")
    if crc != header.crc32:
        raise bad(path, "its arrays do not match their checksum; it is corrupt. Copy it again from where it came")
    try:
        return Law.from_stored(arrays, header)
    except InvalidInputError as reason:
        raise bad(path, f"its arrays are no valid kernel: {reason}") from reason


def _names(header: ModelHeader) -> tuple[set[str], set[str]]:
    """Return the names of the arrays that a file must have, and of those that it may."""
    if header.components:
        found = [_names(part) for part in header.components]
        wanted, optional = ({f"{c}.{name}" for c, both in enumerate(found) for name in both[i]} for i in (0, 1))
        wanted |= {"component_weights"}
    else:  # the number of each component is in the place of {c}
        sides = KINDS[header.parametrisation].stored
        each = range(header.n_components)
        wanted, optional = (
            {name.format(c=c) for name in side for c in (each if "{c}" in name else (0,))} for side in sides
        )
    return wanted | (set() if header.context is None else {"gate"}), optional


def load_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the metadata that :func:`save` was given, without reading the arrays."""
    return load_header(path).metadata


def load_header(path: str | os.PathLike[str]) -> ModelHeader:
    """Return the header of a model file, without reading the arrays."""
    with open_model(path) as (_, header):
        return header


def _json(value: object, name: str) -> str:
    try:
        return json.dumps(value, default=plain, allow_nan=False)
    except (TypeError, ValueError) as reason:
        raise InvalidInputError(
            f"{name} must be plain JSON (text, finite numbers, lists, mappings): {reason}"
        ) from None


def _write_shards(X: Rows, folder: Path) -> list[Shard]:
    """Write the rows of X to files of about ``SHARD_BYTES``."""
    shards = []
    for i, part in enumerate(_regrouped(X, max(1, SHARD_BYTES // (X.shape[1] * X.dtype.itemsize)))):
        name = f"X-{i:05}.safetensors"
        save_file({"X": part}, folder / name)
        shards.append(Shard(name, len(part), _crc32({"X": part})))
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


def _open_shards(folder: Path, shards: Sequence[Shard]) -> Rows:
    """Return the X of a folder as a row source; raise if a shard is missing, truncated or corrupt."""
    for shard in shards:
        if not inside(folder, shard.name):
            raise InvalidInputError(f"{shard.name!r} is a link to another folder")
    parts = [_open_x(folder / shard.name) for shard in shards]
    for shard, part in zip(shards, parts):
        if len(part) != shard.n_rows:
            raise InvalidInputError(f"{part.name} should hold {shard.n_rows} rows; it holds {len(part)}")
        if _crc32({"X": part}) != shard.crc32:
            raise InvalidInputError(f"{part.name} does not match its checksum; it is corrupt")
    return Stacked(parts)


def _open_x(path: str | os.PathLike[str]) -> FileRows:
    """Return the X of a safetensors file as a row source."""
    header, start = read_raw(path)
    try:
        with safe_open(path, framework="np"):  # checks types, shapes and places
            entry: dict[str, Any] = header.get("X", {"dtype": "missing", "shape": []})
    except SafetensorError as reason:
        raise InvalidInputError(f"{str(path)!r} is truncated, corrupt or no safetensors file ({reason})") from None
    shape = entry["shape"]
    if entry["dtype"] not in MATRIX_DTYPES or len(shape) != 2 or not all(0 < n <= MAX_COUNT for n in shape):
        raise InvalidInputError(f"X in {str(path)!r} should be a matrix of floats; it is {entry['dtype']}, {shape}")
    return FileRows(str(path), tuple(shape), MATRIX_DTYPES[entry["dtype"]], start + entry["data_offsets"][0])


def _crc32(arrays: Mapping[str, Any]) -> int:
    """Return the checksum of all arrays; rows that are not in memory are read block by block."""
    crc = 0
    for _, array in sorted(arrays.items()):
        for _, block in array.blocks() if isinstance(array, Rows) else [(None, array)]:
            crc = zlib.crc32(block.data, crc)
    return crc
