"""Averages of fits: what they are made of, how they are weighed, and what an interrupted one keeps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ndpp
from ndpp import Baskets, MixtureNDPP
from ndpp.baskets.orders import Orders
from ndpp.errors import InvalidInputError, TrainingInterruptedWarning
from ndpp.laws.pooled import PooledMixture
from ndpp.learning import average, checkpoint, run
from ndpp.learning.average import EQUAL, fit_weights

NAMES = [f"item {i}" for i in range(9)]


def orders(n: int, seed: int) -> Baskets:
    """Return orders of one to three of three neighbouring items, sometimes with one more."""
    rng = np.random.default_rng(seed)
    sets = [
        {*(3 * (i % 3) + rng.integers(0, 3, 3)).tolist(), *rng.integers(0, 9, rng.integers(2)).tolist()}
        for i in range(n)
    ]
    return Baskets.from_lists([[NAMES[i] for i in one] for one in sets], labels=NAMES)


SEEN, JUDGES = orders(400, 0), orders(80, 1)
HOW: dict[str, Any] = {"n_missions": 2, "rank": 4, "max_epochs": 2, "random_state": 0}


@pytest.fixture
def two() -> MixtureNDPP:
    return MixtureNDPP(**HOW, n_fits=2).fit(SEEN, validation=JUDGES)


def test_an_average_of_fits_that_differ(two: MixtureNDPP):
    one = MixtureNDPP(**HOW).fit(SEEN, validation=JUDGES)
    law = two.law_
    assert isinstance(law, PooledMixture)
    assert (len(law.laws), len(law.weights), law.labels) == (2, 4, tuple(NAMES))
    first, second = (made.log_probs(JUDGES) for made in law.members)
    np.testing.assert_allclose(first, one.law_.log_probs(JUDGES), rtol=1e-12)
    assert np.abs(first - second).max() > 1e-3
    assert two.reached_ == {"fit 1": one.validation_score_, "fit 2": pytest.approx(second.mean(), abs=1e-6)}
    assert two.validation_score_ == pytest.approx(law.log_probs(JUDGES).mean())
    assert two.validation_score_ > np.mean(list(two.reached_.values()))  # by the concavity of the logarithm
    assert [record["fit"] for record in two.history_] == [1, 1, 2, 2]
    assert two.n_iter_ == 4


def test_weights_are_those_of_the_validation_baskets(two: MixtureNDPP):
    values = np.stack([law.log_probs(JUDGES) for law in two.law_.members], axis=1)
    np.testing.assert_allclose(two.law_.shares, fit_weights(values), rtol=1e-9)
    weights = np.where(values[:, 0] > values[:, 1], 50.0, 0.1)
    other = MixtureNDPP(**HOW, n_fits=2).fit(SEEN, validation=JUDGES, validation_weight=weights)
    assert other.law_.shares[0] > two.law_.shares[0]


def test_the_best_weights_and_no_others():
    """They maximise Σ_n c_n log Σ_m w_m P_m(n) + Σ_m λ/M log w_m; baskets that say nothing leave them equal."""
    rng = np.random.default_rng(0)
    values, counts = rng.normal(-5, 1.5, (400, 3)), rng.uniform(0, 2, 400)
    values[:, 0] += 0.5

    def goal(weights: Any) -> float:
        return float(counts @ np.log(np.exp(values) @ weights) + EQUAL / 3 * np.log(weights).sum())

    found = fit_weights(values, counts)
    assert found.sum() == pytest.approx(1)
    for other in [np.full(3, 1 / 3), *rng.dirichlet(300 * found, 20)]:
        assert goal(found) >= goal(other) - 1e-9
    assert goal(found) > goal(np.full(3, 1 / 3)) + 1  # negative control: equal ones are not the best
    np.testing.assert_allclose(fit_weights(np.zeros((10, 4))), 0.25)
    assert (
        fit_weights(np.array([[0.0, -np.inf]] * 3000)).min() > 0
    )  # a fit that calls baskets impossible keeps a little


def at_line(*begins: str) -> Any:
    """Return what shows progress, and interrupts where lines with these beginnings have come, one after the other."""
    left = list(begins)

    def interrupt(line: str) -> None:
        if left and line.startswith(left[0]):
            del left[0]
            if not left:
                raise KeyboardInterrupt

    return interrupt


def test_what_there_is_after_an_interrupt():
    with pytest.warns(TrainingInterruptedWarning):
        model = MixtureNDPP(**HOW, n_fits=3, progress=at_line("fit 2", "epoch 1")).fit(SEEN, validation=JUDGES)
    assert model.ended_ == "interrupted"
    assert (len(model.law_.laws), list(model.reached_)) == (2, ["fit 1", "fit 2"])
    with pytest.warns(TrainingInterruptedWarning):
        model = MixtureNDPP(**HOW, n_fits=3, progress=at_line("fit 1", "epoch 1")).fit(SEEN, validation=JUDGES)
    assert not isinstance(model.law_, PooledMixture)
    assert np.isfinite(model.law_.log_probs(JUDGES)).all()


def test_an_interrupted_average_goes_on(two: MixtureNDPP, tmp_path: Path):
    path = tmp_path / "run.safetensors"
    (tmp_path / "run.2.safetensors").write_bytes(b"of an earlier run")
    with pytest.warns(TrainingInterruptedWarning):
        MixtureNDPP(**HOW, n_fits=2, checkpoint=path, progress=at_line("fit 2", "epoch 1")).fit(SEEN, validation=JUDGES)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "run.2.safetensors", path]
    assert average.further_checkpoints(path) == [tmp_path / "run.2.safetensors"]
    assert len(checkpoint.read(tmp_path / "run.2.safetensors").record["history"]) == 1
    said: list[str] = []
    model = MixtureNDPP(**HOW, n_fits=2, checkpoint=path, progress=said.append)
    model.fit(SEEN, validation=JUDGES, resume=True)
    np.testing.assert_array_equal(model.law_.log_probs(JUDGES), two.law_.log_probs(JUDGES))
    np.testing.assert_array_equal(model.law_.weights, two.law_.weights)
    assert sum(line.startswith("epoch") for line in said) == 1


def test_no_further_fits_without_time(tmp_path: Path):
    path = tmp_path / "run.safetensors"
    with pytest.warns(TrainingInterruptedWarning):
        MixtureNDPP(**HOW, n_fits=3, checkpoint=path, progress=at_line("fit 1", "epoch 1")).fit(SEEN, validation=JUDGES)
    model = MixtureNDPP(**HOW, n_fits=3, checkpoint=path, minutes=0).fit(SEEN, validation=JUDGES, resume=True)
    assert not isinstance(model.law_, PooledMixture)
    assert model.n_iter_ == 1


def test_fits_share_the_minutes(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    whole, left = run.TrainingRun(5, run.Deadline(120.0)), []
    for k in range(3):
        left.append(average._part_of(whole, k, 3).clock.left())
        now[0] += [40.0, 10.0, 0.0][k]
    assert left == [40.0, 40.0, 70.0]  # what the second has not used is for the third


def test_context_is_of_the_missions_of_all_fits():
    baskets, judges = (Orders(one, context={"aisle": [str(i % 3) for i in range(len(one))]}) for one in (SEEN, JUDGES))
    model = MixtureNDPP(**HOW | {"n_missions": 3}, n_fits=2).fit(baskets, validation=judges)
    assert [gain.kept for gain in model.context_] == [True]
    assert model.law_.context == {"aisle": ("0", "1", "2")}
    assert model.law_.gate.shifts.shape == (3, 6)
    assert model.law_.at(aisle="0").recommend([], n=1).labels[0] in NAMES[:3]


def test_features_of_items_are_for_one_fit():
    with pytest.raises(InvalidInputError, match="must be 1 with features of items"):
        MixtureNDPP(**HOW, n_fits=2, item_features=np.eye(9)).fit(SEEN)
    with pytest.raises(InvalidInputError, match="n_fits"):
        MixtureNDPP(**HOW, n_fits=0).fit(SEEN)


def test_files_of_averages(two: MixtureNDPP, tmp_path: Path):
    ndpp.save(two, tmp_path / "law.safetensors")
    ndpp.save(two.law_.prepared(), tmp_path / "ready.safetensors")
    for name in ("law", "ready"):
        made = ndpp.load(tmp_path / f"{name}.safetensors")
        assert isinstance(made, PooledMixture)
        np.testing.assert_array_equal(made.log_probs(JUDGES), two.law_.log_probs(JUDGES))
        np.testing.assert_array_equal(made.weights, two.law_.weights)
        assert made.recommend(["item 0"], n=3).labels == two.law_.recommend(["item 0"], n=3).labels
        assert made.sample(20, rng=0).to_lists() == two.law_.sample(20, rng=0).to_lists()
