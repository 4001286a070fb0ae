"""Limits and boosts in requests: by the tables of the server, and refused with what to do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ndpp
from ndpp.serve.app import create_app
from ndpp.serve.limits import BASKET_LIMITS, CATEGORIES
from ndpp.serve.model import Served, Settings
from patience import until
from servers import get, post, serving

N = 40


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("limited") / "products.csv"
    write(path, 1.0)
    return path


def write(path: Path, price: float) -> None:
    """Write a table of N items with a price each, two kinds and twenty shelves."""
    rows = "".join(f"item {i},{price},{'odd' if i % 2 else 'even'},shelf {i // 2}\n" for i in range(N))
    (path.parent / "new.csv").write_text(f"item,price,kind,shelf\n{rows}")
    os.replace(path.parent / "new.csv", path)


@pytest.fixture(scope="module")
def url(table) -> Iterator[str]:
    rng = np.random.default_rng(0)
    kernel = ndpp.LowRankKernel(rng.normal(size=(N, 20)), np.eye(20), labels=[f"item {i}" for i in range(N)])
    ndpp.save(kernel, table.parent / "model")
    with serving(create_app(Settings(table.parent / "model", table=table))) as url:
        yield url


def test_what_limits_may_be_about_is_told(url):
    price, kind, shelf = get(f"{url}/api/model").json()["columns"]
    assert (price, kind) == ({"name": "price", "values": None}, {"name": "kind", "values": ["even", "odd"]})
    assert len(shelf["values"]) == N / 2 < CATEGORIES


def test_baskets_keep_limits(url):
    limits = ["odd=2..3", "price<=6"]
    baskets = post(f"{url}/api/complete", json={"basket": ["item 4"], "n": 20, "limits": limits}).json()["baskets"]
    assert all(len(one["items"]) <= 6 and "item 4" in one["items"] for one in baskets)
    assert all(2 <= sum(int(item.split()[1]) % 2 for item in one["items"]) <= 3 for one in baskets)
    asked = {"task": "complete", "baskets": [["item 4"], ["item 1", "item 3"]], "n": 1, "limits": ["odd=1", "price<=6"]}
    good, bad = map(json.loads, post(f"{url}/api/batch", json=asked).text.splitlines())
    assert sum(int(item.split()[1]) % 2 for item in good["baskets"][0]["items"]) == 1
    assert bad["problem"]["type"] == "urn:ndpp:problem:impossible-limit"
    assert "the given items break the limit 'odd': exactly 1 of 20 items" in bad["problem"]["detail"]


@pytest.mark.parametrize(
    ("path", "limits", "told"),
    [
        ("sample", ["od=1"], "limits 'od' is not in"),
        ("sample", ["odd>1"], "limits 'odd>1' cannot be read; write NAME=2, NAME=1..2, NAME<=2 or NAME>=1"),
        ("complete", ["odd>=21"], "'odd': at least 21 of 20 items cannot be reached"),
        ("sample", ["odd>=1", "odd<=0"], "contradicts itself"),
        ("recommend", ["odd>=1"], "limits can only bound recommendations from above"),
        ("sample", ["odd=1"] * (BASKET_LIMITS + 1), "at most 100 items"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(url, path, limits, told):
    answer = post(f"{url}/api/{path}", json={"limits": limits})
    assert answer.status_code == 422
    assert told in answer.json()["detail"]
    if path != "complete":  # what is wrong whatever the basket
        batch = {"task": path.replace("sample", "complete"), "baskets": [[]], "limits": limits}
        assert post(f"{url}/api/batch", json=batch).status_code == 422


def test_limits_that_cost_too_much_are_refused_with_the_number(url):
    answer = post(f"{url}/api/sample", json={"limits": [f"shelf {i}=1" for i in range(N // 2)]})
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:ndpp:problem:budget-exceeded"
    assert "proposals each, above 10000; the limit that costs most is 'shelf" in answer.json()["detail"]


def test_a_server_without_a_table_says_what_to_do(api):
    for path in ("recommend", "complete", "sample"):
        answer = api.post(f"/api/{path}", json={"limits": ["dairy<=2"]})
        assert answer.status_code == 422
        assert answer.json()["detail"] == (
            "limits in words, such as 'dairy<=2', need a table of the items. Name one with `ndpp serve --table FILE`"
        )
    assert api.get("/api/model").json()["columns"] == []


def test_a_replaced_table_is_read(url, table):
    asked = {"n": 5, "limits": ["price<=6"]}

    def longest() -> int:
        return max(len(one["items"]) for one in post(f"{url}/api/sample", json=asked).json()["baskets"])

    write(table, 2.0)
    until(lambda: longest() <= 3)
    write(table, 1.0)
    until(lambda: longest() > 3)


@pytest.mark.filterwarnings("ignore::ndpp.errors.DataWarning")
def test_factors_of_the_server_are_read_and_read_again(table, url):
    factors = table.parent / "factors.csv"
    factors.write_text("item,factor\nitem 1,0\nnew item,2\n")
    with pytest.warns(ndpp.errors.DataWarning, match="skipped 1 unknown item, such as 'new item'"):
        Served.load(Settings(table.parent / "model", boost=factors))
    app = create_app(Settings(table.parent / "model", boost=factors))
    with serving(app) as url:
        law = ndpp.load(table.parent / "model")
        plain = get(f"{url}/api/related", params={"item": "item 1"}).json()
        assert plain["probability"] == pytest.approx(law.inclusion_probabilities()[1])  # what the model says

        def listed(**asked: object) -> list[str]:
            found = post(f"{url}/api/recommend", json={"n": 100, **asked}).raise_for_status().json()
            return [one["item"] for one in found["items"]]

        assert listed() == list(law.tilt({"item 1": 0}).recommend([], n=100).labels)
        more = {"boost": {"item 2": 5}, "out_of_stock": [3]}
        both = law.tilt({"item 1": 0, "item 2": 5, "item 3": 0})
        assert listed(**more) == list(both.recommend([], n=100).labels)
        batch = {"task": "recommend", "baskets": [["item 4"]], "n": 100, **more}
        (line,) = map(json.loads, post(f"{url}/api/batch", json=batch).text.splitlines())
        assert [one["item"] for one in line["items"]] == list(both.recommend(["item 4"], n=100, staples=False).labels)
        drawn = post(f"{url}/api/sample", json={"n": 3, "seed": 2}).json()["baskets"]
        expected = law.tilt({"item 1": 0}).sample(3, rng=2).to_lists()
        assert [one["items"] for one in drawn] == [[f"item {i}" for i in basket] for basket in expected]
        (table.parent / "next.csv").write_text("item,factor\nitem 2,0\n")
        os.replace(table.parent / "next.csv", factors)
        until(lambda: "item 1" in listed())
        assert listed() == list(law.tilt({"item 2": 0}).recommend([], n=100).labels)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"boost": {"item 1": -1}}, "greater than or equal to 0"),
        ({"boost": {"item 1": "x"}}, "/body/boost/item 1"),
        ({"boost": {"no item": 1}}, "unknown label 'no item'"),
        ({"out_of_stock": [N]}, f"unknown item id {N}"),
    ],
)
def test_boosts_that_are_none_are_refused(url, asked, told):
    for path, more in (("recommend", {}), ("complete", {}), ("sample", {}), ("why", {"item": "item 0"})):
        answer = post(f"{url}/api/{path}", json={**asked, **more})
        assert answer.status_code == 422
        assert told in answer.json()["detail"]
    assert post(f"{url}/api/batch", json={"task": "recommend", "baskets": [[]], **asked}).status_code == 422
