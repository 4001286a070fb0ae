"""Baskets: what goes in comes out, by every way in and out, and bad input is named."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import stat
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

import only_posix
from kernels import data_folder
from ndpp import LowRankKernel
from ndpp.baskets import Baskets
from ndpp.errors import DataWarning, InvalidInputError, MissingExtraError

FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
SUFFIXES = [".txt", ".baskets.gz", ".csv", ".csv.gz", ".tsv", ".parquet"]

frames = pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)

sets = st.lists(st.lists(st.integers(0, 8), max_size=6), min_size=1, max_size=8)
plain_names = st.text("abyz-_.09é&;'\"#", min_size=1, max_size=5)
spaced_names = st.text("ab0 ,", min_size=1, max_size=6).map(str.strip).filter(bool)
any_names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)
AWKWARD = [
    "\t\n\r,'\"",
    "\r",
    " a",
    "a ",
    "\ufeffa",
    '"',
    '"a"',
    '"\\"',
    "NA",
    "null",
    "\x85",
    "a\u2028b",
    "<b>",
    "-0",
    "007",
]
round_trip = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def made(lists: list[list[int]], labels: tuple[str, ...] | None = None) -> Baskets:
    return Baskets.from_lists(lists, n_items=9, labels=labels)


# Making


def test_record_is_sorted_merged_and_read_only() -> None:
    baskets = Baskets.from_lists([[3, 0, 3], [], [5, 1, 2]], n_items=6)
    assert baskets.indptr.tolist() == [0, 2, 2, 5]
    assert baskets.indices.tolist() == [0, 3, 1, 2, 5]
    assert baskets.indices.dtype == baskets.indptr.dtype == np.int64
    assert baskets.sizes.tolist() == [2, 0, 3]
    assert baskets.n_items == 6
    for array in (baskets.indptr, baskets.indices, baskets[0]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        baskets.n_items = 7  # type: ignore[misc]
    with pytest.raises(TypeError, match="unhashable"):
        hash(baskets)


@pytest.mark.parametrize(
    "given_sets",
    [
        [[0, 3], [1]],
        [{3, 0}, {1}],
        [(3, 0), (1,)],
        [np.array([3, 0]), np.array([1], np.int32)],
        [np.array([3, 0]), [1]],
        (iter(s) for s in [[3, 0], [1]]),
    ],
)
def test_from_lists_takes_any_iterables(given_sets: object) -> None:
    baskets = Baskets.from_lists(given_sets)  # type: ignore[arg-type]
    assert baskets.to_lists() == [[0, 3], [1]]
    assert baskets.n_items == 4


def test_from_lists_with_labels() -> None:
    derived = Baskets.from_lists([["tea", "milk"], ["milk"], []])
    assert derived.labels == ("milk", "tea")
    assert derived.to_lists() == [[0, 1], [0], []]
    assert derived.labelled(0) == ("milk", "tea")
    given_labels = Baskets.from_lists([["tea", "milk"], ["milk"]], labels=["tea", "rice", "milk"])
    assert given_labels.to_lists() == [[0, 2], [2]]
    assert given_labels == Baskets.from_lists([[0, 2], [2]], labels=["tea", "rice", "milk"])
    assert Baskets.from_lists([np.array(["tea", "milk"])]) == Baskets.from_lists([["tea", "milk"]])
    assert Baskets.from_lists([[0, 2]]).labelled(0) == ("0", "2")


def test_no_baskets_and_empty_baskets() -> None:
    assert len(Baskets.from_lists([])) == 0
    assert Baskets.from_lists([[], []], n_items=3).to_lists() == [[], []]
    assert Baskets.from_lists([np.empty(0), np.array([1])], n_items=3).to_lists() == [[], [1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sets": [[0, 6]], "n_items": 6}, r"0\.\.5; unknown item id 6"),
        ({"sets": [[0, -1]]}, "unknown item id -1"),
        ({"sets": [[0, 1]], "labels": ["a"]}, r"0\.\.0; unknown item id 1"),
        ({"sets": [["a", "z"]], "labels": ["a"]}, "unknown label 'z'"),
        ({"sets": [["a", 1]]}, "all integers .* or all strings .*; got int, str"),
        ({"sets": [[1.0]]}, "got float"),
        ({"sets": [[True]]}, "got bool"),
        ({"sets": ["abc"]}, "each basket must be a list"),
        ({"sets": [1, 2]}, "each basket must be a list"),
        ({"sets": [[5_000_000_000]]}, "Product codes are labels"),
        ({"sets": [[10**30]]}, "up to 2147483647; got 10{30}"),
        ({"sets": [[0]], "labels": ["a", "a"]}, "distinct; 'a' occurs 2 times"),
        ({"sets": [[0]], "labels": ["a", ""]}, "nonempty strings"),
        ({"sets": [[0]], "labels": "ab"}, "sequence of nonempty strings"),
        ({"sets": [[0]], "labels": ["a", "b"], "n_items": 3}, "number of labels, 2; got 3"),
        ({"sets": [[0]], "n_items": -1}, "n_items must be at least 0"),
        ({"sets": [[0]], "n_items": 1.5}, "n_items must be an integer"),
    ],
)
def test_bad_sets_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Baskets.from_lists(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("indptr", "indices", "message"),
    [
        ([1, 2], [0, 1], "rise from 0"),
        ([0, 3], [0, 1], "number of indices, 2"),
        ([0, 2, 1, 2], [0, 1], "rise from 0"),
        ([], [], "rise from 0"),
        ([0, 2], [1, 0], "increase within"),
        ([0, 2], [1, 1], "increase within"),
        ([0, 1], [7], "unknown item id 7"),
        ([0, 1], [0.5], "flat array of integers"),
    ],
)
def test_constructor_checks_the_record(indptr: list[int], indices: list[int], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Baskets(np.array(indptr), np.array(indices), 7)


def test_constructor_copies_what_the_caller_can_change() -> None:
    indptr, indices = np.array([0, 0, 2, 3]), np.array([1, 4, 0])
    baskets = Baskets(indptr, indices, 5)
    indices[0] = 3
    assert baskets == Baskets.from_lists([[], [1, 4], [0]], n_items=5)
    assert indices.flags.writeable


def test_from_csr() -> None:
    dense = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    for matrix in (sparse.csr_array(dense), sparse.csc_matrix(dense), sparse.coo_array(dense.astype(bool)), dense):
        assert Baskets.from_csr(matrix).to_lists() == [[0, 2], [], [1]]
    stored_zero = sparse.csr_array((np.array([1.0, 0.0]), np.array([2, 0]), np.array([0, 2])), shape=(1, 4))
    assert Baskets.from_csr(stored_zero) == Baskets.from_lists([[2]], n_items=4)
    assert stored_zero.nnz == 2
    assert Baskets.from_csr(stored_zero, labels=["a", "b", "c", "d"]).labelled(0) == ("c",)


@pytest.mark.parametrize("wrong", [2, -1, 0.5, np.nan])
def test_from_csr_rejects_what_is_not_binary(wrong: float) -> None:
    with pytest.raises(InvalidInputError, match=f"zeros and ones; it holds {wrong}"):
        Baskets.from_csr(sparse.csr_array(np.array([[1.0, wrong]])))


# Data frames


@frames
def test_long_frame(frame: object) -> None:
    table = frame({"order": ["b", "a", "b", "b"], "product": ["tea", "milk", "rice", "tea"]})  # type: ignore[operator]
    baskets = Baskets.from_frame(table, basket="order", item="product")
    assert baskets.labels == ("milk", "rice", "tea")
    assert [baskets.labelled(i) for i in range(2)] == [("rice", "tea"), ("milk",)]


@frames
def test_long_frame_of_ids(frame: object) -> None:
    table = frame({"order": [7, 5, 7], "product": [2, 0, 1]})  # type: ignore[operator]
    assert Baskets.from_frame(table, basket="order", item="product", n_items=4).to_lists() == [[1, 2], [0]]
    codes = Baskets.from_frame(table, basket="order", item="product")
    assert codes.labels == ("0", "1", "2")
    assert codes.labelled(0) == ("1", "2")
    ids = Baskets.from_frame(table, basket="order", item="product", as_labels=False)
    assert (ids.labels, ids.n_items, ids.basket_ids) == (None, 3, (7, 5))


@frames
@pytest.mark.parametrize("items", [[2, None, 0], ["c", None, "a"]])
def test_missing_item_is_an_empty_basket(frame: object, items: list[object]) -> None:
    table = frame({"order": [1, 2, 3], "product": items})  # type: ignore[operator]
    baskets = Baskets.from_frame(table, basket="order", item="product", labels=["a", "b", "c"])
    assert baskets.to_lists() == [[2], [], [0]]


@frames
def test_bad_long_frames(frame: object) -> None:
    table = frame({"order": [1, None], "product": [0.5, 1.0], "nested": [[1], [2]]})  # type: ignore[operator]
    with pytest.raises(
        InvalidInputError, match=r"no column 'basket'; its columns are 'order', 'product', 'nested'\. Name"
    ):
        Baskets.from_frame(table, basket="basket", item="product")
    with pytest.raises(InvalidInputError, match="column 'order' must name a basket in every row"):
        Baskets.from_frame(table, basket="order", item="product")
    with pytest.raises(InvalidInputError, match="got float"):
        Baskets.from_frame(table, basket="product", item="product")
    if not isinstance(table, pd.DataFrame):  # which does not know what its objects are
        with pytest.raises(InvalidInputError, match="'nested' must hold single values; it holds List"):
            Baskets.from_frame(table, basket="product", item="nested")


def test_categories_and_what_is_no_frame() -> None:
    table = pd.DataFrame({"b": [0, 0], "i": pd.Categorical(["y", "x"])})
    assert Baskets.from_frame(table, basket="b", item="i").labels == ("x", "y")
    with pytest.raises(InvalidInputError, match=r"table in memory; got dict"):
        Baskets.from_frame({"b": [0]}, basket="b", item="i")
    with pytest.raises(InvalidInputError, match="LazyFrame"):
        Baskets.from_frame(pl.LazyFrame({"b": [0]}), basket="b", item="i")


@frames
@pytest.mark.parametrize("kind", [int, bool, float])
def test_onehot_frame(frame: object, kind: type) -> None:
    columns = {"tea": [1, 0, 1], "milk": [0, 0, 1], "rice": [0, 0, 0]}
    table = frame({name: list(map(kind, column)) for name, column in columns.items()})  # type: ignore[operator]
    baskets = Baskets.from_onehot(table)
    assert baskets == Baskets.from_lists([[0], [], [0, 1]], labels=["tea", "milk", "rice"])


@frames
@pytest.mark.parametrize("column", [[0, 2], [0, None], ["a", "b"], [0.0, float("nan")]])
def test_onehot_rejects_what_is_not_binary(frame: object, column: list[object]) -> None:
    table = frame({"tea": [0, 1], "milk": column})  # type: ignore[operator]
    with pytest.raises(InvalidInputError, match="column 'milk' must hold only 0 and 1"):
        Baskets.from_onehot(table)


# Asking


def test_indexing_gives_an_array_or_baskets() -> None:
    lists = [[0, 3], [], [1, 2, 5], [4]]
    baskets = made(lists)
    assert baskets[2].tolist() == baskets[np.int64(-2)].tolist() == [1, 2, 5]
    assert [items.tolist() for items in baskets] == lists
    assert baskets[1:].to_lists() == lists[1:]
    assert baskets[::-1].to_lists() == lists[::-1]
    assert baskets[[3, 0, 3]].to_lists() == [lists[3], lists[0], lists[3]]
    assert baskets[np.array([True, False, True, False])].to_lists() == [lists[0], lists[2]]
    assert len(baskets[[]]) == 0
    assert baskets[[]].n_items == 9
    with pytest.raises(IndexError):
        baskets[4]


def test_select_by_size() -> None:
    baskets = made([[0, 3], [], [1, 2, 5], [4]])
    assert baskets.select(max_size=2).to_lists() == [[0, 3], [], [4]]
    assert baskets.select(min_size=1, max_size=2).to_lists() == [[0, 3], [4]]
    assert baskets.select() == baskets


def test_equality_sees_every_part() -> None:
    baskets = Baskets.from_lists([[0], [1]], labels=["a", "b"])
    assert baskets == Baskets.from_lists([[0], [1]], labels=["a", "b"])
    assert baskets != Baskets.from_lists([[0], [1]], labels=["a", "c"])
    assert baskets != Baskets.from_lists([[0], [1]])
    assert baskets != Baskets.from_lists([[0, 1], []], labels=["a", "b"])
    assert Baskets.from_lists([[0]]) != Baskets.from_lists([[0]], n_items=2)
    assert baskets != [[0], [1]]


def test_repr() -> None:
    assert repr(made([[0, 3], []])) == "<Baskets: 2 baskets over 9 items, sizes 0 to 2, mean 1>"
    assert repr(Baskets.from_lists([["a"]])) == "<Baskets: 1 basket over 1 items, sizes 1 to 1, mean 1, labelled>"
    assert repr(Baskets.from_lists([])) == "<Baskets: 0 baskets over 0 items>"


def test_copies_stay_read_only() -> None:
    baskets = Baskets.from_lists([["a", "b"]])
    again = pickle.loads(pickle.dumps(baskets))
    assert again == baskets
    assert not again.indices.flags.writeable


def test_split_is_a_seeded_partition() -> None:
    baskets = made([[i] for i in range(9)])
    train, val, test = baskets.split(2, 3, rng=0)
    assert (len(train), len(val), len(test)) == (4, 2, 3)
    assert sorted(train.to_lists() + val.to_lists() + test.to_lists()) == baskets.to_lists()
    assert train.to_lists() == sorted(train.to_lists())
    assert baskets.split(2, 3, rng=0).test == test
    assert any(baskets.split(2, 3, rng=seed).test != test for seed in range(1, 5))
    with pytest.raises(InvalidInputError, match=r"at most 9, the number of baskets; got 5 \+ 5"):
        baskets.split(5, 5, rng=0)
    with pytest.raises(InvalidInputError, match="n_val must be at least 0"):
        baskets.split(-1, 2, rng=0)


# Ids of baskets


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".parquet"])
@pytest.mark.parametrize("ids", [("A7", "B 1", " c"), (1001, 7, -3), (0, 1, 2)])
def test_basket_ids_survive(tmp_path: Path, suffix: str, ids: tuple[object, ...]) -> None:
    baskets = Baskets.from_lists([[0, 3], [], [4]], n_items=5, basket_ids=ids)
    baskets.write(tmp_path / f"x{suffix}")
    again = Baskets.read(tmp_path / f"x{suffix}", n_items=5)
    assert again == baskets
    assert list(map(str, again.basket_ids or ())) == list(map(str, ids))
    assert baskets[[2, 0]].basket_ids == (ids[2], ids[0])
    assert baskets.select(min_size=1).basket_ids == (ids[0], ids[2])
    train, val, test = baskets.split(1, 1, rng=0)
    assert sorted(map(str, (*train.basket_ids, *val.basket_ids, *test.basket_ids))) == sorted(map(str, ids))
    assert pickle.loads(pickle.dumps(baskets)).basket_ids == ids


@frames
def test_basket_ids_of_frames(frame: object) -> None:
    long = frame({"order": ["b", "a", "b"], "product": ["tea", "milk", "rice"]})  # type: ignore[operator]
    assert Baskets.from_frame(long, basket="order", item="product").basket_ids == ("b", "a")
    wide = frame({"order": [11, 9], "tea": [1, 0]})  # type: ignore[operator]
    assert Baskets.from_onehot(wide, basket="order") == Baskets.from_lists(
        [[0], []], labels=["tea"], basket_ids=[11, 9]
    )


def test_basket_ids_are_checked_and_compared() -> None:
    assert Baskets.from_lists([[0]], basket_ids=["a"]) != Baskets.from_lists([[0]], basket_ids=["b"])
    assert Baskets.from_csr(sparse.eye_array(2), basket_ids=["a", "b"]).basket_ids == ("a", "b")
    assert Baskets.from_lists([[0], [1]], basket_ids=[1, "b"]).basket_ids == ("1", "b")
    with pytest.raises(InvalidInputError, match="basket_ids must be 1, one per basket; got 2"):
        Baskets.from_lists([[0]], basket_ids=["a", "b"])
    with pytest.raises(InvalidInputError, match="empty strings"):
        Baskets.from_lists([[0]], basket_ids=[""])


# Unknown items, missing values, blanks, encodings


def test_unknown_items_are_skipped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("basket,item\nA,tea\nA,new\nB,newer\nC,new\n")
    with pytest.raises(InvalidInputError, match="unknown label 'new'"):
        Baskets.read(tmp_path / "x.csv", labels=["tea"])
    said = r"x.csv: skipped 2 unknown items, such as 'new': 3 of 4 entries, in 3 baskets"
    with pytest.warns(DataWarning, match=said):
        found = Baskets.read(tmp_path / "x.csv", labels=["tea"], unknown="skip")
    assert found.to_lists() == [[0], [], []]
    assert found.basket_ids == ("A", "B", "C")
    with pytest.warns(DataWarning, match="skipped 1 unknown item, such as 9"):
        assert Baskets.from_lists([[0, 9]], n_items=3, unknown="skip").to_lists() == [[0]]
    with pytest.raises(InvalidInputError, match="unknown must be one of error, skip; got 'drop'"):
        Baskets.from_lists([[0]], unknown="drop")


@pytest.mark.parametrize("word", ["", "NA", "N/A", "NaN", "nan", "null", "NULL", " "])
def test_missing_values(tmp_path: Path, word: str) -> None:
    (tmp_path / "x.csv").write_text(f"basket,item\nA,tea\nA,{word}\n{word},milk\n")
    with pytest.raises(InvalidInputError, match=r"line 4.*leave such rows out with missing='skip'"):
        Baskets.read(tmp_path / "x.csv")
    with pytest.warns(DataWarning, match="x.csv: skipped 2 rows with a missing value"):
        found = Baskets.read(tmp_path / "x.csv", missing="skip")
    assert (found.labels, found.basket_ids) == (("tea",), ("A",))
    (tmp_path / "x.csv").write_text(f"basket,item\nA,tea\nA,{word}\n")
    with pytest.raises(InvalidInputError, match=r"x.csv: an item of basket 'A' is missing, one of 1. Fill in"):
        Baskets.read(tmp_path / "x.csv")
    if word.strip():
        assert Baskets.read(tmp_path / "x.csv", missing="keep").labels == tuple(sorted([word, "tea"]))
        assert Baskets.read(tmp_path / "x.csv", labels=["tea", word]).to_lists() == [[0, 1]]


@frames
@pytest.mark.parametrize("gap", [None, "NA"])
def test_missing_values_of_frames(frame: object, gap: str | None) -> None:
    table = frame({"order": ["A", "A", gap], "product": ["tea", gap, "milk"]})  # type: ignore[operator]
    with pytest.raises(InvalidInputError, match="column 'order' must name a basket in every row"):
        Baskets.from_frame(table, basket="order", item="product")
    with pytest.warns(DataWarning, match="the data frame: skipped 2 rows"):
        found = Baskets.from_frame(table, basket="order", item="product", missing="skip")
    assert (found.labels, found.basket_ids) == (("tea",), ("A",))


def test_missing_words_of_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("tea NA\nNA\n\n")
    with pytest.raises(InvalidInputError, match="an item of basket 0 is missing, one of 2"):
        Baskets.read(tmp_path / "x")
    with pytest.warns(DataWarning, match="skipped 2 rows"):
        assert Baskets.read(tmp_path / "x", missing="skip").to_lists() == [[0], [], []]


def test_blanks_at_the_ends_of_names_are_removed_and_said(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("basket,item\nA,tea \nB,tea\nB, milk\n")
    with pytest.warns(DataWarning, match=r"x.csv: removed blanks at the ends of 2 names, such as ' milk'"):
        found = Baskets.read(tmp_path / "x.csv")
    assert (found.labels, found.to_lists()) == (("milk", "tea"), [[1], [0, 1]])
    (tmp_path / "y.csv").write_text("basket,item\nA,tea\n")
    assert Baskets.read(tmp_path / "y.csv", labels=["tea ", "milk"]).to_lists() == [[0]]
    exact = Baskets.read(tmp_path / "x.csv", labels=["tea ", "tea", " milk"])
    assert exact.to_lists() == [[0], [1, 2]]
    (tmp_path / "items").write_text("tea \nmilk\n")
    (tmp_path / "ids").write_text("0 1\n")
    with pytest.warns(DataWarning, match="removed blanks"):
        assert Baskets.read(tmp_path / "ids", items=tmp_path / "items").labels == ("tea", "milk")


def test_other_encodings(tmp_path: Path) -> None:
    for encoding in ("cp1252", "utf-16", "utf-8", "utf-8-sig"):
        (tmp_path / "x.csv").write_bytes("basket,item\nA,café\n".encode(encoding))
        assert Baskets.read(tmp_path / "x.csv", encoding=encoding).labels == ("café",)
        if encoding in ("cp1252", "utf-16"):
            with pytest.raises(InvalidInputError, match=f"Name its encoding, for example encoding='{encoding}'"):
                Baskets.read(tmp_path / "x.csv")
    for encoding in ("klingon", "hex"):
        with pytest.raises(InvalidInputError, match=f"encoding must name a text encoding; got '{encoding}'"):
            Baskets.read(tmp_path / "x.csv", encoding=encoding)


# Round trips


@given(sets)
def test_round_trip_through_csr_and_lists(lists: list[list[int]]) -> None:
    baskets = made(lists)
    assert baskets.to_lists() == [sorted(set(members)) for members in lists]
    assert Baskets.from_csr(baskets.to_csr()) == baskets
    assert Baskets.from_lists(baskets.to_lists(), n_items=9) == baskets
    assert Baskets(baskets.indptr, baskets.indices, 9) == baskets


def test_products_of_csr_count_beyond_small_integers() -> None:
    matrix = made([[0, 1]] * 300).to_csr()
    assert (matrix.T @ matrix).toarray()[:2, :2].tolist() == [[300, 300], [300, 300]]


@pytest.mark.parametrize("suffix", SUFFIXES)
@round_trip
@given(lists=sets)
def test_round_trip_of_ids(tmp_path: Path, suffix: str, lists: list[list[int]]) -> None:
    baskets = made(lists)
    baskets.write(tmp_path / f"x{suffix}")
    assert Baskets.read(tmp_path / f"x{suffix}", n_items=9) == baskets


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("names", [plain_names, spaced_names], ids=["plain", "spaced"])
@round_trip
@given(data=st.data())
def test_round_trip_of_labels(tmp_path: Path, suffix: str, names: st.SearchStrategy[str], data: st.DataObject) -> None:
    labels = tuple(data.draw(st.lists(names, min_size=9, max_size=9, unique=True)))
    baskets = made(data.draw(sets), labels)
    baskets.write(tmp_path / f"x{suffix}")
    assert Baskets.read(tmp_path / f"x{suffix}", labels=labels, as_labels=True) == baskets


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".tsv", ".parquet"])
@round_trip
@given(data=st.data())
def test_round_trip_of_any_label(tmp_path: Path, suffix: str, data: st.DataObject) -> None:
    labels = tuple(data.draw(st.lists(any_names | st.sampled_from(AWKWARD), min_size=9, max_size=9, unique=True)))
    baskets = made(data.draw(sets), labels)
    baskets.write(tmp_path / f"x{suffix}")
    assert Baskets.read(tmp_path / f"x{suffix}", labels=labels, as_labels=True) == baskets


NASTY = ["\r", "\n", "\r\n", "\u2028", "\x85", "\x1c", '"', ",", " ", "a\rb", "a\nb", "\ra", "a\r\n", " a", "a ", "\ta", "#x", "-", "7",
         "007", "NA", " NA", '"NA"', '"\\r"', '"', "\\", ";", "|", "\xa0", "\ufeff"]  # fmt: skip


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("label", dict.fromkeys(NASTY), ids=ascii)
def test_a_nasty_label_is_read_back_without_a_catalogue(tmp_path: Path, suffix: str, label: str) -> None:
    """Alone and beside others, as no reader knows the labels; nothing is removed, so nothing is said."""
    for others in ([], ["tea"], ["a", "b c", "12"]):
        names = {label, *others}
        baskets = Baskets.from_lists([names, [label], [], others], labels=sorted(names))
        baskets.write(tmp_path / f"x{suffix}")
        with warnings.catch_warnings(action="error"):
            again = Baskets.read(tmp_path / f"x{suffix}")
        assert [set(again.labelled(i)) for i in range(len(again))] == [names, {label}, set(), set(others)]
        assert Baskets.read(tmp_path / f"x{suffix}", labels=baskets.labels, as_labels=True) == baskets


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".tsv", ".parquet"])
@round_trip
@given(data=st.data())
def test_round_trip_of_any_label_without_a_catalogue(tmp_path: Path, suffix: str, data: st.DataObject) -> None:
    names = any_names | st.sampled_from(NASTY) | st.text("".join(NASTY), min_size=1, max_size=4)
    labels = data.draw(st.lists(names, min_size=1, max_size=6, unique=True))
    Baskets.from_lists([labels, labels[:1]], labels=labels).write(tmp_path / f"x{suffix}")
    again = Baskets.read(tmp_path / f"x{suffix}")
    assert [set(again.labelled(i)) for i in range(2)] == [set(labels), set(labels[:1])]


def test_files_of_other_programs_have_blanks_removed(tmp_path: Path) -> None:
    """However they quote; what says that names are exact are quotes around all columns but the first."""
    for header in ("basket,item", '"basket","item"', '"basket",item', 'basket,"item",price', 'basket,"item","a,b"'):
        (tmp_path / "x.csv").write_text(f'{header}\nA,"tea "\nB,tea\n')
        with pytest.warns(DataWarning, match="removed blanks"):
            assert Baskets.read(tmp_path / "x.csv").labels == ("tea",)
    Baskets.from_lists([["tea "]]).write(tmp_path / "y.csv")
    assert (tmp_path / "y.csv").read_text() == 'basket,"item"\n0,"tea "\n'
    with pytest.raises(InvalidInputError, match="need columns with simple names"):
        Baskets.from_lists([["tea "]]).write(tmp_path / "z.csv", item="item, sold")
    assert not (tmp_path / "z.csv").exists()


@given(lists=sets, kind=st.sampled_from(["text", "csv", "tsv"]))
def test_round_trip_through_open_files(lists: list[list[int]], kind: str) -> None:
    file = io.StringIO(newline="")
    made(lists).write(file, format=kind)
    file.seek(0)
    assert Baskets.read(file, format=kind, n_items=9) == made(lists)


def test_parquet_through_open_files() -> None:
    file = io.BytesIO()
    made([[1], []]).write(file, format="parquet")
    file.seek(0)
    assert Baskets.read(file, format="parquet", n_items=9) == made([[1], []])


# Reading


@pytest.mark.parametrize(
    ("text", "lists"),
    [
        ("0 3\n1 2 5\n", [[0, 3], [1, 2, 5]]),
        ("0,3\n1,2,5", [[0, 3], [1, 2, 5]]),
        ("0, 3\n\n1 2, 5\r\n", [[0, 3], [], [1, 2, 5]]),
        ("0\t3\n1\t2\t5\n", [[0, 3], [1, 2, 5]]),
        ("\ufeff0 3 3\n", [[0, 3]]),
        ("\n", [[]]),
    ],
)
def test_text_of_ids(tmp_path: Path, text: str, lists: list[list[int]]) -> None:
    (tmp_path / "x").write_bytes(text.encode())
    baskets = Baskets.read(tmp_path / "x", as_labels=False)
    assert baskets.to_lists() == lists
    assert baskets.labels is None
    codes = Baskets.read(tmp_path / "x")
    assert [[int(word) for word in codes.labelled(i)] for i in range(len(codes))] == lists


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("tea milk\nrice\n", [("milk", "tea"), ("rice",)]),
        ("green tea,milk\nwhite rice\n", [("green tea", "milk"), ("white rice",)]),
        ("green tea\tmilk, skimmed\nrice\n", [("green tea", "milk, skimmed"), ("rice",)]),
        ("tea 7\n7\n", [("7", "tea"), ("7",)]),
        ("007 1_0\n", [("007", "1_0")]),
        ("1-2 3\n", [("1-2", "3")]),
    ],
)
def test_text_of_labels(tmp_path: Path, text: str, labels: list[tuple[str, ...]]) -> None:
    (tmp_path / "x").write_text(text)
    baskets = Baskets.read(tmp_path / "x")
    assert [baskets.labelled(i) for i in range(len(baskets))] == labels


def test_items_file_names_the_items(tmp_path: Path) -> None:
    (tmp_path / "x.baskets").write_text("0 2\n")
    with gzip.open(tmp_path / "x.items.gz", "wt") as file:
        file.write("tea\t77\nmilk\nrice\nsalt\n")
    baskets = Baskets.read(tmp_path / "x.baskets", items=tmp_path / "x.items.gz")
    assert baskets.labels == ("tea\t77", "milk", "rice", "salt")
    assert baskets.labelled(0) == ("tea\t77", "rice")
    with pytest.raises(InvalidInputError, match="not both"):
        Baskets.read(tmp_path / "x.baskets", items=tmp_path / "x.items.gz", labels=["a"])


def test_numbers_that_may_be_ids_or_labels(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1 2\n")
    assert Baskets.read(tmp_path / "x", labels=["a", "1", "b"]).to_lists() == [[1, 2]]
    assert Baskets.read(tmp_path / "x", labels=["2", "1"]).to_lists() == [[0, 1]]
    with pytest.raises(InvalidInputError, match="may be ids or labels"):
        Baskets.read(tmp_path / "x", labels=["2", "1", "0"])
    assert Baskets.read(tmp_path / "x", labels=["2", "1", "0"], as_labels=True).to_lists() == [[0, 1]]
    assert Baskets.read(tmp_path / "x", labels=["2", "1", "0"], as_labels=False).to_lists() == [[1, 2]]
    assert Baskets.read(tmp_path / "x").labels == ("1", "2")
    assert Baskets.read(tmp_path / "x", n_items=3).labels is None
    (tmp_path / "x").write_text("1 tea\n")
    with pytest.raises(InvalidInputError, match="whole numbers; got 'tea'"):
        Baskets.read(tmp_path / "x", as_labels=False)


def test_csv_with_other_columns(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('when, product ,order\n1,"tea, green",B\n2,,C\n\n3,milk,B\n')
    baskets = Baskets.read(tmp_path / "x.csv", basket="order", item="product")
    assert [baskets.labelled(i) for i in range(2)] == [("milk", "tea, green"), ()]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_header_tells_what_lies_between_fields(tmp_path: Path, mark: str, end: str) -> None:
    rows = [["order", "the product", "price"], ["A", '"tea, green; loose | fine"', "1.5"], ["A", '"my\tmilk"', "2"]]
    text = end + end.join(mark.join(row) for row in rows) + end  # a blank line before the header is no header
    (tmp_path / "x.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    baskets = Baskets.read(tmp_path / "x.csv", basket="order", item="the product")
    assert baskets.labelled(0) == ("my\tmilk", "tea, green; loose | fine")


@pytest.mark.parametrize("name", ["x.txt", "x.baskets.gz"])
def test_text_has_no_columns(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        InvalidInputError,
        match=r"is read as text.* no columns 'order' and 'item'.*name its format with format='csv'",
    ):
        Baskets.read(tmp_path / name, basket="order")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x", b"", r"x is empty; expected at least one line"),
        ("x.gz", b"", r"x.gz is empty"),
        ("x.csv", b"", r"x.csv is empty"),
        ("x.gz", b"0 1\n", "not a complete gzip file"),
        ("x.gz", gzip.compress(b"0 1 2 3\n" * 99, mtime=0)[:-9], "not a complete gzip file"),
        ("x.gz", gzip.compress(b"0 1 2 3\n" * 99, mtime=0)[:12] + b"\xff" * 30, "not a complete gzip file"),
        ("x", b"caf\xe9\n", "must be UTF-8 text"),
        ("x", b"PAR1\0\0", "binary data. Name its format"),
        ("x", b"0 -3\n", "unknown item id -3"),
        ("x", b"0 9\n", r"0\.\.8; unknown item id 9"),
        ("x.csv", b"order,product\n1,2\n", r"no column 'basket'; its columns are 'order', 'product'"),
        (
            "x.csv",
            b"basket,item\n1,2\n3\n",
            r"line 3: expected values for the columns \['basket', 'item'\]; got \['3'\]",
        ),
        ("x.csv", b"basket,item\n,2\n", "line 2 names no basket; column 'basket'"),
        ("x.csv", b'basket,item\nA,"my\ntea"\n,2\n', "line 4 names no basket; column 'basket'"),
        ("x.csv", b'basket,item\nA,tea\nB,"milk\nB,tea\nC,jam\n', "line 3: an opening quote .* never closed"),
        ("x.csv", b'basket,item\nA,tea\n"B,milk\nB,tea', "line 3: an opening quote .* never closed"),
        ("x.csv", b'"basket,item\nA,tea\n', "line 1: an opening quote .* never closed"),
        ("x.csv", b'basket,item\nA,"' + b"tea\nA," * 30_000, "line 2: .*perhaps an opening quote"),
        ("x.csv", b"\n\n", "no column 'basket'"),
        ("orders.xlsx", b"PK\x03\x04...", "orders.xlsx must be text; it is a spreadsheet"),
        ("x.parquet", b"basket,item\n1,2\n", "not a readable Parquet file"),
        ("x.parquet", b"", "not a readable Parquet file"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInputError, match=message):
        Baskets.read(tmp_path / name, n_items=9)


@pytest.mark.parametrize("name", ["x", "x.gz", "x.csv", "x.parquet"])
def test_missing_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError, match=name):
        Baskets.read(tmp_path / name)


def test_parquet_columns_are_named(tmp_path: Path) -> None:
    made([[1]]).write(tmp_path / "x.parquet", basket="order", item="product")
    assert Baskets.read(tmp_path / "x.parquet", basket="order", item="product", n_items=9).to_lists() == [[1]]
    with pytest.raises(
        InvalidInputError, match=r"x.parquet has no column 'basket'; its columns are 'order', 'product'"
    ):
        Baskets.read(tmp_path / "x.parquet")


def test_unknown_format() -> None:
    with pytest.raises(InvalidInputError, match="one of text, csv, tsv, parquet; got 'xls'"):
        Baskets.read(io.StringIO("0\n"), format="xls")


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made([[1]]).write(tmp_path / "x.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"Reading Parquet needs .*'ndpp\[data\]'"):
        Baskets.read(tmp_path / "x.parquet")
    with pytest.raises(MissingExtraError, match="Writing Parquet"):
        made([[1]]).write(tmp_path / "x.parquet")
    Baskets.read(io.StringIO("basket,item\n0,1\n"), format="csv")


@pytest.mark.data
def test_real_baskets() -> None:
    folder = data_folder()
    if not (folder / "uk_retail.baskets.gz").exists():
        pytest.skip(f"no uk_retail.baskets.gz in {folder}; point NDPP_DATA at the folder of real data")
    baskets = Baskets.read(folder / "uk_retail.baskets.gz", items=folder / "uk_retail.items.gz")
    assert (len(baskets), baskets.n_items, round(baskets.sizes.mean(), 1)) == (20_062, 3_941, 18.8)
    assert baskets.labelled(0)[0] == "85123A\tWHITE HANGING HEART T-LIGHT HOLDER"


# Writing


def test_text_is_what_one_expects(tmp_path: Path) -> None:
    file = io.StringIO()
    Baskets.from_lists([["tea", "milk"], [], ["rice"]]).write(file)
    assert file.getvalue() == "milk tea\n\nrice\n"
    made([[3, 0], []]).write(tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text() == "basket,item\n0,0\n0,3\n1,\n"
    file = io.StringIO()
    Baskets.from_lists([["tea", "milk"]]).write(file, as_labels=False)
    assert file.getvalue() == "0 1\n"


def test_same_baskets_same_bytes(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        made([[3, 0], []]).write(tmp_path / name)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize("label", ["a\0b", "x" * 131_072])
def test_csv_says_which_label_it_cannot_hold(tmp_path: Path, label: str) -> None:
    baskets = Baskets.from_lists([[label, "c"]])
    with pytest.raises(InvalidInputError, match="Write text or Parquet, or ids with as_labels=False"):
        baskets.write(tmp_path / "x.csv")
    assert not list(tmp_path.iterdir())
    for name in ("x.txt", "x.parquet"):
        baskets.write(tmp_path / name)
        assert Baskets.read(tmp_path / name) == baskets
    baskets.write(tmp_path / "x.csv", as_labels=False)


def test_text_quotes_names_that_a_line_cannot_hold() -> None:
    file = io.StringIO()
    Baskets.from_lists([["tea ", 'a "b"'], ['"c"', "d\te"], ["f"]]).write(file)
    assert file.getvalue() == 'a "b"\t"tea "\n"\\"c\\""\t"d\\te"\nf\t\n'


def test_what_cannot_be_read_again_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="zero baskets"):
        Baskets.from_lists([]).write(tmp_path / "x.txt")
    repeated = Baskets.from_lists([[0], [1]], basket_ids=["A", "B"])[[0, 1, 0]]
    with pytest.raises(InvalidInputError, match="'A' occurs 2 times"):
        repeated.write(tmp_path / "x.csv")
    with pytest.raises(InvalidInputError, match="'NA' cannot be the id of a basket in a table"):
        Baskets.from_lists([[0]], basket_ids=["NA"]).write(tmp_path / "x.csv")
    with pytest.raises(InvalidInputError, match="different names"):
        made([[1]]).write(tmp_path / "x.csv", basket="item")
    assert not list(tmp_path.iterdir())


def test_labels_that_no_file_can_hold() -> None:
    law = LowRankKernel(np.eye(2), labels=["a", "b"])
    for build in (
        lambda lone: Baskets.from_lists([["fine", lone]]), lambda lone: LowRankKernel(np.eye(2), labels=["a", lone]),
        lambda lone: law.rename({"a": lone}), lambda lone: law.add_items({lone: ["a"]}), lambda lone: law.ids([lone]),
        lambda lone: law.recommend([lone]),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match="ud800"):
            build("lone \ud800")


@pytest.mark.parametrize("suffix", ["", ".gz", ".csv", ".parquet"])
def test_failed_write_leaves_the_old_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(b"precious")
    unwritable = Baskets.from_lists([["fine"], ["other"]])
    vars(unwritable)["labels"] = ("fine", "lone \ud800 surrogate")
    with pytest.raises(InvalidInputError, match="no file can hold the label"):
        unwritable.write(path)
    assert path.read_bytes() == b"precious"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@only_posix.modes
def test_write_keeps_links_and_modes(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    os.chmod(tmp_path / "real", 0o640)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    made([[1]]).write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "1\n"
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o640


def test_write_to_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="is a folder"):
        made([[1]]).write(tmp_path)
    made([[1]]).write(os.devnull)
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize(("old", "new"), [(b"basket", b"baske\xd0"), (b"tea", b"te\xd0")])
def test_a_parquet_file_with_a_damaged_name_is_refused(tmp_path, old, new):
    """The name of a column or of an item is no UTF-8 any more; pyarrow raises a UnicodeDecodeError, or an error of its own."""
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'ndpp[data]'")
    path = tmp_path / "x.parquet"
    Baskets.from_lists([["tea", "b"]]).write(path)
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(InvalidInputError, match="is not a readable Parquet file"):
        Baskets.read(path)


# -- several catalogues ------------------------------------------------------------------------------------------------------


def test_concat_joins_catalogues_by_label():
    january = Baskets.from_lists([["tea", "milk"], []], basket_ids=[7, 8])
    february = Baskets.from_lists([["rye", "tea"], ["milk"]], basket_ids=["a", "b"])
    both = Baskets.concat([january, february])
    assert both.labels == ("milk", "tea", "rye")
    assert [both.labelled(i) for i in range(4)] == [("milk", "tea"), (), ("tea", "rye"), ("milk",)]
    assert both.basket_ids == ("7", "8", "a", "b")
    assert Baskets.concat(iter([january])) == january
    assert Baskets.concat([january, Baskets.from_lists([["tea"]])]).basket_ids is None


def test_concat_without_labels():
    one, two = Baskets.from_lists([[0, 2]], n_items=3), Baskets.from_lists([[1], []], n_items=3)
    assert Baskets.concat([one, two]) == Baskets.from_lists([[0, 2], [1], []], n_items=3)
    with pytest.raises(InvalidInputError, match=r"must be over the same items; these are over \[3, 4\]"):
        Baskets.concat([one, Baskets.from_lists([[3]])])
    with pytest.raises(InvalidInputError, match="1 of 2 parts have none"):
        Baskets.concat([one, Baskets.from_lists([["tea"]])])
    for wrong in ([], [one, [[0]]]):
        with pytest.raises(InvalidInputError, match="takes a list of Baskets"):
            Baskets.concat(wrong)  # type: ignore[arg-type]


def test_relabel_merges_items():
    orders = Baskets.from_lists([["milk 1l", "milk 2l", "tea"], ["milk 2l"], []], basket_ids=["x", "y", "z"])
    merged = orders.relabel({"milk 1l": "milk", "milk 2l": "milk", "soap": "other"})
    assert merged == Baskets.from_lists(
        [["milk", "tea"], ["milk"], []], labels=["milk", "tea"], basket_ids=["x", "y", "z"]
    )
    assert orders.relabel(lambda name: name.split()[0]) == merged
    assert orders.relabel({"tea": "milk 1l"}).labels == ("milk 1l", "milk 2l")
    assert orders.relabel({}) == orders


def test_relabel_names_items_without_labels():
    nameless = Baskets.from_lists([[0, 2]], n_items=3)
    assert nameless.relabel(["tea", "milk", "rye"].__getitem__).labels == ("tea", "milk", "rye")
    assert nameless.relabel({0: "tea", 1: "milk", 2: "tea"}).to_lists() == [[0]]
    with pytest.raises(InvalidInputError, match="a label must be a nonempty string; item 1 would get 1"):
        nameless.relabel({0: "tea"})
    with pytest.raises(InvalidInputError, match="none of 1 label to replace, such as 'soap', is in the catalogue"):
        Baskets.from_lists([["tea"]]).relabel({"soap": "rye"})
    with pytest.raises(InvalidInputError, match="item 'tea' would get None"):
        Baskets.from_lists([["tea"]]).relabel(lambda name: None)  # type: ignore[arg-type,return-value]
