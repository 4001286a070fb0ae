"""``ndpp update``: what it prints and writes, what it refuses, and that a killed one changes nothing."""

from __future__ import annotations

import importlib
import signal
import time

import numpy as np
import pandas as pd
import pytest

import ndpp
import only_posix
from command import ENVIRONMENT, end, pausing, spawn
from ndpp import Baskets
from ndpp.baskets.orders import Orders
from ndpp.errors import DataWarning
from ndpp.laws.catalogue import Catalogue

pytest.importorskip("torch")


def shop() -> ndpp.Mixture:
    """Return a mixture of two kinds of baskets: breakfast and dinner."""
    labels = ["bread", "butter", "jam", "tea", "rice", "curry", "beans", "beer"]
    odds = np.where(np.arange(8) < 4, [[0.8], [0.02]], [[0.02], [0.8]])
    law = ndpp.Mixture.tied(odds, np.full((8, 2), 0.1), [[0.0, 1.0], [-1.0, 0.0]], [0.7, 0.3], labels=labels)
    return law.without_empty()


@pytest.fixture
def folder(tmp_path):
    """A model that has seen 500 orders, and the orders of two nights: more dinners than before, and shuffled ones."""
    law = shop()
    ndpp.save(law, tmp_path / "shop.safetensors", metadata={"baskets": {"number": 500}})
    dinners = law.sample(150, component=1, rng=3)
    tonight = Baskets.concat([law.sample(150, rng=2), dinners])
    Baskets(tonight.indptr, tonight.indices, 8, law.labels, tuple(range(300))).write(tmp_path / "tonight.csv")
    mixed = iter(np.random.default_rng(0).permutation(tonight.indices))
    shuffled = [{next(mixed) for _ in range(k)} for k in tonight.sizes]
    Baskets.from_lists(shuffled, labels=law.labels).write(tmp_path / "shuffled.csv")
    return tmp_path


def test_an_update_reports_what_changed(call, folder):
    before = (folder / "shop.safetensors").read_bytes()
    words = ["update", folder / "shop.safetensors", folder / "tonight.csv", "-o", folder / "new.safetensors"]
    done = call(*words, "--learning-rate", 0.05, "--json")
    assert done.code == 0, done.err
    told = done.json
    assert (told["n_orders"], told["n_validation"], told["seen"]) == (300, 30, 800)
    assert told["after"] > told["before"]
    dinner = next(
        one for one in told["missions"] if "rice" in one["name"] or "curry" in one["name"] or "be" in one["name"]
    )
    assert dinner["after"] > dinner["before"]
    assert {one["item"] for one in told["changed"]} == set(shop().labels)
    assert (folder / "shop.safetensors").read_bytes() == before
    law = ndpp.load(folder / "new.safetensors")
    assert law.inclusion_probabilities()[4] > shop().inclusion_probabilities()[4]
    seen = dict(
        line.split(maxsplit=1)
        for line in call("info", folder / "new.safetensors").out.splitlines()
        if line.startswith("updates")
    )
    assert seen == {"updates": "1"}
    words[1] = folder / "new.safetensors"
    again = call(*words)
    assert (again.code, again.out) == (1, "")
    assert (
        "all of these orders were in an earlier update. Leave them out, or count them again with --force." in again.err
    )


def test_orders_of_a_pipe_are_read_again_without_times_where_they_have_none(folder):
    """Another process writes them: they are held, and read from their beginning."""
    words = ["update", folder / "shop.safetensors", "-", "--from", "csv", "-o", folder / "new.safetensors", "--json"]
    with open(folder / "tonight.csv", "rb") as piped:
        done = end(spawn(*words, cwd=folder, stdin=piped))
    assert done.code == 0, done.err
    assert done.json["n_orders"] == 300


def test_an_update_learns_context_anew_where_the_orders_have_it(call, tmp_path):
    """The model takes breakfast for that of store 1; tonight it is that of store 2, and of a new store 3 on Sunday."""
    plain = shop()
    law = plain.with_context({"store": ("1", "2")}, np.array([[1.5, -1.5], [-1.5, 1.5]]))
    path, new, rng = tmp_path / "shop.safetensors", tmp_path / "new.safetensors", np.random.default_rng(0)
    ndpp.save(law, path, metadata={"baskets": {"number": 500}})
    store = rng.integers(1, 4, 600)
    kinds = [plain.sample(600, component=c, rng=c).to_lists() for c in (0, 1)]
    early = rng.random(600) < np.array([0.1, 0.9, 0.9])[store - 1]
    sets = [kinds[int(not is_early)][i] for i, is_early in enumerate(early)]
    known = {"store": store.astype(str), "weekday": np.where(store == 3, "Sunday", "Monday")}
    tonight = Baskets.from_lists(sets, labels=law.labels, basket_ids=range(600))
    Orders(tonight, context=known).write(tmp_path / "tonight.csv")
    tonight.write(tmp_path / "plain.csv")
    Orders(tonight[store == 2], context={"store": known["store"][store == 2]}).write(tmp_path / "one.csv")
    words = ["update", path, tmp_path / "tonight.csv", "-o", new]
    told = call(*words, "--json").json
    assert (told["context"]["column"], told["context"]["kept"]) == ("store", True)
    assert told["after"] - told["before"] > 0.9 * told["context"]["gain"] > 0
    found = ndpp.load(new)
    assert found.context == {"store": ("1", "2", "3")}
    bread = [found.at(store=word).inclusion_probabilities()[0] for word in "123"]
    assert min(bread[1:]) > 2 * bread[0]
    orders = tmp_path / "tonight.csv"
    assert ndpp.load(new).gate.shifts == pytest.approx(ndpp.update(path, orders).law_.gate.shifts)
    assert (
        ndpp.update(path, Orders.read(orders, context=["store"])).context
        == ndpp.update(path, pd.read_csv(orders)).context
    )
    assert "Context learned anew, by store: +" in call(*words).out
    done = call(*words, "--validation", tmp_path / "plain.csv", "--force")
    assert "Context carried over: the orders, or those of --validation, have no column 'store'" in done.out
    for name, sentence in {
        "plain": "Context carried over: the orders, or those of --validation, have no column 'store'",
        "one": "Context carried over: the orders have one value of store",
    }.items():
        done = call("update", path, tmp_path / f"{name}.csv", "-o", new, "--force")
        assert done.code == 0, done.err
        assert sentence in done.out
        assert ndpp.load(new).gate.shifts == pytest.approx(law.gate.shifts)
    assert "Context carried over: there was no training" in call(*words, "--max-epochs", 0).out


def test_validation_orders_by_ids_need_not_name_the_last_item(call, tmp_path):
    law = shop().named(Catalogue(8))
    ndpp.save(law, tmp_path / "shop.safetensors", metadata={"baskets": {"number": 500}})
    law.sample(200, rng=2).write(tmp_path / "tonight.txt")
    (tmp_path / "judges.txt").write_text("0 1\n2 3\n0 3\n")
    words = ["update", tmp_path / "shop.safetensors", tmp_path / "tonight.txt", "-o", tmp_path / "new.safetensors"]
    done = call(*words, "--validation", tmp_path / "judges.txt", "--force", "--json")
    assert done.code == 0, done.err
    assert done.json["n_validation"] == 3


def test_a_refused_update_writes_nothing(call, folder):
    path = folder / "shop.safetensors"
    before = sorted(entry.name for entry in folder.iterdir()), path.read_bytes()
    done = call("update", path, folder / "shuffled.csv", "-o", path)
    assert (done.code, done.out) == (1, "")
    assert "is unlike what the model knows" in done.err
    assert "Learn from them anyway with --force." in done.err
    assert (sorted(entry.name for entry in folder.iterdir()), path.read_bytes()) == before
    worse = [
        "update",
        path,
        folder / "shuffled.csv",
        "--validation",
        folder / "tonight.csv",
        "--learning-rate",
        0.2,
        "-o",
        path,
    ]
    assert call(*worse, "--force").code == 0  # in place
    assert path.read_bytes() != before[1]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["none.csv"], "there are no orders"),
        (["strange.csv"], "none of 1 order has an item of the model; it knows 'bread'"),
        (["tonight.csv", "--item", "product"], "column 'product'"),
        (["tonight.csv", "--drop", "gin"], "unknown label 'gin'"),
        (["missing.csv"], "missing.csv"),
    ],
)
def test_bad_input_changes_nothing(call, folder, words, problem):
    path = folder / "shop.safetensors"
    (folder / "none.csv").write_text("basket,item\n")
    (folder / "strange.csv").write_text("basket,item\n0,ale\n")
    before = path.read_bytes()
    done = call("update", path, folder / words[0], *words[1:], "-o", path)
    assert done.code == 1
    assert problem in done.err
    assert path.read_bytes() == before


def test_a_text_is_not_a_model_and_two_updates_do_not_write_one_file(call, folder):
    done = call("update", folder / "tonight.csv", folder / "tonight.csv", "-o", folder / "new.safetensors")
    assert "is text, not a model" in done.err
    done = call("update", folder / "shop.safetensors", folder / "tonight.csv", "-o", folder / "tonight.csv")
    assert "is also an input" in done.err


@only_posix.signals
@pytest.mark.parametrize("line", ["epoch 1 of", "saving"])
def test_a_killed_update_leaves_the_old_model(call, folder, line):
    path = folder / "shop.safetensors"
    before, env = path.read_bytes(), pausing(folder / "pausing", line=line)
    words = ["update", path, folder / "tonight.csv", "-o", path]
    with open(folder / "told", "wb") as told:
        process = spawn(*words, cwd=folder, env=env, stderr=told)
        while line.encode() not in (folder / "told").read_bytes():
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
        assert end(process).code == -signal.SIGKILL
    assert path.read_bytes() == before
    assert call(*words).code == 0
    assert ndpp.load_metadata(path)["memory"]["orders"] == 800
    assert sorted(entry.name for entry in folder.iterdir() if entry.name.startswith(".")) == []


@pytest.fixture
def customers(folder):
    """The customers' file of three earlier orders, and tonight's orders with customers and times."""
    law = shop()
    before = "basket,item,customer,time\n1,bread,ann,2026-01-01\n2,tea,bob,2026-01-01\n3,bread,ann,2026-01-05\n"
    (folder / "before.csv").write_text(before)
    with pytest.warns(DataWarning, match="too few to fit"):
        ndpp.Customers.fit(law, folder / "before.csv").save(folder / "shop.customers")
    lines = (folder / "tonight.csv").read_text().splitlines()
    named = [f"{line},{'ann' if line.startswith('7,') else 'cy'},2026-01-0{6 + (line > '2')}" for line in lines[1:]]
    (folder / "tonight.csv").write_text("\n".join([f"{lines[0]},customer,time", *named]) + "\n")
    return folder / "shop.customers"


def factors(path, law) -> dict[str, float]:
    return importlib.import_module("ndpp.customers").Customers.load(path, law).factors("ann")


def test_customers_are_counted_with_the_model(call, folder, customers):
    path, before = folder / "shop.safetensors", customers.read_bytes()
    words = ["update", path, folder / "tonight.csv", "-o", path, "--customers", customers]
    old = path.read_bytes(), before
    refused = call("update", path, folder / "none.csv", "-o", path, "--customers", customers)
    assert refused.code == 1
    customers.write_bytes(b"spoilt")
    spoilt = call(*words)
    customers.write_bytes(before)
    for refused in (spoilt, call(*words, "--customer", "client")):
        assert refused.code == 1
        assert "epoch" not in refused.err  # said before the training
    nothing, other = folder / "nothing.csv", folder / "other.csv"
    nothing.write_text("basket,item,customer,time\n")
    other.write_text((folder / "tonight.csv").read_text().replace(",ann,", f",{'x' * 300},"))
    for source, problem in ((nothing, "there are no orders"), (other, "a customer's id must have 1 to 256 bytes")):
        refused = call("update", path, source, "-o", path, "--customers", customers)
        assert refused.code == 1
        assert problem in refused.err
        assert "epoch" not in refused.err
    assert (path.read_bytes(), customers.read_bytes()) == old  # either both or none
    assert call(*words).code == 0
    assert path.read_bytes() != old[0]
    bought = {line.split(",")[1] for line in (folder / "tonight.csv").read_text().splitlines() if line.startswith("7,")}
    assert set(factors(customers, ndpp.load(path))) == {"bread"} | bought


KILLING = """
import os, signal
before = [{before}]
def counted(function):
    def step(*arguments, **options):
        if before[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        before[0] -= 1
        return function(*arguments, **options)
    return step
os.fsync, os.replace = counted(os.fsync), counted(os.replace)
"""


@only_posix.signals
@pytest.mark.parametrize("before", [1, 3, 7], ids=["a model half done", "customers half done", "between the two files"])
def test_an_update_killed_at_any_step_is_as_one_that_was_not(call, folder, customers, before):
    """The second run writes the same bytes, and nothing of the first is left."""
    words = ["update", folder / "shop.safetensors", folder / "tonight.csv", "--drop", "beer", "--force", "-o"]
    whole, copy = folder / "whole.safetensors", folder / "copy.customers"
    copy.write_bytes(customers.read_bytes())
    assert call(*words, whole, "--customers", copy).code == 0
    expected = [whole.read_bytes(), copy.read_bytes()]
    (folder / "killing").mkdir()
    (folder / "killing" / "sitecustomize.py").write_text(KILLING.format(before=before))
    process = spawn(
        *words,
        words[1],
        "--customers",
        customers,
        cwd=folder,
        env={**ENVIRONMENT, "PYTHONPATH": str(folder / "killing")},
    )
    assert end(process).code == -signal.SIGKILL
    assert any(entry.name.startswith(".") for entry in folder.iterdir())
    done = call(*words, words[1], "--customers", customers)
    assert done.code == 0
    assert [words[1].read_bytes(), customers.read_bytes()] == expected
    assert ("had been counted already" in done.err) == (before == 7)
    assert not [entry.name for entry in folder.iterdir() if entry.name.startswith(".")]


@only_posix.signals
def test_an_update_killed_between_two_files_is_run_again(call, folder, customers):
    """The customers are new then, and the model old: to count the orders again counts them once."""
    path = folder / "shop.safetensors"
    whole, copy = [path.read_bytes(), customers.read_bytes()], folder / "copy.customers"
    words = ["update", path, folder / "tonight.csv", "-o"]
    copy.write_bytes(whole[1])
    assert call(*words, folder / "copy.safetensors", "--customers", copy).code == 0
    env = pausing(folder / "pausing", customers.name, holds=b"")
    process = spawn(*words, path, "--customers", customers, cwd=folder, env=env)
    while customers.read_bytes() == whole[1]:
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    end(process)
    assert path.read_bytes() == whole[0]
    assert call(*words, path, "--customers", customers).code == 0
    assert path.read_bytes() == (folder / "copy.safetensors").read_bytes()
    law = ndpp.load(path)
    assert factors(customers, law) == pytest.approx(factors(copy, law))


def test_the_catalogue_may_stay_as_it_is(call, folder):
    """What is new is left out, however often it was sold, and the ids of the items stay."""
    law = ndpp.load(folder / "shop.safetensors")
    lines = (folder / "tonight.csv").read_text().splitlines()
    lines += [f"{i},oat drink" for i in range(200)]
    (folder / "tonight.csv").write_text("\n".join(lines))
    words = ["update", folder / "shop.safetensors", folder / "tonight.csv", "-o", folder / "new.safetensors", "--json"]
    done = call(*words, "--keep-catalogue")
    assert done.code == 0, done.err
    assert (done.json["entered"], done.json["left"], done.json["skipped"]) == ([], [], ["oat drink"])
    assert "since the catalogue stays as it is" in done.err
    new = ndpp.load(folder / "new.safetensors")
    assert new.labels == law.labels
    assert call(*words).json["entered"] == ["oat drink"]
    refused = call(*words, "--keep-catalogue", "--drop", "jam")
    assert refused.code == 1
    assert "--keep-catalogue is to keep all items as they are" in refused.err
    assert "--drop" in refused.err
