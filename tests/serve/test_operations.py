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
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import uvicorn
from starlette.requests import Request

import ndpp
from kernels import BY_NAME
from ndpp._stop import look
from ndpp.datasets import make_kernel, shelf_kernel
from ndpp.errors import InvalidInputError
from ndpp.laws.law import Law
from ndpp.serve import work
from ndpp.serve.app import create_app
from ndpp.serve.model import Served, Settings, stamp
from ndpp.serve.run import PatientProtocol
from patience import HANG_SECONDS, until
from servers import get, post, serving


@pytest.fixture
def endless(monkeypatch):
    """Have every draw go on until it is stopped or released; give three events: one has begun, one was stopped, all are released."""
    begun, stopped, released = threading.Event(), threading.Event(), threading.Event()
    usual = Law.sampler

    def sampler(law, **asked):
        begun.set()
        try:
            while not released.is_set():
                look()
                time.sleep(0.005)
        except BaseException:
            stopped.set()
            raise
        return usual(law, **asked)

    monkeypatch.setattr(Served, "_warm", lambda self, item: None)
    monkeypatch.setattr(Law, "sampler", sampler)
    return begun, stopped, released


@pytest.fixture
def _watchful(monkeypatch):
    """Look at files often, since each change of one is waited for."""
    monkeypatch.setattr("ndpp.serve.model.WATCH_SECONDS", 0.02)


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
    monkeypatch.setattr(Served, "load", lambda *files: go.wait(HANG_SECONDS) and load(*files))
    with serving(create_app(Settings(model)), loading=True) as url:
        assert get(f"{url}/health").json() == {"status": "ok"}
        for path in ("/ready", "/api/items", "/api/related?item=tea"):
            found = get(f"{url}{path}")
            assert (found.status_code, found.headers["retry-after"]) == (503, "1")
            assert found.json()["type"] == "urn:ndpp:problem:not-ready"
            assert "being loaded" in found.json()["detail"]
        assert post(f"{url}/api/recommend", json={}).status_code == 503
        page = get(url)
        assert (page.status_code, page.headers["retry-after"]) == (503, "1")
        assert "being loaded, step 1 of 4: reading the files" in page.text
        icon = get(f"{url}/favicon.ico")
        assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")
        go.set()
        until(lambda: get(f"{url}/ready").status_code == 200)
        assert post(f"{url}/api/recommend", json={}).status_code == 200
        assert counted(url)["ndpp_model_items"] == 18
        assert "ndpp_model_reloads_total" not in str(counted(url))


@pytest.mark.usefixtures("_watchful")
def test_a_file_that_cannot_be_loaded_is_the_reason_and_a_better_one_is_taken(model, tmp_path):
    broken, path = bytearray(model.read_bytes()), tmp_path / "model.safetensors"
    broken[-1] ^= 1
    path.write_bytes(broken)
    with serving(create_app(Settings(path)), loading=True) as url:
        until(lambda: "cannot be loaded" in get(f"{url}/ready").json()["detail"])
        (tmp_path / "good").write_bytes(model.read_bytes())
        (tmp_path / "good").replace(path)
        until(lambda: get(f"{url}/ready").status_code == 200)


def test_every_request_is_a_line_of_json_without_what_was_asked(api, server):
    response = api.get("/api/items", params={"q": "secret basket"})
    named = response.headers["x-request-id"]
    found = until(lambda: [event for event in server.events if event.get("id") == named])
    assert found[0]["event"] == "request"
    assert (found[0]["method"], found[0]["path"], found[0]["status"]) == ("GET", "/api/items", 200)
    assert "secret" not in json.dumps(found)


def test_a_request_that_takes_too_long_is_told_so_and_its_thread_comes_free(model, endless):
    begun, stopped, _ = endless
    app = create_app(Settings(model, seconds=0.3, threads=1))

    def draws_in_vain() -> bool:
        response = post(f"{url}/api/sample", json={"n": 3})
        assert response.status_code == 503
        assert response.json()["type"] == "urn:ndpp:problem:out-of-time"
        assert "0.3 seconds" in response.json()["detail"]
        assert response.headers["retry-after"] == "1"
        return begun.is_set()  # on a busy machine, the time may be over before

    with serving(app) as url:
        until(draws_in_vain)
        assert stopped.wait(HANG_SECONDS)
        begun.clear()
        until(draws_in_vain)  # in the only thread there is


def test_work_ends_when_the_client_goes_away(model, endless):
    begun, stopped, _ = endless
    with serving(create_app(Settings(model, seconds=HANG_SECONDS, threads=1))) as url:
        where = httpx.URL(url)
        with socket.create_connection((where.host, where.port)) as connection:
            head = b"POST /api/sample HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(head + b"Content-Length: 2\r\n\r\n{}")
            assert begun.wait(HANG_SECONDS)
            assert not stopped.is_set()
        assert stopped.wait(HANG_SECONDS)
        until(lambda: counted(url).get('ndpp_requests_total{method="POST",route="/api/sample",status="499"}'))


def test_a_queue_that_is_full_turns_requests_away_and_the_loop_goes_on(model, endless):
    _, _, released = endless
    app = create_app(Settings(model, seconds=HANG_SECONDS, threads=1, waiting=1))
    with serving(app) as url, ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(post, f"{url}/api/sample", json={}) for _ in range(4)]
        until(lambda: sum(future.done() for future in asked) == 2)  # turned away, while one is drawn and one waits
        assert get(f"{url}/health").status_code == 200
        refused = [future.result() for future in asked if future.done()]
        assert len(refused) == 2
        released.set()
        assert {response.json()["type"] for response in refused} == {"urn:ndpp:problem:busy"}
        assert sorted(future.result().status_code for future in asked) == [200, 200, 503, 503]


def test_a_server_that_stops_refuses_running_and_waiting_requests_in_words(model, endless):
    begun, stopped, _ = endless
    app = create_app(Settings(model, seconds=HANG_SECONDS, threads=1))
    with serving(app) as url, ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(post, f"{url}/api/sample", json={}) for _ in range(3)]
        assert begun.wait(HANG_SECONDS)
        _, (_, draws) = app.app.state.work._lanes
        until(lambda: draws._work_queue.qsize() == 2)
        app.app.state.work.close()
        refused = [future.result() for future in asked]
        assert stopped.wait(HANG_SECONDS)
        refused.append(post(f"{url}/api/recommend", json={}))
    assert {response.status_code for response in refused} == {503}
    assert {response.json()["type"] for response in refused} == {"urn:ndpp:problem:stopping"}


def test_quick_questions_do_not_wait_for_draws(model, endless):
    begun, _, released = endless
    settings = Settings(model, seconds=HANG_SECONDS, threads=1)
    with serving(create_app(settings)) as url, ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(post, f"{url}/api/complete", json={"basket": ["tea"], "size": 4}) for _ in range(3)]
        assert begun.wait(HANG_SECONDS)
        assert post(f"{url}/api/recommend", json={"basket": ["tea"]}).status_code == 200
        assert not any(future.done() for future in asked)
        released.set()
        assert {future.result().status_code for future in asked} == {200}


def test_more_items_than_an_answer_holds_are_refused_before_they_are_drawn(model, monkeypatch):
    monkeypatch.setattr("ndpp.serve.app.DRAWN_ITEMS", 20)
    with serving(create_app(Settings(model))) as url:
        assert post(f"{url}/api/sample", json={"n": 5, "size": 4}).status_code == 200
        refused = post(f"{url}/api/sample", json={"n": 6, "size": 4})
        batch = {"task": "complete", "baskets": [[], []], "n": 6, "size": 4}
        assert post(f"{url}/api/batch", json=batch).status_code == 422
    assert refused.status_code == 422
    assert "n must be at most 5 for baskets of about 4 items" in refused.json()["detail"]


def test_the_process_ends_although_a_thread_does_not(model):
    script = f"""
import time
from ndpp.laws.law import Law
from ndpp.serve.model import Served
from ndpp.serve import run

Served._warm = lambda self, item: None
Law.sampler = lambda *arguments, **asked: time.sleep(10 * {HANG_SECONDS})
run.LAST_SECONDS = 1.0
run.run(run.Settings({str(model)!r}, port=0, seconds=0.5))
"""
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    url = json.loads(process.stderr.readline())["url"]
    until(lambda: get(f"{url}ready").status_code == 200)
    assert post(f"{url}api/sample", json={}).json()["type"] == "urn:ndpp:problem:out-of-time"
    process.terminate()
    process.communicate(timeout=HANG_SECONDS)  # long before the thread ends


def test_the_first_request_finds_everything_compiled(monkeypatch):
    monkeypatch.setattr("ndpp.serve.model.WARM_SECONDS", HANG_SECONDS)
    monkeypatch.setattr("ndpp._compiled.INTERPRETED_STEPS", 0)  # nothing is left to Python, and compiled later
    served, compiled = Served(make_kernel(60, 8, rng=0), "kernel"), []
    with monkeypatch.context() as patched:
        patched.setattr("numba.core.dispatcher.Dispatcher.compile", lambda function, _: compiled.append(function))
        ndpp.answers.complete(served, [3, 4], size=6, seed=0)
    assert compiled == []
    Served(BY_NAME["zero rows"].kernel, "zeros")._warm(0)  # an item that never occurs is no failure


def test_an_unexpected_failure_is_a_problem_without_particulars(model, monkeypatch, caplog):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret particulars")

    with serving(create_app(Settings(model))) as url, caplog.at_level(logging.ERROR):
        monkeypatch.setattr(Law, "sampler", fail)
        response = post(f"{url}/api/sample", json={})
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert "secret" not in response.text
    assert "default-src 'none'" in response.headers["content-security-policy"]


@pytest.mark.usefixtures("_watchful")
def test_a_model_replaced_under_load_loses_no_request(tmp_path):
    """Fifty times, with two kernels of different catalogues in turn; every answer is that of one of them."""
    path = tmp_path / "model.safetensors"
    kernels = shelf_kernel(), shelf_kernel().exclude([8])
    ndpp.save(kernels[0], path)
    scores = [ndpp.recommend(kernel, kernel.ids(["bread"]), n=1).items.tolist() for kernel in kernels]
    seen: list[int] = []
    problems: list[str] = []
    done = threading.Event()

    def ask(url: str) -> None:
        with httpx.Client(verify=False, trust_env=False, timeout=HANG_SECONDS) as client:
            while not done.is_set():
                response = client.post(f"{url}/api/recommend", json={"basket": ["bread"], "n": 1, "ids": True})
                if response.status_code != 200:
                    problems.append(response.text)
                else:
                    seen.append(response.json()["items"][0]["item"])
                time.sleep(0.01)

    with serving(create_app(Settings(path))) as url, ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(ask, url) for _ in range(2)]
        for i in range(10):
            for _ in range(5):
                ndpp.save(kernels[i % 2], path)
            until(lambda best=scores[i % 2][0]: seen[-1:] == [best])
        done.set()
        for future in asking:
            future.result()
        assert problems == []
        assert set(seen) == {scores[0][0], scores[1][0]}
        assert counted(url)['ndpp_model_reloads_total{outcome="loaded"}'] >= 9


@pytest.mark.usefixtures("_watchful")
def test_a_table_of_categories_is_read_with_the_model_and_when_it_is_replaced(tmp_path):
    path, table, kernel = tmp_path / "model.safetensors", tmp_path / "categories.csv", shelf_kernel()
    ndpp.save(kernel, path)
    table.write_text("item,kind\nbread,bakery\n")
    with pytest.raises(InvalidInputError, match="The file needs the columns 'item' and 'category'"):
        Served.load(Settings(path, category_of=table))

    def write(drinks: tuple[str, ...]) -> None:
        lines = [f"{label},{'drinks' if label in drinks else 'food'}\n" for label in kernel.labels]
        (tmp_path / "new").write_text("".join(["item,category\n", *lines]))
        (tmp_path / "new").replace(table)

    write(("tea", "coffee"))
    with serving(create_app(Settings(path, category_of=table))) as url:
        asked = {"basket": ["bread"], "categories": ["drinks"]}
        found = post(f"{url}/api/recommend", json=asked).json()["items"]
        assert {row["item"] for row in found} == {"tea", "coffee"}
        write(("tea",))

        def only_tea() -> bool:
            return [row["item"] for row in post(f"{url}/api/recommend", json=asked).json()["items"]] == ["tea"]

        until(only_tea)
        refused = post(f"{url}/api/recommend", json={**asked, "categories": ["drink"]}).json()
        assert refused["detail"] == "category_of has no category 'drink'; did you mean 'drinks'?"


@pytest.mark.usefixtures("_watchful")
def test_a_spoilt_file_is_refused_and_the_old_model_goes_on(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    ndpp.save(shelf_kernel(), path)
    missed: list[Path] = []

    def look_at(file: Path) -> tuple[int, ...]:
        try:
            return stamp(file)
        except FileNotFoundError:
            missed.append(file)
            raise

    monkeypatch.setattr("ndpp.serve.model.stamp", look_at)
    with serving(create_app(Settings(path))) as url:
        path.write_bytes(path.read_bytes()[:-8])
        until(lambda: counted(url).get('ndpp_model_reloads_total{outcome="refused"}'))
        assert get(f"{url}/api/model").json()["n_items"] == 12
        path.unlink()
        until(lambda: len(missed) > 1)
        assert get(f"{url}/ready").status_code == 200
        ndpp.save(make_kernel(30, 4, rng=0), path)
        until(lambda: counted(url).get('ndpp_model_reloads_total{outcome="loaded"}'))
        described = get(f"{url}/api/model").json()
        assert (described["n_items"], described["labelled"]) == (30, False)
        assert counted(url)["ndpp_model_items"] == 30
        found = post(f"{url}/api/recommend", json={"basket": [3], "n": 2}).json()
        assert all(isinstance(row["item"], int) for row in found["items"])
        refused = post(f"{url}/api/recommend", json={"basket": ["bread"]})
        assert refused.status_code == 422
        assert "has no labels; pass ids" in refused.json()["detail"]
        assert get(f"{url}/api/items?q=17").json()["items"][0]["item"] == 17


@pytest.mark.usefixtures("_watchful")
def test_no_file_ends_the_watch(tmp_path, monkeypatch, caplog):
    path, load = tmp_path / "model.safetensors", ndpp.load
    ndpp.save(shelf_kernel(), path)
    with serving(create_app(Settings(path))) as url, caplog.at_level(logging.ERROR):
        monkeypatch.setattr("ndpp.load", lambda _: [][0])
        path.touch()
        until(lambda: counted(url).get('ndpp_model_reloads_total{outcome="refused"}'))
        monkeypatch.setattr("ndpp.load", load)
        ndpp.save(make_kernel(30, 4, rng=0), path)
        until(lambda: counted(url)["ndpp_model_items"] == 30)
    refused = [record for record in caplog.records if record.message == "model refused"]
    assert refused
    assert refused[0].exc_info is not None


def test_a_client_that_leaves_or_does_not_read_is_no_error(model, monkeypatch, caplog):
    monkeypatch.setattr("ndpp.serve.gate.SEND_SECONDS", 0.3)
    with serving(create_app(Settings(model))) as url, caplog.at_level(logging.ERROR):
        where = httpx.URL(url)
        with socket.create_connection((where.host, where.port)) as connection:
            connection.sendall(b"POST /api/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        body = json.dumps({"task": "recommend", "n": 18, "baskets": [[]] * 5000}).encode()
        head = b"POST /api/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((where.host, where.port))
            connection.sendall(head % len(body) + body)
            for route in ("/api/batch", "other"):
                name = f'ndpp_requests_total{{method="POST",route="{route}",status="499"}}'
                assert until(lambda name=name: counted(url).get(name)) == 1
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


def test_time_in_the_queue_does_not_count(monkeypatch):
    """The clock of the service runs far ahead while a request waits for a thread; the request is answered all the same."""
    now, first, release = [0.0], threading.Event(), threading.Event()
    monkeypatch.setattr(work, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        return {}

    def hold() -> None:
        first.set()
        assert release.wait(HANG_SECONDS)

    async def ask_twice() -> str:
        threads = work.Work(HANG_SECONDS, 1, 1)
        request = Request({"type": "http"}, receive)
        held = asyncio.create_task(threads.run(request, hold))
        await asyncio.to_thread(first.wait, HANG_SECONDS)
        waiting = asyncio.create_task(threads.run(request, lambda: "answered"))
        await asyncio.sleep(0)
        now[0] = 3 * HANG_SECONDS
        release.set()
        await held
        try:
            return await waiting
        finally:
            threads.close()

    assert asyncio.run(ask_twice()) == "answered"
