"""Families of items: how they are found, and how mixtures over them are learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")

import torch

import oracles
from ndpp import FamilyMixture
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.laws.tied import TiedMixture
from ndpp.learning import MixtureNDPP, families, tied, trainer
from ndpp.learning.classes import Shape
from ndpp.learning.families import find_families, find_patterns
from ndpp.learning.mixture_objective import MixtureObjective
from ndpp.learning.run import TrainingRun
from ndpp.learning.tied import MixtureParameters

QUICK: dict[str, Any] = {"n_missions": 2, "rank": 4, "max_epochs": 2, "random_state": 0}
PLANTED = np.array([0, 0, 0, 1, 1, 1, 2, 2, 3, 4])
"""Ten items: two families of three, one of two, and two single items."""


def draw(n: int, seed: int, chance: float = 0.3) -> Baskets:
    """Baskets that take a family with this chance, and then one of its items or nearly all of them."""
    rng, rows = np.random.default_rng(seed), np.zeros((n, len(PLANTED)), bool)
    for g in range(5):
        members = np.flatnonzero(g == PLANTED)
        takes, whole = rng.random(n) < chance, rng.random(n) < 0.5
        rows[:, members] |= (takes & whole)[:, None] & (rng.random((n, len(members))) < 0.95)
        one = np.flatnonzero(takes & ~whole)
        rows[one, rng.choice(members, len(one))] = True
    return Baskets.from_lists([np.flatnonzero(row) for row in rows], n_items=len(PLANTED))


@pytest.fixture(scope="module")
def baskets() -> Baskets:
    return draw(600, 0)


def objective_of(few: Baskets, held_out: Baskets, *, n_missions: int = 3) -> MixtureObjective:
    model = MixtureNDPP(n_missions, rank=4, families=PLANTED, dtype="float64")
    (objective,) = model._objectives(Shape(n_missions, 4, 2), few, held_out, TrainingRun(0)).values()
    assert objective.patterns is not None
    return objective


# -- families and their states -----------------------------------------------------------------------------------------


def same_groups(found: np.ndarray, expected: np.ndarray) -> bool:
    return np.array_equal(found[:, None] == found, expected[:, None] == expected)


def test_planted_families_are_found(baskets: Baskets):
    assert same_groups(find_families(np.random.default_rng(0), baskets, 12, 0.3), PLANTED)


def test_families_are_bounded(baskets: Baskets):
    assert same_groups(find_families(np.random.default_rng(0), baskets, 12, 1.1), np.arange(10))
    assert np.bincount(find_families(np.random.default_rng(0), baskets, 2, 0.01)).max() == 2


def test_families_are_found_in_a_part_of_many_baskets(monkeypatch: pytest.MonkeyPatch, baskets: Baskets):
    """Only as many baskets are read as the bound on pairs allows."""
    monkeypatch.setattr(families, "MAX_PAIRS", 3000)
    assert same_groups(find_families(np.random.default_rng(0), baskets, 12, 0.3), PLANTED)
    monkeypatch.setattr(families, "MAX_PAIRS", 0)
    assert same_groups(find_families(np.random.default_rng(0), baskets, 12, 0.3), np.arange(10))


@pytest.mark.parametrize("together", [10**6, 2000])
def test_states_are_those_of_the_planted_families(monkeypatch: pytest.MonkeyPatch, together: int):
    """Half of the sets of a family hold one of three items, the others nearly all. Families may be taken a few at a time."""
    monkeypatch.setattr(families, "MAX_TOGETHER", together)
    monkeypatch.setattr(families, "STATES", (1, 2))
    baskets = draw(6000, 1)
    patterns = find_patterns(np.random.default_rng(1), baskets, PLANTED)
    assert np.bincount(patterns.states).tolist() == [1, 1, 2, 2, 2]  # single items come first
    scarce = find_patterns(np.random.default_rng(1), baskets[:9], PLANTED)
    assert np.bincount(scarce.states).tolist() == [1] * 5  # there are too few sets for more
    g = patterns.families[0]
    members = patterns.members[g]
    assert members.tolist() == [0, 1, 2]
    chances = np.sort(patterns.odds[members] / (1 + patterns.odds[members]), axis=1)
    assert (chances[:, 1] > 0.9).all()
    assert (chances[:, 0] < 0.3).all()
    sets = baskets.to_csr()[:, members].toarray()
    log_q = sets @ patterns.log_odds[members] - np.log(np.expm1(patterns.log_totals[patterns.slots[g]]))
    truth = {1: 0.5 / 3, 3: 0.5 * 0.95**3}
    for k, p in truth.items():
        own = np.exp(log_q[sets.sum(axis=1) == k])
        assert (own @ [0.5, 0.5]).mean() == pytest.approx(p, rel=0.15)


def test_a_family_that_never_occurs():
    patterns = find_patterns(np.random.default_rng(0), Baskets.from_lists([[0]] * 9, n_items=4), np.array([0, 1, 1, 1]))
    assert np.isfinite(patterns.odds).all()
    assert (patterns.odds[1:] > 0).all()


# -- the likelihood ----------------------------------------------------------------------------------------------------


def test_probabilities_are_those_of_the_law(baskets: Baskets):
    sets = oracles.subsets(len(PLANTED))
    objective = objective_of(baskets, Baskets.from_lists(sets, n_items=len(PLANTED)))
    values = objective.log_probs(objective.start)
    assert np.exp(values).sum() == pytest.approx(1.0, rel=1e-9)
    law = objective.law(objective.start, None)
    assert isinstance(law, FamilyMixture)
    some = slice(0, 1024, 37)
    assert values[some] == pytest.approx([law.log_prob(items) for items in sets[some]], abs=1e-9)
    seen = objective_of(baskets, baskets)
    assert seen.log_probs(seen.start) == pytest.approx(seen.law(seen.start, None).log_probs(baskets), abs=1e-9)


def test_loss_and_gradient_are_those_of_autograd(baskets: Baskets, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(families, "SETS", 1)
    few = baskets[:20]
    goal = objective_of(few, few, n_missions=2)
    assert goal.patterns is not None
    assert np.bincount(goal.patterns.states).tolist() == [1, 1, 3, 3, 7]
    rng, now = np.random.default_rng(3), goal.start
    for tensor in now:
        tensor += torch.from_numpy(0.3 * rng.standard_normal(tensor.shape))
    loss = goal.loss(now, np.arange(20), 0)
    at = MixtureParameters(*(tensor.clone().requires_grad_() for tensor in now))
    W, eye = tied.skew_pairs(4, at.X.device), torch.eye(4, dtype=torch.float64)
    odds = goal.log_odds(at, torch.arange(len(at.X)))
    # The slope in X is that of the mean of the determinants over missions, whatever the batch.
    dets = torch.stack(
        [torch.logdet(eye + W @ (at.X.detach().T @ (p[:, None] * at.X.detach()))) for p in odds.sigmoid()]
    )
    log_z, prior = torch.nn.functional.softplus(odds).sum(1) + dets, torch.log_softmax(at.shares, 0)
    G, states, members = torch.eye(5, dtype=torch.float64) + at.X @ W @ at.X.T, at.log_odds(), goal.patterns.members
    values = []
    for A, items in zip(map(np.ndarray.tolist, goal.training.touched), few):
        value = prior - log_z
        for g in A:
            slots, own = goal.patterns.slots[g], np.intersect1d(members[g], items)
            slots = slots[slots < len(goal.patterns.states)]
            odds_of = at.patterns[:, : len(slots)].exp()
            log_q = odds_of[own].log().sum(0) - ((1 + odds_of[members[g]]).prod(0) - 1).log()
            alone = g < goal.training.n_single
            value = value + (states[:, slots[0]] if alone else (states[:, slots] + log_q).logsumexp(1))
        values.append(value.logsumexp(0) + torch.logdet(G[A][:, A]))
    # What the states of a family have in common is free of them: w is where the penalty is least. Half an occurrence is of the family.
    shrunk, half = 2 * at.X.square().sum(), 0.0
    for g in range(len(at.X)):
        own = np.flatnonzero(goal.patterns.states == g)
        common = at.factors[own].sum(0) / (len(own) + 1)
        shrunk = shrunk + 20 * ((at.factors[own] - common).square().sum() + common.square().sum())
        half = half + (at.bias[own] / 2 - torch.nn.functional.softplus(at.bias[own])).mean()
    usual = torch.from_numpy(goal.patterns.log_odds.clip(min=-50)).sigmoid()
    moved = (torch.nn.functional.softplus(at.patterns) - usual * at.patterns).sum()
    value = (shrunk - half + 2 * moved) / 20 - torch.stack(values).mean()
    assert float(loss.value) == pytest.approx(value.item(), rel=1e-10)
    p = odds.sigmoid().detach()
    mean = sum(
        share * torch.logdet(eye + W @ (at.X.T @ (row[:, None] * at.X))) for share, row in zip(now.shares.softmax(0), p)
    )
    for found, exact in zip(
        loss.gradient, torch.autograd.grad(value + mean - mean.detach(), at, materialize_grads=True)
    ):
        torch.testing.assert_close(found, exact, rtol=1e-8, atol=1e-10)


# -- what is learned ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("full_epochs")
def test_families_are_used_where_items_come_in_variants():
    train, test, scores = draw(3000, 0, 0.08), draw(4000, 5, 0.08), {}
    for name, given in {"auto": "auto", "none": None, "planted": PLANTED}.items():
        model = MixtureNDPP(2, rank=4, max_epochs=4, families=given, random_state=0).fit(train)
        assert isinstance(model.law_, TiedMixture if name == "none" else FamilyMixture)
        scores[name] = model.score(test)
        assert model.score(test) == pytest.approx(model.law_.log_probs(test).mean())
    assert scores["auto"] == pytest.approx(scores["planted"], abs=0.01)
    assert scores["planted"] > scores["none"] + 0.05, scores


@pytest.mark.usefixtures("full_epochs")
def test_families_are_not_used_where_items_are_independent():
    rng = np.random.default_rng(0)
    rows = rng.random((800, 12)) < 0.3  # items meet often, and tell nothing about each other
    model = MixtureNDPP(2, rank=4, max_epochs=2, random_state=0).fit(rows)
    assert isinstance(model.law_, TiedMixture)


def test_families_may_have_names(baskets: Baskets):
    named, numbered = (
        MixtureNDPP(**QUICK, families=given).fit(baskets) for given in ([f"f{g}" for g in PLANTED], PLANTED)
    )
    assert named.score(baskets) == numbered.score(baskets)


def test_one_family_of_all_items(baskets: Baskets):
    model = MixtureNDPP(**QUICK, families=np.zeros(10, int)).fit(baskets)
    assert model.law_.base.n_items == 1
    assert np.isfinite(model.score(baskets))


def test_single_items_make_no_family(baskets: Baskets):
    model = MixtureNDPP(**QUICK, families=np.arange(10)).fit(baskets)
    assert isinstance(model.law_, TiedMixture)


def test_resumed_training_ends_the_same(baskets: Baskets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    settings = QUICK | {"max_epochs": 3, "families": PLANTED}
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
    assert np.array_equal(whole.law_.odds, resumed.law_.odds)
    assert np.array_equal(whole.law_.base.X, resumed.law_.base.X)
    assert [r["loss"] for r in whole.history_] == [r["loss"] for r in resumed.history_]
    with pytest.raises(InvalidInputError, match="another families"):
        MixtureNDPP(**settings | {"families": None}, checkpoint=path).fit(baskets, resume=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("none", "families must be 'auto', None or the family of each item; got 'none'"),
        ([0, 1], "families must have 10 entries, or be a mapping from names; got 2"),
        (3, "families must be one per item; got 3"),
    ],
)
def test_bad_families(given: Any, message: str, baskets: Baskets):
    with pytest.raises(InvalidInputError, match=message):
        MixtureNDPP(**QUICK, families=given).fit(baskets)


@pytest.mark.usefixtures("full_epochs")
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_training_on_a_gpu(baskets: Baskets):
    there, here = (MixtureNDPP(**QUICK, families=PLANTED, device=device).fit(baskets) for device in ("cuda", "cpu"))
    assert there.score(baskets) == pytest.approx(here.score(baskets), abs=0.02)


def test_the_default_is_to_choose():
    assert MixtureNDPP().families == "auto"
