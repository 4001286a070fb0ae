"""``ndpp fit --context`` and ``--at``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ndpp
from ndpp.baskets.orders import Orders


@pytest.fixture(scope="module")
def orders(tmp_path_factory) -> Path:
    """Breakfast in store 1, tea in store 2, at any till; each on the first or second of a month."""
    path, rng = tmp_path_factory.mktemp("context") / "orders.csv", np.random.default_rng(0)
    lines = ["order,product,shop,till,when"]
    for i in range(240):
        store, till = rng.integers(1, 3), rng.integers(1, 4)
        goods = ["bread", "butter", "jam"] if (rng.random() < 0.9) == (store == 1) else ["tea", "milk", "sugar"]
        lines += [f"{i},{item},{store},{till},2026-03-0{1 + i % 2} 12:00" for item in goods[: rng.integers(2, 4)]]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def mixture(tmp_path_factory) -> Path:
    """Two missions, of which store 1 has the first, and store 2 the second."""
    path = tmp_path_factory.mktemp("context") / "model.safetensors"
    odds, labels = [[3.0, 2.0, 0.1, 0.1], [0.1, 0.1, 2.0, 3.0]], ["bread", "butter", "tea", "milk"]
    law = ndpp.Mixture.tied(odds, np.zeros((4, 2)), np.zeros((2, 2)), [0.5, 0.5], labels=labels).without_empty()
    ndpp.save(law.with_context({"store": ("1", "2")}, np.array([[2.0, -2.0], [-2.0, 2.0]])), path)
    return path


def test_fit_and_info(call, orders, tmp_path):
    path, names = tmp_path / "m.safetensors", ["--basket", "order", "--item", "product", "--time", "when"]
    words = ["--missions", 2, "--max-epochs", 2, "--families", "none", "--test", 20]
    done = call("fit", orders, "-o", path, *names, "--context", "shop, till,weekday", *words, "--json")
    assert done.code == 0, done.err
    told = {one["column"]: one["kept"] for one in done.json["context"]}
    assert told == {"shop": True, "till": False, "weekday": False}
    assert "context shop kept: +" in done.err
    assert ndpp.load(path).context == {"shop": ("1", "2")}
    info = call("info", path)
    assert "  shop kept: +" in info.out
    assert "  till dropped: " in info.out
    assert "  shop: '1', '2'" in info.out
    found = call("info", path, "--json").json
    assert found["context"] == {"shop": ["1", "2"]}
    assert next(one["column"] for one in found["training"]["context"]) == "shop"
    best = [
        call("recommend", path, "-n", 1, "--at", f"shop={shop}", "--json").json["recommendations"][0][0]["item"]
        for shop in (1, 2)
    ]
    assert best[0] in ("bread", "butter", "jam")
    assert best[1] in ("tea", "milk", "sugar")


def test_the_latest_orders_are_the_test(call, orders, tmp_path):
    """Each order goes to the side its time says, with its context; the file of the model remembers the day."""
    path, names = tmp_path / "m.safetensors", ["--basket", "order", "--item", "product"]
    words = ["--missions", 2, "--max-epochs", 2, "--families", "none"]
    read = Orders.read(orders, basket="order", item="product", time="when")
    days = np.sort(read.times).astype("datetime64[D]")
    day = str(days[len(days) * 3 // 4])
    done = call("fit", orders, "-o", path, *names, "--time", "when", "--context", "shop", "--test-after", day, *words)
    assert done.code == 0, done.err
    train, test = (pd.read_csv(tmp_path / f"m.{part}.csv", dtype=str) for part in ("train", "test"))
    assert list(test) == ["basket", "item", "shop"]
    when = dict(zip(map(str, read.basket_ids), read.times.astype("datetime64[D]").astype(str).tolist()))
    assert max(map(when.get, train["basket"])) < day <= min(map(when.get, test["basket"]))
    assert set(train["basket"]) | set(test["basket"]) == set(when)
    kept = ndpp.load_metadata(path)
    assert kept["test"] == {"after": day, "baskets": test["basket"].nunique()}
    assert kept["baskets"]["number"] == train["basket"].nunique()
    assert call("evaluate", path, tmp_path / "m.test.csv", "--bootstrap", 0).code == 0


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--test-after", "soon"), "--test-after takes a day such as 2026-03-01; got 'soon'"),
        (("--test-after", "2026-01-01", "--test", 5), "give one of them"),
        (("--test-after", "1999-01-01", "--time", "when"), "--test-after must leave orders on both sides; orders are from 20"),
        (("--test-after", "2026-01-01"), "no column 'time'"),
        (("--time", "when"), "--time is for --context, such as --context weekday, and for --test-after"),
    ],
)  # fmt: skip
def test_a_test_that_cannot_be_set_aside(call, orders, tmp_path, more, told):
    done = call("fit", orders, "-o", tmp_path / "m.safetensors", "--basket", "order", "--item", "product", *more)
    assert done.code in (1, 2)
    assert told in " ".join(done.err.replace("│", "").split())
    assert not list(tmp_path.glob("m.*.csv"))


def test_an_evaluation_is_in_context(call, orders, tmp_path):
    """By the columns of the file, also of those that fit sets aside; without them, by the plain weights, and it is said."""
    path, names = tmp_path / "m.safetensors", ["--basket", "order", "--item", "product"]
    words = ["--missions", 2, "--max-epochs", 2, "--families", "none", "--test", 60]
    assert call("fit", orders, "-o", path, *names, "--time", "when", "--context", "shop,weekday", *words).code == 0
    law, test = ndpp.load(path), pd.read_csv(tmp_path / "m.test.csv", dtype=str)
    assert list(test) == ["basket", "item", "shop", "weekday"]
    judged = Orders.read(tmp_path / "m.test.csv", context=["shop"], labels=law.labels)

    def judge(file, *more):
        done = call("evaluate", path, file, "--bootstrap", 0, *more, "--json")
        assert done.code == 0, done.err
        found = {one["metric"]: one["value"] for one in done.json["results"] if one["model"] == "model"}
        return found, done.json.get("context"), call("evaluate", path, file, "--bootstrap", 0, *more).out

    found, context, out = judge(tmp_path / "m.test.csv")
    logs = [law.at(shop=shop).log_prob(basket) for shop, basket in zip(judged.context["shop"], judged.baskets)]
    assert found["log-likelihood"] == pytest.approx(np.mean(logs), abs=1e-9)
    assert (context, "Each basket is judged in its own context, by shop." in out) == (["shop"], True)
    (tmp_path / "other.csv").write_text("basket,item,shop\n1,tea,1\n1,milk,1\n2,tea,9\n2,jam,9\n3,tea,\n3,jam,\n")
    assert "The model does not know the shop of 1 basket" in judge(tmp_path / "other.csv")[2]
    judged.baskets.write(tmp_path / "plain.csv")
    judged.baskets.write(tmp_path / "plain.txt")
    for name in ("plain.csv", "plain.txt"):
        plain, context, out = judge(tmp_path / name)
        assert plain["log-likelihood"] == pytest.approx(law.log_probs(judged.baskets).mean(), abs=1e-9)
        assert found["log-likelihood"] > plain["log-likelihood"] + 0.1
        assert found["MPR"] > plain["MPR"] - 1
        assert context == []
        assert f"{name} has no column 'shop': the model is judged with its plain weights." in " ".join(out.split())
    at, context, _ = judge(tmp_path / "m.test.csv", "--at", "shop=1")
    assert at["log-likelihood"] == pytest.approx(law.at(shop=1).log_probs(judged.baskets).mean(), abs=1e-9)
    days = law.with_context({"weekday": ("Sunday", "Monday")}, np.array([[1.0, -1.0], [-1.0, 1.0]]))
    ndpp.save(days, path)
    derived, context, _ = judge(orders, *names, "--time", "when")
    assert context == ["weekday"]
    every = Orders.read(orders, basket="order", item="product", time="when", context=["weekday"], labels=law.labels)
    expected = days.log_probs(every.baskets, context=every.context).mean()
    assert derived["log-likelihood"] == pytest.approx(expected, abs=1e-9)
    assert "; --time derives it" in judge(orders, *names)[2]
    for more, told in ({(): "; --time derives it", ("--time", "when"): "in its own context, by weekday"}).items():
        done = call("report", path, "-o", tmp_path / "m.html", "--test", orders, *names, *more)
        assert done.code == 0, done.err
        assert told in (tmp_path / "m.html").read_text(encoding="utf-8")


def test_every_command_takes_the_model_in_a_context(call, mixture, tmp_path):
    law = ndpp.load(mixture).at(store=2)
    drawn = call("sample", mixture, "-n", 8, "--seed", 5, "--ids", "--at", "store=2", "--json").json
    assert drawn["baskets"] == law.sample(8, rng=5).to_lists()
    assert drawn["baskets"] != call("sample", mixture, "-n", 8, "--seed", 5, "--ids", "--json").json["baskets"]
    completed = call("complete", mixture, "-g", 0, "-n", 8, "--seed", 5, "--ids", "--at", "store=2", "--json").json
    assert completed["baskets"] == law.sample(8, given=[0], rng=5).to_lists()
    assert set(call("map", mixture, "-k", 2, "--at", "store=2").out.split()) == {"tea", "milk"}
    (tmp_path / "b.txt").write_text("bread butter\nbread\n")
    means = []
    for at in ([], ["--at", "store=1"]):
        results = call("evaluate", mixture, tmp_path / "b.txt", "--bootstrap", 20, "--json", *at).json["results"]
        means.append(
            next(one["value"] for one in results if one["model"] == "model" and "log-likelihood" in one["metric"])
        )
    assert means[1] > means[0] + 0.3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--at", "store=3"], "unknown store '3'; the model knows '1', '2'. --unknown skip takes the plain weights"),
        (["--at", "town=Bath"], "'town' is not a column of context of this model; it has 'store'"),
        (["--at", "store"], "takes a column and a value, such as store=3"),
        (["--at", "store=1", "--at", "store=2"], "takes each column once"),
    ],
)
def test_other_contexts_are_refused(call, mixture, words, message):
    done = call("recommend", mixture, "-g", "bread", *words)
    assert done.code != 0
    assert message in " ".join(done.err.replace("│", " ").split())
    if "=" in words[1] and len(words) == 2:
        assert call("recommend", mixture, "-g", "bread", *words, "--unknown", "skip").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--context", "town"], "town"),
        (["--context", "weekday"], "weekday"),
        (["--context", "shop", "--model", "ndpp"], "--context is for mixtures"),
        (["--context", "shop", "--items", "x.txt"], "--items is for files of ids"),
        (["--time", "when"], "--time is for --context"),
    ],
)
def test_bad_context_is_refused(call, orders, tmp_path, words, message):
    done = call("fit", orders, "-o", tmp_path / "m.safetensors", "--basket", "order", "--item", "product", *words)
    assert done.code != 0
    assert message in " ".join(done.err.replace("│", " ").split())
    assert not (tmp_path / "m.safetensors").exists()
