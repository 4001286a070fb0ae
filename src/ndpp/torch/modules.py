"""Exact sets with log-probabilities that have gradients, and a kernel whose rows an encoder makes of features."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ndpp._types import Items, RngLike
from ndpp._validation import check_count
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.laws import LowRankKernel
from ndpp.learning.models import FreeSkew
from ndpp.torch.inputs import as_rows
from ndpp.torch.likelihood import exactly, log_prob


class ScoredSets(NamedTuple):
    """Sets of items and log P of each, a tensor whose gradient is the score."""

    sets: Baskets
    log_probs: Tensor


@exactly
def sample(
    X: Tensor, W: Tensor | None = None, n: int = 1, *, size: int | None = None, given: Items = (), rng: RngLike = None
) -> ScoredSets:
    """Draw exact sets, on the device of X, with their log-probabilities.

    The gradient of E f(S) is that of the mean of f(S) log P(S) over samples [Williams, Machine Learning, 1992].

    Parameters
    ----------
    X : (n_items, d) or (batch, n_items, d) tensor
        The rows. From each kernel of a batch a set is drawn.
    W : (d, d) tensor, optional
        The inner matrix.
    n : int
        Number of sets; 1 for a batch.
    size, given : optional
        Conditions, as of :func:`log_prob`.
    rng : anything ``numpy.random.default_rng`` takes
        The seed.

    Examples
    --------
    >>> X = torch.eye(4, requires_grad=True)
    >>> drawn = sample(X, n=2, size=2, rng=0)
    >>> drawn.sets.sizes, drawn.log_probs.exp()
    (array([2, 2]), tensor([0.1667, 0.1667], dtype=torch.float64, grad_fn=<ExpBackward0>))
    """
    rows, given = as_rows(X, W), [] if given is None else given
    n, kernels = check_count(n, "n"), [law_of(one, W) for one in rows.X]
    if rows.is_batch and n != 1:
        raise InvalidInputError("must be 1: one set is drawn from each kernel of a batch", argument="n")
    seeds = np.random.default_rng(rng).spawn(len(kernels)) if rows.is_batch else [rng]
    device = str(X.device) if X.is_cuda else None
    drawn = [
        kernel.sample(n, size=size, given=given, rng=seed, device=device)
        for kernel, seed in zip(kernels, seeds, strict=True)
    ]
    sets = Baskets.from_lists([one for baskets in drawn for one in baskets.to_lists()], n_items=rows.X.shape[1])
    return ScoredSets(sets, log_prob(X, sets, W, size=size, given=given))


def law_of(X: Tensor, W: Tensor | None) -> LowRankKernel:
    """Return the kernel of these rows, without gradients."""
    return LowRankKernel(*(None if part is None else part.detach().double().cpu().numpy() for part in (X, W)))


class Kernel(nn.Module):
    """A kernel whose rows are what an encoder makes of features, with a skew part if columns are left for it.

    Parameters
    ----------
    encoder : nn.Module
        Maps features (n, …) to rows (n, d), or those of a batch to (batch, n, d).
    n_skew : int
        How many of the d columns, the last ones, are skew: W = Diag(I, D − Dᵀ), where D is learned; even, 0 for a symmetric kernel.
    rng : anything ``numpy.random.default_rng`` takes
        The seed of the initial D.

    Examples
    --------
    >>> kernel = Kernel(torch.nn.Linear(3, 4), n_skew=2)
    >>> features = torch.eye(3)
    >>> kernel.log_prob(features, [[0, 2], [1]]).shape, kernel.kernel(features)
    (torch.Size([2]), LowRankKernel(n_items=3, rank=3))
    """

    def __init__(self, encoder: nn.Module, n_skew: int = 0, *, rng: RngLike = 0) -> None:
        super().__init__()
        if check_count(n_skew, "n_skew") % 2:
            raise InvalidInputError(f"must be even; got {n_skew}", argument="n_skew")
        self.encoder, self.form = encoder, FreeSkew()
        values = self.form.random(np.random.default_rng(rng), n_skew, 0.1)
        self.skew = nn.Parameter(torch.as_tensor(values, dtype=torch.get_default_dtype()))

    def forward(self, features: Any) -> Tensor:
        """Return the rows."""
        rows: Tensor = self.encoder(features)
        return rows

    def inner(self, rank: int) -> Tensor | None:
        """Return W of this many columns, None for the identity."""
        h = len(self.skew)
        if not h:
            return None
        if h > rank:
            raise InvalidInputError(f"must be at most {rank}, the columns of the encoder; got {h}", argument="n_skew")
        identity = torch.eye(rank - h, dtype=self.skew.dtype, device=self.skew.device)
        W: Tensor = torch.block_diag(identity, self.form.matrix(self.skew))  # type: ignore[no-untyped-call]
        return W.double()

    def log_prob(
        self,
        features: Any,
        sets: Any,
        *,
        size: int | None = None,
        given: Items | None = None,
        nonempty: bool = False,
    ) -> Tensor:
        """Return log P of sets; see :func:`log_prob`."""
        X = self(features)
        return log_prob(X, sets, self.inner(X.shape[-1]), size=size, given=given, nonempty=nonempty)

    def sample(self, features: Any, n: int = 1, *, size: int | None = None, rng: RngLike = None) -> ScoredSets:
        """Draw sets; see :func:`sample`."""
        X = self(features)
        return sample(X, self.inner(X.shape[-1]), n, size=size, rng=rng)

    def kernel(self, features: Any) -> LowRankKernel:
        """Return the kernel as a law, for everything else: recommendations, conditions, files."""
        with torch.no_grad():
            X = self(features)
            return law_of(X, self.inner(X.shape[-1]))
