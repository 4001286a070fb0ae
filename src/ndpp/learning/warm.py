"""A warm start: what a training objective begins with, recovered from a law that was learned before.

Of a mixture with shared ties only the products are known, but they are enough: log-odds b_i + a_c + u_i·z_c that are centred over the items
and over the components have the rank of u·z, and their singular values give u and z back. Any skew W is a pair of columns of X for each
of its singular values. A kernel is X and W = Diag(I, A) as they are, whatever the scales of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from ndpp._types import FloatArray
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law
from ndpp.laws.patterns import Patterns
from ndpp.laws.shared import SharedTies
from ndpp.learning.families import FamilyData
from ndpp.learning.kernel_objective import KernelObjective
from ndpp.learning.mixture_objective import MixtureObjective
from ndpp.learning.models import FreeSkew, KernelForm, NoSkew, OrthogonalPairs, Parameters, PopularityStart
from ndpp.learning.tied import MixtureParameters, skew_pairs
from ndpp.learning.trainer import Objective
from ndpp.linalg.skew import symmetric_part, youla
from ndpp.rows import Rows

ROUNDING = 1e-9
"""Singular values, relative to the largest, that are rounding."""
MAX_PENALTY = 1e4
"""Largest penalty on u, or X, however small they are."""
NEW_TIES = 1e-3
"""Scale of the ties that new items begin with: those of zero would stay zero, as their gradient is."""
NOT_FITTED = "Update a model as `ndpp fit` writes it, or fit it again."


class Training(NamedTuple):
    """The baskets of an objective, and where and how it computes."""

    orders: Baskets
    held_out: Baskets
    device: str
    dtype: torch.dtype
    seed: int


def warm_objective(law: Law, training: Training) -> Objective[Any]:
    """Return the objective of the law's own kind that begins with the law; raise if it is of a kind that is not trained."""
    if law.parametrisation not in OBJECTIVES:
        raise InvalidInputError(f"{law!r} is of a kind that no training leads to. {NOT_FITTED}")
    return OBJECTIVES[law.parametrisation](law, training)


def _mixture_objective(law: SharedTies, training: Training) -> MixtureObjective:
    """Return the objective of a mixture with shared ties.

    Its penalties are on changes of u and X, and are those for which entries as large as the law's are to be expected.
    """
    tied = law.patterns
    odds, X = np.asarray(law.odds, np.float64), _read(law.base)
    if tied is not None:
        tied, odds, X = single_first(tied, odds, X)
        odds = odds * np.expm1(tied.log_totals)
    if law.base.n_rows < law.base.n_items or not odds.all():
        raise InvalidInputError(f"some items of the model can never occur. {NOT_FITTED}")
    if X.any():
        noise = NEW_TIES * np.random.default_rng([training.seed, 3]).standard_normal(X.shape)
        X = np.where(X.any(axis=1, keepdims=True), X, noise)
    values = components(np.log(odds), X, law.base.W, law.weights)
    tensors = (torch.tensor(one, device=training.device, dtype=training.dtype).contiguous() for one in values)
    start = MixtureParameters(*tensors)
    penalties = [float(1 / (2 * one.square().mean()).clamp(min=MAX_PENALTY**-1)) for one in (start.factors, start.X)]
    learned, judged = (FamilyData.of(tied, part) for part in (training.orders, training.held_out))
    return MixtureObjective(tied, penalties, start, learned, judged, is_update=True)


def _kernel_objective(law: LowRankKernel, training: Training) -> KernelObjective:
    """Return the objective of a kernel, without penalties and noise: the law has been through them."""
    if law.background is not None:
        raise InvalidInputError(f"{law!r} is of a kind that no training leads to. {NOT_FITTED}")
    begin, form = LawStart.of(law)
    none, (orders, held_out, device, dtype, seed) = (0.0,) * 4, training
    return KernelObjective(form, begin, *none, device, dtype, law.X.shape[1], orders, held_out, seed)


OBJECTIVES: dict[str, Callable[..., Objective[Any]]] = {
    "tied": _mixture_objective,
    "families": _mixture_objective,
    "xw": _kernel_objective,
}
"""What trains the laws of each parametrisation."""


def components(log_odds: FloatArray, X: FloatArray, W: FloatArray, weights: FloatArray) -> tuple[FloatArray, ...]:
    """Return b, u, X, z, a and log π of a mixture with these log-odds (C, n), with the least number of factors."""
    bias = log_odds.mean(axis=0)
    levels = (log_odds - bias).mean(axis=1)
    left, values, right = np.linalg.svd(log_odds - bias - levels[:, None], full_matrices=False)
    r, root = max(1, int(np.sum(values > ROUNDING * np.abs(log_odds).max()))), np.sqrt(len(log_odds))
    if not np.array_equal(W, skew_pairs(len(W), torch.device("cpu")).numpy()):
        if np.abs(symmetric_part(W)).max() > ROUNDING * np.abs(W).max():
            raise InvalidInputError(f"the ties of the model are not skew. {NOT_FITTED}")
        sigma, Y, Z = youla(W)
        X = np.hstack([X @ (Y * np.sqrt(sigma)), X @ (Z * np.sqrt(sigma))])
    with np.errstate(divide="ignore"):
        shares = np.log(weights).clip(min=-50.0)
    return bias, right[:r].T * values[:r] / root, X, root * left[:, :r], levels, shares


def single_first(patterns: Patterns, odds: FloatArray, X: FloatArray) -> tuple[Patterns, FloatArray, FloatArray]:
    """Return the same families in the order that training needs, with the odds of their states and their rows of X.

    Families of one item come first, in one state; the others follow by their number of states. Families that have lost all items leave.
    """
    members, n_states = patterns.members, np.bincount(patterns.states, minlength=patterns.n_families)
    n_states[[g for g, items in enumerate(members) if len(items) == 1]] = 1
    there = (g for g, items in enumerate(members) if len(items))
    order = sorted(there, key=lambda g: (len(members[g]) > 1, n_states[g]))
    families, item_odds = np.empty(len(patterns.families), np.int64), np.zeros_like(patterns.odds)
    columns: list[FloatArray] = []
    for place, g in enumerate(order):
        items, slots = members[g], patterns.slots[g]
        slots = slots[slots < len(patterns.states)]
        families[items] = place
        if len(items) == 1:
            columns.append(odds[:, slots] @ patterns.odds[items[0], : len(slots)])
            item_odds[items, 0] = 1.0
        else:
            columns.extend(odds[:, slots].T)
            item_odds[items] = patterns.odds[items]
    made = Patterns(families, np.repeat(np.arange(len(order)), n_states[order]), item_odds, len(order))
    return made, np.stack(columns, axis=1), X[order]


@dataclass(frozen=True, kw_only=True)
class LawStart(PopularityStart):
    """The X and W = Diag(I, A) of a kernel, in rows of the scales of :class:`PopularityStart`."""

    X: FloatArray
    skew: FloatArray

    @classmethod
    def of(cls, kernel: LowRankKernel) -> tuple[LawStart, KernelForm]:
        """Return the start, and the form of the kernel: that of ONDPP if its skew columns are orthonormal and its A is pairs."""
        W, X = np.asarray(kernel.W, np.float64), _read(kernel)
        h = next((i for i in range(len(W)) if W[i, i] != 1.0), len(W))
        A = W[h:, h:]
        plain = np.zeros_like(W)
        plain[:h, :h], plain[h:, h:] = np.eye(h), (A - A.T) / 2
        if kernel.n_rows < kernel.n_items or np.abs(W - plain).max() > ROUNDING or not h:
            raise InvalidInputError(f"the kernel is not X Diag(I, A) Xᵀ with a skew A over all items. {NOT_FITTED}")
        if not len(A):
            return cls(X=X, skew=np.zeros((0, 0))), NoSkew()
        share, pairs = len(A) / len(W), A.diagonal(1)[::2]
        is_paired = (pairs > 0).all() and np.count_nonzero(A) == 2 * len(pairs)
        if is_paired and np.allclose(X[:, h:].T @ X[:, h:], np.eye(len(A))):
            return cls(X=X, skew=np.log(pairs)), OrthogonalPairs(share)
        return cls(X=X, skew=A / 2), FreeSkew(share)

    def parameters(
        self, rng: np.random.Generator, form: KernelForm, scale: FloatArray, rank: int, mean_size: float
    ) -> Parameters:
        """Return those of the kernel."""
        return Parameters(torch.from_numpy(self.X / scale[:, None]), torch.from_numpy(self.skew))


def _read(kernel: LowRankKernel) -> FloatArray:
    """Return X in memory."""
    return np.asarray(kernel.X.read() if isinstance(kernel.X, Rows) else kernel.X, np.float64)
