"""Every question over HTTP, against what the library itself answers."""

from __future__ import annotations

import json

import httpx
import numpy as np
import pytest

import ndpp
from ndpp import answers
from servers import ODD, assert_same_answer


@pytest.mark.parametrize("ranking", [None, *ndpp.Ranking])
def test_recommendations_are_those_of_the_library(api, kernel, ranking):
    basket, asked = ["bread", "tea"], {} if ranking is None else {"ranking": ranking.value}
    answer = api.post("/api/recommend", json={"basket": basket, "n": 3, **asked}).raise_for_status().json()
    expected = ndpp.recommend(kernel, kernel.ids(basket), n=3, **asked)
    assert answer["ranking"] == asked.get("ranking", "continuation")
    assert [row["item"] for row in answer["items"]] == [kernel.labels[i] for i in expected.items]
    assert [row["score"] for row in answer["items"]] == pytest.approx(expected.scores.tolist())
    by_id = api.post("/api/recommend", json={"basket": [6, "tea"], "n": 3, "ids": True, **asked}).json()
    assert [row["item"] for row in by_id["items"]] == expected.items.tolist()


def test_bestsellers_count_as_much_as_asked(api, kernel):
    for damping in (0.0, 1.0):
        answer = api.post("/api/recommend", json={"basket": ["bread"], "damping": damping, "ids": True}).json()
        expected = ndpp.recommend(kernel, kernel.ids(["bread"]), damping=damping)
        assert [row["item"] for row in answer["items"]] == expected.items.tolist()
    none = api.post("/api/recommend", json={"basket": ["bread"], "ranking": "lift", "support": 1.0}).json()
    assert none["items"] == []


def test_only_candidates_and_never_the_excluded(api):
    only = api.post("/api/recommend", json={"basket": ["bread"], "candidates": ["tea", "jam", "rice", "bread"]}).json()
    assert {row["item"] for row in only["items"]} == {"tea", "jam", "rice"}
    without = api.post("/api/recommend", json={"basket": ["bread"], "exclude": ["butter"], "n": 100}).json()
    names = [row["item"] for row in without["items"]]
    assert "butter" not in names
    assert "jam" in names
    assert api.post("/api/recommend", json={"basket": ["bread"], "candidates": []}).json()["items"] == []


@pytest.mark.parametrize("task", ["recommend", "complete", "probability"])
def test_what_is_unknown_can_be_skipped(api, task):
    lists = {} if task == "probability" else {"candidates": ["jam", "soap", 99], "exclude": ["brush"]}
    more = {"seed": 1} if task == "complete" else {}
    asked = {"basket": ["tea", "oat drink"], "unknown": "skip", **lists, **more}
    answer = api.post(f"/api/{task}", json=asked).raise_for_status().json()
    skipped = ["oat drink", "soap", 99, "brush"] if lists else ["oat drink"]
    assert answer["skipped"] == skipped
    known = {"basket": ["tea"], **({"candidates": ["jam"]} if lists else {}), **more}
    assert {**answer, "skipped": []} == api.post(f"/api/{task}", json=known).json()
    assert api.post(f"/api/{task}", json={**asked, "unknown": "error"}).json()["label"] == "oat drink"
    batch = {"task": task, "baskets": [asked.pop("basket"), ["jam"]], **asked}
    first, second = lines(api.post("/api/batch", json=batch))
    assert (first["skipped"], second["skipped"]) == (skipped, skipped[1:])


CATEGORIES = {
    "butter": "dairy",
    "jam": "spreads",
    "honey": "spreads",
    "tea": "drinks",
    "coffee": "drinks",
    "oat drink": "drinks",
}


def test_categories_limit_recommendations(api, kernel):
    known = [label for label in CATEGORIES if label in kernel.labels]
    asked = {"basket": ["bread"], "candidates": known, "category_of": CATEGORIES}

    def items(**more) -> list[str]:
        return [
            row["item"] for row in api.post("/api/recommend", json={**asked, **more}).raise_for_status().json()["items"]
        ]

    ranked = items(per_category=10)
    assert set(ranked) == set(known)
    assert items(categories=["drinks"]) == [item for item in ranked if CATEGORIES[item] == "drinks"]
    one = items(per_category=1)
    assert [CATEGORIES[item] for item in one] == list(dict.fromkeys(CATEGORIES[item] for item in ranked))
    assert one == items(per_category=1, why=True)
    (line,) = lines(
        api.post(
            "/api/batch",
            json={
                "task": "recommend",
                "baskets": [["bread"]],
                "per_category": 1,
                **{k: v for k, v in asked.items() if k != "basket"},
            },
        )
    )
    assert [row["item"] for row in line["items"]] == one
    limit = ndpp.PerCategory(CATEGORIES, 1)
    expected = answers.recommend(kernel, ["bread"], candidates=known, per_category=limit)
    assert [row.item for row in expected.items] == one


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"category_of": CATEGORIES, "per_category": 1}, "of the items that may be recommended, such as 'pasta'"),
        ({"category_of": CATEGORIES}, "category_of goes with per_category or categories"),
        ({"per_category": 1}, "per_category needs a table of categories, and this server has none. Start it with"),
        ({"categories": ["drinks"]}, "categories needs a table of categories, and this server has none. Start it with"),
        ({"category_of": CATEGORIES, "categories": ["drink"], "candidates": ["tea"]}, "did you mean 'drinks'?"),
    ],
)
def test_wrong_categories_are_said(api, more, words):
    batch = {"task": "recommend", "baskets": [["bread"]]}
    for path, question in (("recommend", {"basket": ["bread"]}), ("batch", batch)):
        response = api.post(f"/api/{path}", json={**question, **more})
        assert response.status_code == 422
        assert words in response.json()["detail"]


def test_reasons_are_those_of_the_library(api, kernel):
    answer = api.post("/api/why", json={"basket": ["bread", "tea"], "item": "butter"}).json()
    expected = answers.why(kernel, kernel.ids(["bread", "tea"]), "butter")
    assert answer["score"] == pytest.approx(expected.score)
    factors = [answer["popularity"], answer["mission"], answer["ties"]]
    assert factors == pytest.approx([expected.popularity, expected.mission, expected.ties])
    assert answer["score"] == pytest.approx(np.prod(factors))
    assert (answer["because"], answer["tied_to"]) == (None, "bread")
    assert [row["item"] for row in answer["by_item"]] == ["bread", "tea"]
    told = api.post("/api/recommend", json={"basket": ["bread", "tea"], "n": 1, "why": True}).json()["items"][0]
    assert_same_answer({**told, "skipped": []}, answer)


@pytest.mark.parametrize(
    "ask",
    [
        {"basket": ["bread"], "size": 4, "n": 3},
        {"basket": [], "size": 3, "n": 3},
        {"basket": ["bread", "tea"], "n": 4},
        {"basket": ["bread"], "size": 4, "exclude": ["butter", "jam"], "n": 3},
        {"basket": ["pasta"], "n": 5},
    ],
)
def test_completions_are_those_of_the_library_for_the_same_seed(api, kernel, ask):
    answer = api.post("/api/complete", json={**ask, "seed": 7, "ids": True}).raise_for_status().json()
    given, never = kernel.ids(ask["basket"]), kernel.ids(ask.get("exclude", []))
    expected = kernel.sample(ask["n"], size=ask.get("size"), given=given, exclude=never, rng=7).to_lists()
    assert [row["items"] for row in answer["baskets"]] == expected
    assert answer["seed"] == 7
    for row in answer["baskets"]:
        assert set(row["added"]) == set(row["items"]) - set(given.tolist())
    again = api.post("/api/complete", json={**ask, "seed": 7, "ids": True}).json()
    assert again == answer


def test_a_fresh_seed_is_told_and_gives_the_same_again(api):
    first = api.post("/api/sample", json={"n": 5}).json()
    again = api.post("/api/sample", json={"n": 5, "seed": first["seed"]}).json()
    other = api.post("/api/sample", json={"n": 5}).json()
    assert first == again
    assert first["seed"] != other["seed"]


def test_samples_of_candidates_only(api, kernel):
    only = ["bread", "butter", "tea"]
    answer = api.post("/api/sample", json={"n": 20, "size": 2, "candidates": only, "seed": 3}).json()
    assert all(set(row["items"]) <= set(only) and len(row["items"]) == 2 for row in answer["baskets"])
    expected = kernel.restrict(kernel.ids(only)).sample(20, size=2, rng=3)
    assert [row["items"] for row in answer["baskets"]] == [[kernel.labels[i] for i in b] for b in expected]
    held = api.post("/api/complete", json={"basket": ["rice"], "n": 20, "size": 3, "candidates": only}).json()
    assert all(set(row["items"]) <= {*only, "rice"} and "rice" in row["items"] for row in held["baskets"])


def test_probability_of_a_basket(api, kernel):
    items = ["bread", "butter"]
    answer = api.post("/api/probability", json={"basket": items}).json()
    assert answer["log_prob"] == pytest.approx(kernel.log_prob(kernel.ids(items)))
    assert answer["log_prob_of_size"] == pytest.approx(kernel.log_prob(kernel.ids(items), size=2))
    sizes = kernel.size_distribution()
    assert answer["size_probability"] == pytest.approx(sizes[2])
    assert answer["at_most"] == pytest.approx(sizes[:3].sum())
    p = kernel.inclusion_probabilities()
    inside = np.isin(np.arange(kernel.n_items), kernel.ids(items))
    independent = np.log(np.where(inside, p, 1 - p)).sum()
    assert answer["log_lift"] == pytest.approx(answer["log_prob"] - independent)
    both = p[kernel.ids(["bread"])[0]] * kernel.inclusion_probabilities(given=["bread"])[kernel.ids(["butter"])[0]]
    assert answer["contained"] == pytest.approx(both)
    assert answer["contained_lift"] == pytest.approx(both / p[kernel.ids(items)].prod())
    assert answer["contained_size"] == pytest.approx(kernel.inclusion_probabilities(given=items).sum())
    assert answer["missions"] == []


def test_an_impossible_basket_has_no_logarithm(api, kernel):
    everything = api.post("/api/probability", json={"basket": list(range(kernel.n_items)), "ids": True}).json()
    assert everything["size"] == kernel.n_items
    assert everything["at_most"] == pytest.approx(1.0)


@pytest.mark.parametrize("query", ["item=bread", "id=6"])
def test_related_items_are_those_of_the_library(api, kernel, query):
    answer = api.get(f"/api/related?{query}&n=3").raise_for_status().json()
    expected = answers.related(kernel, "bread", n=3)
    assert answer["item"] == "bread"
    for kind in ("complements", "substitutes"):
        pairs = getattr(expected, kind)
        assert [row["other"] for row in answer[kind]] == [pair.other for pair in pairs]
        for row, pair in zip(answer[kind], pairs):
            shown = [row["together"], row["lift"], row["correlation"]]
            assert shown == pytest.approx([pair.together, pair.lift, pair.correlation])


def test_the_model_describes_itself(api, kernel):
    answer = api.get("/api/model").json()
    assert (answer["n_items"], answer["rank"], answer["labelled"]) == (kernel.n_items, kernel.rank, True)
    assert answer["name"] == "shop"
    assert answer["size_distribution"] == pytest.approx(kernel.size_distribution().tolist())
    assert answer["mean_size"] == pytest.approx(kernel.inclusion_probabilities().sum())
    assert answer["missions"] == []


def test_the_map_has_every_item_once(api, kernel):
    answer = api.get("/api/map").json()
    assert sorted(one["item"] for one in answer["items"]) == sorted(kernel.labels)
    assert all(0 <= one["x"] <= 1 and 0 <= one["y"] <= 1 for one in answer["items"])
    shares = [one["probability"] for one in answer["items"]]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("label", ODD)
def test_odd_labels_go_in_and_come_out(api, label):
    assert api.get("/api/items", params={"q": label}).json()["items"][0]["item"] == label
    assert api.get("/api/related", params={"item": label}).json()["item"] == label
    answer = api.post("/api/complete", json={"basket": [label], "size": 2, "seed": 1}).json()
    assert label in answer["baskets"][0]["items"]


def test_search_pages_through_the_catalogue(api, kernel):
    first = api.get("/api/items", params={"limit": 10}).json()
    rest = api.get("/api/items", params={"limit": 10, "offset": 10}).json()
    found = [row["item"] for row in first["items"] + rest["items"]]
    assert sorted(found) == sorted(kernel.labels)
    assert first["total"] == kernel.n_items
    chances = [row["probability"] for row in first["items"]]
    assert chances == sorted(chances, reverse=True)
    assert [row["item"] for row in api.get("/api/items?q=6&ids=true").json()["items"]] == []
    assert api.get("/api/items?q=bread&ids=true").json()["items"][0] == {
        "id": 6,
        "item": 6,
        "probability": pytest.approx(kernel.inclusion_probabilities()[6]),
    }


def lines(response: httpx.Response) -> list[dict]:
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


@pytest.mark.parametrize("task", ["recommend", "probability"])
def test_a_batch_answers_as_single_requests_do(api, task):
    baskets = [["bread"], ["pasta", "tea"], [], ["nothing"], ["bread", "bread"]]
    more = {"n": 3} if task == "recommend" else {}
    found = lines(api.post("/api/batch", json={"task": task, "baskets": baskets, "n": 3}))
    assert [row.pop("index") for row in found] == list(range(5))
    for row, basket in zip(found, baskets):
        single = api.post(f"/api/{task}", json={"basket": basket, **more}).json()
        assert row.get("problem", row) == single
    assert found[3]["problem"]["label"] == "nothing"


def test_a_batch_of_completions_is_reproducible(api):
    ask = {"task": "complete", "baskets": [["bread"], ["tea"], ["bread"]], "size": 4, "n": 2, "seed": 5}
    found = lines(api.post("/api/batch", json=ask))
    assert found == lines(api.post("/api/batch", json=ask))
    assert found[0]["baskets"] != found[2]["baskets"]
    one = api.post("/api/complete", json={"basket": ["tea"], "size": 4, "n": 2, "seed": found[1]["seed"]}).json()
    assert one == {"seed": found[1]["seed"], "baskets": found[1]["baskets"], "skipped": [], "customer": None}


def test_thousands_of_baskets_are_streamed(api):
    baskets = [[i % 12] for i in range(2000)]
    with api.stream("POST", "/api/batch", json={"task": "recommend", "baskets": baskets, "n": 1}) as response:
        assert sum(1 for _ in response.iter_lines()) == 2000
