"""Search finds what people type: prefixes, parts, accents left out, letters wrong; among fifty thousand names, too."""

from __future__ import annotations

import importlib
from difflib import SequenceMatcher

import numpy as np
import pytest

from ndpp.answers.search import RANKED, LabelIndex, folded

NAMES = [
    "tomato sauce",
    "Pesto",
    "pasta",
    "potato",
    "Crème brûlée",
    "green tea",
    "tea",
    "steak",
    "🧀",
    "خبز",
    "tomatoes",
    "PESTO rosso",
]


@pytest.fixture(scope="module")
def index() -> LabelIndex:
    return LabelIndex(NAMES, np.linspace(1.0, 0.1, len(NAMES)))


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("tomato", ["tomato sauce", "tomatoes"]),
        ("sauce", ["tomato sauce"]),
        ("tomatto", ["tomato sauce", "tomatoes"]),
        ("tomao sauce", ["tomato sauce"]),
        ("psto", ["Pesto"]),
        ("creme brulee", ["Crème brûlée"]),
        ("BRÛ", ["Crème brûlée"]),
        ("tea", ["tea", "green tea", "steak"]),
        ("te", ["tea", "green tea"]),
        ("t", ["tea", "tomatoes", "tomato sauce", "green tea"]),
        ("🧀", ["🧀"]),
        ("خبز", ["خبز"]),
        ("pesto", ["Pesto", "PESTO rosso"]),
    ],
)
def test_the_right_names_come_first(index, query, first):
    found = [NAMES[i] for i in index.search(query, len(first))[0]]
    assert set(found) == set(first)
    assert found[0] == first[0] or folded(query) != folded(first[0])


@pytest.mark.parametrize("query", ["xylophone", "zzz", "\ud800", "\x00"])
def test_nothing_is_found_where_nothing_is_alike(index, query):
    assert index.search(query, 10) == ([], 0)


def test_an_empty_query_gives_the_most_popular(index):
    assert index.search("  ", 3) == ([0, 1, 2], len(NAMES))
    assert index.search("", 2, 3)[0] == [3, 4]


def test_pages_of_one_search_do_not_overlap():
    index = LabelIndex([f"item {i}" for i in range(1000)], np.ones(1000))
    pages = [index.search("item", 100, start)[0] for start in range(0, 1000, 100)]
    assert sorted(item for page in pages for item in page) == list(range(1000))


def test_no_labels_and_one():
    assert LabelIndex([], np.empty(0)).search("x", 5) == ([], 0)
    assert LabelIndex(["x"], np.ones(1)).search("x", 5) == ([0], 1)


def test_fifty_thousand_names(monkeypatch):
    """However many names match, few are compared with the query letter by letter, which takes a while."""
    compared: list[str] = []

    def matcher(junk: None, wanted: str, name: str) -> SequenceMatcher[str]:
        compared.append(name)
        return SequenceMatcher(junk, wanted, name)

    monkeypatch.setattr(importlib.import_module("ndpp.answers.search"), "SequenceMatcher", matcher)
    rng = np.random.default_rng(0)
    words = ["".join(letters) for letters in rng.choice(list("abcdefghijklmnopqrstuvwxyz"), (3000, 6))]
    names = [" ".join([*(words[j] for j in row), str(i)]) for i, row in enumerate(rng.integers(0, 3000, (50_000, 3)))]
    index = LabelIndex(names, rng.random(50_000))
    for i in range(0, 50_000, 5000):
        typed = names[i][:4] + names[i][5:]  # a letter is missing
        assert i in index.search(typed, 10)[0]
    assert compared
    compared.clear()
    assert index.search("ab", 10)[1] > RANKED
    assert 0 < len(compared) <= RANKED
