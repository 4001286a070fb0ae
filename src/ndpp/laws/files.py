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
from ndpp._json import plain
from ndpp._types import AnyArray
from ndpp.errors import InvalidInputError
from ndpp.laws.families import FamilyMixture
from ndpp.laws.header import FORMAT, NO_DIGEST, ModelHeader, Shard, bad, parse, seal
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.mixture import Mixture
from ndpp.laws.shards import crc32, inside, open_shards, open_tensor, write_shards
from ndpp.laws.shared import SharedTies
from ndpp.laws.tied import TiedMixture
from ndpp.linalg import entry_magnitudes
from ndpp.rows import Rows

INDEX = "kernel.safetensors"
"""The file of a folder that holds everything except X."""
DTYPES = {"F16", "F32", "F64", "I64"}
"""Types of arrays, as safetensors names them."""
IMPLAUSIBLE = 1e30
"""Weights this much larger than the entries of W are no magnitudes of terms that these are sums of: rounding would have left more."""

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
    X, arrays = _arrays(law)
    if isinstance(X, Rows):
        with replacing_folder(path, INDEX) as folder, disk_errors(path):
            shards = write_shards(X, folder)
            _write(folder / INDEX, law, arrays, metadata, shards)
        return
    if Path(path).exists() and not Path(path).is_file():
        raise InvalidInputError(f"a model is saved to a plain file; {str(path)!r} is something else")
    _write(path, law, arrays, metadata)


def _arrays(law: LowRankKernel | Mixture) -> tuple[Any, dict[str, AnyArray]]:
    """Return X if it is not in memory, and all arrays that are."""
    if isinstance(law, SharedTies):
        X, arrays = _arrays(law.base)
        del arrays["background"]  # all ones
        own: dict[str, Any] = {"odds": law.odds, "component_weights": law.weights}
        if isinstance(law, TiedMixture):
            own |= {"log_normalizers": law.known}
        if isinstance(law, FamilyMixture):
            own |= {"item_odds": law.patterns.odds, "families": law.patterns.families, "states": law.patterns.states}
        return X, arrays | {name: np.ascontiguousarray(array) for name, array in own.items() if array is not None}
    if isinstance(law, Mixture):
        arrays = {"component_weights": np.ascontiguousarray(law.weights)}
        for c, kernel in enumerate(law.components):
            X, own = _arrays(kernel)
            own |= {} if X is None else {"X": X.read()}
            arrays |= {f"{c}.{name}": array for name, array in own.items()}
        return None, arrays
    # safetensors writes memory as it is, so arrays must be in C order.
    arrays = {"W": np.ascontiguousarray(law.W)}
    if law.n_rows < law.n_items:
        arrays["support"] = np.ascontiguousarray(law.support)
    if not np.array_equal(law._magnitudes, entry_magnitudes(np.asarray(law.W, np.float64))):
        arrays["weights"] = np.ascontiguousarray(law._magnitudes)  # those of a conditional are those of its origin
    if law.background is not None:
        arrays["background"] = np.ascontiguousarray(law.background)
    if isinstance(law.X, Rows):
        return law.X, arrays
    return None, {"X": np.ascontiguousarray(law.X), **arrays}


def _write(
    path: str | os.PathLike[str],
    law: LowRankKernel | Mixture,
    arrays: Mapping[str, AnyArray],
    metadata: Mapping[str, Any] | None,
    shards: Sequence[Shard] = (),
) -> None:
    is_tied, has_families = isinstance(law, TiedMixture), isinstance(law, FamilyMixture)
    kernel = law if isinstance(law, LowRankKernel) else getattr(law, "base", None) or law.components[0]
    plain_kernel = isinstance(law, LowRankKernel) and law.background is None
    header = {
        "format": FORMAT,
        "format_version": "4" if has_families else "3" if not plain_kernel else "2" if shards else "1",
        "ndpp_version": importlib.metadata.version("ndpp"),
        "parametrisation": "xw" if law is kernel else "tied" if is_tied else "families" if has_families else "mixture",
        "n_items": str(law.n_items),
        "n_columns": str(kernel.X.shape[1]),
        "labels": _json(law.labels, "labels"),
        "crc32": str(_crc32(arrays)),
        "digest": NO_DIGEST,
        "metadata": _json({} if metadata is None else dict(metadata), "metadata"),
    } | ({"shards": _json(shards, "shards")} if shards else {})
    if isinstance(law, Mixture):
        header |= {"n_components": str(len(law.weights)), "names": _json(law.names, "names")}
        header |= {"n_families": str(kernel.n_items)} if has_families else {}
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
        wanted, optional = _names(header)
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
        return _law(header, arrays)
    except InvalidInputError as reason:
        raise bad(path, f"its arrays are no valid kernel: {reason}") from reason


def _names(header: ModelHeader) -> tuple[set[str], set[str]]:
    """Return which arrays a file must hold, and which others it may."""
    wanted = {"W"} if header.shards else {"X", "W"}
    if header.parametrisation == "xw":
        return wanted, {"support", "weights", "background"}
    if header.parametrisation == "tied":
        return wanted | {"odds", "component_weights"}, {"support", "weights", "log_normalizers"}
    if header.parametrisation == "families":
        return wanted | {"odds", "component_weights", "item_odds", "families", "states"}, {"weights"}
    each = range(header.n_components)
    wanted = {f"{c}.{name}" for c in each for name in ("X", "W")} | {"component_weights"}
    return wanted, {f"{c}.{name}" for c in each for name in ("support", "weights", "background")}


def _law(header: ModelHeader, arrays: dict[str, Any]) -> LowRankKernel | Mixture:
    if header.parametrisation == "xw":
        return _kernel(arrays, header)
    weights = arrays.pop("component_weights")
    if header.parametrisation == "tied":
        odds, known = arrays.pop("odds"), arrays.pop("log_normalizers", None)
        base = _kernel({**arrays, "background": np.ones(header.n_items)}, header)
        return TiedMixture(odds, base, weights, names=header.names, log_normalizers=known)
    if header.parametrisation == "families":
        magnitudes = arrays.pop("weights", None)
        return FamilyMixture(**arrays, weights=weights, magnitudes=magnitudes, names=header.names, labels=header.labels)
    parts: list[dict[str, Any]] = [{} for _ in range(header.n_components)]
    for name, array in arrays.items():
        c, _, own = name.partition(".")
        parts[int(c)][own] = array
    return Mixture([_kernel(part, header) for part in parts], weights, names=header.names)


def _kernel(arrays: dict[str, Any], header: ModelHeader) -> LowRankKernel:
    weights = arrays.get("weights")
    if weights is not None and weights.shape == (header.n_columns,):
        W = np.asarray(arrays["W"], np.float64)
        too_large = (weights > IMPLAUSIBLE * entry_magnitudes(W)) & (W.any(axis=0) | W.any(axis=1))
        if too_large.any() or not (weights > 0).all():
            raise InvalidInputError("its weights are not those of any kernel that W can have come from")
    arrays = {"magnitudes" if name == "weights" else name: array for name, array in arrays.items()}
    return LowRankKernel(**arrays, labels=header.labels)


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
