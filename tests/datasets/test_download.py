"""Downloads against a server on this machine: whole and right, or an error that says what to do."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ndpp.datasets import cache_folder, fetch
from ndpp.errors import DataNotFoundError, InvalidInputError, MissingExtraError

BODY = bytes(range(256)) * 5000
SHA256 = hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves BODY under any name; its attributes say how to misbehave, and what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.body = BODY
        self.stop_after: int | None = None
        self.requests = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/files/some%20data.zip"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        server.requests += 1
        if server.status != 200:
            self.send_error(server.status)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(server.body)))
        self.end_headers()
        stop, server.stop_after = server.stop_after, None
        self.wfile.write(server.body[:stop])

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


def test_a_file_is_fetched_once(server, tmp_path, capfd):
    path = fetch(server.url, sha256=SHA256.upper(), folder=tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "some data.zip"
    assert path.read_bytes() == BODY
    assert fetch(server.url, sha256=SHA256, folder=path.parent) == path
    assert server.requests == 1
    assert [file.name for file in path.parent.iterdir()] == ["some data.zip"]
    assert capfd.readouterr() == ("", "")  # a library prints nothing


def test_a_file_that_is_there_needs_no_network(tmp_path):
    (tmp_path / "data.zip").write_bytes(BODY)
    assert fetch("http://127.0.0.1:9/data.zip", sha256=SHA256, folder=tmp_path) == tmp_path / "data.zip"


def test_a_damaged_copy_is_fetched_again(server, tmp_path):
    (tmp_path / "some data.zip").write_bytes(BODY[:-1])
    assert fetch(server.url, sha256=SHA256, folder=tmp_path).read_bytes() == BODY


def test_the_cache_is_the_default_folder(server, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fetch(server.url, sha256=SHA256).parent == cache_folder() == tmp_path / "ndpp"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "ndpp"


def test_a_download_that_broke_off_is_told_and_leaves_nothing(server, tmp_path):
    server.stop_after = 300_000
    with pytest.raises(DataNotFoundError, match=r"could not be fetched.*Try again"):
        fetch(server.url, sha256=SHA256, folder=tmp_path)
    assert not list(tmp_path.iterdir())
    assert fetch(server.url, sha256=SHA256, folder=tmp_path).read_bytes() == BODY


def test_a_wrong_checksum_is_refused_and_nothing_kept(server, tmp_path):
    server.body = BODY[::-1]
    found = hashlib.sha256(server.body).hexdigest()
    with pytest.raises(DataNotFoundError, match=f"expected sha256:{SHA256} but got {found}. Deleted.*Try again"):
        fetch(server.url, sha256=SHA256, folder=tmp_path)
    assert not list(tmp_path.iterdir())
    server.body = BODY
    assert fetch(server.url, sha256=SHA256, folder=tmp_path).read_bytes() == BODY


def test_a_damaged_copy_outlives_a_failure(server, tmp_path):
    (tmp_path / "some data.zip").write_bytes(BODY[:-1])
    server.status = 500
    with pytest.raises(DataNotFoundError, match="answered 500"):
        fetch(server.url, sha256=SHA256, folder=tmp_path)
    assert (tmp_path / "some data.zip").read_bytes() == BODY[:-1]


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
    monkeypatch.setattr("ndpp.datasets.loaders.TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/data.zip"
        with pytest.raises(DataNotFoundError, match="timed out"):
            fetch(url, sha256=SHA256, folder=tmp_path)


def test_a_full_disk_is_told_and_room_is_given_back(server, tmp_path, monkeypatch):
    def full(*paths: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "move", full)
    with pytest.raises(OSError, match=r"No space left.*make room, or name another folder") as raised:
        fetch(server.url, sha256=SHA256, folder=tmp_path)
    assert raised.value.errno == errno.ENOSPC
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_to(server, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Name a folder="):
        fetch(server.url, sha256=SHA256, folder=tmp_path / "file")


def test_several_at_once_do_not_disturb_each_other(server, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: fetch(server.url, sha256=SHA256, folder=tmp_path), range(4)))
    assert {path.read_bytes() for path in paths} == {BODY}
    assert [file.name for file in tmp_path.iterdir()] == ["some data.zip"]


def test_without_pooch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtraError, match=r"pooch.*pip install 'ndpp\[data\]'"):
        fetch("http://127.0.0.1:9/data.zip", sha256=SHA256, folder=tmp_path)


@pytest.mark.parametrize("url", ["ftp://host/file", "http://host/", "/data.zip", "http://host/.."])
def test_addresses_that_name_no_file_are_refused(url):
    with pytest.raises(InvalidInputError, match="http or https"):
        fetch(url, sha256=SHA256)
