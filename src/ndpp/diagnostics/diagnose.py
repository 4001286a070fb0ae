"""Has a walk run long enough? The answer in words.

Three signs of a walk that has not left its start: chains that have not mixed (R-hat of split chains), a small effective
sample size, and items that never left a chain although their probability says that they should have. No diagnosis proves
convergence; :class:`~ndpp.samplers.Exact` needs none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import fdtri, gammainc

from ndpp._types import BoolArray, FloatArray, RngLike
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.diagnostics.agreement import Agreement, compare_samples, compare_with_law
from ndpp.diagnostics.chains import effective_sample_size, functionals, psrf
from ndpp.errors import InvalidInputError
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers import Exact, Walk

FALSE_ALARM_RATE = 1e-4
"""Probability of each sign for independent draws."""


@dataclass(frozen=True, eq=False)
class Convergence:
    """The diagnosis of ``n_chains`` chains of ``n_draws`` sets each. ``str`` says it in words.

    For each functional: its name, whether it ``is_item``, R-hat of the split chains, and the effective sample size of all chains together.
    ``psrf_allowed``, which allows for what independent draws may show by chance, and ``ess_wanted`` are the limits of R-hat and of
    ``effective_draws``. ``never_left`` is the number of items in every set of a chain, averaged over chains; ``never_left_expected`` is
    its expectation for independent draws.
    """

    names: tuple[str, ...]
    is_item: BoolArray
    psrf: FloatArray
    ess: FloatArray
    psrf_allowed: float
    ess_wanted: float
    never_left: float
    never_left_expected: float
    n_chains: int
    n_draws: int

    @property
    def effective_draws(self) -> float:
        """Smallest effective sample size of log det, the size and the median item; the worst item is low by chance."""
        items = [np.median(self.ess[self.is_item])] if self.is_item.any() else []
        return float(min([*self.ess[~self.is_item], *items]))

    @property
    def problems(self) -> tuple[str, ...]:
        """The signs against convergence, one phrase each."""
        found = []
        worst = int(np.argmax(self.psrf))
        if self.psrf[worst] > self.psrf_allowed:
            above = np.count_nonzero(self.psrf > self.psrf_allowed)
            found.append(
                f"the chains have not mixed: R-hat is {self.psrf[worst]:.2f} for {self.names[worst]} and above "
                f"{self.psrf_allowed:.2f} for {above} of {len(self.psrf)} functionals"
            )
        if self.effective_draws < self.ess_wanted:
            found.append(
                f"the run is too short: {self.n_chains * self.n_draws} sets are worth about "
                f"{self.effective_draws:.0f} independent ones, fewer than {self.ess_wanted:.0f}"
            )
        total, expected = self.never_left * self.n_chains, self.never_left_expected * self.n_chains
        if gammainc(round(total), expected) < FALSE_ALARM_RATE:  # P(Poisson(expected) ≥ total)
            found.append(
                f"chains are stuck: {self.never_left:.1f} items per chain never left it, "
                f"{self.never_left_expected:.2g} expected by chance"
            )
        return tuple(found)

    @property
    def converged(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    @property
    def summary(self) -> str:
        """The diagnosis without advice."""
        run = f"{self.n_chains} chain{'s' * (self.n_chains > 1)} of {self.n_draws} sets"
        if self.converged:
            return (
                f"No problem found in {run}: R-hat at most {self.psrf.max():.3f}, "
                f"about {self.effective_draws:.0f} effective draws, over {len(self.names)} functionals"
            )
        return f"NOT CONVERGED, {run}: {'; '.join(self.problems)}"

    def __str__(self) -> str:
        advice = "" if self.converged else " Run longer, or draw exactly with kernel.sample()."
        return f"{self.summary}.{advice}"


@dataclass(frozen=True, eq=False)
class WalkDiagnosis:
    """The diagnosis of a walk from long and from independent chains. ``str`` says it in words.

    ``chains`` is that of the long chains; ``law`` and ``exact`` compare the sets of independent chains after ``steps``
    steps with the closed forms of the kernel and with exact samples.
    """

    size: int
    steps: int
    chains: Convergence
    law: Agreement
    exact: Agreement

    @property
    def converged(self) -> bool:
        """Whether neither the chains nor the comparisons show a problem."""
        return self.chains.converged and self.law.agrees and self.exact.agrees

    def __str__(self) -> str:
        after = f"Independent chains after {self.steps} steps, compared with"
        return f"Long chains: {self.chains}\n{after} the kernel: {self.law}\n{after} exact samples: {self.exact}"


def diagnose_chains(
    kernel: LowRankKernel,
    baskets: Baskets,
    *,
    n_chains: int,
    n_items: int = 100,
    threshold: float = 1.05,
    ess_wanted: float = 50.0,
) -> Convergence:
    """Diagnose the convergence of chains of sets.

    Chains are interleaved, as ``Walk`` with ``thin=`` returns them: basket i belongs to chain i mod ``n_chains``. They should start far
    apart; with a common start, R-hat cannot see that they never left it. In addition to log det and the size, the indicators of ``n_items``
    items are watched. ``threshold`` is the largest R-hat, ``ess_wanted`` the smallest number of effective draws to accept.

    Examples
    --------
    >>> import ndpp
    >>> from ndpp.datasets import make_kernel
    >>> kernel = make_kernel(20, 8, rng=0)
    >>> walk = ndpp.samplers.Walk.prepare(kernel, size=4, thin=8, burn_in=16, chains=4)
    >>> print(diagnose_chains(kernel, walk.sample(400, rng=0).baskets, n_chains=4))
    No problem found in 4 chains of 100 sets: ...
    >>> short = ndpp.samplers.Walk.prepare(kernel, size=4, thin=1, chains=4)
    >>> print(diagnose_chains(kernel, short.sample(40, rng=0).baskets, n_chains=4))
    NOT CONVERGED, 4 chains of 10 sets: ...
    """
    names, values, is_item = functionals(kernel, baskets, n_chains=n_chains, n_items=n_items)
    n_draws = values.shape[1]
    if n_draws < 8:
        raise InvalidInputError(f"expected at least eight sets per chain; got {n_draws}")
    if not np.isfinite(values).all():
        raise InvalidInputError("a set has probability zero under the kernel, so the chains belong to another one")
    fixed = int(baskets.sizes[0]) if np.ptp(baskets.sizes) == 0 else None
    inclusion = kernel.inclusion_probabilities(size=fixed)
    held = [np.bincount(baskets[c::n_chains].indices, minlength=kernel.n_items) == n_draws for c in range(n_chains)]
    return Convergence(
        names,
        is_item,
        psrf=psrf(values, split=True),
        ess=effective_sample_size(values),
        psrf_allowed=max(threshold, _chance_psrf(*values.shape)),
        ess_wanted=ess_wanted,
        never_left=float(np.mean(np.sum(held, axis=1))),
        never_left_expected=float((inclusion**n_draws).sum()),
        n_chains=n_chains,
        n_draws=n_draws,
    )


def diagnose_walk(
    walk: Walk,
    *,
    n_chains: int = 4,
    n_draws: int = 200,
    rng: RngLike = None,
    n_jobs: int | None = None,
    progress: bool = False,
) -> WalkDiagnosis:
    """Run a walk as ``n_chains`` long chains and as ``n_draws`` independent ones, and compare it with exact samples.

    Each long chain yields ``n_draws`` sets, ``size`` steps apart, after as many steps of burn-in as the walk makes.
    ``walk`` comes from :meth:`ndpp.samplers.Walk.prepare`, without ``thin``, for sets of at least two items. ``n_jobs``
    and ``progress`` are those of :meth:`ndpp.samplers.Sampler.sample`.

    Examples
    --------
    >>> from ndpp.datasets import make_kernel
    >>> walk = Walk.prepare(make_kernel(20, 8, rng=0), size=2)
    >>> diagnose_walk(walk, rng=0).converged
    True
    >>> diagnose_walk(Walk.prepare(walk.kernel, size=2, steps=0), rng=0).law.agrees
    False
    """
    if walk.size < 2 or walk.thin is not None:
        raise InvalidInputError("expected a walk on sets of at least two items, prepared without thin=")
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
        diagnose_chains(walk.kernel, chains, n_chains=n_chains),
        compare_with_law(walk.kernel, sets, size=walk.size),
        compare_samples(walk.kernel, sets, truth),
    )


def _chance_psrf(n_chains: int, n_draws: int, n_functionals: int) -> float:
    """Return the R-hat that the worst of independent functionals exceeds by chance, with the false-alarm rate."""
    halves, length = 2 * n_chains, n_draws // 2
    ratio = fdtri(halves - 1, halves * (length - 1), 1 - FALSE_ALARM_RATE / n_functionals)
    return float(np.sqrt((length - 1 + ratio) / length))
