"""A mixture is served as a kernel is, and its missions are shown."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

import ndpp
from ndpp import answers
from ndpp.errors import PrecisionError
from ndpp.serve.app import create_app
from ndpp.serve.model import Served, Settings
from ndpp.serve.work import GIVES_WAY, UnderWay
from patience import HANG_SECONDS, until
from servers import BREAKFAST, get, post, serving


@pytest.fixture(scope="module")
def url(mixture, tmp_path_factory):
    path = tmp_path_factory.mktemp("mixture") / "trips.safetensors"
    ndpp.save(mixture, path)
    with serving(create_app(Settings(path))) as url:
        yield url


def test_the_model_shows_its_missions(url):
    found = get(f"{url}/api/model").raise_for_status().json()
    assert [(m["name"], m["share"]) for m in found["missions"]] == [("<b>dinner</b>", 0.6), ("breakfast", 0.4)]
    dinner, breakfast = ([one["item"] for one in mission["items"]] for mission in found["missions"])
    assert set(breakfast[:4]) <= set(BREAKFAST)
    assert not set(dinner[:4]) & set(BREAKFAST)
    assert found["missions"][1]["items"][0]["lift"] > 1
    assert sum(m["share"] * m["mean_size"] for m in found["missions"]) == pytest.approx(found["mean_size"])


def test_a_basket_has_probable_missions(url, mixture):
    found = post(f"{url}/api/probability", json={"basket": ["bread", "jam"]}).json()
    expected = mixture.responsibilities(mixture.ids(["bread", "jam"]))
    assert found["missions"][0]["name"] == "breakfast"
    assert found["missions"][0]["probability"] == pytest.approx(expected[0])
    assert found["log_prob"] == pytest.approx(mixture.log_prob(mixture.ids(["bread", "jam"])))


def test_questions_are_answered_by_the_mixture(url, mixture):
    basket = mixture.ids(["bread"])
    asked = {"basket": ["bread"], "n": 3, "ids": True, "why": True, "ranking": "completion"}
    best = post(f"{url}/api/recommend", json=asked).json()["items"]
    scores = ndpp.next_item_scores(mixture, basket)
    assert [row["item"] for row in best] == np.argsort(-scores)[:3].tolist()
    assert best[0]["because"] == "breakfast"
    drawn = post(f"{url}/api/complete", json={"basket": ["bread"], "size": 4, "n": 5, "seed": 3, "ids": True}).json()
    assert [row["items"] for row in drawn["baskets"]] == mixture.sample(5, size=4, given=basket, rng=3).to_lists()
    given = mixture.inclusion_probabilities(given=basket)
    related = get(f"{url}/api/related?item=bread&ids=true").json()
    first = related["complements"][0]
    assert first["lift"] == pytest.approx(given[first["other"]] / mixture.inclusion_probabilities()[first["other"]])
    assert sorted(one["item"] for one in get(f"{url}/api/map").json()["items"]) == sorted(mixture.labels)


def test_a_mixture_answers_before_its_sizes_are_known(monkeypatch, tmp_path):
    """Sizes of hundreds of components take a minute; everything else is answered meanwhile."""
    rng, may_end = np.random.default_rng(0), threading.Event()
    skew = [[0.0, 1.0], [-1.0, 0.0]]
    mixture = ndpp.Mixture.tied(np.exp(rng.normal(-1, 1, (70, 9))), rng.normal(size=(9, 2)), skew, np.full(70, 1 / 70))
    ndpp.save(mixture, tmp_path / "m")
    found = type(mixture).size_distribution
    monkeypatch.setattr(type(mixture), "size_distribution", lambda law: may_end.wait(HANG_SECONDS) and found(law))
    with serving(create_app(Settings(tmp_path / "m"))) as url:
        answer = post(f"{url}/api/probability", json={"basket": [1, 2]}).raise_for_status().json()
        assert answer["log_prob"] == pytest.approx(mixture.log_prob([1, 2]))
        assert (answer["size_probability"], answer["at_most"], answer["log_prob_of_size"]) == (None, None, None)
        assert get(f"{url}/api/model").raise_for_status().json()["size_distribution"] is None
        may_end.set()
        sizes = until(lambda: get(f"{url}/api/model").json()["size_distribution"])
    assert sizes == pytest.approx(found(mixture).tolist())


@pytest.mark.parametrize("n_components", [2, 70])
def test_a_size_distribution_that_cannot_be_computed(monkeypatch, tmp_path, caplog, n_components):
    """A small model is refused, as it is when a file is replaced; of a large one the rest is served, and the log says why."""
    odds, skew = np.full((n_components, 3), 0.5), [[0.0, 1.0], [-1.0, 0.0]]
    mixture = ndpp.Mixture.tied(odds, np.ones((3, 2)), skew, np.full(n_components, 1 / n_components))
    ndpp.save(mixture, tmp_path / "m")

    def fail(law):
        raise PrecisionError("too few digits")

    monkeypatch.setattr(type(mixture), "size_distribution", fail)
    if n_components == 2:
        with pytest.raises(PrecisionError, match="too few digits"):
            Served.load(Settings(tmp_path / "m"))
        return
    with caplog.at_level("ERROR", logger="ndpp.serve"):
        served = Served.load(Settings(tmp_path / "m"))
        until(lambda: caplog.records)
    assert served.sizes is None
    assert "no size distribution" in caplog.text
    assert answers.describe(served).size_distribution is None


def test_a_mixture_over_families_is_served(tmp_path):
    rng, families, states = np.random.default_rng(0), np.arange(12) // 3, np.repeat(np.arange(4), 2)
    item_odds, skew = np.tile([0.3, 4.0], (12, 1)), [[0.0, 1.0], [-1.0, 0.0]]
    X, state_odds = rng.normal(size=(4, 2)), rng.gamma(1.0, 0.05, size=(3, 8))
    law = ndpp.FamilyMixture(state_odds, item_odds, families, states, X, skew, weights=[0.5, 0.3, 0.2])
    ndpp.save(law, tmp_path / "m")
    with serving(create_app(Settings(tmp_path / "m"))) as url:
        found = post(f"{url}/api/recommend", json={"basket": [1], "n": 4}).raise_for_status().json()["items"]
        best = ndpp.recommend(law, [1], n=4, staples=False)
        assert [row["item"] for row in found] == best.items.tolist()
        assert [row["score"] for row in found] == pytest.approx(best.scores.tolist())
        drawn = post(f"{url}/api/complete", json={"basket": [1], "size": 4, "seed": 5}).raise_for_status().json()
        assert drawn["baskets"][0]["items"] == law.sample(1, given=[1], size=4, rng=5).to_lists()[0]
        for path in ("model", "map", "related?id=1", "items?q=1"):
            get(f"{url}/api/{path}").raise_for_status()


def test_work_in_the_background_gives_way_to_requests(monkeypatch):
    """While requests are answered, it waits in proportion to its own time; then it goes on, or it would never be done."""
    now, waits = [100.0], []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("ndpp.serve.work.time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    under_way = UnderWay()
    now[0] += 0.05  # of its own
    under_way.give_way()
    assert waits == []
    with under_way:
        now[0] += 0.05
        under_way.give_way()
    assert sum(waits) == pytest.approx(GIVES_WAY * 0.05)
    under_way.give_way()  # it has not worked since
    assert sum(waits) == pytest.approx(GIVES_WAY * 0.05)
