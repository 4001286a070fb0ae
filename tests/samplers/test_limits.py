"""Samples under limits: every kind of law against its enumeration, and what is refused."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ndpp
from families import ODDS as FAMILY_ODDS
from families import law_of
from goodness import assert_law
from law_table import BASES, KIND, KINDS, Entry, Kind, entries
from limit_cases import CASES, EVEN, ODD, PRICES, Case, entry_of, is_possible, law_under, truth_under
from ndpp import Baskets, Limit
from ndpp._types import FloatArray
from ndpp.errors import (
    BudgetExceededError,
    ImpossibleLimitError,
    InvalidInputError,
    UnknownItemError,
    UnknownLabelError,
)
from ndpp.laws.limits import Limits
from ndpp.laws.tied import TiedMixture
from ndpp.linalg.tilts import GroupedCoins, TotalCumulants, chernoff_tilts
from ndpp.samplers.family_parts import FamilyTotals
from ndpp.samplers.limited_ties import RATIO, rounded
from ndpp.samplers.proposer import Proposer, towards


@pytest.fixture(autouse=True)
def _always_tilted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tilt components even where limits are kept so often that it does not pay."""
    monkeypatch.setattr("ndpp.samplers.limited_ties.MIN_LIMIT_ACCEPTANCE", np.inf)
    monkeypatch.setattr("ndpp.samplers.limited_ties.MAX_PROPOSAL_RATIO_GIVEN", 1.05)


def check_draws(sampler: Proposer, law: dict[tuple[int, ...], float], n: int = 300) -> None:
    """Judge draws, together with as many again while they are too few to see an error."""
    drawn = sampler.sample(n, rng=0).baskets
    while True:
        try:
            return assert_law(drawn, law)
        except ValueError:
            drawn = Baskets.concat([drawn, sampler.sample(n, rng=0, first=len(drawn)).baskets])


MET = [(kind, case) for kind in KINDS for case in CASES if is_possible(kind, case)]


@pytest.mark.parametrize(("kind", "case"), MET[::2], ids=str)
def test_samples_follow_the_law_under_limits(kind: Kind, case: Case):
    """Kinds take the cases in turn: the weights that all of them propose with are compared below."""
    entry = entry_of(kind)
    check_draws(entry.law.sampler(limits=case.limits, **case.options), law_under(entry.truth, case))


@pytest.mark.parametrize(("kind", "case"), MET, ids=str)
def test_weights_of_components_are_those_of_all_proposals(kind: Kind, case: Case):
    check_weights(entry_of(kind), case)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_weights_of_components_of_awkward_and_changed_laws(kind: Kind):
    met = 0
    for i, base in enumerate(base for base in BASES if base.n_items == 6):
        for entry in entries(kind, base):
            case = CASES[(i + 4 * bool(entry.change)) % len(CASES)]
            if (
                set(case.options.get("given", ())) <= set(entry.truth.left)
                and truth_under(entry.truth, case).sum() > 1e-9
            ):
                check_weights(entry, case)
                met += 1
    assert met > 8


def check_weights(entry: Entry, case: Case) -> None:
    """w_c A_c sums w_c P_c(S) e^{θ·(c(S) − b)} over all sets that may be proposed."""
    sampler, truth = entry.law.sampler(limits=case.limits, **case.options), entry.truth
    places = [truth.names.index(name) for name in entry.law.names or truth.names]  # those that cannot be are left out
    joint, under = truth.joint[places], truth_under(truth, case)[places]
    given, exclude = case.options.get("given", []), case.options.get("exclude", [])
    beside = Limits.of(case.limits, entry.law).beside(np.array(given, int))
    # Of an average of laws, each draws from its own components.
    laws = getattr(sampler.drawers, "samplers", (sampler,))
    owners = [(own.drawers, k) for own in laws for k in range(len(own.log_weights))]
    for c, (log_weight, (drawers, k)) in enumerate(zip(sampler.log_weights, owners, strict=True)):
        tilts = getattr(drawers, "tilts", None)
        proposable = truth.containing(given, case.options.get("size") if tilts is None else None)
        if tilts is None:
            log_factors = np.where(beside.fitting, 0.0, -np.inf)
            log_factors[exclude] = -np.inf
        else:
            log_factors = tilts.unfit * drawers.is_tilted[k]
        log_factors[given] = 0.0
        weights = [
            np.exp(
                sampler.left.theta[c] @ (sampler.limits.totals(np.array(S, int)) - sampler.left.bound[c])
                + log_factors[list(S)].sum()
            )
            for S in truth.sets
        ]
        expected = float(joint[c] @ np.where(proposable, weights, 0.0))
        if log_weight > -np.inf:
            np.testing.assert_allclose(np.exp(log_weight), expected, rtol=1e-9)
        else:
            assert under[c].sum() < 1e-12


# ---- negative controls ----------------------------------------------------------------------------------------------

SHARED = [KIND["tied mixture"], KIND["families"]]
BINDING = {
    "symmetric kernel": Case("at least 6", [Limit(PRICES, least=6.0)]),
    "families": Case("at least four", [Limit(range(6), least=4)]),
}
"""Limits far from what is common, where they are not ``CHEAP``."""
CHEAP = Case("at most 4.5", [Limit(PRICES, most=4.5)])
APART = Case("apart", [Limit([2, 3], 2, 2)])
GIVEN = Case("given", [Limit(EVEN, 2, 2)], {"given": [0]})


@pytest.mark.parametrize("kind", [KIND["symmetric kernel"], KIND["kernel with background"], *SHARED], ids=str)
def test_leaving_out_the_acceptance_factor_is_seen(kind: Kind):
    entry, case = entry_of(kind), BINDING.get(kind.name, CHEAP)
    sampler = entry.law.sampler(limits=case.limits)
    assert np.abs(sampler.left.theta).max() > 0.1
    with pytest.raises(AssertionError):
        check_draws(
            replace(sampler, left=sampler.left._replace(theta=0 * sampler.left.theta)),
            law_under(entry.truth, case),
            1200,
        )


@pytest.mark.parametrize("kind", [KIND["kernel"], *SHARED], ids=str)
def test_limits_that_do_not_count_given_items_are_seen(kind: Kind):
    entry = entry_of(kind)
    sampler = entry.law.sampler(limits=GIVEN.limits, given=[0])
    values = sampler.limits.values.copy()
    values[:, 0] = 0.0
    wrong = replace(sampler, left=sampler.left._replace(limits=replace(sampler.limits, values=values)))
    with pytest.raises((AssertionError, BudgetExceededError)):
        check_draws(wrong, law_under(entry.truth, GIVEN))


@pytest.mark.parametrize("kind", [KIND["mixture"], *SHARED], ids=str)
def test_components_weighed_without_their_bounds_are_seen(kind: Kind):
    entry = entry_of(kind)
    sampler = entry.law.sampler(limits=APART.limits)
    with pytest.raises(AssertionError):
        check_draws(replace(sampler, log_weights=entry.law._log_weights), law_under(entry.truth, APART), 2000)


@pytest.mark.parametrize("kind", SHARED, ids=str)
def test_one_tilt_for_all_components_is_exact_as_well(kind: Kind, monkeypatch: pytest.MonkeyPatch):
    entry = entry_of(kind)
    with monkeypatch.context() as patch:

        def always_the_same(law: TotalCumulants, low: object, high: object, start: FloatArray) -> object:
            theta = np.tile([[0.3, -0.4]], (len(start), 1))
            return theta, law.cumulants(theta, np.arange(len(theta)))[0]

        patch.setattr("ndpp.samplers.limited_ties.chernoff_tilts", always_the_same)
        law = ndpp.laws.Mixture.only(entry.law, range(3))  # one that has nothing prepared
        sampler = law.sampler(limits=CASES[2].limits[::-1])
    assert sampler.left.theta.any()
    check_draws(sampler, law_under(entry.truth, CASES[2]))


# ---- what does not depend on how it is drawn ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_draws_depend_on_seed_and_index_alone(kind: Kind):
    law, limits = entry_of(kind).law, CASES[4].limits
    sampler = law.sampler(limits=limits)
    all_of_them = sampler.sample(12, rng=3).baskets.to_lists()
    assert sampler.sample(5, rng=3, first=7).baskets.to_lists() == all_of_them[7:]
    assert law.sample(12, limits=limits, rng=3, n_jobs=2).to_lists() == all_of_them
    assert pickle.loads(pickle.dumps(sampler)).sample(12, rng=3).baskets.to_lists() == all_of_them


def test_baskets_share_what_is_prepared():
    law = entry_of(KIND["families"]).law
    first, second = (law.sampler(limits=[Limit(EVEN, 1, 2)], given=[a]) for a in (1, 3))
    assert first.drawers.tilts is second.drawers.tilts
    assert law.sampler(limits=[Limit(EVEN, 1, 2)], given=[0]).drawers.tilts is not first.drawers.tilts


@pytest.mark.parametrize("kind", [KIND["mixture"], KIND["tied mixture"]], ids=str)
def test_one_component(kind: Kind):
    entry, case = entry_of(kind), CASES[1]
    p = truth_under(entry.truth, case)[1]
    law = {S: float(x) for S, x in zip(entry.truth.sets, p / p.sum()) if x > 0}
    check_draws(entry.law.sampler(limits=case.limits, component="two"), law)


def test_rounded_bounds_are_wider():
    values = np.array([[1.0, 2.0], [0.5, 0.7], [1.0, 1.0]])
    limits = Limits(values, np.array([3.0, 2.2, -1.0]), np.array([5.0, 7.7, 40.0]), ("a", "b", "c"), ())
    wider = rounded(limits)
    assert (wider.low[0], wider.high[0], wider.low[2]) == (3, 5, -np.inf)
    assert 2.2 / RATIO <= wider.low[1] <= 2.2
    assert 7.7 <= wider.high[1] <= 7.7 * RATIO
    assert 40 <= wider.high[2] <= 40 * RATIO


def test_the_best_tilt_of_independent_items():
    rng = np.random.default_rng(0)
    p, values = (
        rng.uniform(0.2, 0.5, (5, 1)) * rng.uniform(0.03, 0.6, 200),
        np.stack([rng.integers(0, 2, 200), rng.uniform(1, 9, 200)]).astype(float),
    )
    limits = Limits(values, np.array([40.0, -np.inf]), np.array([np.inf, 120.0]), ("count", "total"), ())
    coins = GroupedCoins.of(p, values)
    assert coins.p.shape[1] < 150
    nothing = np.zeros((5, 2))
    theta, log_mean = chernoff_tilts(coins, limits.low, limits.high, nothing)
    np.testing.assert_allclose(log_mean, coins.cumulants(theta, np.arange(5))[0], rtol=1e-12)
    log_bound = log_mean - theta @ [40.0, 120.0]
    odds = p / (1 - p) * np.exp(theta @ values)
    mean, variance = (odds / (1 + odds)) @ values.T, (odds / (1 + odds) ** 2) @ (values**2).T
    assert (theta[:, 0] > 0).all()
    assert (theta[:, 1] < 0).all()
    np.testing.assert_array_less(np.abs(mean - [40, 120]), 0.5 * np.sqrt(variance))
    exact = (np.log1p(p * np.expm1(theta @ values))).sum(axis=1) - theta @ [40.0, 120.0]
    np.testing.assert_allclose(log_bound, exact, rtol=0.02)
    assert (chernoff_tilts(coins, limits.low * 0.01, limits.high * 100, nothing)[0] == 0).all()
    assert towards(theta, limits).tolist() == [[40.0, 120.0]] * 5


@pytest.mark.parametrize("theta", [[0.0, 0.0], [0.7, -0.2]])
def test_cumulants_of_families_are_derivatives_of_their_weights(theta: list[float]):
    """Of families without ties, log Z is the sum that the cumulants are of; items with other values are beside them."""
    patterns, odds = law_of("several").patterns, np.array(FAMILY_ODDS)
    values = np.array([[1.0, 0, 2.0, 0, 0.5, 0], [0, 3.0, 1.0, 0, 0, 1.0]])
    factors = np.array([1.0, 0.5, 1.3])
    law = FamilyTotals.of(patterns, odds, factors, values, np.zeros(6, bool))

    def log_mean(theta: np.ndarray) -> np.ndarray:
        tilted = patterns.with_odds(patterns.odds * np.exp(theta @ values)[:, None])
        totals = np.append(np.expm1(tilted.log_totals), 0.0)[patterns.slots]
        weights = np.pad(odds * factors[:, None], ((0, 0), (0, 1)))[:, patterns.slots]
        return np.log1p((weights * totals).sum(axis=2)).sum(axis=1)

    def central(f: Any, step: float) -> Any:
        at, units = np.array(theta), step * np.eye(2)
        return np.stack([(f(at + unit) - f(at - unit)) / (2 * step) for unit in units], axis=-1)

    logs, means, covariances = law.cumulants(np.array([theta] * 3), np.arange(3))
    np.testing.assert_allclose(logs, log_mean(np.array(theta)) - log_mean(np.zeros(2)), atol=1e-12)
    np.testing.assert_allclose(means, central(log_mean, 1e-5), rtol=1e-7)
    gradient = lambda at: law.cumulants(np.array([at] * 3), np.arange(3))[1]  # noqa: E731
    np.testing.assert_allclose(covariances, central(gradient, 1e-5), rtol=1e-7)
    some = law.cumulants(np.array([theta]), np.array([2]))
    assert some[0] == logs[2]


def test_items_of_families_are_tilted_less_than_independent_ones():
    """Ten items come together, so that a tilt of one counts up to ten times; mostly, there is none of them.

    With tilts of independent items, Chernoff's bounds would be above 1, components stay as they are, and 650 proposals be needed.
    """
    rng, n_families, size = np.random.default_rng(0), 12, 10
    n, states = n_families * size, np.repeat(np.arange(n_families), 2)
    item_odds = np.stack([np.full(n, 0.1), rng.uniform(1.0, 3.0, n)], axis=1)
    of_state = np.expm1(np.log1p(item_odds).reshape(n_families, size, 2).sum(axis=1)).ravel()
    odds = rng.gamma(0.5, 1.0, (5, len(states))) * [[0.02], [0.02], [0.02], [0.02], [1.0]] / of_state
    X, weights = rng.normal(size=(n_families, 2)) / 10, [0.24] * 4 + [0.04]
    law = ndpp.FamilyMixture(odds, item_odds, np.repeat(np.arange(n_families), size), states, X, np.eye(2), weights)
    limits = [Limit(range(first, n, 3), 4, 4) for first in (0, 1)]
    drawn = law.sampler(limits=limits).sample(40, rng=0)
    assert drawn.info["proposals"].mean() < 100
    for limit in limits:
        assert {len(set(limit.values) & set(basket.tolist())) for basket in drawn.baskets} == {4}


# ---- limits ---------------------------------------------------------------------------------------------------------


def test_values_of_limits():
    law = entry_of(KIND["kernel"]).law
    labels = list(law.labels)
    pandas = pytest.importorskip("pandas")
    for values in (PRICES, dict(enumerate(PRICES)), dict(zip(labels, PRICES)), pandas.Series(PRICES, labels)):
        assert Limit(values, most=1).over(law).tolist() == PRICES.tolist()
    for group in (EVEN, tuple(EVEN), [labels[a] for a in EVEN], set(EVEN)):
        assert Limit(group, most=1).over(law).tolist() == [1, 0, 1, 0, 1, 0]
    assert Limit({2: 5.0}, most=1).over(law).tolist() == [0, 0, 5, 0, 0, 0]
    assert law.sample(2, limits=Limit(EVEN, 1, 1), rng=0) is not None  # one needs no list


@pytest.mark.parametrize(
    ("limit", "error", "match"),
    [
        (lambda: Limit([0, 1]), InvalidInputError, "no bound"),
        (lambda: Limit([0, 1], 3, 2, name="pair"), ImpossibleLimitError, "'pair'.*contradicts itself"),
        (lambda: Limit([0, 1], least=-1), InvalidInputError, "least.*must be a finite number"),
        (lambda: Limit([0, 1], most=np.nan), InvalidInputError, "most.*must be a finite number"),
        (lambda: Limit([0, 1], most="two"), InvalidInputError, "most.*must be a finite number"),
    ],
)
def test_limits_that_are_none(limit: Any, error: Any, match: str):
    with pytest.raises(error, match=match):
        limit()


REFUSED: list[tuple[list[Any], dict[str, Any], Any, str]] = [
    ([Limit({0: np.nan}, most=1, name="price")], {}, InvalidInputError, "limit 'price'.*finite.*item 0 of 6.*nan"),
    ([Limit([-1.0] * 6, most=1)], {}, InvalidInputError, "sequence of integer item ids"),
    ([Limit(np.array([1.0, -2, 0, 0, 0, 0]), most=1)], {}, InvalidInputError, "item 1 of 6.*-2"),
    ([Limit(np.ones(5), most=1)], {}, InvalidInputError, "6 entries"),
    ([Limit([7], most=1)], {}, UnknownItemError, "unknown item id 7"),
    ([Limit(["tea"], most=1)], {}, UnknownLabelError, "tea"),
    (["dairy=2"], {}, InvalidInputError, "list of ndpp.Limit"),
    ([Limit(EVEN, least=4, name="even")], {}, ImpossibleLimitError, "'even'.*cannot be reached.* 3 at most"),
    ([Limit(PRICES, least=20.0, name="spend")], {}, ImpossibleLimitError, "'spend'.*cannot be reached"),
    ([Limit(EVEN, most=1, name="few")], {"given": [0, 2]}, ImpossibleLimitError, "given items break.*'few'.*come to 2"),
    (
        [Limit(EVEN, least=3, name="a"), Limit([0, 1, 2], most=1, name="b"), Limit(ODD, most=1)], {},
        ImpossibleLimitError, "together: 'a'.*'b'.*items$",
    ),
    ([Limit(EVEN, 2, 2), Limit(ODD, 2, 2)], {"size": 3}, ImpossibleLimitError, "together"),
    ([Limit(EVEN, 1, 2)], {"exclude": EVEN}, ImpossibleLimitError, "cannot be reached"),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_cannot_be_is_refused_and_named(kind: Kind):
    law = entry_of(kind).law
    for limits, options, error, match in REFUSED:
        with pytest.raises(error, match=match):
            law.sampler(limits=limits, **options)


def test_limits_of_probability_zero_are_refused(monkeypatch: pytest.MonkeyPatch):
    """Three items of rank two, of which each pair would do by its sums."""
    kernel = ndpp.LowRankKernel(np.array([[1.0, 0], [2.0, 0], [0, 1.0]]), np.eye(2))
    with pytest.raises(ImpossibleLimitError, match="cannot be reached"):
        kernel.sample(limits=[Limit([0, 1, 2], least=3)])
    monkeypatch.setattr("ndpp.samplers.proposer.MAX_EXPECTED", 400)
    monkeypatch.setattr("ndpp.samplers.proposer.PILOT_PROPOSALS", 1000)
    found = kernel.probability(Limit([0, 1], least=2))
    assert (found.value, found.exact) == (0.0, True)
    for conditions in ({}, {"size": 2}):
        with pytest.raises(ImpossibleLimitError, match="zero to double precision: at least 2 of 2") as refused:
            kernel.sample(limits=[Limit([0, 1], least=2)], **conditions)
        assert refused.value.limits == ("at least 2 of 2 items",)
    values = Limit(
        dict(enumerate(np.sqrt([2.0, 3.0]))), least=np.sqrt(2) + np.sqrt(3) - 1e-9
    )  # no step: nothing exact is known
    with pytest.raises(BudgetExceededError, match="may be impossible"):
        kernel.sample(limits=[values])


TENTHS = np.array([4.11, 3.45, 4.67, 1.16, 2.05, 3.07])


@pytest.mark.parametrize(
    ("limit", "options"),
    [
        (Limit(TENTHS * np.pi, 20.0, 20.0), {}),
        (Limit(TENTHS * np.pi, 20.0, 20.0), {"given": [0], "exclude": [3]}),
        (Limit(TENTHS, 9.3, 9.5), {"size": 3}),
        (Limit(TENTHS, most=1.0), {"size": 3}),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_totals_that_no_set_has_are_impossible(kind: Kind, limit: Limit, options: dict[str, Any]):
    """The items would do in parts."""
    with pytest.raises(ImpossibleLimitError):
        entry_of(kind).law.sample(limits=[limit], rng=0, **options)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_only_the_empty_set_may_keep_a_limit(kind: Kind):
    law, limit = entry_of(kind).law, Limit(TENTHS, most=1.0)
    assert law.sample(2, limits=limit, rng=0).to_lists() == [[], []]
    with pytest.raises(ImpossibleLimitError):
        law.without_empty().sample(limits=limit)


def test_an_estimate_from_equal_proposals_is_not_certain():
    law = ndpp.LowRankKernel(np.eye(3), np.eye(3), background=np.full(3, 30.0))
    estimate = law.probability([Limit(np.array([3.4, 2.8, 2.4]) * np.pi, least=1.0)])
    assert not estimate.exact
    assert abs(estimate.value - (1 - 32.0**-3)) <= estimate.error


@pytest.mark.parametrize("shared", [False, True])
def test_limits_that_no_component_can_keep_have_probability_zero(shared: bool):
    odds, labels = np.array([[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]), ["a", "b", "c", "d"]
    if shared:
        law = ndpp.Mixture.tied(odds, np.full((4, 1), 0.1), np.eye(1), [0.5, 0.5], labels=labels)
    else:
        law = ndpp.Mixture([ndpp.LowRankKernel(np.diag(np.sqrt(own)), labels=labels) for own in odds], [0.5, 0.5])
    limits = [Limit(["a"], least=1, name="first"), Limit(["c", "d"], least=1, name="last")]
    with pytest.raises(ImpossibleLimitError, match=r"probability zero: 'first'.*; 'last'") as caught:
        law.sample(limits=limits)
    assert len(caught.value.limits) == 2
    assert law.probability(limits).value == 0.0


def test_common_limits_need_no_tilts(monkeypatch: pytest.MonkeyPatch):
    """Nothing is prepared where enough proposals are accepted anyway; with given items less is enough."""
    entry = entry_of(KIND["tied mixture"])
    for common, given, expected in ((0.05, [], False), (2.0, [1], False), (2.0, [], True)):
        monkeypatch.setattr("ndpp.samplers.limited_ties.MIN_LIMIT_ACCEPTANCE", common)
        monkeypatch.setattr("ndpp.samplers.limited_ties.ACCEPTANCE_DISCOUNT", 0.01)
        law = ndpp.laws.Mixture.only(entry.law, range(3))  # one that has nothing prepared
        sampler = law.sampler(limits=CHEAP.limits, given=given)
        assert sampler.drawers.is_tilted.any() == expected
        assert sampler.drawers.tilts.components.is_known.any() == expected


def test_too_many_proposals_are_refused_with_their_number():
    rng = np.random.default_rng(0)
    odds = np.full((2, 200), 0.5)
    mixture = ndpp.Mixture.tied(odds, rng.normal(size=(200, 2)) / 20, np.eye(2), [0.5, 0.5])
    groups = [Limit(range(10 * g, 10 * g + 10), 3, 3, name=f"group {g}") for g in range(20)]
    with pytest.raises(
        BudgetExceededError, match=r"about \d.*e\+\d+ proposals each, above 10000; .*'group \d+'.*Widen it"
    ):
        mixture.sample(limits=groups, rng=0)
    assert mixture.sample(2, limits=groups[:2], rng=0).sizes.min() >= 6


@pytest.mark.parametrize("n_changed", [2, 8, 30])
def test_components_are_updated_where_few_rows_change(n_changed: int):
    """At most the rank, a few times the rank, and more rows: the same N and Z as from the tilted odds."""
    rng = np.random.default_rng(0)
    mixture = ndpp.Mixture.tied(
        rng.gamma(0.5, 1.0, (3, 30)),
        rng.normal(size=(30, 3)) / 2,
        np.array([[1, 1, 0], [-1, 1, 2], [0, -2, 1]]),
        [0.2, 0.3, 0.5],
    )
    tilts = mixture.sampler(limits=[Limit(range(n_changed), least=0.7 * n_changed)]).drawers.tilts.components
    tilts._know(mixture, np.arange(3))
    state = TiedMixture(tilts.odds, mixture.base, mixture.weights)._state
    np.testing.assert_allclose(tilts.N, state.N, atol=1e-10)
    np.testing.assert_allclose(tilts.log_change, state.log_z - mixture.log_normalizers(), atol=1e-10)
