"""What has changed since an earlier model: computed in the background, as in Python, on the page, and only where it was asked for."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

import ndpp
from ndpp import answers
from ndpp.answers import ItemTable
from ndpp.cli.app import run
from ndpp.datasets import make_kernel
from ndpp.serve import model as serve_model
from ndpp.serve.app import create_app
from ndpp.serve.model import Settings
from patience import HANG_SECONDS, until
from servers import Server, assert_same_answer, get, serving, trips

GONE, NEW = "jam", "<b>honey</b>"


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Two versions of a model, and a table with a name for an item of each."""
    folder = tmp_path_factory.mktemp("versions")
    old = trips()
    new = old.framed(old.frame._replace(weights=np.array([0.7, 0.3]))).remove([GONE]).add_items({NEW: ["tea"]}, 0.1)
    ndpp.save(old, folder / "lastweek.safetensors")
    ndpp.save(new, folder / "tonight.safetensors")
    (folder / "products.csv").write_text(f"item,name\n{GONE},Strawberry jam\nrice,Basmati rice\n")
    return folder


def known(url: str):
    return until(lambda: (answer := get(f"{url}/api/changes")).status_code == 200 and answer)


def test_the_service_answers_as_python_does(versions):
    paths = [versions / f"{name}.safetensors" for name in ("tonight", "lastweek")]
    both = [
        answers.Prepared(law, ItemTable.read(versions / "products.csv", law)) for law in (ndpp.load(p) for p in paths)
    ]
    expected = answers.changes(*both)
    assert [one.item for one in expected.left] == [GONE]
    with serving(create_app(Settings(paths[0], since=paths[1], table=versions / "products.csv"))) as url:
        found = known(url).json()
    assert found.pop("names") == {GONE: "Strawberry jam", "rice": "Basmati rice"}
    assert_same_answer(
        found,
        expected.data() | {key: list(value) for key, value in expected.data().items() if isinstance(value, tuple)},
    )


def test_it_is_computed_in_the_background(versions, monkeypatch):
    """Other questions are answered meanwhile; this one says when to ask again."""
    go, compare = threading.Event(), serve_model.changes
    monkeypatch.setattr(serve_model, "changes", lambda *both: go.wait(HANG_SECONDS) and compare(*both))
    with serving(
        create_app(Settings(versions / "tonight.safetensors", since=versions / "lastweek.safetensors"))
    ) as url:
        waiting = get(f"{url}/api/changes")
        assert (waiting.status_code, waiting.headers["retry-after"]) == (503, "1")
        assert waiting.json()["detail"] == "what has changed is being computed; try again in a second"
        assert get(f"{url}/api/items").status_code == 200
        go.set()
        known(url)


def test_a_server_of_several_models_compares_the_first(versions):
    server = Server(
        versions / "tonight.safetensors",
        versions / "lastweek.safetensors",
        "--since",
        versions / "lastweek.safetensors",
    )
    try:
        assert known(server.url).json()["n_entered"] == 1
        other = get(f"{server.url}/models/lastweek/api/changes")
        assert other.status_code == 422
        assert "start it with `ndpp serve MODEL --since OLD`" in other.json()["detail"]
        assert 'id="changes"' in get(server.url).text
        assert 'id="changes"' not in get(f"{server.url}/models/lastweek/").text
    finally:
        server.stop()


def test_a_model_that_cannot_be_compared_is_no_reason_not_to_serve(versions, monkeypatch):
    def fail(*_):
        raise ndpp.errors.ModelFileError("'lastweek' is damaged")

    monkeypatch.setattr(serve_model, "changes", fail)
    with serving(
        create_app(Settings(versions / "tonight.safetensors", since=versions / "lastweek.safetensors"))
    ) as url:
        until(lambda: get(f"{url}/api/changes").status_code == 422)
        assert get(f"{url}/api/changes").json()["detail"] == "what has changed is not known: 'lastweek' is damaged"


def test_another_catalogue_in_place_of_the_model(versions, tmp_path):
    path = tmp_path / "model.safetensors"
    ndpp.save(make_kernel(9, 4, rng=0), path)
    with serving(create_app(Settings(path, since=versions / "lastweek.safetensors"))) as url:
        until(lambda: get(f"{url}/api/changes").status_code == 422)
        assert get(f"{url}/api/changes").json()["detail"].startswith("the model of --since must be an earlier version")


@pytest.mark.parametrize(
    ("old", "problem"),
    [
        ("plain.safetensors", "--since must be an earlier version of the model, with items in common; it has 0, 1, …"),
        ("nothing.safetensors", "no model file at"),
        ("products.csv", "is text, not a model"),
    ],
)
def test_what_is_no_earlier_version_is_refused_at_once(versions, capsys, old, problem):
    ndpp.save(make_kernel(9, 4, rng=0), versions / "plain.safetensors")
    with pytest.raises(SystemExit):
        run(["serve", str(versions / "tonight.safetensors"), "--since", str(versions / old), "--port", "0"])
    assert problem in capsys.readouterr().err


def test_the_page_has_a_card(versions):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'ndpp[dev]'")
    if shutil.which("chromium") is None:
        pytest.skip("needs chromium")
    settings = Settings(versions / "tonight.safetensors", since=versions / "lastweek.safetensors")
    found = answers.changes(*(ndpp.load(path) for path in (settings.path, settings.since)))
    (share,) = (one.now for one in found.missions if one.name == "breakfast")
    expect = playwright.expect
    with serving(create_app(settings)) as url, playwright.sync_playwright() as engine:
        known(url)
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page, errors = browser.new_page(viewport={"width": 390, "height": 900}, reduced_motion="reduce"), []
        page.set_default_timeout(1000 * HANG_SECONDS)
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        card = page.locator(".changes")
        expect(card).to_contain_text("Since lastweek.")
        expect(card).to_contain_text(f"breakfast{100 * share:.0f} % of all baskets, 40 % before")
        expect(card.locator(".row")).to_have_count(2 + 4)
        expect(card.locator(".row a").first).to_have_text(found.items[0].item)
        expect(card.locator(".row").nth(2)).to_contain_text(re.compile(r"in [\d.]+ % of all baskets, .* before"))
        expect(card.locator(".chip").first).to_contain_text(NEW)
        expect(card.locator(".chip").last).to_have_text(GONE)
        assert card.locator("b b").count() == 0  # names are text
        package = pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python")
        page.evaluate((Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
        for width, scheme in ((390, "dark"), (1280, "light")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            faults = page.evaluate("axe.run()")["violations"]
            assert [(one["id"], one["nodes"][0]["html"]) for one in faults] == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        card.locator(".chip a").click()
        expect(page.locator("#product-title")).to_have_text(NEW)
        assert errors == []
        browser.close()


def test_the_page_says_that_nothing_has_changed(model):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'ndpp[dev]'")
    if shutil.which("chromium") is None:
        pytest.skip("needs chromium")
    with serving(create_app(Settings(model, since=model))) as url, playwright.sync_playwright() as engine:
        known(url)
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(url)
        playwright.expect(page.locator("#changes")).to_have_text("Nothing has changed.", timeout=1000 * HANG_SECONDS)
        browser.close()
