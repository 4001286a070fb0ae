"""Customers by command: fit, count new orders, delete, recommend to one or to all; and what is wrong with a file or a question."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

import ndpp
from command import run
from ndpp.datasets import shelf_kernel


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """A folder with a model, orders of thirty customers, and their file."""
    law, tmp_path = shelf_kernel(), tmp_path_factory.mktemp("customers")
    ndpp.save(law, tmp_path / "shop.safetensors")
    rng, rows = np.random.default_rng(0), []
    for i, basket in enumerate(law.sample(150, rng=1)):
        who = i % 30
        items = set(basket.tolist()) | ({who % 12} if rng.random() < 0.8 else set())
        rows += [f"{i},c{who},2026-{1 + i // 30:02d}-{1 + who % 28:02d},{law.labels[item]}\n" for item in sorted(items)]
    (tmp_path / "orders.csv").write_text("order,household,date,item\n" + "".join(rows))
    words = ["customers", "fit", "shop.safetensors", "orders.csv", *COLUMNS, "-o", "shop.customers", "--json"]
    done = run(tmp_path, *words)
    assert done.json["customers"] == 30
    assert done.json["report"]["fitted"]
    return tmp_path


COLUMNS = ("--basket", "order", "--customer", "household", "--time", "date")
ASK = ("recommend", "shop.safetensors", "--customers", "shop.customers")


@pytest.fixture
def fitted(shop, tmp_path, monkeypatch) -> Path:
    """A copy of it, which may be changed."""
    for file in shop.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_unknown_items_are_named_and_may_be_left_out(fitted, call):
    with open("orders.csv", "a") as orders:
        orders.write("999,c1,2026-06-01,oat drink\n")
    words = ("customers", "fit", "shop.safetensors", "orders.csv", *COLUMNS, "-o", "new.customers")
    done = call(*words)
    assert done.code != 0
    assert "orders.csv: unknown label 'oat drink'" in done.err
    assert "--unknown skip" in done.err
    assert call(*words, "--unknown", "skip").code == 0


def test_from_orders_to_recommendations(fitted, call):
    law = shelf_kernel()
    read = ndpp.Customers.fit(law, "orders.csv", basket="order", customer="household", time="date")
    people = ndpp.Customers.load("shop.customers", law)
    assert people.habits == read.habits
    assert list(people) == sorted({f"c{i}" for i in range(30)})
    best = people.next_basket("c4", 3)
    (found,) = call(*ASK, "--customer", "c4", "-n", 3, "--json").json["recommendations"]
    assert [row["item"] for row in found] == list(best.labels)
    assert [row["usual"] for row in found] == pytest.approx([people.bought(["c4"])[0].get(i, 0) for i in best.items])
    told = call(*ASK, "--customer", "nobody", "-n", 2)
    assert "This customer is new: nothing is known of their orders, so this is what everybody gets." in told.out
    several = call(*ASK, "--customer", "c4", "--customer", "nobody", "-n", 2)
    assert several.out.splitlines()[0].split() == ["customer", "rank", "item", "score", "usual"]
    assert "1 of 2 customers are new" in several.out


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_all_customers_and_baskets_of_theirs(fitted, call, suffix):
    pytest.importorskip("pyarrow")
    people = ndpp.Customers.load("shop.customers", shelf_kernel())
    assert call(*ASK, "--all-customers", "-n", 3, "-o", f"next.{suffix}").code == 0
    if suffix == "csv":
        rows = list(csv.DictReader((fitted / "next.csv").read_text().splitlines()))
    else:
        import pyarrow.parquet

        rows = pyarrow.parquet.read_table("next.parquet").to_pylist()
    found = people.recommend_many(list(people), n=3)
    assert [(row["customer"], row["item"]) for row in rows] == [
        (one, item) for one, best in zip(people, found) for item in best.labels
    ]
    (fitted / "half.csv").write_text("cart,who,item\nx,c4,bread\ny,nobody,bread\nx,c4,tea\n")
    words = ("--basket", "cart", "--customer-column", "who", "-n", 2, "--json")
    got = call(*ASK, "half.csv", *words).json
    assert got["basket_ids"] == ["x", "y"]
    expected = people.recommend("c4", ["bread", "tea"], 2), shelf_kernel().recommend(["bread"], 2)
    assert [[row["item"] for row in one] for one in got["recommendations"]] == [list(one.labels) for one in expected]


def test_the_order_is_told_where_it_is_not_that_of_the_scores(fitted, call):
    """Next baskets are listed by probability, begun ones with a discount for popular items, and so are all if only some are empty."""
    (fitted / "carts.csv").write_text("cart,who,item\nx,c4,\ny,c4,bread\n")
    words = ("--basket", "cart", "--customer-column", "who", "-n", 2)
    plain = call(*ASK, "--all-customers", "-n", 2, "--json").json["meaning"]
    told = call(*ASK, "carts.csv", *words, "--json").json["meaning"]
    assert told == f"{plain} Popular items are ranked a little lower."
    assert call(*ASK, "carts.csv", *words, "--damping", 0, "--json").json["meaning"] == plain


def test_new_orders_are_counted_once_and_a_customer_is_deleted(fitted, call):
    law, file = shelf_kernel(), fitted / "shop.customers"
    before = ndpp.Customers.load(file, law).factors("c4")
    (fitted / "tonight.csv").write_text("order,household,date,item\nn1,c4,2026-09-01,pesto\nn2,new,2026-09-01,tea\n")
    words = ("customers", "update", "shop.safetensors", "shop.customers", "tonight.csv", *COLUMNS)
    assert call(*words, "--json").json["customers"] == 31
    after = ndpp.Customers.load(file, law).factors("c4")
    assert after["pesto"] > before.get("pesto", 1.0)
    again = call(*words)
    assert "2 orders of 2 had been counted already" in again.err
    assert ndpp.Customers.load(file, law).factors("c4") == after
    done = call(
        "customers", "forget", "shop.safetensors", "shop.customers", "c4", "new", "-o", "less.customers", "--json"
    )
    assert done.json["customers"] == 29
    assert b"c4" in file.read_bytes()
    left = ndpp.Customers.load("less.customers", law)
    assert "c4" not in left
    assert "c5" in left
    assert left.law("c4") is left.plain
    told = call("customers", "forget", "shop.safetensors", "less.customers", "c4")
    assert (told.code, "nothing to forget" in told.err) == (1, True)
    assert call("customers", "info", "shop.safetensors", "less.customers").out.splitlines()[2].split()[1] == "29"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["recommend", "shop.safetensors", "--customer", "c4"], "--customer and --history need --customers FILE"),
        (["recommend", "shop.safetensors", "--all-customers"], "need --customers FILE"),
        ([*ASK, "--customer", "half \udcff"], "a customer's id must be text in UTF-8"),
        (["customers", "forget", "shop.safetensors", "shop.customers", "half \udcff"], "a customer's id must be text in UTF-8"),
        ([*ASK, "--all-customers", "--customer", "c4"], "--all-customers is for all of them"),
        ([*ASK, "orders.csv", "--customer", "c4"], "baskets of a file are those of --customer-column"),
        ([*ASK, "--customer", "c4", "--history", "orders.csv"], "use either --customer or --history"),
        ([*ASK, "--customer-column", "who"], "--customer-column is a column of a file of baskets"),
        (["sample", "shop.safetensors", "--customers", "shop.customers", "--customer", "a", "--customer", "b"], "name one customer here"),
        (["recommend", "shop.safetensors", "--customers", "orders.csv", "--customer", "c4"], "cannot load 'orders.csv'"),
        (["recommend", "shop.safetensors", "--customers", "nothing", "--customer", "c4"], "no file of customers at 'nothing'"),
        (["customers", "fit", "shop.safetensors", "orders.csv", "-o", "x.customers"], "has no column"),
        (["customers", "fit", "shop.safetensors", "dates.csv", *COLUMNS, "-o", "x.customers"], "yesterday"),
        (["customers", "fit", "shop.safetensors", "strange.csv", *COLUMNS, "-o", "x.customers"], "unknown label 'ale'"),
        (["customers", "fit", "shop.safetensors", "orders.csv", *COLUMNS, "-o", "orders.csv"], "is also an input"),
        (["customers", "update", "shop.safetensors", "nothing", "orders.csv", *COLUMNS], "no file of customers at 'nothing'"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_told(fitted, call, words, told):
    (fitted / "dates.csv").write_text("order,household,date,item\n1,c1,yesterday,tea\n")
    (fitted / "strange.csv").write_text("order,household,date,item\n1,c1,2026-01-01,ale\n")
    before = (fitted / "shop.customers").read_bytes()
    done = call(*words)
    assert done.code in (1, 2)
    assert told in " ".join(done.err.replace("│", " ").split())
    assert (fitted / "shop.customers").read_bytes() == before
    assert not (fitted / "x.customers").exists()
