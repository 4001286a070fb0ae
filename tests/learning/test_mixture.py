"""Mixtures of missions with shared ties: their likelihood, where training begins, and what it finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")

import torch

import oracles
from ndpp import Mixture
from ndpp.baskets import Baskets
from ndpp.errors import DataWarning, InvalidInputError
from ndpp.learning import MixtureNDPP, mixture_objective, tied, trainer
from ndpp.learning.batches import pack
from ndpp.learning.classes import Shape, find_classes, start
from ndpp.learning.families import FamilyData
from ndpp.learning.mixture_objective import MixtureObjective
from ndpp.learning.run import TrainingRun
from ndpp.learning.tied import Expansion, MixtureParameters, Sums
from ndpp.learning.trainer import Trainer, TrainingSettings
from ndpp.metrics import independent_items

N_ITEMS = 6
SETTINGS = TrainingSettings(learning_rate=0.02, batch_size=None, max_epochs=2, patience=2)
QUICK: dict[str, Any] = {"n_missions": 2, "rank": 4, "max_epochs": 2, "random_state": 0, "families": None}
MISSIONS = np.array([[0.6, 0.6, 0.6, 0.6, 0.02, 0.02, 0.02, 0.02], [0.02, 0.02, 0.02, 0.02, 0.5, 0.5, 0.5, 0.5]])


def parameters_of(*, rank: int = 4, n_missions: int = 3, seed: int = 0) -> MixtureParameters:
    rng, r = np.random.default_rng(seed), 3
    shapes = [(N_ITEMS,), (N_ITEMS, r), (N_ITEMS, rank), (n_missions, r), (n_missions,), (n_missions,)]
    return MixtureParameters(*(torch.from_numpy(rng.standard_normal(shape)) for shape in shapes))


def law_of(parameters: MixtureParameters) -> Mixture:
    return Mixture.tied(*parameters.arrays())


def objective_of(start: MixtureParameters, training: Baskets, validation: Baskets) -> MixtureObjective:
    data, judged = (FamilyData.of(None, part) for part in (training, validation))
    return MixtureObjective(None, [0.7, 0.3], start, data, judged)


def plain_log_dets(p: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
    """log det(I + W M_c), mission by mission."""
    d = X.shape[1]
    W, eye = tied.skew_pairs(d, X.device), torch.eye(d, dtype=torch.float64)
    return torch.stack([torch.logdet(eye + W @ (X.T @ (row[:, None] * X))) for row in p])


def draw(n: int, seed: int) -> Baskets:
    """Baskets of two missions with four items each, all of them rare in the other mission."""
    rng = np.random.default_rng(seed)
    p = MISSIONS[(rng.random(n) < 0.4).astype(int)]
    return Baskets.from_lists([np.flatnonzero(row) for row in rng.random(p.shape) < p], n_items=8)


def truth(baskets: Baskets) -> float:
    rows = baskets.to_csr().toarray()[:, None, :]
    each = np.where(rows, MISSIONS, 1 - MISSIONS).prod(axis=2)
    return float(np.log(each @ [0.6, 0.4]).mean())


@pytest.fixture(scope="module")
def baskets() -> Baskets:
    return draw(300, 0)


def same(first: Any, second: Any) -> bool:
    laws = first.law_, second.law_
    return all(
        np.array_equal(*(getattr(law, name) for law in laws)) for name in ("odds", "weights")
    ) and np.array_equal(laws[0].base.X, laws[1].base.X)


# -- the likelihood ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [2, 4, 8])
def test_probabilities_are_those_of_the_mixture(rank: int):
    """Baskets smaller and larger than the rank, which take determinants of different matrices."""
    parameters, sets = parameters_of(rank=rank), oracles.subsets(N_ITEMS)
    all_sets, law = Baskets.from_lists(sets, n_items=N_ITEMS), law_of(parameters)
    values = objective_of(parameters, all_sets, all_sets).log_probs(parameters)
    assert np.exp(values).sum() == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(values, [law.log_prob(items) for items in sets], rtol=1e-10)


@pytest.mark.parametrize("multiple", [1, 4, 16])
def test_padding_changes_nothing(multiple: int):
    parameters = parameters_of()
    sets = Baskets.from_lists([[0, 3], [], [1, 2, 4, 5], [2], [0, 1, 2, 3, 4]], n_items=N_ITEMS)
    batch = pack(sets, np.arange(5), multiple=multiple)
    found = tied.log_probs(parameters, Sums.of(parameters, parameters.log_odds).log_normalizers(), batch)
    exact = objective_of(parameters, sets, sets).log_probs(parameters)
    np.testing.assert_allclose(found, exact[np.argsort(sets.sizes, kind="stable")], rtol=1e-12)


@pytest.mark.parametrize(("chunk", "head"), [(1, 1000), (25, 2), (2**20, 3)])
def test_expansion_has_the_slopes_of_the_determinants(chunk: int, head: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(tied.CHUNK, "cpu", chunk)
    monkeypatch.setattr(tied, "LEAST_HEAD", head)
    monkeypatch.setattr(tied, "MOST_HEAD", head)
    monkeypatch.setattr(tied, "TURNS", 2)
    parameters = parameters_of()
    p, X = torch.sigmoid(parameters.log_odds()).requires_grad_(), parameters.X.clone().requires_grad_()
    exact, found = plain_log_dets(p, X), Expansion(parameters, parameters.log_odds)
    np.testing.assert_allclose(found.value, exact.detach(), rtol=1e-12)
    np.testing.assert_allclose(found.level + (found.in_p * p.detach()).sum(1), exact.detach(), rtol=1e-12)
    np.testing.assert_allclose(found.in_p, torch.autograd.grad(exact.sum(), p, retain_graph=True)[0], rtol=1e-9)
    total = (parameters.shares.softmax(0) * exact).sum()
    np.testing.assert_allclose(found.in_X, torch.autograd.grad(total, X)[0], rtol=1e-9, atol=1e-12)
    assert (found.curvature > 0).all()
    near = parameters.X + 1e-5 * torch.ones_like(parameters.X)
    change = (parameters.shares.softmax(0) * (plain_log_dets(p, near) - exact)).sum()
    assert float(found.ties(near)[0]) == pytest.approx(change.item(), rel=1e-3)
    np.testing.assert_allclose(found.ties(near)[1], found.in_X + 1e-5 * found.curvature, rtol=1e-12)


def test_items_are_renewed_in_turns(monkeypatch: pytest.MonkeyPatch):
    """Of six items the two that matter most every time, one of two halves of the others in turn; so after two turns all are new."""
    monkeypatch.setattr(tied, "LEAST_HEAD", 2)
    monkeypatch.setattr(tied, "MOST_HEAD", 2)
    monkeypatch.setattr(tied, "TURNS", 2)
    before, after = parameters_of(seed=1), parameters_of(seed=2)
    found, fresh = Expansion(before, before.log_odds), Expansion(after, after.log_odds)
    head, *others = found.parts
    assert [len(part) for part in found.parts] == [2, 2, 2]
    weight = (before.shares.softmax(0) @ torch.sigmoid(before.log_odds())) * before.X.square().sum(1)
    assert set(head.tolist()) == set(weight.argsort(descending=True)[:2].tolist())
    found.renew(after, after.log_odds)
    assert torch.equal(found.X[others[0]], after.X[others[0]])
    assert torch.equal(found.X[others[1]], before.X[others[1]])
    p = torch.sigmoid(after.log_odds())
    p[:, others[1]] = torch.sigmoid(before.log_odds())[:, others[1]]
    np.testing.assert_allclose(found.value, plain_log_dets(p, found.X), rtol=1e-12)
    np.testing.assert_allclose(found.level + (found.in_p * p).sum(1), found.value, rtol=1e-12)
    found.renew(after, after.log_odds)
    np.testing.assert_allclose(found.value, fresh.value, rtol=1e-12)
    done = torch.cat([head, others[1]])
    np.testing.assert_allclose(found.in_p[:, done], fresh.in_p[:, done], rtol=1e-9)
    np.testing.assert_allclose(found.in_X[done], fresh.in_X[done], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("nonempty", [False, True], ids=["all sets", "no empty set"])
def test_loss_and_gradient_are_those_of_autograd(baskets: Baskets, nonempty: bool):
    sets = [items[items < N_ITEMS] for items in baskets]
    few = Baskets.from_lists([items for items in sets if len(items) or not nonempty][:20], n_items=N_ITEMS)
    now = parameters_of(seed=1)
    goal = objective_of(now, few, few)
    assert goal.nonempty == nonempty
    loss = goal.loss(now, np.arange(20), 0)
    at = MixtureParameters(*(tensor.clone().requires_grad_() for tensor in now))
    log_odds, prior = at.log_odds(), torch.log_softmax(at.shares, 0)
    p, K = torch.sigmoid(log_odds), at.X @ tied.skew_pairs(4, at.X.device) @ at.X.T
    # The slope in X is that of the mean of the determinants over missions, whatever the batch.
    ties = plain_log_dets(p, at.X.detach())
    log_z = torch.nn.functional.softplus(log_odds).sum(1) + ties
    kept = 1 - (-log_z.detach()).exp() if nonempty else torch.ones_like(log_z)  # P_c(S ≠ ∅)
    log_z = log_z.expm1().log() if nonempty else log_z
    values = [
        torch.logsumexp(prior - log_z + log_odds[:, items].sum(1), 0)
        + torch.logdet((torch.eye(6) + K)[items][:, items])
        for items in few.to_lists()
    ]
    shrunk = 0.7 * at.factors.square().sum() + 0.3 * at.X.square().sum()
    half = (at.bias / 2 - torch.nn.functional.softplus(at.bias)).sum()
    value = (shrunk - half) / 20 - torch.stack(values).mean()
    assert float(loss.value) == pytest.approx(value.item(), rel=1e-10)
    mean = (now.shares.softmax(0) / kept * plain_log_dets(p.detach(), at.X)).sum()
    for found, exact in zip(
        loss.gradient, torch.autograd.grad(value + mean - mean.detach(), at, materialize_grads=True)
    ):
        torch.testing.assert_close(found, exact, rtol=1e-8, atol=1e-10)


def test_an_expansion_is_renewed(baskets: Baskets, monkeypatch: pytest.MonkeyPatch):
    made, true = [], Expansion._renew
    monkeypatch.setattr(Expansion, "_renew", lambda *at: made.append(run.step) or true(*at))
    goal = MixtureNDPP(**QUICK)._objectives(Shape(2, 4, 2), baskets, baskets, TrainingRun(0))["items"]
    run = Trainer(goal, SETTINGS, 0)
    for _ in range(2 * mixture_objective.RENEWAL):
        run.take_step(np.arange(20))
    assert made == [0, mixture_objective.RENEWAL]


# -- where training begins ---------------------------------------------------------------------------------------------


def test_classes_are_found():
    baskets = draw(4000, 0)
    found = find_classes(np.random.default_rng(0), baskets, draw(500, 1), 2)
    order = np.argsort(-found.log_shares)
    np.testing.assert_allclose(np.exp(found.log_shares[order]), [0.6, 0.4], atol=0.03)
    p = 1 / (1 + np.exp(-found.log_odds[order]))
    # 30 average baskets are added to 2,400 and 1,600.
    shrunk = [
        (m * own + 30 * independent_items(baskets).probabilities) / (m + 30) for m, own in zip((2400, 1600), MISSIONS)
    ]
    np.testing.assert_allclose(p, shrunk, atol=0.03)


def test_training_begins_at_the_classes(baskets: Baskets):
    shape = Shape(2, 4, 2)
    bias, factors, X, missions, levels, shares = start(np.random.default_rng(0), baskets, baskets, shape)
    found = find_classes(np.random.default_rng(0), baskets, baskets, 2)
    np.testing.assert_allclose(bias + levels[:, None] + missions @ factors.T, found.log_odds, rtol=1e-6)
    np.testing.assert_allclose(shares, found.log_shares)
    assert 0 < np.abs(X).max() < 1


def test_missions_of_one_class_share_its_weight(baskets: Baskets):
    _, factors, _, missions, _, shares = start(np.random.default_rng(0), baskets, baskets, Shape(60, 4, 8))
    assert missions.shape == (60, 8)
    assert len(np.unique(missions @ factors.T, axis=0)) == 60
    assert np.exp(shares).sum() == pytest.approx(1.0)
    np.testing.assert_allclose(shares[:25][:10], shares[25:50][:10])


# -- what is found -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("full_epochs")
def test_planted_missions_are_recovered():
    train, test = draw(1500, 2), draw(1000, 3)
    model = MixtureNDPP(2, rank=4, max_epochs=5, random_state=0).fit(train)
    assert model.score(test) > truth(test) - 0.06
    heavy = int(np.argmax(model.law_.weights))
    assert model.law_.weights[heavy] == pytest.approx(0.6, abs=0.06)
    assert model.law_.responsibilities([0, 1])[heavy] > 0.95
    assert model.law_.responsibilities([4, 5])[heavy] < 0.05
    np.testing.assert_allclose(model.law_.inclusion_probabilities(), [0.6, 0.4] @ MISSIONS, atol=0.05)


@pytest.mark.usefixtures("full_epochs")
def test_ties_are_learned_where_there_is_one_mission():
    rng = np.random.default_rng(0)
    together = rng.random((800, 2)) < 0.3  # items 0 and 1 come together, as do 2 and 3
    rows = np.repeat(together, 2, axis=1) & (rng.random((800, 4)) < 0.9)
    model = MixtureNDPP(1, rank=4, tie_penalty=0.1, max_epochs=8, learning_rate=0.05, random_state=0).fit(rows)
    p = model.law_.inclusion_probabilities(given=[0])
    assert p[1] > 0.7
    assert p[2] == pytest.approx(0.27, abs=0.1)


def test_same_seed_same_mixture(baskets: Baskets):
    first, again, other = (MixtureNDPP(**QUICK | {"random_state": s}).fit(baskets) for s in (0, 0, 1))
    assert same(first, again)
    assert not same(first, other)


def test_resumed_training_ends_the_same(baskets: Baskets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    settings = QUICK | {"max_epochs": 3, "penalty": 1e-3}
    whole = MixtureNDPP(**settings).fit(baskets)
    path, true = tmp_path / "run.safetensors", trainer.Trainer.epoch

    def epoch(run: Any, bar: Any) -> Any:
        if len(run.history) == 2:
            raise RuntimeError("power cut")
        return true(run, bar)

    with monkeypatch.context() as patched:
        patched.setattr(trainer.Trainer, "epoch", epoch)
        with pytest.raises(RuntimeError, match="power cut"):
            MixtureNDPP(**settings, checkpoint=path).fit(baskets)
    resumed = MixtureNDPP(**settings | {"random_state": 99}, checkpoint=path).fit(baskets, resume=True)
    assert same(whole, resumed)
    assert [r["loss"] for r in whole.history_] == [r["loss"] for r in resumed.history_]
    assert whole.penalties_ == resumed.penalties_
    with pytest.raises(InvalidInputError, match="another penalty"):
        MixtureNDPP(**settings | {"penalty": 2.0}, checkpoint=path).fit(baskets, resume=True)


def test_penalties_rise_while_validation_asks_for_it_and_fall_no_lower_than_they_began(
    baskets: Baskets, monkeypatch: pytest.MonkeyPatch
):
    goal = MixtureNDPP(**QUICK)._objectives(Shape(2, 4, 2), baskets, baskets, TrainingRun(0))["items"]
    assert goal.penalties == [10.0, 2.0]
    shrunk_is_better, values = [True, True], []

    def log_probs(parameters: MixtureParameters, log_z: torch.Tensor) -> np.ndarray:
        part = 0 if torch.equal(parameters.X, goal.start.X) else 1
        return np.array([-0.9 if shrunk_is_better[part] else -1.1])

    goal.log_probs(goal.start)
    monkeypatch.setattr(goal, "_log_probs", log_probs)
    for answers in ([True, True], [True, False], [False, False], [False, False]):
        shrunk_is_better[:] = answers
        goal.adapt(goal.start, -1.0)
        values.append(list(goal.penalties))
    np.testing.assert_allclose(values, [[15.0, 3.0], [22.5, 2.0], [15.0, 2.0], [10.0, 2.0]])


@pytest.mark.usefixtures("full_epochs")
def test_single_precision_is_enough(baskets: Baskets):
    single, double = (MixtureNDPP(**QUICK, dtype=dtype).fit(baskets) for dtype in (None, "float64"))
    assert single.score(baskets) == pytest.approx(double.score(baskets), abs=0.01)
    assert single.law_.odds.dtype == np.float64


@pytest.mark.usefixtures("full_epochs")
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_training_on_a_gpu(baskets: Baskets):
    there, here = (MixtureNDPP(**QUICK, device=device).fit(baskets) for device in ("cuda", "cpu"))
    assert there.score(baskets) == pytest.approx(here.score(baskets), abs=0.02)


# -- awkward data ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("full_epochs")
def test_one_item_only():
    model = MixtureNDPP(max_epochs=4, learning_rate=0.1, random_state=0).fit([[0]] * 30 + [[]] * 10)
    assert model.law_.inclusion_probabilities()[0] == pytest.approx(0.75, abs=0.1)


@pytest.mark.usefixtures("full_epochs")
def test_baskets_of_one_item_each():
    with pytest.warns(DataWarning, match="200 of 200 baskets hold a single item"):
        model = MixtureNDPP(5, max_epochs=6, random_state=0).fit([[i % 5] for i in range(200)])
    law = model.law_
    assert law.size_distribution()[1] > 0.6  # five independent items: 0.41
    np.testing.assert_allclose(law.inclusion_probabilities(), 0.2, atol=0.05)


@pytest.mark.usefixtures("full_epochs")
def test_missions_that_no_basket_needs(baskets: Baskets):
    model = MixtureNDPP(12, rank=4, max_epochs=3, random_state=0).fit(baskets)
    assert len(model.law_.weights) == 12
    assert model.law_.weights.sum() == pytest.approx(1.0)
    assert np.isfinite(model.score_samples(oracles.subsets(8)[::9])).all()


@pytest.mark.usefixtures("full_epochs")
def test_an_item_that_never_occurs_stays_possible():
    seen = Baskets.from_lists([[0, 1], [1], [0]] * 40, n_items=3)
    model = MixtureNDPP(2, max_epochs=6, random_state=0).fit(seen)
    assert 1e-3 < model.law_.inclusion_probabilities()[2] < 2e-2  # half an occurrence in 108 baskets is 0.0046


def test_sizes_follow_from_the_data():
    small = Baskets.from_lists([[0, 1]] * 10, n_items=4)
    assert MixtureNDPP()._shape(small) == Shape(1, 6, 1)
    large = Baskets.from_lists([np.arange(100)] * 1000, n_items=10_000)
    assert MixtureNDPP()._shape(large) == Shape(400, 128, 48)
    assert MixtureNDPP(7, rank=6, n_factors=3)._shape(large) == Shape(7, 6, 3)


def test_large_baskets_are_kept():
    model = MixtureNDPP(**QUICK).fit([list(range(8))] * 20 + [[0], [1]] * 20)
    assert model.n_dropped_ == 0
    assert model.score([list(range(8))]) > -5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_missions": 0}, "n_missions must be at least 1"),
        ({"n_missions": 1.5}, "n_missions must be an integer"),
        ({"rank": 3}, "rank must be even"),
        ({"rank": 0}, "rank must be at least 2"),
        ({"n_factors": 0}, "n_factors must be at least 1"),
        ({"penalty": -1.0}, "penalty must be a number, at least 0"),
        ({"tie_penalty": float("nan")}, "tie_penalty must be a number"),
        ({"dtype": "float16"}, "dtype must be"),
        ({"max_epochs": 0}, "max_epochs must be at least 1"),
    ],
)
def test_bad_parameters(change: dict[str, Any], message: str, baskets: Baskets):
    with pytest.raises(InvalidInputError, match=message):
        MixtureNDPP(**QUICK | change).fit(baskets)


def test_nothing_to_learn_from():
    with pytest.raises(InvalidInputError, match="nothing to learn"):
        MixtureNDPP().fit(Baskets.from_lists([[], []], n_items=3))


def test_samples_and_recommendations_are_those_of_the_mixture(baskets: Baskets):
    model = MixtureNDPP(**QUICK).fit(baskets)
    assert set(model.recommend([4, 5], n=2).items) == {6, 7}
    np.testing.assert_array_equal(model.score_samples(baskets[:5]), model.law_.log_probs(baskets[:5]))
    assert model.sample(20, given=[0], exclude=[7], rng=1) == model.law_.sample(20, given=[0], exclude=[7], rng=1)


def test_the_baseline_is_that_of_independent_items():
    train, held_out = draw(200, 0), draw(50, 1)
    model = MixtureNDPP(**QUICK).fit(train, validation=held_out)
    assert model.baseline_score_ == pytest.approx(independent_items(train).log_likelihoods(held_out).mean())
