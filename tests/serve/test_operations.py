"""Work in threads and within limits, reloads, and what a server tells about itself."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import uvicorn

import ndpp
from kernels import BY_NAME
from ndpp._stop import look
from ndpp.datasets import make_kernel, shelf_kernel
from ndpp.errors import InvalidInputError
from ndpp.serve.app import create_app
from ndpp.serve.limits import Limits
from ndpp.serve.model import Served
from ndpp.serve.run import PatientProtocol
from servers import get, post, serving


@pytest.fixture
def endless(monkeypatch):
    """Have every draw go on until it is stopped; give two events: one has begun, one was stopped."""
    begun, stopped = threading.Event(), threading.Event()

    def draw(self, n, seed, **asked):
        begun.set()
        try:
            while True:
                look()
                time.sleep(0.005)
        finally:
            stopped.set()

    monkeypatch.setattr(Served, "_warm", lambda self, item: None)
    monkeypatch.setattr(Served, "draw", draw)
    return begun, stopped


def counted(url: str) -> dict[str, float]:
    text = get(f"{url}/metrics").text
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")}


def test_health_and_metrics(api, server):
    assert api.get("/health").json() == {"status": "ok"}
    assert api.get("/ready").json()["status"] == "ready"
    name = 'ndpp_requests_total{method="POST",route="/api/recommend",status="200"}'
    before = counted(server.url).get(name, 0.0)
    api.post("/api/recommend", json={"basket": ["tea"]})
    after = counted(server.url)
    assert after[name] == before + 1
    assert after["ndpp_model_items"] == 18
    assert after['ndpp_request_seconds_count{route="/api/recommend"}'] >= 1


def test_it_listens_before_the_model_is_loaded(model, monkeypatch):
    """Health is answered from the first moment, readiness and questions once there is a model."""
    go, load = threading.Event(), Served.load
    monkeypatch.setattr(Served, "load", lambda *files: go.wait(20) and load(*files))
    with serving(create_app(model), loading=True) as url:
        assert get(f"{url}/health").json() == {"status": "ok"}
        for path in ("/ready", "/api/items", "/api/related?item=tea"):
            found = get(f"{url}{path}")
            assert (found.status_code, found.headers["retry-after"]) == (503, "1")
            assert found.json()["type"] == "urn:ndpp:problem:not-ready"
            assert "being loaded" in found.json()["detail"]
        assert post(f"{url}/api/recommend", json={}).status_code == 503
        page = get(url)
        assert (page.status_code, page.headers["refresh"]) == (503, "1")
        go.set()
        for _ in range(400):
            if get(f"{url}/ready").status_code == 200:
                break
            time.sleep(0.05)
        assert post(f"{url}/api/recommend", json={}).status_code == 200
        assert counted(url)["ndpp_model_items"] == 18
        assert "ndpp_model_reloads_total" not in str(counted(url))


def test_a_file_that_cannot_be_loaded_is_the_reason_and_a_better_one_is_taken(model, tmp_path):
    broken, path = bytearray(model.read_bytes()), tmp_path / "model.safetensors"
    broken[-1] ^= 1
    path.write_bytes(broken)
    with serving(create_app(path), loading=True) as url:
        for _ in range(400):
            reason = get(f"{url}/ready").json()["detail"]
            if "cannot be loaded" in reason:
                break
            time.sleep(0.05)
        assert "cannot be loaded" in reason
        (tmp_path / "good").write_bytes(model.read_bytes())
        (tmp_path / "good").replace(path)
        for _ in range(400):
            if get(f"{url}/ready").status_code == 200:
                return
            time.sleep(0.05)
        pytest.fail("the better file was not taken")


def test_every_request_is_a_line_of_json_without_what_was_asked(api, server):
    response = api.get("/api/items", params={"q": "secret basket"})
    named = response.headers["x-request-id"]
    for _ in range(100):
        found = [event for event in server.events if event.get("id") == named]
        if found:
            break
        time.sleep(0.02)
    assert found[0]["event"] == "request"
    assert (found[0]["method"], found[0]["path"], found[0]["status"]) == ("GET", "/api/items", 200)
    assert "secret" not in json.dumps(found)


def test_a_request_that_takes_too_long_is_told_so_and_its_thread_comes_free(model, endless):
    _, stopped = endless
    app = create_app(model, limits=Limits(seconds=0.3, threads=1))
    with serving(app) as url:
        response = post(f"{url}/api/sample", json={"n": 3}, timeout=10)
        assert response.status_code == 503
        assert response.json()["type"] == "urn:ndpp:problem:out-of-time"
        assert "0.3 seconds" in response.json()["detail"]
        assert response.headers["retry-after"] == "1"
        assert stopped.wait(5)
        assert post(f"{url}/api/recommend", json={}, timeout=10).status_code == 200


def test_work_ends_when_the_client_goes_away(model, endless):
    begun, stopped = endless
    with serving(create_app(model, limits=Limits(seconds=60, threads=1))) as url:
        with httpx.Client(verify=False, trust_env=False) as client, pytest.raises(httpx.ReadTimeout):
            client.post(f"{url}/api/sample", json={}, timeout=httpx.Timeout(10, read=0.3))
        assert begun.is_set()
        assert stopped.wait(5)
        for _ in range(100):
            if counted(url).get('ndpp_requests_total{method="POST",route="/api/sample",status="499"}'):
                return
            time.sleep(0.02)
        pytest.fail("the request was not counted")


def test_a_queue_that_is_full_turns_requests_away_and_the_loop_goes_on(model, endless):
    begun, _ = endless
    app = create_app(model, limits=Limits(seconds=2, threads=1, waiting=1))
    with serving(app) as url, ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(post, f"{url}/api/sample", json={}, timeout=20) for _ in range(4)]
        assert begun.wait(10)
        began = time.perf_counter()
        assert get(f"{url}/health").status_code == 200
        assert time.perf_counter() - began < 1.0
        kinds = sorted(future.result().json()["type"].rpartition(":")[2] for future in asked)
        assert kinds.count("busy") == 2
        assert kinds.count("out-of-time") == 2


def test_quick_questions_do_not_wait_for_draws(model, endless):
    begun, _ = endless
    with serving(create_app(model, limits=Limits(seconds=3, threads=1))) as url, ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(post, f"{url}/api/complete", json={"basket": ["tea"], "size": 4}) for _ in range(3)]
        assert begun.wait(10)
        began = time.perf_counter()
        assert post(f"{url}/api/recommend", json={"basket": ["tea"]}).status_code == 200
        assert time.perf_counter() - began < 1.0
        assert {future.result().status_code for future in asked} == {503}


def test_more_items_than_an_answer_holds_are_refused_before_they_are_drawn(model, monkeypatch):
    monkeypatch.setattr("ndpp.serve.app.DRAWN_ITEMS", 20)
    with serving(create_app(model)) as url:
        assert post(f"{url}/api/sample", json={"n": 5, "size": 4}).status_code == 200
        refused = post(f"{url}/api/sample", json={"n": 6, "size": 4})
        batch = {"task": "complete", "baskets": [[], []], "n": 6, "size": 4}
        assert post(f"{url}/api/batch", json=batch).status_code == 422
    assert refused.status_code == 422
    assert "n must be at most 5 for baskets of about 4 items" in refused.json()["detail"]


def test_the_process_ends_although_a_thread_does_not(model):
    script = f"""
import time
from ndpp.serve.model import Served
from ndpp.serve import run

Served._warm = lambda self, item: None
Served.draw = lambda *arguments, **asked: time.sleep(60)
run.LAST_SECONDS = 1.0
run.run(run.Settings({str(model)!r}, port=0, seconds=0.5))
"""
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    url = json.loads(process.stderr.readline())["url"]
    for _ in range(400):
        if get(f"{url}ready").status_code == 200:
            break
        time.sleep(0.05)
    assert post(f"{url}api/sample", json={}).json()["type"] == "urn:ndpp:problem:out-of-time"
    began = time.perf_counter()
    process.terminate()
    process.communicate(timeout=30)
    assert time.perf_counter() - began < 20


def test_the_first_request_finds_everything_compiled():
    served = Served(make_kernel(60, 8, rng=0), "kernel")
    began = time.process_time()
    served.draw(1, 0, given=[3, 4], size=6)
    assert time.process_time() - began < 1.0  # compiling takes ten times as long
    Served(BY_NAME["zero rows"].kernel, "zeros")._warm(0)  # an item that never occurs is no failure


def test_an_unexpected_failure_is_a_problem_without_particulars(model, monkeypatch, caplog):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret particulars")

    with serving(create_app(model)) as url, caplog.at_level(logging.ERROR):
        monkeypatch.setattr(Served, "draw", fail)
        response = post(f"{url}/api/sample", json={})
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert "secret" not in response.text
    assert "default-src 'none'" in response.headers["content-security-policy"]


def test_a_model_replaced_under_load_loses_no_request(tmp_path):
    """Fifty times, with two kernels of different catalogues in turn; every answer is that of one of them."""
    path = tmp_path / "model.safetensors"
    kernels = shelf_kernel(), shelf_kernel().exclude([8])
    ndpp.save(kernels[0], path)
    scores = [ndpp.recommend(kernel, kernel.ids(["bread"]), n=1).items.tolist() for kernel in kernels]
    seen: set[int] = set()
    problems: list[str] = []
    done = threading.Event()

    def ask(url: str) -> None:
        with httpx.Client(verify=False, trust_env=False) as client:
            while not done.is_set():
                response = client.post(
                    f"{url}/api/recommend", json={"basket": ["bread"], "n": 1, "ids": True}, timeout=20
                )
                if response.status_code != 200:
                    problems.append(response.text)
                else:
                    seen.add(response.json()["items"][0]["item"])
                time.sleep(0.01)

    with serving(create_app(path)) as url, ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(ask, url) for _ in range(2)]
        for i in range(50):
            ndpp.save(kernels[i // 5 % 2], path)  # each stays for longer than the time between two looks
            time.sleep(0.06)
        done.set()
        for future in asking:
            future.result()
        assert problems == []
        assert seen == {scores[0][0], scores[1][0]}
        time.sleep(0.5)
        last = post(f"{url}/api/recommend", json={"basket": ["bread"], "n": 1, "ids": True}).json()
        assert last["items"][0]["item"] == scores[1][0]
        assert counted(url)['ndpp_model_reloads_total{outcome="loaded"}'] >= 3


def test_a_table_of_categories_is_read_with_the_model_and_when_it_is_replaced(tmp_path):
    path, table, kernel = tmp_path / "model.safetensors", tmp_path / "categories.csv", shelf_kernel()
    ndpp.save(kernel, path)
    table.write_text("item,kind\nbread,bakery\n")
    with pytest.raises(InvalidInputError, match="The file needs the columns 'item' and 'category'"):
        Served.load(path, table)

    def write(drinks: tuple[str, ...]) -> None:
        lines = [f"{label},{'drinks' if label in drinks else 'food'}\n" for label in kernel.labels]
        (tmp_path / "new").write_text("".join(["item,category\n", *lines]))
        (tmp_path / "new").replace(table)

    write(("tea", "coffee"))
    with serving(create_app(path, category_of=table)) as url:
        asked = {"basket": ["bread"], "categories": ["drinks"]}
        found = post(f"{url}/api/recommend", json=asked).json()["items"]
        assert {row["item"] for row in found} == {"tea", "coffee"}
        write(("tea",))
        deadline = time.monotonic() + 20
        while len(found) == 2 and time.monotonic() < deadline:
            time.sleep(0.05)
            found = post(f"{url}/api/recommend", json=asked).json()["items"]
        assert [row["item"] for row in found] == ["tea"]
        refused = post(f"{url}/api/recommend", json={**asked, "categories": ["drink"]}).json()
        assert refused["detail"] == "category_of has no category 'drink'; did you mean 'drinks'?"


def test_a_spoilt_file_is_refused_and_the_old_model_goes_on(tmp_path):
    path = tmp_path / "model.safetensors"
    ndpp.save(shelf_kernel(), path)

    def wait_for(url: str, name: str) -> None:
        for _ in range(200):
            if counted(url).get(name):
                return
            time.sleep(0.05)
        pytest.fail(f"{name} did not happen")

    with serving(create_app(path)) as url:
        path.write_bytes(path.read_bytes()[:-8])
        wait_for(url, 'ndpp_model_reloads_total{outcome="refused"}')
        assert get(f"{url}/api/model").json()["n_items"] == 12
        path.unlink()
        time.sleep(0.4)
        assert get(f"{url}/ready").status_code == 200
        ndpp.save(make_kernel(30, 4, rng=0), path)
        wait_for(url, 'ndpp_model_reloads_total{outcome="loaded"}')
        described = get(f"{url}/api/model").json()
        assert (described["n_items"], described["labelled"]) == (30, False)
        assert counted(url)["ndpp_model_items"] == 30
        found = post(f"{url}/api/recommend", json={"basket": [3], "n": 2}).json()
        assert all(isinstance(row["item"], int) for row in found["items"])
        refused = post(f"{url}/api/recommend", json={"basket": ["bread"]})
        assert refused.status_code == 422
        assert "has no labels; pass ids" in refused.json()["detail"]
        assert get(f"{url}/api/items?q=17").json()["items"][0]["item"] == 17


def test_no_file_ends_the_watch(tmp_path, monkeypatch, caplog):
    path, load = tmp_path / "model.safetensors", ndpp.load
    ndpp.save(shelf_kernel(), path)
    with serving(create_app(path)) as url, caplog.at_level(logging.ERROR):
        monkeypatch.setattr("ndpp.load", lambda _: [][0])
        path.touch()
        for _ in range(100):
            if counted(url).get('ndpp_model_reloads_total{outcome="refused"}'):
                break
            time.sleep(0.05)
        monkeypatch.setattr("ndpp.load", load)
        ndpp.save(make_kernel(30, 4, rng=0), path)
        for _ in range(100):
            if counted(url)["ndpp_model_items"] == 30:
                break
            time.sleep(0.05)
        assert counted(url)["ndpp_model_items"] == 30
    refused = [record for record in caplog.records if record.message == "model refused"]
    assert refused
    assert refused[0].exc_info is not None


def test_a_client_that_leaves_or_does_not_read_is_no_error(model, monkeypatch, caplog):
    monkeypatch.setattr("ndpp.serve.gate.SEND_SECONDS", 0.3)
    with serving(create_app(model)) as url, caplog.at_level(logging.ERROR):
        where = httpx.URL(url)
        with socket.create_connection((where.host, where.port)) as connection:
            connection.sendall(b"POST /api/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        body = json.dumps({"task": "recommend", "n": 18, "baskets": [[]] * 5000}).encode()
        head = b"POST /api/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((where.host, where.port))
            connection.sendall(head % len(body) + body)
            for _ in range(200):
                found = counted(url)
                if found.get('ndpp_requests_total{method="POST",route="/api/batch",status="499"}'):
                    break
                time.sleep(0.05)
        assert found.get('ndpp_requests_total{method="POST",route="/api/batch",status="499"}') == 1
        assert found.get('ndpp_requests_total{method="POST",route="other",status="499"}') == 1
    assert [record.message for record in caplog.records] == []


def test_answers_are_not_held_back():
    """Sockets made by hand keep Nagle's algorithm, and an answer in two parts then waits for an acknowledgement."""

    async def accepted() -> list[int]:
        made = []

        class Noted(PatientProtocol):
            def connection_made(self, transport):
                super().connection_made(transport)
                made.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        config = uvicorn.Config(lambda scope, receive, send: None, log_config=None)
        config.load()
        state = uvicorn.server.ServerState()
        listening = socket.create_server(("127.0.0.1", 0))
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Noted(config, state, {}), sock=listening)
        _, writer = await asyncio.open_connection(*listening.getsockname())
        while not made:
            await asyncio.sleep(0.01)
        writer.close()
        server.close()
        return made

    assert all(asyncio.run(accepted()))
