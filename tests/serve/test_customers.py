"""Customers of a service: ids and histories leave no trace, and a customer can be deleted while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ndpp
from ndpp.baskets.orders import Orders
from ndpp.cli.app import run
from ndpp.datasets import shelf_kernel
from ndpp.serve.app import create_app
from ndpp.serve.model import Settings
from patience import until
from servers import Server, get, post, serving

SECRET, OTHER = "household-zebra-4711", "household-yak-4712"


@pytest.fixture
def shop(tmp_path) -> Path:
    """A folder with a model, and customers of whom one likes curry."""
    law = shelf_kernel()
    ndpp.save(law, tmp_path / "shop.safetensors")
    baskets = [["curry paste", "rice"], ["tea"], ["curry paste"], ["curry paste", "tea"]]
    orders = Orders(ndpp.Baskets.from_lists(baskets, labels=law.labels), [SECRET, OTHER, SECRET, SECRET])
    ndpp.Customers(law).update(orders).save(tmp_path / "shop.customers")
    return tmp_path


def forget(shop: Path, *ids: str) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["customers", "forget", str(shop / "shop.safetensors"), str(shop / "shop.customers"), *ids])
    assert not ended.value.code


def test_nothing_of_a_customer_is_logged_and_nothing_is_left_of_a_deleted_one(shop):
    """With a real server: every way to name a customer, also wrong ones, and then its log, its metrics and the file."""
    history = [["noodles", "curry paste"], ["noodles"]]
    server = Server(shop / "shop.safetensors", "--customers", shop / "shop.customers")
    try:
        asked = {"basket": ["bread"], "n": 12}
        known = post(f"{server.url}/api/recommend", json={**asked, "customer": SECRET}).json()
        assert known["customer"] == "known"
        assert {row["item"]: row["usual"] for row in known["items"]}["curry paste"] > 0.9
        for path, body in {
            "recommend": {**asked, "history": history},
            "complete": {"basket": ["bread"], "customer": SECRET},
            "sample": {"customer": SECRET},
            "batch": {"task": "recommend", "baskets": [["bread"]], "customers": [SECRET]},
        }.items():
            assert post(f"{server.url}/api/{path}", json=body).status_code == 200
        for wrong in ({"customer": [SECRET]}, {"customer": SECRET, "history": history}, {"customer": SECRET, "basket": ["bred"]},
                      {"customer": SECRET + "x" * 2000}, {"history": [["tea", SECRET]]}, {"custmer": SECRET}):  # fmt: skip
            assert post(f"{server.url}/api/recommend", json=wrong).status_code == 422
        half = json.dumps({"customer": "\ud800"}).encode()  # of a pair: no UTF-8 can hold it
        for path in ("recommend", "sample"):
            refused = post(f"{server.url}/api/{path}", content=half, headers={"content-type": "application/json"})
            assert refused.status_code == 422
        assert SECRET.encode() in (shop / "shop.customers").read_bytes()
        forget(shop, SECRET)
        data = (shop / "shop.customers").read_bytes()
        assert SECRET.encode() not in data
        assert OTHER.encode() in data
        assert not list(shop.glob("*part*"))
        plain = post(f"{server.url}/api/recommend", json=asked).json()

        def as_a_new_one() -> dict[str, Any] | None:
            found = post(f"{server.url}/api/recommend", json={**asked, "customer": SECRET, "damping": 0.2}).json()
            return found if found["customer"] == "new" else None

        found = until(as_a_new_one)
        assert [row["item"] for row in found["items"]] == [row["item"] for row in plain["items"]]
        assert all(row["usual"] == 0 for row in found["items"])
        drawn = post(f"{server.url}/api/sample", json={"customer": SECRET, "seed": 1, "n": 3}).json()
        assert drawn["baskets"] == post(f"{server.url}/api/sample", json={"seed": 1, "n": 3}).json()["baskets"]
        metrics = get(f"{server.url}/metrics").text
        assert any(event["event"] == "customers replaced" for event in server.events)
    finally:
        server.stop()
    told = "".join(server.lines) + metrics
    for secret in (SECRET, "zebra", "noodles", "curry"):
        assert secret not in told
    assert [event["path"] for event in server.events if event["event"] == "request"].count("/api/recommend") > 5


def test_a_better_file_of_customers_is_taken_and_a_spoilt_one_is_not(shop, caplog):
    law = shelf_kernel()
    with serving(create_app(Settings(shop / "shop.safetensors", customers=shop / "shop.customers"))) as url:
        assert get(f"{url}/api/model").json()["customers"] == 2
        checksum = get(f"{url}/ready").json()["checksum"]
        (shop / "spoilt").write_bytes(b"nothing of the kind")
        (shop / "spoilt").replace(shop / "shop.customers")
        until(lambda: any(record.message == "customers refused" for record in caplog.records))
        assert get(f"{url}/api/model").json()["customers"] == 2
        assert post(f"{url}/api/recommend", json={"customer": OTHER}).json()["customer"] == "known"
        orders = Orders(ndpp.Baskets.from_lists([["tea"]] * 3, labels=law.labels), ["a", "b", "c"])
        ndpp.Customers(law).update(orders).save(shop / "shop.customers")
        until(lambda: get(f"{url}/api/model").json()["customers"] == 3)
        assert post(f"{url}/api/recommend", json={"customer": "b"}).json()["customer"] == "known"
        assert post(f"{url}/api/recommend", json={"customer": OTHER}).json()["customer"] == "new"
        assert get(f"{url}/ready").json()["checksum"] == checksum


def test_a_server_without_customers_says_what_to_do(api):
    for body in ({"customer": "17"}, {"history": [["tea"]]}):
        for path in ("recommend", "complete", "sample"):
            answer = api.post(f"/api/{path}", json=body)
            assert answer.status_code == 422
            assert answer.json()["detail"] == (
                f"{next(iter(body))} needs customers, and this model has none. "
                "Name a file of customers with `ndpp serve --customers FILE`"
            )
    assert api.get("/api/model").json()["customers"] is None
    batch = {"task": "recommend", "baskets": [["tea"], []], "customers": ["17"]}
    assert "must name 2 customers" in api.post("/api/batch", json=batch).json()["detail"]
    lines = api.post("/api/batch", json={**batch, "customers": ["17", None]}).text.splitlines()
    assert ["problem" in json.loads(line) for line in lines] == [True, False]
