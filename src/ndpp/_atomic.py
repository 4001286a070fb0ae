"""Files are replaced whole or not at all, and have one writer at a time."""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import secrets
import shutil
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from safetensors import SafetensorError

from ndpp.errors import BusyFileError, OtherSettingsError

WINDOWS = sys.platform == "win32"
"""Windows cannot replace open files, and the only permission of a file is a read-only flag."""
HOST = f"{zlib.crc32(platform.node().encode()):08x}"[:4]
"""Tells machines that share a disk apart."""
FULL = errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)
"""What a full disk, a quota or a limit on files says, often without the name of the file."""
PAUSES = (0.01, 0.05, 0.1, 0.3, 0.5)
"""Seconds between attempts to replace a file on Windows, where a virus scanner may briefly keep a new file open."""


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path to write to. It replaces ``path`` on success and is removed on failure.

    A target that is not a plain file (a pipe, ``/dev/stdout``) has no content to lose and is yielded itself.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"expected the path of a file to write; {str(path)!r} is a folder")
    if target.exists() and not target.is_file():
        yield target
        return
    sweep(target)
    temporary = _created(target, path)
    try:
        mode = (target if target.exists() else temporary).stat().st_mode
        yield temporary
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        if not WINDOWS:
            temporary.chmod(mode & 0o7777)  # some writers create a new file in place of the temporary one
        move(temporary, target, target)
    except OSError as reason:
        if reason.errno is None or reason.errno not in FULL:
            raise
        raise OSError(reason.errno, f"{os.strerror(reason.errno)}, so nothing was written", str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically, in UTF-8 with line feeds."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise if no file can be created next to ``path``, which itself does not appear for a moment either."""
    _created(Path(os.path.realpath(path)), path).unlink(missing_ok=True)


def _created(target: Path, path: str | os.PathLike[str]) -> Path:
    """Return a new, empty file next to ``target``; errors name ``path``."""
    temporary = _beside(target, "tmp")
    try:
        temporary.touch(exist_ok=False)
    except OSError as reason:
        raise OSError(reason.errno, reason.strerror, str(path)) from None
    return temporary


def _beside(target: Path, end: str) -> Path:
    """Return a hidden path next to ``target`` that names this machine and process, so that others see whether it is still in use."""
    return target.with_name(f".{target.name}.{HOST}-{os.getpid()}-{secrets.token_hex(3)}.{end}")


def sweep(target: Path) -> None:
    """Remove what killed processes of this machine left next to ``target``, and next to temporary files of it; a folder that one had moved
    away is moved back.
    """
    if not target.parent.is_dir():
        raise FileNotFoundError(f"no folder {str(target.parent)!r} to write {target.name!r} in; create it first")
    name = rf"\.{re.escape(target.name)}\.{HOST}-(\d+)-[0-9a-f]{{6}}\."
    pattern = re.compile(rf"{name}(tmp|old)|\.{name}tmp\..+")
    for entry in [] if WINDOWS else [path for path in target.parent.iterdir() if path.name.startswith(".")]:
        found = pattern.fullmatch(entry.name)
        if found is None or _is_alive(int(found[1] or found[3])):
            continue
        with suppress(OSError):  # another process may sweep, too
            if found[2] == "old" and not target.exists():
                os.rename(entry, target)
            elif entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    return True


def move(source: Path, target: Path, name: Path) -> None:
    """Rename a file or folder; a file replaces the target. On Windows, try again while one of them is open.

    ``name`` is the path that the error message gives.
    """
    for pause in (*PAUSES, None):
        try:
            return os.replace(source, target)
        except PermissionError as reason:
            if not WINDOWS:
                raise
            if pause is None:
                raise PermissionError(
                    f"{str(name)!r} cannot be replaced: it is read-only, or in use by another program or by a kernel whose X "
                    f"is read from it ({reason.strerror})"
                ) from None
            time.sleep(pause)


@contextmanager
def disk_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn the errors of safetensors about a full or broken disk into an OSError."""
    try:
        yield
    except SafetensorError as reason:
        raise OSError(f"could not write {str(path)!r}: {reason}") from None


@contextmanager
def replacing_folder(path: str | os.PathLike[str], mark: str) -> Iterator[Path]:
    """Yield a temporary folder to fill. It replaces ``path`` on success and is removed on failure.

    An existing folder is replaced only if it holds a file ``mark``, which shows that an earlier call wrote it.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not (target / mark).is_file():
        raise FileExistsError(
            f"{str(path)!r} exists and is not a folder with a {mark!r}; remove it or choose another name"
        )
    sweep(target)
    temporary, old = _beside(target, "tmp"), _beside(target, "old")
    try:
        temporary.mkdir()
        yield temporary
        if target.exists():
            move(target, old, target)
        move(temporary, target, target)
    finally:
        if old.exists() and not target.exists():
            move(old, target, target)
        for rest in (temporary, old):
            shutil.rmtree(rest, ignore_errors=True)


def part_path(target: str | os.PathLike[str]) -> Path:
    """Return where unfinished results for ``target`` are kept. The suffix is one that no other program uses."""
    real = Path(os.path.realpath(target))
    return real.with_name(real.name + ".ndpp-part")


def check_same(path: str | os.PathLike[str], then: Mapping[str, object], now: Mapping[str, object]) -> None:
    """Raise unless ``path`` was made with the same settings, ``then`` and ``now``: otherwise a resumed run would differ."""
    for name, value in json.loads(json.dumps({**dict.fromkeys(then), **now})).items():
        if then.get(name) != value:
            raise OtherSettingsError(os.fspath(path), name, then.get(name), value)


@contextmanager
def one_writer(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the right to write ``path``; raise :class:`BusyFileError` if another process holds it.

    The right is a lock on a hidden file next to ``path``. The system releases it when the process ends, even if it is killed.
    """
    target = Path(os.path.realpath(path))
    lock = target.with_name(f".{target.name}.ndpp-lock")
    while True:
        file = open(lock, "ab")  # noqa: SIM115  it stays open as long as the lock is held
        if not _lock(file):
            file.close()
            raise BusyFileError(os.fspath(path))
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(lock)):
                break
        file.close()  # another process removed the file between opening and locking it
    try:
        yield
    finally:
        if not WINDOWS:
            lock.unlink(missing_ok=True)
        file.close()
        if WINDOWS:
            with suppress(OSError):  # another process may have opened it
                lock.unlink(missing_ok=True)


def _lock(file: IO[bytes]) -> bool:
    """Lock an open file and return True, or False if another process has locked it."""
    try:
        if WINDOWS:
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # neither module: no locks on this system
        return True
    except (BlockingIOError, PermissionError):
        return False
    except OSError as reason:
        if reason.errno in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):  # a file system without locks
            return True
        raise
    return True
