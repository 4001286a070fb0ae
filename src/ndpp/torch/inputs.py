"""What was passed to the functions of :mod:`ndpp.torch`, checked: rows, W, a background, and sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ndpp._types import IntArray
from ndpp._validation import check_items
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError, InvalidKernelError, UnknownItemError

ROUNDING = 1e-9
"""How far below zero, relative to the largest entry, an eigenvalue of W + Wᵀ may be."""


class TensorKernel(NamedTuple):
    """Rows X (B, n, d), W (d, d) and a background (B, n) in double precision, or None; B = 1 unless X is a batch."""

    X: Tensor
    W: Tensor | None
    background: Tensor | None
    is_batch: bool

    def shaped(self, values: Tensor) -> Tensor:
        """Return values (B, …) without their first axis, unless X is a batch."""
        return values if self.is_batch else values[0]


def as_rows(X: Any, W: Any, background: Any = None) -> TensorKernel:
    """Return the kernel of these tensors; raise if they are not one."""
    if not isinstance(X, Tensor) or not X.is_floating_point():
        raise InvalidInputError(f"must be a tensor of real numbers; got {getattr(X, 'dtype', type(X))}", argument="X")
    if X.ndim not in (2, 3) or not X.numel():
        raise InvalidInputError(f"must have shape (n, d) or (batch, n, d); it has {tuple(X.shape)}", argument="X")
    if not torch.isfinite(X.detach().sum(dtype=torch.float64)):
        raise InvalidInputError("must be finite; it has entries that are NaN or infinite", argument="X")
    rows = X if X.ndim == 3 else X[None]
    W = _beside(W, "W", X, [(X.shape[-1],) * 2])
    background = _beside(background, "background", X, [(X.shape[-2],), X.shape[:-1]])
    if background is not None and bool((background < 0).any()):
        raise InvalidInputError("must not be negative", argument="background")
    if W is not None:
        _check_definite(W.detach(), rows)
    return TensorKernel(rows, W, None if background is None else background.expand(rows.shape[:2]), X.ndim == 3)


def _beside(values: Any, name: str, X: Tensor, shapes: list[tuple[int, ...]]) -> Tensor | None:
    if values is None:
        return None
    if not isinstance(values, Tensor):
        values = torch.as_tensor(np.asarray(values, np.float64))
    if values.shape not in shapes:
        wanted = " or ".join(dict.fromkeys(str(tuple(shape)) for shape in shapes))
        raise InvalidInputError(f"must have shape {wanted}; it has {tuple(values.shape)}", argument=name)
    if not torch.isfinite(values.detach()).all():
        raise InvalidInputError("must be finite; it has entries that are NaN or infinite", argument=name)
    moved: Tensor = values.to(X.device, torch.float64)
    return moved


def _check_definite(W: Tensor, X: Tensor) -> None:
    """Raise unless W + Wᵀ is positive semidefinite, or X W Xᵀ + X Wᵀ Xᵀ at least, up to rounding."""
    H = W + W.mT
    if not _is_definite(H):
        C = X.detach().double().mT @ X.detach().double()
        if not _is_definite(C @ H @ C):
            raise InvalidKernelError("W + Wᵀ must be positive semidefinite, so that no set has a negative probability")


def _is_definite(H: Tensor) -> bool:
    shift = ROUNDING * H.abs().amax((-2, -1), keepdim=True).clamp(min=torch.finfo(H.dtype).tiny)
    identity = torch.eye(H.shape[-1], dtype=H.dtype, device=H.device)
    return not bool(torch.linalg.cholesky_ex(H + shift * identity)[1].any())


def as_sets(sets: Any, rows: TensorKernel, name: str = "sets") -> Baskets:
    """Return sets of the rows, numbered through all kernels of a batch, which has one set per kernel."""
    n, batch = rows.X.shape[1], len(rows.X)
    indptr, items = _flat(sets, n, name)
    owner = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    if len(unknown := items[(items < 0) | (items >= n)]):
        raise UnknownItemError(int(unknown[0]), n, argument=name)
    items = items[np.lexsort((items, owner))]
    twice = np.flatnonzero((np.diff(items) == 0) & (np.diff(owner) == 0))
    if len(twice):
        problem = f"must not repeat an item; set {owner[twice[0]]} has item {items[twice[0]]} more than once"
        raise InvalidInputError(problem, argument=name)
    if not rows.is_batch:
        return Baskets._trusted(indptr, items, n)
    if len(indptr) - 1 != batch:
        raise InvalidInputError(
            f"must be one set for each of the {batch} kernels; got {len(indptr) - 1}", argument=name
        )
    return Baskets._trusted(indptr, items + n * owner, n * batch)


def as_given(given: Any, rows: TensorKernel) -> IntArray:
    """Return the items that are given to all sets alike."""
    if isinstance(given, Tensor):
        given = given.cpu().numpy()
    return check_items(() if given is None else given, rows.X.shape[1], "given")


def is_flat(sets: Any) -> bool:
    """Return whether these are the items of a single set."""
    if isinstance(sets, (Tensor, np.ndarray)):
        return sets.ndim == 1
    return isinstance(sets, Sequence) and all(isinstance(item, (int, np.integer)) for item in sets)


def _flat(sets: Any, n: int, name: str) -> tuple[IntArray, IntArray]:
    """Return where each set begins, and the items of all."""
    if isinstance(sets, Baskets):
        return sets.indptr.astype(np.int64), sets.indices.astype(np.int64)
    if isinstance(sets, (Tensor, np.ndarray)):
        ids = sets.detach().cpu().numpy() if isinstance(sets, Tensor) else sets
        if ids.ndim != 2 or ids.dtype.kind not in "iu":
            problem = f"must have one row of integer ids per set, padded with −1; got shape {ids.shape}, {ids.dtype}"
            raise InvalidInputError(problem, argument=name)
        is_item = ids != -1
        return np.concatenate([[0], is_item.sum(1).cumsum()]), ids[is_item].astype(np.int64)
    parts = [np.asarray(one) for one in sets] if isinstance(sets, Iterable) else [np.ones((1, 1))]
    if any(one.ndim != 1 or (one.size and one.dtype.kind not in "iu") for one in parts):
        raise InvalidInputError(
            f"must be several sets of integer ids below {n}; got {sets!r:.60}", argument=name,
            advice="Put a single set into a list.",
        )  # fmt: skip
    sizes = [one.size for one in parts]
    return np.cumsum([0, *sizes]), np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int64)
