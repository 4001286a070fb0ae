"""How good is a model? Each metric takes a model and baskets it was not fitted on, and returns an :class:`Estimate`.

A model is a kernel, a fitted estimator, or one of the two baselines, :func:`independent_items` and
:func:`item_item_cosine`. Always compare a kernel with the baselines.
"""

from typing import TYPE_CHECKING

from ndpp._lazy import renamed
from ndpp.metrics.comparison import Comparison, ModelScores, compare_models
from ndpp.metrics.estimates import Estimate, SizeClass
from ndpp.metrics.likelihood import auc, log_likelihood_gain, mean_log_likelihood
from ndpp.metrics.models import (
    IndependentItems,
    ItemItemCosine,
    independent_items,
    independent_margins,
    item_item_cosine,
    log_likelihoods,
)
from ndpp.metrics.ranking import LargestId, RandomHoldout, mean_percentile_rank, precision_at

__all__ = [
    "Comparison",
    "Estimate",
    "IndependentItems",
    "ItemItemCosine",
    "LargestId",
    "ModelScores",
    "RandomHoldout",
    "SizeClass",
    "auc",
    "compare_models",
    "independent_items",
    "independent_margins",
    "item_item_cosine",
    "log_likelihood_gain",
    "log_likelihoods",
    "mean_log_likelihood",
    "mean_percentile_rank",
    "precision_at",
]

if not TYPE_CHECKING:  # type checkers see the new names only
    __getattr__ = renamed(__name__, compare="compare_models", Row="ModelScores")
