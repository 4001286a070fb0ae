"""The training loop: what it finds, when it ends, and what it survives."""

from __future__ import annotations

import signal
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")

import torch

import only_posix
import oracles
from command import spawn
from kernels import from_vbd, pair_blocks
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError, ModelFileError, TrainingInterruptedWarning
from ndpp.laws.kernel import LowRankKernel
from ndpp.learning import NDPP, ONDPP, LiteratureStart, PublishedTraining, SymmetricDPP, checkpoint, trainer
from ndpp.learning.base import set_aside
from ndpp.learning.kernel_objective import KernelObjective
from patience import HANG_SECONDS

SETTINGS: dict[str, Any] = {"rank": 8, "max_epochs": 3, "patience": 2, "batch_size": 30, "random_state": 0}


def draw(law: oracles.Law, n: int, seed: int) -> Baskets:
    sets = list(law)
    which = np.random.default_rng(seed).choice(len(sets), n, p=list(law.values()))
    return Baskets.from_lists([sets[i] for i in which], n_items=8)


@pytest.fixture(scope="module")
def law() -> oracles.Law:
    """Four pairs of items that attract each other, and a little repulsion."""
    V = 0.25 * np.random.default_rng(5).standard_normal((8, 4))
    X, W = from_vbd(V, np.eye(8), np.triu(pair_blocks([0.9, 0.7, 0.5, 0.8])))
    return oracles.enumerate_law(X @ W @ X.T)


@pytest.fixture(scope="module")
def baskets(law: oracles.Law) -> Baskets:
    return draw(law, 400, 0)


def same(first: Any, second: Any) -> bool:
    return np.array_equal(first.kernel_.X, second.kernel_.X) and np.array_equal(first.kernel_.W, second.kernel_.W)


@pytest.mark.usefixtures("full_epochs")
def test_planted_kernel_is_recovered(law: oracles.Law):
    train, test = draw(law, 1500, 1), draw(law, 3000, 2)
    truth = np.mean([np.log(law[tuple(items.tolist())]) for items in test])
    settings: dict[str, Any] = {"learning_rate": 0.1, "max_epochs": 8, "random_state": 0}
    assert NDPP(12, **settings).fit(train).score(test) > 1.02 * truth
    settings["max_epochs"] = 4  # by then its loss no longer falls
    assert SymmetricDPP(12, **settings).fit(train).score(test) < 1.1 * truth  # it cannot attract


def test_best_epoch_is_kept(baskets: Baskets):
    held_out = baskets[:100]
    model = NDPP(**SETTINGS | {"max_epochs": 400, "patience": 1, "learning_rate": 0.3}).fit(
        baskets[100:], validation=held_out
    )
    values = [record["validation"] for record in model.history_]
    assert model.ended_ == "converged"
    assert model.score(held_out) == pytest.approx(max(values), rel=1e-9)
    rates = [record["learning_rate"] for record in model.history_]
    assert rates[-1] == pytest.approx(0.3 * trainer.RATE_FACTOR**trainer.RATE_DROPS)
    assert rates == sorted(rates, reverse=True)


def test_a_short_training_ends_in_small_steps(baskets: Baskets):
    rates = [record["learning_rate"] for record in NDPP(**SETTINGS | {"max_epochs": 4}).fit(baskets).history_]
    np.testing.assert_allclose(rates, 0.02 * trainer.RATE_FACTOR ** (trainer.RATE_DROPS * np.array([0, 0, 0.5, 1])))


def test_same_seed_same_kernel(baskets: Baskets):
    first, again, other = (NDPP(**SETTINGS | {"random_state": s}).fit(baskets) for s in (0, 0, 1))
    assert same(first, again)
    assert not same(first, other)


def test_training_raises_the_likelihood(baskets: Baskets):
    for estimator in (NDPP, ONDPP, SymmetricDPP):
        history = estimator(**SETTINGS).fit(baskets).history_
        assert history[-1]["loss"] < history[0]["loss"]


@pytest.mark.usefixtures("full_epochs")
def test_literature_start_trains_too(baskets: Baskets):
    settings = SETTINGS | {"init": LiteratureStart(), "noise": 0.0, "learning_rate": 0.2, "max_epochs": 5}
    model = NDPP(**settings).fit(baskets)
    assert model.score(baskets) > NDPP(**SETTINGS | {"max_epochs": 1}).fit(baskets).score(baskets) - 0.5


@pytest.mark.parametrize("estimator", [NDPP, ONDPP, SymmetricDPP])
def test_resumed_training_ends_the_same(
    estimator: Any, baskets: Baskets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    whole = estimator(**SETTINGS).fit(baskets)
    path, true = tmp_path / "run.safetensors", trainer.Trainer.epoch

    def epoch(run: Any, bar: Any) -> Any:
        if len(run.history) == 1:
            raise RuntimeError("power cut")
        return true(run, bar)

    with monkeypatch.context() as patched:
        patched.setattr(trainer.Trainer, "epoch", epoch)
        with pytest.raises(RuntimeError, match="power cut"):
            estimator(**SETTINGS, checkpoint=path).fit(baskets)
    resumed = estimator(**SETTINGS | {"random_state": 99}, checkpoint=path).fit(baskets, resume=True)
    assert same(whole, resumed)
    assert [r["loss"] for r in whole.history_] == [r["loss"] for r in resumed.history_]


# -- several starts ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plane() -> tuple[Baskets, np.ndarray]:
    """All sets of a symmetric kernel of rank two over six items, and how many of 1,000 are expected, as weights: nothing is sampled."""
    kernel = LowRankKernel(np.random.default_rng(0).standard_normal((6, 2)))
    sets = Baskets.from_lists([S for k in range(3) for S in combinations(range(6), k)], n_items=6)
    return sets, 1000 * np.exp(kernel.log_probs(sets))


def fitted(plane: tuple[Baskets, np.ndarray], resume: Any = False, **settings: Any) -> SymmetricDPP:
    sets, weights = plane
    model = SymmetricDPP(2, **{"noise": 0.0, "max_epochs": 6, "n_restarts": 4, "random_state": 0, **settings})
    return model.fit(sets, sample_weight=weights, validation=sets, validation_weight=weights, resume=resume)


@pytest.mark.usefixtures("full_epochs")
def test_the_best_of_several_starts_is_where_one_is_not(plane: tuple[Baskets, np.ndarray]):
    """One start ends 0.1 nats below the truth: some items repel each other there that do not, and others the other way round."""
    told: list[str] = []
    p = plane[1] / 1000
    truth = float(p @ np.log(p))
    one, best = fitted(plane, n_restarts=1), fitted(plane, progress=told.append)
    assert one.validation_score_ < truth - 0.1
    assert truth - 0.002 < best.validation_score_ <= truth
    assert one.reached_ == {"kernel": one.validation_score_}
    assert list(best.reached_) == [f"start {i}" for i in (1, 2, 3, 4)]
    assert best.reached_["start 4"] == best.validation_score_ == max(best.reached_.values())
    assert max(list(best.reached_.values())[:3]) < truth - 0.015
    assert any(", the first 3 from every start; " in line for line in told)
    *_, third = (line for line in told if line.startswith("epoch 3 of 6"))  # a slow epoch has lines for its steps, too
    for name, value in best.reached_.items():
        assert f"{name} {value:.3f}"[:-1] in third
    assert best.about()["candidates"] == best.reached_
    assert "candidates" not in one.about()


@pytest.mark.parametrize("estimator", [NDPP, ONDPP])
def test_the_first_start_is_that_of_a_single_one(estimator: Any, baskets: Baskets):
    """So several are no worse on the validation baskets after the pilot."""
    one, several = (estimator(**SETTINGS | {"n_restarts": n}).fit(baskets) for n in (1, 3))
    assert several.reached_["start 1"] == one.validation_score_
    assert several.validation_score_ == max(several.reached_.values())
    assert len(set(several.reached_.values())) == 3


def test_steps_that_are_epochs_make_a_longer_pilot():
    settings = SymmetricDPP(2, init=PublishedTraining(), max_epochs=1000)._settings()
    assert (settings.pilot, SymmetricDPP(2)._settings().pilot) == (3 * trainer.MIN_STEPS, 3)
    assert SymmetricDPP(2, max_epochs=2)._settings().pilot == 2


@pytest.mark.parametrize("cut", [2, 4], ids=["in the pilot", "after the pilot"])
def test_several_starts_go_on_where_they_were(cut: int, plane: tuple[Baskets, np.ndarray], tmp_path: Path):
    path, whole = tmp_path / "run.safetensors", fitted(plane)

    def interrupt(line: str) -> None:
        if line.startswith(f"epoch {cut} of"):
            raise KeyboardInterrupt

    with pytest.warns(TrainingInterruptedWarning, match=f"in epoch {cut + 1}"):
        fitted(plane, checkpoint=path, progress=interrupt)
    resumed = fitted(plane, resume=path, random_state=9)
    assert same(whole, resumed)
    assert whole.reached_ == resumed.reached_
    with pytest.raises(InvalidInputError, match="another n_restarts"):
        fitted(plane, resume=path, n_restarts=1)


def test_resuming_what_has_ended_changes_nothing(baskets: Baskets, tmp_path: Path):
    path = tmp_path / "run.safetensors"
    done = NDPP(**SETTINGS, checkpoint=path).fit(baskets, resume=True)  # nothing there yet: starts anew
    assert same(done, NDPP(**SETTINGS).fit(baskets, resume=path))


@pytest.mark.parametrize(
    "change", [{"rank": 9}, {"noise": 0.1}, {"alpha": 1.0}, {"batch_size": 20}, {"batch_size": None}]
)
def test_checkpoints_of_other_settings_are_refused(change: dict[str, Any], baskets: Baskets, tmp_path: Path):
    path = tmp_path / "run.safetensors"
    NDPP(**SETTINGS | {"max_epochs": 1}, checkpoint=path).fit(baskets)
    with pytest.raises(InvalidInputError, match=f"another {next(iter(change))}"):
        NDPP(**SETTINGS | change).fit(baskets, resume=path)


def test_bad_checkpoints_are_named(baskets: Baskets, tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        NDPP(**SETTINGS).fit(baskets, resume=tmp_path / "none")
    with pytest.raises(InvalidInputError, match="checkpoint=, which is None"):
        NDPP(**SETTINGS).fit(baskets, resume=True)
    path = tmp_path / "run.safetensors"
    NDPP(**SETTINGS | {"max_epochs": 1}, checkpoint=path).fit(baskets)
    with pytest.raises(InvalidInputError, match="another data"):
        NDPP(**SETTINGS).fit(baskets[1:], resume=path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelFileError, match="damaged"):
        NDPP(**SETTINGS).fit(baskets, resume=path)


def test_a_step_to_nowhere_is_halved_and_reported(baskets: Baskets, monkeypatch: pytest.MonkeyPatch):
    calls = iter(range(10**6))
    true = KernelObjective.at

    def broken(*args: Any, **kwargs: Any) -> Any:
        loss = true(*args, **kwargs)
        return loss._replace(value=loss.value * float("nan")) if next(calls) in (10, 11, 25) else loss

    monkeypatch.setattr(KernelObjective, "at", broken)
    with pytest.warns(RuntimeWarning, match="the step and the learning rate were halved") as caught:
        model = NDPP(**SETTINGS).fit(baskets)
    assert len(caught) == 3
    assert model.history_[-1]["learning_rate"] == pytest.approx(0.02 / 8 * trainer.RATE_FACTOR**trainer.RATE_DROPS)
    assert np.isfinite(model.kernel_.X).all()
    assert model.history_[-1]["loss"] < model.history_[0]["loss"]


def test_no_more_than_two_thousand_baskets_are_set_aside():
    many = Baskets.from_lists([[0]] * 30_000)
    assert [len(part) for part in set_aside(many, 0.1, np.random.default_rng(0))] == [28_000, 2_000]
    assert [len(part) for part in set_aside(many[:100], 0.1, np.random.default_rng(0))] == [90, 10]


def test_progress_shows_and_changes_nothing(baskets: Baskets, capsys: pytest.CaptureFixture[str]):
    shown = NDPP(**SETTINGS, progress=True).fit(baskets)
    err = capsys.readouterr().err
    assert "loss" in err
    assert "validation" in err
    assert same(shown, NDPP(**SETTINGS).fit(baskets))


# -- real signals to a real process ------------------------------------------------------------------------------------

CHILD = """
import sys, numpy as np
from ndpp.baskets import Baskets
from ndpp.learning import NDPP, trainer
trainer.MIN_STEPS = 5
baskets = Baskets.read(sys.argv[1], n_items=8)
settings = {"rank": 8, "patience": 2, "batch_size": 30, "random_state": 0, "checkpoint": sys.argv[2]}
"""
KILLED = """
import os, signal
true, calls = os.replace, iter(range(9))
def replace(*paths):  # the third checkpoint is written, but does not take its place
    if next(calls) == 4:  # one when it begins, one of the start, and two of epochs
        os.kill(os.getpid(), signal.SIGKILL)
    true(*paths)
os.replace = replace
NDPP(max_epochs=5, **settings).fit(baskets)
"""
INTERRUPTED = """
import time
from ndpp.learning import checkpoint
true = checkpoint.write
def write(path, tensors, record):
    true(path, tensors, record)
    if len(record["history"]) == 2:
        print("two epochs", flush=True)
        time.sleep(6000)  # until it is interrupted
checkpoint.write = write
model = NDPP(max_epochs=5, **settings).fit(baskets)
assert model.ended_ == "interrupted"
best = max(record["validation"] for record in model.history_)
np.save(sys.argv[3], [best, len(model.history_), model.kernel_.n_items])
assert "torch._dynamo" not in sys.modules  # the compiler of torch takes two seconds to import, and is not used
"""


def _child(code: str, baskets: Baskets, folder: Path) -> tuple[Any, Path]:
    baskets.write(folder / "data.txt")
    path = folder / "run.safetensors"
    whole = f"import torch\ntorch.set_num_threads({torch.get_num_threads()})\n{CHILD}{code}\nsys.exit()"
    first = partial(exec, whole, {"__name__": "child"})
    return spawn(folder / "data.txt", path, folder / "out.npy", cwd=folder, preexec_fn=first), path


@only_posix.signals
def test_training_goes_on_after_kill_9(baskets: Baskets, tmp_path: Path):
    child, path = _child(KILLED, baskets, tmp_path)
    _, said = child.communicate(timeout=HANG_SECONDS)
    assert child.returncode == -signal.SIGKILL, said.decode()
    assert len(checkpoint.read(path).record["history"]) == 2
    whole = NDPP(**SETTINGS | {"max_epochs": 5}).fit(baskets)
    resumed = NDPP(**SETTINGS | {"max_epochs": 5}, checkpoint=path).fit(baskets, resume=True)
    assert len(resumed.history_) == 5
    assert same(whole, resumed)


@only_posix.signals
def test_ctrl_c_keeps_the_best_so_far(baskets: Baskets, tmp_path: Path):
    child, path = _child(INTERRUPTED, baskets, tmp_path)
    assert child.stdout is not None
    told = child.stdout.readline()  # nothing, where it ends before
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=HANG_SECONDS)
    assert told == b"two epochs\n", said.decode()
    assert child.returncode == 0, said.decode()
    assert b"interrupted in epoch 3" in said
    assert len(checkpoint.read(path).record["history"]) == 2
    best, n_epochs, n_items = np.load(tmp_path / "out.npy")
    assert np.isfinite(best)
    assert (n_epochs, n_items) == (2, 8)


def test_ctrl_c_in_the_first_epoch_keeps_what_there_is(baskets: Baskets, monkeypatch: pytest.MonkeyPatch):
    calls = iter(range(10**6))
    true = KernelObjective.at

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == 8:
            raise KeyboardInterrupt
        return true(*args, **kwargs)

    monkeypatch.setattr(KernelObjective, "at", interrupted)
    with pytest.warns(UserWarning, match="interrupted in epoch 1"):
        model = NDPP(**SETTINGS).fit(baskets)
    assert model.ended_ == "interrupted"
    assert model.history_ == []
    assert np.isfinite(model.score(baskets))
