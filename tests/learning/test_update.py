"""Training that begins from a law: the law is recovered exactly, new orders change it, and what it knew is not forgotten."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ndpp
from ndpp import Baskets
from ndpp.baskets.orders import Orders
from ndpp.errors import DataWarning, InvalidInputError, RefusedUpdateError
from ndpp.learning.updating import pull_of
from ndpp.learning.warm import Training, warm_objective

NAMES = [f"item {i}" for i in range(8)]
SEEN = 1000


def tied(seed: int = 0, n_components: int = 3, n: int = 8, rank: int = 4) -> ndpp.Mixture:
    """Return a mixture with ties of any skew W, which leaves out the empty set."""
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((rank, rank))
    odds, X = np.exp(rng.normal(-1.2, 1.0, (n_components, n))), 0.7 * rng.standard_normal((n, rank))
    weights = rng.dirichlet(np.full(n_components, 5.0))
    return ndpp.Mixture.tied(odds, X, half - half.T, weights, labels=NAMES[:n]).without_empty()


def missions() -> ndpp.Mixture:
    """Return a mixture of two kinds of baskets, of the first four items and of the last."""
    odds = np.where(np.arange(8) < 4, [[0.8], [0.02]], [[0.02], [0.8]])
    law = ndpp.Mixture.tied(odds, np.full((8, 2), 0.1), [[0.0, 1.0], [-1.0, 0.0]], [0.5, 0.5], labels=NAMES)
    return law.without_empty()


def over_families(seed: int = 0) -> ndpp.FamilyMixture:
    """Return a mixture whose families are in no order, have one to three states, and one of which has lost its other items."""
    rng, families, states = np.random.default_rng(seed), [2, 1, 0, 2, 1, 3, 2, 0], [0, 0, 1, 2, 2, 2, 3, 3]
    item_odds = np.exp(rng.normal(-0.5, 1.0, (8, 3)))
    odds, X = np.exp(rng.normal(-1.0, 0.7, (2, len(states)))), 0.6 * rng.standard_normal((4, 4))
    W = np.kron([[0.0, 1.0], [-1.0, 0.0]], np.eye(2))
    return ndpp.FamilyMixture(odds, item_odds, families, states, X, W, [0.4, 0.6], labels=NAMES).without_empty()


def kernel(n_skew: int, seed: int = 0) -> ndpp.LowRankKernel:
    """Return a kernel X Diag(I, A) Xᵀ with ``n_skew`` skew columns."""
    rng, W = np.random.default_rng(seed), np.eye(6)
    A = rng.standard_normal((n_skew, n_skew))
    W[6 - n_skew :, 6 - n_skew :] = A - A.T
    return ndpp.LowRankKernel(0.7 * rng.standard_normal((8, 6)), W, labels=NAMES).without_empty()


def orthogonal() -> ndpp.LowRankKernel:
    """Return the kernel of an ONDPP."""
    rng = np.random.default_rng(1)
    B = np.linalg.qr(rng.standard_normal((8, 4)))[0]
    V = rng.standard_normal((8, 2))
    W = np.eye(6)
    W[2:, 2:] = [[0, 0.8, 0, 0], [-0.8, 0, 0, 0], [0, 0, 0, 2.0], [0, 0, -2.0, 0]]
    return ndpp.LowRankKernel(np.hstack([V - B @ (B.T @ V), B]), W, labels=NAMES).without_empty()


LAWS = {
    "tied": tied, "one component": lambda: tied(n_components=1), "families": over_families, "NDPP": lambda: kernel(4),
    "symmetric": lambda: kernel(0), "ONDPP": orthogonal,
}  # fmt: skip


def pooled() -> ndpp.Mixture:
    """Return an average of two mixtures."""
    return ndpp.Mixture.pooled([tied(), over_families()], [0.7, 0.3])


EVERY = LAWS | {"pooled": pooled}


def restated(baskets: Baskets) -> Baskets:
    return Baskets(baskets.indptr, baskets.indices, baskets.n_items, baskets.labels)


@pytest.mark.parametrize("name", LAWS)
def test_a_warm_start_is_the_law(name):
    law = LAWS[name]()
    sets = Baskets.from_lists([[j for j in range(8) if i >> j & 1] for i in range(1, 256)], n_items=8, labels=NAMES)
    sets = sets.select(max_size=law.max_size)
    made = warm_objective(law, Training(sets, sets, "cpu", torch.float64, 0))
    np.testing.assert_allclose(made.log_probs(made.start), law.log_probs(sets), atol=1e-9)
    again = made.law(made.finish(made.start), law.labels)
    again = again.framed(again.frame._replace(nonempty=True))
    np.testing.assert_allclose(again.log_probs(sets), law.log_probs(sets), atol=1e-9)


@pytest.mark.parametrize("name", EVERY)
def test_no_epochs_leave_the_law_as_it_is(name):
    law = EVERY[name]()
    tonight = restated(law.sample(60, rng=1))
    found = ndpp.update(law, tonight, seen=SEEN, max_epochs=0)
    np.testing.assert_array_equal(found.law_.log_probs(tonight), law.log_probs(tonight))
    assert (found.before, found.error, found.entered, found.left) == (found.after, 0.0, (), ())


@pytest.mark.parametrize("name", ["tied", "families", "NDPP"])
def test_pseudo_orders_alone_do_not_move_the_law(name):
    """Nor does their choice: the gradient of every batch is that of tonight's orders, as long as the law has not changed."""
    law = LAWS[name]()
    orders = restated(law.sample(120, rng=0))
    goal, anchor = (warm_objective(law, Training(orders, orders, "cpu", torch.float64, 0)) for _ in range(2))
    pull = pull_of(anchor, 100)
    last = goal.loss(goal.start, np.arange(100, 120), 0).gradient
    for which in (np.arange(7), np.arange(30, 110)):
        goal.begin_epoch(goal.start)
        plain = goal.loss(goal.start, which, 0).gradient
        left = [own - pulled for own, pulled in zip(plain, pull(which))]
        for one, wanted, own in zip(left, last, plain):
            torch.testing.assert_close(one, wanted * 20 / 120, atol=1e-9, rtol=1e-6)
            assert not own.numel() or not torch.allclose(own, one)


@pytest.mark.parametrize("name", ["tied", "NDPP", "pooled"])
def test_more_of_the_same_does_not_hurt_and_something_new_is_learned(name):
    law, other = EVERY[name](), tied(7)
    fresh, new = restated(law.sample(800, rng=5)), restated(other.sample(1200, rng=6)).select(max_size=law.max_size)
    same = ndpp.update(law, restated(law.sample(300, rng=1)), seen=8 * SEEN)
    lost = law.log_probs(fresh) - same.law_.log_probs(fresh)
    assert lost.mean() < 0.02
    assert not same.is_worse
    how = {"learning_rate": 0.02, "force": True}
    learned, forgetful = (ndpp.update(law, new[:600], seen=n, **how).law_ for n in (8 * SEEN, 1))
    gains = [float((one.log_probs(new[600:]) - law.log_probs(new[600:])).mean()) for one in (learned, forgetful)]
    losses = [float((law.log_probs(fresh) - one.log_probs(fresh)).mean()) for one in (learned, forgetful)]
    assert min(gains) > 0.05
    assert losses[0] < 0.5 * losses[1]  # what it knew is not forgotten


@pytest.mark.parametrize("leaves_out_empty", [True, False])
def test_an_average_learns_law_by_law(leaves_out_empty):
    law = pooled() if leaves_out_empty else pooled().with_empty()
    said = {"seen": 400, "validation": restated(law.sample(100, rng=2)), "force": True}
    tonight = restated(tied(7).sample(200, rng=1))
    after = ndpp.update(law, tonight, **said).law_
    found = [ndpp.update(one, tonight, **said).law_ for one in law.members]
    sets = restated(law.sample(50, rng=3))
    wanted = ndpp.Mixture.pooled(found, law.shares).log_probs(sets)
    np.testing.assert_allclose(after.log_probs(sets), wanted, rtol=1e-12)
    assert np.abs(after.log_probs(sets) - law.log_probs(sets)).max() > 1e-2
    np.testing.assert_allclose(after.shares, law.shares)
    assert [type(one) for one in after.laws] == [type(one) for one in law.laws]


def test_nothing_of_an_average_is_lost(tmp_path):
    """New items, those that leave, names and context of the missions, and what the file remembers."""
    shifts = np.array([[0.5, -0.5, 0.5, -0.5, 0.5], [-0.5, 0.5, -0.5, 0.5, -0.5]])
    law = pooled().with_context({"store": ["1", "2"]}, shifts)
    law = law.framed(law.frame._replace(names=tuple("vwxyz")))
    ndpp.save(law, tmp_path / "law.safetensors", metadata={"baskets": {"number": SEEN}})
    orders = [[NAMES[i] for i in items] for items in law.sample(240, rng=1)]
    orders = [[*names, "new"] if k % 4 == 0 else names for k, names in enumerate(orders)]
    found = ndpp.update(tmp_path / "law.safetensors", orders, drop=["item 3"], half_life=240, random_state=3)
    assert (found.entered, found.left) == (("new",), ("item 3",))
    assert found.law_.labels == (*NAMES[:3], *NAMES[4:], "new")
    assert found.law_.inclusion_probabilities()[-1] == pytest.approx(0.25, abs=0.08)
    assert found.law_.names == tuple("vwxyz")
    np.testing.assert_array_equal(found.law_.gate.shifts, shifts)
    assert found.metadata["memory"]["orders"] == SEEN / 2 + 240
    assert found.metadata["memory"]["young"] == {"new": 240.0}
    ndpp.save(found, tmp_path / "next.safetensors")
    again = ndpp.load(tmp_path / "next.safetensors")
    assert len(again.laws) == 2
    told = [["new", "item 1"]] * 30 + [[*names, f"late {k % 2}"] for k, names in enumerate(orders[:30])]
    assert ndpp.update(tmp_path / "next.safetensors", told, force=True).entered == ("item 3", "late 0", "late 1")


def test_an_average_learns_context_anew():
    law = ndpp.Mixture.pooled([missions(), missions()], [0.5, 0.5])
    shifts = np.outer([1.5, -1.5], [1, -1, 1, -1])
    told = law.with_context({"store": ["1", "2"]}, shifts)
    drawn = [restated(told.at(store=name).sample(500, rng=seed)) for name, seed in (("1", 1), ("2", 2))]
    orders = Orders(Baskets.concat(drawn), context={"store": ["1"] * 500 + ["2"] * 500})
    before = law.with_context({"store": ["1", "2"]}, 0.02 * shifts)
    found = ndpp.update(before, orders, seen=100, max_epochs=1, random_state=1)
    assert found.context.kept
    assert found.after > found.before + 2 * found.error
    assert (found.law_.gate.shifts[0] * [1, -1, 1, -1] > 0.2).all()


def test_shuffled_orders_are_refused_and_a_worse_model_too():
    law = missions()
    tonight = [[NAMES[i] for i in items] for items in law.sample(400, rng=2)]
    mixed = iter(np.random.default_rng(0).permutation(np.concatenate(tonight)))
    shuffled = [list({next(mixed) for _ in order}) for order in tonight]
    with pytest.raises(RefusedUpdateError, match=r"unlike what the model knows: .* anyway with force=True"):
        ndpp.update(law, shuffled, seen=100)
    truth = restated(law.sample(500, rng=3))
    forced = ndpp.update(law, shuffled, seen=100, validation=truth, learning_rate=0.05, force=True)
    assert forced.is_worse
    assert forced.n_validation == 500
    assert forced.after < forced.before - 2 * forced.error
    with pytest.raises(RefusedUpdateError, match="the updated model is worse: log-likelihood") as refused:
        ndpp.update(law, [*shuffled[:100], *tonight[100:]], seen=20, validation=truth, learning_rate=0.2)
    assert refused.value.updated.is_worse


def test_orders_count_once():
    law = tied()
    drawn = law.sample(300, rng=1)
    lists = [[NAMES[i] for i in items] for items in drawn]
    first = Baskets.from_lists(lists[:200], labels=NAMES, basket_ids=range(200))
    once = ndpp.update(law, first, seen=SEEN, max_epochs=0)
    assert once.metadata["memory"]["orders"] == SEEN + 200
    with pytest.raises(RefusedUpdateError, match="all of these orders were in an earlier update"):
        ndpp.update(once, first, max_epochs=0)
    overlap = Baskets.from_lists(lists[100:], labels=NAMES, basket_ids=range(100, 300))
    with pytest.raises(RefusedUpdateError, match=r"about \d+% of these orders"):
        ndpp.update(once, overlap, max_epochs=0)
    assert ndpp.update(once, overlap, max_epochs=0, force=True).metadata["memory"]["updates"] == 2
    renumbered = Baskets.from_lists(lists[200:], labels=NAMES, basket_ids=range(100))  # every night counts from 0
    twice = ndpp.update(once, renumbered, max_epochs=0, half_life=100)
    assert twice.metadata["memory"]["orders"] == pytest.approx((SEEN + 200) / 2 + 100)


def test_the_number_of_orders_may_be_told_again():
    law = tied()
    tonight = restated(law.sample(100, rng=1))
    first = ndpp.update(law, tonight, seen=SEEN, max_epochs=0)
    with pytest.raises(RefusedUpdateError, match="all of these orders were in an earlier update"):
        ndpp.update(first, tonight, seen=2 * SEEN, max_epochs=0)
    memory = ndpp.update(first, tonight, seen=2 * SEEN, max_epochs=0, force=True).metadata["memory"]
    assert (memory["orders"], memory["updates"]) == (2 * SEEN + 100, 2)


def test_a_saved_model_goes_on(tmp_path):
    law, path = tied(), tmp_path / "model.safetensors"
    first = ndpp.update(law, restated(law.sample(100, rng=1)), seen=SEEN, max_epochs=1)
    ndpp.save(first, path)
    nights = [restated(law.sample(100, rng=i)) for i in (2, 3)]
    found = [ndpp.update(model, nights[0], max_epochs=1) for model in (path, first)]
    np.testing.assert_array_equal(found[0].law_.log_probs(nights[1]), found[1].law_.log_probs(nights[1]))
    assert found[0].metadata == found[1].metadata
    assert ndpp.load_metadata(path)["memory"]["updates"] == 1


@pytest.mark.parametrize(
    ("orders", "problem"),
    [
        ([], "there are no orders"),
        ([["ale"], ["gin", "ale"]], "none of 2 orders has an item of the model; it knows 'item 0'"),
        ([[0, 1]], "must have names"),
    ],
)
def test_orders_that_say_nothing(orders, problem):
    with pytest.raises(InvalidInputError, match=problem):
        ndpp.update(tied(), orders, seen=SEEN)


def test_orders_of_which_nothing_stays():
    with pytest.raises(
        InvalidInputError, match="drop must leave something to learn from; no order has an item that stays"
    ):
        ndpp.update(tied(), [["item 1"]] * 5, seen=SEEN, drop=["item 1"])


def test_old_orders_may_fade_to_nothing():
    law = missions()
    tonight = restated(law.sample(200, rng=1))
    found = ndpp.update(law, tonight, seen=SEEN, half_life=0.1, max_epochs=1, force=True)
    assert found.metadata["memory"]["orders"] == 200
    assert np.isfinite(found.after)


def test_models_that_cannot_be_trained_on():
    law, tonight = tied(), [["item 1", "item 2"], ["item 3"]] * 5
    with pytest.raises(InvalidInputError, match=r"does not say how many orders it has seen. Say so with seen="):
        ndpp.update(law, tonight)
    kernels = ndpp.Mixture([kernel(4), kernel(4, 1)], [0.5, 0.5])
    for model in (kernels, law.condition(["item 0"]), law.exclude(["item 7"]), kernel(4).condition(["item 0"])):
        with pytest.raises(InvalidInputError, match="Update a model as `ndpp fit` writes it, or fit it again"):
            ndpp.update(model, tonight, seen=SEEN, force=True)


def test_kernels_leave_out_orders_that_are_too_large():
    law = kernel(4)
    with pytest.warns(DataWarning, match="left out 1 order of more than 6 items"):
        found = ndpp.update(law, [*([["item 0", "item 1"]] * 20), NAMES[:7]], seen=100, max_epochs=0, force=True)
    assert found.n_orders == 20


def test_models_without_names_are_updated_by_ids():
    law = ndpp.Mixture.tied(np.full((2, 5), 0.3), np.eye(5, 2), [[0.0, 1.0], [-1.0, 0.0]], [0.5, 0.5]).without_empty()
    found = ndpp.update(law, [[0, 1], [2], [0, 1, 4]] * 30, seen=50, max_epochs=2, force=True)
    assert found.law_.labels is None
    assert found.after > found.before
    assert found.changed[0].item in range(5)


@pytest.mark.parametrize("make", [missions, over_families], ids=["tied", "families"])
def test_new_items_enter_and_others_leave(make):
    law = make()
    lists = [[NAMES[i] for i in items] for items in law.sample(240, rng=1)]
    new = [["oat drink", *order] if i < 40 else order for i, order in enumerate(lists)]
    new[200] = [*new[200], "caviar"]
    with pytest.warns(
        DataWarning, match="left 1 new item out, such as 'caviar', of which there are fewer than 3 orders"
    ):
        found = ndpp.update(law, new, seen=SEEN, force=True, drop=["item 5"])
    assert (found.entered, found.left, found.skipped) == (("oat drink",), ("item 5",), ("caviar",))
    assert found.law_.labels == (*(name for name in NAMES if name != "item 5"), "oat drink")
    assert found.law_.inclusion_probabilities()[-1] == pytest.approx(40 / 240, rel=0.25)
    assert found.metadata["memory"]["young"] == {"oat drink": found.n_orders}
    row = found.law_.base.X[-1 if found.law_.patterns is None else found.law_.patterns.families[-1]]
    assert row.any()  # it enters without ties, and may learn some: those of zero would stay so
    # Next night it is twice as popular, and what it goes with is known: pseudo-orders do not hold it where it was.
    again = [["oat drink", *order] if i % 3 == 0 else order for i, order in enumerate(lists[::-1])]
    later = ndpp.update(found, [[*order] for order in again], force=True)
    assert 0.2 < later.law_.inclusion_probabilities()[later.law_.labels.index("oat drink")] < 0.34
    assert later.metadata["memory"]["updates"] == 2


def test_new_items_behave_like_those_expected_in_their_place():
    law = missions()
    breakfasts = [[NAMES[i] for i in items] for items in law.sample(60, component=0, rng=1)]
    new = [["muesli", *order] for order in breakfasts]
    for like in (None, {"muesli": ["item 1"]}, {"muesli": np.array([1, 2])}):
        found = ndpp.update(law, [*new, *breakfasts], seen=SEEN, max_epochs=0, force=True, like=like).law_
        early, late = (found.inclusion_probabilities(given=[name])[-1] for name in ("item 0", "item 6"))
        assert early > 5 * late
        assert found.inclusion_probabilities()[-1] == pytest.approx(0.5)


def test_items_that_nobody_buys_fade_and_leave():
    law = missions()
    lists = [[NAMES[i] for i in items if i != 7] for items in law.sample(700, rng=1)]
    nights = [[order for order in lists[i : i + 200] if order] for i in (0, 200, 400)]
    model, chances = law, [law.inclusion_probabilities()[7]]
    for night in nights:
        model = ndpp.update(
            model, night, seen=SEEN if model is law else None, drop_after=3, learning_rate=0.02, force=True
        )
        if model.left:
            break
        chances.append(model.law_.inclusion_probabilities()[7])
    assert model.left == ("item 7",)
    assert model.metadata["memory"]["unsold"] == {}
    assert chances[0] > 1.3 * chances[1] > 1.3**2 * chances[2]


def test_orders_count_as_often_as_their_weights_say():
    """For the law, for its judges and for what it remembers; unknown settings are no parameters."""
    law = missions()
    night, judges = restated(law.sample(150, rng=3)), restated(law.sample(50, rng=4))
    options = {"seen": SEEN, "validation": judges, "force": True, "half_life": 1000.0, "max_epochs": 1}
    once, plain = (ndpp.update(law, one, **options) for one in (Orders(night, weights=np.ones(150)), night))
    np.testing.assert_array_equal(once.law_.odds, plain.law_.odds)
    has = np.array([0 in items for items in night])
    often, seldom = (ndpp.update(law, Orders(night, weights=w), **options) for w in (1 + 4 * has, 5 - 4 * has))
    chances = [one.law_.inclusion_probabilities()[0] for one in (often, plain, seldom)]
    assert chances[0] > chances[1] > chances[2]
    total = 150 + 4 * has.sum()
    assert often.n_orders == 150
    assert often.metadata["memory"]["orders"] == pytest.approx(SEEN * 0.5 ** (total / 1000) + total)
    weights = np.arange(1.0, 51.0)
    judged = ndpp.update(law, night, **options | {"validation": Orders(judges, weights=weights)})
    assert judged.before == pytest.approx(np.average(law.log_probs(judges), weights=weights))
    with pytest.raises(TypeError, match="unexpected keyword argument 'half_live'"):
        ndpp.update(law, night, half_live=3)


def test_orders_without_weight_are_left_out():
    law, night = missions(), restated(missions().sample(100, rng=3))
    options = {"seen": SEEN, "force": True, "max_epochs": 1}
    weights = np.repeat([0.0, 1.0], 50)
    found, plain = (ndpp.update(law, one, **options) for one in (Orders(night, weights=weights), night[50:]))
    assert found.n_orders == 50
    np.testing.assert_array_equal(found.law_.odds, plain.law_.odds)
    none = Orders(night, weights=np.zeros(100))
    for wrong in ({"orders": none}, {"orders": night, "validation": none}):
        with pytest.raises(InvalidInputError, match="there are no orders"):
            ndpp.update(law, **wrong, **options)
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(InvalidInputError, match="weights must be finite numbers, at least zero"):
            Orders(night, weights=np.append(np.ones(99), wrong))


def test_what_enters_and_leaves_in_one_night_is_not_new():
    law = missions()
    night = [[NAMES[i] for i in items] for items in law.sample(60, rng=1)]
    found = ndpp.update(law, [*night, *[["gin", NAMES[0]]] * 5], seen=SEEN, force=True, max_epochs=0, drop=["gin"])
    assert (found.entered, found.left, found.law_.labels) == ((), (), tuple(NAMES))
    assert found.metadata["memory"]["young"] == {}


@pytest.mark.parametrize("night", [[["item 0"]], [["item 0"], ["item 6"]], [["item 0", "item 1"]]], ids=str)
def test_a_few_orders_do_not_look_like_those_of_another_shop(night):
    found = ndpp.update(missions(), night, seen=SEEN, max_epochs=1)
    assert found.n_orders == len(night)
    assert found.metadata["memory"]["orders"] == SEEN + len(night)
    with pytest.raises(RefusedUpdateError, match="unlike what the model knows"):
        ndpp.update(missions(), [["item 0"], ["item 6"]] * 500, seen=SEEN)


def test_empty_orders_are_not_said_to_lack_names():
    with pytest.raises(InvalidInputError, match="none of 2 orders has an item of the model"):
        ndpp.update(missions(), [[], []], seen=SEEN)
    with pytest.raises(InvalidInputError, match="orders must have names of items, as the model has"):
        ndpp.update(missions(), [[0, 1]], seen=SEEN)


def test_context_has_as_many_values_as_in_a_fit(monkeypatch):
    monkeypatch.setattr("ndpp.learning.context.MAX_LEVELS", 4)
    law = missions().with_context({"store": ["1", "2"]}, np.eye(2))
    night = restated(law.sample(60, rng=0))
    orders = [Orders(night, context={"store": (np.arange(60) % n).astype(str)}) for n in (4, 5)]
    found = ndpp.update(law, orders[0], seen=SEEN, max_epochs=1, force=True)
    assert found.context is not None
    with pytest.raises(InvalidInputError, match="context has 5 different values of 'store', such as '0'; at most 4"):
        ndpp.update(law, orders[1], seen=SEEN, max_epochs=1, force=True)


def test_names_and_context_of_missions_stay():
    law = missions()
    law = ndpp.Mixture.tied(law.odds, law.base.X, law.base.W, law.weights, names=["early", "late"], labels=NAMES)
    gated = law.without_empty().with_context({"store": ["1", "2"]}, np.eye(2))
    found = ndpp.update(gated, restated(gated.sample(100, rng=0)), seen=SEEN, max_epochs=1).law_
    assert found.names == ("early", "late")
    assert found.context == gated.context == {"store": ("1", "2")}
    assert found.at(store="1").weights[0] > found.weights[0] > found.at(store="2").weights[0]
