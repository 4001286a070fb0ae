"""Items by name wherever Python takes items, and results that show themselves: in a line, as a frame, in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ndpp
from ndpp import answers, metrics
from ndpp.datasets import shelf_kernel
from ndpp.errors import DataWarning, InvalidInputError, MissingExtraError, UnknownLabelError
from ndpp.samplers import Exact

SCRIPT = "<script>alert('1')</script>"
LABELS = ["bread", "butter", SCRIPT, "tea\x1b[31m & co"]


@pytest.fixture(scope="module")
def kernel() -> ndpp.LowRankKernel:
    L = np.eye(4) * 0.6 + np.array([[0, 0.9, 0.2, 0.1], [-0.9, 0, 0.8, 0], [0.2, -0.8, 0, 0.2], [0.1, 0, 0.2, 0]])
    return ndpp.LowRankKernel(np.eye(4), L, labels=LABELS)


def laws() -> dict[str, Any]:
    shelf = shelf_kernel()
    n = shelf.n_items
    tied = ndpp.Mixture.tied(
        np.linspace(0.1, 1, 2 * n).reshape(2, n), np.eye(n), np.eye(n), [0.4, 0.6], labels=shelf.labels
    )
    background = ndpp.LowRankKernel(shelf.X, shelf.W, labels=shelf.labels, background=np.full(n, 0.2))
    return {
        "kernel": shelf,
        "background": background,
        "mixture": ndpp.Mixture([shelf, background], [0.5, 0.5]),
        "tied": tied,
    }


@pytest.mark.parametrize("law", laws().values(), ids=laws())
def test_labels_are_taken_wherever_ids_are(law):
    names, others = ["bread", "tea"], ["butter", "rice"]
    ids, rest = law.ids(names), law.ids(others)
    assert law.sample(20, given=names, exclude=others, rng=0) == law.sample(20, given=ids, exclude=rest, rng=0)
    assert law.log_prob(names) == law.log_prob(ids)
    for scores in (ndpp.next_item_scores, ndpp.continuation_scores):
        np.testing.assert_array_equal(scores(law, names), scores(law, ids))
    np.testing.assert_array_equal(law.inclusion_probabilities(given=names), law.inclusion_probabilities(given=ids))
    np.testing.assert_array_equal(
        law.condition(names).inclusion_probabilities(), law.condition(ids).inclusion_probabilities()
    )
    np.testing.assert_array_equal(
        law.exclude(others).inclusion_probabilities(), law.exclude(rest).inclusion_probabilities()
    )
    np.testing.assert_array_equal(
        law.restrict(names).inclusion_probabilities(), law.restrict(ids).inclusion_probabilities()
    )
    by_name = ndpp.greedy_map(law, 3, given=["tea"], candidates=np.array(["bread", "butter"]))
    np.testing.assert_array_equal(
        by_name, ndpp.greedy_map(law, 3, given=law.ids(["tea"]), candidates=law.ids(["bread", "butter"]))
    )
    some = ["butter", "jam", "tea"]
    best = law.recommend(["bread"], n=2, candidates=pd.Series(some))
    assert set(best.labels) <= set(some)
    same = ndpp.recommend(law, law.ids(["bread"]), n=2, candidates=law.ids(some))
    np.testing.assert_array_equal(best.items, same.items)
    with pytest.raises(UnknownLabelError, match=r"did you mean 'bread'\?"):
        law.sample(given=["bred"])


def test_samplers_take_labels():
    shelf = shelf_kernel()
    drawn = Exact.prepare(shelf, size=2, given=["tea"], candidates=["bread", "jam"]).sample(10, rng=0).baskets
    assert all("tea" in drawn.labelled(i) and set(drawn.labelled(i)) <= {"tea", "bread", "jam"} for i in range(10))


def test_what_is_no_item_is_named():
    shelf = shelf_kernel()
    with pytest.raises(
        InvalidInputError, match=r"expected a list of labels; got 'bread'\. For one item, pass \['bread'\]"
    ):
        shelf.sample(given="bread")
    with pytest.raises(InvalidInputError, match="given must be a flat sequence of integer item ids or labels"):
        shelf.sample(given=["bread", 3])
    with pytest.raises(InvalidInputError, match="has no labels"):
        ndpp.LowRankKernel(np.eye(2), np.eye(2)).recommend(["bread"])
    assert shelf.ids(["bread", "oat drink"], unknown="skip").tolist() == shelf.ids(["bread"]).tolist()
    with pytest.warns(DataWarning, match="skipped 1 unknown item, such as 'oat drink'"):
        best = shelf.recommend(["bread", "oat drink"], n=1, unknown="skip")
    assert best.labels == shelf.recommend(["bread"], n=1).labels


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("sauce", ("tomato sauce",)),
        ("Sause", ("tomato sauce",)),
        ("PASTE", ("curry paste",)),
        ("bred", ("bread",)),
        ("zzz", ()),
        ("o", ()),
    ],
)
def test_suggestions_know_parts_of_names(typed, meant):
    with pytest.raises(UnknownLabelError) as raised:
        shelf_kernel().ids([typed])
    assert raised.value.suggestions == meant


def test_saved_models_recommend(tmp_path):
    ndpp.save(shelf_kernel(), tmp_path / "shelf")
    best = ndpp.load(tmp_path / "shelf").recommend(["bread"], n=3)
    assert repr(best).splitlines()[0].split() == ["item", "score"]
    assert repr(best).splitlines()[1].split()[0] == "butter"


def test_recommendations_of_many_baskets_keep_their_ids():
    shelf = shelf_kernel()
    baskets = ndpp.Baskets.from_lists([["bread"], ["tea", "coffee"]], labels=shelf.labels, basket_ids=["A-17", "B"])
    many = ndpp.recommend_many(shelf, baskets, n=2)
    frame = many.to_frame()
    assert frame["basket"].tolist() == ["A-17", "A-17", "B", "B"]
    assert frame["item"].tolist() == [label for one in many for label in one.labels]
    assert repr(many).splitlines()[1].split()[:3] == ["A-17", "1", "butter"]
    assert ndpp.recommend_many(shelf, baskets[:0]).to_frame().shape == (0, 4)


def shown(kernel: ndpp.LowRankKernel) -> dict[str, Any]:
    baskets = kernel.sample(60, rng=0)
    compared = metrics.compare_models(
        {SCRIPT: kernel, "b": metrics.independent_items(baskets)}, baskets, n_boot=0, rng=0
    )
    return {
        "baskets": baskets,
        "draws": kernel.sampler(size=2).sample(50, rng=0),
        "recommendation": kernel.recommend(["bread"]),
        "recommendations": ndpp.recommend_many(kernel, baskets),
        "related": answers.related(kernel, SCRIPT),
        "pairs": answers.pairs(kernel),
        "comparison": compared,
    }


@pytest.mark.parametrize("backend", [None, "pandas", "polars", "pyarrow"])
def test_results_are_data_frames(kernel, backend):
    for name, result in shown(kernel).items():
        frame = result.to_frame(backend)
        assert type(frame).__module__.split(".")[0] == (backend or "pandas"), name
        assert len(frame) > 0, name
    baskets = ndpp.Baskets.from_lists([["a"], [], ["a", "b"]], basket_ids=[7, 8, 9])
    again = ndpp.Baskets.from_frame(baskets.to_frame(backend, basket="order"), basket="order", item="item")
    assert again == baskets


def test_frames_need_a_package(kernel, monkeypatch):
    with pytest.raises(InvalidInputError, match="backend must be one of pandas, polars, pyarrow; got 'excel'"):
        kernel.recommend(["bread"]).to_frame("excel")
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(MissingExtraError, match="polars"):
        kernel.recommend(["bread"]).to_frame("polars")


class Tags(HTMLParser):
    """The tags of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, Any]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append((tag, attrs))


def test_results_fit_a_screen_and_escape_names(kernel):
    mixture = ndpp.Mixture([kernel, kernel], [0.25, 0.75], names=[SCRIPT, "weekly"])
    for name, result in {**shown(kernel), "kernel": kernel, "mixture": mixture}.items():
        text = repr(result)
        assert text.count("\n") <= 30, name
        assert max(map(len, text.splitlines())) <= 160, name
        assert "\x1b" not in text, name
        page = result._repr_html_()
        assert len(page) < 10_000, name
        assert "\x1b" not in page, name
        assert {tag for tag, _ in Tags(page).seen} <= {"b", "table", "tr", "th", "td", "p"}, name
        assert not any(attrs for _, attrs in Tags(page).seen), name
    assert "weekly" in mixture._repr_html_()
    assert "&lt;script&gt;" in mixture._repr_html_()
    assert "… and 40 more" in shown(kernel)["baskets"]._repr_html_()
