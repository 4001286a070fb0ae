"""A table of several models on the same baskets, with the same items held out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ndpp._types import RngLike
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.metrics.estimates import Bootstrap, Estimate, mean_estimate
from ndpp.metrics.likelihood import auc, mean_log_likelihood
from ndpp.metrics.models import has_probabilities
from ndpp.metrics.ranking import Holdout, held_out_ranks


class ModelScores(NamedTuple):
    """The metrics of one model; the first two are None for a model without probabilities."""

    name: str
    log_likelihood: Estimate | None
    auc: Estimate | None
    mean_percentile_rank: Estimate
    precision: Estimate

    @property
    def estimates(self) -> list[Estimate]:
        """The metrics that the model has."""
        return [estimate for estimate in self[1:] if isinstance(estimate, Estimate)]


class Comparison(NamedTuple):
    """One row per model. ``print`` shows a table."""

    rows: tuple[ModelScores, ...]

    def __str__(self) -> str:
        heads = ["model", "log-likelihood", "AUC", "MPR", self.rows[0].precision.name if self.rows else "precision"]
        lines = [heads, *([row.name, *map(_cell, row[1:])] for row in self.rows)]
        first, *widths = [max(map(len, column)) for column in zip(*lines)]
        return "\n".join("  ".join([name.ljust(first), *map(str.rjust, cells, widths)]) for name, *cells in lines)


def compare_models(
    models: Mapping[str, Any],
    baskets: Baskets,
    *,
    k: int = 10,
    holdout: Holdout | None = None,
    level: float = 0.95,
    n_boot: int = 1000,
    rng: RngLike = None,
) -> Comparison:
    """Compute all metrics of several models on the same baskets; the table shows half the interval width after ±.

    ``models`` maps names to models; the other parameters are those of :func:`precision_at`.

    Examples
    --------
    >>> from ndpp.datasets import make_baskets
    >>> from ndpp.metrics import independent_items, item_item_cosine
    >>> made = make_baskets(2000, rng=0)
    >>> train, _, test = made.baskets.split(0, 500, rng=0)
    >>> models = {"truth": made.kernel, "independent": independent_items(train), "cosine": item_item_cosine(train)}
    >>> print(compare_models(models, test, rng=0))
    model        log-likelihood            AUC         MPR   precision@10
    truth           -12.5 ± 0.3  0.763 ± 0.020  65.9 ± 2.5  0.495 ± 0.042
    independent     -12.6 ± 0.4  0.735 ± 0.022  63.0 ± 2.5  0.436 ± 0.043
    cosine                    –              –  62.3 ± 2.6  0.425 ± 0.045
    """
    if not isinstance(models, Mapping):
        raise InvalidInputError(
            f"models must map names to models, as in {{'mine': model}}; got a {type(models).__name__}"
        )
    k, seed = check_count(k, "k", least=1), int(np.random.default_rng(rng).integers(2**62))
    rows = []
    for name, model in models.items():
        rng = np.random.default_rng(seed)  # the same held-out items and random sets for every model
        ranks, bootstrap = held_out_ranks(model, baskets, rng, holdout), Bootstrap(level, n_boot, rng)
        likely = area = None
        if has_probabilities(model):
            likely = mean_log_likelihood(model, baskets, level=level, n_boot=n_boot, rng=seed)
            area = auc(model, baskets, level=level, n_boot=n_boot, rng=seed)
        percentile = mean_estimate("MPR", ranks.percentile, ranks.sizes, bootstrap, n_zero=ranks.n_zero)
        precision = mean_estimate(f"precision@{k}", ranks.in_top(k), ranks.sizes, bootstrap, n_zero=ranks.n_zero)
        rows.append(ModelScores(name, likely, area, percentile, precision))
    return Comparison(tuple(rows))


def _cell(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    digits = 1 if abs(estimate.value) >= 10 else 3
    width = "" if np.isnan(estimate.low) else f" ± {(estimate.high - estimate.low) / 2:.{digits}f}"
    return f"{estimate.value:.{digits}f}{width}"
