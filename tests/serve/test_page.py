"""The page in a real browser: type, choose, take over, share, go back; with labels that would break a careless one."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ndpp
from ndpp.answers import ItemTable
from ndpp.baskets.orders import Orders
from ndpp.datasets import shelf_kernel
from ndpp.serve.app import create_app
from ndpp.serve.model import Served, Settings
from patience import HANG_SECONDS
from servers import ODD, serving

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'ndpp[dev]'")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser: install Debian's package chromium")
expect = playwright.expect
DRAWING = '<svg xmlns="http://www.w3.org/2000/svg" width="96" height="96"><circle cx="48" cy="48" r="40"/></svg>'
PATIENCE = 1000 * HANG_SECONDS
"""Milliseconds after which the browser gives up what hangs."""
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, server) -> Iterator:
    """The page, with a patient clock and without motion, which takes time to draw; any error in the console fails the test."""
    context = browser.new_context(base_url=server.url, viewport={"width": 1200, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
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


def filled(page) -> None:
    """Wait until no card waits for an answer."""
    expect(page.locator("[aria-busy]")).to_have_count(0)


def fail(page, path: str) -> None:
    """Have an operation of the service answer that it is busy."""
    problem = {
        "type": "urn:ndpp:problem:busy",
        "title": "Busy",
        "status": 503,
        "detail": "Too many requests are waiting.",
    }
    page.allowed = re.compile("503")
    page.route(f"**/api/{path}", lambda route: route.fulfill(status=503, json=problem))


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
    expect(first).to_contain_text(re.compile("in 6[12] % of such baskets, 41 % more often than usual"))
    expect(first).to_contain_text("goes with bread")
    expect(page.locator("#likely")).to_contain_text("of baskets hold it")
    expect(page.locator("#likely figcaption")).to_contain_text("of all hold 1, like yours")
    first.get_by_role("button", name="Add butter").click()
    expect(page.locator("#basket li")).to_have_count(2)
    expect(page.locator("#likely")).to_contain_text("hold both, 41 % more often than by chance")
    page.locator("#size").fill("5")
    page.locator("#size").press("Enter")
    drawn = page.locator("#whole .card").first
    expect(drawn.locator("bdi")).to_have_count(3)  # and the two of the basket
    before = page.locator("#whole").inner_text()
    page.get_by_role("button", name="Draw again").click()
    expect(page.locator("#whole")).not_to_have_text(before, use_inner_text=True)
    expect(drawn.locator("bdi")).to_have_count(3)  # all of the answer is there
    added = set(drawn.locator("bdi").all_text_contents())
    page.get_by_role("button", name="Take all of basket 1").click()
    expect(page.locator("#basket li")).to_have_count(5)
    assert set(chips(page)) == {"bread", "butter"} | added


def test_one_item_of_a_whole_basket_is_taken_over_and_the_rest_stays(page):
    page.goto("/?item=bread")
    page.locator("#size").fill("6")
    page.locator("#size").press("Enter")
    drawn = page.locator("#whole .card").first
    expect(drawn.locator("bdi")).to_have_count(5)
    others = drawn.locator("bdi").all_text_contents()
    drawn.get_by_role("button", name=f"Add {others[2]}").click()
    expect(page.locator("#basket li")).to_have_count(2)
    expect(drawn.locator("bdi")).to_have_count(4)
    filled(page)
    assert chips(page) == ["bread", others[2]]
    assert drawn.locator("bdi").all_text_contents() == [*others[:2], *others[3:]]
    expect(page.locator("#whole .card")).to_have_count(4)


def test_rankings_are_chosen_in_plain_words(page):
    page.goto("/?item=bread")
    butter = page.locator("#next li", has_text="butter").first
    for ranking, words in {
        "The one that is missing": r"in \d+ % of baskets with just one more item",
        "What is special to this basket": r"41 % more often than usual, in 6[12] % of such baskets",
        "What usually comes next": r"in 6[12] % of such baskets, 41 % more often than usual",
    }.items():
        page.get_by_role("radio", name=ranking).check(force=True)
        expect(butter).to_contain_text(re.compile(words))
        assert not re.search(r"×|e\+\d", page.locator("main").inner_text())


def test_staples_are_listed_where_they_are_asked_for(page):
    page.goto("/?item=bread&item=jam&item=pasta&item=pesto&item=tea")
    tick = page.get_by_role("checkbox", name="Also what is bought less often than usual")
    listed = page.locator("#next .row")
    for is_ticked, n in ((False, 6), (True, 10), (False, 6)):
        tick.set_checked(is_ticked)
        expect(listed).to_have_count(n)
        expect(listed.filter(has_text="less often than usual")).to_have_count(n - 6)
    page.get_by_role("radio", name="The one that is missing").check(force=True)
    expect(tick).to_be_hidden()


@pytest.mark.parametrize(
    ("path", "place", "others"),
    [
        ("complete", "#whole", ["#next .row", "#likely .figures", "#map circle"]),
        ("recommend", "#next", ["#whole .card", "#likely .figures", "#map circle"]),
        ("probability", "#likely", ["#whole .card", "#next .row", "#map circle"]),
        ("map", "#map", ["#whole .card", "#next .row", "#likely .figures"]),
    ],
)
def test_a_card_fails_alone_and_is_asked_again_alone(page, path, place, others):
    fail(page, path)
    page.goto("/?item=bread")
    filled(page)
    expect(page.locator(place)).to_contain_text("Too many requests are waiting.")
    for other in others:
        expect(page.locator(other).first).to_be_visible()
    page.unroute(f"**/api/{path}")
    page.locator(place).get_by_role("button", name="Try again").click()
    expect(page.locator(f"{place} .trouble")).to_have_count(0)
    filled(page)
    expect(page.locator(place).locator("li, circle").first).to_be_attached()


def test_a_card_shows_a_skeleton_until_its_answer_is_there(page):
    page.emulate_media(reduced_motion="no-preference")
    held = []
    page.route("**/api/complete", lambda route: held.append(route))
    page.goto("/?item=bread")
    expect(page.locator("#next .row").first).to_be_visible()
    expect(page.locator("#whole .bone").first).to_be_visible()
    expect(page.locator("#whole")).to_have_attribute("aria-busy", "true")
    held[0].continue_()
    expect(page.locator("#whole .card").first).to_be_visible()
    expect(page.locator("#whole .bone")).to_have_count(0)


def test_a_product_has_a_page_of_its_own(page):
    page.goto("/?item=tea#product?item=bread")
    expect(page.get_by_role("heading", name="bread")).to_be_visible()
    expect(page.locator("#product-facts")).to_contain_text("of all baskets")
    expect(page.locator("#product-facts")).to_contain_text("in the baskets that hold it")
    expect(page.locator("#product-sizes figcaption")).to_have_text(
        re.compile(
            r"^Items in the baskets with it: half of them hold \d or fewer\. The line shows all baskets: \d or fewer\.$"
        )
    )
    expect(page.locator("#product-sizes rect").nth(3)).to_be_visible()
    expect(page.locator("#product-sizes path")).to_be_visible()
    expect(page.locator("#product-with li").first).to_contain_text("butter")
    expect(page.locator("#product-with li").first).to_contain_text(
        re.compile("in 6[12] % of baskets with it, 41 % more often than usual")
    )
    expect(page.locator("#product-instead li").first).to_contain_text(
        re.compile(r"rolls.*together \d+ % less often than expected")
    )
    expect(page.locator("#next")).to_be_hidden()
    assert chips(page) == ["tea"]
    page.get_by_role("button", name="Add to the basket").click()
    expect(page.get_by_role("button", name="Remove from the basket")).to_be_visible()
    assert page.url.endswith("/?item=tea&item=bread#product?item=bread")
    page.locator("#product-with").get_by_role("link", name="butter").click()
    expect(page.get_by_role("heading", name="butter")).to_be_focused()
    page.go_back()
    expect(page.get_by_role("heading", name="bread")).to_be_visible()
    page.get_by_role("link", name="Back to the basket").first.click()
    expect(page.locator("#next .row").first).to_be_visible()
    assert chips(page) == ["tea", "bread"]


def test_the_sizes_of_a_product_fail_alone_and_are_asked_again_until_they_are_known(page):
    fail(page, "sizes?item=bread")
    page.goto("/#product?item=bread")
    expect(page.locator("#product-sizes")).to_contain_text("Too many requests are waiting.")
    expect(page.locator("#product-facts")).to_contain_text("of all baskets")
    expect(page.locator("#product-with li").first).to_contain_text("butter")
    page.unroute("**/api/sizes?item=bread")
    unknown = {"item": "bread", "probability": 0.5, "size_distribution": None}
    page.route("**/api/sizes?item=bread", lambda route: route.fulfill(json=unknown))
    page.clock.install()
    page.locator("#product-sizes").get_by_role("button", name="Try again").click()
    expect(page.locator("#product-sizes")).to_contain_text("How large the baskets with it are is not known yet.")
    page.unroute("**/api/sizes?item=bread")
    page.clock.run_for(4000)
    expect(page.locator("#product-sizes rect").first).to_be_visible()


def test_two_baskets_are_compared(page, browser):
    page.goto("/?item=bread")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Compare two baskets")).to_be_focused()
    page.get_by_role("combobox", name="Add an item to B").fill("pasta")
    expect(page.get_by_role("option").first).to_be_visible()
    page.keyboard.press("Enter")
    page.locator("#other").get_by_role("button", name="Remove bread").click()
    expect(page.locator("#other bdi")).to_have_text(["pasta"])
    butter = page.locator("#compare-next tr", has=page.get_by_role("link", name="butter", exact=True))
    expect(butter.locator(".figure")).to_have_text([re.compile("6[12] %"), "44 %"])
    expect(page.locator("#compare-facts tr", has_text="Items so far").locator(".figure")).to_have_text(["1", "1"])
    assert page.url.endswith("/?item=bread#compare?item=pasta")
    page.get_by_role("button", name="Swap").click()
    expect(butter.locator(".figure")).to_have_text(["44 %", re.compile("6[12] %")])
    other = browser.new_page()
    other.goto(page.url)
    expect(other.locator("#first bdi")).to_have_text(["pasta"])
    expect(other.locator("#other bdi")).to_have_text(["bread"])
    other.close()


def test_on_a_phone_recommendations_come_first(page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/?item=bread&item=tea")
    filled(page)
    tops = {
        name: page.locator(f"section.{name}").bounding_box()["y"]
        for name in ("basket", "next", "whole", "facts", "map")
    }
    assert list(tops) == sorted(tops, key=tops.get)
    assert page.locator("#next .row").first.bounding_box()["y"] < 600


def test_a_map_that_can_be_read(page):
    """Labels do not touch, a click brings an item into the middle, and the closer one looks, the more labels there are."""
    page.emulate_media(reduced_motion="no-preference")
    page.goto("/?item=bread")
    filled(page)
    overlaps = """() => { const boxes = [...document.querySelectorAll("#map text")].map((text) => text.getBBox());
        return boxes.flatMap((a, i) => boxes.slice(0, i).filter((b) => a.x < b.x + b.width - 1 && b.x < a.x + a.width - 1
            && a.y < b.y + b.height - 4 && b.y < a.y + a.height - 4)).length; }"""
    expect(page.locator("#map text").nth(7)).to_be_attached()
    assert page.evaluate(overlaps) == 0
    page.emulate_media(reduced_motion="reduce")
    page.locator("#map circle", has=page.locator("title", has_text=re.compile("^jam, "))).click()
    frame, centre = (page.locator(f"#map {what}").bounding_box() for what in (".frame", "circle.centre"))
    assert abs(centre["x"] + centre["width"] / 2 - frame["x"] - frame["width"] / 2) < 3
    assert abs(centre["y"] + centre["height"] / 2 - frame["y"] - frame["height"] / 2) < 3
    assert page.evaluate(overlaps) == 0
    assert chips(page) == ["bread"]
    page.locator("#map .chosen").get_by_role("button", name="Add").click()
    expect(page.locator("#basket li")).to_have_count(2)
    page.get_by_role("button", name="Whole map").click()
    expect(page.locator("#map circle")).to_have_count(18)
    page.locator("#map .frame").focus()
    page.keyboard.press("+")
    page.keyboard.press("Enter")
    expect(page.locator("#map .chosen a")).to_be_visible()


def test_two_fingers_zoom_and_move_the_map(browser, server):
    context = browser.new_context(base_url=server.url, viewport={"width": 390, "height": 844}, has_touch=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto("/?item=bread")
    filled(page)
    page.locator("#map .frame").scroll_into_view_if_needed()
    box, session = page.locator("#map .frame").bounding_box(), context.new_cdp_session(page)
    x, y = box["x"] + 150, box["y"] + 140

    def touch(kind: str, *fingers: tuple[float, float]) -> None:
        points = [{"x": left, "y": top, "id": i} for i, (left, top) in enumerate(fingers)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def places() -> np.ndarray:
        """The dots that are shown: number, x and y."""
        return np.array(
            page.evaluate("""() => [...document.querySelectorAll("#map circle")].map(
            (dot) => [Number(dot.dataset.i), Number(dot.getAttribute("cx")), Number(dot.getAttribute("cy"))])""")
        )

    def moved(before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """By what factor the map has grown, and where its corner has gone."""
        both = np.intersect1d(before[:, 0], after[:, 0]).astype(int)
        old, new = (np.array([one[one[:, 0] == i][0, 1:] for i in both]) for one in (before, after))
        factor = np.ptp(new, axis=0) / np.ptp(old, axis=0)
        return factor, new.mean(axis=0) - factor * old.mean(axis=0)

    start, scrolled = places(), page.evaluate("scrollY")
    touch("touchStart", (x - 30, y), (x + 30, y))
    for gap in range(33, 49, 3):
        touch("touchMove", (x - gap, y), (x + gap, y))
    touch("touchEnd")
    closer = places()
    factor, shift = moved(start, closer)
    np.testing.assert_allclose(factor, 48 / 30, rtol=0.02)
    np.testing.assert_allclose(factor * [150, 140] + shift, [150, 140], atol=1.5)  # what is between the fingers stays
    touch("touchStart", (x - 30, y), (x + 30, y))
    for step in range(3, 22, 3):
        touch("touchMove", (x - 30 - step, y - step / 2), (x + 30 - step, y - step / 2))
    touch("touchEnd")
    factor, shift = moved(closer, places())
    np.testing.assert_allclose(factor, 1, rtol=0.02)
    np.testing.assert_allclose(shift, [-21, -10.5], atol=2)
    assert page.evaluate("scrollY") == scrolled
    assert page.evaluate("visualViewport.scale") == 1
    page.get_by_role("button", name="Whole map").click()
    expect(page.locator("#map .zoomed")).to_have_count(0)
    touch("touchStart", (x, y))
    for step in range(5, 105, 10):  # one finger moves the page
        touch("touchMove", (x, y + step))
    touch("touchEnd")
    page.wait_for_function(f"scrollY < {scrolled - 20}")
    context.close()


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


def test_a_label_is_text_wherever_it_stands(page):
    page.goto("/")
    for n, label in enumerate(ODD, 1):
        type_and_choose(page, label)
        expect(page.locator("#basket li")).to_have_count(n)
    assert chips(page) == list(ODD)
    page.reload()
    expect(page.locator("#basket li")).to_have_count(len(ODD))
    assert chips(page) == list(ODD)
    expect(page.locator("#map text.in-text")).to_have_count(len(ODD))
    for i, label in enumerate(ODD):
        page.locator("#basket").get_by_role("link").nth(i).click()
        expect(page.locator("#product-title")).to_have_text(label)
        expect(page.locator("#product-facts .figures")).to_be_visible()
        assert page.locator("script").count() == 1
        assert page.locator("main script, main img").count() == 0
        page.get_by_role("link", name="Back to the basket").first.click()


def test_everything_by_keyboard(page):
    page.goto("/")
    search = page.locator("#search")
    search.focus()
    page.keyboard.press("ArrowDown")  # the most popular ones
    expect(search).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(search).to_have_attribute("aria-activedescendant", "search-option-1")
    chosen = page.locator("#search-option-1 bdi").text_content()
    page.keyboard.press("Enter")
    expect(page.locator("#basket li")).to_have_count(1)
    assert chips(page) == [chosen]
    filled(page)
    page.locator("#next .plus").first.press("Enter")
    expect(page.locator("#basket li")).to_have_count(2)
    filled(page)
    expect(page.locator("#next a").first).to_be_focused()  # not lost with the row
    page.keyboard.press("/")
    page.keyboard.press("Backspace")
    expect(page.locator("#basket li")).to_have_count(1)
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
    page.locator("#next li").last.get_by_role("button").click()  # a rare item, so that there are baskets to draw again
    for place in ("#next", "#whole", "#likely"):
        expect(page.locator(place)).to_contain_text("The server does not answer.")
    expect(page.locator("#said")).to_have_text("The server does not answer.")
    page.unroute("**/api/**")
    page.locator("#next").get_by_role("button", name="Try again").click()
    expect(page.locator("#next li").first).to_be_visible()
    assert len(chips(page)) == 1


@pytest.mark.parametrize(
    ("path", "width", "scheme"),
    [
        ("/?item=bread&item=tea", 360, "light"),
        ("/?item=bread&item=tea", 1400, "dark"),
        ("/?item=tea#product?item=bread", 390, "light"),
        ("/?item=tea#compare?item=bread&item=jam", 390, "dark"),
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
        filled(page)
        page.get_by_role("combobox").first.fill("t")
        expect(page.get_by_role("option").first).to_be_visible()
    page.evaluate((Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_axe_would_find_something(page):
    package = pytest.importorskip(
        "axe_playwright_python", reason="needs axe-playwright-python: pip install 'ndpp[dev]'"
    )
    page.goto("/health")
    page.evaluate((Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    assert "html-has-lang" in [one["id"] for one in page.evaluate("axe.run()")["violations"]]


def test_limits_are_kept_and_what_is_wrong_with_them_is_told_in_its_card(browser, kernel, model, tmp_path):
    """A budget and a count, by keyboard alone; axe is asked at both widths, in the light and in the dark."""
    package = pytest.importorskip(
        "axe_playwright_python", reason="needs axe-playwright-python: pip install 'ndpp[dev]'"
    )
    sauces = {"tomato sauce", "pesto", "curry paste"}
    rows = "".join(
        f'"{label.replace(chr(34), chr(34) * 2)}",{"<b>sauces" if label in sauces else "other"},2\n'
        for label in kernel.labels
    )
    (tmp_path / "products.csv").write_text(f"item,kind,price\n{rows}", encoding="utf-8")
    with serving(create_app(Settings(model, table=tmp_path / "products.csv"))) as url:
        page, errors = browser.new_page(viewport={"width": 1440, "height": 900}, reduced_motion="reduce"), []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.set_default_timeout(PATIENCE)
        page.goto(f"{url}/?item=bread")
        filled(page)
        page.locator("summary").press("Enter")
        page.get_by_role("spinbutton", name="price in total, at most").fill("8")
        page.get_by_label("How many of").select_option("<b>sauces")
        page.get_by_role("button", name="Add", exact=True).press("Enter")
        expect(page.get_by_role("spinbutton", name="<b>sauces, at least")).to_be_focused()
        page.keyboard.type("2")
        page.keyboard.press("Tab")
        page.keyboard.type("2")
        page.keyboard.press("Tab")
        expect(page.locator("summary")).to_have_text("Limits (2)")
        filled(page)
        cards = [set(card.locator("bdi").all_text_contents()) for card in page.locator("#whole .card").all()]
        assert len(cards) == 4
        assert all(len(card & sauces) == 2 and len(card) <= 3 for card in cards)  # and bread: at most 8 in all
        best = page.locator("#next .row a").all_text_contents()
        assert len(best) == 3
        assert len(sauces & set(best)) <= 2
        page.get_by_role("spinbutton", name="<b>sauces, at least").fill("3")
        page.keyboard.press("Enter")
        expect(page.locator("#whole .trouble")).to_contain_text("'<b>sauces': at least 3 and at most 2")
        expect(page.locator("#next .row")).to_have_count(3)  # which keeps the upper limits
        for width, scheme in ((390, "light"), (1440, "dark")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            page.evaluate((Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
            found = page.evaluate("axe.run()")["violations"]
            assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.get_by_role("button", name="Remove the limit on <b>sauces").press("Enter")
        expect(page.locator("#limit-names")).to_be_focused()
        expect(page.locator("summary")).to_have_text("Limits (1)")
        expect(page.locator("#whole .card")).to_have_count(4)
        assert all("422" in text for text in errors)
        page.close()


def test_recommendations_for_a_customer(browser, kernel, model, tmp_path):
    """By keyboard: the id stays in the tab, also when the page is loaded again, and is never in an address."""
    package = pytest.importorskip(
        "axe_playwright_python", reason="needs axe-playwright-python: pip install 'ndpp[dev]'"
    )
    baskets = ndpp.Baskets.from_lists([["pesto", "tea"], ["pesto"], ["rice"], ["pesto"]], labels=kernel.labels)
    ndpp.Customers(kernel).update(Orders(baskets, ["<b>17", "<b>17", "18", "<b>17"])).save(tmp_path / "customers")
    with serving(create_app(Settings(model, customers=tmp_path / "customers"))) as url:
        context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
        page, asked, errors = context.new_page(), [], []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: asked.append(request.url))
        page.set_default_timeout(PATIENCE)
        page.goto(f"{url}/?item=bread")
        expect(page.locator("#customer")).to_be_visible()
        expect(page.locator(".own")).to_have_count(0)
        page.get_by_label("Customer").fill("<b>17")
        page.keyboard.press("Enter")
        expect(page.locator("#who-said")).to_have_text("Known here. What they have bought before is marked.")
        marked = page.locator("#next .row", has_text="pesto").locator(".own")
        expect(marked).to_have_text("bought before: 100 % of baskets")
        page.reload()
        expect(page.get_by_label("Customer")).to_have_value("<b>17")
        expect(marked).to_have_text("bought before: 100 % of baskets")
        filled(page)
        for width, scheme in ((390, "dark"), (1024, "light")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            page.evaluate((Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
            found = page.evaluate("axe.run()")["violations"]
            assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.get_by_label("Customer").fill("nobody")
        page.get_by_label("Customer").press("Enter")
        expect(page.locator("#who-said")).to_have_text("New here: gets what everybody gets.")
        expect(page.locator(".own")).to_have_count(0)
        page.get_by_label("Customer").fill("")
        page.get_by_label("Customer").press("Enter")
        expect(page.locator("#who-said")).to_have_text("")
        assert not [one for one in asked if "17" in one.removeprefix(url) or "nobody" in one]
        other = context.new_page()
        other.goto(url)
        expect(other.get_by_label("Customer")).to_have_value("")  # another tab knows nothing of it
        assert errors == []
        context.close()


def test_answers_in_a_context(browser, mixture, tmp_path):
    """Every question with a body says what is chosen, by keyboard, also when the page is loaded again; the address does not."""
    package = pytest.importorskip(
        "axe_playwright_python", reason="needs axe-playwright-python: pip install 'ndpp[dev]'"
    )
    levels = {
        "hour": ("8", "20"),
        "<b>town": ("Bath & Wells", "a town with a name that is as long as that of some towns"),
    }
    shifts = np.array([[1.5, -1.5], [-1.5, 1.5], [0.5, -0.5], [-0.5, 0.5]])
    law = mixture.with_context(levels, shifts)
    ndpp.save(law, tmp_path / "trips")
    with serving(create_app(Settings(tmp_path / "trips"))) as url:
        context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
        page, asked, errors = context.new_page(), [], []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: asked.append(request))
        page.set_default_timeout(PATIENCE)

        def contexts() -> set[str]:
            found = {str(one.post_data_json.get("context")) for one in asked if one.method == "POST"}
            asked.clear()
            return found

        page.goto(url)
        hour, town = page.get_by_label("hour", exact=True), page.get_by_label("<b>town", exact=True)
        expect(hour).to_have_value("")
        assert hour.locator("option").all_text_contents() == ["any", "8", "20"]
        filled(page)
        assert contexts() == {"None"}
        hour.press("8")
        expect(page.locator("#said")).to_have_text("Baskets where hour is 8")
        expect(page.locator("#missions .mission").first).to_contain_text("breakfast")
        filled(page)
        assert contexts() == {str({"hour": "8"})}
        early = law.at(hour=8)
        best = early.labels[int(np.argmax(early.inclusion_probabilities()))]
        p = early.inclusion_probabilities().max()
        expect(page.locator("#next .row").first).to_contain_text(best)
        expect(page.locator("#next .row").first).to_contain_text(f"in {100 * p:.0f} % of such baskets")
        share = early.weights[0]
        expect(page.locator("#missions .mission").first).to_contain_text(
            f"{100 * share:.0f} % of such baskets; 40 % of all"
        )
        expect(page.locator("#facts-title")).to_have_text("Such baskets")
        town.select_option("Bath & Wells")
        filled(page)
        assert contexts() == {str({"hour": "8", "<b>town": "Bath & Wells"})}
        type_and_choose(page, "tea")
        filled(page)
        page.get_by_role("button", name="Compare").click()
        filled(page)
        assert contexts() == {str({"hour": "8", "<b>town": "Bath & Wells"})}
        assert "hour" not in page.url
        page.goto(f"{url}/?item=tea#product?item=bread")
        page.reload()
        expect(hour).to_have_value("8")
        expect(town).to_have_value("Bath & Wells")
        filled(page)
        asked.clear()
        hour.focus()
        hour.select_option("20")
        expect(hour).to_be_focused()  # and the title of the product is not
        filled(page)
        found = law.at(hour=20).at({"<b>town": "Bath & Wells"})
        chance = found.inclusion_probabilities()[found.ids(["bread"])[0]]
        expect(page.locator("#product-facts")).to_contain_text(f"{100 * chance:.1f} % of such baskets")
        assert contexts() == {str({"hour": "20", "<b>town": "Bath & Wells"})}
        town.select_option("a town with a name that is as long as that of some towns")
        for width, scheme in ((390, "dark"), (1024, "light")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            filled(page)
            page.evaluate((Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
            violations = page.evaluate("axe.run()")["violations"]
            assert [(one["id"], one["nodes"][0]["html"]) for one in violations] == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        contexts()
        town.select_option("any")
        hour.select_option("any")
        filled(page)
        expect(page.locator("#said")).to_have_text("All baskets")
        assert "None" in contexts()
        other = context.new_page()
        other.goto(url)
        expect(other.get_by_label("hour", exact=True)).to_have_value("")
        assert errors == []
        context.close()


def test_while_a_model_loads_the_page_says_so_and_waits(browser, model, monkeypatch):
    go, load = threading.Event(), Served.load
    monkeypatch.setattr(
        Served, "load", lambda settings, tell: tell(1) or (go.wait(HANG_SECONDS) and load(settings, tell))
    )
    with serving(create_app(Settings(model)), loading=True) as url:
        page = browser.new_page(reduced_motion="reduce")
        page.set_default_timeout(PATIENCE)
        page.goto(f"{url}/?item=bread")
        expect(page.get_by_role("status")).to_contain_text("step 2 of 4: preparing draws")
        page.evaluate("window.same = true")
        with page.expect_response(lambda answer: answer.url.endswith("/ready")):
            pass
        assert page.evaluate("window.same")  # it asks without loading itself again
        go.set()
        expect(page.locator("#basket bdi")).to_have_text("bread")
        page.close()


def test_names_are_shown_beside_codes_and_found(browser, mixture, tmp_path):
    """Codes in the address and in requests; names wherever a person reads, also in what was there before any answer."""
    codes = {label: str(4710908131500 + i) for i, label in enumerate(mixture.labels)}
    law = ndpp.Mixture([one.rename(codes) for one in mixture.components], mixture.weights)
    rows = "".join(
        f"{code},{label.title()} <{code[-2:]}>,{label[0]}\n" for label, code in codes.items() if label != "tea"
    )
    (tmp_path / "products.csv").write_text(f"item,name,kind\n{rows}")
    ndpp.save(law, tmp_path / "m", metadata=ItemTable.read(tmp_path / "products.csv", law).attach())

    def named(label: str) -> str:
        return f"{label.title()} <{codes[label][-2:]}>"

    with serving(create_app(Settings(tmp_path / "m"))) as url:
        page, errors = browser.new_page(reduced_motion="reduce"), []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.set_default_timeout(PATIENCE)
        page.goto(f"{url}/?item={codes['bread']}&item={codes['tea']}")
        expect(page.locator("#basket bdi")).to_have_text([f"{named('bread')} {codes['bread']}", codes["tea"]])
        expect(page.locator("#basket .code")).to_have_text(codes["bread"])
        expect(page.locator("#basket").get_by_role("button", name=f"Remove {named('bread')}")).to_be_visible()
        butter = page.locator("#next .row a", has_text=named("butter"))
        expect(butter).to_have_text(f"{named('butter')} {codes['butter']}")
        expect(page.locator("#missions h3").first).to_have_text(re.compile(r"^[\w ]+ <\d\d> and [\w ]+ <\d\d>$"))
        expect(page.locator("#missions .code")).to_have_count(0)
        page.set_viewport_size({"width": 390, "height": 844})  # what is recommended comes before the fields for limits
        fields = page.locator("section.fields").bounding_box()
        assert page.locator("#next .row").first.bounding_box()["y"] < fields["y"]
        page.set_viewport_size({"width": 1280, "height": 900})
        for typed, found in (("jam", "jam"), (codes["pesto"], "pesto")):
            type_and_choose(page, typed)
            expect(page.locator("#basket bdi").last).to_have_text(f"{named(found)} {codes[found]}")
        assert page.url.endswith("?" + "&".join(f"item={codes[name]}" for name in ("bread", "tea", "jam", "pesto")))
        butter.click()
        expect(page.locator("#product-title")).to_have_text(f"{named('butter')} {codes['butter']}")
        page.goto(f"{url}/?item={codes['bread']}#compare?item={codes['rice']}")
        expect(page.locator("#other bdi")).to_have_text(f"{named('rice')} {codes['rice']}")
        filled(page)
        assert errors == []
        page.close()


def test_pictures_stand_beside_names_and_those_that_do_not_load_leave_their_frames(browser, tmp_path):
    """Of a folder and of a host of the table; the names stand in line, whatever becomes of the pictures."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a loaf.svg").write_text(DRAWING)
    rows = 'bread,a loaf.svg\nbutter,https://shop.example/butter.svg\ntea,gone.png\njam,"https://shop.example/a<b>"jam.png"\n'
    (tmp_path / "products.csv").write_text(f"item,picture\n{rows}")
    ndpp.save(shelf_kernel(), tmp_path / "m")
    settings = Settings(tmp_path / "m", table=tmp_path / "products.csv", pictures=tmp_path / "photos")
    with serving(create_app(settings)) as url:
        page, errors = browser.new_page(reduced_motion="reduce"), []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.route("https://shop.example/**", lambda route: (
            route.fulfill(body=DRAWING, content_type="image/svg+xml") if "butter" in route.request.url else route.abort()))  # fmt: skip
        page.set_default_timeout(PATIENCE)
        page.goto(f"{url}/#product?item=bread")  # the title is there before any answer has told a picture
        expect(page.get_by_alt_text("bread", exact=True)).to_have_js_property("naturalWidth", 96)
        page.goto(f"{url}/")
        rows = page.locator("#next .row")
        expect(rows.filter(has_text="bread").locator("img")).to_have_js_property("naturalWidth", 96)
        expect(rows.filter(has_text="butter").locator("img")).to_have_js_property("naturalWidth", 96)
        expect(page.locator("#next img")).to_have_count(2)
        expect(rows.locator(".picture")).to_have_count(10)
        assert len({row.bounding_box()["x"] for row in rows.locator("bdi").all()}) == 1
        sizes = {
            (box["width"], box["height"]) for box in (one.bounding_box() for one in rows.locator(".picture").all())
        }
        assert sizes == {(48, 48)}
        page.get_by_role("combobox", name="Add an item").fill("bread")
        expect(page.get_by_role("option").first.locator("img")).to_have_js_property("naturalWidth", 96)
        page.get_by_role("combobox", name="Add an item").fill("tea")  # whose picture is not there
        expect(page.get_by_role("option").first).to_contain_text("tea")
        expect(page.get_by_role("option").locator("img")).to_have_count(0)
        expect(page.get_by_role("option").locator(".picture").first).to_be_hidden()
        assert all("404" in error or "ERR_FAILED" in error for error in errors), errors
        page.close()


def test_missions_are_shown_as_text(browser, mixture, tmp_path):
    """The missions of the model, and those that the basket probably belongs to; a name is text, whatever it looks like."""
    ndpp.save(mixture, tmp_path / "trips")
    with serving(create_app(Settings(tmp_path / "trips"))) as url:
        page, errors = browser.new_page(reduced_motion="reduce"), []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.set_default_timeout(PATIENCE)
        page.goto(f"{url}/?item=bread&item=jam")
        expect(page.locator("#missions .mission")).to_have_count(2)
        first, second = page.locator("#missions .mission").all()
        expect(first).to_contain_text(re.compile(r"^breakfast\d+ % of such baskets; 40 % of all"))
        expect(first.locator(".four li")).to_have_count(4)
        expect(second).to_contain_text("<b>dinner</b>")
        expect(page.locator("#missions bdi").get_by_text("breakfast")).to_have_count(1)
        expect(page.locator("#map .legend button")).to_have_text(["<b>dinner</b>", "breakfast"])
        tones = page.locator("#map circle").evaluate_all("dots => dots.map((dot) => getComputedStyle(dot).fill)")
        assert len(set(tones)) == 2
        page.goto(f"{url}/#product?item=jam")
        expect(page.locator("#product-missions .mission").first).to_contain_text(
            re.compile(r"^breakfast\d+ % of the baskets with it")
        )
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
    with serving(create_app(Settings(tmp_path / "m"))) as url:
        page = browser.new_page(reduced_motion="reduce")
        page.set_default_timeout(PATIENCE)
        page.goto(url)
        expect(page.locator("#about")).to_contain_text("50,000 items")
        type_and_choose(page, "item 31417")
        expect(page.locator("#basket bdi")).to_have_text("item 31417 hhhhh")
        expect(page.locator("#next li")).to_have_count(10)
        page.close()
