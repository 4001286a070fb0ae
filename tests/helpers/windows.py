"""Windows as far as files go, on Linux: no ``pread``, and what is open or mapped is not replaced or removed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from ndpp import _atomic


def in_use(path: str | os.PathLike[str]) -> bool:
    """Return whether this process has the file, or one in the folder, open or mapped."""
    held = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            held.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:  # that of the listing itself
            continue
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    held += [line.split(maxsplit=5)[5] for line in maps if "/" in line]
    name = os.path.realpath(path)
    return any(file == name or file.startswith(name + "/") for file in held)


def refusing(true: Any) -> Any:
    """Return a function of ``os`` that refuses paths in use, as Windows does."""

    def careful(*paths: Any, **options: Any) -> None:
        if "dir_fd" not in options and any(map(in_use, paths)):
            raise PermissionError(errno.EACCES, "The process cannot access the file", str(paths[0]))
        true(*paths, **options)

    return careful


def imitate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process meet files as it would on Windows."""
    monkeypatch.delattr(os, "pread")
    for name in ("replace", "rename", "unlink", "remove"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    monkeypatch.setattr(_atomic, "WINDOWS", True)
    monkeypatch.setattr(_atomic, "PAUSES", ())
