"""Single training steps: batches, noise, penalties, rates, the parameters kept, and steps to a loss that is not finite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")

import torch

from ndpp._progress import ProgressBar
from ndpp.baskets import Baskets
from ndpp.datasets import make_baskets
from ndpp.errors import PrecisionError
from ndpp.learning import NDPP, checkpoint
from ndpp.learning.kernel_objective import KernelObjective
from ndpp.learning.models import OrthogonalPairs, Parameters, PublishedTraining
from ndpp.learning.run import TrainingRun
from ndpp.learning.trainer import Trainer, clone

SETTINGS: dict[str, Any] = {"rank": 8, "max_epochs": 3, "patience": 2, "batch_size": 10, "random_state": 0}


@pytest.fixture(scope="module")
def baskets() -> Baskets:
    return make_baskets(400, 8, mean_size=2.0, n_pairs=2, complement_lift=1.8, rng=0).baskets


BATCH = np.arange(10)


def _objective(baskets: Baskets, **changed: Any) -> KernelObjective:
    return NDPP(**SETTINGS | changed)._objectives(8, baskets, baskets, TrainingRun(0))["kernel"]


def _run(baskets: Baskets, **changed: Any) -> Trainer[Parameters]:
    run = Trainer(_objective(baskets, **changed), NDPP(**SETTINGS | changed)._settings(), 0)
    run.objective.begin_epoch(run.now)
    return run


@pytest.mark.usefixtures("full_epochs")
@pytest.mark.parametrize(("asked", "most", "size", "steps"), [(None, 200, 100, 52), (None, 2, 200, 50), (5, 2, 5, 80)])
def test_batches_grow_with_the_data(
    asked: int | None, most: int, size: int, steps: int, baskets: Baskets, monkeypatch: pytest.MonkeyPatch
):
    """400 baskets: 100 at a time if that makes few steps, or as many as are asked for; an epoch has 50 steps or more."""
    monkeypatch.setattr(KernelObjective, "max_steps", most)
    run = _run(baskets, batch_size=asked)
    assert (run.batch_size, run.n_steps) == (size, steps)
    run.epoch(ProgressBar())
    assert run.history[-1]["step"] == steps


def test_half_a_step_is_half_a_step(baskets: Baskets):
    """The parameters go back half the way, entries that are not finite all of it."""
    run = _run(baskets)
    run.step = 1
    run.now.X.fill_(3.0)
    run.now.X[0, 0] = float("nan")
    run.before.X.fill_(1.0)
    with pytest.warns(RuntimeWarning, match="halved"):
        run._finite_loss(BATCH)
    assert float(run.now.X[0, 0]) == 1.0
    assert float(run.now.X[1, 1]) == 2.0


def test_a_loss_that_is_never_finite_is_an_error(baskets: Baskets):
    run = _run(baskets)
    run.now.X.fill_(float("nan"))
    with pytest.raises(PrecisionError, match="not finite at step 0"):
        run._finite_loss(BATCH)
    run.step, run.before = 5, Parameters(*(t.clone() for t in run.now))
    with pytest.warns(RuntimeWarning), pytest.raises(PrecisionError, match="however small"):
        run._finite_loss(BATCH)


def test_weights_and_noise_follow_the_counts(baskets: Baskets):
    objective, counts = _objective(baskets, alpha=0.3, beta=0.5, noise=0.6), np.bincount(baskets.indices, minlength=8)
    odds, n_sym = (counts + 0.5) / (len(baskets) + 0.5 - counts), objective.n_sym
    np.testing.assert_allclose(objective.scale**2, odds)
    np.testing.assert_allclose(
        objective.penalties, np.outer(odds / (counts + 0.5), np.where(np.arange(8) < n_sym, 0.3, 0.5))
    )
    assert objective.noise_scales is not None
    np.testing.assert_allclose(objective.noise_scales[:, 0], 0.6 / (1 + (counts / 8) ** 2))
    kernel = objective.law(objective.start, None)
    assert kernel.inclusion_probabilities().sum() == pytest.approx(baskets.sizes.mean())
    assert _objective(baskets, noise=0.0).noise_scales is None


def test_noise_is_relative_to_what_it_is_added_to(baskets: Baskets):
    objective = _objective(baskets)
    now, h, noise = clone(objective.start), objective.n_sym, objective.noise_scales
    now.X[:, :h], now.X[:, h:] = 2.0, 3.0
    objective.begin_epoch(now)
    sizes = objective.deviations
    assert noise is not None
    assert sizes is not None
    np.testing.assert_allclose(sizes, noise * torch.where(torch.arange(8) < h, 2.0, 3.0), rtol=1e-6)
    drawn = torch.stack([objective.draw_noise(now.X) for _ in range(4000)])  # type: ignore[misc]
    np.testing.assert_allclose(drawn.std(dim=0), sizes, rtol=0.1)


def test_the_running_mean_is_judged_and_soon_forgets_the_start(baskets: Baskets):
    run = _run(baskets)
    mean, weights = run.mean.X.clone(), [0.9, 9 / 11, 9 / 12, 0.005]
    for weight in weights:
        run.step = 10**5 if weight == 0.005 else run.step
        run.take_step(BATCH)
        mean += weight * (run.now.X - mean)
    np.testing.assert_allclose(run.mean.X, mean)
    value = run.validate()
    run.now.X.fill_(float("nan"))
    assert run.validate() == value


def test_the_skew_matrix_moves_at_a_rate_of_its_own(baskets: Baskets):
    run = _run(baskets)
    run.take_step(BATCH)
    moved = [float((now - before).abs().max()) for now, before in zip(run.now, run.before)]
    np.testing.assert_allclose(moved, [0.02, 0.002], rtol=1e-6)  # the first step of Adam is the rate


def test_a_hair_is_no_improvement(baskets: Baskets, monkeypatch: pytest.MonkeyPatch):
    run, values, bad = _run(baskets, patience=5), iter([-10.0, -9.9999, -9.9]), []

    def validated() -> float:
        run.best_value = next(values)
        return run.best_value

    monkeypatch.setattr(run, "validate", validated)
    for _ in range(3):
        run.epoch(ProgressBar())
        bad.append(run.bad)
    assert bad == [0, 1, 0]


def test_the_best_parameters_are_kept_and_not_the_last(baskets: Baskets, monkeypatch: pytest.MonkeyPatch):
    run, values, kept = _run(baskets), iter([-3.0, -1.0, -2.0]), []
    monkeypatch.setattr(KernelObjective, "log_probs", lambda *_: np.array([next(values)]))
    for _ in range(3):
        run.take_step(BATCH)
        run.validate()
        kept.append(run.best.X.clone())
    assert not torch.equal(kept[0], kept[1])
    assert torch.equal(kept[1], kept[2])
    assert run.best_value == -1.0


def test_a_checkpoint_holds_all_that_changes(baskets: Baskets, tmp_path: Path):
    run, other = _run(baskets), _run(baskets)
    for _ in range(3):
        run.take_step(BATCH)
    run.validate()
    run.rate, run.bad, run.drops = 0.15, 1, 2
    checkpoint.write(tmp_path / "run", run.state().tensors, run.state().record)
    other.take_step(BATCH)
    other.restore(checkpoint.read(tmp_path / "run"))
    restored, wanted = other.state(), run.state()
    assert restored.record == wanted.record
    assert all(torch.equal(tensor, restored.tensors[name]) for name, tensor in wanted.tensors.items())


def test_published_training_validates_every_step(baskets: Baskets):
    settings: dict[str, Any] = {"init": PublishedTraining(), "noise": 0.0, "learning_rate": 0.1, "patience": 2}
    run = _run(baskets, **settings)
    assert run.n_steps == 1
    values = iter([-10.0, -11.0, -10.0005, -10.5, -10.5])  # at most a thousandth of a hundredth worse is as good
    run.validate = lambda: next(values)  # type: ignore[method-assign]
    run.best_value, rates = -10.0, []
    for _ in range(5):
        run.epoch(ProgressBar())
        rates.append(run.rate)
    assert rates == [1.0, 1.0, 1.0, 1.0, 0.75]
    assert torch.equal(run.mean.X, run.now.X)
    moved = _run(baskets, **settings)
    moved.take_step(BATCH)
    np.testing.assert_allclose([float((a - b).abs().max()) for a, b in zip(moved.now, moved.before)], 0.1, rtol=1e-6)


@pytest.mark.parametrize(("last", "ends"), [(-10.00001, True), (-10.001, False)])
def test_published_training_ends_when_validation_hardly_changes(last: float, ends: bool, baskets: Baskets):
    run = _run(baskets, init=PublishedTraining())
    run.history = [{"validation": value} for value in (-20.0, -10.0, -10.0, -10.0, -10.0)]
    assert not run.has_converged
    run.history.append({"validation": last})
    assert run.has_converged == ends


def test_free_rows_have_the_gradient_of_the_constrained_loss(baskets: Baskets):
    """The derivative along random directions is that of the loss at (V − QQᵀV, Q), by central differences."""
    form, settings = OrthogonalPairs(), (0.1, 0.2, 0.3, 0.0, "cpu", torch.float64, 6, baskets, baskets, 0)
    objective = KernelObjective(form, PublishedTraining(), *settings)
    at, rng = objective.start, torch.Generator().manual_seed(0)
    gradient = objective.loss(at, BATCH, 0).gradient
    for _ in range(3):
        step = Parameters(*(torch.randn(t.shape, generator=rng, dtype=t.dtype) for t in at))
        ahead, behind = (
            objective.loss(at._make(a + t * d for a, d in zip(at, step)), BATCH, 0).value for t in (1e-6, -1e-6)
        )
        slope = sum((g * d).sum() for g, d in zip(gradient, step))
        assert float(ahead - behind) / 2e-6 == pytest.approx(float(slope), rel=1e-5)
    kernel = objective.law(objective.finish(at), None)
    np.testing.assert_allclose(kernel.X[:, 4:].T @ kernel.X[:, 4:], np.eye(2), atol=1e-10)


def test_published_validation_finds_no_basket_impossible(baskets: Baskets):
    run = _run(baskets, init=PublishedTraining())
    run.now.X.zero_()
    run.take_step = lambda which: torch.zeros(())  # type: ignore[method-assign]
    run.mean.X.zero_()
    assert run.validate() == pytest.approx(np.log(1e-5) * baskets.sizes.mean(), rel=0.2)
    assert _objective(baskets).log_probs(run.mean).min() == -np.inf
