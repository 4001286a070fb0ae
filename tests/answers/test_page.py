"""The page shows what every other door answers: with names, pictures, customers, and as one of two models."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from doors import BASKET, BY_NAME, NAMES, QUESTIONS, Asked, ask
from patience import HANG_SECONDS

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'ndpp[dev]'")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser: install Debian's package chromium")
expect = playwright.expect
expect.set_options(timeout=1000 * HANG_SECONDS)
WHY = next(one for one in QUESTIONS if one.name == "recommend and say why")
PROBABILITY = next(one for one in QUESTIONS if one.name == "probability")
STAPLES = BY_NAME["staples"]
"""Without it, the lists are short."""
ADDRESS = "?" + "&".join(f"item={item}" for item in BASKET)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser) -> Iterator[Any]:
    page = browser.new_page(reduced_motion="reduce")
    page.set_default_timeout(1000 * HANG_SECONDS)
    page.route(
        "https://shop.example/**",
        lambda route: route.fulfill(body="<svg xmlns='http://www.w3.org/2000/svg'/>", content_type="image/svg+xml"),
    )
    yield page
    page.close()


def listed(page: Any) -> list[tuple[str, str, float]]:
    """Return what the page lists: label, name, and share in percent."""
    page.get_by_role("checkbox", name="Also what is bought less often than usual").check()
    expect(page.locator("#next .row").nth(5)).to_be_visible()
    expect(page.locator("[aria-busy]")).to_have_count(0)
    rows = []
    for row in page.locator("#next .row").all():
        code = row.locator("a .code").all_text_contents()
        name = row.locator("a bdi").inner_text().removesuffix(code[0] if code else "").strip()
        percent = re.findall(r"in ([\d.]+) %", row.inner_text())  # none of what is rarer than one percent
        rows.append((code[0] if code else name, name, float(percent[0]) if percent else 0.0))
    return rows


def check(page: Any, found: dict[str, Any]) -> None:
    """Fail unless the page lists the items of an answer: in their order, by their names, with their shares."""
    rows, expected = listed(page), found["items"]
    assert len(expected) == 6
    assert [label for label, _, _ in rows[: len(expected)]] == [one["item"] for one in expected]
    assert [name for _, name, _ in rows[: len(expected)]] == [NAMES.get(one["item"], one["item"]) for one in expected]
    for (_, _, percent), one in zip(rows, expected):
        wrong = abs(percent - 100 * one["share"])
        assert one["share"] < 0.01 if percent == 0 else wrong <= (0.5 if one["share"] >= 0.0995 else 0.05) + 1e-9
    pictures = {image.get_attribute("src") for image in page.locator("#next img").all()}
    told = found["pictures"]
    assert pictures >= {told[one["item"]] for one in expected if one["item"] in told} != set()


@pytest.mark.parametrize("model", ["named"], indirect=True)
@pytest.mark.parametrize("door", [door for door in WHY.doors if door != "library"])
def test_the_page_lists_what_a_door_answers(model: Asked, page: Any, door: str):
    page.goto(f"{model.url}/{ADDRESS}")
    check(page, ask(model, door, WHY, [STAPLES]))


@pytest.mark.parametrize("model", ["named"], indirect=True)
def test_for_a_customer_too(model: Asked, page: Any):
    page.goto(f"{model.url}/{ADDRESS}")
    page.get_by_label("Customer", exact=True).fill("17")
    with page.expect_response(lambda answer: answer.url.endswith("/recommend")):
        page.get_by_label("Customer", exact=True).press("Enter")
    found = ask(model, "command", WHY, [BY_NAME["customer"], STAPLES])
    page.locator("#next .own").first.wait_for()
    check(page, found)


@pytest.mark.parametrize("model", ["named"], indirect=True)
def test_beside_another_model_too(model: Asked, page: Any, two: str):
    page.goto(f"{two}/{ADDRESS}")
    page.get_by_role("link", name="named", exact=True).click()
    page.wait_for_url("**/models/named/*")
    page.goto(f"{two}/models/named/{ADDRESS}")
    check(page, ask(model, "command", WHY, [STAPLES]))
    found = ask(model, "answers", PROBABILITY, [])
    page.locator("#missions .mission").first.wait_for()
    shown = dict(re.findall(r"(.+)\n+(\d+) % of such baskets", page.locator("#missions").inner_text()))
    assert shown
    for one in found["missions"]:
        if one["name"] in shown:
            assert abs(int(shown[one["name"]]) - 100 * one["probability"]) <= 0.5 + 1e-9
