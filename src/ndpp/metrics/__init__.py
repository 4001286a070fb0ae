"""How good is a model? Each metric takes a model and baskets it was not fitted on, and returns an :class:`Metric`.

A model is a kernel, a mixture, a fitted estimator, or one of the baselines: :func:`independent_items`,
:func:`item_item_cosine`, :func:`rp3beta` and :func:`ease`. Always compare a model with the baselines. :func:`compare_models` does so.
"""

from ndpp.metrics.comparison import Comparison, ModelScores, compare_models
from ndpp.metrics.estimates import Metric
from ndpp.metrics.likelihood import auc, log_likelihood_gain, mean_log_likelihood
from ndpp.metrics.models import (
    IndependentItems,
    ItemWeights,
    independent_items,
    independent_margins,
    item_item_cosine,
    log_likelihoods,
    rp3beta,
)
from ndpp.metrics.ranking import (
    hit_rate_at,
    hit_rate_scorer,
    mean_percentile_rank,
    mean_reciprocal_rank,
    ndcg_at,
)
from ndpp.metrics.regression import Ease, ease

__all__ = [
    "Comparison",
    "Ease",
    "IndependentItems",
    "ItemWeights",
    "Metric",
    "ModelScores",
    "auc",
    "compare_models",
    "ease",
    "hit_rate_at",
    "hit_rate_scorer",
    "independent_items",
    "independent_margins",
    "item_item_cosine",
    "log_likelihood_gain",
    "log_likelihoods",
    "mean_log_likelihood",
    "mean_percentile_rank",
    "mean_reciprocal_rank",
    "ndcg_at",
    "precision_at",
    "rp3beta",
]

precision_at = hit_rate_at
"""What papers on NDPPs call it."""
