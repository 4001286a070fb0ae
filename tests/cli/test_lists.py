"""Lists of items and categories from files, through the command as a shop would run it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ndpp
from command import Done, run
from ndpp.datasets import shelf_kernel

STOCK = "tomato sauce\nbread \n\n  butter\noat drink\nbread\n"
CATEGORIES = """item;category
bread;bakery\nrolls;bakery\nbutter;dairy\njam;spreads\ncoffee;drinks\ntea;drinks\npasta;staples\nrice;staples
noodles;staples\ntomato sauce;sauces\npesto;sauces\ncurry paste;sauces\noat drink;drinks
"""


@pytest.fixture
def shop(tmp_path: Path, mixture: Path) -> Path:
    """A folder with models, what is in stock, and the categories of the shop."""
    ndpp.save(shelf_kernel(), tmp_path / "model")
    ndpp.save(ndpp.load(mixture), tmp_path / "trips")
    (tmp_path / "stock.txt").write_text(STOCK)
    (tmp_path / "gone.csv").write_text("sku,item\n1,tea\n2,coffee\n3,bread\n")
    (tmp_path / "categories.csv").write_text(CATEGORIES)
    return tmp_path


def items(done: Done) -> list[str]:
    return [one["item"] for one in done.json["recommendations"][0]]


def test_what_is_in_stock_is_recommended(shop):
    words = ["recommend", "model", "-g", "jam", "--candidates-file", "stock.txt", "-n", 9, "--json"]
    refused = run(shop, *words)
    assert refused.code == 1
    assert "stock.txt: unknown label 'oat drink'" in refused.err
    assert "Leave such items out with --unknown skip" in refused.err
    done = run(shop, *words, "--unknown", "skip")
    assert done.err == "ndpp: warning: stock.txt: skipped 1 unknown item, such as 'oat drink'\n"
    kernel = shelf_kernel()
    allowed = kernel.ids(["tomato sauce", "bread", "butter"])
    best = ndpp.recommend(kernel, kernel.ids(["jam"]), n=9, candidates=allowed, staples=False).items
    assert items(done) == [kernel.labels[item] for item in best]
    more = run(shop, *words, "--unknown", "skip", "--only", "rice", "--exclude-file", "gone.csv", "-x", "butter")
    assert set(items(more)) == {"tomato sauce", "rice"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("item,factor\ntee,3", "boost.csv: unknown label 'tee'; did you mean 'tea'? Leave such items out with --unknown skip"),
        *(
            (f"item,factor\ntea,{word}", f"boost.csv: a factor is a number ≥ 0, and 0 for what is out of stock; that of 'tea' is {word!r}")
            for word in ("-1", "nan", "inf", "much", "")
        ),
        ("item,factor\ntea,1\ntea,2", "boost.csv names item 'tea' twice; it can have one row"),
        ("item,boost\ntea,1", "boost.csv has no column 'factor'"),
        ("product,factor\ntea,1", "boost.csv has no column 'item'"),
    ],
)  # fmt: skip
def test_a_table_of_factors_that_is_none(shop, text, told):
    (shop / "boost.csv").write_text(text + "\n")
    for words in (["recommend", "model", "-g", "jam"], ["sample", "model"], ["complete", "model", "-g", "jam"]):
        done = run(shop, *words, "--boost", "boost.csv")
        assert (done.code, done.out) == (1, "")
        assert told in done.err


def test_factors_of_items_that_the_model_does_not_know(shop):
    (shop / "boost.csv").write_text("item;factor\ntea;2\noat drink;0\n")
    done = run(shop, "recommend", "model", "-g", "jam", "--boost", "boost.csv", "--unknown", "skip", "--json")
    assert done.err == "ndpp: warning: boost.csv: skipped 1 unknown item, such as 'oat drink'\n"
    assert items(done) == list(shelf_kernel().tilt({"tea": 2}).recommend(["jam"]).labels)
    (shop / "ids.csv").write_text("item,factor\n11,2\n")
    assert items(run(shop, "recommend", "model", "-g", 9, "--boost", "ids.csv", "--ids", "--json")) == [
        shelf_kernel().ids([item])[0] for item in items(done)
    ]
    (shop / "ids.csv").write_text("item,factor\n12,2\n")
    assert "unknown item id 12" in run(shop, "sample", "model", "--boost", "ids.csv", "--ids").err


def test_a_run_goes_on_with_its_factors(shop):
    (shop / "boost.csv").write_text("item,factor\ntea,0\n")
    words = ["sample", "model", "-n", 20, "--seed", 1, "-o", "drawn.csv", "--boost", "boost.csv"]
    assert run(shop, *words).code == 0
    assert "tea" not in (shop / "drawn.csv").read_text()
    assert run(shop, *words[:-2], "--boost", "drawn.csv").code == 1  # no factors, and also the output


@pytest.mark.parametrize("model", ["model", "trips"])
def test_baskets_of_what_is_in_stock(shop, model):
    words = ["sample", model, "-n", 60, "--seed", 1, "--unknown", "skip", "--candidates-file", "stock.txt"]
    drawn = run(shop, *words, "-g", "rice", "--json").json
    law = ndpp.load(shop / model)
    stock, rice = law.ids(["tomato sauce", "bread", "butter"]), law.ids(["rice"])
    expected = law.restrict(np.union1d(stock, rice)).sample(60, given=rice, rng=1)
    assert drawn["baskets"] == [[law.labels[item] for item in basket] for basket in expected]
    assert drawn["only"] == sorted(stock.tolist())
    (shop / "half.txt").write_text("rice\t\npesto\t\n")
    full = run(
        shop, "complete", model, "half.txt", "--only", "bread,butter,tea", "--exclude-file", "gone.csv", "--json"
    )
    assert [basket[0] for basket in full.json["baskets"]] == ["rice", "pesto"]
    assert {item for basket in full.json["baskets"] for item in basket[1:]} <= {"butter"}
    both = run(shop, "complete", model, "--given", "tea", "--exclude-file", "gone.csv")
    assert "'tea' is both given and excluded" in both.err


@pytest.mark.parametrize("more", [[], ["--best"]], ids=["greedy", "best"])
def test_what_one_basket_holds_does_not_join_another(call, shop, more):
    (shop / "half.txt").write_text("bread\t\nbutter\t\n")
    (shop / "boost.csv").write_text("item,factor\nbutter,0\n")
    words = ["map", shop / "trips", shop / "half.txt", "--size", 3, *more, "--json"]
    first, second = call(*words, "--only", "rice,pasta,pesto").json["baskets"]
    assert (first[0], second[0]) == ("bread", "butter")
    assert {*first[1:], *second[1:]} <= {"rice", "pasta", "pesto"}
    first, second = call(*words, "--boost", shop / "boost.csv").json["baskets"]
    assert ("butter" in first, "butter" in second) == (False, True)


def test_lists_of_ids(shop):
    (shop / "ids.txt").write_text("3\n1\n")
    done = run(shop, "recommend", "model", "--ids", "--candidates-file", "ids.txt", "--json")
    assert sorted(items(done)) == [1, 3]
    (shop / "ids.txt").write_text("3\n99\n")
    assert "unknown item id 99" in run(shop, "recommend", "model", "--ids", "--candidates-file", "ids.txt").err
    skipped = run(shop, "recommend", "model", "--ids", "--candidates-file", "ids.txt", "--unknown", "skip", "--json")
    assert items(skipped) == [3]


def test_at_most_so_many_per_category(shop):
    words = ["recommend", "model", "-n", 20, "--category-of", "categories.csv", "--json"]
    ranked = items(run(shop, "recommend", "model", "-n", 20, "--json"))
    category = category_of()
    for most in (1, 2):
        kept: list[str] = []
        for item in ranked:  # the rule, as the documentation has it
            if sum(category[other] == category[item] for other in kept) < most:
                kept.append(item)
        assert items(run(shop, *words, "--max-per-category", most)) == kept
        why = run(shop, *words, "--max-per-category", most, "--why")
        assert items(why) == kept
    some = run(shop, *words, "--categories", "sauces,drinks", "--categories", "dairy")
    assert items(some) == [item for item in ranked if category[item] in ("sauces", "drinks", "dairy")]
    both = run(shop, *words, "--categories", "sauces", "--max-per-category", 1, "-x", "tomato sauce")
    assert items(both) == ["pesto"]


def category_of() -> dict[str, str]:
    return dict(line.split(";") for line in CATEGORIES.splitlines()[1:])


def test_many_baskets_with_a_limit(shop):
    kernel = shelf_kernel()
    (shop / "orders.csv").write_text("basket,item\nA,bread\nA,tea\nB,pasta\n")
    words = ["recommend", "model", "orders.csv", "-n", 4, "--category-of", "categories.csv", "--max-per-category", 1]
    limit = ndpp.PerCategory([category_of()[label] for label in kernel.labels], 1)
    baskets = ndpp.Baskets.read(shop / "orders.csv", labels=kernel.labels)
    best = [
        [kernel.labels[item] for item in own.items]
        for own in ndpp.recommend_many(kernel, baskets, n=4, per_category=limit)
    ]
    assert [[one["item"] for one in own] for own in run(shop, *words, "--json").json["recommendations"]] == best


@pytest.mark.parametrize(
    ("content", "words", "told"),
    [
        (CATEGORIES, ["--categories", "drink"], "--category-of has no category 'drink'; did you mean 'drinks'?"),
        (CATEGORIES, ["--categories", "xyz"], "it has bakery, dairy, drinks, sauces, spreads, staples"),
        (
            "item,category\ntea,drinks\n",
            ["--categories", "drinks"],
            "--category-of lacks 11 of the items that may be recommended, such as 'pasta'. Give each a category, or name the items",
        ),
        (CATEGORIES + "tea;sauces\n", ["--max-per-category", 1], "item 'tea' has several categories"),
        ("item,kind\ntea,drinks\n", ["--max-per-category", 1], "The file needs the columns 'item' and 'category'"),
        (CATEGORIES + "tea;\n", ["--max-per-category", 1], "expected values for the columns"),
    ],
)
def test_wrong_categories_are_said(call, shop, content, words, told):
    (shop / "wrong.csv").write_text(content)
    done = call("recommend", shop / "model", "--category-of", shop / "wrong.csv", *words)
    assert (done.code, done.out) == (1, "")
    assert told in done.err


def test_items_that_are_no_candidates_need_no_category(call, shop):
    (shop / "few.csv").write_text("item,category\ntea,drinks\ncoffee,drinks\n")
    words = ["--category-of", shop / "few.csv", "--max-per-category", 1, "--only", "tea,coffee", "--json"]
    assert items(call("recommend", shop / "model", *words)) == ["coffee"]


def test_unknown_words_are_skipped_where_that_is_asked_for(call, shop):
    words = ["recommend", shop / "model", "--given", "tea,oat drink", "--exclude", "soap", "--json"]
    done = call(*words, "--unknown", "skip")
    assert items(done) == items(call("recommend", shop / "model", "--given", "tea", "--json"))
    assert all(f"skipped 1 unknown item, such as {name!r}" in done.err for name in ("oat drink", "soap"))
    assert "unknown label 'oat drink'" in call(*words).err


def test_refusals(call, shop):
    assert call("recommend", shop / "model", "--max-per-category", 1).code == 2
    assert call("recommend", shop / "model", "--category-of", shop / "categories.csv").code == 2
    (shop / "none.txt").write_text("oat drink\n")
    words = ["recommend", shop / "model", "--unknown", "skip", "--candidates-file"]
    assert "none.txt names no item of the model" in call(*words, shop / "none.txt").err
    assert "--only names no item of the model" in call(*words[:-1], "--only", "oat drink").err
    (shop / "sku.csv").write_text("sku\ntea\n")
    assert "the column 'item' of a table, or a text file with an item per line" in call(*words, shop / "sku.csv").err
    assert "No such file" in call(*words, shop / "nowhere.txt").err
    kept = (shop / "stock.txt").read_bytes()
    assert "is also an input" in call(*words, shop / "stock.txt", "-o", shop / "stock.txt").err
    assert (shop / "stock.txt").read_bytes() == kept
