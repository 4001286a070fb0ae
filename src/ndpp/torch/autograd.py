"""Functions of autograd in double precision: determinants of stacks, and weighted Gram matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ndpp.learning.determinants import log_det_inverse, unit

BLOCK = 2**22
"""Entries of X that are in double precision at a time: nothing as large as X is kept."""


class _LogDet(Function):
    @staticmethod
    def forward(ctx: Any, A: Tensor, least: float) -> Tensor:
        value, inverse, factors = log_det_inverse(A)
        sign = unit(factors)
        if A.is_complex():
            regular, value = torch.isfinite(value), value + sign.log()
        else:
            regular = (sign > 0) & (inverse.abs().amax((-2, -1)) * least < 1)
            value = torch.where(regular, value, -torch.inf)
        ctx.save_for_backward(torch.where(regular[..., None, None], inverse, 0))
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (inverse,) = ctx.saved_tensors
        return gradient[..., None, None] * inverse.mT.conj(), None


def log_det(A: Tensor, least: float = 0.0) -> Tensor:
    """Return log det A of each matrix of a stack, complex for complex ones.

    It is −inf, with a gradient of zero, where a real determinant is not positive, or an entry of A⁻¹ is above 1/``least``.
    """
    value: Tensor = _LogDet.apply(A, least)  # type: ignore[no-untyped-call]
    return value


class _Gram(Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor, w: Tensor | None) -> Tensor:
        ctx.save_for_backward(X, w)
        out = X.new_zeros(len(X), 1 if w is None else w.shape[1], X.shape[2], X.shape[2], dtype=torch.float64)
        for some, rows in _blocks(X):
            for m in range(out.shape[1]):
                out[:, m] += (rows if w is None else rows * w[:, m, some, None]).mT @ rows
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        (X, w), both = ctx.saved_tensors, gradient + gradient.mT
        in_X, in_w = torch.zeros_like(X), None if w is None else torch.zeros_like(w)
        for some, rows in _blocks(X):
            for m in range(both.shape[1]):
                sides = rows @ both[:, m]
                in_X[:, some] += sides if w is None else sides * w[:, m, some, None]
                if in_w is not None:
                    in_w[:, m, some] = (sides * rows).sum(-1) / 2
        return in_X, in_w


def gram(X: Tensor, w: Tensor | None = None) -> Tensor:
    """Return Xᵀ diag(w_m) X of rows (B, n, d) and weights (B, m, n), real or complex, one by default; shape (B, m, d, d)."""
    is_complex = w is not None and w.is_complex()
    parts: Tensor = _Gram.apply(X, torch.cat([w.real, w.imag], 1) if w is not None and is_complex else w)  # type: ignore[no-untyped-call]
    return torch.complex(*parts.chunk(2, 1)) if is_complex else parts


def _blocks(X: Tensor) -> Iterator[tuple[slice, Tensor]]:
    step = max(1, BLOCK // (X.shape[0] * X.shape[2]))
    for start in range(0, X.shape[1], step):
        some = slice(start, start + step)
        yield some, X[:, some].double()
