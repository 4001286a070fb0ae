"""Do draws follow their distribution, and has a walk run long enough?

All functions take arrays or baskets from any source. ``chains`` is an array of shape (n_chains, n_draws), or
(n_chains, n_draws, n_functionals) for several functionals at once.
"""

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
