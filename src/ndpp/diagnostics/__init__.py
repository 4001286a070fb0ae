"""Do draws follow their distribution, has a walk run long enough, and do samples look like real baskets?

All functions take arrays or baskets from any source. ``chains`` is an array of shape (n_chains, n_draws), or
(n_chains, n_draws, n_functionals) for several functionals at once.
"""

from typing import TYPE_CHECKING

from ndpp._lazy import renamed
from ndpp.diagnostics.agreement import Agreement, EnergyTest, compare_samples, compare_with_law, energy_test
from ndpp.diagnostics.chains import autocorrelation, effective_sample_size, psrf
from ndpp.diagnostics.diagnose import Convergence, WalkDiagnosis, diagnose_chains, diagnose_walk
from ndpp.diagnostics.functionals import Functionals, functionals, item_indicators, log_dets, to_arviz
from ndpp.diagnostics.laws import empirical_law, exact_law, sup_distance, total_variation
from ndpp.diagnostics.lookalike import ClassifierTest, FeatureAuc, basket_features, classifier_test

__all__ = [
    "Agreement",
    "ClassifierTest",
    "Convergence",
    "EnergyTest",
    "FeatureAuc",
    "Functionals",
    "WalkDiagnosis",
    "autocorrelation",
    "basket_features",
    "classifier_test",
    "compare_samples",
    "compare_with_law",
    "diagnose_chains",
    "diagnose_walk",
    "effective_sample_size",
    "empirical_law",
    "energy_test",
    "exact_law",
    "functionals",
    "item_indicators",
    "log_dets",
    "psrf",
    "sup_distance",
    "to_arviz",
    "total_variation",
]

if not TYPE_CHECKING:  # type checkers see the new names only
    __getattr__ = renamed(__name__, compare="compare_samples", convergence="diagnose_chains")
