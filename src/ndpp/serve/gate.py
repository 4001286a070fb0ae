"""What every request passes first: its host, its token, the size and speed of its body. And what every answer carries: headers of
security, a line in the log, a count.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import ipaddress
import logging
import secrets
import time
from pathlib import Path

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ndpp.errors import InvalidInputError
from ndpp.serve import problems
from ndpp.serve.limits import BODY_BYTES, BODY_SECONDS, DISCARD_SECONDS, SEND_SECONDS
from ndpp.serve.operations import Metrics, event

OPEN = ("/health", "/ready")
"""Paths that answer without a token."""
METHODS = ("GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH")
"""Methods that are counted by name."""
LEAST_TOKEN = 16
"""Fewest characters of a token."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; img-src 'self' data:"
)
"""What an answer may load, images last."""
SECURITY = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]  # fmt: skip


def read_token(path: Path) -> str:
    """Return the token that a file holds."""
    token = path.read_text(encoding="utf-8").strip()
    if len(token) < LEAST_TOKEN or not token.isprintable() or " " in token:
        raise InvalidInputError(
            f"{str(path)!r} must hold one token of at least {LEAST_TOKEN} characters without spaces. "
            "Make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return token


class Guard:
    """Who may ask: anyone who knows the token; without one, anyone who reaches the server by its address."""

    def __init__(self, token: str | None, host: str) -> None:
        self._digest = None if token is None else _digest(token.encode())
        self._hosts = {"localhost", host.lower()}

    def refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that may not pass."""
        for single in ("Host", "Authorization"):
            if sum(name == single.lower().encode() for name, _ in scope["headers"]) > 1:
                return problems.reply(problems.of_status(400, f"a request has one {single} header"))
        if scope["path"] in OPEN:
            return None
        headers = dict(scope["headers"])
        if self._digest is None:
            host = headers.get(b"host", b"").decode("latin-1").lower()
            if self._is_known(host):
                return None
            # A web page could reach a server without a token by a name that it makes resolve to this machine.
            detail = f"without a token the server answers by its address or as localhost, not as {host!r}; start it with --token-file"
            return problems.reply(problems.document(421, "misdirected", "Misdirected Request", detail))
        if hmac.compare_digest(_digest(_offered(headers.get(b"authorization", b""))), self._digest):
            return None
        refused = problems.reply(problems.of_status(401, "this server asks for its token: Authorization: Bearer …"))
        refused.headers.append("www-authenticate", 'Bearer realm="ndpp"')
        refused.headers.append("www-authenticate", 'Basic realm="ndpp", charset="UTF-8"')
        return refused

    def _is_known(self, host: str) -> bool:
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()


def _offered(header: bytes) -> bytes:
    """Return the token of an Authorization header: the bearer's, or the password that a browser asks for."""
    scheme, _, value = header.partition(b" ")
    if scheme.lower() == b"basic":
        try:
            return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return value.strip() if scheme.lower() == b"bearer" else b""


class StalledError(OSError):
    """A client that does not read its answer."""


class Entrance:
    """The outermost application."""

    def __init__(self, app: ASGIApp, guard: Guard, metrics: Metrics) -> None:
        self.app, self.guard, self.metrics = app, guard, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, name = time.perf_counter(), problems.CLIENT_GONE, secrets.token_hex(8)

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {key for key, _ in message["headers"]}
                extra = [(b"x-request-id", name.encode()), *SECURITY, (b"cache-control", b"no-store")]
                message["headers"] = [*message["headers"], *(pair for pair in extra if pair[0] not in own)]
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    await send(message)
            except TimeoutError:
                raise StalledError from None

        try:
            refused = self.guard.refusal(scope)
            if refused is None:
                refused = await self._pass(scope, receive, send_guarded)
            if refused is not None:
                refused.headers["connection"] = "close"
                if refused.status_code != 408:
                    await _discard(scope, receive)
                await refused(scope, receive, send_guarded)
        except StalledError:
            status = problems.CLIENT_GONE
            if "ndpp.abort" in scope:
                scope["ndpp.abort"]()
            await asyncio.sleep(0)  # now the server knows that nobody listens
        except Exception:
            status = 500
            raise
        finally:
            self._note(scope, status, name, time.perf_counter() - began)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """Read the body, and have the request answered; return the answer to one whose body is no good."""
        if scope["method"] in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return None
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _read(scope, receive)
        except TimeoutError:
            detail = f"the request did not arrive within {BODY_SECONDS:g} seconds"
            return problems.reply(problems.document(408, "slow-request", "Request Timeout", detail))
        except ClientDisconnect:
            return None
        if body is None:
            detail = f"a request may have {BODY_BYTES:,} bytes; send less at a time"
            return problems.reply(problems.document(413, "too-large", "Content Too Large", detail))
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Message:
            return messages.pop() if messages else await receive()

        await self.app(scope, receive_again, send)
        return None

    def _note(self, scope: Scope, status: int, name: str, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.requests.labels(route, method, str(status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        if route not in (*OPEN, "/metrics"):
            level = logging.ERROR if status == 500 else logging.INFO
            client = (scope.get("client") or ("",))[0]
            fields = {"method": method, "path": scope["path"][:200], "status": status, "ms": round(1e3 * seconds, 1)}
            chosen = {"model": scope["ndpp.model"]} if "ndpp.model" in scope else {}
            event("request", level=level, **fields, **chosen, client=client, id=name)


async def _discard(scope: Scope, receive: Receive) -> None:
    """Read the rest of a body, within limits: closing a connection with unread bytes resets it, and the answer is lost."""
    size = 0
    with contextlib.suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(DISCARD_SECONDS):
            async for part in Request(scope, receive).stream():
                size += len(part)
                if size > 2 * BODY_BYTES:
                    return


async def _read(scope: Scope, receive: Receive) -> bytes | None:
    """Return the body, or None if it is too large."""
    length = dict(scope["headers"]).get(b"content-length", b"0")
    if not length.isdigit() or int(length) > BODY_BYTES:
        return None
    body = bytearray()
    async for part in Request(scope, receive).stream():
        body += part
        if len(body) > BODY_BYTES:
            return None
    return bytes(body)
