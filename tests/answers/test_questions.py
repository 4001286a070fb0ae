"""What answers say beyond their doors: categories, reasons, stock, customers, related items, descriptions, and errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs fastapi: pip install 'ndpp[serve]'")
pytest.importorskip("httpx", reason="needs httpx: pip install 'ndpp[dev]'")

import ndpp
from doors import BASKET, BOOST, CATEGORY_OF, Asked, close, told
from ndpp import answers
from ndpp.answers.heard import Heard
from ndpp.cli.app import run
from ndpp.datasets import shelf_kernel
from patience import until
from servers import get, post, trips


@pytest.mark.parametrize(("most", "only"), [(1, ["b", "c", "t"]), (2, None), (None, ["p", "r"])])
def test_recommendations_by_category(model: Asked, most: int | None, only: list[str] | None):
    """In Python as ``ndpp.recommend`` takes them, over HTTP by the table of the server and by that of the request, and by command."""
    limit = ndpp.PerCategory(CATEGORY_OF, most, only)
    expected = told(answers.recommend(model.law, BASKET, n=8, per_category=limit))
    best = model.law.recommend(BASKET, n=8, per_category=limit, staples=False)
    assert [row["item"] for row in expected["items"]] == list(best.labels)
    found = [CATEGORY_OF[item] for item in best.labels]
    assert max(map(found.count, found)) <= (most or 8)
    assert only is None or set(found) <= set(only)
    asked = {"n": 8, "per_category": most, "categories": only}
    for own in ({}, {"category_of": CATEGORY_OF}):
        close(model.post("recommend", basket=BASKET, **asked, **own), expected)
        answer = post(f"{model.url}/api/batch", json={"task": "recommend", "baskets": [BASKET], **asked, **own})
        close(json.loads(answer.text), {"index": 0, **expected})
    words = [*(["--max-per-category", most] if most else []), *(["--categories", ",".join(only)] if only else [])]
    table = model.path.parent / "categories.csv"
    printed = model.command("recommend", "--given", ",".join(BASKET), "-n", 8, "--category-of", table, *words)
    close(printed["recommendations"], [expected["items"]])


def test_recommendations_in_a_changing_shop(model: Asked):
    """Categories, and items that the model does not know."""
    asked = {"candidates": [*model.law.labels, "soap"], "exclude": ["rice"], "unknown": "skip"}
    asked |= {"ranking": "lift", "why": True}
    limit = ndpp.PerCategory(CATEGORY_OF, 1, ["b", "c", "t"])
    expected = told(answers.recommend(model.law, [*BASKET, "oat drink"], per_category=limit, **asked))
    assert expected["skipped"] == ["oat drink", "soap"]
    assert 0 < len(expected["items"]) <= 3
    by_category = {"per_category": 1, "categories": ["b", "c", "t"]}
    close(model.post("recommend", basket=[*BASKET, "oat drink"], **asked, **by_category), expected)
    given = ",".join([*BASKET, "oat drink"]), "--only", ",".join(asked["candidates"]), "--exclude", "rice"
    table = model.path.parent / "categories.csv"
    limits = "--category-of", table, "--categories", "b,c,t", "--max-per-category", 1
    words = ("--given", *given, *limits, "--unknown", "skip", "--ranking", "lift", "--why")
    (printed,) = model.command("recommend", *words)["recommendations"]
    close(printed, expected["items"])


@pytest.mark.parametrize("ranking", list(ndpp.Ranking))
def test_why(model: Asked, ranking: ndpp.Ranking):
    """For an item that is asked about, whatever else is in the basket, and for one that is recommended."""
    expected = answers.why(model.law, BASKET, "tea", ranking=ranking)
    reason = told(expected)
    assert reason.pop("skipped") == []
    close(model.post("why", basket=BASKET, item="tea", ranking=ranking.value), {**reason, "skipped": []})
    more = {"basket": [*BASKET, "oat drink"], "item": "tea", "ranking": ranking.value, "unknown": "skip"}
    for found in (told(answers.why(model.law, **more)), model.post("why", **more)):
        close(found, {**reason, "skipped": ["oat drink"]})
    options = {"candidates": ["tea"], "ranking": ranking, "support": 0.0}
    (score,) = model.law.recommend(BASKET, n=1, **options).scores
    assert expected.popularity * expected.mission * expected.ties == pytest.approx(score)
    close(told(answers.recommend(model.law, BASKET, why=True, **options))["items"], [reason])
    words = ["--given", ",".join(BASKET), "--only", "tea", "--why", "--ranking", ranking, "--support", 0]
    close(model.command("recommend", *words)["recommendations"], [[reason]])


def test_boosts(model: Asked):
    """A boosted law is a law: the answers are those of ``law.tilt``."""
    tilted = model.law.tilt(BOOST)
    for ranking in ndpp.Ranking:
        best = tilted.recommend(BASKET, n=12, ranking=ranking, staples=False)
        found = answers.recommend(model.law, BASKET, n=12, ranking=ranking, boost=BOOST)
        assert [row.item for row in found.items] == list(best.labels)
        assert [row.score for row in found.items] == pytest.approx(best.scores.tolist())
        assert not {"rice", "butter"} & set(best.labels)
    drawn = [[model.law.labels[i] for i in basket] for basket in tilted.sample(4, given=["bread"], rng=5)]
    assert [
        list(one.items) for one in answers.complete(model.law, ["bread"], n=4, seed=5, boost=BOOST).baskets
    ] == drawn
    reason = answers.why(model.law, BASKET, "tea", boost=BOOST)
    assert reason.popularity == pytest.approx(tilted.inclusion_probabilities()[model.law.ids(["tea"])[0]])


def test_what_is_in_the_basket_is_not_out_of_stock(model: Asked):
    """It is there, whatever the table says; everything else that is out of stock still is, in one basket and in many."""
    stocked = model.law.tilt({"tea": 3, "jam": 0.5, "butter": 0})
    best = stocked.recommend(["rice", "tea"], n=12)
    single = answers.recommend(model.law, ["rice", "tea"], n=12, boost=BOOST, staples=True)
    baskets = ndpp.Baskets.from_lists([["rice", "tea"], ["bread"]], labels=model.law.labels)
    first, second = answers.recommend_each(model.law, baskets, n=12, boost=BOOST, staples=True)
    for found in (single, first):
        assert [row.item for row in found.items] == list(best.labels)
        assert [row.score for row in found.items] == pytest.approx(best.scores.tolist(), abs=1e-9)
    usual = model.law.tilt(BOOST).recommend(["bread"], n=12)
    assert [row.item for row in second.items] == list(usual.labels)
    assert [row.score for row in second.items] == pytest.approx(usual.scores.tolist(), abs=1e-9)
    drawn = model.law.sample(5, given=["rice"], boost=BOOST, rng=1)
    expected = [[model.law.labels[i] for i in basket] for basket in drawn]
    found = answers.complete(model.law, ["rice"], n=5, seed=1, boost=BOOST)
    assert [list(one.items) for one in found.baskets] == expected
    table, half = model.path.parent / "boost.csv", model.path.parent / "half.txt"
    table.write_text("item,factor\n" + "".join(f"{item},{factor}\n" for item, factor in BOOST.items()))
    half.write_text("rice\nbread\n")
    printed = model.command("complete", half, "-n", 60, "--seed", 1, "--boost", table)["baskets"]
    assert [sorted(basket) for basket in printed[:5]] == [sorted(basket) for basket in expected]
    assert not {"rice", "butter"} & {item for basket in printed[60:] for item in basket}
    with pytest.raises(ndpp.errors.ZeroProbabilityError, match="'butter' is out of stock"):
        answers.why(model.law, ["rice"], "butter", boost=BOOST)


@pytest.mark.parametrize(
    ("boost", "told"),
    [({"tee": 2}, "did you mean 'tea'"), ({"tea": -1}, "boost must be finite and ≥ 0; that of item 'tea' is -1"),
     ({"tea": np.nan}, "≥ 0"), ({"tea": np.inf}, "≥ 0"), ({"tea": "much"}, "must be numbers"), ([1, 2], "must have 12 entries")],
)  # fmt: skip
def test_factors_that_are_none(boost, told):
    with pytest.raises(ndpp.errors.InvalidInputError, match=told):
        answers.recommend(shelf_kernel(), BASKET, boost=boost)


def test_unknown_items_of_a_boost_can_be_skipped(model: Asked):
    found = answers.recommend(model.law, BASKET, boost={"oat drink": 2.0, "tea": 2}, unknown="skip")
    assert found.skipped == ("oat drink",)
    assert found.items == answers.recommend(model.law, BASKET, boost={"tea": 2}).items
    asked = {"boost": {"tea": 2}, "out_of_stock": ["oat drink"], "unknown": "skip"}
    close(model.post("recommend", basket=BASKET, **asked), told(found))


def test_a_boost_is_prepared_once():
    prepared = answers.Prepared(trips(), boost={"tea": 2})

    def under(**boost: float) -> ndpp.laws.law.Law:
        return Heard.of(prepared, boost=boost).listing()

    boosted = under()
    why = answers.recommend(prepared, ["jam"], boost={"tea": 3}, why=True)
    assert {row.because for row in why.items} <= {one.name for one in prepared.missions}  # they keep their names
    for factor in range(3, 6):
        assert under(jam=factor) is under(jam=factor)
        assert under(jam=1) is boosted
    assert answers.recommend(prepared, ["jam"]).items == answers.recommend(trips(), ["jam"], boost={"tea": 2}).items
    assert answers.probability(prepared, ["jam"]) == answers.probability(trips(), ["jam"])  # says what the model says


@pytest.mark.parametrize("ranking", list(ndpp.Ranking))
def test_customers(model: Asked, ranking: ndpp.Ranking):
    """By id, by history, and new: Python, command and HTTP answer as :class:`ndpp.Customers` does."""
    people = ndpp.Customers.load(file := model.path.with_suffix(".customers"), model.law)
    own, history = (
        answers.Prepared(model.law, customers=people),
        [["tea", "jam"], ["tea", "rice"], ["tea", "jam", "butter"]],
    )
    words = ("--customers", file, "--ranking", ranking, "-n", 5)
    for basket in (["bread"], []):
        given = ["--given", *basket] if basket else []
        damping = {} if basket else {"damping": people.habits.damping}
        best = people.recommend("17", basket, 5, ranking=ranking, staples=False, **damping)
        expected = told(answers.recommend(own, basket, n=5, customer="17", ranking=ranking))
        assert [row["item"] for row in expected["items"]] == list(best.labels)
        assert [row["score"] for row in expected["items"]] == pytest.approx(best.scores.tolist())
        assert expected["customer"] == "known"
        close(model.post("recommend", basket=basket, n=5, customer=17, ranking=ranking.value), expected)
        close(model.command("recommend", *given, *words, "--customer", 17)["recommendations"], [expected["items"]])
        (model.path.parent / "history.txt").write_text("".join(",".join(items) + "\n" for items in history))
        same = told(answers.recommend(own, basket, n=5, history=history, ranking=ranking))
        close(same, {**expected, "customer": "history"})
        close(model.post("recommend", basket=basket, n=5, history=history, ranking=ranking.value), same)
        printed = model.command("recommend", *given, *words, "--history", model.path.parent / "history.txt")
        close(printed["recommendations"], [same["items"]])
        new = told(answers.recommend(own, basket, n=5, customer="nobody", ranking=ranking, damping=0.2))
        plain = told(answers.recommend(model.law, basket, n=5, ranking=ranking))
        assert new["customer"] == "new"
        assert all(row.pop("usual") == 0 for row in new["items"])
        close(new["items"], plain["items"])
    asked = {"n": 12, "customer": "17", "why": True, "staples": True}
    reasons = answers.recommend(own, ["bread"], ranking=ranking, **asked)
    for row in reasons.items:
        assert row.score == pytest.approx(row.popularity * row.mission * row.ties * row.customer)
    assert {row.item: row.usual > 0 for row in reasons.items}["tea"]
    close(model.post("recommend", basket=["bread"], ranking=ranking.value, **asked), told(reasons))
    if ranking is not ndpp.Ranking.LIFT:
        shares = sum(row.share for row in reasons.items)
        size = people.law("17").inclusion_probabilities(given=["bread"]).sum() - 1
        assert shares == pytest.approx(
            1 if ranking is ndpp.Ranking.COMPLETION else size, rel=1e-6 if ranking.is_whole else 0.2
        )


def test_baskets_of_customers(model: Asked):
    people = ndpp.Customers.load(file := model.path.with_suffix(".customers"), model.law)
    own, labels = answers.Prepared(model.law, customers=people), model.law.labels
    drawn = [[labels[i] for i in basket] for basket in people.law("17").sample(3, given=["bread"], rng=4)]
    found = answers.complete(own, ["bread"], n=3, seed=4, customer="17")
    assert [list(one.items) for one in found.baskets] == drawn
    close(model.post("complete", basket=["bread"], n=3, seed=4, customer="17"), told(found))
    printed = model.command("complete", "--given", "bread", "-n", 3, "--seed", 4, "--customers", file, "--customer", 17)
    assert [sorted(basket) for basket in printed["baskets"]] == [sorted(basket) for basket in drawn]
    freely = [[labels[i] for i in basket] for basket in people.law("17").sample(3, rng=6)]
    words = ("-n", 3, "--seed", 6, "--customers", file, "--customer", "17")
    assert model.command("sample", *words)["baskets"] == freely
    assert [one["items"] for one in model.post("sample", n=3, seed=6, customer="17")["baskets"]] == freely
    asked = {
        "task": "recommend",
        "baskets": [["bread"], ["tea"], ["bread"]],
        "customers": ["17", "nobody", None],
        "n": 4,
    }
    lines = [json.loads(line) for line in post(f"{model.url}/api/batch", json=asked).text.splitlines()]
    for basket, customer, line in zip(asked["baskets"], asked["customers"], lines):
        alone = told(answers.recommend(own, basket, customer=customer, n=4))
        close({key: value for key, value in line.items() if key != "index"}, alone)
    each = answers.recommend_each(own, ndpp.Baskets.from_lists([[], []], labels=labels), n=4, customers=["17", "ann"])
    printed = model.command("recommend", "--customers", file, "--all-customers", "-n", 4)
    assert printed["customers"] == ["17", "ann"]
    close(printed["recommendations"], [told(one)["items"] for one in each])
    assert [row.item for row in each[0].items] == list(people.next_basket("17", 4).labels)


def test_customers_under_a_boost(model: Asked):
    """What is out of stock is out of stock for those who like it, too."""
    people = ndpp.Customers.load(file := model.path.with_suffix(".customers"), model.law)
    own, boost = answers.Prepared(model.law, customers=people), {"tea": 0.0, "pesto": 2.0}
    expected = ndpp.recommend(model.law, ["bread"], 12, customer=people["17"], boost=boost, staples=False)
    found = answers.recommend(own, ["bread"], n=12, customer="17", boost=boost)
    assert [row.item for row in found.items] == list(expected.labels or ())
    close([row.score for row in found.items], expected.scores.tolist())
    assert "tea" not in [row.item for row in found.items]
    asked = {"boost": {"pesto": 2}, "out_of_stock": ["tea"], "customer": "17"}
    close(model.post("recommend", basket=["bread"], n=12, **asked), told(found))
    table = model.path.parent / "both.csv"
    table.write_text("item,factor\ntea,0\npesto,2\n")
    words = ("--customers", file, "--customer", "17", "--boost", table)
    close(model.command("recommend", "-g", "bread", "-n", 12, *words)["recommendations"], [told(found)["items"]])
    with_tea = answers.recommend(own, ["tea"], n=12, customer="17", boost=boost)  # the last one, in the basket
    assert {row.item for row in with_tea.items}.isdisjoint({"tea"})
    drawn = answers.complete(own, ["bread"], n=4, seed=1, customer="17", boost=boost)
    close(model.post("complete", basket=["bread"], n=4, seed=1, **asked), told(drawn))
    printed = model.command("complete", "-g", "bread", "-n", 4, "--seed", 1, *words)["baskets"]
    assert [sorted(basket) for basket in printed] == [sorted(one.items) for one in drawn.baskets]


def test_a_model_without_customers_says_so(model: Asked):
    for asked in ({"customer": "17"}, {"history": [["tea"]]}):
        with pytest.raises(ndpp.errors.InvalidInputError, match="needs customers, and this model has none"):
            answers.recommend(model.law, ["bread"], **asked)
    both = post(f"{model.url}/api/recommend", json={"customer": "17", "history": [["tea"]]})
    assert (both.status_code, "not both" in both.json()["detail"]) == (422, True)


@pytest.mark.parametrize("item", ["bread", "tea"])
def test_related_items(model: Asked, item: str):
    expected = told(answers.related(model.law, item, n=5))
    close(model.command("related", item, "-n", 5), {"items": [expected]})
    close(get(f"{model.url}/api/related", params={"item": item, "n": 5}).json(), expected)
    for kind, sign in (("complements", 1), ("substitutes", -1)):
        ties = [sign * row["correlation"] for row in expected[kind]]
        assert ties == sorted(ties, reverse=True)
        assert min(ties, default=1.0) > 0


def test_sizes_of_the_baskets_with_an_item(model: Asked):
    """Over HTTP, those of a mixture are known some moments after it was loaded, in single precision."""
    expected = answers.sizes(model.law, "tea")
    assert sum(expected.size_distribution) == pytest.approx(1)

    def with_sizes() -> dict[str, Any] | None:
        found = get(f"{model.url}/api/sizes", params={"item": "tea"}).raise_for_status().json()
        return None if found["size_distribution"] is None else found

    found = until(with_sizes)
    n = min(len(expected.size_distribution), len(found["size_distribution"]))
    assert n > 4
    np.testing.assert_allclose(found.pop("size_distribution")[:n], expected.size_distribution[:n], atol=1e-5)
    close(found, {"item": "tea", "probability": expected.probability})


def test_pairs_of_the_catalogue(model: Asked):
    close(model.command("related", "-n", 3), told(answers.pairs(model.law, n=3)))


def test_descriptions(model: Asked):
    expected = told(answers.describe(model.law))
    sent = get(f"{model.url}/api/model").json()
    assert sent.pop("name") == model.path.stem
    checksum, printed = sent.pop("checksum"), model.command("info")
    assert [column["name"] for column in sent.pop("columns")] == ["price", "category"]
    assert sent.pop("customers") == 2
    assert sent.pop("context") == {name: list(words) for name, words in model.law.context.items()}
    close(sent, expected)
    assert printed["crc32"] == checksum
    names = {"n_items": "items", "labelled": "labels", "size_distribution": "size_law"}
    for key in ("n_items", "labelled", "mean_size", "size_distribution", "popular", "missions"):
        close(printed[names.get(key, key)], expected[key])
    assert [one["name"] for one in expected["missions"]] == [
        one.name for one in answers.missions(model.law) if len(model.law.weights) > 1
    ]


def test_maps(model: Asked):
    expected = told(answers.map_of(model.law))
    close(get(f"{model.url}/api/map").json(), expected)
    popular = [share.item for share in answers.describe(model.law, n=12).popular]
    assert [one["item"] for one in expected["items"]] == popular


def test_likelihoods_and_search(model: Asked):
    close(model.post("probability", basket=BASKET), told(answers.probability(model.law, BASKET)))
    found = told(answers.search(model.law, "bred"))
    close(get(f"{model.url}/api/items", params={"q": "bred"}).json(), found)
    assert found["items"][0]["item"] == "bread"


def test_an_unknown_label_is_answered_in_the_same_words(model: Asked):
    with pytest.raises(ndpp.errors.UnknownLabelError) as raised:
        answers.recommend(model.law, ["bred"])
    assert post(f"{model.url}/api/recommend", json={"basket": ["bred"]}).json()["detail"] == str(raised.value)
    with pytest.raises(SystemExit):
        run(["recommend", str(model.path), "--given", "bred"])
    assert str(raised.value) in model.capsys.readouterr().err


def test_what_is_prepared_answers_alike(model: Asked):
    prepared = answers.Prepared(model.law)
    for _ in range(2):
        assert answers.recommend(prepared, BASKET, why=True) == answers.recommend(model.law, BASKET, why=True)
        assert answers.related(prepared, "tea") == answers.related(model.law, "tea")


def test_records_show_themselves(model: Asked):
    for record in (
        answers.recommend(model.law, BASKET, n=2), answers.recommend(model.law, BASKET, n=2, why=True),
        answers.why(model.law, BASKET, "tea"), answers.complete(model.law, seed=1), answers.related(model.law, "tea"),
        answers.pairs(model.law), answers.describe(model.law), answers.map_of(model.law),
        answers.probability(model.law, BASKET), answers.search(model.law, "tea"), answers.sizes(model.law, "tea"),
    ):  # fmt: skip
        header, rows = record.table()
        assert all(len(row) == len(header) for row in rows)
        assert all(name in repr(record).splitlines()[0] for name in header)
        assert record._repr_html_().startswith(f"<b>{type(record).__name__}</b><table>")
        assert len(record.to_frame("pandas")) == len(rows)
        assert json.loads(record.to_json()).keys() == record.data().keys()
