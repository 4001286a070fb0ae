"""The command ``ndpp serve``: how it starts, refuses to start, and ends."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import ExitStack
from functools import partial
from signal import SIGINT, SIGTERM

import httpx
import pytest

import only_posix
from command import ENVIRONMENT, spawn
from ndpp.cli.app import run
from ndpp.serve.limits import BATCH_BASKETS
from patience import HANG_SECONDS, serve_without_grace, until
from servers import Server, get


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["MODEL", "--host", "0.0.0.0"], "anyone who reaches '0.0.0.0' could ask this server; name a token with --token-file"),
        (["MODEL", "--token-file", "nothing"], "'nothing': No such file or directory"),
        (["MODEL", "--token-file", "short"], "'short' must hold one token of at least 16 characters"),
        (["MODEL", "--category-of", "nothing"], "'nothing': No such file or directory"),
        (["missing.safetensors"], "missing.safetensors"),
        (["orders.csv"], "is text, not a model; `ndpp fit orders.csv"),
        (["MODEL", "--port", "TAKEN"], "the port is in use by another program; choose another with --port"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_one_line(model, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("short")
    (tmp_path / "orders.csv").write_text("basket,item\n0,tea\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        named = {"MODEL": str(model), "TAKEN": str(taken.getsockname()[1])}
        with pytest.raises(SystemExit) as ended:
            run(["serve", *(named.get(word, word) for word in words)])
    done = capsys.readouterr()
    assert (ended.value.code, done.out) == (1, "")
    assert done.err.count("\n") == 1
    assert done.err.startswith("ndpp: error: ")
    assert message in done.err


def test_a_damaged_model_ends_the_command(model, tmp_path):
    broken = bytearray(model.read_bytes())
    broken[-1] ^= 1
    (tmp_path / "broken.safetensors").write_bytes(broken)
    process = spawn("serve", tmp_path / "broken.safetensors", "--port", 0, cwd=tmp_path, env=ENVIRONMENT)
    _, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 1
    assert err.decode().splitlines()[-1].startswith("ndpp: error: ")
    assert "broken.safetensors" in err.decode().splitlines()[-1]


def test_several_processes_share_a_port_and_add_up_their_metrics(model, tmp_path):
    (tmp_path / "token").write_text("correct-horse-battery\n")
    server = Server(model, "--workers", 2, "--token-file", tmp_path / "token")
    headers = {"authorization": "Bearer correct-horse-battery"}

    def is_answered() -> bool:
        """Ask by a new connection, so that both processes answer; one may still load the model."""
        status = get(f"{server.url}/api/model", headers=headers).status_code
        assert status in (200, 503)
        return status == 200

    for _ in range(20):
        until(is_answered)
    text = get(f"{server.url}/metrics", headers=headers).text
    assert 'ndpp_requests_total{method="GET",route="/api/model",status="200"} 20.0' in text
    assert "ndpp_model_items 18.0" in text
    server.stop()
    assert not [event for event in server.events if event["level"] == "error"]


def test_a_signal_lets_requests_end(model):
    server = Server(model)
    lines: list[str] = []
    first = threading.Event()

    def ask() -> None:
        baskets = [[i % 12] for i in range(1500)]
        body = {"task": "complete", "baskets": baskets, "n": 1, "size": 6}
        with httpx.stream("POST", f"{server.url}/api/batch", json=body, timeout=HANG_SECONDS) as response:
            for line in response.iter_lines():
                lines.append(line)
                first.set()

    asking = threading.Thread(target=ask)
    asking.start()
    assert first.wait(HANG_SECONDS)
    server.stop()
    asking.join(HANG_SECONDS)
    assert len(lines) == 1500
    assert [event["event"] for event in server.events][-1] == f"Finished server process [{server.process.pid}]"


@only_posix.signals
@pytest.mark.parametrize(("signals", "code"), [([SIGTERM], -SIGTERM), ([SIGTERM, SIGTERM], -SIGTERM), ([SIGINT], 130)])
def test_a_signal_refuses_in_words_what_takes_too_long(model, signals, code):
    """Every client of a batch gets a line for each basket; all other connections are closed."""
    server = Server(model, first=serve_without_grace)
    where = httpx.URL(server.url)
    answers: list[list[str]] = [[] for _ in range(8)]
    begun = [threading.Event() for _ in answers]

    def ask(i: int) -> None:
        body = {"task": "complete", "baskets": [[i]] * BATCH_BASKETS, "n": 20, "size": 6}
        with httpx.stream("POST", f"{server.url}/api/batch", json=body, timeout=HANG_SECONDS) as response:
            for line in response.iter_lines():
                answers[i].append(line)
                begun[i].set()

    asking = [threading.Thread(target=ask, args=(i,)) for i in range(len(answers))]
    with ExitStack() as stack:
        others = [
            stack.enter_context(socket.create_connection((where.host, where.port), HANG_SECONDS)) for _ in range(3)
        ]
        others[1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")  # and is kept alive
        others[2].sendall(b"GET /health HTTP/1.1\r\nHos")
        for thread in asking:
            thread.start()
        assert all(event.wait(HANG_SECONDS) for event in begun)
        for number in signals:
            server.process.send_signal(number)
        for connection in others:
            assert b"".join(iter(partial(connection.recv, 65536), b"")) == b"" or connection is others[1]
    assert server.process.wait(HANG_SECONDS) == code
    for thread, lines in zip(asking, answers):
        thread.join(HANG_SECONDS)
        found = [json.loads(line) for line in lines]
        assert [one["index"] for one in found] == list(range(BATCH_BASKETS))
        problems = ["problem" in one for one in found]
        assert problems == sorted(problems)  # answers, and then refusals
        assert found[-1]["problem"]["type"] == "urn:ndpp:problem:stopping"
    with pytest.raises(ConnectionError):
        socket.create_connection((where.host, where.port))
    assert not any('"error"' in line for line in server.lines)
