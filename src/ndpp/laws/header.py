"""The header of a model file: opening one, what it says, and a digest that shows whether any of it has changed."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from safetensors import SafetensorError, safe_open

from ndpp.errors import InvalidInputError, ModelFileError, UncheckedModelWarning

FORMAT = "ndpp-kernel"
FORMAT_VERSION = 9
"""The newest version that this library reads: 1 for plain files, 2 for folders, 3 for mixtures, 4 for families, 5 for prepared ones, 6 for
distributions that leave out the empty set, 7 for weights that depend on context and for what features say about new items, 8 for mixtures
of any laws and for laws of other kinds, 9 for prepared ones with what lists need."""
PARAMETRISATIONS = ("xw",), ("xw", "tied", "mixture", "families")
"""Before version 3, and before version 8."""
FIELDS = {"format", "format_version", "ndpp_version", "parametrisation", "n_items", "n_columns", "labels", "crc32", "metadata", "shards",
          "n_components", "names"}  # fmt: skip
"""The fields of files without a digest."""
NO_DIGEST = "0" * 64
"""The digest of a file while it is computed."""
MAX_COUNT = 2**48
"""Upper bound on the numbers of items, columns and rows of a header; no file holds as many."""
INDEX = "kernel.safetensors"
"""The file of a folder that holds everything except X."""

_OTHER_FORMATS = {
    b"\x80": "it looks like a pickle, which is never loaded; save the kernel again with ndpp.save",
    b"PK": "it looks like a zip archive (.npz, .pt); load X and W with its own tool and build LowRankKernel(X, W)",
    b"\x93NUMPY": "it looks like a .npy file; load it with numpy and build LowRankKernel(X, W)",
    b"\x89HDF": "it looks like an HDF5 file",
    b"\x1f\x8b": "it looks like a gzip file; unpack it first",
}


class Shard(NamedTuple):
    """A file of the folder, the number of rows in it, and their CRC-32."""

    name: str
    n_rows: int
    crc32: int


class ModelHeader(NamedTuple):
    """The header of a model file."""

    format_version: int
    ndpp_version: str
    parametrisation: str
    n_items: int
    n_columns: int
    labels: tuple[str, ...] | None
    crc32: int
    metadata: dict[str, Any]
    shards: tuple[Shard, ...] = ()
    n_components: int = 1
    names: tuple[str, ...] | None = None
    n_families: int | None = None
    nonempty: bool = False
    context: dict[str, tuple[str, ...]] | None = None
    """Columns of context and their values."""
    components: tuple[ModelHeader, ...] = ()
    """Those of the components of a mixture that are not all kernels."""


@contextmanager
def open_model(path: str | os.PathLike[str]) -> Iterator[tuple[Any, ModelHeader]]:
    """Yield the open file and its checked header; raise if it is none, or a damaged one."""
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


def inside(folder: Path, name: str) -> bool:
    """Return whether the file ``name`` of a folder is there, and not a link to a file elsewhere."""
    return Path(os.path.realpath(folder / name)).parent == Path(os.path.realpath(folder))


def read_raw(path: str | os.PathLike[str]) -> tuple[dict[str, Any], int]:
    """Return the JSON at the beginning of a safetensors file, and the place of the first byte after it."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for its writer
        raise InvalidInputError(f"{str(path)!r} is not a plain file")
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > os.fstat(file.fileno()).st_size - 8:
            raise InvalidInputError(f"{str(path)!r} is truncated or not a safetensors file")
        found = _json(file.read(size))
    if not isinstance(found, dict):
        raise InvalidInputError(f"{str(path)!r} is not a safetensors file")
    return found, 8 + size


def seal(path: Path, **fields: str) -> None:
    """Sort the fields of a header in place, replace some of them and add the digest, so that equal kernels give equal files.

    safetensors writes the fields in random order.
    """
    header, end = read_raw(path)
    header["__metadata__"] = dict(sorted({**header["__metadata__"], **fields, "digest": NO_DIGEST}.items()))
    header["__metadata__"]["digest"] = digest(header)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    if len(text) <= end - 8:  # equal, since only the order has changed; spaces pad to a multiple of 8
        with open(path, "rb+") as file:
            file.seek(8)
            file.write(text.ljust(end - 8))


def digest(header: dict[str, Any]) -> str:
    """Return the SHA-256 of all that a header holds except the digest itself: fields, and names, types and places of the arrays."""
    fields = {name: value for name, value in header["__metadata__"].items() if name != "digest"}
    return hashlib.sha256(json.dumps({**header, "__metadata__": fields}, sort_keys=True).encode()).hexdigest()


def parse(path: str | os.PathLike[str], name: str | os.PathLike[str]) -> ModelHeader:
    """Return the checked header of the file at ``path``, which messages call ``name``."""
    raw, _ = read_raw(path)
    fields = raw.get("__metadata__") or {}
    if fields.get("format") != FORMAT:
        raise bad(name, "it is a safetensors file, but not one that ndpp.save wrote (no 'ndpp-kernel' in its header)")
    try:
        header = _parsed(fields, name, n_arrays=len(raw) - 1)
        if "digest" not in fields and not set(fields) <= FIELDS:
            raise ValueError(f"unknown fields {sorted(set(fields) - FIELDS)}")
    except (KeyError, ValueError, TypeError, OverflowError) as reason:
        if isinstance(reason, ModelFileError):
            raise
        raise bad(name, f"its header is damaged: {type(reason).__name__} {reason}. Copy it again") from None
    if "digest" not in fields:
        warnings.warn(
            f"{str(name)!r} was written by ndpp {header.ndpp_version}, without a digest: changes of its labels or metadata would not be "
            "noticed. Save it again to add one.",
            UncheckedModelWarning,
            stacklevel=4,
        )
    elif fields["digest"] != digest(raw):
        raise bad(name, "its header does not match its digest; it is corrupt. Copy it again from where it came")
    return header


def _parsed(fields: dict[str, str], path: str | os.PathLike[str], *, n_arrays: int) -> ModelHeader:
    version = int(fields["format_version"])
    if version > FORMAT_VERSION:
        raise bad(
            path,
            f"it has format version {version}, written by ndpp {fields.get('ndpp_version', '?')}; this ndpp knows "
            f"versions up to {FORMAT_VERSION}. Upgrade with: pip install -U ndpp",
        )
    if version < 1 or (version < 8 and fields["parametrisation"] not in PARAMETRISATIONS[version > 2]):
        raise ValueError(f"format_version {version}, parametrisation {fields['parametrisation']!r}")
    families = fields["parametrisation"] == "families"
    tied = families or fields["parametrisation"] == "tied"  # components are rows of one array
    shards = tuple(_shard(entry) for entry in _list(fields.get("shards", "[]"), "shards") or ())
    if version < 3 and bool(shards) != (version == 2):
        raise ValueError(f"format_version {version}, {len(shards)} shards")
    if "context" in fields and (version < 7 or fields["parametrisation"] == "xw"):
        raise ValueError(f"format_version {version}, parametrisation {fields['parametrisation']!r}, with context")
    header = ModelHeader(
        format_version=version,
        ndpp_version=fields["ndpp_version"],
        parametrisation=fields["parametrisation"],
        n_items=_count(fields["n_items"], "n_items"),
        n_columns=_count(fields["n_columns"], "n_columns"),
        labels=_words(fields["labels"], "labels"),
        crc32=int(fields["crc32"]),
        metadata=dict(_json(fields["metadata"])),
        shards=shards,
        n_components=_count(fields.get("n_components", "1"), "n_components", most=MAX_COUNT if tied else n_arrays),
        names=_words(fields.get("names", "null"), "names"),
        n_families=_count(fields["n_families"], "n_families") if families else None,
        nonempty=_flag(fields.get("nonempty", "False"), "nonempty"),
        context=_context(fields["context"]) if "context" in fields else None,
    )
    parts = _list(fields.get("components", "[]"), "components") or ()
    return header._replace(components=tuple(_component(part, header, n_arrays) for part in parts))


def _component(fields: object, header: ModelHeader, n_arrays: int) -> ModelHeader:
    """Return the header of one component of a mixture."""
    if not (isinstance(fields, dict) and all(isinstance(value, str) for value in fields.values())):
        raise ValueError(f"a component should have fields; one is {fields!r:.80}")
    shared = {
        "format_version": "8",
        "ndpp_version": header.ndpp_version,
        "n_items": str(header.n_items),
        "n_columns": "1",
    }
    plain = {"labels": "null", "crc32": "0", "metadata": "{}"}
    return _parsed({**shared, **plain, **fields}, "", n_arrays=n_arrays)._replace(labels=header.labels)


def _json(text: str | bytes) -> Any:
    """Return a value from JSON; a ValueError if it is none, has numbers that are not finite, or is nested too deep."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise InvalidInputError("JSON is nested too deep") from None


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _list(text: str, name: str) -> list[Any] | None:
    found = _json(text)
    if found is not None and not isinstance(found, list):
        raise ValueError(f"{name} should be a list")
    return found


def _words(text: str, name: str) -> tuple[str, ...] | None:
    found = _list(text, name)
    if found is not None and not all(isinstance(word, str) for word in found):
        raise ValueError(f"{name} should be a list of strings")
    return None if found is None else tuple(found)


def _context(text: str) -> dict[str, tuple[str, ...]]:
    found = _json(text)
    if not isinstance(found, dict):
        raise ValueError("context should be an object")
    return {name: _words(json.dumps(words), f"context {name!r:.80}") or () for name, words in found.items()}


def _count(text: str | int, name: str, *, most: int = MAX_COUNT) -> int:
    value = int(text)
    if not 0 < value <= most:
        raise ValueError(f"{name} is {value}")
    return value


def _flag(text: str, name: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError(f"{name} is {text!r:.80}")
    return text == "True"


def _shard(entry: object) -> Shard:
    if not (isinstance(entry, list) and list(map(type, entry)) == [str, int, int]):
        raise ValueError(f"a shard should be a name, a number of rows and a checksum; one is {entry!r:.80}")
    name, n_rows, crc = entry
    if Path(name).name != name or name in ("", "..") or "\0" in name:
        raise ValueError(f"a shard should be a file of the folder; one is {name!r:.80}")
    return Shard(name, _count(n_rows, "n_rows"), crc)


def bad(path: str | os.PathLike[str], reason: str) -> ModelFileError:
    """Return the error for a file that is not a model, or a damaged one."""
    return ModelFileError(f"{str(path)!r} cannot be read as an ndpp model: {reason}.")
