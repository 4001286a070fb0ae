"""How much a customer's own orders count.

A customer's chance of item a is p′_a = 1 − (1 − p_a)(1 − α h_a), where p_a is that of the law and h_a = Σ_t u_t 1[a ∈ basket t] /
(Σ_t u_t + κ) over the customer's baskets t, which count u_t = δ^age |basket t|^−γ: one of a hundred items says less about each than one
of three does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndpp._types import AnyArray, FloatArray

MAX_CHANCE = 1 - 1e-9
"""Largest chance of an item: its log-odds stay finite."""


class Habits(NamedTuple):
    """How a customer's own orders count.

    ``decay`` is δ, per basket or, ``by_time``, per week; ``prior`` is κ, ``strength`` α and ``evenness`` γ. ``damping`` is that of
    the order of next baskets. ``mission_prior`` is how many baskets of the law's missions a customer's own begin with, None if they do not
    matter; ``gap`` is the usual time between two baskets, in weeks.
    """

    decay: float = 0.95
    by_time: bool = False
    prior: float = 10.0
    strength: float = 0.6
    damping: float = 0.0
    mission_prior: float | None = None
    gap: float = 1.0
    evenness: float = 0.0

    def even(self, evenness: float, sizes: AnyArray, missions: float | None) -> Habits:
        """Return habits with evenness γ and with own missions, None for none; both priors are in units of an average basket."""
        unit = float(self._replace(evenness=evenness).counted(sizes).mean())
        mission_prior = None if missions is None else missions * unit
        return self._replace(prior=self.prior * unit, mission_prior=mission_prior, evenness=evenness)

    def counted(self, sizes: AnyArray) -> FloatArray:
        """Return for how many baskets new ones of these sizes count."""
        return np.maximum(sizes, 1).astype(np.float64) ** -self.evenness

    def shares(self, counts: AnyArray, mass: AnyArray) -> FloatArray:
        """Return α h of items with these decayed counts, whose customers have a decayed number of baskets ``mass``."""
        return np.asarray(self.strength * counts / (mass + self.prior), np.float64)

    def raised(self, chances: AnyArray, shares: AnyArray) -> FloatArray:
        """Return p′ from p and α h."""
        return np.asarray(np.minimum(1 - (1 - chances) * (1 - shares), MAX_CHANCE))
