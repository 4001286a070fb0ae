"""ndpp related tells what the library says: complements and substitutes, of items and of the catalogue."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import ndpp
from command import run
from ndpp import answers


@pytest.fixture(params=["shelf", "trips", "mixture"])
def model(models, request):
    """A kernel, a mixture with shared ties, and one of kernels without anything in common."""
    return models / f"{request.param}.safetensors"


def numbers(pair):
    return pair.lift, pair.by_missions, pair.by_ties, pair.together, pair.correlation


def test_items_are_those_of_the_library(call, model, tmp_path):
    law = ndpp.load(model)
    found = call("related", model, "tomato sauce,bread", "-n", 2, "--json").json["items"]
    assert [one["item"] for one in found] == ["tomato sauce", "bread"]
    for own in found:
        expected = answers.related(law, own["item"], n=2)
        assert own["probability"] == expected.probability
        for kind in ("complements", "substitutes"):
            pairs = getattr(expected, kind)
            assert pairs or kind == "substitutes"
            assert [(one["item"], one["other"]) for one in own[kind]] == [(own["item"], p.other) for p in pairs]
            assert [tuple(one.values())[3:] for one in own[kind]] == [numbers(pair) for pair in pairs]
    assert call("related", model, "tomato sauce,bread", "-n", 2, "-o", tmp_path / "r.csv").out == ""
    with open(tmp_path / "r.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    told = [
        (kind[:-1], pair["item"], pair["other"])
        for own in found
        for kind in ("complements", "substitutes")
        for pair in own[kind]
    ]
    assert [(row["kind"], row["item"], row["other"]) for row in rows] == told


def test_pairs_of_the_catalogue(call, model, tmp_path):
    law = ndpp.load(model)
    found = call("related", model, "-n", 4, "--json").json
    expected = answers.pairs(law, n=4)
    for kind in ("complements", "substitutes"):
        pairs = getattr(expected, kind)
        assert [(p["item"], p["other"]) for p in found[kind]] == [(p.item, p.other) for p in pairs]
        assert [tuple(one.values())[3:] for one in found[kind]] == [numbers(pair) for pair in pairs]
    assert call("related", model, "-n", 4, "-o", tmp_path / "r.json").out == ""
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8")) == found


def test_popular_items_only(call, shelf):
    law = ndpp.load(shelf)
    popular = {share.item for share in answers.describe(law, n=4).popular}
    found = call("related", shelf, "--popular", 4, "--json").json
    assert found["popular"] == 4
    assert {one[side] for one in found["complements"] for side in ("item", "other")} <= popular
    assert found["complements"]
    shown = call("related", shelf, "--popular", 4).out
    assert "Pairs of the 4 most popular of 12 items; --popular 12 takes all." in shown
    assert "most popular" not in call("related", shelf).out
    own = call("related", shelf, "coffee", "--popular", 4, "--json").json["items"][0]
    assert {pair["other"] for kind in ("complements", "substitutes") for pair in own[kind]} <= popular


def test_what_people_see(shelf, models):
    done = run(models, "related", shelf, "bread", "-n", 1)
    assert (done.code, done.err) == (0, "")
    lines = [" ".join(line.split()) for line in done.out.splitlines() if "─" not in line]
    assert lines[:2] == ["goes with bread lift together", "butter 1.412 0.2889"]
    assert lines[3:5] == ["instead of bread lift together", "rolls 0.155 0.00905"]
    mixed = run(models, "related", models / "trips.safetensors", "-n", 1).out
    assert next(" ".join(line.split()) for line in mixed.splitlines()) == "go together lift by ties together"
    assert "By ties: the part of the lift that missions do not explain" in mixed


def test_ids(call, shelf, plain):
    shown = call("related", shelf, "0", "--ids", "-n", 1).out
    assert shown.startswith("goes with 0 ")
    found = call("related", plain, "7", "-n", 3, "--json").json["items"][0]
    assert found["item"] == 7
    expected = answers.related(ndpp.load(plain), 7, n=3)
    assert [pair["other"] for pair in found["complements"]] == [pair.other for pair in expected.complements]


def test_refusals(call, shelf, tmp_path):
    assert "did you mean 'bread'?" in call("related", shelf, "bred").err
    assert call("related", shelf, "bred").code == 1
    assert call("related", shelf, "--popular", 1).code == 2
    kernel = ndpp.LowRankKernel(np.eye(3), np.eye(3), labels=["tea", "milk", "never"]).exclude([2])
    ndpp.save(kernel, tmp_path / "m")
    assert "'never' never occurs" in call("related", tmp_path / "m", "never").err
    shown = call("related", tmp_path / "m", "tea").out
    assert "Nothing goes with tea.\nNothing instead of tea." in shown
    assert "No items go together.\nNo items stand in for each other." in call("related", tmp_path / "m").out
