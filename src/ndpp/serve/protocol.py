"""uvicorn's protocol, with patience and without delay.

A connection that brings no complete request within some seconds is closed. Answers go out at once: asyncio does not switch Nagle's
algorithm off for sockets made by hand, and with it the body of each answer waits some 40 ms for the client to acknowledge the headers.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ndpp.serve.limits import HEADER_SECONDS


class PatientProtocol(HttpToolsProtocol):
    """Looks every few seconds whether a request has come since the last time, or is under way."""

    _seen: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
