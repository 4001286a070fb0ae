"""Files are replaced whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path to write to; on success it takes the place of ``path``, on failure it goes away.

    A target that is not a plain file (a pipe, ``/dev/stdout``) has no old content to lose and is given as it is.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"expected the path of a file to write; {str(path)!r} is a folder")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"no folder {str(target.parent)!r} to write {target.name!r} in; create it first")
    if target.exists() and not target.is_file():
        yield target
        return
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.touch(exist_ok=False)
    except OSError as reason:  # nobody asked for a file of the temporary name
        raise OSError(reason.errno, reason.strerror, str(path)) from None
    try:
        mode = (target if target.exists() else temporary).stat().st_mode
        yield temporary
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        temporary.chmod(mode & 0o7777)  # some writers replace the temporary by one of their own
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def disk_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise what safetensors says of a disk, full or broken, as any other writer does."""
    try:
        yield
    except SafetensorError as reason:
        raise OSError(f"could not write {str(path)!r}: {reason}") from None


@contextmanager
def replacing_folder(path: str | os.PathLike[str], mark: str) -> Iterator[Path]:
    """Give a temporary folder to fill; on success it takes the place of ``path``, on failure it goes away.

    A folder that is there already is replaced only if it holds a file ``mark``: it was written by the same hand.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not (target / mark).is_file():
        raise FileExistsError(
            f"{str(path)!r} is there already and is no folder with a {mark!r}; remove it or choose another name"
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(f"no folder {str(target.parent)!r} to write {target.name!r} in; create it first")
    temporary, old = (target.with_name(f".{target.name}.{secrets.token_hex(4)}.{end}") for end in ("tmp", "old"))
    try:
        temporary.mkdir()
        yield temporary
        if target.exists():
            target.rename(old)
        temporary.rename(target)
    finally:
        if old.exists() and not target.exists():
            old.rename(target)
        for rest in (temporary, old):
            shutil.rmtree(rest, ignore_errors=True)
