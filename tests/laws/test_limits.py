"""Probabilities under limits: exact ones and estimates, against the enumeration of every kind of law."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import oracles
from law_table import BASES, KIND, KINDS, Kind, Truth, entries, nonempty_entries
from ndpp import Limit
from ndpp.errors import ImpossibleLimitError, InvalidInputError, PrecisionWarning, ZeroProbabilityError
from ndpp.laws.limits import Estimate, Limits

EVEN = [0, 2, 4]
PRICES = np.array([2.5, 1.1, 3.2, 0.7, 1.9, 4.0])
LIMITS = [
    Limit(EVEN, 1, 1), Limit([1, 2], least=2), Limit(range(6), most=2), Limit(PRICES, most=5.0), Limit(PRICES, 3.0, 6.2),
    Limit({0: 100, 3: 250}, least=250), Limit([5], most=0),
]  # fmt: skip


def keeping(truth: Truth, limit: Limit, values: np.ndarray) -> np.ndarray:
    """Which sets keep a limit."""
    totals = np.array([values[list(S)].sum() for S in truth.sets])
    return ((limit.least or 0) - 1e-6 <= totals) & (totals <= (np.inf if limit.most is None else limit.most) + 1e-6)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_one_limit_is_exact(kind: Kind):
    for entry in entries(kind, BASES[0]) + nonempty_entries(kind, BASES[0])[:1]:
        law, truth = entry.law, entry.truth
        for limit in LIMITS:
            kept = keeping(truth, limit, limit.over(law))
            for given in [(), truth.left[1:3]]:
                chosen = truth.containing(given)
                if not truth.p[chosen].sum() > 0:
                    continue
                found, expected = law.probability(limit, given), truth.p[chosen & kept].sum() / truth.p[chosen].sum()
                assert found.exact
                np.testing.assert_allclose(float(found), expected, atol=1e-10, err_msg=f"{entry} {limit} {given}")
                if expected > 1e-6:
                    inside = [truth.p[chosen & kept & truth.containing([a])].sum() for a in range(6)]
                    p = law.inclusion_probabilities(given=given, limits=limit)
                    np.testing.assert_allclose(
                        p, inside / truth.p[chosen & kept].sum(), atol=1e-8, err_msg=f"{entry} {limit} {given}"
                    )


@pytest.mark.parametrize(
    ("kind", "table"), [(KIND["mixture"], nonempty_entries), (KIND["families"], entries)], ids=["mixture", "families"]
)
def test_several_limits_are_estimated(kind: Kind, table: Any):
    entry = table(kind, BASES[0])[0]
    law, truth = entry.law, entry.truth
    limits = [Limit(EVEN, 1, 2), Limit(PRICES * np.pi / 3, 2.0, 6.0)]  # values without a step
    kept = np.logical_and(*(keeping(truth, limit, limit.over(law)) for limit in limits))
    for given in [(), (3,)]:
        chosen = truth.containing(given)
        found, expected = law.probability(limits, given), truth.p[chosen & kept].sum() / truth.p[chosen].sum()
        assert not found.exact
        assert 0 < found.error < 0.06 * expected
        assert abs(found.value - expected) < 4.5 * found.error
    inside = [truth.p[kept & truth.containing([a])].sum() / truth.p[kept].sum() for a in range(6)]
    found = law.inclusion_estimates(limits, n_samples=400)
    assert not found.exact
    assert (np.abs(found.value - inside) < 4.5 * np.sqrt(np.array(inside) * (1 - np.array(inside)) / 400) + 1e-9).all()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_several_limits_with_steps_are_exact(kind: Kind):
    """Counts, prices and a size together, with and without given items."""
    entry = entries(kind, BASES[0])[0]
    law, truth = entry.law, entry.truth
    limits = [Limit(EVEN, 1, 2), Limit(PRICES, 2.0, 6.0)]
    kept = np.logical_and(*(keeping(truth, limit, limit.over(law)) for limit in limits))
    for given, size in [((), None), ((3,), None), ((), 3), ((1,), 3)]:
        chosen = truth.containing(given, size)
        if not truth.p[chosen & kept].sum():
            continue
        found = law.probability(limits, given, size=size)
        assert found.exact
        assert found.value == pytest.approx(truth.p[chosen & kept].sum() / truth.p[chosen].sum(), abs=1e-9)
        inside = [truth.p[chosen & kept & truth.containing([a])].sum() for a in range(6)] / truth.p[chosen & kept].sum()
        np.testing.assert_allclose(law.inclusion_probabilities(size, given, limits=limits), inside, atol=1e-9)


def test_counts_that_fit_need_no_linear_programme(monkeypatch: pytest.MonkeyPatch):
    """Disjoint groups and the size, against all sets of eight items."""
    rng, n, seen = np.random.default_rng(0), 8, set()
    sets = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    monkeypatch.setattr("scipy.optimize.linprog", None)
    for _ in range(200):
        owner = rng.integers(0, 3, n)
        values = np.array([owner == 0, owner == 1, np.ones(n)]).astype(float)
        low, width, most = rng.integers(-1, 5, 3) * (1 - 1e-9), rng.integers(0, 3, 3), int(rng.integers(0, 9))
        high = np.where(rng.random(3) < 0.3, np.inf, (low.clip(0) + width) * (1 + 1e-9))
        limits = Limits(values, np.where(low <= 0, -np.inf, low), high, ("a", "b", "all"), ())
        possible = rng.random(n) < 0.8
        fits = (sets[:, ~possible].sum(axis=1) == 0) & (sets.sum(axis=1) <= most)
        totals = sets @ values.T
        expected = bool((fits & ((limits.low <= totals) & (totals <= limits.high)).all(axis=1)).any())
        assert limits._is_feasible([0, 1, 2], possible & limits.fitting, most) == expected
        seen.add(expected)
    assert seen == {True, False}


def test_what_estimates_say_and_what_has_probability_zero():
    law = entries(KIND["tied mixture"], BASES[0])[0].law
    with pytest.warns(PrecisionWarning, match="estimated from 1000 samples, with standard errors up to 0.0"):
        law.inclusion_probabilities(limits=[Limit(EVEN, 1, 2), Limit(np.sqrt(PRICES), most=4.0)])
    assert law.probability([Limit(EVEN, least=3), Limit([0, 2], most=1)]).value == 0.0
    assert law.probability(Limit(EVEN, most=0), given=[0]).exact
    assert law.probability(Limit(EVEN, least=4)) == law.probability(Limit(EVEN, most=0), given=[2])
    with pytest.raises(ZeroProbabilityError):
        law.exclude([1]).probability(Limit(EVEN, most=1), given=[1])


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("total", [(2.0, 3.0, 3.0), (np.pi, 3.2, 3.3)], ids=["with a step", "without"])
def test_every_verb_says_that_no_set_keeps_limits(kind: Kind, total: tuple[float, float, float]):
    law, (value, least, most) = entries(kind, BASES[0])[0].law, total
    limits = [Limit(np.full(law.n_items, value), least, most)]
    asked = {
        "inclusion_probabilities": (), "size_distribution": (), "entropy": (), "component_inclusions": (), "sample": (1,),
        "log_prob": ([0],), "log_containment": ([0],), "responsibilities": ([0],), "pair_probabilities": ([0, 1],),
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert law.probability(limits).value == 0.0
        for verb, arguments in asked.items():
            with pytest.raises(ImpossibleLimitError, match="keep"):
                getattr(law, verb)(*arguments, limits=limits)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_nothing_at_all_is_impossible_where_the_empty_set_is_left_out(kind: Kind):
    law = nonempty_entries(kind, BASES[0])[0].law
    found = law.probability(Limit(range(6), most=0))
    assert (found.value, found.exact) == (0.0, True)
    assert law.probability(Limit(range(6), least=1)).value == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1e15, 2.0**63])
def test_answers_do_not_depend_on_the_unit_of_values(unit: float):
    """Values of 1e-9 once counted as zero, those above 2^63 overflowed, and totals of 1e15 beside another limit were impossible."""
    law, steps = entries(KIND["kernel"], BASES[0])[0].law, np.array([1, 2, 1, 3, 1, 2])
    for others in ([], [Limit(EVEN, 1, 2)]):
        few, scaled = Limit(steps, 2, 4), Limit(steps * unit, 2 * unit, 4 * unit)
        expected, found = law.probability([few, *others]), law.probability([scaled, *others])
        assert found.exact
        assert float(found) == pytest.approx(float(expected), rel=1e-9)
        assert Limits.of([few, *others], law).kept_by(law.sample(20, limits=[scaled, *others], rng=0)).all()


@pytest.mark.parametrize(("rare", "is_exact"), [(1.0, True), (np.pi / 3, False)])
def test_values_of_very_different_magnitude_are_not_rounded(rare: float, is_exact: bool):
    """What breaks a limit alone needs no steps of its own; values without a common step are estimated."""
    entry = entries(KIND["kernel"], BASES[0])[0]
    limit = Limit(np.array([1e-10, 1e-10, 1e-10 * rare, 1, 1, 1]), most=1.5e-10)
    kept = np.array([len(S) < 2 and set(S) <= {0, 1, 2} for S in entry.truth.sets])
    found = entry.law.probability(limit)
    assert found.exact == is_exact
    assert abs(float(found) - entry.truth.p[kept].sum()) < 5 * found.error + 1e-9
    with pytest.raises(InvalidInputError, match="choose another unit"):
        entry.law.probability(Limit(np.full(6, 1e300), most=1e300))


WITHOUT_STEPS = np.array([np.sqrt(2), np.sqrt(3), np.e, np.pi, np.sqrt(7), np.log(9)])


def test_estimates_say_so_whatever_is_asked():
    law, limit = entries(KIND["tied mixture"], BASES[0])[0].law, Limit(WITHOUT_STEPS, most=5.0)
    under = law.under(law.ask(limits=[limit]))
    asked = {
        "log_prob": ([2],), "log_probs": ([[2], [0, 1]],), "size_distribution": (), "log_containment": ([1],),
        "inclusion_probabilities": (), "component_inclusions": (),
    }  # fmt: skip
    for verb, args in asked.items():
        with pytest.warns(PrecisionWarning, match="estimated from 1000 samples, with standard errors up to 0.0"):
            getattr(under, verb)(*args)
    with pytest.warns(PrecisionWarning, match="are estimated"):
        law.responsibilities([1], limits=[limit])
    assert len(law.sample(5, limits=[limit], rng=0)) == 5  # draws are exact, and say nothing


def test_an_estimate_is_not_certain_because_every_proposal_hits():
    """The truth is not 1, but so close that hardly any of the proposals shows it."""
    law = entries(KIND["kernel"], BASES[0])[0].law.tilt(np.full(6, 1e-2))
    totals = [WITHOUT_STEPS[list(S)].sum() for S in oracles.subsets(6)]
    truth = np.exp(law.log_probs(oracles.subsets(6)))[np.array(totals) <= 6.0].sum()
    found = law.probability(Limit(WITHOUT_STEPS, most=6.0))
    assert truth < 1
    assert not found.exact
    assert 0 < found.error < 0.01
    assert abs(found.value - truth) < 2 * found.error
    inclusions = law.inclusion_estimates([Limit(WITHOUT_STEPS, most=6.0)], n_samples=100)
    assert (inclusions.error > 0).all()
    assert not Estimate.of_hits(100.0, 100.0, 100).exact
    assert Estimate.of_hits(50.0, 50.0, 100).error == pytest.approx(0.05, rel=0.03)
    assert Estimate.of_hits(0.0, 0.0, 1000).error > 1 / 1000


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_all_items_are_given_and_prices_have_three_decimals(kind: Kind):
    entry = entries(kind, BASES[0])[0]
    law, truth = entry.law, entry.truth
    limit = Limit(np.array([0.154, 2.375, 0.75, 1.001, 4.2, 0.036]), most=9.0)
    kept = keeping(truth, limit, limit.over(law))
    assert law.probability(limit).exact
    assert float(law.probability(limit)) == pytest.approx(truth.p[kept].sum(), abs=1e-9)
    if truth.p[-1] > 0:
        assert law.log_containment(range(6), limits=[limit]) == pytest.approx(np.log(truth.p[-1] / truth.p[kept].sum()))
        assert law.size_distribution(given=range(6), limits=[limit])[6] == pytest.approx(1.0)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_only_the_empty_set_keeps_the_limits(kind: Kind):
    law = entries(kind, BASES[0])[0].law
    drawn = law.sample(20, limits=[Limit(PRICES, most=0.0)], exclude=[3], rng=0)
    assert drawn.sizes.tolist() == [0] * 20
