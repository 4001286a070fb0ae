"""A walk put to the test: do its chains meet, and are its sets, after as many steps as it makes, those of the law?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ndpp._types import RngLike
from ndpp._validation import check_count
from ndpp.diagnostics.agreement import Agreement, compare, compare_with_law
from ndpp.diagnostics.convergence import Convergence, convergence
from ndpp.errors import InvalidInputError
from ndpp.samplers import Exact, Walk


@dataclass(frozen=True, eq=False)
class WalkDiagnosis:
    """What long chains, and independent ones, show of a walk. ``str`` says it in words.

    Attributes
    ----------
    size, steps : int
        Items of a set, and steps after which a set of an independent chain is taken.
    chains : Convergence
        R-hat, effective draws and items that never left, of a few long chains.
    law, exact : Agreement
        Sets of independent chains against the closed forms of the law, and against exact samples.
    """

    size: int
    steps: int
    chains: Convergence
    law: Agreement
    exact: Agreement

    @property
    def converged(self) -> bool:
        """Whether nothing speaks against the walk."""
        return self.chains.converged and self.law.agrees and self.exact.agrees

    def __str__(self) -> str:
        after = f"Independent chains, after {self.steps} steps"
        return f"Long chains: {self.chains}\n{after}, against the law: {self.law}\n{after}, against exact samples: {self.exact}"


def diagnose_walk(
    walk: Walk,
    *,
    n_chains: int = 4,
    n_draws: int = 200,
    rng: RngLike = None,
    n_jobs: int | None = None,
    progress: bool = False,
) -> WalkDiagnosis:
    """Run a walk as long chains and as independent ones, and compare it with the law and with exact samples.

    Cost: ``n_draws`` chains of the walk's own steps, and ``n_chains`` chains of ``n_draws`` sets, ``size`` steps apart,
    after as many steps of burn-in as the walk makes.

    Parameters
    ----------
    walk : Walk
        As :meth:`ndpp.samplers.Walk.prepare` made it, without ``thin``, on sets of at least two items.
    n_chains, n_draws : int
        Long chains, and sets: of each long chain, of independent chains, and exact ones.
    rng : anything ``numpy.random.default_rng`` takes
        The seed.
    n_jobs, progress
        As in :meth:`ndpp.samplers.Sampler.sample`.

    Examples
    --------
    >>> from ndpp.datasets import make_kernel
    >>> walk = Walk.prepare(make_kernel(20, 8, rng=0), size=4)
    >>> diagnose_walk(walk, rng=0).converged
    True
    >>> diagnose_walk(Walk.prepare(walk.kernel, size=4, steps=0), rng=0).law.agrees
    False
    """
    if walk.size < 2 or walk.thin is not None:
        raise InvalidInputError("a walk is diagnosed on sets of at least two items, and prepared without thin=")
    n_chains, n_draws = check_count(n_chains, "n_chains", least=2), check_count(n_draws, "n_draws", least=20)
    seeds = np.random.default_rng(rng).integers(2**62, size=3).tolist()
    burn_in = walk.burn_in + walk.steps
    long = replace(walk, thin=walk.size, chains=n_chains, burn_in=burn_in)
    exact = Exact.prepare(walk.kernel, size=walk.size)
    runs = {
        "long chains": (long, n_chains * n_draws),
        "independent chains": (walk, n_draws),
        "exact samples": (exact, n_draws),
    }
    chains, sets, truth = (
        sampler.sample(count, rng=seed, n_jobs=n_jobs, progress=progress and f"{name:18}").baskets
        for (name, (sampler, count)), seed in zip(runs.items(), seeds)
    )
    return WalkDiagnosis(
        walk.size,
        burn_in,
        convergence(walk.kernel, chains, n_chains=n_chains),
        compare_with_law(walk.kernel, sets, size=walk.size),
        compare(walk.kernel, sets, truth),
    )
