"""What ``ndpp fit`` says while it trains, and what it leaves to do after Ctrl-C or SIGTERM."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import ndpp
import only_posix
from command import ENVIRONMENT, ONE_EPOCH, Done, end, pausing, run, spawn
from ndpp.cli import fit
from ndpp.cli.fit import FitSettings
from patience import HANG_SECONDS

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")
from ndpp.learning.fitting import ESTIMATORS

EPOCH = re.compile(
    r"epoch (\d+) of 3, loss -?[\d.]+, validation -[\d.]+, [\d.]+ s(; at most about [\d.]+ (s|min) left)?"
)
MODELS = {"mixture": ["--missions", 3], "ndpp": ["--rank", 6], "ondpp": ["--rank", 6], "symmetric": ["--rank", 6]}


def test_torch_has_the_threads_it_is_given():
    """And a batch of large determinants ends, which after ``torch.set_num_threads(2)`` it may not."""
    code = """
from ndpp import Baskets
from ndpp.cli import fit
fit._make_estimator(fit.Kind.mixture, {}, Baskets.from_lists([[0]]), 2, ids=True)
import torch
assert torch.get_num_threads() == 2
torch.linalg.slogdet(torch.eye(200, dtype=torch.float64).repeat(8, 1, 1))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG_SECONDS)


@pytest.mark.parametrize("model", ["mixture", "ndpp"])
def test_without_a_terminal_there_is_a_line_for_each_epoch(models, tmp_path, model):
    words = ["fit", models / "orders.csv", "-o", "m.safetensors", "--model", model, *MODELS[model]]
    done = run(tmp_path, *words, "--max-epochs", 3, "--patience", 9, "--jobs", 1)
    assert done.code == 0
    reading, loading, about, bound, *epochs = done.err.splitlines()
    assert (reading, loading) == (f"reading {models / 'orders.csv'}", "loading torch")
    assert epochs[-2:] == ["finishing", "finishing: saving m.safetensors"]
    name = ESTIMATORS[model].__name__
    assert re.fullmatch(rf"{name}, .*rank \d+: 270 baskets over 12 items, and 30 to validate", about)
    bounded = r"at most about [\d.]+ (s|min): .*3 epochs of [\d.]+ s.*; fewer if the validation baskets stop gaining"
    assert re.match(bounded, bound)
    found = [EPOCH.fullmatch(line) for line in epochs]
    assert [(one[1], one[2] is not None) for one in found if one] == [("1", True), ("2", True), ("3", False)]
    assert len(done.out.splitlines()) == 3 + (model == "mixture")


def test_how_long_a_large_file_takes_to_read(models, monkeypatch):
    assert fit._reading_time(str(models / "orders.csv")) == fit._reading_time("-") == ""
    monkeypatch.setattr(fit.os.path, "getsize", lambda path: 10**8)
    assert fit._reading_time(str(models / "orders.csv")) == ", about 50 s"


@only_posix.signals
def test_a_reader_of_the_lines_may_leave(models, tmp_path):
    words = ["fit", models / "orders.csv", "-o", "m.safetensors", "--model", "ndpp", "--rank", 4, "--max-epochs", 3]
    process = spawn(*words, cwd=tmp_path)
    assert process.stderr is not None
    process.stderr.readline()
    process.stderr.close()
    process.stderr = None
    assert end(process).code == 0
    assert ndpp.load_metadata(tmp_path / "m.safetensors")["epochs"] == 3


# -- Ctrl-C and SIGTERM ------------------------------------------------------------------------------------------------------


def shell(line: str, folder: Path) -> Done:
    """Run a line as a shell does in which ``ndpp`` is this command."""
    places = folder / "bin"
    if not places.exists():
        places.mkdir()
        (places / "ndpp").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ndpp.cli "$@"\n')
        (places / "ndpp").chmod(0o755)
    env = {**ENVIRONMENT, "PATH": f"{places}:{ENVIRONMENT['PATH']}"}
    done = subprocess.run(line, shell=True, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return Done.of(done.returncode, done.stdout, done.stderr)


def interrupted(
    words: list[object], part: Path, number: int, holds: bytes = ONE_EPOCH, epoch: int = 1
) -> dict[str, str]:
    """Run ``fit`` until it has written a checkpoint that holds this, interrupt it, and return the commands that it prints."""
    folder = part.parent
    process = spawn(*words, cwd=folder, env=pausing(folder / "pausing", part.name, holds=holds))
    while not (part.exists() and holds in part.read_bytes()):
        assert process.poll() is None, end(process)
        time.sleep(0.01)
    process.send_signal(number)
    done = end(process)
    assert (done.code, done.out) == (128 + number, "")
    said, message = done.err.partition("\nndpp: interrupted; ")[::2]
    assert message, said
    about, *commands = message.splitlines()
    assert about == f"training up to epoch {epoch} is saved in {str(part)!r}"
    return dict(re.findall(r"^  to (continue|make a model of it): +(ndpp .*)$", "\n".join(commands), re.MULTILINE))


@only_posix.signals
@pytest.mark.parametrize(
    ("model", "number"),
    [
        ("mixture", signal.SIGINT),
        ("ndpp", signal.SIGTERM),
        ("ondpp", signal.SIGINT),
        ("symmetric", signal.SIGTERM),
    ],
)
def test_what_an_interrupted_training_prints_makes_a_model(call, models, tmp_path, monkeypatch, model, number):
    words = ["fit", models / "orders.csv", "-o", "the model", "--model", model, *MODELS[model], "--max-epochs=40"]
    lines = interrupted([*words, "--patience", "40"], tmp_path / "the model.ndpp-part", number)
    assert lines["continue"].endswith("--max-epochs=40 --patience 40 --resume")
    assert lines["make a model of it"].endswith("--patience 40 --resume --minutes 0")
    assert "-o 'the model'" in lines["continue"]
    monkeypatch.chdir(tmp_path)
    line = lines["make a model of it"]
    made = shell(line, tmp_path) if model == "mixture" else call(*shlex.split(line)[1:])
    assert (made.code, "\nepoch" in made.err) == (0, False)  # nothing was trained
    assert not (tmp_path / "the model.ndpp-part").exists()
    about = ndpp.load_metadata(tmp_path / "the model")
    assert (about["model"], about["epochs"]) == (ESTIMATORS[model].__name__, 1)
    best = call("recommend", "the model", "--given", "tea", "--number", 3, "--staples", "--json")
    assert (best.code, len(best.json["recommendations"][0])) == (0, 3)


@pytest.mark.usefixtures("full_epochs")
@only_posix.signals
def test_an_interrupted_contest_of_families_makes_a_model(call, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.random((400, 12)) < 0.06
    rows[:, 1] |= rows[:, 0] & (rng.random(400) < 0.3)  # families help little, so both ways are tried
    ndpp.Baskets.from_csr(sparse.csr_array(rows.astype(int))).write(tmp_path / "orders.txt")
    words = ["fit", "orders.txt", "--ids", "-o", "m.safetensors", "--missions", 2, "--rank", 4, "--jobs", 1]
    words += ["--max-epochs", 5]
    lines = interrupted(words, tmp_path / "m.safetensors.ndpp-part", signal.SIGINT, b"families.now.X", 0)
    part = (tmp_path / "m.safetensors.ndpp-part").read_bytes()
    assert b"items.now.X" in part
    monkeypatch.chdir(tmp_path)
    assert call(*shlex.split(lines["make a model of it"])[1:]).code == 0
    assert ndpp.load_metadata("m.safetensors")["epochs"] == 0
    assert call("recommend", "m.safetensors", "--given", 3, "--number", 2).code == 0
    Path("m.safetensors.ndpp-part").write_bytes(part)
    assert call(*shlex.split(lines["continue"])[1:]).code == 0
    assert call(*(word if word != "m.safetensors" else "whole.safetensors" for word in words)).code == 0
    assert Path("m.safetensors").read_bytes() == Path("whole.safetensors").read_bytes()


STAGES = {
    "reading": None, "loading torch": None, "MixtureNDPP": 0, "at most": 0, "families: ": 0, "start: classes of items": 0,
    "start: classes of fam": 0, "epoch 1": 1, "finishing": 2, "finishing: sav": 2,
}  # fmt: skip
"""How each line of a run begins, and the epochs that are saved when it is said; None if nothing is yet."""


@only_posix.signals
@pytest.mark.parametrize("stage", STAGES)
def test_interrupted_in_any_stage_something_is_left(call, tmp_path, monkeypatch, stage):
    rng = np.random.default_rng(0)
    rows = rng.random((400, 12)) < 0.06
    rows[:, 1] |= rows[:, 0] & (rng.random(400) < 0.3)  # families help little, so both ways are tried
    ndpp.Baskets.from_csr(sparse.csr_array(rows.astype(int))).write(tmp_path / "orders.txt")
    words = ["fit", "orders.txt", "--ids", "-o", "m.safetensors", "--missions", 2, "--rank", 4, "--max-epochs", 2]
    process = spawn(*words, "--minutes=500", cwd=tmp_path, env=pausing(tmp_path / "pausing", line=stage))
    assert process.stderr is not None
    while not process.stderr.readline().decode().startswith(stage):
        assert process.poll() is None, end(process)
    process.send_signal(signal.SIGTERM)
    done = end(process)
    assert (done.code, done.out) == (143, "")
    message = done.err.partition("\nndpp: interrupted; ")[2]
    monkeypatch.chdir(tmp_path)
    if STAGES[stage] is None:
        again = re.fullmatch(r"nothing was learned yet; to start again: ndpp (.*)\n", message)
        assert again is not None, done.err
        assert shlex.split(again[1]) == [*map(str, words), "--minutes=500"]
        assert not (tmp_path / "m.safetensors.ndpp-part").exists()
        return
    part = tmp_path / "m.safetensors.ndpp-part"
    assert message.startswith(f"training up to epoch {STAGES[stage]} is saved in {str(part)!r}\n")
    assert call("info", "m.safetensors.ndpp-part", "--json").json["epochs"] == STAGES[stage]
    lines = dict(re.findall(r"^  to (continue|make a model of it): +ndpp (.*)$", message, re.MULTILINE))
    assert lines["make a model of it"].endswith("--max-epochs 2 --resume --minutes 0")
    assert call(*shlex.split(lines["make a model of it"])).code == 0
    assert ndpp.load_metadata("m.safetensors")["epochs"] == STAGES[stage]
    assert ndpp.load("m.safetensors").log_prob([0, 1]) < 0
    assert not part.exists()


@pytest.mark.parametrize("model", MODELS)
def test_a_limit_of_time_leaves_a_model(call, models, tmp_path, model):
    words = [
        "fit",
        models / "orders.csv",
        "-o",
        tmp_path / "m",
        "--model",
        model,
        *MODELS[model],
        "--max-epochs",
        10**5,
    ]
    done = call(*words, "--patience", 10**5, "--minutes", 0.01, "--json")
    assert done.code == 0
    assert (done.json["ended"], "minutes" in done.json["settings"]) == ("minutes", False)
    assert done.json["epochs"] < 10**5
    assert ndpp.load_metadata(tmp_path / "m")["validation_log_likelihood"] < 0
    assert call("recommend", tmp_path / "m", "--given", "tea", "--number", 3).code == 0
    assert "--minutes" in call(*words, "--minutes", -1).err


# -- options are those of Python ---------------------------------------------------------------------------------------------

ELSEWHERE = {"rank", "n_missions", "random_state", "device", "checkpoint", "progress", "item_features"}


def test_every_parameter_has_an_option():
    parameters = {name for model in ESTIMATORS.values() for name in model().get_params()}
    assert parameters - ELSEWHERE == {field.name for field in fields(FitSettings)} - {"epochs"}


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (
            "mixture",
            {"max_epochs": 1, "patience": 3, "learning_rate": 0.05, "batch_size": 50, "validation_fraction": 0.2,
             "dtype": "float64", "n_factors": 2, "penalty": 1.0, "tie_penalty": 0.5, "n_missions": 2},
        ),
        ("ndpp", {"max_epochs": 1, "skew_share": 0.5, "noise": 0.1, "alpha": 0.02, "beta": 0.03, "oversize": "raise", "rank": 9}),
        ("ondpp", {"max_epochs": 1, "gamma": 0.1, "skew_share": 0.4, "rank": 8}),
    ],
)  # fmt: skip
def test_options_reach_the_estimator(call, models, tmp_path, model, settings):
    words = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", value)]
    done = call("fit", models / "orders.csv", "-o", tmp_path / "m", "--model", model, *words, "--json")
    assert settings.items() <= done.json["settings"].items()


def test_where_training_starts(call, models, tmp_path):
    words = ["fit", models / "orders.csv", "-o", tmp_path / "m", "--model", "ndpp", "--rank", 4, "--max-epochs", 1]
    assert call(*words, "--init", "literature", "--json").json["settings"]["init"].startswith("LiteratureStart(")
    assert call(*words, "--init", "elsewhere").code == 2


def test_families_may_come_from_a_table(call, models, tmp_path):
    words = ["fit", models / "orders.csv", "-o", tmp_path / "m", "--missions", 2, "--max-epochs", 1, "--families"]
    assert call(*words, "none").code == 0
    assert not isinstance(ndpp.load(tmp_path / "m"), ndpp.FamilyMixture)
    (tmp_path / "kinds.csv").write_text(
        "item,family\nbread,bakery\nrolls,bakery\ncoffee,drinks\ntea,drinks\nale,drinks\n"
    )
    assert call(*words, tmp_path / "kinds.csv").code == 0
    law = ndpp.load(tmp_path / "m")
    assert isinstance(law, ndpp.FamilyMixture)
    family = dict(zip(law.labels or (), law.patterns.families))
    assert family["bread"] == family["rolls"] != family["coffee"] == family["tea"]
    assert len(set(family.values())) == 10
    (tmp_path / "kinds.csv").write_text("item,kind\nbread,bakery\n")
    assert "needs the columns 'item' and 'family'" in call(*words, tmp_path / "kinds.csv").err


def test_the_old_name_of_an_option_still_works(call, models, tmp_path):
    words = ["fit", models / "orders.csv", "-o", tmp_path / "m", "--model", "ndpp", "--rank", 4, "--epochs", 2]
    done = call(*words, "--json")
    assert done.json["epochs"] == 2
    assert "ndpp: warning: --epochs is now called --max-epochs\n" in done.err


def test_python_writes_the_same_file(call, models, tmp_path):
    own, made = tmp_path / "own.safetensors", tmp_path / "made.safetensors"
    assert call("fit", models / "orders.csv", "-o", made, "--missions", 3, "--max-epochs", 1).code == 0
    ndpp.save(ndpp.fit(models / "orders.csv", n_missions=3, max_epochs=1), own)
    theirs = ndpp.load_metadata(made)
    assert theirs["baskets"].pop("file") == "orders.csv"
    assert theirs == ndpp.load_metadata(own)
    orders = ndpp.Baskets.read(models / "orders.csv")
    assert (ndpp.load(made).log_probs(orders) == ndpp.load(own).log_probs(orders)).all()


def test_a_file_of_single_items_is_doubtful(call, tmp_path):
    (tmp_path / "lines.csv").write_text("basket,item\n" + "".join(f"{i},{'abc'[i % 3]}\n" for i in range(30)))
    done = call("fit", tmp_path / "lines.csv", "-o", tmp_path / "m.safetensors", "--model", "ndpp", "--max-epochs", 1)
    assert done.code == 0
    assert "ndpp: warning: 30 of 30 baskets hold a single item" in done.err
    assert "--basket" in done.err


def test_several_starts_are_told(call, models, tmp_path):
    words = ["fit", models / "orders.csv", "-o", tmp_path / "m", "--rank", 6, "--restarts", 2, "--max-epochs", 4]
    done = call(*words, "--model", "symmetric")
    reached = ndpp.load_metadata(tmp_path / "m")["candidates"]
    best = max(reached, key=reached.get)
    assert list(reached) == ["start 1", "start 2"]
    assert "; reached: start 1 -" in next(line for line in done.err.splitlines() if line.startswith("epoch 3 of 4"))
    assert f"{best} {reached[best]:.4g}" in done.out
    refused = call(*words[:3], tmp_path / "n", "--restarts", 2)
    assert "--restarts is not an option of --model mixture" in refused.err


def test_several_fits_are_one_model(call, models, tmp_path):
    """They are told one by one, leave no state of training behind, and the other commands take their average."""
    made, orders = tmp_path / "m", models / "orders.csv"
    done = call("fit", orders, "-o", made, "--fits", 2, "--missions", 2, "--max-epochs", 1)
    reached = ndpp.load_metadata(made)["candidates"]
    assert list(reached) == ["fit 1", "fit 2"]
    told = ", ".join(f"{name} {value:.4g}" for name, value in reached.items())
    assert f"validation log-likelihood of each fit: {told}" in done.out
    assert [line for line in done.err.splitlines() if line.startswith("fit ")] == ["fit 1 of 2", "fit 2 of 2"]
    assert list(tmp_path.iterdir()) == [made]
    facts = call("info", made, "--json").json
    assert (facts["fits"], facts["components"]) == (2, 4)
    assert re.search(r"^fits +2$", call("info", made).out, re.MULTILINE)
    assert call("prepare", made, "-o", tmp_path / "ready").code == 0
    lists = [call("recommend", tmp_path / name, "--given", "tea", "--json").json for name in ("m", "ready")]
    assert lists[0]["recommendations"] == lists[1]["recommendations"]
    after = call("update", made, orders, "-o", tmp_path / "n", "--max-epochs", 1, "--force")
    assert (after.code, "fit 2 of 2" in after.err) == (0, True)
    assert call("info", tmp_path / "n", "--json").json["fits"] == 2
    refused = call("fit", orders, "-o", tmp_path / "k", "--fits", 2, "--model", "ndpp")
    assert "--fits is not an option of --model ndpp" in refused.err
