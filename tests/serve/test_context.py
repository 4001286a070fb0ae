"""Requests in a context are answered by ``law.at``."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ndpp
from ndpp import answers
from ndpp.answers.heard import Heard
from ndpp.serve.app import create_app
from ndpp.serve.model import Settings
from servers import get, post, serving

HOURS = {"hour": ("8", "20")}
MORNING = {"hour": 8}


@pytest.fixture(scope="module")
def law(mixture) -> ndpp.Mixture:
    return mixture.with_context(HOURS, np.array([[1.5, -1.5], [-1.5, 1.5]]))


@pytest.fixture(scope="module")
def url(law, tmp_path_factory):
    path = tmp_path_factory.mktemp("context") / "trips.safetensors"
    ndpp.save(law, path)
    with serving(create_app(Settings(path))) as url:
        yield url


def test_questions_in_a_context(url, law):
    there, ask = law.at(hour=8), {"basket": ["tea"], "context": {"hour": "8"}, "ids": True}
    assert get(f"{url}/api/model").json()["context"] == {"hour": ["8", "20"]}
    best = post(f"{url}/api/recommend", json={**ask, "n": 4, "why": True}).json()["items"]
    chances = there.inclusion_probabilities(given=there.ids(["tea"]))
    assert [one["score"] for one in best] == pytest.approx([chances[one["item"]] for one in best])
    assert best != post(f"{url}/api/recommend", json={**ask, "context": {}, "n": 4, "why": True}).json()["items"]
    why = post(f"{url}/api/why", json={**ask, "item": best[0]["item"]}).json()
    assert why["score"] == pytest.approx(best[0]["score"])
    for kind, given in (("complete", there.ids(["tea"])), ("sample", ())):
        more = {name: value for name, value in ask.items() if name != "basket" or kind == "complete"}
        drawn = post(f"{url}/api/{kind}", json={**more, "n": 5, "seed": 3}).json()["baskets"]
        assert [one["items"] for one in drawn] == there.sample(5, given=given, rng=3).to_lists()
    found = post(f"{url}/api/probability", json={"basket": ["tea"], "context": {"hour": 8}}).json()
    assert found["log_prob"] == pytest.approx(there.log_prob(["tea"]))
    assert found["size_probability"] == pytest.approx(there.size_distribution()[1])
    lines = post(f"{url}/api/batch", json={"task": "recommend", "baskets": [["tea"]], "n": 4, "context": {"hour": 8}})
    one = json.loads(lines.text)["items"][0]
    assert one["score"] == pytest.approx(best[0]["score"])


def test_other_contexts_are_refused(url):
    for kind, more in (("recommend", {}), ("complete", {}), ("batch", {"task": "recommend", "baskets": [[]]})):
        for context, status in (
            ({"hour": 9}, 422),
            ({"town": "x"}, 422),
            ({"hour": [8]}, 422),
            ({str(i): "x" for i in range(21)}, 422),
        ):
            found = post(f"{url}/api/{kind}", json={"context": context, **more})
            assert found.status_code == status, (kind, context)
    assert "the model knows '8', '20'" in post(f"{url}/api/recommend", json={"context": {"hour": 9}}).json()["detail"]
    assert post(f"{url}/api/recommend", json={"context": {"hour": 9}, "unknown": "skip"}).status_code == 200


def test_answers_take_a_context(law):
    model = answers.Prepared(law)
    there = Heard.of(model, context=MORNING).listing()
    named = {one.name for one in answers.probability(model, [], context=MORNING).missions}
    assert named <= {one.name for one in model.missions}
    assert there.popularity == pytest.approx(law.at(hour=8).inclusion_probabilities())
    assert there.size_distribution() == pytest.approx(law.at(hour=8).size_distribution())
    assert Heard.of(model, context={"town": 1}, unknown="skip").listing() is model.law
    kernel = answers.Prepared(ndpp.datasets.shelf_kernel())
    assert Heard.of(kernel, context={"town": 1}, unknown="skip").listing() is kernel.law
