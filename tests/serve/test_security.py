"""Who may ask, and what a hostile client can do: nothing but wait for an error."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import select
import socket
from contextlib import ExitStack
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from ndpp.errors import InvalidInputError
from ndpp.serve import gate, run
from ndpp.serve.app import create_app
from ndpp.serve.gate import read_token
from ndpp.serve.model import Settings
from ndpp.serve.run import PatientProtocol
from patience import HANG_SECONDS, until
from servers import get, post, request, serving

TOKEN = "correct-horse-battery"
BASIC = base64.b64encode(f"anyone:{TOKEN}".encode()).decode()


@pytest.fixture(scope="module")
def guarded(model, tmp_path_factory):
    token = tmp_path_factory.mktemp("token") / "token.txt"
    token.write_text(TOKEN)
    with serving(create_app(Settings(model, token_file=token))) as url:
        yield url


@pytest.fixture(scope="module")
def places(guarded) -> list[tuple[str, str]]:
    """Every operation, and every file of the page."""
    found = get(f"{guarded}/openapi.json", headers={"authorization": f"Bearer {TOKEN}"}).json()["paths"]
    listed = [(method.upper(), path) for path, methods in found.items() for method in methods]
    assert ("POST", "/api/batch") in listed
    return [*listed, *(("GET", path) for path in ("/", "/docs", "/openapi.json", "/static/page.js", "/nothing"))]


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer wrong", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Token {TOKEN}", "Basic !!!", f"Basic {BASIC[:-8]}"],
)  # fmt: skip
def test_nothing_but_health_answers_without_the_token(guarded, places, header):
    for method, path in places:
        response = request(method, guarded + path, headers={"authorization": header}, json={})
        open_ = path in ("/health", "/ready")
        assert (response.status_code == 200) == open_, path
        if not open_:
            assert response.status_code == 401
            assert response.json()["type"] == "urn:ndpp:problem:unauthorized"
            assert [h.split()[0] for h in response.headers.get_list("www-authenticate")] == ["Bearer", "Basic"]


def test_one_function_compares_tokens_in_constant_time(guarded, places, monkeypatch):
    """It is given two digests, as long as each other, whatever the header; and its word decides."""
    seen: list[tuple[bytes, bytes]] = []
    says = False

    def compare(a: bytes, b: bytes) -> bool:
        seen.append((a, b))
        return says

    monkeypatch.setattr(gate.hmac, "compare_digest", compare)
    headers = [
        b"Bearer " + TOKEN.encode(),
        b"Bearer x",
        b"Bearer " + b"x" * 10_000,
        b"Bearer \xff\xc3\xa4",
        b"Basic " + BASIC.encode(),
        b"",
    ]
    for method, path in places:
        for header in [{"authorization": header} for header in headers] + [{}]:
            seen.clear()
            says = False
            refused = request(method, guarded + path, headers=header, json={})
            open_ = path in ("/health", "/ready")
            assert (refused.status_code == 401, len(seen)) == (not open_, int(not open_)), (path, header)
            assert all(len(a) == len(b) == 32 and b == hashlib.sha256(TOKEN.encode()).digest() for a, b in seen)
    says = True
    assert get(f"{guarded}/api/model", headers={"authorization": "Bearer x"}).status_code == 200


def test_a_request_has_one_authorization(guarded, places):
    for method, path in places:
        for values in ([TOKEN, TOKEN], ["x", TOKEN], [TOKEN, "x"]):
            headers = [("authorization", f"Bearer {value}") for value in values]
            refused = request(method, guarded + path, headers=headers, json={})
            assert refused.status_code == 400, path
            assert refused.json()["detail"] == "a request has one Authorization header"


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer  {TOKEN}", f"Basic {BASIC}"])
def test_the_token_opens_everything(guarded, header):
    headers = {"authorization": header, "host": "shop.example"}
    assert get(f"{guarded}/api/model", headers=headers).status_code == 200
    assert get(f"{guarded}/", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 421), ("evil.example:80", 421), ("", 421), ("localhost", 200), ("127.0.0.1:1", 200), ("[::1]:8", 200)],
)  # fmt: skip
def test_without_a_token_no_name_leads_here(api, host, status):
    assert api.get("/api/model", headers={"host": host}).status_code == status


@pytest.mark.parametrize("text", ["", "short", "two words that are long enough", "x" * 15])
def test_a_token_must_be_one(tmp_path, text):
    (tmp_path / "token").write_text(text)
    with pytest.raises(InvalidInputError, match="at least 16 characters"):
        read_token(tmp_path / "token")


def test_a_token_may_end_in_a_line_feed(tmp_path):
    (tmp_path / "token").write_text(TOKEN + "\n")
    assert read_token(tmp_path / "token") == TOKEN


def connect(url: str) -> socket.socket:
    where = urlsplit(url)
    return socket.create_connection((where.hostname, where.port), timeout=HANG_SECONDS)


def talk(url: str, data: bytes) -> bytes:
    """Send bytes and return all that comes back until the server closes the connection."""
    with connect(url) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65536), b""))


POST = b"POST /api/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
NEXT = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "data",
    [
        POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + NEXT,
        POST + b"Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}" + NEXT,
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + NEXT,
        POST + b"Transfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + NEXT,
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n" + NEXT,
        POST + b"Content-Length : 2\r\n\r\n{}" + NEXT,
        POST + b"Content-Length: -2\r\n\r\n{}" + NEXT,
        POST + b"Content-Length: +2\r\n\r\n{}" + NEXT,
        POST + b"X: a\nContent-Length: 2\r\n\r\n{}" + NEXT,
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET " + b"/" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 30_000 + b"\r\n",
    ],
    ids=["cl-te", "cl-cl", "te-te", "te-odd", "chunk", "space", "negative", "plus", "lf", "nul", "version", "tls", "path", "headers"],
)  # fmt: skip
def test_no_request_is_smuggled_in_another(server, data):
    found = talk(server.url, data)
    assert b'{"status":"ok"}' not in found
    assert b" 500 " not in found
    assert get(f"{server.url}/health").status_code == 200


@pytest.mark.parametrize(
    "head",
    [
        b"a:b\r\n" * 102,
        b"a: " + b"b" * 65_536 + b"\r\nc: d\r\n",
        b"a: " + b"b" * 400_000,
        b"Host: a\r\nHost: b\r\n\r\n",
    ],
    ids=["lines", "bytes", "no end", "two hosts"],
)
def test_heads_have_limits(server, head):
    found = talk(server.url, b"GET /health HTTP/1.1\r\n" + head)
    assert found.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))
    assert b"application/problem+json" in found
    assert get(f"{server.url}/health").status_code == 200


def test_headers_without_end_take_no_memory(server):
    """Fifty megabytes of headers, on one connection."""
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    with connect(server.url) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(500):
                connection.sendall(b"a:b\r\n" * 20_000)
    assert process.memory_info().rss < before + 20e6
    assert get(f"{server.url}/health").status_code == 200


def test_redirects_do_not_repeat_the_host(guarded):
    headers = {"authorization": f"Bearer {TOKEN}", "host": "evil.example"}
    response = get(f"{guarded}/api/model/", headers=headers)
    assert response.status_code == 404
    assert "evil" not in str(response.headers)


def test_a_slow_body_is_given_up(model, monkeypatch):
    monkeypatch.setattr(gate, "BODY_SECONDS", 0.3)
    with serving(create_app(Settings(model))) as url:
        found = talk(url, POST + b"Content-Length: 100\r\n\r\n{")
        assert found.startswith(b"HTTP/1.1 408 ")
        assert b"urn:ndpp:problem:slow-request" in found


def test_slow_headers_are_given_up(model, monkeypatch):
    monkeypatch.setattr(run, "HEADER_SECONDS", 0.3)
    with serving(create_app(Settings(model)), loading=True) as url, contextlib.suppress(ConnectionError):
        # An error, where a busy machine is given up before it has sent anything.
        assert talk(url, b"GET /health HTTP/1.1\r\nHost: loc") == b""


def test_a_connection_is_kept_as_long_as_requests_come(model, monkeypatch):
    """The test looks at the connection in place of the server's clock."""
    made: list[PatientProtocol] = []
    begin = PatientProtocol.connection_made

    def noted(protocol: PatientProtocol, transport: asyncio.Transport) -> None:
        made.append(protocol)
        begin(protocol, transport)

    monkeypatch.setattr(PatientProtocol, "connection_made", noted)
    with serving(create_app(Settings(model))) as url, connect(url) as connection:
        for _ in range(3):
            connection.sendall(NEXT)
            found = b""
            while b'{"status":"ok"}' not in found:
                found += connection.recv(65536)
            made[-1].loop.call_soon_threadsafe(made[-1]._look)
        made[-1].loop.call_soon_threadsafe(made[-1]._look)  # nothing has come since the last look
        assert connection.recv(65536) == b""


def test_clients_that_send_a_byte_at_a_time_are_dropped_and_stall_nobody(model, monkeypatch):
    """Each time that two hundred clients have sent one more piece, another is answered; in the end all of them are cut off."""
    monkeypatch.setattr(run, "HEADER_SECONDS", 0.5)
    monkeypatch.setattr(gate, "BODY_SECONDS", 0.5)
    kinds = [
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ", b"x"),
        (NEXT + b"GET /hea", b"x"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n", b"x"),
        (POST + b"Content-Length: 1000000\r\n\r\n", b" "),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    ]
    with serving(create_app(Settings(model))) as url, ExitStack() as stack:
        slow = {stack.enter_context(connect(url)): kinds[i % len(kinds)] for i in range(200)}
        for connection, (head, _) in slow.items():
            connection.setblocking(False)
            with contextlib.suppress(ConnectionError):  # one that waited too long for the others
                connection.send(head)

        def is_open(connection: socket.socket) -> bool:
            try:
                connection.send(slow[connection][1])
                return connection.recv(65536) != b""
            except BlockingIOError:
                return True
            except ConnectionError:
                return False

        def all_are_dropped() -> bool:
            with contextlib.suppress(httpx.TransportError):  # dropped, too, where this process was too slow
                assert get(f"{url}/health").status_code == 200
            for connection in [connection for connection in slow if not is_open(connection)]:
                del slow[connection]
            return not slow

        until(all_are_dropped)
        assert get(f"{url}/health").status_code == 200


def test_slow_clients_and_dropped_connections_stall_nobody(server):
    """An answer comes while a hundred clients have not sent all of their requests, and a thousand others have left."""
    before = memory(server.process.pid)
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(server.url)) for _ in range(100)]
        for i, connection in enumerate(slow):
            connection.sendall(POST[:20] if i % 2 else POST + b"Content-Length: 100\r\n\r\n{")
        for _ in range(1000):
            with connect(server.url) as dropped:
                dropped.sendall(POST + b"Content-Length: 2\r\n\r\n{}")

        def answered() -> httpx.Response | None:
            response = post(f"{server.url}/api/recommend", json={"basket": ["tea"]})
            return None if response.status_code == 503 else response  # a full queue

        assert until(answered).status_code == 200
        assert select.select(slow, [], [], 0)[0] == []  # none of them was answered or cut off before
    assert memory(server.process.pid) - before < 64 * 2**20


def memory(pid: int) -> int:
    """Return the resident bytes of a process."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * 4096
    except FileNotFoundError:
        pytest.skip("needs /proc to read the memory of a process")
