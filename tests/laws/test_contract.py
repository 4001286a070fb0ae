"""What laws promise: every kind over every awkward base, as it is and after ``N_CHANGES`` changes: ``law_table`` × ``law_verbs``.

Draws are left to the tests of the samplers. Two verbs have no negative control: the errors of baskets that are never whole, and those
where no item is left.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

import law_table
from law_table import BASES, KIND, KINDS, LAWS, Base, Entry, Kind
from law_verbs import VERBS, applies
from ndpp import Mixture
from ndpp.errors import ImpossibleSizeError

GENERIC = BASES[0]


@pytest.mark.parametrize(("kind", "base"), LAWS, ids=str)
def test_every_verb_of_every_law(kind: Kind, base: Base):
    """Over the generic base a law as it is answers all of them. Otherwise it is every third: bases take them in turn, two by two."""
    failures, turn = [], LAWS.index((kind, base)) // 2
    entries = law_table.entries(kind, base) + law_table.nonempty_entries(kind, base)
    for entry, (i, name) in product(entries, enumerate(VERBS)):
        try:
            if applies(name, entry) and ((i + turn) % 3 == 0 or (base is GENERIC and not entry.change)):
                VERBS[name](entry)
        except (Exception, pytest.fail.Exception) as error:
            failures.append(f"{name} of {entry}: {error!r}")
    assert not failures, "\n".join(failures)


def test_every_change_is_met_by_several_kinds():
    for changes, entries in (
        (law_table.CHANGES + law_table.TILTS, law_table.entries),
        (law_table.NONEMPTY, law_table.nonempty_entries),
    ):
        for change in changes:
            met = [kind for kind in KINDS if any(e.change == change for base in BASES for e in entries(kind, base))]
            assert len(met) >= 3, change


# ---- the contract can fail ------------------------------------------------------------------------------------------


def off_by_a_percent(base: Base) -> Base:
    """The odds of item 1 times 1.01."""
    factor = np.where(np.arange(base.n_items) == 1, 1.01, 1.0)
    return replace(
        base, X=base.X * np.sqrt(factor)[:, None], background=base.background * factor, odds=base.odds * factor,
        item_odds=base.item_odds * factor[:, None], weights=base.weights + np.array([0.01, -0.01, 0.0]),
    )  # fmt: skip


def other_order(base: Base) -> Base:
    """Items in reverse, and so with other numbers."""
    order = slice(None, None, -1)
    return replace(
        base, X=base.X[order], background=base.background[order], odds=base.odds[:, order], item_odds=base.item_odds[order]
    )  # fmt: skip


def smaller_catalogue(base: Base) -> Base:
    return replace(
        base, X=base.X[:5], background=base.background[:5], odds=base.odds[:, :5], item_odds=base.item_odds[:5]
    )


WRONG = {
    "off by a percent": off_by_a_percent,
    "other order": other_order,
    "smaller catalogue": smaller_catalogue,
}
SEEN = dict.fromkeys(VERBS, "off by a percent") | {
    "n_items": "smaller catalogue", "labels": "smaller catalogue", "repr": "smaller catalogue",
     "greedy_map": "other order",
}  # fmt: skip
ERRORS = [name for name in VERBS if name.startswith("errors_")]
"""A law cannot be slightly wrong here: it refuses something, or it does not."""


@cache
def plain(kind: Kind, base: Base) -> Entry:
    return law_table.entries(kind, base)[0]


@pytest.mark.parametrize("name", [name for name in VERBS if name not in (*ERRORS, "max_size", "check_size")])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_slightly_wrong_law_is_rejected(kind: Kind, name: str):
    entry = plain(kind, GENERIC)
    if not applies(name, entry):
        return
    with pytest.raises((AssertionError, ValueError, IndexError, pytest.fail.Exception)):
        VERBS[name](entry._replace(law=kind.build(WRONG[SEEN[name]](GENERIC))))


@pytest.mark.parametrize("name", ["max_size", "check_size"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_law_of_one_item_is_rejected(kind: Kind, name: str):
    entry = plain(kind, GENERIC)
    with pytest.raises((AssertionError, ImpossibleSizeError)):
        VERBS[name](entry._replace(law=entry.law.restrict([0])))


REFUSALS = [("errors_of_items", (("exclude", (3,)),)), ("errors_of_sizes", (("restrict", (0, 1)),))]


@pytest.mark.parametrize(("name", "change"), REFUSALS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_law_that_does_not_refuse_is_rejected(kind: Kind, name: str, change: law_table.Change):
    """The law does not know that items were excluded."""
    entry = plain(kind, GENERIC)
    narrowed = law_table.changed(entry, change)
    assert narrowed is not None
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        VERBS[name](narrowed._replace(law=entry.law))


FORGOTTEN = [
    "log_prob", "log_prob_of_a_size", "log_probs", "log_normalizer", "log_mass", "size_distribution", "condition",
    "inclusion_probabilities", "inclusion_probabilities_of_a_size", "responsibilities", "component_log_probs", "component_inclusions",
    "only", "restrict_and_exclude", "tilt", "save_and_load", "pickle", "next_item_scores", "next_item_scores_many", "continuation_scores",
    "recommend_by_completion", "recommend_by_continuation", "recommend_by_lift", "errors_of_items",
]  # fmt: skip


@pytest.mark.parametrize("name", FORGOTTEN)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_conditional_that_keeps_the_given_item_is_rejected(kind: Kind, name: str):
    entry = plain(kind, GENERIC)
    given = law_table.changed(entry, (("condition", (1,)),))
    assert given is not None
    if applies(name, entry):
        VERBS[name](given)
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            VERBS[name](given._replace(law=entry.law))


@pytest.mark.parametrize(
    "name", ["log_prob", "log_probs", "size_distribution", "inclusion_probabilities", "responsibilities"]
)
@pytest.mark.parametrize("kind", ["mixture", "tied mixture"])
def test_a_mixture_whose_weights_were_not_updated_is_rejected(kind: str, name: str):
    entry = plain(KIND[kind], GENERIC)
    without = law_table.changed(entry, (("exclude", (0, 4)),))
    assert without is not None
    VERBS[name](without)
    stale = Mixture(list(without.law.components), entry.law.weights, names=without.law.names)
    with pytest.raises(AssertionError):
        VERBS[name](without._replace(law=stale))
