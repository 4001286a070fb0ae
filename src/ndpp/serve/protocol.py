"""uvicorn's protocol, with patience: a connection that brings no complete request within some seconds is closed."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ndpp.serve.limits import HEADER_SECONDS


class PatientProtocol(HttpToolsProtocol):
    """Looks every few seconds whether a request has come since the last time, or is under way."""

    _seen: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._look_later()

    def _look_later(self) -> None:
        self._seen = self.cycle
        self.loop.call_later(HEADER_SECONDS, self._look)

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self.cycle is self._seen:
            self.transport.close()
        else:
            self._look_later()
