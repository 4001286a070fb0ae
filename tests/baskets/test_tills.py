"""Files as tills write them: baskets of several columns, dates of all kinds, separators, codes."""

from __future__ import annotations

import io
from datetime import date, datetime

import numpy as np
import pytest

import ndpp
from ndpp.answers import ItemTable
from ndpp.baskets.files import manner
from ndpp.baskets.lines import Columns
from ndpp.baskets.orders import Orders
from ndpp.baskets.times import written
from ndpp.errors import DataWarning, InvalidInputError, UnknownLabelError, similar

pd = pytest.importorskip("pandas")
DAY = datetime(2000, 11, 1, 17, 5)
DAYS = [datetime(2000, 11, day, 9, 30, 7) for day in (1, 2, 13)]


@pytest.mark.parametrize(
    "how",
    [
        "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d.%m.%y", "%d-%m-%Y", "%m/%d/%y", "%d-%b-%Y", "%d %B %Y", "%B %d, %Y",
        "%d/%m/%Y %H:%M", "%m/%d/%Y %I:%M %p", "%d.%m.%Y, %H:%M:%S", "%Y/%m/%dT%H:%M:%S", "%m/%d/%Y %I:%M:%S%p",
    ],
)  # fmt: skip
def test_the_format_of_a_column_is_recognised(how):
    texts = [day.strftime(how) for day in DAYS]
    found = written(texts, "the column")
    assert found is not None
    assert [datetime.strptime(text, found) for text in texts] == [datetime.strptime(text, how) for text in texts]


@pytest.mark.parametrize(
    "texts",
    [["2000-11-01", "2000-11-02"], ["2000-11-01 12:30"], ["20001101"], ["soon"], [], [DAY], [date(2000, 11, 1)]],
)
def test_what_needs_no_format_has_none(texts):
    assert written(texts, "the column") is None


def test_equal_readings_are_no_question():
    assert written(["1/1/2000", "12/12/2000"], "the column") == "%d/%m/%Y"
    assert written(["1 May 2000"], "the column") == "%d %b %Y"


@pytest.mark.parametrize(
    ("texts", "first", "second"),
    [
        (["11/1/2000", "11/2/2000"], "%d/%m/%Y", "%m/%d/%Y"),
        (["11-1-00 8:15"], "%d-%m-%y %H:%M", "%m-%d-%y %H:%M"),
    ],
)
def test_which_of_day_and_month_is_first_is_asked(texts, first, second):
    told = (
        f"the column holds times such as {texts[0]!r}, in which the day may be first or the month. "
        f"Say which with time_format='{first}' or time_format='{second}'"
    )
    with pytest.raises(InvalidInputError) as raised:
        written(texts, "the column")
    assert str(raised.value) == told


def test_a_time_that_is_written_in_another_way_is_named():
    lines = io.StringIO("order,item,when\n1,tea,1.11.2000\n2,tea,13.11.2000\n3,tea,11/14/2000\n")
    with pytest.raises(InvalidInputError, match=r"line 4: '11/14/2000' in column 'when' .* time_format='%d/%m/%Y'"):
        Orders.read(lines, basket="order", time="when", format="csv")


ROWS = [("17", "1.11.2000", "tea"), ("17", "13.11.2000", "tea"), ("17", "1.11.2000", "jam"), ("4", "1.11.2000", "tea")]
BASKETS = [("17, 1.11.2000", ["jam", "tea"]), ("17, 13.11.2000", ["tea"]), ("4, 1.11.2000", ["tea"])]


def named(baskets: ndpp.Baskets) -> list[tuple[object, list[str]]]:
    """Return ids and sorted names of the items of all baskets."""
    return list(zip(baskets.ids_or_numbers, words(baskets)))


def words(baskets: ndpp.Baskets) -> list[list[str]]:
    """Return the sorted names of the items of all baskets."""
    return [sorted(baskets.labels[a] for a in basket) for basket in baskets]


@pytest.mark.parametrize("mark", ",;\t|")
def test_several_columns_name_a_basket(mark):
    text = "".join(mark.join(row) + "\n" for row in [("customer", "date", "product"), *ROWS])
    columns = {"basket": ["customer", "date"], "item": "product"}
    assert named(ndpp.Baskets.read(io.StringIO(text), format="csv", **columns)) == BASKETS
    orders = Orders.read(io.StringIO(text), format="csv", customer="customer", time="date", **columns)
    assert sorted(named(orders)) == sorted(BASKETS)
    assert orders.times.astype("datetime64[D]").astype(str).tolist() == ["2000-11-01", "2000-11-01", "2000-11-13"]
    assert manner(io.StringIO(text), "csv", Columns.of(**columns).names, None) == (
        "csv",
        mark,
        ("customer", "date", "product"),
    )


def test_several_columns_of_a_frame_and_of_parquet_name_a_basket(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(ROWS, columns=["customer", "date", "product"])
    frame["date"], frame["customer"] = pd.to_datetime(frame["date"], format="%d.%m.%Y"), frame["customer"].astype(int)
    frame.to_parquet(tmp_path / "till.parquet")
    wanted = [("17, 2000-11-01", ["jam", "tea"]), ("17, 2000-11-13", ["tea"]), ("4, 2000-11-01", ["tea"])]
    columns = {"basket": ["customer", "date"], "item": "product"}
    assert named(ndpp.Baskets.from_frame(frame, **columns)) == wanted
    assert named(Orders.read(tmp_path / "till.parquet", **columns)) == wanted
    assert manner(tmp_path / "till.parquet", None, (), None).columns == ("customer", "date", "product")


def test_a_line_for_excel_is_no_header():
    text = "sep=;\r\nbasket;item\r\n1;tea\r\n;jam\r\n"
    assert named(ndpp.Baskets.read(io.StringIO(text.replace("\r\n;jam", "")), format="csv")) == [("1", ["tea"])]
    assert manner(io.StringIO(text), "csv", ("item",), None).columns == ("basket", "item")
    with pytest.raises(InvalidInputError, match="line 4 names no basket"):
        ndpp.Baskets.read(io.StringIO(text), format="csv")


def test_parts_of_a_name_are_not_run_together():
    text = "a,b,item\n1,23,tea\n12,3,tea\n"
    assert len(ndpp.Baskets.read(io.StringIO(text), format="csv", basket=["a", "b"])) == 2


@pytest.mark.parametrize("basket", [[], ["a", "a"], [1], [""]])
def test_columns_of_a_basket_are_different_names(basket):
    with pytest.raises(InvalidInputError, match="basket must be a column, or a list of different ones; got"):
        ndpp.Baskets.read(io.StringIO("a,item\n1,tea\n"), format="csv", basket=basket)


def test_a_row_without_a_part_of_its_basket_is_named():
    text = "customer,date,item\n1,,tea\n1,2.3.2000,tea\n"
    with pytest.raises(
        InvalidInputError, match="line 2 names no basket; column 'date' must name a basket in every row"
    ):
        ndpp.Baskets.read(io.StringIO(text), format="csv", basket=["customer", "date"])
    with pytest.warns(DataWarning, match="skipped 1 row"):
        read = ndpp.Baskets.read(io.StringIO(text), format="csv", basket=["customer", "date"], missing="skip")
    assert read.basket_ids == ("1, 2.3.2000",)


def test_all_columns_are_listed_where_one_is_missing():
    told = "has no column 'basket'; its columns are 'customer', 'date', 'product'. Name the right ones with basket=… and item=…"
    for mark in ",;\t|":
        with pytest.raises(InvalidInputError, match=told):
            Orders.read(io.StringIO(f"customer{mark}date{mark}product\n1{mark}2{mark}3\n"), format="csv")


def test_the_columns_that_were_asked_for_can_be_named():
    table = "basket,item\n1,tea\n"
    for known in ({"customer": "who"}, {"time": "when"}, {"customer": "who", "time": "when"}):
        names = ["basket", "item", *known]
        advice = f"Name the right ones with {', '.join(f'{name}=…' for name in names[:-1])} and {names[-1]}=…"
        with pytest.raises(InvalidInputError) as raised:
            Orders.read(io.StringIO(table), format="csv", **known)
        assert str(raised.value).endswith(advice)


@pytest.mark.parametrize("mark", "|;,\t")
@pytest.mark.parametrize("blank", ["", " "])
def test_text_has_one_of_four_separators(mark, blank):
    text = f"whole milk{mark}{blank}rye bread\nbutter\n\nrye bread{mark}{blank}butter\n"
    wanted = [["rye bread", "whole milk"], ["butter"], [], ["butter", "rye bread"]]
    read = ndpp.Baskets.read(io.StringIO(text))
    assert words(read) == wanted
    assert manner(io.StringIO(text), None, (), None) == ("text", mark, ())


def test_of_two_separators_the_one_of_most_lines_counts():
    read = ndpp.Baskets.read(io.StringIO("bread, sliced; tea\ntea; jam\njam; tea\n"))
    assert read.labels == ("bread, sliced", "jam", "tea")
    assert ndpp.Baskets.read(io.StringIO("a b\nb c\n")).labels == ("a", "b", "c")


def test_a_mark_in_names_of_the_catalogue_separates_nothing():
    read = ndpp.Baskets.read(io.StringIO("tea|green jam\njam\n"), labels=["jam", "tea|green"])
    assert words(read) == [["jam", "tea|green"], ["jam"]]


@pytest.mark.parametrize("names", [("a|b", "c"), ("a;b", "c;d"), ("a,b;c", "d|e"), ("a b|c", "d")])
def test_names_with_separators_are_read_back_from_text(tmp_path, names):
    baskets = ndpp.Baskets.from_lists([list(names), [names[0]], [], [names[1]]], labels=sorted(names))
    baskets.write(tmp_path / "baskets.txt")
    assert words(ndpp.Baskets.read(tmp_path / "baskets.txt")) == words(baskets)


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["100205", "100206", "110101"], None),  # of one length
        (["0017", "0020", "1234"], None),  # a zero before others
        (["7", "07", "12"], None),
        (["0", "1", "12"], [0, 1, 12]),
        (["99", "12500", "100205"], [99, 12500, 100205]),
        (["1999", "2999", "3999"], [1999, 2999, 3999]),
        (["12345.0", "12346.5", "10000.0"], [12345, 12346.5, 10000]),
        (["2,50", "12", "-0,5"], [2.5, 12, -0.5]),  # decimal commas
        (["1,234", "2,345", "3"], None),  # thousands, or decimal commas
        (["2,5", "2.5", "3"], None),
        ([None, "0.5", None], [np.nan, 0.5, np.nan]),
    ],
)
def test_codes_are_categories_and_decimal_commas_are_numbers(words, numbers):
    table = ItemTable(ndpp.LowRankKernel(np.eye(3), np.eye(3)), {"code": words})
    assert list(table.numbers) == ([] if numbers is None else ["code"])
    if numbers is not None:
        np.testing.assert_array_equal(table.numbers["code"], numbers)


def test_codes_are_counted_and_not_added_up():
    law = ndpp.datasets.shelf_kernel()
    codes = [("100205", "100206")[i % 2] for i in range(law.n_items)]
    rows = "".join(f"{name};{code};{i},5\n" for i, (name, code) in enumerate(zip(law.labels, codes)))
    table = ItemTable.read(io.StringIO("item;subclass;price\n" + rows), law)
    (limit,) = table.limits(["100205=1..2"])
    assert repr(limit) == f"<Limit '100205': at least 1 and at most 2 of {codes.count('100205')} items>"
    with pytest.raises(InvalidInputError, match="'subclass' is a column of words or codes, and only numbers add up"):
        table.limits(["subclass=100205"])
    with pytest.raises(InvalidInputError, match=r"limits '100205==1' cannot be read; write 100205=1$"):
        table.limits(["100205==1"])


@pytest.mark.parametrize("sets", [[["milk"]], [["milk", "tea"]]])
def test_one_order_is_nothing_to_learn_from(sets):
    pytest.importorskip("torch")
    count = "1 item" if len(sets[0]) == 1 else "2 items"
    with pytest.warns(DataWarning, match=f"there is one basket, of {count}, so there is nothing to learn from"):
        ndpp.fit(sets, "mixture", max_epochs=1, n_missions=1)


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("Unicorn", ()), ("Mlik", ("milk",)), ("buter", ("butter", "peanut butter")), ("tee", ("tea",)),
        ("BUTER", ("butter", "peanut butter")),
        ("food", ("Baby food junior",)), ("xyz", ()), ("", ()),
    ],
)  # fmt: skip
def test_suggestions_resemble_what_was_typed(word, found):
    assert similar(word, ["milk", "tea", "butter", "peanut butter", "Baby food junior"]) == found


def test_what_resembles_nothing_is_told_what_there_is():
    told = "unknown label 'Unicorn'; it is not among the 1 labels of the catalogue, such as 'Baby food junior'"
    assert str(UnknownLabelError("Unicorn", ["Baby food junior"])) == told
