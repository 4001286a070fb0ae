"""``ndpp try``: later orders judge a model and simple methods, and the verdict is what the paired differences say."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import ndpp
from ndpp import Baskets, metrics
from ndpp.baskets.orders import Orders
from ndpp.cli.trial import MODEL, judged, said, split
from ndpp.datasets import shelf_kernel
from pages import HOSTILE, page_of

HOUR = np.timedelta64(1, "h")


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """Five weeks of orders, the later ones first in the file; and the same baskets as text, in order of time."""
    folder = tmp_path_factory.mktemp("trial")
    baskets = shelf_kernel().sample(900, rng=3)
    times = np.datetime64("2026-03-01T00:30") + HOUR * np.arange(900)
    lines = [
        f'{i},"{item}",{times[i]}' for i in range(len(baskets))[::-1] for item in np.array(baskets.labels)[baskets[i]]
    ]
    (folder / "orders.csv").write_text("\n".join(["basket,item,time", *lines]))
    baskets.write(folder / "orders.txt")
    return folder


def test_later_orders_judge_what_was_fitted_to_earlier_ones(call, shop, tmp_path):
    words = ["--minutes", 0.05, "--json", "-o", tmp_path / "t.html", "--keep", tmp_path / "m.safetensors"]
    done = call("try", shop / "orders.csv", *words)
    assert done.code == 0, done.err
    found, read = done.json, Orders.read(shop / "orders.csv", time="time").select(min_size=1)
    after = found["split"]["after"]
    earlier, test = read.split_at(after)
    train, val = earlier[: found["split"]["train"]], earlier[found["split"]["train"] :]
    assert (len(test), len(val)) == (found["split"]["test"], found["split"]["validation"])
    assert train.times.max() <= val.times.min() <= val.times.max() < np.datetime64(after) <= test.times.min()
    assert 0.09 * len(read) <= len(test) <= 0.14 * len(read)
    # The numbers are those of compare_models, with the same items held out.
    law = ndpp.load(tmp_path / "m.safetensors")
    models = {
        "popularity": metrics.independent_items(train), "item-item cosine": metrics.item_item_cosine(train),
        "EASE": metrics.ease(train, validation=val), "EASE by basket size": metrics.ease(train, size_power=None, validation=val),
        "model": law,
    }  # fmt: skip
    rows = {row.name: row for row in metrics.compare_models(models, test, rng=0, n_boot=0, by_size=False).rows}
    assert [one["name"] for one in found["methods"]] == list(models)
    for one in found["methods"]:
        row, own = rows[one["name"]], one["metrics"]
        expected = [row.hit_rate.value, row.reciprocal_rank.value, row.ndcg.value]
        assert [own[name]["value"] for name in ("hit rate", "MRR", "NDCG")] == pytest.approx(expected)
        assert own["MRR"]["low"] < own["MRR"]["value"] < own["MRR"]["high"]
    on_val = {
        name: metrics.hit_rate_at(model, val, rng=0, n_boot=0).value
        for name, model in models.items()
        if name != "model"
    }
    assert on_val[found["simple"]] == max(on_val.values())
    gain = rows["model"].hit_rate.value - rows[found["simple"]].hit_rate.value
    assert found["gain"]["hit rate"]["value"] == pytest.approx(gain)
    assert sum(one["n"] for one in found["basket_sizes"]) <= found["split"]["judged"] == sum(test.sizes > 1)
    page = page_of(tmp_path / "t.html")
    page.check_alone()
    for text in (said(found)["title"], said(found)["found"], f"from {after} on"):
        assert text in page.text


def test_its_tables_fit_a_phone(call, shop, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    if shutil.which("chromium") is None:
        pytest.skip("needs chromium")
    assert call("try", shop / "orders.csv", "--minutes", 0, "-o", tmp_path / "t.html").code == 0
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.goto((tmp_path / "t.html").as_uri())
        hidden = "boxes => boxes.map((box) => box.scrollWidth - box.clientWidth)"
        assert page.locator(".scroll").evaluate_all(hidden) == [0, 0]
        browser.close()


def test_without_times_the_order_of_the_file_counts_and_it_is_said(call, shop, tmp_path):
    done = call("try", shop / "orders.txt", "--minutes", 0, "-o", tmp_path / "t.html")
    assert done.code == 0, done.err
    assert "the last ones of the file, which has no --time" in done.out
    assert "which has no times" not in page_of(tmp_path / "t.html").text
    assert "the file has no times (--time)" in page_of(tmp_path / "t.html").text
    told = call("try", shop / "orders.txt", "--minutes", 0, "--json").json["split"]
    baskets = Baskets.read(shop / "orders.txt").select(min_size=1)
    assert (told["by"], told["after"], told["test"]) == ("the order of the file", None, round(len(baskets) / 10))


def test_a_day_may_be_named(call, shop):
    done = call("try", shop / "orders.csv", "--minutes", 0, "--test-after", "2026-03-20", "--json").json
    read = Orders.read(shop / "orders.csv", time="time").select(min_size=1)
    assert done["split"]["after"] == "2026-03-20"
    assert done["split"]["test"] == len(read.split_at("2026-03-20")[1])
    later = read.split_at("2026-03-20")[1].select(min_size=2).times.astype("datetime64[D]").astype(str)
    days = dict(zip(*np.unique(later, return_counts=True)))
    assert {one["from"]: one["n"] for one in done["weeks"]} == {day: n for day, n in days.items() if n >= 20}
    assert {one["days"] for one in done["weeks"]} == {1}


def test_names_of_a_table_are_on_the_page_and_in_the_model(call, shop, tmp_path):
    labels = Orders.read(shop / "orders.csv").labels
    orders = tmp_path / "orders.csv"
    orders.write_text((shop / "orders.csv").read_text().replace("basket,item", "basket,Article", 1))
    (tmp_path / "names.csv").write_text("Article,name\n" + "".join(f"{label},The {label}!\n" for label in labels))
    words = [
        "--minutes",
        0,
        "--table",
        tmp_path / "names.csv",
        "-o",
        tmp_path / "t.html",
        "--keep",
        tmp_path / "m.safetensors",
    ]
    assert call("try", orders, "--item", "Article", *words).code == 0
    assert any(f"The {label}!" in page_of(tmp_path / "t.html").text for label in labels)
    top = call("info", tmp_path / "m.safetensors", "--top", 1).out
    assert any(f"The {label}!" in top for label in labels)


def test_methods_that_do_not_fit_in_memory_are_left_out_and_it_is_said(call, shop, tmp_path, monkeypatch):
    monkeypatch.setattr("ndpp.metrics.regression.MAX_ITEMS", 3)
    done = call("try", shop / "orders.csv", "--minutes", 0, "-o", tmp_path / "t.html")
    assert "Left out: EASE, EASE by basket size" in " ".join(done.out.split())
    assert "EASE and EASE by basket size, whose weights" in page_of(tmp_path / "t.html").text


class Fixed:
    """Scores the same for every basket: some items first."""

    def __init__(self, n_items: int, first: list[int]) -> None:
        self.n_items, self.row = n_items, np.isin(np.arange(n_items), first) + 0.001 * np.arange(n_items)

    def scores(self, baskets):
        return np.tile(self.row, (len(baskets), 1))


@pytest.mark.parametrize(
    ("own", "other", "verdict", "title"),
    [
        ([0, 1, 2], [7, 8, 9], "model", "Use the model"),
        ([7, 8, 9], [0, 1, 2], "simple", "Use EASE"),
        ([0, 1, 2], [0, 1, 2], "either", "No difference that these orders show"),
    ],
)
def test_the_verdict_follows_the_paired_interval(own, other, verdict, title):
    """Baskets are of the items 0, 1 and 2, so a method that suggests these finds all that is hidden."""
    parts = split(Orders(Baskets.from_lists([[0, 1, 2]] * 400, n_items=10)))
    made = {"popularity": (Fixed(10, [5]), 0.0), "EASE": (Fixed(10, other), 0.0), MODEL: (Fixed(10, own), 0.0)}
    data = judged(parts, made, "EASE", 3, 0)
    assert data["verdict"] == verdict
    told = said({**data, "training": {"ended": "minutes"}, "minutes": 1.0})
    assert told["title"] == title
    assert ("more time may help" in told["follows"]) == (verdict != "model")
    reduced = {"chosen": "9 missions", "instead_of": "400 missions", "minutes": 11.0}
    told_more = said({**data, "training": {"ended": "minutes", "in_time": reduced}, "minutes": 1.0})["follows"]
    assert ("time for 9 missions; 400 missions take about --minutes 11" in told_more) == (verdict != "model")
    n = sum(0 in one for one in (own,)) * 1000
    assert f"suggestions of the model in {n}, of EASE in" in told["found"]


def test_days_divide_orders_and_times_of_one_moment_do_not_matter():
    baskets = Baskets.from_lists([[0, 1]] * 400)
    for times in (None, np.full(400, np.datetime64("2026-01-01"))):
        parts = split(Orders(baskets, times=times))
        assert ([len(part) for part in parts[:3]], parts.after) == ([324, 36, 40], None)
    hours = split(Orders(baskets, times=np.datetime64("2026-01-01") + HOUR * np.arange(400) / 100))
    assert hours.after is not None
    assert len(hours.test) >= 40


def test_hostile_names_and_what_is_refused(call, tmp_path):
    rng = np.random.default_rng(0)
    lists = [[HOSTILE[i] for i in rng.choice(len(HOSTILE), rng.integers(2, 5), replace=False)] for _ in range(300)]
    Baskets.from_lists(lists).write(tmp_path / "odd.csv")
    done = call("try", tmp_path / "odd.csv", "--minutes", 0, "-o", tmp_path / "odd.html")
    assert done.code == 0, done.err
    page_of(tmp_path / "odd.html").check_alone()
    few = tmp_path / "few.txt"
    few.write_text("a b\n" * 30)
    assert "at least 20 orders of two items or more" in call("try", few).err
    assert "ends in .html" in " ".join(call("try", few, "-o", tmp_path / "t.txt").err.replace("│", "").split())
    assert "no column 'when'" in call("try", tmp_path / "odd.csv", "--time", "when").err
