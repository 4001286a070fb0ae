"""What has changed since another version of a model: missions, items, and how well both do week by week."""

from __future__ import annotations

from typing import Any

import numpy as np

from ndpp import answers
from ndpp.baskets.orders import Orders
from ndpp.cli.evaluate import in_common
from ndpp.cli.files import Law
from ndpp.cli.trial import by_time, weeks_drawn

SHOWN = 8
"""Missions and items that are named, those that changed most."""


def changes(own: answers.Prepared, old: Law, test: Orders | None, *, top: int = 10, seed: int = 0) -> dict[str, Any]:
    """Return what has changed from the old model to the new one; with test orders that have times, hit rates of both by week.

    Missions are compared where the new model has the components of the old one, as after an update.
    """
    law = own.law
    names, before = own.labels or range(law.n_items), old.labels or range(old.n_items)
    known = dict(zip(before, old.popularity.tolist()))
    items = [(name, known.get(name, 0.0), p) for name, p in zip(names, law.popularity.tolist())]
    missions = []
    if len(law.weights) == len(old.weights) > 1:
        found = [(one.name, float(old.weights[list(one.components)].sum()), one.share) for one in answers.missions(own)]
        missions = sorted(found, key=lambda one: -abs(one[2] - one[1]))[:SHOWN]
    weeks = [] if test is None else _weeks(law, old, test, top, seed)
    return {
        "missions": missions, "entered": [name for name in names if name not in known],
        "left": sorted(set(before) - set(names)), "weeks": weeks, "drawn": weeks_drawn(weeks),
        "items": sorted(items, key=lambda one: -abs(np.sqrt(one[2]) - np.sqrt(one[1])))[:SHOWN],
    }  # fmt: skip


def _weeks(law: Law, old: Law, test: Orders, top: int, seed: int) -> list[dict[str, Any]]:
    """Return the hit rates of both models by week, on the items that both have."""
    from ndpp.metrics.ranking import held_out_ranks, hold_out

    new, judged, others, _ = in_common(law, test, {"before": old})
    several = judged.select(min_size=2)
    held = hold_out(several, np.random.default_rng(seed))
    ranks = {name: held_out_ranks(one, held) for name, one in {"now": new, **others}.items()}
    common = np.all([one.is_ranked for one in ranks.values()], axis=0)
    return by_time(several, {name: one.in_top(top) for name, one in ranks.items()}, common)
