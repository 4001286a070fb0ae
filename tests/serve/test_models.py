"""Several models in one server: each at a path of its own, with its own file to watch."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

import ndpp
from ndpp.cli.app import run
from ndpp.datasets import shelf_kernel
from patience import until
from servers import Server, assert_same_answer, get, odd_kernel, post

BASKET = {"basket": ["bread"], "n": 3}


@pytest.fixture(scope="module")
def shelves(tmp_path_factory) -> Path:
    """A model of the shelf, and one without bread's partner, whose name needs quotes in an address."""
    folder = tmp_path_factory.mktemp("models")
    ndpp.save(odd_kernel(), folder / "shop.safetensors")
    ndpp.save(shelf_kernel().exclude(["butter"]), folder / "fresh & dry.safetensors")
    return folder


@pytest.fixture(scope="module")
def server(shelves):
    server = Server(shelves / "shop.safetensors", shelves / "fresh & dry.safetensors")
    yield server
    server.stop()


def test_each_model_answers_at_its_path_and_the_first_everywhere(server, shelves):
    told = get(f"{server.url}/api/models").json()["models"]
    assert told == [
        {"name": "shop", "path": "/models/shop/"},
        {"name": "fresh & dry", "path": "/models/fresh%20%26%20dry/"},
    ]
    for one, path in zip(told, ("shop.safetensors", "fresh & dry.safetensors")):
        base, law = server.url + one["path"], ndpp.load(shelves / path)
        found = post(f"{base}api/recommend", json=BASKET).json()
        assert [item["item"] for item in found["items"]] == list(law_list(law))
        assert get(f"{base}api/model").json()["name"] == one["name"]
        assert get(f"{base}ready").json()["checksum"] == get(f"{base}api/model").json()["checksum"]
    assert_same_answer(
        post(f"{server.url}/api/recommend", json=BASKET).json(),
        post(f"{server.url}/models/shop/api/recommend", json=BASKET).json(),
    )


def law_list(law):
    return ndpp.recommend(law, ["bread"], 3).labels


def test_the_page_offers_the_choice(server):
    first = get(f"{server.url}/").text
    assert '<a href="./models/shop/" aria-current="page">shop</a>' in first
    assert '<a href="./models/fresh%20%26%20dry/">fresh &amp; dry</a>' in first
    other = httpx.URL(f"{server.url}/").join("./models/fresh%20%26%20dry/")
    second = get(str(other)).text
    assert "<title>fresh &amp; dry – ndpp</title>" in second
    assert 'href="../../models/fresh%20%26%20dry/" aria-current="page"' in second
    assert get(str(other.join("../../models/shop/"))).text.count("<title>shop – ndpp</title>") == 1
    assert get(str(other.join("static/page.js"))).status_code == 200


def test_an_address_without_its_slash_and_a_name_that_is_not_there(server):
    moved = get(f"{server.url}/models/shop")
    assert (moved.status_code, moved.headers["location"]) == (307, "shop/")
    missing = get(f"{server.url}/models/nothing/api/model")
    assert missing.status_code == 404
    assert missing.json()["detail"] == "there is no model 'nothing'; this server has 'shop', 'fresh & dry'"
    assert get(f"{server.url}/models/shop/models/shop/api/model").status_code == 404


def test_each_file_is_watched(server, shelves):
    before = {name: get(f"{server.url}/models/{name}/ready").json()["checksum"] for name in ("shop", "fresh & dry")}
    ndpp.save(shelf_kernel().exclude(["jam"]), shelves / "fresh & dry.safetensors")
    until(lambda: get(f"{server.url}/models/fresh & dry/ready").json()["checksum"] != before["fresh & dry"], pause=0.05)
    assert get(f"{server.url}/models/shop/ready").json()["checksum"] == before["shop"]
    (replaced,) = [one for one in server.events if one["event"] == "model replaced"]
    assert replaced["path"].endswith("fresh & dry.safetensors")
    asked = [one for one in server.events if one["event"] == "request" and one.get("model") == "fresh & dry"]
    assert asked


def test_one_server_of_one_model_shows_no_choice(model):
    server = Server(model)
    try:
        assert 'class="models"' not in get(f"{server.url}/").text
    finally:
        server.stop()


def test_names_that_cannot_be_told_apart(shelves, tmp_path, capsys):
    ndpp.save(shelf_kernel(), tmp_path / "shop.safetensors")
    paths = [str(shelves / "shop.safetensors"), str(tmp_path / "shop.safetensors")]
    with pytest.raises(SystemExit):
        run(["serve", *paths, "--port", "0"])
    assert "two models are called 'shop'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(["serve", paths[0], str(shelves / "fresh & dry.safetensors"), "--customers", "none", "--port", "0"])
    assert (
        "--customers is about one model, and 2 were named; serve the model of these customers by itself"
        in capsys.readouterr().err
    )
