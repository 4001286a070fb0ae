"""The model being served. A replaced file is loaded beside it and takes its place in one step; requests under way keep the old one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from ndpp.errors import NDPPError
from ndpp.serve.logs import event
from ndpp.serve.model import Served, Stamp

WATCH_SECONDS = 0.25
"""Time between two looks at the file."""


class Holder:
    """Holds the current model of a file.

    Parameters
    ----------
    path : Path
        The model file, or a folder of shards.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp = Stamp.of(path)  # before loading: what is written meanwhile is noticed
        self.current = Served.load(path)

    async def watch(self, changed: Callable[[bool], None]) -> None:
        """Look at the file for ever; ``changed`` is told whether a new version was loaded, or refused."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                stamp = Stamp.of(self.path)
            except OSError:  # between two versions there may be none; the old one goes on
                continue
            if stamp == self._stamp:
                continue
            self._stamp = stamp
            try:
                self.current = await asyncio.to_thread(Served.load, self.path)
            except (NDPPError, OSError) as error:
                event("model refused", level=logging.ERROR, path=str(self.path), reason=str(error))
                changed(False)
            else:
                event("model replaced", path=str(self.path), checksum=self.current.checksum)
                changed(True)
