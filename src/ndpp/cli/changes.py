"""Hit rates of two versions of a model, week by week."""

from __future__ import annotations

from typing import Any

import numpy as np

from ndpp.baskets.orders import Orders
from ndpp.cli.evaluate import in_common
from ndpp.cli.files import Law
from ndpp.cli.trial import by_time


def by_week(law: Law, old: Law, test: Orders, *, top: int = 10, seed: int = 0) -> list[dict[str, Any]]:
    """Return the hit rates of both models by week, on the items that both have; the test orders have times."""
    from ndpp.metrics.ranking import held_out_ranks, hold_out

    new, judged, others, _ = in_common(law, test, {"before": old}, "old")
    several = judged.select(min_size=2)
    held = hold_out(several, np.random.default_rng(seed))
    ranks = {name: held_out_ranks(one, held) for name, one in {"now": new, **others}.items()}
    common = np.all([one.is_ranked for one in ranks.values()], axis=0)
    return by_time(several, {name: one.in_top(top) for name, one in ranks.items()}, common)
