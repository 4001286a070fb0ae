"""Facility location on blocks of neighbours: items that are close to all others.

f(S) = Σ_i max_{j∈S} s_ij, where s_ij is q_j times the cosine of items i and j, or zero if that is negative or if they are in different
blocks. f is monotone and submodular, so that the greedy set has at least 1 − 1/e of the largest f of sets of its size. As similarities
of other blocks are left out, f is at most the facility location over all pairs. [Nemhauser, Wolsey and Fisher, 1978; Lindgren et al., 2016]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ndpp._types import BoolArray, FloatArray, IntArray, RealArray

BLOCK = 2048
"""Most items of a block."""


def cover(X: RealArray, count: int, quality: FloatArray, given: Sequence[int]) -> IntArray:
    """Return ``count`` items beside the given ones by the greedy algorithm, which takes the block of the largest gain each time.

    Gains of different blocks do not depend on each other: each block has a greedy sequence of its own, of which as much is computed as is
    needed, and these are merged.
    """
    groups = neighbours(X)
    lengths = [min(len(ids), 8 + 2 * count * len(ids) // len(X)) for ids in groups]
    runs = [_greedy(X[ids], quality[ids], np.isin(ids, given), most) for ids, most in zip(groups, lengths)]
    while True:
        gains = np.concatenate([gains for _, gains in runs])
        items = np.concatenate([ids[order] for ids, (order, _) in zip(groups, runs)])
        chosen = np.lexsort((items, -gains))
        chosen = chosen[np.isfinite(gains[chosen])][:count]
        used = np.bincount(
            np.repeat(np.arange(len(groups)), [len(order) for order, _ in runs])[chosen], minlength=len(groups)
        )
        short = [i for i, ids in enumerate(groups) if used[i] == lengths[i] < len(ids)]
        if not short:
            return np.asarray(items[chosen])
        for i in short:
            lengths[i] = min(2 * lengths[i], len(groups[i]))
            ids = groups[i]
            runs[i] = _greedy(X[ids], quality[ids], np.isin(ids, given), lengths[i])


def neighbours(X: RealArray) -> list[IntArray]:
    """Return blocks of ids of about the same size: halves, and halves of these, along the direction in which the items differ most."""
    waiting, out = [np.arange(len(X))], []
    while waiting:
        ids = waiting.pop()
        if len(ids) <= BLOCK:
            out.append(ids)
            continue
        some = X[ids[:: max(1, len(ids) // BLOCK)]].astype(np.float64)
        direction = np.linalg.eigh(np.cov(some.T).reshape(X.shape[1], -1))[1][:, -1]
        order = np.argsort(X[ids] @ direction, kind="stable")
        waiting += [np.sort(ids[order[len(ids) // 2 :]]), np.sort(ids[order[: len(ids) // 2]])]
    return out


def _greedy(X: RealArray, quality: FloatArray, given: BoolArray, count: int) -> tuple[IntArray, FloatArray]:
    """Return the first items of the greedy sequence of one block, and their gains; given ones are there from the start."""
    rows = X.astype(np.float64, copy=False)
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows / np.where(lengths > 0, lengths, 1.0)[:, None]
    S = np.ascontiguousarray((np.clip(rows @ rows.T, 0.0, None) * quality).T)  # row j: what item j covers
    covered = S[given].max(axis=0, initial=0.0)
    bounds = np.maximum(S - covered, 0.0).sum(axis=1)
    bounds[given] = -np.inf
    items, gains = np.empty(count, np.int64), np.empty(count)
    for t in range(count):
        while True:  # gains only fall: what is up to date and largest is the best [Minoux, 1978]
            j = int(bounds.argmax())
            if bounds[j] == -np.inf:
                return items[:t], gains[:t]
            bounds[j] = np.maximum(S[j] - covered, 0.0).sum()
            if bounds[j] >= bounds.max():
                break
        items[t], gains[t], bounds[j] = j, bounds[j], -np.inf
        np.maximum(covered, S[j], out=covered)
    return items, gains
