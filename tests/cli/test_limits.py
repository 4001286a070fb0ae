"""Limits in words, by a table of the products, through the command as a shop would run it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ndpp
from command import run
from ndpp.answers import ItemTable
from ndpp.datasets import shelf_kernel

AISLES = {
    "pasta": "staples", "rice": "staples", "noodles": "staples", "tomato sauce": "sauces", "pesto": "sauces", "curry paste": "sauces",
    "bread": "bakery", "rolls": "bakery", "butter": "dairy", "jam": "", "coffee": "drinks", "tea": "drinks",
}  # fmt: skip
PRICES = {name: 1 + i / 4 for i, name in enumerate(AISLES)}
ROWS = "".join(f"{name},{aisle},{PRICES[name]},{len(name)}\n" for name, aisle in AISLES.items())
TABLE = f"item,aisle,price,code\n{ROWS}oat drink,drinks,,\n"


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """A folder with models and a table of products."""
    folder = tmp_path_factory.mktemp("limits")
    shelf = shelf_kernel()
    ndpp.save(shelf, folder / "model")
    ndpp.save(ndpp.Mixture([shelf, shelf.exclude([0])], [0.5, 0.5]), folder / "mixture")
    (folder / "products.csv").write_text(TABLE)
    (folder / "half.txt").write_text("bread\t\npesto\tpasta\n")
    return folder


def keeps(basket: list[str], aisle: str, least: int, most: int, budget: float) -> bool:
    return least <= sum(AISLES[item] == aisle for item in basket) <= most and sum(map(PRICES.get, basket)) <= budget


def limits() -> list[ndpp.Limit]:
    """What 'sauces=1..2' and 'price<=7.5' say."""
    sauces = [name for name, aisle in AISLES.items() if aisle == "sauces"]
    return [ndpp.Limit(sauces, 1, 2), ndpp.Limit(PRICES, most=7.5)]


WORDS = ("--limit", "sauces=1..2", "--limit", "price <= 7.5", "--table", "products.csv")


@pytest.mark.parametrize("model", ["model", "mixture"])
def test_baskets_keep_limits_and_are_those_of_python(shop, model):
    law = ndpp.load(shop / model)
    drawn = run(shop, "sample", model, "-n", 40, "--seed", 3, "--given", "rice", "-x", "tea", *WORDS, "--json").json
    expected = law.exclude(law.ids(["tea"])).sample(40, given=["rice"], limits=limits(), rng=3)
    assert drawn["baskets"] == [[law.labels[i] for i in basket] for basket in expected]
    assert drawn["limits"] == ["sauces=1..2", "price <= 7.5"]
    assert all(keeps(basket, "sauces", 1, 2, 7.5) and "rice" in basket for basket in drawn["baskets"])
    full = run(shop, "complete", model, "half.txt", "-n", 3, "--seed", 4, *WORDS, "--json").json
    assert all(keeps(basket, "sauces", 1, 2, 7.5) for basket in full["baskets"])
    for i, given in enumerate((["bread"], ["pesto", "pasta"])):
        sampler = law.sampler(given=given, limits=limits())
        own = [part.baskets for part in sampler.stream(3, rng=4, first=3 * i)]
        sets = [sorted(law.labels[a] for a in basket) for baskets in own for basket in baskets]
        assert [sorted(basket) for basket in full["baskets"][3 * i : 3 * i + 3]] == sets


@pytest.mark.parametrize("best", [False, True])
def test_likely_baskets_keep_limits(shop, best):
    law = ndpp.load(shop / "model")
    done = run(shop, "map", "model", "--size", 3, "-x", "tea", *WORDS, "--json", *(["--best"] if best else []))
    allowed = law.exclude(law.ids(["tea"]))
    wanted = (
        ndpp.best_set(allowed, 3, limits=limits()).items if best else ndpp.greedy_map(allowed, 3, limits=limits())
    ).tolist()
    assert done.json["baskets"] == [[law.labels[i] for i in wanted]]
    assert done.json["limits"] == ["sauces=1..2", "price <= 7.5"]
    assert keeps(done.json["baskets"][0], "sauces", 1, 2, 7.5)
    assert ("gap" in done.json) == best


def test_recommendations_keep_upper_limits(shop):
    words = ("--limit", "sauces<=1", "--limit", "price<=7.5", "--table", "products.csv", "-n", 4, "--json")
    found = run(shop, "recommend", "model", "half.txt", *words).json["recommendations"]
    sauces, budget = limits()
    upper = [ndpp.Limit(sauces.values, most=1), budget]
    for given, own in zip((["bread"], ["pesto", "pasta"]), found):
        best = ndpp.recommend(shelf_kernel(), given, n=4, limits=upper, staples=False)
        assert [one["item"] for one in own] == list(best.labels)
        assert keeps([*given, *best.labels], "sauces", 0, 1, 7.5)
    plain = run(shop, "recommend", "model", "half.txt", "-n", 4, "--json").json["recommendations"]
    assert plain != found


def test_a_table_may_be_parquet_or_name_ids(call, shop, tmp_path):
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'ndpp[data]'")
    import pyarrow.parquet

    law = shelf_kernel()
    columns = {
        "item": list(AISLES),
        "aisle": [name or None for name in AISLES.values()],
        "price": list(PRICES.values()),
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "products.parquet")
    ids = "".join(f"{law.ids([name])[0]};{AISLES[name]};{PRICES[name]}\n" for name in AISLES)
    (tmp_path / "ids.csv").write_text(f"item;aisle;price\n{ids}")
    words = [
        "sample",
        shop / "model",
        "-n",
        5,
        "--seed",
        1,
        "--limit",
        "aisle:sauces=1",
        "--limit",
        "price<=6",
        "--ids",
    ]
    expected = call(*words[:-1], "--table", shop / "products.csv", "--json").json["baskets"]
    for table in ("products.parquet", "ids.csv"):
        options = ["--ids"] if table == "ids.csv" else []
        drawn = call(*words[:-1], *options, "--table", tmp_path / table, "--json").json["baskets"]
        assert [[law.labels[a] if options else a for a in basket] for basket in drawn] == expected


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["drink=1"], "--limit 'drink' is not in products.csv; did you mean 'drinks'?"),
        (["aisle:drink=1"], "did you mean 'drinks'?"),
        (["xyz=1"], "it has price, code, bakery, dairy, drinks, sauces, staples"),
        (["drinks<2"], "--limit 'drinks<2' cannot be read; write NAME=2, NAME=1..2, NAME<=2 or NAME>=1"),
        (["price<=20,5"], "cannot be read"),
        (["=3"], "cannot be read"),
        (
            ["aisle<=2"],
            "'aisle' is a column of words or codes, and only numbers add up; name what to count, such as 'bakery'",
        ),
        (["drinks>=3"], "'drinks': at least 3 of 2 items cannot be reached"),
        (["drinks>=2", "drinks<=1"], "contradicts itself"),
        (["drinks>=1", "price>=2", "price<=3"], "cannot be reached"),
        (["staples=2", "price<=2"], "no set keeps these limits together"),
    ],
)
def test_wrong_limits_are_said_in_one_line(call, shop, monkeypatch, words, told):
    monkeypatch.chdir(shop)
    done = call("sample", "model", "--table", "products.csv", *(part for word in words for part in ("--limit", word)))
    assert (done.code, done.out) == (1, "")
    assert told in done.err
    assert done.err.count("\n") == 1


def test_an_item_without_a_price_may_not_come(call, shop, tmp_path):
    few = tmp_path / "few.csv"
    few.write_text("item,aisle,price\npasta,staples,1\nrice,,2\nbread,bakery,\n")
    words = ["sample", shop / "model", "--seed", 1, "--table", few, "--limit"]
    told = (
        "has no price for 10 items that may be in a basket, such as 'noodles'. Fill it in, or leave such items out with"
    )
    assert told in call(*words, "price<=3").err
    assert call(*words, "price<=3", "--only", "pasta,rice").code == 0
    assert "for 1 item that" in call(*words, "price<=3", "--only", "pasta,rice", "--given", "bread").err
    assert call(*words, "staples=0").code == 0  # what has no category counts for none


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("sku,price\ntea,1\n", "has no column 'item'; its columns are 'sku', 'price'. The table needs a column 'item'"),
        ("item,price\nale,1\n", "none of its 1 items is in the catalogue, whose items are such as 'pasta'"),
        ("item,price\ntea,1\ntea,2\n", "names item 'tea' twice"),
        ("item,price,price\ntea,1,2\n", "has two columns 'price'"),
        ("item,price\ntea\n", "line 2: expected values for the columns"),
        ("item,price\ntea,-1\n", "'price' must be finite and ≥ 0; that of item 'tea' is -1"),
        ("item,price,kind\ntea,1,a\nrice,2,a\npasta,3,b\n", "'other' is not in"),
    ],
)
def test_wrong_tables_are_said(call, shop, tmp_path, table, told):
    (tmp_path / "wrong.csv").write_text(table)
    limit = "other<=1" if "kind" in table else "price<=3"
    done = call("sample", shop / "model", "--only", "tea", "--limit", limit, "--table", tmp_path / "wrong.csv")
    assert (done.code, done.out) == (1, "")
    assert told in done.err


def test_what_does_not_go_together(call, shop):
    table = ["--table", shop / "products.csv"]
    alone = call("sample", shop / "model", "--limit", "drinks=1")
    assert alone.code == 1
    assert "need a table of the items. Name one with --table" in alone.err
    assert call("sample", shop / "model", "-k", 2, "--sampler", "walk", "--limit", "drinks=1", *table).code == 2
    lower = call("recommend", shop / "model", "--limit", "drinks=1", *table)
    assert "--limit can only bound recommendations from above, and 'drinks': exactly 1 of 2 items asks for" in lower.err
    broken = call("complete", shop / "model", shop / "half.txt", "--limit", "sauces=0", *table)
    assert "basket 1 of the file: the given items break the limit 'sauces': exactly 0 of 3 items" in broken.err
    kept = (shop / "products.csv").read_bytes()
    assert "is also an input" in call(*["sample", shop / "model", "--limit", "drinks=1", *table, "-o", table[1]]).err
    assert (shop / "products.csv").read_bytes() == kept


def test_names_that_are_not_clear_are_disambiguated(tmp_path):
    law = shelf_kernel()
    (tmp_path / "t.csv").write_text("item,aisle,price,brand\ntea,a=b,1,x:y\nrice,x:y,2,7\npasta,<c,7,7\n")
    table = ItemTable.read(tmp_path / "t.csv", law)

    def ids(word: str) -> list[int]:
        (limit,) = table.limits([word])
        return np.flatnonzero(limit.over(law)).tolist()

    with pytest.raises(ndpp.errors.InvalidInputError, match=r"columns 'aisle' and 'brand' of .* write aisle:x:y"):
        table.limits(["x:y=1"])
    found = {word: ids(word) for word in ("aisle:x:y=1", "brand:x:y=1", "a=b<=1", "<c<=1", "7=1", "price:7=1")}
    tea, rice, pasta = law.ids(["tea", "rice", "pasta"]).tolist()
    assert found == {
        "aisle:x:y=1": [rice], "brand:x:y=1": [tea], "a=b<=1": [tea], "<c<=1": [pasta], "7=1": sorted([pasta, rice]), "price:7=1": [pasta],
    }  # fmt: skip
    (merged,) = table.limits(["a=b>=1", "aisle:a=b<=2"])
    assert (merged.least, merged.most, merged.name) == (1, 2, "a=b")
