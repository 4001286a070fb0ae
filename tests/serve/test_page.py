"""The page in a real browser: type, choose, take over, share, go back; with labels that would break a careless one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ndpp
from ndpp.serve.app import create_app
from servers import ODD, serving

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'ndpp[dev]'")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser: install Debian's package chromium")
expect = playwright.expect


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, server) -> Iterator:
    """The page, with a patient clock; any error in the console fails the test."""
    context = browser.new_context(base_url=server.url, viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.set_default_timeout(20_000)
    expect.set_options(timeout=20_000)
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}"))
    page.allowed = re.compile("$^")
    yield page
    assert [text for text in errors if not page.allowed.search(text)] == []
    context.close()


def chips(page) -> list[str]:
    return page.locator("#basket bdi").all_text_contents()


def type_and_choose(page, text: str) -> None:
    page.get_by_role("combobox", name="Add an item").fill(text)
    expect(page.get_by_role("option").first).to_be_visible()
    page.keyboard.press("Enter")


def test_from_a_typed_item_to_a_basket_that_is_taken_over(page, server):
    page.goto("/")
    expect(page.locator("#next li")).to_have_count(10)
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    type_and_choose(page, "bred")  # a letter is missing
    expect(page.locator("#basket li")).to_have_count(1)
    assert chips(page) == ["bread"]
    first = page.locator("#next li").first
    expect(first).to_contain_text("butter")
    expect(first).to_contain_text("thanks to bread ×1.41")
    expect(page.locator("#likely")).to_contain_text("1 in ")
    expect(page.locator("#sizes-text")).to_contain_text("1 item: ")
    expect(page.locator("#related")).to_contain_text("Goes with")
    first.get_by_role("button").click()
    expect(page.locator("#basket li")).to_have_count(2)
    page.locator("#size").fill("5")
    page.locator("#size").press("Enter")
    expect(page.locator("#whole .card").first.locator("bdi")).to_have_count(5)
    seed = page.locator("#whole .quiet").text_content()
    page.get_by_role("button", name="Draw again").click()
    expect(page.locator("#whole .quiet")).not_to_have_text(seed)
    drawn = set(page.locator("#whole .card").first.locator("bdi").all_text_contents())
    page.get_by_role("button", name="Take over basket 1").click()
    expect(page.locator("#basket li")).to_have_count(5)
    assert set(chips(page)) == drawn


def test_the_address_is_the_basket_and_back_goes_back(page, browser, server):
    page.goto("/")
    type_and_choose(page, "tea")
    expect(page.locator("#basket li")).to_have_count(1)
    type_and_choose(page, "jam")
    expect(page.locator("#basket li")).to_have_count(2)
    assert page.url.endswith("/?item=tea&item=jam")
    page.go_back()
    expect(page.locator("#basket li")).to_have_count(1)
    assert chips(page) == ["tea"]
    page.go_forward()
    expect(page.locator("#basket li")).to_have_count(2)
    other = browser.new_page()
    other.goto(page.url)
    expect(other.locator("#basket li")).to_have_count(2)
    assert chips(other) == ["tea", "jam"]
    other.close()
    page.get_by_role("button", name="Remove tea").click()
    expect(page.locator("#basket li")).to_have_count(1)
    page.get_by_role("button", name="Empty").click()
    expect(page.locator("#empty")).to_be_visible()
    assert page.url == server.url + "/"


@pytest.mark.parametrize("label", ODD)
def test_a_label_is_text_wherever_it_stands(page, label):
    page.goto("/")
    type_and_choose(page, label)
    expect(page.locator("#basket li")).to_have_count(1)
    assert chips(page) == [label]
    expect(page.locator("#related b bdi")).to_have_text(label)
    page.reload()
    expect(page.locator("#basket li")).to_have_count(1)
    assert chips(page) == [label]
    expect(page.locator("#map text.in-text")).to_have_count(1)
    assert page.locator("script").count() == 1
    assert page.locator("main script, main img").count() == 0


def test_everything_by_keyboard(page):
    page.goto("/")
    search = page.locator("#search")
    search.focus()
    page.keyboard.press("ArrowDown")  # the most popular ones
    expect(search).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(search).to_have_attribute("aria-activedescendant", "option-1")
    chosen = page.locator("#option-1 bdi").text_content()
    page.keyboard.press("Enter")
    expect(page.locator("#basket li")).to_have_count(1)
    assert chips(page) == [chosen]
    page.keyboard.type("tom")
    expect(page.get_by_role("option").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(search).to_have_attribute("aria-expanded", "false")
    search.fill("")
    page.keyboard.press("Backspace")
    expect(page.locator("#basket li")).to_have_count(0)
    expect(page.locator("#said")).to_have_text(f"{chosen} removed")


def test_an_address_with_an_unknown_item_says_what_to_do(page):
    page.allowed = re.compile("422")
    page.goto("/?item=bred&item=tea")
    expect(page.get_by_role("alert")).to_contain_text("unknown label 'bred'; did you mean 'bread'?")
    page.get_by_role("button", name="Replace by bread").click()
    expect(page.locator("#next li")).to_have_count(10)
    assert chips(page) == ["bread", "tea"]
    expect(page.locator("#trouble")).to_be_hidden()


def test_a_size_that_cannot_be_drawn_is_told_in_its_place(page):
    page.allowed = re.compile("422")
    page.goto("/?item=tea&item=jam")
    expect(page.locator("#whole .card").first).to_be_visible()
    page.locator("#size").fill("1")
    page.locator("#size").press("Enter")
    expect(page.locator("#whole")).to_contain_text("size counts the given items; 2 are given")
    expect(page.locator("#next li").first).to_be_visible()


def test_a_server_that_is_gone_is_told_and_comes_back(page, server):
    page.allowed = re.compile("Failed to load resource|net::ERR")
    page.goto("/")
    expect(page.locator("#next li").first).to_be_visible()
    page.route("**/api/**", lambda route: route.abort())
    page.locator("#next li").first.get_by_role("button").click()
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    page.unroute("**/api/**")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#next li").first).to_be_visible()
    assert len(chips(page)) == 1


@pytest.mark.parametrize(
    ("path", "width", "scheme"),
    [
        ("/?item=bread&item=tea", 360, "light"),
        ("/?item=bread&item=tea", 800, "dark"),
        ("/?item=bread&item=tea", 1400, "light"),
        ("/docs", 360, "dark"),
    ],
)
def test_axe_finds_nothing_and_nothing_is_cut_off(page, path, width, scheme):
    package = pytest.importorskip(
        "axe_playwright_python", reason="needs axe-playwright-python: pip install 'ndpp[dev]'"
    )
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.goto(path)
    if path != "/docs":
        expect(page.locator("#map svg")).to_be_visible()
        page.locator("#search").fill("t")
        expect(page.get_by_role("option").first).to_be_visible()
        expect(page.locator("[aria-busy]")).to_have_count(0)
    page.evaluate((Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_axe_would_find_something(page):
    package = pytest.importorskip(
        "axe_playwright_python", reason="needs axe-playwright-python: pip install 'ndpp[dev]'"
    )
    page.allowed = re.compile("404")  # of the icon that such a document lacks
    page.goto("/health")
    page.evaluate((Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    assert "html-has-lang" in [one["id"] for one in page.evaluate("axe.run()")["violations"]]


def test_missions_are_shown_as_text(browser, mixture, tmp_path):
    """The missions of the model, and those that the basket probably belongs to; a name is text, whatever it looks like."""
    ndpp.save(mixture, tmp_path / "trips")
    with serving(create_app(tmp_path / "trips")) as url:
        page, errors = browser.new_page(), []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.set_default_timeout(20_000)
        page.goto(f"{url}/?item=bread&item=jam")
        expect(page.locator("#missions li")).to_have_count(2)
        expect(page.locator("#missions li").first).to_contain_text("<b>dinner</b>: ")
        expect(page.get_by_role("heading", name="Probable missions")).to_be_visible()
        expect(page.locator("h3:has-text('Probable missions') + ul li").first).to_contain_text("breakfast")
        assert errors == []
        page.close()


def test_fifty_thousand_items(browser, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50_000, 6)) / 60
    labels = [f"item {i:05d} {'abcdefghij'[i % 10] * 5}" for i in range(50_000)]
    ndpp.save(
        ndpp.LowRankKernel(X, np.eye(6) + np.triu(np.ones((6, 6)), 1) - np.tril(np.ones((6, 6)), -1), labels=labels),
        tmp_path / "m",
    )
    with serving(create_app(tmp_path / "m")) as url:
        page = browser.new_page()
        page.set_default_timeout(30_000)
        page.goto(url)
        expect(page.locator("#about")).to_contain_text("50,000 items", timeout=30_000)
        type_and_choose(page, "item 31417")
        expect(page.locator("#basket bdi")).to_have_text("item 31417 hhhhh")
        expect(page.locator("#next li")).to_have_count(10, timeout=30_000)
        page.close()
