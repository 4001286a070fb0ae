"""Names of items from a table: what people read and ask by, while answers, files and requests keep the labels."""

from __future__ import annotations

import copy
import io
import json
import pickle

import pytest

import ndpp
from ndpp import answers
from ndpp._show import NamedLabel, called, in_full
from ndpp.datasets import shelf_kernel
from ndpp.errors import DataWarning, InvalidInputError, UnknownLabelError

NAMES = {"pasta": "Penne", "pesto": "Penne", "bread": "Rye bread", "rolls": "Rye rolls", "tea": "tea"}
ROWS = "".join(f"{item},{NAMES.get(item, '')},{item[0]},{len(item)}\n" for item in shelf_kernel().labels or ())


@pytest.fixture(scope="module")
def table() -> answers.ItemTable:
    return answers.ItemTable.read(io.StringIO(f"item,name,kind,price\n{ROWS}new,Penne,n,3\n"), shelf_kernel())


@pytest.fixture(scope="module")
def shelf(table) -> answers.Prepared:
    return answers.Prepared(table.law, table)


def test_a_label_with_a_name_is_the_label_to_everything_else():
    milk = NamedLabel("4710", "Whole milk")
    for one in (milk, copy.deepcopy(milk), pickle.loads(pickle.dumps(milk))):
        assert (one, called(one), in_full(one), json.dumps([one])) == (
            "4710",
            "Whole milk",
            "Whole milk (4710)",
            '["4710"]',
        )
    assert {milk: 1}["4710"] == 1


def test_answers_show_names_and_have_labels(shelf):
    found = answers.recommend(shelf, ["Rye bread"], n=3, why=True)
    plain = answers.recommend(shelf.law, ["bread"], n=3, why=True)
    assert found == plain
    assert "Rye bread (bread)" in repr(found)
    assert "Rye bread (bread)" in found._repr_html_()
    told = json.loads(found.to_json())
    assert told.pop("names") == {"bread": "Rye bread", "pasta": "Penne"}  # of its ties, too
    assert told == json.loads(plain.to_json())
    assert "names" not in json.loads(plain.to_json())
    frame = answers.related(shelf, "Rye bread", n=1).to_frame()
    assert frame[["item", "name"]].iloc[0].tolist() == ["bread", "Rye bread"]


@pytest.mark.parametrize("name", ["rye BREAD", "bread", 6])
def test_items_are_found_by_label_or_name(shelf, name):
    assert shelf.ids([name]).tolist() == [6]
    assert answers.recommend(shelf, ["tea"], exclude=[name], n=12).to_json().count('"bread"') == 0
    boosted = answers.recommend(shelf, ["tea"], boost={name: 0}, n=12)
    assert "bread" not in [one.item for one in boosted.items]
    assert answers.why(shelf, ["tea"], name).item == "bread"


PICTURES = {
    "bread": "https://shop.example:8080/a/bread%20.jpg?w=96&h=96", "jam": "jars/straw berry.jpg", "tea": "http://cdn.example/tea.webp",
    "rice": "javascript:alert(1)", "pasta": "//elsewhere.example/x.png", "pesto": "../secret.png", "rolls": "C:\\pictures\\rolls.png",
    "coffee": "https://user:word@shop.example/c.png", "butter": "https://shop.example;script-src/c.png",
    "noodles": "data:image/png;base64,AA",
}  # fmt: skip
GOOD = {label: PICTURES[label] for label in ("bread", "jam", "tea")}


def pictured(columns: str = "name,picture") -> answers.ItemTable:
    rows = "".join(f'{item},{NAMES.get(item, "")},"{place}"\n' for item, place in PICTURES.items())
    with pytest.warns(DataWarning, match="left out 7 pictures, such as .*; a picture is an address, such as https://"):
        return answers.ItemTable.read(io.StringIO(f"item,{columns}\n{rows}"), shelf_kernel())


def test_pictures_are_told_beside_names_and_nothing_else_passes_for_one(tmp_path):
    table = pictured()
    assert {label: one for label, one in zip(table.law.labels, table.pictures) if one} == GOOD
    assert table.hosts == ["http://cdn.example", "https://shop.example:8080"]
    assert "picture" not in {*table.categories, *table.numbers}
    ndpp.save(table.law, tmp_path / "m", metadata=table.attach())
    again = answers.Prepared(ndpp.load(tmp_path / "m"), metadata=ndpp.load_metadata(tmp_path / "m"))
    assert again.table.hosts == table.hosts  # what a file says is judged again
    found = answers.recommend(again, ["butter"], n=11, staples=True)
    assert found == answers.recommend(again.law, ["butter"], n=11, staples=True)
    told = json.loads(found.to_json())
    assert told["pictures"] == GOOD
    assert "tea" not in told["names"]  # a picture alone is no name
    assert ("tea" in repr(found)) > ("tea (tea)" in repr(found))
    for copied in (copy.deepcopy(again.labels), pickle.loads(pickle.dumps(again.labels))):
        assert [getattr(one, "picture", None) for one in copied] == [GOOD.get(one) for one in copied]


def test_a_table_of_pictures_alone_has_no_names():
    found = answers.search(answers.Prepared(shelf_kernel(), pictured("kind,picture")), "tea")
    told = json.loads(found.to_json())
    assert told["pictures"] == {"tea": PICTURES["tea"]}
    assert "names" not in told
    assert found.to_frame().columns.tolist() == ["id", "item", "probability"]


def test_a_name_of_several_items_is_refused_with_their_labels(shelf):
    with pytest.raises(
        InvalidInputError, match=r"'penne' is the name of 2 items; say which by its label: pasta, pesto$"
    ):
        shelf.ids(["tea", "penne"])
    assert shelf.ids(["pasta", "pesto"]).tolist() == [0, 4]


def test_an_unknown_name_suggests_names(shelf):
    with pytest.raises(UnknownLabelError, match="unknown label 'Rye bred'; did you mean 'Rye bread'") as raised:
        shelf.ids(["Rye bred"])
    assert raised.value.suggestions[0] == "bread"
    skipped: list[int | str] = []
    assert shelf.ids(["Rye bred", "Rye bread"], skipped=skipped).tolist() == [6]
    assert skipped == ["Rye bred"]


def test_search_finds_names_and_labels(shelf):
    assert [one.item for one in answers.search(shelf, "rye").items] == ["bread", "rolls"]
    assert {one.item for one in answers.search(shelf, "penn").items} == {"pasta", "pesto"}
    assert answers.search(shelf, "rolls").items[0].item == "rolls"


def test_missions_are_called_by_names(table):
    law = table.law
    mixture = ndpp.Mixture([law, law.tilt({"bread": 9.0, "rolls": 9.0})], [0.5, 0.5])
    (first, second) = answers.missions(answers.Prepared(mixture, answers.ItemTable(mixture, table.columns)), n_items=2)
    assert "Rye bread and Rye rolls" in (first.name, second.name)
    assert "Typical: Rye bread (" in f"{first}{second}"


def test_a_model_file_holds_the_table(table, tmp_path):
    path = tmp_path / "m"
    ndpp.save(table.law, path, metadata={"made": "today", **table.attach()})
    again = answers.Prepared(ndpp.load(path), metadata=ndpp.load_metadata(path))
    assert again.table.columns == table.columns
    assert again.labels == shelf_kernel().labels
    assert called(again.names([6])[0]) == "Rye bread"
    assert [str(one) for one in again.limits(["p=1..2", "price<=9"])] == [
        str(one) for one in table.limits(["p=1..2", "price<=9"])
    ]
    smaller = answers.Prepared(again.law.remove(["bread"]), metadata=ndpp.load_metadata(path))
    assert [called(one) for one in smaller.names(smaller.ids(["Rye rolls"]))] == ["Rye rolls"]
    for strange in ({}, {"item_table": 7}, {"item_table": {"columns": []}}):
        assert answers.ItemTable.attached(strange, table.law) is None


def test_no_limit_counts_names(table):
    with pytest.raises(InvalidInputError, match="'Penne' is not in"):
        table.limits(["Penne<=1"])
    assert table.categories.keys() == {"kind"}
    assert repr(table.limits(["name:Penne<=1"])) == "[<Limit 'Penne': at most 1 of 2 items>]"
