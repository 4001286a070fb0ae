"""What every verb answers under conditions: each check compares one verb with the enumeration of a :class:`~law_conditions.Case`.

``QUESTIONS`` is the whole table. With ``case._replace(forgets=…)``, by which the law does not hear what is said, each is its own
negative control.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import law_verbs
import oracles
from law_conditions import CHANGING, LEAST_MASS, NAMES, Case, items_of, lacking
from law_table import Items, Truth, factors_of
from law_verbs import baskets_of, by_name, close, close_logs, close_scores, entropy_of
from ndpp import Limit
from ndpp.errors import ImpossibleLimitError, ImpossibleSizeError, PrecisionWarning, ZeroProbabilityError
from ndpp.inference.ranking import DAMPING, Ranking

Check = Callable[[Case], None]
N_ESTIMATED = 1000
"""Samples of an estimate."""
SIGMAS = 6.0
SINGLE_PRECISION = 1e4
"""By how much more sizes given an item may be off."""
LISTED = ("given", "candidates", "exclude", "limits")
"""What choose the items of a list or a set, and not the law that scores them."""


class Question(NamedTuple):
    """A check, the verb that it asks, and the conditions that it can be asked under."""

    check: Check
    verb: str
    conditions: frozenset[str]
    only_mixtures: bool = False

    def suits(self, case: Case) -> bool:
        """Return whether laws of this kind have the verb, and the verb takes what is said."""
        said = set(case.said) | ({"nonempty"} if case.entry.truth.p[0] == 0 else set())
        return said <= self.conditions | {"nonempty"} and (case.entry.kind.is_mixture or not self.only_mixtures)


QUESTIONS: dict[str, Question] = {}


def question(verb: str, *, but: frozenset[str] = frozenset(), only_mixtures: bool = False) -> Callable[[Check], Check]:
    """Add a check to the table."""

    def added(check: Check) -> Check:
        conditions = frozenset(NAMES) - but - lacking(verb)
        QUESTIONS[check.__name__.removeprefix("check_")] = Question(check, verb, conditions, only_mixtures)
        return check

    return added


def all_of(case: Case) -> Any:
    return baskets_of(case.entry, case.truth.sets)


def contained(case: Case) -> list[Items]:
    """A few small sets that sets may contain under what is said."""
    sets = law_verbs.some_sets(case.entry._replace(truth=case.truth))
    return [S for S in sets if case.truth.mass(S) > law_verbs.LEAST][::2]


def close_estimate(found: Any, error: Any, exact: bool, expected: Any, what: object) -> None:
    """Compare an estimate with the truth: exactly, or by its standard error."""
    if exact:
        close(found, expected, what)
        return
    expected = np.asarray(expected, float).clip(0.0, 1.0)
    # Where none of the samples, or each of them, has an item, the error is that of the truth.
    allowed = SIGMAS * np.maximum(error, np.sqrt(expected * (1 - expected) / N_ESTIMATED)) + 1e-9
    off = np.abs(np.asarray(found, float) - expected)
    assert (off <= allowed).all(), f"{what}: {found} ± {error} and not {expected}"


# ---- probabilities --------------------------------------------------------------------------------------------------


@question("log_prob")
def check_log_prob(case: Case) -> None:
    for mask in {0, *range(1, len(case.truth.sets), 5), int(case.truth.p.argmax())}:
        S = case.truth.sets[mask]
        close_logs(case.ask("log_prob", S[::-1]), case.truth.p[mask], S)


@question("log_probs")
def check_log_probs(case: Case) -> None:
    close_logs(case.ask("log_probs", all_of(case)), case.truth.p, "log_probs")


@question("log_containment")
def check_log_containment(case: Case) -> None:
    for J in contained(case):
        close_logs(case.ask("log_containment", J), case.truth.mass(J), J)


@question("size_distribution")
def check_size_distribution(case: Case) -> None:
    found, expected = case.ask("size_distribution"), case.truth.size_distribution()
    assert len(found) <= len(expected) or not found[len(expected) :].any()
    close(np.pad(found, (0, max(0, len(expected) - len(found)))), expected, "size_distribution")


@question("sizes_with")
def check_sizes_with(case: Case) -> None:
    truth, items = case.truth, tuple(range(case.truth.n_items))[::-1]
    found = case.ask("sizes_with", items)
    for a, row in zip(items, found, strict=True):
        masses = np.array([truth.mass([a], k) for k in range(truth.n_items + 1)])
        if masses.sum() == 0 or masses.sum() > law_verbs.NEGLIGIBLE:
            expected = masses / (masses.sum() or 1.0)
            close(np.pad(row, (0, max(0, len(expected) - len(row)))), expected, f"sizes with {a}", SINGLE_PRECISION)


@question("responsibilities", only_mixtures=True)
def check_responsibilities(case: Case) -> None:
    truth = case.truth
    for J in contained(case):
        found, law = case.asking("responsibilities", J)
        expected = truth.posterior(truth.containing(J))
        close(np.nan_to_num(by_name(case.entry._replace(law=law), found)), expected, f"responsibilities of {J}")


@question("responsibilities", only_mixtures=True, but=frozenset({"given", "size", "limits"}))
def check_responsibilities_of_whole_sets(case: Case) -> None:
    truth = case.truth
    for J in contained(case):
        if truth.p[oracles.mask_of(J)] > 0:
            found, law = case.asking("responsibilities", J, whole=True)
            expected = truth.posterior(truth.containing(J, len(J)))
            close(np.nan_to_num(by_name(case.entry._replace(law=law), found)), expected, f"of the whole {J}")


@question("inclusion_probabilities")
def check_inclusion_probabilities(case: Case) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", PrecisionWarning)
        found = case.ask("inclusion_probabilities")
    is_estimated = [" are estimated from " in str(one.message) for one in said]
    for one, was_drawn in zip(said, is_estimated):
        if not was_drawn:  # but rounded
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    close_estimate(found, 0.0, not any(is_estimated), case.truth.inclusions(), "inclusion_probabilities")
    if not case.forgets:
        law_verbs.are_certain(found, items_of(case), case.said.get("exclude", ()))


@question("inclusion_estimates")
def check_inclusion_estimates(case: Case) -> None:
    if "limits" in case.said:
        limits = [] if "limits" in case.forgets else list(case.said["limits"])
        found = case.ask("inclusion_estimates", limits)
        close_estimate(found.value, found.error, found.exact, case.truth.inclusions(), "inclusion_estimates")


EVENTS = (Limit([0, 1, 3], least=1, most=2), Limit({0: 0.5, 1: 1.25, 2: 0.75, 3: 2.0}, most=2.0), Limit([1], least=1))


@question("probability", but=frozenset({"limits"}))
def check_probability(case: Case) -> None:
    for event in EVENTS:
        values = event.values if event.counts else dict(event.values)
        kept = [a for a in values if a < case.truth.n_items]
        event = Limit(kept if event.counts else {a: values[a] for a in kept}, event.least, event.most)
        if kept:
            expected = float(case.truth.p[case.truth.within(event)].sum())
            found = case.ask("probability", event)
            close_estimate(found.value, found.error, found.exact, expected, event)


@question("pair_probabilities")
def check_pair_probabilities(case: Case) -> None:
    items = range(case.truth.n_items)
    expected = np.array([[case.truth.mass({a, b}) for b in items] for a in items])
    close(case.ask("pair_probabilities", items), expected, "pair_probabilities")


@question("component_inclusions", only_mixtures=True)
def check_component_inclusions(case: Case) -> None:
    truth = case.truth
    answer, law = case.asking("component_inclusions")
    found = by_name(case.entry._replace(law=law), answer)
    for c, row in enumerate(found):
        table = truth.given_component[c]
        if truth.weights[c] > 0:
            close(row, [table[truth.containing([a])].sum() for a in range(truth.n_items)], truth.names[c])


@question("entropy")
def check_entropy(case: Case) -> None:
    close(case.ask("entropy").value, entropy_of(case.truth.p), "entropy", 10)


@question("sample")
def check_sample(case: Case) -> None:
    """The sets are possible; ``test_draws_under_conditions`` looks at how frequent they are."""
    drawn = case.ask("sample", 8, rng=0)
    assert len(drawn) == 8
    for basket in drawn:
        S = tuple(basket.tolist())
        assert case.truth.p[oracles.mask_of(S)] > 0, f"{S} was drawn, which has probability zero"


# ---- laws again -----------------------------------------------------------------------------------------------------

LAW_ONLY = frozenset(NAMES) - CHANGING
"""Conditions that leave no law of the same kind."""


def close_law(case: Case, found: Any, truth: Truth, what: object) -> None:
    close_logs(found.log_probs(all_of(case)), truth.p, what)


@question("log_probs", but=LAW_ONLY)
def check_law_under(case: Case) -> None:
    """A law under conditions is a law: it has labels, and can be asked like any other."""
    close_law(case, case.law, case.truth, "the law")
    assert list(case.law.labels) == case.labels
    close(case.law.inclusion_probabilities(), case.truth.inclusions(), "its inclusion_probabilities")


@question("condition", but=LAW_ONLY)
def check_condition_on_top(case: Case) -> None:
    for J in contained(case)[1:]:
        if case.truth.has_kernel_given(J) and len(J) < len(case.truth.left):
            close_law(case, case.law.condition(J), case.truth.condition(J), f"condition {J}")


@question("exclude", but=LAW_ONLY)
def check_exclude_and_restrict_on_top(case: Case) -> None:
    left = case.truth.left
    if len(left) > 2:
        entry = case.entry._replace(law=case.law, truth=case.truth)
        law_verbs.check_changed(entry, "exclude", left[:1], case.truth.exclude(left[:1]))
        law_verbs.check_changed(entry, "restrict", left[1:3], case.truth.restrict(left[1:3]))


@question("tilt", but=LAW_ONLY)
def check_tilt_on_top(case: Case) -> None:
    left = case.truth.left
    if len(left) > 2:
        factors = factors_of(left[:3])
        entry = case.entry._replace(law=case.law, truth=case.truth)
        law_verbs.check_changed(entry, "tilt", factors, case.truth.tilt(factors))


@question("at", but=LAW_ONLY | {"context", "mission"}, only_mixtures=True)
def check_at_on_top(case: Case) -> None:
    """Context comes before the other conditions, and so only weighs what they leave of components."""
    if {"customer", "boost", "exclude", "candidates"} & set(case.said) and case.entry.truth.weights.all():
        before, after = case.but(*case.said), case
        weighed = np.nan_to_num(after.truth.weights) * np.resize([4.0, 1.0, 0.25], len(after.truth.weights))
        p = np.nan_to_num(weighed / weighed.sum() @ np.nan_to_num(after.truth.given_component))
        assert before.truth.p.any()
        close_logs(case.law.at(hour=8).log_probs(all_of(case)), p, "at hour 8")


# ---- lists and best sets --------------------------------------------------------------------------------------------


def listable(case: Case) -> np.ndarray:
    """Which items may be listed, or added to a set."""
    allowed = np.ones(case.truth.n_items, bool)
    if "candidates" in case.said:
        allowed &= np.isin(np.arange(len(allowed)), case.said["candidates"])
    allowed[[*case.said.get("exclude", ()), *items_of(case)]] = False
    return allowed & (np.array([case.said.get("boost", {}).get(a, 1.0) for a in range(len(allowed))]) > 0)


def keeps(case: Case, items: Items) -> bool:
    return all(case.truth.within(limit)[oracles.mask_of(set(items))] for limit in case.said.get("limits", ()))


def best_list(case: Case, basket: Items, keys: np.ndarray, n: int) -> list[int]:
    """The best items, one after another, with which the basket keeps the limits; of equal ones the first."""
    found: list[int] = []
    for a in np.argsort(-np.round(keys / (keys.max() or 1.0), 10), kind="stable").tolist():
        if keys[a] > 0 and len(found) < n and keeps(case, (*basket, *found, a)):
            found.append(a)
    return found


def baskets_begun(case: Case, truth: Truth) -> list[Items]:
    """What is given; if nothing is, also the last item that may be listed."""
    more = [(int(a),) for a in np.flatnonzero(listable(case))[::-1] if truth.mass([a]) > LEAST_MASS]
    return [items_of(case)] if items_of(case) else [(), *more[:1]]


def check_ranking(case: Case, ranking: Ranking, verb: str = "recommend") -> None:
    """Scores are those of the law under what weighs sets; candidates, excluded items and limits choose what is listed.

    What is usual is so for everybody, whose basket it may be.
    """
    if any(limit.least is not None for limit in case.said.get("limits", ())):
        return  # lists keep upper limits
    truth = case.but(*LISTED).truth
    popularity = case.but(*LISTED, "customer").truth.inclusions()
    usual = np.where(popularity > 0, popularity, 1.0)
    damped = usual ** (DAMPING if ranking is Ranking.CONTINUATION else 0.0)
    options: dict[str, Any] = {"n": 4, "ranking": ranking} | ({"support": 0.0} if ranking is Ranking.LIFT else {})
    for J in baskets_begun(case, truth):
        if (ranking.is_whole and truth.p[oracles.mask_of(J)] == 0) or not keeps(case, J):
            continue
        is_lift = ranking is Ranking.LIFT
        scores = law_verbs.ranked(case.entry._replace(truth=truth), Ranking.CONTINUATION if is_lift else ranking, J)
        scores = scores / usual if is_lift else scores
        keys = np.where(listable(case) & (scores > 1e-12), scores / damped, 0.0)
        if verb == "recommend_many":
            (found,) = case.ask(verb, baskets_of(case.entry, [J]), **options)
        else:
            found = case.ask(verb, J, **options)
        close_scores(found.scores, scores[found.items], f"scores for {J}")
        expected = best_list(case, J, keys, 4)
        close_scores(keys[found.items], keys[expected], f"{found.items} and not {expected} for {J}")
        assert list(found.labels) == [case.labels[a] for a in found.items]


@question("recommend", but=frozenset({"size"}))
def check_recommend_by_completion(case: Case) -> None:
    check_ranking(case, Ranking.COMPLETION)


@question("recommend", but=frozenset({"size"}))
def check_recommend_by_continuation(case: Case) -> None:
    check_ranking(case, Ranking.CONTINUATION)


@question("recommend", but=frozenset({"size"}))
def check_recommend_by_lift(case: Case) -> None:
    check_ranking(case, Ranking.LIFT)


@question("recommend_many", but=frozenset({"size"}))
def check_recommend_many(case: Case) -> None:
    for ranking in Ranking:
        check_ranking(case, ranking, "recommend_many")


@question("greedy_map", but=frozenset({"size"}))
def check_greedy_map(case: Case) -> None:
    """The one item that is added has the best score of those with which the limits are kept."""
    truth = case.but(*LISTED).truth
    for J in baskets_begun(case, truth):
        if truth.p[oracles.mask_of(J)] == 0:
            continue
        options = {} if "given" in case.said else {"given": J}
        scores = np.where(listable(case), truth.next_scores(J), 0.0)
        scores = np.array([score if keeps(case, (*J, a)) else 0.0 for a, score in enumerate(scores)])
        if scores.max() > 1e-9:
            found = case.ask("greedy_map", len(J) + 1, **options)
            assert tuple(found[:-1].tolist()) == J
            assert scores[found[-1]] >= scores.max() * (1 - 1e-9), f"{found} with scores {scores}"
        elif scores.max() == 0:
            with pytest.raises((ImpossibleSizeError, ImpossibleLimitError, ZeroProbabilityError)):
                case.ask("greedy_map", len(J) + 1, **options)


@question("best_set")
def check_best_set(case: Case) -> None:
    """It is a set that may be, and no other is better than the bound says."""
    truth = case.truth
    sizes = [k for k in truth.possible_sizes if k > len(items_of(case)) and truth.mass((), k) > 1e-9]
    if sizes:
        size = sizes[len(sizes) // 2]
        found = case.ask("best_set", size, n_samples=0)
        p = np.where(truth.sizes == size, truth.p, 0.0)
        own = p[oracles.mask_of(found.items.tolist())]
        assert own > 0, f"{found.items} has probability zero"
        assert found.gap >= np.log(p.max() / own) - 1e-9, f"{found} with {own} of {p.max()}"
