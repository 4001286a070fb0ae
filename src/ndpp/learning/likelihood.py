"""The log-likelihood of baskets under L = X W Xᵀ, W = Diag(I, A), A skew, and its gradient, written out.

Rows are scaled, x_i = s_i x̂_i, with larger s_i for popular items, so that all x̂_i have similar norms. All functions here
take X̂. For a basket Y and C = Σ s_i² x̂_i x̂_iᵀ

    log P(Y) = Σ_{i∈Y} 2 log s_i + log det(X̂_Y W X̂_Yᵀ) − log det(I + W C).

With G = X̂_Y W X̂_Yᵀ, S = G⁻¹ + G⁻ᵀ and T = G⁻¹ − G⁻ᵀ the gradient of log det G is S V̂_Y in the symmetric columns,
T B̂_Y A in the skew ones, and −½ B̂_Yᵀ T B̂_Y in A. A step costs O(n d²) for C and its gradient, two matrix products,
and O(Σ k² d + k³) for the baskets. [Gartrell et al., ICLR 2021; Han et al., ICLR 2022]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ndpp.learning.batches import Batch

JITTER = 1e-5
"""Added to the diagonal of G in training, so that a nearly impossible basket still has a finite gradient."""


class Gradient(NamedTuple):
    """A value with its gradients in X̂ and in A, the latter as a skew matrix: dvalue = Σ_ij A'_ij dA_ij for skew dA."""

    value: Tensor
    X: Tensor
    A: Tensor


@dataclass(frozen=True)
class Likelihood:
    """The log-likelihood for row scales ``scale`` (n,) and ``n_sym`` symmetric columns, which come first in X̂.

    Examples
    --------
    >>> import numpy as np
    >>> from ndpp import Baskets
    >>> from ndpp.learning.batches import pack
    >>> likelihood = Likelihood(torch.ones(2, dtype=torch.float64), 2)  # symmetric, L = I: all four sets alike
    >>> X, A = torch.eye(2, dtype=torch.float64), torch.zeros(0, 0, dtype=torch.float64)
    >>> batch = pack(Baskets.from_lists([[0], [0, 1]]), np.arange(2))
    >>> likelihood.log_probs(X, A, batch).exp()
    tensor([0.2500, 0.2500], dtype=torch.float64)
    """

    scale: Tensor
    n_sym: int

    def log_probs(self, X: Tensor, A: Tensor, batch: Batch) -> Tensor:
        """Return log P of each basket, in the order of the batch; −inf for impossible baskets."""
        rows, right, padding = self._gather(X, A, batch)
        shifts = self.log_scales(batch)
        n_empty = batch.n_baskets - sum(m for _, m, _ in batch.blocks)
        out = [torch.zeros(n_empty, dtype=torch.float64, device=X.device)]
        for start, m, k in batch.blocks:
            block = slice(start, start + m * k)
            sign, log_abs = torch.linalg.slogdet(self._minors(rows, right, padding, (start, m, k), 0.0))
            # A determinant of zero may come out as a small number of either sign.
            out.append(torch.where(sign > 0, log_abs, -torch.inf) + shifts[block].view(m, k).sum(1))
        log_normalizer: Tensor = torch.linalg.slogdet(self._inner(self._gram(X)[1], A))[1]
        return torch.cat(out) - log_normalizer

    def log_normalizer_gradient(self, X: Tensor, A: Tensor) -> Gradient:
        """Return log det(I + W C) and its gradient."""
        h = self.n_sym
        scaled, C = self._gram(X)
        LU, pivots, _ = torch.linalg.lu_factor_ex(self._inner(C, A))
        inverse = torch.linalg.lu_solve(LU, pivots, torch.eye(len(C), dtype=LU.dtype, device=LU.device))
        K = torch.cat([inverse[:, :h], inverse[:, h:] @ A.double()], 1)  # (I + WC)⁻¹ W
        in_A = (C.double() @ inverse)[h:, h:].T
        in_X = (scaled @ (K + K.T).to(X.dtype)).mul_(self.scale[:, None])
        return Gradient(LU.diagonal().abs().log().sum(), in_X, ((in_A - in_A.T) / 2).to(X.dtype))

    def log_dets_gradient(self, X: Tensor, A: Tensor, batch: Batch, *, jitter: float = JITTER) -> Gradient:
        """Return Σ_Y log det(G + jitter I) over the batch and its gradient, without the constant row scales."""
        h = self.n_sym
        rows, right, padding = self._gather(X, A, batch)
        total = torch.zeros((), dtype=torch.float64, device=X.device)
        SV, TB = torch.empty_like(rows[:, :h]), torch.empty_like(rows[:, h:])
        for start, m, k in batch.blocks:
            block = slice(start, start + m * k)
            LU, pivots, _ = torch.linalg.lu_factor_ex(self._minors(rows, right, padding, (start, m, k), jitter))
            total += LU.diagonal(dim1=-2, dim2=-1).abs().log().sum()
            identity = torch.eye(k, dtype=LU.dtype, device=LU.device).expand(m, k, k)
            inverse = torch.linalg.lu_solve(LU, pivots, identity).to(X.dtype)
            Y = rows[block].view(m, k, -1)
            SV[block] = ((inverse + inverse.mT) @ Y[..., :h]).view(m * k, -1)
            TB[block] = ((inverse - inverse.mT) @ Y[..., h:]).view(m * k, -1)
        # The gradient of padding is zero, so it can be added to any item.
        in_X = torch.zeros_like(X).index_add_(0, self._places(batch)[0], torch.cat([SV, TB @ A], 1))
        return Gradient(total, in_X, -(rows[:, h:].T @ TB) / 2)

    def log_scales(self, batch: Batch) -> Tensor:
        """Return 2 log s_i of each entry of the batch in double precision, and zero for padding."""
        places, padding = self._places(batch)
        shifts = 2 * torch.log(self.scale[places].double())
        return shifts if padding is None else shifts.masked_fill_(padding, 0.0)

    def _places(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the items of the batch, with a valid id in place of padding, and the mask of the padding."""
        if not batch.padded:
            return batch.items, None
        return batch.items.clamp(max=len(self.scale) - 1), batch.items == len(self.scale)

    def _gather(self, X: Tensor, A: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the rows of X̂ for the batch (zero for padding), the same times W, and the mask of the padding."""
        places, padding = self._places(batch)
        rows = X[places]
        if padding is not None:
            rows.masked_fill_(padding[:, None], 0.0)
        return rows, torch.cat([rows[:, : self.n_sym], rows[:, self.n_sym :] @ A], 1), padding

    def _minors(
        self, rows: Tensor, right: Tensor, padding: Tensor | None, block: tuple[int, int, int], jitter: float
    ) -> Tensor:
        """Return G + jitter I of the baskets of one block in double precision; padding is an identity."""
        start, m, k = block
        here = slice(start, start + m * k)
        G = (right[here].view(m, k, -1) @ rows[here].view(m, k, -1).mT).double()
        diagonal = G.diagonal(dim1=-2, dim2=-1)
        diagonal.add_(jitter)
        if padding is not None:
            diagonal.masked_fill_(padding[here].view(m, k), 1.0)
        return G

    def _gram(self, X: Tensor) -> tuple[Tensor, Tensor]:
        scaled = X * self.scale[:, None]
        return scaled, scaled.T @ scaled

    def _inner(self, C: Tensor, A: Tensor) -> Tensor:
        """Return I + W C in double precision."""
        C = C.double()
        M = torch.cat([C[: self.n_sym], A.double() @ C[self.n_sym :]])
        M.diagonal().add_(1.0)
        return M
