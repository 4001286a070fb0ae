"""Has a walk run long enough? The answer in words, and export to ArviZ.

Three signs, each of which a walk that is still where it started shows: chains that have not met (R-hat of halved chains),
too few effective draws, and items that never left a chain although their probability says that they ought to have.
No diagnosis proves convergence; :class:`~ndpp.samplers.Exact` needs none.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import fdtri, gammainc

from ndpp._types import BoolArray, FloatArray
from ndpp.baskets import Baskets
from ndpp.diagnostics.chains import effective_sample_size, psrf
from ndpp.diagnostics.functionals import Functionals, functionals
from ndpp.errors import InvalidInputError, MissingExtraError
from ndpp.laws.kernel import LowRankKernel

ALPHA = 1e-4
"""How often each sign may show on independent draws, by chance."""


@dataclass(frozen=True, eq=False)
class Convergence:
    """What chains show of their convergence. ``str`` says it in words.

    Attributes
    ----------
    names : tuple of str
        The functionals.
    is_item : (n_functionals,) array of bool
        Which of them tell whether an item is in.
    psrf, ess : (n_functionals,) array
        R-hat of the halved chains, and effective sample sizes of all chains together.
    psrf_allowed : float
        The threshold, or what the worst functional of independent draws may show by chance, if that is more.
    ess_wanted : float
        ``effective_draws`` below which the run is too short.
    never_left : float
        Items that are in every set of a chain, averaged over chains.
    never_left_expected : float
        The same for independent draws.
    n_chains, n_draws : int
        Number of chains, and sets of each.
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
        """Least effective sample size of log det, the size and the median item: that of the worst of many items is low by chance."""
        items = [np.median(self.ess[self.is_item])] if self.is_item.any() else []
        return float(min([*self.ess[~self.is_item], *items]))

    @property
    def problems(self) -> tuple[str, ...]:
        """What speaks against convergence, a sentence each; empty if nothing does."""
        found = []
        worst = int(np.argmax(self.psrf))
        if self.psrf[worst] > self.psrf_allowed:
            above = np.count_nonzero(self.psrf > self.psrf_allowed)
            found.append(
                f"the chains have not met: R-hat is {self.psrf[worst]:.2f} for {self.names[worst]} and above "
                f"{self.psrf_allowed:.2f} for {above} of {len(self.psrf)} functionals"
            )
        if self.effective_draws < self.ess_wanted:
            found.append(
                f"the run is short: {self.n_chains * self.n_draws} sets are worth about {self.effective_draws:.0f} "
                f"independent ones, {self.ess_wanted:.0f} are wanted"
            )
        total, expected = self.never_left * self.n_chains, self.never_left_expected * self.n_chains
        if gammainc(round(total), expected) < ALPHA:  # P(Poisson(expected) ≥ total)
            found.append(
                f"chains hold on to items: {self.never_left:.1f} items a chain never left it, "
                f"{self.never_left_expected:.2g} would stay by chance"
            )
        return tuple(found)

    @property
    def converged(self) -> bool:
        """Whether nothing speaks against convergence."""
        return not self.problems

    @property
    def summary(self) -> str:
        """What was found, without advice."""
        run = f"{self.n_chains} chain{'s' * (self.n_chains > 1)} of {self.n_draws} sets"
        if self.converged:
            return (
                f"Nothing speaks against convergence of {run}: R-hat at most {self.psrf.max():.3f}, "
                f"about {self.effective_draws:.0f} effective draws, over {len(self.names)} functionals"
            )
        return f"NOT CONVERGED, {run}: {'; '.join(self.problems)}"

    def __str__(self) -> str:
        advice = "" if self.converged else " Run longer, or draw exactly with kernel.sample()."
        return f"{self.summary}.{advice}"


def convergence(
    kernel: LowRankKernel,
    baskets: Baskets,
    *,
    n_chains: int,
    n_items: int = 100,
    threshold: float = 1.05,
    ess_wanted: float = 50.0,
) -> Convergence:
    """Return what chains of sets show of their convergence.

    Parameters
    ----------
    kernel : LowRankKernel
        Whose law the chains ought to have.
    baskets : Baskets
        Sets of the chains in turn, as ``Walk`` with ``thin=`` gives them: basket i is of chain i mod ``n_chains``.
        Chains should begin far apart; a common start hides that they have not left it from R-hat.
    n_chains : int
        How many chains.
    n_items : int
        How many item indicators are watched beside log det and size.
    threshold : float
        R-hat above this is too much.
    ess_wanted : float
        Fewer effective draws than this are too few.

    Examples
    --------
    >>> import ndpp
    >>> from ndpp.datasets import make_kernel
    >>> kernel = make_kernel(20, 8, rng=0)
    >>> walk = ndpp.samplers.Walk.prepare(kernel, size=4, thin=8, burn_in=16, chains=4)
    >>> print(convergence(kernel, walk.sample(400, rng=0).baskets, n_chains=4))
    Nothing speaks against convergence of 4 chains of 100 sets: ...
    >>> short = ndpp.samplers.Walk.prepare(kernel, size=4, thin=1, chains=4)
    >>> print(convergence(kernel, short.sample(40, rng=0).baskets, n_chains=4))
    NOT CONVERGED, 4 chains of 10 sets: ...
    """
    names, values, is_item = functionals(kernel, baskets, n_chains=n_chains, n_items=n_items)
    n_draws = values.shape[1]
    if n_draws < 8:
        raise InvalidInputError(f"at least eight sets a chain are needed; got {n_draws}")
    if not np.isfinite(values).all():
        raise InvalidInputError("a set of the chains has probability zero under the kernel; check that it is theirs")
    fixed = int(baskets.sizes[0]) if np.ptp(baskets.sizes) == 0 else None
    inclusion = kernel.inclusion_probabilities(size=fixed)
    held = [np.bincount(baskets[c::n_chains].indices, minlength=kernel.n_items) == n_draws for c in range(n_chains)]
    return Convergence(
        names,
        is_item,
        psrf(values, split=True),
        effective_sample_size(values),
        max(threshold, _chance_psrf(*values.shape)),
        ess_wanted,
        float(np.mean(np.sum(held, axis=1))),
        float((inclusion**n_draws).sum()),
        n_chains,
        n_draws,
    )


def _chance_psrf(n_chains: int, n_draws: int, n_functionals: int) -> float:
    """Return what the worst of independent functionals of independent draws exceeds with probability ``ALPHA``."""
    halves, length = 2 * n_chains, n_draws // 2
    ratio = fdtri(halves - 1, halves * (length - 1), 1 - ALPHA / n_functionals)
    return float(np.sqrt((length - 1 + ratio) / length))


def to_arviz(chains: Functionals) -> Any:
    """Return the values of functionals along chains as the ``posterior`` group of an ArviZ data tree.

    Needs the package arviz-base. The statistics of arviz-stats also take ``chains.values[:, :, j]`` as it is.
    """
    try:
        arviz_base = importlib.import_module("arviz_base")
    except ImportError:
        raise MissingExtraError("arviz-base", "diag", "Export to ArviZ") from None
    posterior = {name: chains.values[:, :, j] for j, name in enumerate(chains.names)}
    return arviz_base.from_dict({"posterior": posterior})
