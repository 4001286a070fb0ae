"""A day in a shop, through the real command: order ids come back, new products and empty cells do not stop the run."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import ndpp
from command import run
from ndpp.datasets import make_baskets, shelf_kernel

ORDERS = 'order_id,product\nA-17,bread\nA-17,oat drink\nB-3,tea\n"C, 9",oat drink\nD-1,NA\nD-1,coffee \n'
QUICK = ["--model", "ndpp", "--rank", 4, "--max-epochs", 1, "--jobs", 1]
COLUMNS = ["--basket", "order_id", "--item", "product"]
LENIENT = ["--unknown", "skip", "--missing", "skip"]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with a model and the orders of a day."""
    ndpp.save(shelf_kernel(), tmp_path / "model")
    (tmp_path / "orders.csv").write_text(ORDERS)
    return tmp_path


def table(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_recommendations_for_orders(shop):
    refused = run(shop, "recommend", "model", "orders.csv", *COLUMNS, "--missing", "skip", "-o", "best.csv")
    assert refused.code == 1
    assert "orders.csv: unknown label 'oat drink'" in refused.err
    assert "Leave such items out with --unknown skip" in refused.err
    assert not (shop / "best.csv").exists()
    done = run(shop, "recommend", "model", "orders.csv", *COLUMNS, *LENIENT, "-n", 2, "-o", "best.csv")
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines() == [
        "ndpp: warning: orders.csv: removed blanks at the ends of 1 name, such as 'coffee '",
        "ndpp: warning: orders.csv: skipped 1 row with a missing value",
        "ndpp: warning: orders.csv: skipped 1 unknown item, such as 'oat drink': 2 of 5 entries, in 2 baskets",
    ]
    found = [(row["basket"], row["rank"]) for row in table(shop / "best.csv")]
    assert found == [(order, rank) for order in ("A-17", "B-3", "C, 9", "D-1") for rank in "12"]
    told = run(shop, "recommend", "model", "orders.csv", *COLUMNS, *LENIENT, "--json").json
    assert told["basket_ids"] == ["A-17", "B-3", "C, 9", "D-1"]
    kernel = shelf_kernel()
    best = kernel.labels[ndpp.recommend(kernel, kernel.ids(["tea"]), n=1).items[0]]
    assert told["recommendations"][1][0]["item"] == best


def test_missing_values_are_an_error_unless_skipped(shop):
    refused = run(shop, "info", "orders.csv", *COLUMNS)
    assert refused.code == 1
    assert "an item of basket 'D-1' is missing, one of 1. " in refused.err
    assert "leave such rows out with --missing skip" in refused.err
    kept = run(shop, "info", "orders.csv", *COLUMNS, "--missing", "keep", "--json")
    assert (
        kept.json["items"] == 1 + run(shop, "info", "orders.csv", *COLUMNS, "--missing", "skip", "--json").json["items"]
    )


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_completions_of_orders(shop, suffix):
    out = f"full.{suffix}"
    words = ["complete", "model", "orders.csv", *COLUMNS, *LENIENT, "--add", 2, "--seed", 1, "-o", out]
    assert run(shop, *words).code == 0
    rows = table(shop / out) if suffix == "csv" else pq.read_table(shop / out).to_pylist()
    assert list(rows[0]) == ["basket", "item", "added"]
    mark = "true" if suffix == "csv" else True
    assert [row["item"] for row in rows if row["basket"] == "A-17" and row["added"] != mark] == ["bread"]
    assert [sum(row["added"] == mark for row in rows if row["basket"] == i) for i in ("A-17", "B-3", "C, 9")] == [
        2,
        2,
        2,
    ]
    assert ndpp.Baskets.read(shop / out).basket_ids == ("A-17", "B-3", "C, 9", "D-1")
    assert run(shop, *words, "-n", 3).code == 0
    rows = table(shop / out) if suffix == "csv" else pq.read_table(shop / out).to_pylist()
    assert list(rows[0]) == ["basket", "completion", "item", "added"]
    again = ndpp.Baskets.read(shop / out)
    assert len(again) == 12
    assert (again.basket_ids or ())[:4] == ("A-17", "A-17", "A-17", "B-3")


def test_completions_list_what_was_given_first(shop):
    done = run(
        shop, "complete", "model", "--given", "tomato sauce", "--given", "bread", "--add", 2, "--seed", 1, "-n", 3
    )
    assert all(line.split("\t")[:2] == ["tomato sauce", "bread"] for line in done.out.splitlines())
    words = ["complete", "model", "orders.csv", *COLUMNS, *LENIENT, "--add", 1, "-n", 2, "--json"]
    told = run(shop, *words).json
    assert told["basket_ids"] == [order for order in ("A-17", "B-3", "C, 9", "D-1") for _ in range(2)]
    assert [basket[0] for basket in told["baskets"][:4]] == ["bread", "bread", "tea", "tea"]
    likely = run(shop, "map", "model", "orders.csv", *COLUMNS, *LENIENT, "--size", 3, "--to", "csv").out
    assert likely.splitlines()[:2] == ["basket,item,added", "A-17,bread,false"]


def test_evaluation_counts_what_it_skips(shop):
    words = ["evaluate", "model", "orders.csv", *COLUMNS, "--missing", "skip", "--bootstrap", 0, "--json"]
    assert run(shop, *words).code == 1
    done = run(shop, *words, "--unknown", "skip")
    assert done.json["n_baskets"] == 4
    assert "skipped 1 unknown item, such as 'oat drink': 2 of 5 entries" in done.err


def test_splits_keep_their_ids_and_codes_are_names(shop):
    rows = [f"2026-{i},{85123 + 7 * (i % 3)}\n2026-{i},{71053 + i % 2}\n" for i in range(60)]
    (shop / "codes.csv").write_bytes(("order_id,product\n" + "".join(rows)).encode("utf-16"))
    words = ["fit", "codes.csv", *COLUMNS, "-o", "codes", "--test", 20, *QUICK]
    refused = run(shop, *words)
    assert "Name its encoding, for example --encoding utf-16" in refused.err
    assert run(shop, *words, "--encoding", "utf-16").code == 0
    assert ndpp.load(shop / "codes").labels == ("71053", "71054", "85123", "85130", "85137")
    parts = [ndpp.Baskets.read(shop / f"codes.{name}.csv").basket_ids or () for name in ("train", "test")]
    assert (len(parts[0]), len(parts[1])) == (40, 20)
    assert set(parts[0]) | set(parts[1]) == {f"2026-{i}" for i in range(60)}
    best = run(shop, "recommend", "codes", "codes.test.csv", "-n", 1, "--json")
    assert (best.code, best.json["basket_ids"]) == (0, list(parts[1]))
    assert run(shop, "fit", "codes.csv", *COLUMNS, "-o", "ids", "--encoding", "utf-16", "--ids", *QUICK).code == 0
    assert ndpp.load(shop / "ids").n_items == 85138


AWKWARD = ["tea ", " milk", "a\tb", "c\nd", "e\rf", "g, h", '"quoted"', "\ufeffbom", "NA", "i\0j", "k"]


@pytest.mark.parametrize("format", ["text", "csv", "tsv", "parquet", "json"])
def test_every_name_survives_or_is_refused_before_any_draw(shop, format):
    kernel = ndpp.LowRankKernel([[1.0, i / 9] for i in range(11)], [[1.0, 0.5], [-0.5, 1.0]], labels=AWKWARD)
    ndpp.save(kernel, shop / "awkward")
    to = ["--json"] if format == "json" else ["--to", format]
    done = run(shop, "sample", "awkward", "-n", 40, "--seed", 2, *to, "-o", "out")
    if format in ("csv", "tsv"):
        assert done.code == 1
        assert f"a {format} file cannot hold the label 'i\\x00j'" in done.err
        assert "Write text or Parquet, or ids with --ids." in done.err
        assert not list(shop.glob("out*"))
        return
    assert (done.code, done.err) == (0, "")
    expected = kernel.sample(40, rng=2)
    if format == "json":
        named = [list(expected.labelled(i)) for i in range(40)]
        assert json.loads((shop / "out").read_text(encoding="utf-8"))["baskets"] == named
        return
    assert ndpp.Baskets.read(shop / "out", format=format, labels=kernel.labels, as_labels=True) == expected
    again = run(shop, "complete", "awkward", "out", "--from", format, "--size", 2, "--seed", 1)
    assert again.code == 0


# Small things


@pytest.mark.parametrize("command", ["recommend", "fit"])
def test_help_shows_flags_without_a_value(shop, command):
    assert not re.search(r"--(json|help|ids|resume)\b.*<", run(shop, command, "--help").out)
    assert "<bool>" not in run(shop, "--help").out


def test_names_with_commas_need_an_option_each(shop):
    refused = run(shop, "recommend", "model", "--given", "bread,salt, coarse")
    assert refused.code == 1
    assert "Commas separate items: for a name that contains one, repeat --given or --exclude." in refused.err


def test_columns_are_those_of_the_file_they_describe(shop):
    shelf_kernel().sample(80, rng=0).write(shop / "seen.csv")
    words = ["evaluate", "model", "orders.csv", *COLUMNS, *LENIENT, "--train", "seen.csv", "--bootstrap", 0, "--json"]
    assert run(shop, *words).code == 0
    (shop / "seen.csv").write_text("a,b\n1,2\n")
    assert "seen.csv has no column 'order_id'; its columns are 'a', 'b'" in run(shop, *words).err


def test_diagnosis_says_what_it_judges(shop):
    told = run(shop, "diagnose", "model", "--size", 3, "--number", 20).out
    assert "This is about the Markov chain, not about the fit of the model; for that, see ndpp evaluate." in told


# A whole day


def write_orders(names: list[str], baskets: ndpp.Baskets) -> None:
    """Write orders as shops have them: commas and quotes in names, and today's with blanks, gaps and a new product."""
    with open("orders.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["order_id", "product", "quantity"])
        rows.writerows([f"2026-{i:04}", names[item], 1] for i, basket in enumerate(baskets) for item in basket)
    with open("today.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["order_id", "product"])
        rows.writerows(
            [["T-17", "pasta "], ["T-17", "oat drink"], ["T-18", "bread"], ["T-18", ""], ["T-19", names[13]]]
        )


def test_a_whole_day_by_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shop = make_baskets(3000, 24, mean_size=3.5, n_pairs=4, complement_lift=3.5, rng=0)
    names = [f'product {i}, "size M"' for i in range(24)]
    for pair, known in zip(shop.complements, [("pasta", "pesto"), ("bread", "butter")]):
        for item, name in zip(pair, known):
            names[item] = name
    write_orders(names, shop.baskets)
    words = [
        "fit",
        "orders.csv",
        *COLUMNS,
        "-o",
        "shop",
        "--test",
        300,
        "--model",
        "ndpp",
        "--max-epochs",
        12,
        "--jobs",
        1,
    ]
    fitted = run(tmp_path, *words)
    assert (fitted.code, "warning" in fitted.err) == (0, False)
    assert 'product 13, "size M"' in (ndpp.load(tmp_path / "shop").labels or ())
    tested = run(
        tmp_path, "evaluate", "shop", "shop.test.csv", "--train", "shop.train.csv", "--bootstrap", 50, "--json"
    )
    likely = {row["model"]: row["value"] for row in tested.json["results"] if row["metric"] == "log-likelihood"}
    assert likely["model"] > likely["independent items"]
    ids = ndpp.Baskets.read(tmp_path / "shop.test.csv").basket_ids or ()
    assert len(ids) == 300
    assert all(re.fullmatch(r"2026-\d{4}", str(i)) for i in ids)
    assert run(tmp_path, "recommend", "shop", "today.csv", *COLUMNS).code == 1
    assert run(tmp_path, "recommend", "shop", "today.csv", *COLUMNS, *LENIENT, "-n", 1, "-o", "best.csv").code == 0
    best = {row["basket"]: row["item"] for row in table(tmp_path / "best.csv")}
    assert list(best) == ["T-17", "T-18", "T-19"]
    assert (best["T-17"], best["T-18"]) == ("pesto", "butter")
    words = ["complete", "shop", "today.csv", *COLUMNS, *LENIENT, "--add", 2, "--seed", 0, "-o", "full.csv"]
    assert run(tmp_path, *words).code == 0
    rows = table(tmp_path / "full.csv")
    assert [row["item"] for row in rows if row["added"] == "false"] == ["pasta", "bread", 'product 13, "size M"']
    assert [sum(row["basket"] == i for row in rows) for i in best] == [3, 3, 3]
