"""Kernels on disk: a safetensors file with X, W (support, weights, background where they matter) and JSON metadata in its header.

The header carries ``format`` ("ndpp-kernel"), ``format_version``, ``parametrisation`` ("xw"), ``ndpp_version``, a
CRC-32 of the arrays, the labels and whatever the caller adds, such as the training configuration. Nothing is ever
unpickled. A file is replaced whole or not at all.

A kernel whose X is not in memory (:mod:`ndpp.rows`) becomes a folder: X in shards, and ``kernel.safetensors`` with all the
rest (``format_version`` 2). Loading checks the shards and leaves X in them.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ndpp._atomic import disk_errors, replacing, replacing_folder
from ndpp._json import plain
from ndpp._types import AnyArray
from ndpp.errors import InvalidInputError, ModelFileError
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.shards import Shard, crc32, open_shards, open_tensor, write_shards
from ndpp.linalg import schur_weights
from ndpp.rows import Rows

FORMAT = "ndpp-kernel"
FORMAT_VERSION = 3
"""The newest version that this library reads. A single file is of version 1, a folder of version 2; with a background, of version 3."""
INDEX = "kernel.safetensors"
"""The file of a folder that holds everything but X."""

_STRANGERS = {
    b"\x80": "it looks like a pickle, which is never loaded; save the kernel again with ndpp.save",
    b"PK": "it looks like a zip archive (.npz, .pt); load X and W with its own tool and build LowRankKernel(X, W)",
    b"\x93NUMPY": "it looks like a .npy file; load it with numpy and build LowRankKernel(X, W)",
    b"\x89HDF": "it looks like an HDF5 file",
    b"\x1f\x8b": "it looks like a gzip file; unpack it first",
}


class ModelHeader(NamedTuple):
    """What a model file says about itself."""

    format_version: int
    ndpp_version: str
    parametrisation: str
    n_items: int
    n_columns: int
    labels: tuple[str, ...] | None
    crc32: int
    metadata: dict[str, Any]
    shards: tuple[Shard, ...] = ()


def save(kernel: LowRankKernel, path: str | os.PathLike[str], *, metadata: Mapping[str, Any] | None = None) -> None:
    """Write a kernel, with its labels and support, to a safetensors file, or to a folder of them where X is not in memory.

    Parameters
    ----------
    kernel : LowRankKernel
        The kernel. X and W keep their precision.
    path : path
        A plain file, or a folder where X is a row source; if it exists it is replaced once the new one is complete.
    metadata : mapping, optional
        Anything JSON can hold, such as the training configuration; :func:`load_metadata` returns it.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> path = tempfile.mkdtemp() + "/model.safetensors"
    >>> save(LowRankKernel(np.eye(3), np.eye(3)), path, metadata={"rank": 3})
    >>> load(path).n_items, load_metadata(path)
    (3, {'rank': 3})
    """
    if not isinstance(kernel, LowRankKernel):
        raise InvalidInputError(
            f"save takes a LowRankKernel; got {type(kernel).__name__}. A fitted model has `.kernel_`."
        )
    # safetensors writes memory as it lies: anything but C order would be scrambled.
    arrays = {"W": np.ascontiguousarray(kernel.W)}
    if kernel.n_rows < kernel.n_items:
        arrays["support"] = np.ascontiguousarray(kernel.support)
    if not np.array_equal(kernel._weights, schur_weights(np.asarray(kernel.W, np.float64))):
        arrays["weights"] = np.ascontiguousarray(
            kernel._weights
        )  # a conditional's rounding is that of where it came from
    if kernel.background is not None:
        arrays["background"] = np.ascontiguousarray(kernel.background)
    if isinstance(kernel.X, Rows):
        with replacing_folder(path, INDEX) as folder, disk_errors(path):
            shards = write_shards(kernel.X, folder)
            _write(folder / INDEX, kernel, arrays, metadata, shards)
        return
    if Path(path).exists() and not Path(path).is_file():
        raise InvalidInputError(f"a model is saved to a plain file; {str(path)!r} is something else")
    _write(path, kernel, {"X": np.ascontiguousarray(kernel.X), **arrays}, metadata)


def _write(
    path: str | os.PathLike[str],
    kernel: LowRankKernel,
    arrays: Mapping[str, AnyArray],
    metadata: Mapping[str, Any] | None,
    shards: Sequence[Shard] = (),
) -> None:
    header = {
        "format": FORMAT,
        "format_version": "3" if "background" in arrays else "2" if shards else "1",
        "ndpp_version": importlib.metadata.version("ndpp"),
        "parametrisation": "xw",
        "n_items": str(kernel.n_items),
        "n_columns": str(kernel.X.shape[1]),
        "labels": _json(kernel.labels, "labels"),
        "crc32": str(_crc32(arrays)),
        "metadata": _json({} if metadata is None else dict(metadata), "metadata"),
    } | ({"shards": _json(shards, "shards")} if shards else {})
    with replacing(path) as temporary, disk_errors(path):
        save_file(dict(arrays), temporary, header)
        _order_header(temporary)


def _order_header(path: Path) -> None:
    """Put the fields of a header in order, in place: safetensors leaves it to chance, and one kernel has one file."""
    with open(path, "rb+") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) <= size:  # the same, since nothing but the order has changed; spaces fill up to a multiple of 8
            file.seek(8)
            file.write(text.ljust(size))


def load(path: str | os.PathLike[str], *, lazy: bool = False) -> LowRankKernel:
    """Return the kernel that :func:`save` wrote.

    Parameters
    ----------
    path : path
        A file, or a folder that was written from an X that was not in memory.
    lazy : bool
        Leave X in the file and read rows as they are wanted; a folder always does.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ModelFileError
        The file is empty, truncated, corrupt, foreign, or of a newer format than this library knows.
    """
    with _open(path) as file:
        header = _header(file, path)
        wanted = {"W"} if header.shards else {"X", "W"}
        names = set(file.keys())
        if not wanted <= names <= {*wanted, "support", "weights", "background"}:
            expected = ", ".join(sorted(wanted, reverse=True))
            raise _bad(
                path,
                f"expected the arrays {expected}, perhaps support, weights, background; it holds {', '.join(sorted(names))}",
            )
        arrays = {name: file.get_tensor(name) for name in names if name != "X" or not lazy}
    try:
        if lazy and not header.shards:
            arrays["X"] = open_tensor(path, "X")
        crc = _crc32(arrays)
        if header.shards:
            arrays["X"] = open_shards(Path(path), header.shards)
    except (OSError, InvalidInputError, ValueError, KeyError) as reason:
        raise _bad(path, f"its X cannot be read: {reason}. Copy it again") from reason
    for name, shape in {"X": (header.n_items, header.n_columns), "W": (header.n_columns, header.n_columns)}.items():
        if arrays[name].shape != shape or arrays[name].dtype.kind != "f":
            raise _bad(path, f"{name} should be {shape} floats; it is {arrays[name].shape}, {arrays[name].dtype}")
    if crc != header.crc32:
        raise _bad(path, "its arrays do not match their checksum; it is corrupt. Copy it again from where it came")
    try:
        return LowRankKernel(**arrays, labels=header.labels)
    except InvalidInputError as reason:
        raise _bad(path, f"its arrays are no valid kernel: {reason}") from reason


def load_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the metadata that :func:`save` was given, without reading the arrays."""
    return load_header(path).metadata


def load_header(path: str | os.PathLike[str]) -> ModelHeader:
    """Return everything a model file says about itself, without reading the arrays."""
    with _open(path) as file:
        return _header(file, path)


@contextmanager
def _open(path: str | os.PathLike[str]) -> Iterator[Any]:
    if not Path(path).exists():
        raise FileNotFoundError(f"no model file at {str(path)!r}")
    if (Path(path) / INDEX).is_file():
        path = Path(path) / INDEX
    if not Path(path).is_file():
        raise _bad(path, "it is not a plain file")
    if not Path(path).stat().st_size:
        raise _bad(path, "it is empty; the copy or download that made it failed")
    try:
        with safe_open(path, framework="np") as file:
            yield file
    except SafetensorError as reason:
        with open(path, "rb") as raw:
            start = raw.read(8)
        hint = next((hint for magic, hint in _STRANGERS.items() if start.startswith(magic)), None)
        raise _bad(path, hint or f"it is truncated, corrupt or of another kind ({reason}). Copy it again") from None


def _header(file: Any, path: str | os.PathLike[str]) -> ModelHeader:
    fields = file.metadata() or {}
    if fields.get("format") != FORMAT:
        raise _bad(path, "it is a safetensors file, but not one that ndpp.save wrote (no 'ndpp-kernel' in its header)")
    try:
        version = int(fields["format_version"])
        if version > FORMAT_VERSION:
            raise _bad(
                path,
                f"it has format version {version}, written by ndpp {fields.get('ndpp_version', '?')}; this ndpp knows "
                f"versions up to {FORMAT_VERSION}. Upgrade with: pip install -U ndpp",
            )
        if version < 1 or fields["parametrisation"] != "xw":
            raise ValueError(f"format_version {version}, parametrisation {fields['parametrisation']!r}")
        shards = tuple(Shard(str(name), int(n), int(crc)) for name, n, crc in json.loads(fields.get("shards", "[]")))
        if (version < 3 and bool(shards) != (version == 2)) or any(
            Path(shard.name).name != shard.name for shard in shards
        ):
            raise ValueError(f"format_version {version}, {len(shards)} shards")
        labels = json.loads(fields["labels"])
        return ModelHeader(
            format_version=version,
            ndpp_version=fields["ndpp_version"],
            parametrisation=fields["parametrisation"],
            n_items=int(fields["n_items"]),
            n_columns=int(fields["n_columns"]),
            labels=None if labels is None else tuple(labels),
            crc32=int(fields["crc32"]),
            metadata=dict(json.loads(fields["metadata"])),
            shards=shards,
        )
    except ModelFileError:
        raise
    except (KeyError, ValueError, TypeError) as reason:
        raise _bad(path, f"its header is damaged: {type(reason).__name__} {reason}. Copy it again") from None


def _bad(path: str | os.PathLike[str], reason: str) -> ModelFileError:
    return ModelFileError(f"{str(path)!r} cannot be read as an ndpp model: {reason}.")


def _crc32(arrays: Mapping[str, Any]) -> int:
    crc = 0
    for name in sorted(arrays):
        array = arrays[name]
        crc = crc32(array, crc) if isinstance(array, Rows) else zlib.crc32(array.data, crc)
    return crc


def _json(value: Any, name: str) -> str:
    try:
        return json.dumps(value, default=plain, allow_nan=False)
    except (TypeError, ValueError) as reason:
        raise InvalidInputError(
            f"{name} must be plain JSON (text, finite numbers, lists, mappings): {reason}"
        ) from None
