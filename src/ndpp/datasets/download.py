"""Downloads that are either whole and right, or an error that says what to do.

The bytes go to NAME.part in the target's folder and take the name of the target in one step, once their checksum is
right. What an interrupted download left behind is continued where the server allows it (HTTP ranges): the checksum of
the whole tells whether the pieces fit. A second process that fetches the same file waits for the first, at NAME.lock.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRandom, BufferedReader, BufferedWriter
from pathlib import Path, PureWindowsPath
from typing import Any
from urllib.parse import unquote, urlsplit

from ndpp._files import move
from ndpp.errors import DataNotFoundError, InvalidInputError

fcntl: Any
msvcrt: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
try:
    import msvcrt
except ImportError:
    msvcrt = None

BLOCK = 2**20
"""Bytes read at a time."""
TIMEOUT = 60.0
"""Seconds that a server may stay silent."""
WAIT = 0.1
"""Seconds between two looks at a lock, where the system cannot wait for it."""
CALL_AGAIN = "Call again: the download goes on from there."


def cache_folder() -> Path:
    """Return the folder in which downloads are kept: ``$XDG_CACHE_HOME/ndpp``, or ``~/.cache/ndpp``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ndpp"


def fetch(url: str, *, sha256: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of a file downloaded from ``url``; one that is there already, with the right checksum, is kept.

    Parameters
    ----------
    url : str
        An http or https address; its last part names the file.
    sha256 : str
        Checksum that the file must have, in hexadecimal digits.
    folder : path, optional
        Where to keep it, created if need be; :func:`cache_folder` by default.

    Raises
    ------
    DataNotFoundError
        The server refuses, cannot be reached, breaks off, or sends a file with another checksum.
    OSError
        The file cannot be written; the disk may be full.
    """
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    if urlsplit(url).scheme not in ("http", "https") or name in ("", ".", "..") or _is_path(name):
        raise InvalidInputError(f"url must be an http or https address that ends in the name of a file; got {url!r}")
    sha256 = sha256.lower()
    target = (cache_folder() if folder is None else Path(folder)) / name
    if _is_right(target, sha256):
        return target
    with _disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(target.with_name(name + ".lock")):
            if not _is_right(target, sha256):  # a process that went before may have fetched it
                unfinished = target.with_name(name + ".part")
                with open(unfinished, "ab+") as part:
                    _complete(part, url, sha256)
                move(unfinished, target, target)
    return target


def _is_path(name: str) -> bool:
    """Return whether a name would lead to another folder, or drive, on some system."""
    return PureWindowsPath(name).name != name


def _complete(part: BufferedRandom, url: str, sha256: str) -> None:
    """Download what is missing in ``part``; on return it is on disk and has this checksum."""
    have = part.seek(0, os.SEEK_END)
    _append(part, url, have)
    found = _checksum(part)
    if have and found != sha256:  # the pieces do not fit
        part.truncate(0)
        _append(part, url, 0)
        found = _checksum(part)
    if found != sha256:
        part.truncate(0)
        raise DataNotFoundError(
            f"{url} has the SHA-256 checksum {found}; expected {sha256}. It was changed, or damaged on its way and was "
            "not kept. Call again; if the checksum stays the same, the server's file has changed."
        )


def _append(part: BufferedRandom, url: str, have: int) -> None:
    """Add to ``part`` what follows its first ``have`` bytes, or all of the file if the server does not send parts."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    received, expected = 0, None
    with _network_errors(url, resumed=have > 0), urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        if response.status != 206:
            part.truncate(0)
        expected = response.headers.get("Content-Length")
        while block := response.read(BLOCK):
            part.write(block)
            received += len(block)
    part.flush()
    os.fsync(part.fileno())
    if expected is not None and received < int(expected):
        raise DataNotFoundError(f"{url} broke off after {received} of {expected} bytes. {CALL_AGAIN}")


def _checksum(file: BufferedRandom | BufferedReader) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()


def _is_right(path: Path, sha256: str) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return _checksum(file) == sha256


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until no other process or thread is in here with this path, which names a file while one is."""
    try:
        while True:
            with open(path, "ab") as file:
                _lock(file)
                if not _is_at(file, path):  # the one before has removed it
                    continue
                try:
                    yield
                finally:
                    if fcntl is not None:
                        path.unlink(missing_ok=True)
                return
    finally:
        if fcntl is None:  # Windows removes no file that is open; if another one waits, the file is left to that
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _lock(file: BufferedWriter) -> None:
    """Wait for the lock of a file, which is released when the file is closed."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)
    while msvcrt is not None:
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            return
        except PermissionError:
            time.sleep(WAIT)


def _is_at(file: BufferedWriter, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def _network_errors(url: str, *, resumed: bool) -> Iterator[None]:
    by_hand = f"Call again later, or download {url} by hand and pass its path to the loader."
    try:
        yield
    except urllib.error.HTTPError as reason:
        if resumed and reason.code == 416:
            return  # nothing follows what is there; the checksum tells whether it is the file
        raise DataNotFoundError(f"the server answered {reason.code} ({reason.reason}) for {url}. {by_hand}") from None
    except urllib.error.URLError as reason:
        raise DataNotFoundError(f"cannot reach {url}: {reason.reason}. Is there a network? {by_hand}") from None
    except (TimeoutError, ConnectionError, http.client.HTTPException) as reason:
        raise DataNotFoundError(f"{url} broke off: {reason or type(reason).__name__}. {CALL_AGAIN}") from None


@contextmanager
def _disk_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except DataNotFoundError:
        raise
    except OSError as reason:
        advice = "Name a folder= that can be written to."
        if reason.errno in (errno.ENOSPC, errno.EDQUOT):
            with contextlib.suppress(OSError):
                os.truncate(target.with_name(target.name + ".part"), 0)
            advice = "The disk is full: make room, or name another folder=."
        raise OSError(reason.errno, f"cannot write {str(target)!r}: {reason.strerror or reason}. {advice}") from None
