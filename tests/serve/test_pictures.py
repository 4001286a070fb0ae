"""Pictures of items: where the page may load them from, and the folder that a server has of them."""

from __future__ import annotations

import io

import pytest

import ndpp
from ndpp.answers import ItemTable
from ndpp.cli.app import run
from ndpp.datasets import shelf_kernel
from ndpp.serve.app import create_app
from ndpp.serve.model import Settings
from servers import get, serving

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63b86c6b0b0002fb0127d1e8d4d70000000049454e44ae426082"
)
PLACES = {"bread": "loaves/white bread.png", "jam": "https://shop.example/jam.png", "tea": "gone.png"}


def save(path, places=PLACES) -> None:
    rows = "".join(f"{item},{place}\n" for item, place in places.items())
    table = ItemTable.read(io.StringIO(f"item,picture\n{rows}"), shelf_kernel())
    ndpp.save(shelf_kernel(), path, metadata=table.attach())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    save(folder / "shop.safetensors")
    (folder / "photos" / "loaves").mkdir(parents=True)
    (folder / "photos" / "loaves" / "white bread.png").write_bytes(PNG)
    for name in ("list.csv", "page.html", "script.js", "noise"):
        (folder / "photos" / name).write_text("<script>alert(1)</script>")
    (folder / "photos" / "drawn.SVG").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "secret.png").write_bytes(PNG)
    return folder


@pytest.fixture(scope="module")
def url(folder):
    ndpp.save(shelf_kernel(), folder / "other.safetensors")
    settings = Settings(folder / "shop.safetensors", more=[folder / "other.safetensors"], pictures=folder / "photos")
    with serving(create_app(settings)) as url:
        yield url


def images_of(answer) -> list[str]:
    """What a page may load images from."""
    rules = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == "'self'"
    return rules["img-src"].split()


def test_answers_have_the_pictures_of_their_items(url):
    assert get(f"{url}/api/items?q=jam").json()["pictures"] == {"jam": PLACES["jam"]}
    assert "pictures" not in get(f"{url}/api/items?q=butter").json()
    assert get(f"{url}/api/related?item=butter").json()["pictures"].items() <= PLACES.items()


def test_the_page_may_load_images_from_the_hosts_of_the_table_alone(url, tmp_path):
    assert images_of(get(url)) == ["'self'", "data:", "https://shop.example"]
    assert images_of(get(f"{url}/models/other/")) == ["'self'", "data:"]
    assert "shop.example" not in get(f"{url}/api/items").headers["content-security-policy"]
    many = {label: f"https://s{i}.example/x.png" for i, label in enumerate(shelf_kernel().labels)}
    save(tmp_path / "many", many)
    with serving(create_app(Settings(tmp_path / "many"))) as other:
        assert len(images_of(get(other))) == 2 + len(many)
        assert get(f"{other}/pictures/white bread.png").status_code == 404


def test_many_hosts_are_not_listed(tmp_path, monkeypatch):
    monkeypatch.setattr("ndpp.serve.pages.HOSTS", 0)
    save(tmp_path / "m")
    with serving(create_app(Settings(tmp_path / "m"))) as url:
        assert images_of(get(url)) == ["'self'", "data:", "https:", "http:"]


@pytest.mark.parametrize("base", ["", "/models/other"])
def test_a_folder_of_pictures_is_served(url, base):
    found = get(f"{url}{base}/pictures/loaves/white%20bread.png")
    assert (found.status_code, found.content, found.headers["content-type"]) == (200, PNG, "image/png")
    assert found.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert found.headers["x-content-type-options"] == "nosniff"
    again = get(f"{url}{base}/pictures/loaves/white%20bread.png", headers={"if-none-match": found.headers["etag"]})
    assert again.status_code == 304
    assert get(f"{url}{base}/pictures/drawn.SVG").headers["content-type"] == "image/svg+xml"


@pytest.mark.parametrize(
    "path",
    [
        "list.csv",
        "page.html",
        "script.js",
        "noise",
        "gone.png",
        "",
        "loaves",
        "loaves/",
        "..%2fsecret.png",
        "%2e%2e/secret.png",
        "%00.png",
    ],
)
def test_nothing_but_its_pictures(url, path):
    refused = get(f"{url}/pictures/{path}")
    assert (refused.status_code, refused.json()["status"]) == (404, 404)


def test_a_folder_that_is_not_there_is_refused(folder, capsys):
    with pytest.raises(SystemExit, match="1"):
        run(["serve", str(folder / "shop.safetensors"), "--port", "0", "--pictures", str(folder / "secret.png")])
    assert "ndpp: error: --pictures names a folder; " in capsys.readouterr().err
