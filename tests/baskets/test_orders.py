"""Orders: who bought what when, from files and data frames, and what is wrong with them is named with its place."""

from __future__ import annotations

import pickle
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ndpp.baskets import Baskets
from ndpp.baskets.orders import Orders, in_context
from ndpp.errors import DataWarning, InvalidInputError

LINES = {
    "order": [7, 7, 5, 6, 6],
    "product": ["tea", "milk", "rye", "tea", "tea"],
    "who": ["ann", "ann", "bob", "ann", "ann"],
    "when": ["2026-03-02 09:30", "2026-03-02 09:30", "2026-03-01", "2026-12-09T23:59:59", "2026-12-09T23:59:59"],
    "store": [1, 1, None, 2, 2],
}
COLUMNS: dict[str, Any] = {"basket": "order", "item": "product", "customer": "who", "time": "when"}


def csv(path: Path, lines: dict[str, list[Any]]) -> Path:
    pd.DataFrame(lines).to_csv(path, index=False)
    return path


def read(tmp_path: Path, lines: dict[str, list[Any]], **options: Any) -> Orders:
    return Orders.read(csv(tmp_path / "orders.csv", lines), **{**COLUMNS, **options})


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("parsed", [False, True], ids=["text", "times"])
def test_every_source_gives_the_same_orders(kind: str, parsed: bool, tmp_path: Path) -> None:
    frame = pd.DataFrame(LINES)
    if parsed:
        frame["when"] = pd.to_datetime(frame["when"], format="ISO8601")
    source: Any = tmp_path / f"orders.{kind}"
    if kind in ("csv", "tsv"):
        frame.to_csv(source, index=False, sep="\t" if kind == "tsv" else ",")
    elif kind == "parquet":
        frame.to_parquet(source)
    else:
        make = {"pandas": pd.DataFrame, "polars": pl.from_pandas, "pyarrow": pa.Table.from_pandas}[kind]
        source = make(frame)  # type: ignore[operator]
    orders = Orders.read(source, **COLUMNS, context=["store", "weekday", "month", "season", "hour"])
    assert orders.baskets.labels == ("milk", "rye", "tea")
    assert orders.baskets.to_lists() == [[1], [0, 2], [2]]  # in order of time
    assert list(map(str, orders.baskets.ids_or_numbers)) == ["5", "7", "6"]
    assert orders.customers is not None
    assert orders.customers.tolist() == ["bob", "ann", "ann"]
    assert orders.times is not None
    assert orders.times.dtype == "datetime64[s]"
    assert orders.times.astype(str).tolist() == ["2026-03-01T00:00:00", "2026-03-02T09:30:00", "2026-12-09T23:59:59"]
    words = {name: values.tolist() for name, values in orders.context.items()}
    store = ["", "1.0", "2.0"] if kind in ("csv", "tsv") else ["", "1", "2"]
    assert words == {
        "store": store,
        "weekday": ["Sunday", "Monday", "Wednesday"],
        "month": ["March", "March", "December"],
        "season": ["spring", "spring", "winter"],
        "hour": ["0", "9", "23"],
    }
    assert repr(orders).startswith("<Orders: 3 baskets over 3 items of 2 customers, 2026-03-01 to 2026-12-09, by store")


def test_derived_context_agrees_with_the_calendar() -> None:
    days = np.arange(np.datetime64("1969-01-01"), np.datetime64("1974-01-01"), 11)
    frame = pd.DataFrame({"basket": range(len(days)), "item": "tea", "time": days})
    orders = Orders.read(frame, time="time", context=["weekday", "month"])
    dates: list[date] = days.tolist()
    assert orders.context["weekday"].tolist() == [day.strftime("%A") for day in dates]
    assert orders.context["month"].tolist() == [day.strftime("%B") for day in dates]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.from_pandas], ids=["pandas", "polars"])
def test_times_with_a_zone_are_those_of_its_clock(make: Any) -> None:
    times = pd.to_datetime(LINES["when"], format="ISO8601").tz_localize("America/New_York")
    orders = Orders.read(make(pd.DataFrame({**LINES, "when": times})), **COLUMNS, context=["hour"])
    assert orders.context["hour"].tolist() == ["0", "9", "23"]


def test_a_column_of_the_table_wins_over_the_calendar(tmp_path: Path) -> None:
    orders = read(tmp_path, {**LINES, "weekday": ["x"] * 5}, context=["weekday"])
    assert set(orders.context["weekday"]) == {"x"}


def test_without_times_orders_stay_in_the_order_of_the_rows(tmp_path: Path) -> None:
    orders = read(tmp_path, LINES, time=None)
    assert orders.times is None
    assert orders.customers is not None
    assert orders.customers.tolist() == ["ann", "bob", "ann"]


def test_equal_times_keep_their_order_and_parts_keep_what_they_know(tmp_path: Path) -> None:
    orders = read(tmp_path, {**LINES, "when": ["2026-03-01"] * 5}, context=["store"])
    assert list(orders.baskets.ids_or_numbers) == ["7", "5", "6"]
    part = orders[np.array([True, False, True])]
    assert part.customers is not None
    assert part.customers.tolist() == ["ann", "ann"]
    assert part.context["store"].tolist() == ["1.0", "2.0"]
    assert part.baskets.to_lists() == [[0, 2], [2]]
    assert len(orders[:0]) == 0
    assert "0 baskets" in repr(orders[:0])


def test_unknown_items(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="unknown label 'rye'"):
        read(tmp_path, LINES, labels=["tea", "milk"])
    with pytest.warns(DataWarning, match="skipped 1 unknown item"):
        orders = read(tmp_path, LINES, labels=["tea", "milk"], unknown="skip")
    assert orders.baskets.to_lists() == [[], [0, 1], [0]]
    orders = read(tmp_path, LINES, labels=["tea", "milk"], unknown="new")
    assert orders.baskets.labels == ("tea", "milk", "rye")
    assert orders.baskets.to_lists() == [[2], [0, 1], [0]]
    codes = {**LINES, "product": [12, 11, 13, 12, 12]}
    assert read(tmp_path, codes, labels=["11", "12"], unknown="new").baskets.labels == ("11", "12", "13")
    ids = {**LINES, "product": [0, 1, 3, 0, 0]}
    assert read(tmp_path, ids, n_items=5).baskets.to_lists() == [[3], [0, 1], [0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"who": ["ann", "eve", "bob", "ann", "ann"]}, "line 3: basket '7' has two values of 'who', 'ann' and 'eve'"),
        ({"when": ["2026-03-02", "2026-03-04", "2026-03-01", "2026-01-01", "2026-01-01"]}, "line 3: basket '7' .* day"),
        ({"when": ["2026-03-02", "2026-03-02", "soon", "2026-01-01", "2026-01-01"]}, "line 4: 'soon' .*time_format"),
        ({"when": ["2026-03-02", "2026-03-02", "2026-02-30", "2026-01-01", "2026-01-01"]}, "line 4: '2026-02-30'"),
        ({"when": [20260302, 2, 3, 4, 5]}, "line 3: '2' in column 'when' is not a time"),
        ({"order": [7, 7, None, 6, 6]}, "line 4 names no basket"),
        ({"store": [1, 2, 3, 4, 4]}, "line 3: basket '7' has two values of 'store', '1' and '2'"),
    ],
)
def test_bad_lines_are_named(change: dict[str, list[Any]], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read(tmp_path, {**LINES, **change}, context=["store"])


def test_bad_rows_of_frames_are_named() -> None:
    frame = pd.DataFrame({**LINES, "when": [*LINES["when"][:3], None, None]})
    with pytest.raises(InvalidInputError, match=r"the data frame, row 4: .* in column 'when' is not a time"):
        Orders.read(frame, **COLUMNS)
    with pytest.raises(InvalidInputError, match=r"row 4: .*NaT.* in column 'when' is not a time"):
        Orders.read(frame.assign(when=pd.to_datetime(frame["when"], format="ISO8601")), **COLUMNS)
    with pytest.raises(InvalidInputError, match="row 1: 3 in column 'when' is not a time"):
        Orders.read(frame.assign(when=3), **COLUMNS)


@pytest.mark.parametrize("missing", ["customer", "context"])
def test_missing_columns(missing: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"customer": "client"} if missing == "customer" else {"context": ["client"]}
    with pytest.raises(InvalidInputError, match="no column 'client'; its columns are 'order'"):
        read(tmp_path, LINES, **options)
    with pytest.raises(InvalidInputError, match="no column 'weekday'"):
        read(tmp_path, LINES, time=None, context=["weekday"])


def test_times_in_a_stated_format_and_lines_a_minute_apart(tmp_path: Path) -> None:
    lines = {
        **LINES,
        "when": ["1/12/2010 8:27", "1/12/2010 8:26", "2/12/2010 8:26", "3/12/2010 0:00", "3/12/2010 0:00"],
    }
    with pytest.raises(InvalidInputError, match="'1/12/2010 8:27'"):
        read(tmp_path, lines)
    orders = read(tmp_path, lines, time_format="%d/%m/%Y %H:%M")
    assert orders.times is not None
    assert str(orders.times[0]) == "2010-12-01T08:26:00"


def test_an_order_that_occurs_twice_counts_once(tmp_path: Path) -> None:
    once = csv(tmp_path / "once.csv", LINES)
    text = once.read_text().splitlines(keepends=True)
    twice = tmp_path / "twice.csv"
    twice.write_text("".join(text + text[1:]))
    with pytest.warns(DataWarning, match="3 orders, such as '7', occur twice"):
        orders = Orders.read(twice, **COLUMNS)
    assert orders.baskets == Orders.read(once, **COLUMNS).baskets
    mixed = tmp_path / "mixed.csv"  # lines in another order are no repetition, nor is one item twice
    mixed.write_text("".join([text[0], text[1], text[3], text[2], text[4], text[5]]))
    assert len(Orders.read(mixed, **COLUMNS)) == 3


def test_orders_of_nobody_and_rows_without_baskets(tmp_path: Path) -> None:
    lines = {**LINES, "order": [7, 7, None, 6, 6], "who": ["ann", "ann", "bob", None, "NA"]}
    with pytest.warns(DataWarning, match="skipped 1 row with a missing value"):
        orders = read(tmp_path, lines, missing="skip")
    assert orders.customers is not None
    assert orders.customers.tolist() == ["ann", ""]
    assert "1 customer," in repr(orders)


def test_orders_made_by_hand_are_checked() -> None:
    baskets = Baskets.from_lists([[0], [1]])
    with pytest.raises(InvalidInputError, match="customers must have 2 entries"):
        Orders(baskets, np.array(["ann"]))
    with pytest.raises(InvalidInputError, match="store must have 2 entries"):
        Orders(baskets, context={"store": np.array(["1"])})
    with pytest.raises(InvalidInputError, match="NaT"):
        Orders(baskets, times=np.array(["2026-01-01", "NaT"], "datetime64[s]"))
    orders = Orders(baskets, np.array([3, 4]), np.array(["2026-01-02", "2026-01-01"], "datetime64[D]"))
    assert orders.customers is not None
    assert orders.customers.tolist() == ["4", "3"]
    with pytest.raises(ValueError, match="read-only"):
        orders.customers[0] = "5"


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_tables_hold_the_context_and_partial_reading_leaves_out_what_is_not_there(kind: str, tmp_path: Path) -> None:
    orders = read(tmp_path, {**LINES, "town": ["a, b", "a, b", "NA", "c", "c"]}, context=["town", "weekday"])
    path = tmp_path / f"context.{kind}"
    orders.in_context()[:2].write(path)
    again = Orders.read(path, context=["town", "weekday"])
    assert again.baskets == orders.baskets[:2].relabel({})
    assert {name: words.tolist() for name, words in again.context.items()} == {
        "town": ["", "a, b"], "weekday": ["Sunday", "Monday"],
    }  # fmt: skip
    part = Orders.read(path, context=["season", "weekday", "hour"], time="when", partial=True)
    assert (list(part.context), part.times) == (["weekday"], None)
    late = Orders.read(tmp_path / "orders.csv", **COLUMNS, context=["hour", "x"], partial=True)
    assert (list(late.context), late.known) == (["hour"], ("hour", "weekday", "month", "season"))
    in_season = late.in_context(["season"])
    assert in_season.context["season"].tolist() == ["spring", "spring", "winter"]  # type: ignore[attr-defined]
    with pytest.raises(InvalidInputError, match="names 'store', but these orders have hour, weekday, month, season"):
        late.in_context(["store"])
    with pytest.raises(InvalidInputError, match="has no column 'ordered'; its columns are"):
        Orders.read(tmp_path / "orders.csv", **{**COLUMNS, "customer": None, "time": "ordered"}, partial=True)
    bad = csv(tmp_path / "bad.csv", {**LINES, "when": ["?"] * 5})
    nobody = {**COLUMNS, "customer": None}
    assert Orders.read(bad, **nobody, context=["store"], partial=True).times is None  # not needed
    for columns, context in ((nobody, ["hour"]), (COLUMNS, ["store"])):
        with pytest.raises(InvalidInputError, match="is not a time"):
            Orders.read(bad, **columns, context=context, partial=True)


def test_orders_are_baskets_that_keep_their_columns(tmp_path: Path) -> None:
    orders = read(tmp_path, LINES, context=["store"])
    orders = Orders(orders, orders.customers, orders.times, orders.context, [1.0, 2.0, 0.5])
    assert isinstance(orders, Baskets)
    assert orders == orders.baskets
    assert type(orders.baskets) is Baskets
    assert (orders.total_weight, orders.baskets.total_weight) == (3.5, 3.0)
    assert (orders.baskets.weights, orders.baskets.context) == (None, {})
    assert "weighted, by store" in repr(orders)
    turned = orders[[2, 0]]  # in the order asked for, as for baskets
    parts = orders.split(1, 1, rng=0)
    again = pickle.loads(pickle.dumps(turned))
    for part in (turned, turned.in_context(), again, turned.relabel(str.upper), turned.with_labels(["a", "b", "c"])):
        assert isinstance(part, Orders)
        assert part.weights is not None
        assert part.weights.tolist() == [0.5, 1.0]
        assert part.context["store"].tolist() == ["2.0", ""]
        assert part.customers is not None
        assert part.customers.tolist() == ["ann", "bob"]
        assert not part.customers.flags.writeable
    assert sorted(part.weights[0] for part in parts if part.weights is not None) == [0.5, 1.0, 2.0]
    assert orders[1].tolist() == [0, 2]
    assert len(orders[[]]) == 0


def test_one_reader_for_every_kind_of_orders(tmp_path: Path) -> None:
    sets = [["tea", "milk"], ["rye"]]
    baskets = Baskets.from_lists(sets)
    (tmp_path / "sets.txt").write_text("tea milk\nrye\n")
    baskets.write(tmp_path / "sets.csv")
    for source in (sets, baskets, tmp_path / "sets.txt", tmp_path / "sets.csv", baskets.to_frame("pandas")):
        assert Orders.read(source).to_lists() == [[0, 2], [1]]
    (tmp_path / "completions.csv").write_text(
        "basket,completion,item,added\nA,0,tea,false\nA,0,rye,true\nA,1,tea,false\n"
    )
    assert Orders.read(tmp_path / "completions.csv").to_lists() == [[0, 1], [1]]  # several completions of one basket
    known = Orders(baskets, context={"store": ["1", "2"]}, weights=[1.0, 2.0])
    assert Orders.read(known, context=["store"]).context.keys() == {"store"}
    assert Orders.read(known, context=["store", "till"], partial=True).weights is not None
    assert Orders.read(known).context == {}
    for source in (known, baskets, sets):
        with pytest.raises(InvalidInputError, match="context names 'till', but these orders have"):
            Orders.read(source, context=["till"])
    with pytest.raises(TypeError, match="unexpected keyword argument 'encodign'"):
        Orders.read(sets, encodign="utf-8")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda word: Baskets.from_lists([["a"]], basket_ids=[word]), "basket_ids must be text"),
        (lambda word: Baskets([0, 1], [0], 1, basket_ids=(word,)), "basket_ids must be text"),
        (lambda word: Orders(Baskets.from_lists([["a"]]), context={"store": [word]}), "context 'store' must be text"),
        (lambda word: in_context(Baskets.from_lists([["a"]]), {"store": [word]}, "context"), "context 'store' must"),
        (lambda word: Orders(Baskets.from_lists([["a"]]), context={word: ["a"]}), "must be text that files can hold"),
    ],
)
def test_ids_and_contexts_that_no_file_can_hold_are_refused_where_they_are_given(build, told):
    build("whole 🧀")
    with pytest.raises(InvalidInputError, match=told) as refused:
        build("half \udc80")
    assert r"\udc80" in str(refused.value)
