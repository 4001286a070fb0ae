"""Files as six kinds of tills write them, each read by one command; what is read wrongly is seen, or refused with what to write."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import ndpp
from ndpp.cli.app import commands
from ndpp.cli.guard import Options
from ndpp.cli.options import flattened

FIRST = datetime(2000, 11, 1, 9, 15)
FIT = ("--max-epochs", "1", "--missions", "2", "--rank", "2")
NAMES = [
    "whole milk",
    "rye bread",
    "crème brûlée",
    "butter",
    "tea, green",
    "jam",
    "rice 1 kg",
    "salt",
    "apples",
    "eggs",
]


def options_of(command: Callable[..., None]) -> set[Any]:
    return Options(flattened(command)).known


class Order(NamedTuple):
    """An order: who bought what when, and the number of its receipt."""

    receipt: int
    customer: int
    time: datetime
    items: list[str]


def orders_of(names: list[str]) -> list[Order]:
    rng = random.Random(3)
    made = []
    for receipt in range(60):
        when = FIRST + timedelta(days=rng.randrange(90), minutes=receipt)
        made.append(Order(receipt, 100 + receipt, when, rng.sample(names, rng.randint(1, 4))))
    return made


ORDERS = orders_of(NAMES)


def lines_of(mark: str, header: str, line: Callable[[Order, str], tuple[object, ...]]) -> str:
    rows = [mark.join(map(str, line(order, item))) for order in ORDERS for item in order.items]
    return "\n".join([header, *rows]) + "\n"


def day(time: datetime, how: str) -> str:
    """Return a date without zeros before its numbers."""
    return how.format(d=time.day, m=time.month, y=time.year)


def european(order: Order, item: str) -> tuple[object, ...]:
    price = f"{len(item)},{order.receipt:02}"
    return order.customer, day(order.time, "{d}.{m}.{y}"), item, 100200 + len(item), 1, price


def american(order: Order, item: str) -> tuple[object, ...]:
    return order.customer, f"{day(order.time, '{m}/{d}/{y}')} {order.time:%I:%M %p}", f'"{item}"'


def write_european(path: Path) -> None:
    """Semicolons, decimal commas, days with points; a byte order mark and line ends as Excel writes them."""
    text = lines_of(";", "customer;date;product;subclass;amount;price", european)
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())


def write_american(path: Path) -> None:
    path.write_text(lines_of(",", "Member,Purchased,Description", american), encoding="utf-8")


def write_old(path: Path) -> None:
    """Tabs in a file of Windows-1252."""
    text = lines_of("\t", "receipt\tarticle", lambda order, item: (f"R{order.receipt:04}", item))
    path.write_bytes(text.replace("\n", "\r\n").encode("cp1252"))


def write_bars(path: Path) -> None:
    path.write_text("".join("|".join(order.items) + "\n" for order in ORDERS), encoding="utf-8")


def write_semicolons(path: Path) -> None:
    path.write_text("".join("; ".join(order.items) + "\n" for order in ORDERS), encoding="utf-8")


def write_parquet(path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rows = [(order.customer, order.time.date(), item) for order in ORDERS for item in order.items]
    pandas.DataFrame(rows, columns=["customer", "day", "sku"]).to_parquet(path)


class Till(NamedTuple):
    """A kind of file: what writes it, the options that read it, its time, what `ndpp info` says of it, and ids of its baskets."""

    name: str
    write: Callable[[Path], None]
    options: tuple[str, ...]
    time: str | None
    read: dict[str, Any]
    id_of: Callable[[Order], str]


TILLS = [
    Till(
        "till.csv", write_european, ("--basket", "customer,date", "--item", "product"), "date",
        {"separator": "semicolons", "basket": ["customer", "date"], "time_format": "%d.%m.%Y"},
        lambda order: f"{order.customer}, {day(order.time, '{d}.{m}.{y}')}",
    ),
    Till(
        "us.csv", write_american, ("--basket", "Member,Purchased", "--item", "Description"), "Purchased",
        {"separator": "commas", "columns": ["Member", "Purchased", "Description"], "time_format": "%m/%d/%Y %I:%M %p"},
        lambda order: f"{order.customer}, {day(order.time, '{m}/{d}/{y}')} {order.time:%I:%M %p}",
    ),
    Till(
        "old.csv", write_old, ("--basket", "receipt", "--item", "article", "--encoding", "cp1252"), None,
        {"separator": "tabs", "item": "article"}, lambda order: f"R{order.receipt:04}",
    ),
    Till("bars.txt", write_bars, (), None, {"format": "text", "separator": "bars"}, lambda order: str(order.receipt)),
    Till("list.dat", write_semicolons, (), None, {"format": "text", "separator": "semicolons"}, lambda order: str(order.receipt)),
    Till(
        "lines.parquet", write_parquet, ("--basket", "customer,day", "--item", "sku"), "day",
        {"format": "parquet", "separator": None, "time_format": "ISO 8601"},
        lambda order: f"{order.customer}, {order.time:%Y-%m-%d}",
    ),
]  # fmt: skip


@pytest.fixture(params=TILLS, ids=lambda till: till.name)
def till(request, tmp_path, monkeypatch) -> Till:
    monkeypatch.chdir(tmp_path)
    request.param.write(tmp_path / request.param.name)
    return request.param


def test_info_says_how_each_file_is_read(call, till):
    done = call("info", till.name, *till.options, *([] if till.time is None else ["--time", till.time]), "--json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert (found["baskets"], found["items"]) == (len(ORDERS), len(NAMES))
    assert found["entries"] == sum(len(order.items) for order in ORDERS)
    assert found["read"].items() >= till.read.items()
    own = {till.id_of(order): sorted(order.items) for order in ORDERS}
    assert len(found["first_baskets"]) == 3
    for one in found["first_baskets"]:
        assert sorted(one["items"]) == own[str(one["basket"])]
    if till.time is not None:
        days = sorted(f"{order.time:%Y-%m-%d}" for order in ORDERS)
        assert [found["read"]["first_time"][:10], found["read"]["last_time"][:10]] == [days[0], days[-1]]
    told = call("info", till.name, *till.options).out
    assert f"read as, separator   {till.read['separator'] or '–'}\n" in told
    assert (
        f"  {till.id_of(ORDERS[0])}: {', '.join(map(repr, sorted(ORDERS[0].items)))}\n"
        in told.split("First baskets:\n")[1]
    )


def test_each_file_is_fitted_as_the_baskets_in_memory(call, till):
    pytest.importorskip("torch")
    done = call("fit", till.name, *till.options, "-o", "model.safetensors", *FIT)
    assert done.code == 0, done.err
    sets = [[sorted(NAMES).index(item) for item in order.items] for order in ORDERS]
    baskets = ndpp.Baskets.from_lists(sets, labels=sorted(NAMES))
    wanted = ndpp.fit(baskets, max_epochs=1, n_missions=2, rank=2, random_state=0).law_
    found = ndpp.load("model.safetensors")
    assert found.labels == wanted.labels
    np.testing.assert_allclose(found.inclusion_probabilities(), wanted.inclusion_probabilities(), rtol=1e-9)
    np.testing.assert_allclose(found.size_distribution(), wanted.size_distribution(), rtol=1e-9)


def test_standard_input_is_described_as_well(call):
    text = lines_of(";", "customer;date;product;subclass;amount;price", european)
    words = ("--from", "csv", "--basket", "customer,date", "--item", "product", "--time", "date")
    told = call("info", "-", *words, stdin=text).out
    assert "read as, time format   %d.%m.%Y\n" in told
    assert "read as, basket        customer, date\n" in told


COLUMNS = "its columns are 'customer', 'date', 'product'. Name the right ones with"
AMBIGUOUS = "customer,date,product\n1,11/1/2000,tea\n1,11/1/2000,jam\n2,11/2/2000,tea\n"


def test_which_of_day_and_month_is_first_is_asked_and_can_be_said(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("till.csv").write_text(AMBIGUOUS)
    words = ("info", "till.csv", "--basket", "customer,date", "--item", "product", "--time", "date")
    done = call(*words)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "ndpp: error: till.csv: column 'date' holds times such as '11/1/2000', in which the day may be first or the month. "
        "Say which with --time-format %d/%m/%Y or --time-format %m/%d/%Y\n"
    )
    assert "read as, last time     2000-11-02T00:00:00\n" in call(*words, "--time-format", "%m/%d/%Y").out
    assert "read as, last time     2000-02-11T00:00:00\n" in call(*words, "--time-format", "%d/%m/%Y").out


def test_a_format_with_a_blank_is_quoted_for_the_shell(call, tmp_path):
    (tmp_path / "till.csv").write_text(AMBIGUOUS.replace("/2000", "/2000 8:30"))
    told = call("info", tmp_path / "till.csv", "--basket", "customer", "--item", "product", "--time", "date").err
    assert "Say which with --time-format '%d/%m/%Y %H:%M' or --time-format '%m/%d/%Y %H:%M'" in told


COMMANDS = {name: command for panel in commands().values() for name, command in panel.items()}
READING = [name for name, command in COMMANDS.items() if "--basket" in options_of(command)]


@pytest.mark.parametrize("name", READING)
def test_every_command_that_reads_tables_takes_a_format_of_times(name):
    assert "--time-format" in options_of(COMMANDS[name])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["info", "TILL"], f"has no column 'basket'; {COLUMNS} --basket … and --item …\n"),
        (["info", "TILL", "--basket", "customer", "--item", "product", "--time", "when"],
         f"has no column 'when'; {COLUMNS} --basket …, --item … and --time …\n"),
        (["info", "TILL", "--basket", "customer,when", "--item", "product"], "has no column 'when'"),
        (["info", "TILL", "--basket", "customer,", "--item", "product"], "--basket must be a column, or a list of different ones"),
        (["fit", "SHELF", "-o", "OUT"], "holds a model, not baskets. `ndpp info` describes it"),
        (["fit", "SHELF", "-o", "TILL"], "holds a model, not baskets. `ndpp info` describes it"),
        (["fit", "TEXT", "-o", "OUT", "--basket", "customer,date"], "If it is a table, name its format with --from csv\n"),
        (["info", "HEADED"], "begins with the header of a table: 'basket,item'. Name its format with --from csv\n"),
        (["evaluate", "SHELF", "OWN", "--time", "when"], "has no column 'when'; its columns are 'basket', 'item'"),
        (["items", "SHELF", "-o", "OUT", "--add", "LATIN"],
         "for example --encoding cp1252, or its format with the suffix of its name, such as .csv\n"),
        (["evaluate", "SHELF", "OWN", "--level", "0"], "--level must lie between 0 and 1, such as 0.95; got 0.0"),
        (["recommend", "SHELF", "--given", "bread", "--at", "store=3"],
         "Fit one with context, or take the plain weights with --unknown skip"),
        (["info", "JSONL"], "is JSON; baskets are read from text, CSV or Parquet (--from)"),
        (["recommend", "SHELF", "--given", "Unicorn"], "Unicorn'; it is not among the 12 labels of the catalogue, such as 'pasta'. "
         "`ndpp info MODEL --top N` lists the N most frequent items."),
        (["recommend", "SHELF", "--given", "bread", "--table", "TABLE", "--limit", "dairy==1"],
         "--limit 'dairy==1' cannot be read; write dairy=1\n"),
        (["recommend", "SHELF", "--given", "bread", "--table", "TABLE", "--limit", "price<=0"],
         "the given items break the limit 'price': a total of at most 0: they come to 2 already"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_the_words_of_the_command(call, shelf, tmp_path, words, told):
    till, table, lines = tmp_path / "till.csv", tmp_path / "products.csv", tmp_path / "lines.jsonl"
    till.write_text(AMBIGUOUS.replace(",", ";"))
    table.write_text("item,kind,price\n" + "".join(f"{name},dairy,2\n" for name in ndpp.load(shelf).labels))
    lines.write_text('{"items": ["a", "b"]}\n')
    (tmp_path / "latin.csv").write_bytes("item,like\ncafé,bread\n".encode("cp1252"))
    (tmp_path / "till.txt").write_text(AMBIGUOUS)
    (tmp_path / "orders.txt").write_text("basket,item\n1,bread\n")
    places = {
        "HEADED": tmp_path / "orders.txt",
        "TILL": till,
        "SHELF": shelf,
        "TABLE": table,
        "JSONL": lines,
        "OUT": tmp_path / "x.safetensors",
    }
    places |= {"LATIN": tmp_path / "latin.csv", "TEXT": tmp_path / "till.txt", "OWN": shelf.parent / "orders.csv"}
    done = call(*(places.get(word, word) for word in words))
    assert (done.code, done.out) == (1, "")
    assert told in done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--basket", "customer", "--basket", "date"],
         "--basket is given 2 times; columns that name a basket together are written with commas, such as --basket customer,date"),
        (["--item", "a", "--item", "b", "--item=c"], "--item is given 3 times; it takes one value"),
        (["--json", "true"], "--json takes no value; write --json alone, without 'true'"),
        (["--ids", "False"], "--ids takes no value; leave it out, without 'False'"),
    ],
)  # fmt: skip
def test_options_are_given_once_and_switches_without_a_value(call, tmp_path, words, told):
    done = call("info", tmp_path / "till.csv", *words)
    assert done.code == 2
    assert told in " ".join(done.err.replace("│", " ").split())


def test_what_may_be_repeated_still_is(call, shelf):
    done = call("recommend", shelf, "--given", "bread", "--given", "butter", "-x", "tea", "-x", "rice", "--json")
    assert done.code == 0, done.err
