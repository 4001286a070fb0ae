"""Downloads against a server on this machine: whole and right, or an error that says what to do."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ndpp.datasets import cache_folder, fetch
from ndpp.errors import DataNotFoundError, InvalidInputError

BODY = bytes(range(256)) * 5000
SHA256 = hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves BODY under any name; its attributes say how to misbehave, and what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.body = BODY
        self.ranges = True
        self.stop_after: int | None = None
        self.requests: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/files/some%20data.zip"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        wanted = self.headers.get("Range")
        server.requests.append(wanted)
        if server.status != 200:
            self.send_error(server.status)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and server.ranges else 0
        if start >= len(server.body):
            self.send_error(416)
            return
        self.send_response(206 if wanted and server.ranges else 200)
        self.send_header("Content-Length", str(len(server.body) - start))
        self.end_headers()
        stop, server.stop_after = server.stop_after, None
        self.wfile.write(server.body[start:][:stop])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_a_file_is_fetched_once(server, tmp_path):
    path = fetch(server.url, sha256=SHA256.upper(), folder=tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "some data.zip"
    assert path.read_bytes() == BODY
    assert fetch(server.url, sha256=SHA256, folder=path.parent) == path
    assert len(server.requests) == 1
    assert [file.name for file in path.parent.iterdir()] == ["some data.zip"]


def test_a_damaged_copy_is_fetched_again(server, tmp_path):
    (tmp_path / "some data.zip").write_bytes(BODY[:-1])
    assert fetch(server.url, sha256=SHA256, folder=tmp_path).read_bytes() == BODY


def test_the_cache_is_the_default_folder(server, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fetch(server.url, sha256=SHA256).parent == cache_folder() == tmp_path / "ndpp"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "ndpp"


def test_a_download_that_broke_off_goes_on(server, tmp_path):
    server.stop_after = 300_000
    with pytest.raises(DataNotFoundError, match="broke off after 300000 of 1280000 bytes"):
        fetch(server.url, sha256=SHA256, folder=tmp_path)
    assert not (tmp_path / "some data.zip").exists()
    assert fetch(server.url, sha256=SHA256, folder=tmp_path).read_bytes() == BODY
    assert server.requests == [None, "bytes=300000-"]


def test_a_server_without_ranges_starts_again(server, tmp_path):
    server.ranges = False
    (tmp_path / "some data.zip.part").write_bytes(BODY[:1000])
    assert fetch(server.url, sha256=SHA256, folder=tmp_path).read_bytes() == BODY


@pytest.mark.parametrize("left", [b"of another file", BODY + b"more", BODY], ids=["other", "longer", "whole"])
def test_what_was_left_behind_does_no_harm(server, tmp_path, left):
    (tmp_path / "some data.zip.part").write_bytes(left)
    assert fetch(server.url, sha256=SHA256, folder=tmp_path).read_bytes() == BODY
    assert not (tmp_path / "some data.zip.part").exists()


def test_a_wrong_checksum_is_refused_and_nothing_kept(server, tmp_path):
    server.body = BODY[::-1]
    with pytest.raises(DataNotFoundError, match=f"expected {SHA256}"):
        fetch(server.url, sha256=SHA256, folder=tmp_path)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) == 0
    server.body = BODY
    assert fetch(server.url, sha256=SHA256, folder=tmp_path).read_bytes() == BODY


@pytest.mark.parametrize("status", [403, 404, 500])
def test_http_errors_are_told(server, tmp_path, status):
    server.status = status
    with pytest.raises(DataNotFoundError, match=f"answered {status} .* by hand"):
        fetch(server.url, sha256=SHA256, folder=tmp_path)
    assert not (tmp_path / "some data.zip").exists()


def test_no_network(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/data.zip"
    with pytest.raises(DataNotFoundError, match="Is there a network"):
        fetch(url, sha256=SHA256, folder=tmp_path)


def test_a_silent_server_times_out(tmp_path, monkeypatch):
    monkeypatch.setattr("ndpp.datasets.download.TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/data.zip"
        with pytest.raises(DataNotFoundError, match="timed out"):
            fetch(url, sha256=SHA256, folder=tmp_path)


def test_a_full_disk_is_told_and_room_is_given_back(server, tmp_path, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left.*make room, or name another folder"):
        fetch(server.url, sha256=SHA256, folder=tmp_path)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) == 0


def test_a_folder_that_cannot_be_written_to(server, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Name a folder="):
        fetch(server.url, sha256=SHA256, folder=tmp_path / "file")


def test_several_at_once_fetch_once(server, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: fetch(server.url, sha256=SHA256, folder=tmp_path), range(4)))
    assert {path.read_bytes() for path in paths} == {BODY}
    assert len(server.requests) == 1


@pytest.mark.parametrize("url", ["ftp://host/file", "http://host/", "/data.zip", "http://host/.."])
def test_addresses_that_name_no_file_are_refused(url):
    with pytest.raises(InvalidInputError, match="http or https"):
        fetch(url, sha256=SHA256)
