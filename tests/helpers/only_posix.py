"""What only POSIX systems can do: tests that need it are skipped on Windows, with the reason."""

from __future__ import annotations

import signal
import sys

import pytest

WINDOWS = sys.platform == "win32"
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
"""Ends a process at once; on Windows ``os.kill`` does so with any signal."""


def needs(what: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test on Windows, which has no such thing."""
    return pytest.mark.skipif(WINDOWS, reason=f"Windows has no {what}")


signals = needs("SIGINT for a single other process")
shell = needs("POSIX shell")
terminal = needs("pseudo-terminal")
limits = needs("resource limits")
modes = needs("permissions of owner, group and others")
open_files = needs("way to cut or remove files that are mapped")
