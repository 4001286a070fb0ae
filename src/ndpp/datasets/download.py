"""Downloads with verified checksums, by pooch.

pooch downloads to a temporary file in the target's folder, and renames it once its checksum is verified.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from urllib.parse import unquote, urlsplit

from ndpp.errors import DataNotFoundError, InvalidInputError, needing

TIMEOUT = 60.0
"""Seconds to wait for the server."""


def cache_folder() -> Path:
    """Return the folder for downloads: ``$XDG_CACHE_HOME/ndpp``, or ``~/.cache/ndpp``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ndpp"


def fetch(url: str, *, sha256: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """Download a file unless ``folder`` already has it, with the right checksum, and return its path.

    The file has the last part of ``url`` as its name; ``folder`` is :func:`cache_folder` by default, and created if
    necessary. Raises :class:`~ndpp.errors.DataNotFoundError` if the server cannot be reached, refuses, or sends a file
    with a different checksum, and OSError if the file cannot be written.
    """
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    if urlsplit(url).scheme not in ("http", "https") or name in ("", ".", "..") or PureWindowsPath(name).name != name:
        raise InvalidInputError(
            f"must be an http or https address that ends in a file name; got {url!r}", argument="url"
        )
    target = (cache_folder() if folder is None else Path(folder)) / name
    with needing("pooch", "data", "Downloading a data set"):
        import pooch
        import requests
    by_hand = "Try again later, or download it by hand and pass its path to the loader."
    try:
        with _quiet(pooch.get_logger()):
            downloader = pooch.HTTPDownloader(timeout=TIMEOUT, chunk_size=2**20)
            pooch.retrieve(url, f"sha256:{sha256}", fname=name, path=target.parent, downloader=downloader)
    except requests.HTTPError as reason:
        answer = f"{reason.response.status_code} ({reason.response.reason})"
        raise DataNotFoundError(f"the server answered {answer} for {url}", advice=by_hand) from None
    except requests.RequestException as reason:
        raise DataNotFoundError(f"{url} could not be fetched: {reason}. Is there a network?", advice=by_hand) from None
    except ValueError as reason:  # a different checksum
        raise DataNotFoundError(
            f"{url}: {reason}", advice="Try again; if the checksum stays the same, the server's file has changed."
        ) from None
    except OSError as reason:
        full = reason.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "The disk is full: make room, or name another" if full else "Name a"
        raise OSError(
            reason.errno,
            f"cannot write {str(target)!r}: {reason.strerror or reason}. {advice} folder= that can be written to.",
        ) from None
    return target


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Silence pooch's announcements."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
