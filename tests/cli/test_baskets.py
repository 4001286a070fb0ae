"""sample, complete, map and recommend: items in and out by label or id, in every format, the same as the library's."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

import ndpp
from ndpp.samplers import registry


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_samples_are_those_of_the_library(call, plain):
    done = call("sample", plain, "-n", 7, "--size", 3, "--seed", 5)
    assert done.code == 0
    expected = ndpp.load(plain).sample(7, size=3, rng=5).to_lists()
    assert [[int(word) for word in line] for line in lines(done.out)] == expected
    assert call("sample", plain, "-n", 7, "--size", 3, "--seed", 5, "--jobs", 2).out == done.out


def test_first_continues_a_run(call, plain):
    whole = call("sample", plain, "-n", 9, "--seed", 2).out.splitlines()
    assert call("sample", plain, "-n", 4, "--seed", 2, "--first", 5).out.splitlines() == whole[5:]


def test_a_fresh_seed_is_fresh_and_told(call, plain):
    first, second = (call("sample", plain, "-n", 20, "--json").json for _ in range(2))
    assert first["baskets"] != second["baskets"]
    again = call("sample", plain, "-n", 20, "--json", "--seed", first["seed"])
    assert again.json == first


@pytest.mark.parametrize("suffix", ["txt", "csv", "tsv", "parquet", "csv.gz", "json"])
def test_every_format_holds_the_same_baskets(call, shelf, tmp_path, suffix):
    path = tmp_path / f"out.{suffix}"
    assert call("sample", shelf, "-n", 30, "--seed", 4, "-o", path) == (0, "", "")
    kernel = ndpp.load(shelf)
    expected = kernel.sample(30, rng=4)
    if suffix == "json":
        named = [list(expected.labelled(i)) for i in range(30)]
        assert json.loads(path.read_text(encoding="utf-8"))["baskets"] == named
    else:
        assert ndpp.Baskets.read(path, labels=kernel.labels) == expected
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", ["txt", "csv", "tsv", "parquet", "csv.gz"])
def test_nasty_labels_go_from_command_to_command(call, tmp_path, suffix):
    labels, model, drawn = ["\r", "a\rb", " ", "x ", "\x85", "NA"], tmp_path / "model", tmp_path / f"drawn.{suffix}"
    ndpp.save(ndpp.LowRankKernel(np.eye(6), np.eye(6), labels=labels), model)
    assert ndpp.load(model).labels == tuple(labels)
    assert call("sample", model, "-n", 30, "--seed", 1, "-o", drawn) == (0, "", "")
    assert ndpp.Baskets.read(drawn, labels=labels) == ndpp.load(model).sample(30, rng=1)
    told = call("info", drawn, "--json")  # without the labels of the model
    assert (told.json["items"], told.err) == (6, "")
    assert call("evaluate", model, drawn, "--json").code == 0
    assert call("complete", model, drawn, "--add", 0, "-o", tmp_path / "again.csv").code == 0
    again = ndpp.Baskets.read(tmp_path / "again.csv")
    assert set(again.labels) == set(labels)


def test_json_is_compressed_if_its_name_says_so(call, plain, tmp_path):
    path = tmp_path / "out.json.gz"
    assert call("sample", plain, "-n", 3, "--seed", 4, "--json", "-o", path).code == 0
    shown = call("sample", plain, "-n", 3, "--seed", 4, "--json")
    assert gzip.decompress(path.read_bytes()).decode() == shown.out


@pytest.mark.parametrize("format", ["text", "csv", "tsv"])
def test_what_one_command_writes_the_next_one_reads(call, shelf, format):
    drawn = call("sample", shelf, "-n", 40, "--seed", 1, "--to", format).out
    found = call("evaluate", shelf, "-", "--from", format, "--json", "--bootstrap", 0, stdin=drawn)
    assert found.json["n_baskets"] == 40
    in_ids = call("sample", shelf, "-n", 40, "--seed", 1, "--to", format, "--ids").out
    assert in_ids != drawn
    again = call("evaluate", shelf, "-", "--from", format, "--json", "--bootstrap", 0, "--ids", stdin=in_ids)
    assert again.json == found.json


@pytest.mark.parametrize("sampler", [spec.name for spec in registry.offered(2)])
def test_every_sampler_of_a_size(call, plain, sampler):
    done = call("sample", plain, "-n", 3, "--size", 2, "--sampler", sampler, "--seed", 0)
    assert [len(line) for line in lines(done.out)] == [2, 2, 2]


@pytest.mark.parametrize("sampler", [spec.name for spec in registry.offered(None)])
def test_every_sampler_of_any_size(call, plain, sampler):
    done = call("sample", plain, "-n", 3, "--sampler", sampler, "--seed", 0)
    assert done.code == 0
    assert len(done.out.splitlines()) == 3


def test_given_and_excluded_items(call, shelf):
    done = call("sample", shelf, "-n", 20, "--given", "tomato sauce,bread", "-x", "pasta", "-x", "butter", "--seed", 3)
    baskets = [set(line.split("\t")) for line in done.out.splitlines()]
    assert all({"tomato sauce", "bread"} <= basket for basket in baskets)
    assert not any({"pasta", "butter"} & basket for basket in baskets)


def test_completion_keeps_what_is_there(call, shelf):
    done = call("complete", shelf, "-g", "tea", "--size", 4, "-n", 5, "--seed", 0, "--json")
    assert all("tea" in basket and len(basket) == 4 for basket in done.json["baskets"])
    half = "tea\t\nbread\tbutter\n"
    done = call("complete", shelf, "-", "--add", 1, "-n", 2, "--seed", 0, "--json", stdin=half)
    sets = [set(basket) for basket in done.json["baskets"]]
    assert [len(basket) for basket in sets] == [2, 2, 3, 3]
    assert all("tea" in basket for basket in sets[:2])
    assert all({"bread", "butter"} <= basket for basket in sets[2:])


def test_completions_are_exact_samples_numbered_through(call, shelf):
    kernel = ndpp.load(shelf)
    done = call("complete", shelf, "-g", "bread", "-k", 3, "-n", 6, "--seed", 9, "--ids", "--json")
    assert done.code == 1  # with --ids, bread is no item
    bread = int(kernel.ids(["bread"])[0])
    done = call("complete", shelf, "-g", bread, "-k", 3, "-n", 6, "--seed", 9, "--ids", "--json")
    found = done.json["baskets"]
    assert all(basket[0] == bread for basket in found)
    assert [sorted(basket) for basket in found] == kernel.sample(6, size=3, given=[bread], rng=9).to_lists()


def test_map_is_in_the_order_chosen(call, shelf):
    kernel = ndpp.load(shelf)
    expected = [kernel.labels[i] for i in ndpp.greedy_map(kernel, 4, given=kernel.ids(["tea"]))]
    assert call("map", shelf, "--size", 4, "--given", "tea").out == "\t".join(expected) + "\n"
    found = call("map", shelf, "--size", 4, "--given", "tea", "--json").json
    assert found["baskets"] == [expected]
    assert found["log_det"] == [pytest.approx(kernel.log_det(kernel.ids(expected)))]


def test_map_best_says_how_far_it_can_be_from_the_best(call, shelf):
    kernel = ndpp.load(shelf)
    expected = ndpp.best_set(kernel, 4, given=kernel.ids(["tea"]))
    found = call("map", shelf, "--size", 4, "--given", "tea", "--best", "--json").json
    assert sorted(found["baskets"][0]) == sorted(kernel.labels[i] for i in expected.items)
    assert found["baskets"][0][0] == "tea"
    assert found["gap"] == [pytest.approx(expected.gap, abs=1e-9)]
    assert "gap" not in call("map", shelf, "--size", 4, "--json").json


def test_recommendations(call, shelf, tmp_path):
    kernel = ndpp.load(shelf)
    best = ndpp.recommend(kernel, kernel.ids(["bread"]), n=3)
    found = call("recommend", shelf, "-g", "bread", "-n", 3, "--json").json["recommendations"]
    assert [row["item"] for row in found[0]] == [kernel.labels[i] for i in best.items]
    assert [row["score"] for row in found[0]] == pytest.approx(best.scores.tolist())
    shown = call("recommend", shelf, "-g", "bread", "-n", 3).out
    assert shown.splitlines()[2].split()[0] == kernel.labels[best.items[0]]
    path = tmp_path / "best.csv"
    assert call("recommend", shelf, "-", "-n", 2, "-o", path, stdin="bread\t\ntea\t\n").code == 0
    header, *rows = path.read_text(encoding="utf-8").splitlines()
    assert header == "basket,rank,item,score"
    assert [row.split(",")[:2] for row in rows] == [["0", "1"], ["0", "2"], ["1", "1"], ["1", "2"]]


def test_an_impossible_basket_among_many_is_told_and_left_out(call, tmp_path):
    kernel = ndpp.LowRankKernel([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]])
    ndpp.save(kernel, tmp_path / "twins.safetensors")
    done = call("recommend", tmp_path / "twins.safetensors", "-", "--json", stdin="0 1\n0\n")
    assert done.json["recommendations"] == [[], [{"item": 2, "score": 0.5}]]
    assert done.err == "ndpp: warning: 1 of 2 baskets have probability zero; nothing is recommended for them\n"
    assert call("recommend", tmp_path / "twins.safetensors", "-g", "0,1").code == 1


def test_labels_with_commas_can_be_named(call, tmp_path):
    kernel = ndpp.LowRankKernel([[1.0], [1.0]], [[1.0]], labels=["salt, coarse", "tea"])
    ndpp.save(kernel, tmp_path / "model.safetensors")
    done = call("sample", tmp_path / "model.safetensors", "--given", "salt, coarse", "--size", 1, "--json")
    assert done.json["baskets"] == [["salt, coarse"]]


def test_without_a_device_the_cpu_draws_and_says_so(call, plain):
    if pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[gpu]'").cuda.is_available():
        pytest.skip("there is a CUDA device")
    words = ["sample", plain, "-n", 3, "--size", 2, "--seed", 1, "--json"]
    done = call(*words, "--device", "cuda")
    assert done.json == call(*words).json
    assert done.err.startswith("ndpp: warning: the device 'cuda' is not available: torch")
    assert call("sample", plain, "--device", "abacus").code == 1
