"""Kernels and mixtures on disk: a safetensors file with arrays, and JSON metadata in its header.

A kernel ("xw") is X, W and, where they matter, support, weights and background. A mixture with shared ties ("tied") is its base, odds,
component_weights and perhaps log_normalizers; one over families ("families") has item_odds, families and states as well; any other mixture
("mixture") has the arrays of component c under names such as "0.X". The header carries ``format`` ("ndpp-kernel"), ``format_version``,
``parametrisation``, ``ndpp_version``, a CRC-32 of the arrays, the labels, the names of components, whatever the caller adds, such as the
training configuration, and a digest of all of this (:mod:`ndpp.laws.header`). Nothing is ever unpickled, and nothing outside the folder of
a model is read. A file is replaced whole or not at all.

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
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ndpp._atomic import disk_errors, replacing, replacing_folder
from ndpp._show import plain
from ndpp._types import AnyArray
from ndpp.errors import InvalidInputError
from ndpp.laws.families import FamilyMixture
from ndpp.laws.header import FORMAT, NO_DIGEST, ModelHeader, Shard, bad, parse, seal
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.mixture import Mixture
from ndpp.laws.shards import crc32, inside, open_shards, open_tensor, write_shards
from ndpp.laws.tied import TiedMixture
from ndpp.rows import Rows

INDEX = "kernel.safetensors"
"""The file of a folder that holds everything except X."""
DTYPES = {"F16", "F32", "F64", "I64"}
"""Types of arrays, as safetensors names them."""
KINDS: dict[str, type[LowRankKernel | Mixture]] = {
    kind.parametrisation: kind for kind in (LowRankKernel, Mixture, TiedMixture, FamilyMixture)
}
"""What the header calls each kind of distribution."""

_OTHER_FORMATS = {
    b"\x80": "it looks like a pickle, which is never loaded; save the kernel again with ndpp.save",
    b"PK": "it looks like a zip archive (.npz, .pt); load X and W with its own tool and build LowRankKernel(X, W)",
    b"\x93NUMPY": "it looks like a .npy file; load it with numpy and build LowRankKernel(X, W)",
    b"\x89HDF": "it looks like an HDF5 file",
    b"\x1f\x8b": "it looks like a gzip file; unpack it first",
}


def save(
    law: LowRankKernel | Mixture, path: str | os.PathLike[str], *, metadata: Mapping[str, Any] | None = None
) -> None:
    """Write a kernel or mixture, with its labels and support, to a safetensors file, or to a folder of them where X is not in memory.

    Parameters
    ----------
    law : LowRankKernel or Mixture
        The kernel or mixture. Arrays keep their precision.
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
    if not isinstance(law, (LowRankKernel, Mixture)):
        raise InvalidInputError(
            f"save takes a LowRankKernel or a Mixture; got {type(law).__name__}. A fitted model has `.kernel_` or `.law_`."
        )
    stored = {name: array for name, array in law._arrays().items() if array is not None}
    # safetensors writes memory as it is, so arrays must be in C order.
    arrays = {name: np.ascontiguousarray(array) for name, array in stored.items() if not isinstance(array, Rows)}
    if isinstance(X := stored.get("X"), Rows):
        with replacing_folder(path, INDEX) as folder, disk_errors(path):
            shards = write_shards(X, folder)
            _write(folder / INDEX, law, arrays, metadata, shards)
        return
    if Path(path).exists() and not Path(path).is_file():
        raise InvalidInputError(f"a model is saved to a plain file; {str(path)!r} is something else")
    _write(path, law, arrays, metadata)


def _write(
    path: str | os.PathLike[str],
    law: LowRankKernel | Mixture,
    arrays: Mapping[str, AnyArray],
    metadata: Mapping[str, Any] | None,
    shards: Sequence[Shard] = (),
) -> None:
    header = {
        "format": FORMAT,
        "format_version": str(max(law.format_version, 2 if shards else 1)),
        "ndpp_version": importlib.metadata.version("ndpp"),
        "parametrisation": law.parametrisation,
        "n_items": str(law.n_items),
        "n_columns": str(len(arrays["W" if "W" in arrays else "0.W"])),
        "labels": _json(law.labels, "labels"),
        "crc32": str(_crc32(arrays)),
        "digest": NO_DIGEST,
        "metadata": _json({} if metadata is None else dict(metadata), "metadata"),
    } | ({"shards": _json(shards, "shards")} if shards else {})
    if isinstance(law, Mixture):
        header |= {"n_components": str(len(law.weights)), "names": _json(law.names, "names")}
    if isinstance(law, FamilyMixture):
        header["n_families"] = str(law.base.n_items)
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
    with _open(path) as (file, header):
        kind = KINDS[header.parametrisation]
        wanted, optional = (_names(names, header) for names in kind.stored)
        wanted -= {"X"} if header.shards else set()
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
            arrays["X"] = open_tensor(path, "X")
        crc = _crc32(arrays)
        if header.shards:
            arrays["X"] = open_shards(Path(path), header.shards)
    except (OSError, InvalidInputError, ValueError, KeyError) as reason:
        raise bad(path, f"its X cannot be read: {reason}. Copy it again") from reason
    for name, n_rows in {"X": header.n_families or header.n_items, "W": header.n_columns}.items():
        shape = n_rows, header.n_columns
        if name in arrays and (arrays[name].shape != shape or arrays[name].dtype.kind != "f"):
            raise bad(path, f"{name} should be {shape} floats; it is {arrays[name].shape}, {arrays[name].dtype}")
    if crc != header.crc32:
        raise bad(path, "its arrays do not match their checksum; it is corrupt. Copy it again from where it came")
    try:
        return kind._from_arrays(arrays, header)
    except InvalidInputError as reason:
        raise bad(path, f"its arrays are no valid kernel: {reason}") from reason


def _names(names: set[str], header: ModelHeader) -> set[str]:
    """Return the names of arrays, with the number of each component in the place of {c}."""
    return {name.format(c=c) for name in names for c in range(header.n_components if "{c}" in name else 1)}


def load_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the metadata that :func:`save` was given, without reading the arrays."""
    return load_header(path).metadata


def load_header(path: str | os.PathLike[str]) -> ModelHeader:
    """Return the header of a model file, without reading the arrays."""
    with _open(path) as (_, header):
        return header


@contextmanager
def _open(path: str | os.PathLike[str]) -> Iterator[tuple[Any, ModelHeader]]:
    name = path
    if not Path(path).exists():
        raise FileNotFoundError(f"no model file at {str(path)!r}")
    if (Path(path) / INDEX).is_file():
        if not inside(Path(path), INDEX):
            raise bad(path, f"its {INDEX} is a link to another folder")
        path = Path(path) / INDEX
    if not Path(path).is_file():
        raise bad(path, "it is not a plain file")
    if not Path(path).stat().st_size:
        raise bad(path, "it is empty; the copy or download that made it failed")
    try:
        with safe_open(path, framework="np") as file:
            yield file, parse(path, name)
    except SafetensorError as reason:
        with open(path, "rb") as raw:
            start = raw.read(8)
        hint = next((hint for magic, hint in _OTHER_FORMATS.items() if start.startswith(magic)), None)
        raise bad(path, hint or f"it is truncated, corrupt or of another kind ({reason}). Copy it again") from None


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
