"""Laws that leave out the empty set, where hardly any other set has a chance: every verb, against the enumeration of all sets."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from law_table import BASES, KINDS, Entry, Kind, entries
from law_verbs import VERBS, applies
from ndpp import Limit, LowRankKernel, Mixture
from ndpp.errors import PrecisionError, PrecisionWarning


@cache
def rare(entry: Entry, odds: float) -> Entry:
    """The law with the odds of all items so small, and the truth, which has no digits to lose."""
    law = entry.law.tilt(np.full(entry.law.n_items, odds)).without_empty()
    return entry._replace(law=law, truth=entry.truth.tilt(dict.fromkeys(range(law.n_items), odds)).without_empty())


OF_ITEMS_THAT_HAVE_A_CHANCE = {name for name in VERBS if name.startswith("recommend")} | {"greedy_map"}
"""Their truth takes small chances for none."""


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_verb_of_laws_that_would_hardly_ever_have_an_item(kind: Kind):
    """Verbs take odds and bases in turn. Where the odds are all ties, one item alone is beyond double precision, which a warning says."""
    failures, n_judged = [], 0
    for i, name in enumerate(VERBS):
        turn = i + KINDS.index(kind)
        odds, entry = (1e-4, 1e-9, 1e-14)[turn % 3], entries(kind, BASES[turn // 3 % 3])[0]
        try:
            if applies(name, entry) and name not in OF_ITEMS_THAT_HAVE_A_CHANCE and entry.truth.p[1:].any():
                VERBS[name](rare(entry, odds))
                n_judged += 1
        except (PrecisionWarning, PrecisionError):
            continue
        except (Exception, pytest.fail.Exception) as error:
            failures.append(f"{name} of {entry} with odds {odds}: {error!r}")
    assert not failures, "\n".join(failures)
    assert n_judged > len(VERBS) / 2


@pytest.mark.parametrize("odds", [1e-5, 1e-9, 1e-12, 1e-17])
def test_limits_of_rare_sets_are_exact_or_estimated(odds: float):
    law = Mixture.tied(np.full((1, 3), odds), np.zeros((3, 1)), np.eye(1), [1.0]).without_empty()
    found = law.probability(Limit([0, 1], 1, 1))
    assert found.exact == (odds > 1e-8)
    assert abs(found.value - 2 / 3) < max(1e-8 / 3, 4 * odds, 4 * found.error)
    np.testing.assert_allclose(law.size_distribution()[1], 1.0, rtol=2 * odds + 1e-12)
    np.testing.assert_allclose(law.sizes_with([0])[0][:2], [0.0, 1.0], atol=2 * odds + 1e-12)


def test_rounding_of_rare_sets_is_said():
    """Under 1e-8 J the sets of one item have no chance, and rounding has 1e-16 of that of two."""
    kernel = LowRankKernel(np.random.default_rng(0).normal(size=(4, 2)), 1e-8 * np.array([[0.0, 1.0], [-1.0, 0.0]]))
    with pytest.warns(PrecisionWarning, match="any size"):
        kernel.without_empty()
