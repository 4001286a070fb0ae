"""Do draws follow their distribution, and has a walk run long enough?

All functions take arrays or baskets from any source. ``chains`` is an array of shape (n_chains, n_draws), or
(n_chains, n_draws, n_functionals) for several functionals at once.
"""

from typing import TYPE_CHECKING

from ndpp._lazy import renamed
from ndpp.diagnostics.agreement import Agreement, compare_samples, compare_with_law
from ndpp.diagnostics.chains import Functionals, effective_sample_size, functionals, psrf
from ndpp.diagnostics.diagnose import Convergence, WalkDiagnosis, diagnose_chains, diagnose_walk
from ndpp.diagnostics.laws import empirical_law, exact_law, sup_distance, total_variation

__all__ = [
    "Agreement",
    "Convergence",
    "Functionals",
    "WalkDiagnosis",
    "compare_samples",
    "compare_with_law",
    "diagnose_chains",
    "diagnose_walk",
    "effective_sample_size",
    "empirical_law",
    "exact_law",
    "functionals",
    "psrf",
    "sup_distance",
    "total_variation",
]

if not TYPE_CHECKING:  # type checkers see the new names only
    _old = ("EnergyTest", "autocorrelation", "energy_test", "item_indicators", "log_dets", "to_arviz")
    _elsewhere = {name: f"ndpp_experiments.diagnostics.{name}" for name in _old}
    __getattr__ = renamed(__name__, compare="compare_samples", convergence="diagnose_chains", **_elsewhere)
