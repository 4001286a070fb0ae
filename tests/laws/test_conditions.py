"""Laws under conditions: every kind over every awkward base, under conditions and pairs of them: ``law_conditions`` × ``law_questions``."""

from __future__ import annotations

import warnings
from functools import cache

import pytest

import law_table
from goodness import assert_law
from law_conditions import NAMES, PAIRS, Case, Person, base_entry, case_of, lacking
from law_questions import QUESTIONS, Question
from law_table import BASES, KIND, KINDS, LAWS, Base, Entry, Kind
from law_verbs import close_scores
from ndpp import Baskets
from ndpp.errors import PrecisionWarning
from ndpp.inference.ranking import recommend_many

GENERIC, BADLY_SCALED = BASES[0], next(base for base in BASES if base.name == "badly scaled rows")
WITHIN_LIMITS = "sets within these limits: .* leave a relative error"


@cache
def plain(kind: Kind, base: Base) -> Entry:
    return base_entry(law_table.entries(kind, base)[0])


def asked(kind: Kind, base: Base) -> list[tuple[Case, str]]:
    """What a law is asked, and under what: the next condition and the next pair of conditions, by every third verb in turn.

    Over the generic base, all verbs are asked under all conditions.
    """
    turn, entry, found = LAWS.index((kind, base)), plain(kind, base), []
    singles, pairs = [(NAMES[turn % len(NAMES)],)], [PAIRS[7 * turn % len(PAIRS)]]
    if base is GENERIC:
        singles, pairs = [(name,) for name in NAMES], list(PAIRS[KINDS.index(kind) :: len(KINDS)])
    for k, names in enumerate([*singles, *pairs]):
        case = case_of(entry, names, turn)
        chosen = [
            name for i, name in enumerate(QUESTIONS) if (i + k + turn) % 3 == 0 or (base is GENERIC and k < len(NAMES))
        ]
        found += [] if case is None else [(case, name) for name in chosen if QUESTIONS[name].suits(case)]
    return found


@pytest.mark.parametrize(("kind", "base"), LAWS, ids=str)
def test_every_verb_under_conditions(kind: Kind, base: Base):
    failures = []
    for case, name in asked(kind, base):
        try:
            with warnings.catch_warnings():
                if base is BADLY_SCALED and "limits" in case.said:  # few sets keep some of them
                    warnings.filterwarnings("ignore", f".*{WITHIN_LIMITS}", PrecisionWarning)
                QUESTIONS[name].check(case)
        except (Exception, pytest.fail.Exception) as error:
            failures.append(f"{name} of {case}: {error!r}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("also", ["given", "exclude", "mission", "nonempty"])
def test_lists_for_a_customer_under_a_boost(kind: Kind, also: str):
    """Three conditions that lists and laws have to take in one order."""
    cases = [case_of(plain(kind, GENERIC), ("boost", "customer", also), turn) for turn in (1, 2)]
    for case in filter(None, cases):
        for name in ("recommend_by_continuation", "recommend_by_lift", "recommend_many"):
            if QUESTIONS[name].suits(case):
                QUESTIONS[name].check(case)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_out_of_stock_may_be_in_the_basket(kind: Kind):
    law, person = plain(kind, GENERIC).law, Person((0.5, 4.0, 2.0), {0: 3.0, 2: 0.5})
    for J, boost in (((2,), {2: 0.0, 3: 1.5, 0: 8.0}), ((0, 3), {0: 0.0, 2: 0.0, 1: 2.0})):
        said = {"boost": boost, "customer": person}
        expected = law.inclusion_probabilities(given=J, **said)
        one = law.recommend(J, damping=0.0, **said)
        (many,) = recommend_many(law, Baskets.from_lists([list(J)], n_items=law.n_items), damping=0.0, **said)
        for found in (one, many):
            close_scores(found.scores, expected[found.items], J)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.is_mixture], ids=str)
def test_where_rounding_may_matter_within_limits_answers_are_right_and_say_so(kind: Kind):
    case = case_of(plain(kind, BADLY_SCALED), ("exclude", "limits"))
    assert case is not None
    with pytest.warns(PrecisionWarning, match=WITHIN_LIMITS):
        QUESTIONS["log_containment"].check(case)


def test_every_verb_is_asked_under_every_condition_that_it_takes():
    met = {(name, said) for law in LAWS for case, name in asked(*law) for said in case.said}
    wanted = {(name, said) for name, question in QUESTIONS.items() for said in question.conditions - {"nonempty"}}
    assert not wanted - met


def test_every_verb_takes_every_condition():
    verbs = {question.verb for question in QUESTIONS.values()} - {*CHANGES}
    assert not {verb: lacking(verb) for verb in verbs if lacking(verb)}


CHANGES = ("condition", "exclude", "restrict", "tilt", "at")
"""Verbs that return laws."""


# ---- the table can fail ---------------------------------------------------------------------------------------------

UNSEEN = {
    "inclusion_estimates": set(NAMES) - {"limits"},  # it is asked with limits
    "component_inclusions": {"context", "mission"},  # these weigh components
    "responsibilities_of_whole_sets": {"exclude", "candidates", "boost"},  # so do these, and the set is known
    "sample": {"boost", "context", "mission", "customer"},  # everything stays possible
    "greedy_map": {"limits", "context", "mission"},  # the best item is the same
    "best_set": {"size", "limits", "customer"},  # so is the best set; its size is an argument
    # What is given is the basket, an argument.
    "recommend_by_completion": {"given"},
    "recommend_by_continuation": {"given"},
    "recommend_by_lift": {"given"},
    "recommend_many": {"given"},
}
"""Conditions that an answer does not depend on, or not in a way that can be seen."""


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_verb_that_does_not_hear_a_condition_is_rejected(name: str):
    entry, question = plain(KIND["tied mixture"], GENERIC), QUESTIONS[name]
    missed = [said for said in NAMES if not is_seen(entry, question, said, UNSEEN.get(name, set()))]
    assert not missed


def is_seen(entry: Entry, question: Question, said: str, unseen: set[str]) -> bool:
    """Return whether the check fails if one condition is not said to the law, or need not."""
    case = None if said == "nonempty" or said in unseen else case_of(entry, (said,))
    if case is None or not question.suits(case):
        return True
    try:
        question.check(case._replace(forgets=frozenset({said})))
    except (AssertionError, pytest.fail.Exception):
        return True
    return False


# ---- draws ----------------------------------------------------------------------------------------------------------

DRAWN = (
    ("kernel", ("given", "size")),
    ("kernel with background", ("boost", "limits")),
    ("mixture", ("given", "context")),
    ("mixture", ("mission", "nonempty")),
    ("tied mixture", ("size", "customer")),
    ("tied mixture", ("exclude", "limits")),
    ("families", ("candidates", "boost")),
    ("families", ("given", "customer")),
)
N_DRAWN = 700


def draw(case: Case) -> None:
    """Fail unless samples follow the truth."""
    law = {S: p for S, p in zip(case.truth.sets, case.truth.p.tolist()) if p > 0}
    assert_law(case.ask("sample", N_DRAWN, rng=1), law)


@pytest.mark.parametrize(("kind", "names"), DRAWN, ids=str)
def test_draws_under_conditions(kind: str, names: tuple[str, ...]):
    """If the last of the conditions is not heard, samples do not follow the truth."""
    case = case_of(plain(KIND[kind], GENERIC), names)
    assert case is not None
    draw(case)
    with pytest.raises(AssertionError):
        draw(case._replace(forgets=frozenset({list(case.said)[-1]})))
