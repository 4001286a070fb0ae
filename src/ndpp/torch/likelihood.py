"""Log-probabilities of sets, normalisers, inclusion probabilities and next items, as functions of the rows of L = diag(δ) + X W Xᵀ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor

from ndpp._types import Items
from ndpp.baskets import Baskets
from ndpp.errors import ImpossibleSizeError, ZeroProbabilityError
from ndpp.learning.batches import PackedBaskets, pack
from ndpp.learning.determinants import minors
from ndpp.learning.trainer import chance_of_some
from ndpp.torch.circle import EPS, Generating, log_minors
from ndpp.torch.inputs import TensorKernel, as_given, as_rows, as_sets, is_flat

P = ParamSpec("P")
R = TypeVar("R")


def exactly(function: Callable[P, R]) -> Callable[P, R]:
    """Let neither autocast nor torch.compile into a function: it is in double precision, and what it does depends on the data."""

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            return function(*args, **kwargs)

    done: Callable[P, R] = run
    return done


@exactly
def log_prob(
    X: Tensor,
    sets: Any,
    W: Tensor | None = None,
    *,
    size: int | None = None,
    given: Items | None = None,
    background: Any = None,
    nonempty: bool = False,
) -> Tensor:
    """Return log P(S) of many sets, or log P(S | conditions): −inf, with a gradient of zero, for those that are impossible.

    Parameters
    ----------
    X : (n, d) or (batch, n, d) tensor
        The rows, with one kernel for all sets or one for each.
    sets : Baskets, (m, k) tensor or list of lists
        Ids of items. Rows of a tensor are padded with −1.
    W : (d, d) tensor, optional
        The inner matrix, by default the identity. W + Wᵀ has to be positive semidefinite.
    size : int, optional
        Given that sets have this many items.
    given : (g,) sequence of int, optional
        Given that sets contain these items.
    background : (n,) or (batch, n) tensor, optional
        δ ≥ 0.
    nonempty : bool
        Given that sets are not empty.

    Returns
    -------
    (m,) tensor
        In double precision. Sets cost O(Σ k d² + k³), the normaliser O(n d² + d³), with d³ for each point of a circle if there is a size.

    Examples
    --------
    >>> X = torch.eye(3, requires_grad=True)
    >>> values = log_prob(X, [[0, 2], []])
    >>> values.exp()
    tensor([0.1250, 0.1250], dtype=torch.float64, grad_fn=<ExpBackward0>)
    >>> values[0].backward()
    >>> X.grad.diagonal()  # items that are in are pulled up, others down
    tensor([ 1., -1.,  1.])
    """
    rows = as_rows(X, W, background)
    baskets, wanted = as_sets(sets, rows), as_given(given, rows)
    normalizer = Generating.of(rows, wanted).weighed(size)[0]
    possible = np.ones(len(baskets), bool) if size is None else baskets.sizes == size
    if rows.background is None:
        possible &= baskets.sizes <= rows.X.shape[2]
    if len(wanted):
        owner = np.repeat(np.arange(len(baskets)), baskets.sizes)
        hits = np.isin(baskets.indices % rows.X.shape[1], wanted)
        possible &= np.bincount(owner[hits], minlength=len(baskets)) == len(wanted)
    elif nonempty and size is None:
        normalizer = normalizer + chance_of_some(normalizer).log()
    if nonempty:
        possible &= baskets.sizes > 0
        if size == 0:
            raise ImpossibleSizeError("no set is empty with nonempty=True; size 0 was asked for")
    mask = torch.from_numpy(possible).to(X.device)
    entries = _Entries.of(rows, baskets)
    found = [entries.own.new_zeros(entries.n_empty), *(log_minors(G, terms) for _, G, terms in entries.minors())]
    return torch.where(mask, torch.cat(found)[entries.back] - normalizer, -torch.inf)


@exactly
def log_normalizer(X: Tensor, W: Tensor | None = None, *, size: int | None = None, background: Any = None) -> Tensor:
    """Return log det(I + L), or log e_k(L), the log weight of sets of one size; a number, or one per kernel of a batch.

    The gradient of log e_k in L is the transposed inclusion matrix of sets of k items, whatever the eigenvalues of L.

    Examples
    --------
    >>> X = torch.eye(3)
    >>> log_normalizer(X).exp().round(), log_normalizer(X, size=2).exp().round()
    (tensor(8., dtype=torch.float64), tensor(3., dtype=torch.float64))
    """
    rows = as_rows(X, W, background)
    return rows.shaped(Generating.of(rows, as_given(None, rows)).weighed(size)[0])


@exactly
def inclusion_probabilities(
    X: Tensor, W: Tensor | None = None, *, size: int | None = None, given: Items | None = None
) -> Tensor:
    """Return P(a ∈ S) of every item, given a size and items that are in; shape (n,) or (batch, n).

    Examples
    --------
    >>> inclusion_probabilities(torch.eye(3), size=2)
    tensor([0.6667, 0.6667, 0.6667], dtype=torch.float64)
    """
    rows = as_rows(X, W)
    wanted = as_given(given, rows)
    M = Generating.of(rows, wanted).weighed(size, inclusion=True)[1]
    assert M is not None
    certain = torch.zeros(rows.X.shape[1], dtype=torch.bool, device=X.device)
    certain[torch.from_numpy(wanted).to(X.device)] = True
    return rows.shaped(torch.where(certain, 1.0, _forms(rows.X, M)))


@exactly
def next_item_log_probs(X: Tensor, given: Any, W: Tensor | None = None) -> Tensor:
    """Return log P(a is the item that completes J), with P ∝ det L_{J∪a}, of every item; −inf for those of J and impossible ones.

    ``given`` is one set J, for an array (n,), or several sets as :func:`log_prob` takes them, for (m, n).

    Examples
    --------
    >>> next_item_log_probs(torch.eye(3), [0]).exp()
    tensor([0.0000, 0.5000, 0.5000], dtype=torch.float64)
    """
    rows, one = as_rows(X, W), is_flat(given) and X.ndim == 2
    (n, d), baskets = X.shape[-2:], as_sets([given] if one else given, rows, "given")
    entries, inner = _Entries.of(rows, baskets), torch.eye(d, dtype=torch.float64, device=X.device)
    inner = inner if rows.W is None else rows.W
    right = entries.own @ inner.mT
    parts = [inner.expand(entries.n_empty, d, d)]
    for here, G, terms in entries.minors():
        if torch.isinf(log_minors(G.detach(), terms)).any():
            raise ZeroProbabilityError("some of the given items never make up a whole set; log P is undefined")
        shape = *G.shape[:2], d
        parts.append(inner - right[here].view(shape).mT @ torch.linalg.solve(G, entries.left[here].view(shape)))
    gains = _forms(rows.X, torch.cat(parts)[entries.back])
    with torch.no_grad():
        valid = gains > 8 * d * EPS * inner.norm() * rows.X.double().square().sum(-1)
        owner = np.repeat(np.arange(len(baskets)), baskets.sizes)
        valid[torch.from_numpy(owner), torch.from_numpy(baskets.indices % n)] = False
    total = torch.where(valid, gains, 0).sum(-1, keepdim=True)
    shares = torch.where(valid, gains, 1).log() - torch.where(total > 0, total, 1).log()
    found = torch.where(valid, shares, -torch.inf)
    return found[0] if one else found


class _Entries(NamedTuple):
    """Sets as a batch, smallest first; the rows x, x W and δ of its entries, and the places of the sets in it."""

    batch: PackedBaskets
    own: Tensor
    left: Tensor
    diagonal: float | Tensor
    back: Tensor
    padding: int

    @classmethod
    def of(cls, rows: TensorKernel, baskets: Baskets) -> _Entries:
        X, W, background, _ = rows
        batch, padding = pack(baskets, np.arange(len(baskets)), device=X.device), X.shape[0] * X.shape[1]
        some = batch.items.clamp(max=padding - 1)
        is_item = batch.items < padding
        own = X.reshape(padding, -1).index_select(0, some).double() * is_item[:, None]
        diagonal = 0.0 if background is None else background.reshape(-1).index_select(0, some) * is_item
        back = np.argsort(np.argsort(baskets.sizes, kind="stable"), kind="stable")
        left = own if W is None else own @ W
        return cls(batch, own, left, diagonal, torch.from_numpy(back).to(X.device), padding)

    @property
    def n_empty(self) -> int:
        """The number of empty sets, which are the first."""
        return self.batch.n_baskets - sum(m for _, m, _ in self.batch.blocks)

    def minors(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield the place of the sets of each size, their minors, and the magnitudes of what the diagonal is the sum of."""
        terms = (self.left * self.own).detach().abs().sum(-1)
        terms = terms + (self.diagonal.detach() if isinstance(self.diagonal, Tensor) else self.diagonal)
        for here, G in minors(self.left, self.own, self.batch, self.padding, self.diagonal):
            yield here, G, terms[here].view(G.shape[:2])


def _forms(X: Tensor, M: Tensor) -> Tensor:
    """Return x_aᵀ M x_a of all rows, with each of the matrices M (m, d, d), that of its kernel if X is a batch."""
    rows = X.double()
    return ((rows @ M) * rows).sum(-1)
