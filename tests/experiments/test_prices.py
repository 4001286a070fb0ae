"""The experiment on prices: it recovers effects that are known, and what it says where they are confounded."""

from __future__ import annotations

import numpy as np
import pytest

from ndpp_experiments.prices import EFFECT, WITHOUT_PROMOTION, Panel, estimates, held_out, logit, measure, synthetic


@pytest.fixture(scope="module")
def panel() -> Panel:
    return synthetic(EFFECT, 3)


def test_effects_are_recovered_and_displays_would_be_taken_for_prices(panel):
    found = {(row.model, row.variable): row for row in estimates(panel)}
    for model in ("beside displays and mailers", "weeks without display or mailer", "and next week's price"):
        row = found[model, "price"]
        assert abs(row.effect - EFFECT) < 4 * row.error < 0.2
    display = found["beside displays and mailers", "display"]
    assert abs(display.effect - 0.8) < 4 * display.error
    confounded = found["price alone", "price"]
    assert confounded.effect < EFFECT - 4 * confounded.error
    later = found["and next week's price", "later"]
    assert abs(later.effect) < 4 * later.error
    assert found["weeks without display or mailer", "price"].cells < len(panel.item)
    assert WITHOUT_PROMOTION < 0.5


def test_errors_are_clustered(panel):
    """A shock that an item keeps for weeks makes the effect of its price less certain than independent cells would be."""
    rng, none = np.random.default_rng(0), synthetic(0.0, 3)
    moved = np.sort(none.price.reshape(60, 53, 2), axis=1).reshape(-1)  # prices that drift, as do the odds
    drift = np.repeat(rng.normal(0, 0.02, (60, 1)) * np.linspace(-20, 20, 53), 2, axis=1).reshape(-1)
    p = 1 / (1 + np.exp(4 - drift))
    drifting = none._replace(price=moved, bought=rng.binomial(1500, p).astype(float))
    (effect,), (error,), eta = logit(drifting, [moved])
    share = 1 / (1 + np.exp(-eta))
    naive = 1 / np.sqrt((1500 * share * (1 - share) * moved**2).sum())
    assert error > 2 * naive
    assert abs(effect) < 4 * error


def test_the_factor_helps_in_later_weeks_and_only_if_there_is_an_effect(panel):
    beta, gain, error = held_out(panel)
    assert beta == pytest.approx(EFFECT, abs=0.15)
    assert gain > 4 * error
    _, nothing, error = held_out(synthetic(0.0, 3))
    assert nothing < 4 * error + 1


def test_the_report_says_what_was_known():
    result = measure(quick=True, seed=0, say=lambda text: None)
    assert result.findings[0].holds
    assert result.settings["data"] == "synthetic"
