"""Do draws follow their law, and has a walk run long enough? Laws by enumeration, tests between samplers, R-hat, ESS.

All functions take arrays or baskets, whatever made them. ``chains`` is an array of shape (n_chains, n_draws), or
(n_chains, n_draws, n_functionals) for several functionals at once.
"""

from ndpp.diagnostics.agreement import Agreement, EnergyTest, compare, compare_with_law, energy_test
from ndpp.diagnostics.chains import autocorrelation, effective_sample_size, psrf
from ndpp.diagnostics.convergence import Convergence, convergence, to_arviz
from ndpp.diagnostics.functionals import Functionals, functionals, item_indicators, log_dets
from ndpp.diagnostics.laws import empirical_law, exact_law, sup_distance, total_variation
from ndpp.diagnostics.walks import WalkDiagnosis, diagnose_walk

__all__ = [
    "Agreement",
    "Convergence",
    "EnergyTest",
    "Functionals",
    "WalkDiagnosis",
    "autocorrelation",
    "compare",
    "compare_with_law",
    "convergence",
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
