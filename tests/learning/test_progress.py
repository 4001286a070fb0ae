"""What training says, and that saying it changes nothing."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")

from ndpp import Baskets
from ndpp._progress import ProgressBar
from ndpp._stop import look
from ndpp.errors import ModelFileError, TrainingInterruptedWarning
from ndpp.learning import NDPP, ONDPP, MixtureNDPP, SymmetricDPP, checkpoint, contest, run
from ndpp.learning.contest import Contest
from ndpp.learning.mixture_objective import MixtureObjective
from ndpp.learning.trainer import PILOT, Trainer

rng = np.random.default_rng(0)
BASKETS = Baskets.from_csr(sparse.csr_array((rng.random((400, 12)) < 0.3).astype(int)))
ROWS = rng.random((400, 12)) < 0.06
ROWS[:, 1] |= ROWS[:, 0] & (rng.random(400) < 0.3)
DOUBTFUL = Baskets.from_csr(sparse.csr_array(ROWS.astype(int)))
"""Families help little, so training with and without them is tried."""
QUICK = {"max_epochs": 3, "random_state": 0}
MODELS = {
    "NDPP": NDPP(rank=12, **QUICK),
    "ONDPP": ONDPP(rank=12, **QUICK),
    "SymmetricDPP": SymmetricDPP(rank=12, **QUICK),
    "MixtureNDPP": MixtureNDPP(2, rank=8, families=None, **QUICK),
    "families": MixtureNDPP(2, rank=8, families=np.arange(12) // 3, **QUICK),
    "contest": MixtureNDPP(2, rank=8, **QUICK),
}


@pytest.mark.parametrize("name", MODELS)
def test_lines_tell_the_time_and_change_nothing(name: str):
    told: list[str] = []
    model, baskets = MODELS[name], DOUBTFUL if name == "contest" else BASKETS
    silent = model.fit(baskets).score_samples(baskets)
    spoken = model.set_params(progress=told.append).fit(baskets).score_samples(baskets)
    assert np.array_equal(silent, spoken)
    about, bound, *rest, last = told
    assert re.match(rf"{type(model).__name__}, .*rank (8|12): 360 baskets over 12 items, and 40 to validate$", about)
    assert re.match(r"at most about [\d.]+ s: .*3 epochs of [\d.]+ s", bound)
    assert ("the first 3 perhaps with and without families" in bound) == (name == "contest")
    assert [line.split(",")[0] for line in rest[-3:]] == [f"epoch {i} of 3" for i in (1, 2, 3)]
    assert last == "finishing"
    stages = [line for line in rest if line.startswith(("families", "start"))]
    named = {"contest": ["families: ", "start: ", "start: "], "families": ["families: ", "start: "]}
    expected = named.get(name, ["start: "] if name == "MixtureNDPP" else [])
    assert [re.sub(":.*", ": ", line) for line in stages] == expected


@pytest.mark.usefixtures("full_epochs")
def test_the_estimate_is_that_of_the_clock(monkeypatch: pytest.MonkeyPatch):
    """With steps of 2 s and evaluations of 3 s; a mixture evaluates twice per epoch."""
    now = [0.0]
    monkeypatch.setattr(contest.time, "perf_counter", lambda: now[0])  # the clock of all modules
    step, log_probs = Trainer.take_step, MixtureObjective.log_probs

    def slow_step(run: Any, *args: Any) -> Any:
        now[0] += 2.0
        return step(run, *args)

    def slow_evaluation(run: Any, *args: Any) -> Any:
        now[0] += 3.0
        return log_probs(run, *args)

    monkeypatch.setattr(Trainer, "take_step", slow_step)
    monkeypatch.setattr(MixtureObjective, "log_probs", slow_evaluation)
    told: list[str] = []
    MixtureNDPP(2, rank=2, families=None, **QUICK, progress=told.append).fit(BASKETS)
    assert told[1].startswith("at most about 5 min: 3 epochs of 2 min")  # 50 steps and two evaluations
    epochs = [line for line in told if line.startswith("epoch")]
    assert epochs[0].endswith(", 2 min; at most about 4 min left")
    assert epochs[-1].endswith(", 2 min")


def test_a_contest_ends_with_the_better_run(monkeypatch: pytest.MonkeyPatch):
    contests, begin = [], Contest.__init__
    settings: dict[str, Any] = {"rank": 8, "random_state": 0, "max_epochs": 4}

    def watched(contest: Any, candidates: Any) -> None:
        begin(contest, candidates)
        contests.append((contest, list(candidates)))

    monkeypatch.setattr(Contest, "__init__", watched)
    model = MixtureNDPP(2, **settings).fit(DOUBTFUL)
    ((contest, names),) = contests
    assert names == ["items", "families"]
    assert (list(contest.candidates), PILOT, len(model.history_)) == (["items"], 3, 4)
    alone = MixtureNDPP(2, **settings, families=None).fit(DOUBTFUL)
    assert np.array_equal(model.score_samples(DOUBTFUL), alone.score_samples(DOUBTFUL))


def test_a_candidate_that_is_behind_leaves_the_contest():
    model = MixtureNDPP(2, rank=8, random_state=0, max_epochs=4)
    goals = model._objectives(model._shape(DOUBTFUL)._replace(rank=8), DOUBTFUL, DOUBTFUL, run.TrainingRun(0))
    one = Contest({name: Trainer(goal, model._settings(), 0) for name, goal in goals.items()})
    one.candidates["families"].validate = lambda: -100.0  # type: ignore[method-assign]
    one.candidates["families"].best_value = -100.0
    one.epoch(ProgressBar())
    assert (list(one.candidates), len(one.lead.history)) == (["items"], 1)


@pytest.mark.parametrize(("with_families", "wins"), [(-101.0, False), (-99.5, False), (-98.9, True)])
def test_families_must_be_clearly_better(with_families: float, wins: bool):
    runs: Any = {
        name: SimpleNamespace(best_value=value) for name, value in {"items": -100.0, "families": with_families}.items()
    }
    assert Contest(runs).lead is runs["families" if wins else "items"]


@pytest.mark.parametrize("cut", [1, 3], ids=["in the pilot", "after the pilot"])
def test_a_contest_goes_on_where_it_was(cut: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its checkpoints name the candidates, or the one that is left; those of version 1 did not, and are refused."""
    monkeypatch.setattr(contest, "MAX_LAG", 1.0)  # nobody leaves before the end of the pilot
    settings: dict[str, Any] = {"rank": 8, "random_state": 0, "max_epochs": 4}
    path, whole = tmp_path / "run.safetensors", MixtureNDPP(2, **settings).fit(DOUBTFUL)

    def interrupt(line: str) -> None:
        if line.startswith(f"epoch {cut} of"):
            raise KeyboardInterrupt

    with pytest.warns(TrainingInterruptedWarning, match=f"in epoch {cut + 1}"):
        MixtureNDPP(2, **settings, checkpoint=path, progress=interrupt).fit(DOUBTFUL)
    saved = checkpoint.read(path)
    key = "candidates" if cut < 3 else "candidate"
    names = saved.record.pop(key)
    assert names == "items" if cut == 3 else list(names) == ["items", "families"]
    resumed = MixtureNDPP(2, **settings | {"random_state": 9}).fit(DOUBTFUL, resume=path)
    assert np.array_equal(whole.score_samples(DOUBTFUL), resumed.score_samples(DOUBTFUL))
    assert whole.penalties_ == resumed.penalties_
    checkpoint.write(path, saved.tensors, saved.record)
    with pytest.raises(ModelFileError, match="does not say which of items, families it continues"):
        MixtureNDPP(2, **settings).fit(DOUBTFUL, resume=path)


# -- a limit of time, and what there is before the first epoch -----------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("minutes", [0.0, 1e-3])
def test_out_of_time_there_is_a_model(name: str, minutes: float):
    baskets = DOUBTFUL if name == "contest" else BASKETS
    model = clone(MODELS[name]).set_params(minutes=minutes, max_epochs=500, patience=500, progress=False).fit(baskets)
    assert model.ended_ == "minutes"
    assert model.n_iter_ < 500
    assert np.isfinite(model.score_samples(baskets[:20])).any()
    assert model.validation_score_ == pytest.approx(model.validation_score_, nan_ok=False)


def test_the_rate_falls_with_the_time(monkeypatch: pytest.MonkeyPatch):
    """In the second half of the minutes, as in the second half of the epochs."""
    now = [0.0]
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    clock = run.Deadline(100.0, reserve=20.0)
    model = NDPP(rank=4, **QUICK)
    goal = model._objectives(4, BASKETS, BASKETS, run.TrainingRun(0))["kernel"]
    trainer, rates = Trainer(goal, model._settings(), 0, clock), []
    for now[0] in (0.0, 40.0, 60.0, 80.0, 90.0):
        rates.append(trainer.learning_rate)
    assert rates[0] == rates[1] == model.learning_rate
    assert rates[1] > rates[2] > rates[3]
    assert rates[4] == rates[3] == pytest.approx(model.learning_rate * 0.3**3)
    assert (clock.left(), trainer.is_out_of_time) == (-10.0, True)
    spent = run.Deadline(100.0, reserve=20.0, began=0.0, spent=40.0)  # steps were timed for 40 of the 80 seconds
    now[0] = 50.0
    assert (spent.left(0.5), spent.left()) == (10.0, 30.0)


def test_work_that_goes_on_says_so(monkeypatch: pytest.MonkeyPatch):
    now, told = [0.0], []
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    one = run.TrainingRun(0, run.Deadline(100.0), told.append)
    with one.stage("start: classes", 0.3):
        for now[0] in (1.0, 12.0, 13.0, 25.0):
            look()
        now[0] = 31.0
        with pytest.raises(run.OutOfTime):
            look()
    assert told == ["start: classes", "start: classes, 12 s so far", "start: classes, 25 s so far"]


@pytest.mark.parametrize("stage", ["families", "start: classes of items", "start: classes of families", "epoch 1"])
def test_stopped_before_the_first_epoch_it_goes_on(stage: str, tmp_path: Path):
    """What is found by then is not sought again, and the model is that of a run that was not stopped."""
    settings: dict[str, Any] = {"rank": 8, "random_state": 0, "max_epochs": 4}
    path, whole, told = tmp_path / "run.safetensors", MixtureNDPP(2, **settings).fit(DOUBTFUL), []

    def interrupt(line: str) -> None:
        if line.startswith(stage):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) if "epoch" not in stage else pytest.warns(TrainingInterruptedWarning):
        MixtureNDPP(2, **settings, checkpoint=path, progress=interrupt).fit(DOUBTFUL)
    resumed = MixtureNDPP(2, **settings | {"random_state": 9}, progress=told.append).fit(DOUBTFUL, resume=path)
    assert np.array_equal(whole.score_samples(DOUBTFUL), resumed.score_samples(DOUBTFUL))
    sought = [line for line in told if line.startswith(("families", "start"))]
    assert len(sought) == {"families": 3, "epoch 1": 0}.get(stage, 2)
    quick = MixtureNDPP(2, **settings, minutes=0.0).fit(DOUBTFUL, resume=path)
    assert quick.ended_ == "minutes"
    assert quick.score(DOUBTFUL) < 0


# -- missions and rank for the time ---------------------------------------------------------------------------------------------

SHOP = Baskets.from_lists([np.random.default_rng(i).choice(12, 4, replace=False) for i in range(5400)], n_items=12)
"""By default 144 missions."""


def timed(monkeypatch: pytest.MonkeyPatch, epoch: Any) -> list[tuple[int, int]]:
    """Have epochs take so many seconds as a function of missions and rank, on a clock that stands still; return those that are timed."""
    asked: list[tuple[int, int]] = []

    def trial(self: Any, shape: Any, *_: Any) -> Any:
        asked.append((shape.n_missions, shape.rank))
        return SimpleNamespace(shape=shape), 1.0, 1

    def forecast(goal: Any, before: float, n: int, *_: Any) -> Any:
        return contest.Forecast(before, epoch(goal.shape.n_missions, goal.shape.rank), 0.5, n)

    monkeypatch.setattr(MixtureNDPP, "_trial", trial)
    monkeypatch.setattr("ndpp.learning.base.measured", forecast)
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    return asked


def shape_of(path: Path) -> tuple[int, int]:
    made_with = checkpoint.read(path).record["made_with"]
    assert len(checkpoint.read(path).named("best", ["levels"])[0]) == made_with["n_missions"]
    return made_with["n_missions"], made_with["rank"]


@pytest.mark.parametrize(
    ("minutes", "chosen"),
    [
        (60.0, (144, 10)),  # 2 s of work before and after, and 6 epochs of 14.4 s, are 89.4 s
        (1.5, (144, 10)),
        (1.48, (72, 6)),  # 46.2 s
        (0.7, (36, 4)),
        (0.01, (8, 4)),
    ],
)
def test_missions_and_rank_are_chosen_for_the_time(minutes, chosen, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The largest of which six epochs fit in, by what steps take; what was chosen is said and kept, with the time of the whole."""
    asked, told = timed(monkeypatch, lambda missions, rank: missions / 10), list[str]()
    settings = {
        "families": None,
        "max_epochs": 12,
        "random_state": 0,
        "checkpoint": tmp_path / "run",
        "minutes": minutes,
    }

    def stop(line: str) -> None:
        told.append(line)
        if line.startswith("epoch 1 "):
            raise KeyboardInterrupt

    with pytest.warns(TrainingInterruptedWarning):
        model = MixtureNDPP(**settings, progress=stop).fit(SHOP)
    assert asked[-1] == chosen == shape_of(tmp_path / "run")
    if chosen == asked[0]:
        assert model.in_time_ is None
        assert "in_time" not in model.about()
    else:
        whole = "144 missions, ties of rank 10"
        expected = {"chosen": "{} missions, ties of rank {}".format(*chosen), "instead_of": whole, "minutes": 2.9}
        assert model.in_time_ == model.about()["in_time"] == expected
        assert f"chosen for the time: {expected['chosen']}; {whole} would take about 3 min" in " ".join(told).replace(
            "175 s", "3 min"
        )
    # A resumed run continues with what was chosen, whatever the time now.
    asked.clear()
    MixtureNDPP(**settings | {"minutes": None, "max_epochs": 2}).fit(SHOP, resume=True)
    assert shape_of(tmp_path / "run") == chosen


@pytest.mark.parametrize(
    ("given", "chosen"),
    [({"n_missions": 20}, (20, 4)), ({"rank": 8}, (8, 8)), ({"n_missions": 20, "rank": 8}, (20, 8))],
)
def test_what_is_given_is_not_chosen(given, chosen, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    timed(monkeypatch, lambda missions, rank: 10.0 * missions * rank)
    path = tmp_path / "run"
    MixtureNDPP(**given, families=None, max_epochs=1, random_state=0, minutes=1.0, checkpoint=path).fit(SHOP)
    assert shape_of(path) == chosen


def test_without_a_limit_nothing_is_chosen(monkeypatch: pytest.MonkeyPatch):
    asked = timed(monkeypatch, lambda missions, rank: 1e9)
    model = MixtureNDPP(families=None, max_epochs=1, random_state=0, progress=lambda line: None).fit(SHOP)
    assert asked == [(144, 10)]
    assert len(model.law_.weights) == 144
