"""Millions of draws from a small catalogue, stored as they are made, so that an interrupted run can continue.

Draw i depends only on the seed and on i, so stored draws need not be repeated. The first of them are drawn again to verify that the
sampler has not changed; if they differ, the file is discarded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import joblib
import numpy as np

from ndpp._atomic import replacing
from ndpp._types import IntArray
from ndpp.baskets import Baskets
from ndpp.samplers.base import Sampler

BLOCK = 2000
"""Draws between two writes."""
PROBE = 200
"""Stored draws that are verified."""


def masks_of(baskets: Baskets) -> IntArray:
    """Return each basket of a small catalogue as a bit mask.

    Examples
    --------
    >>> masks_of(Baskets.from_lists([[0, 2], [], [1]]))
    array([5, 0, 2])
    """
    return np.asarray(baskets.to_csr().astype(np.int64) @ (1 << np.arange(baskets.n_items)))


def draw_masks(
    sampler: Sampler, n_draws: int, *, seed: int, file: Path | None = None, say: Callable[[int], None] = lambda _: None
) -> IntArray:
    """Return ``n_draws`` sets from a catalogue of at most 62 items as bit masks; all cores draw.

    ``file`` holds the draws of earlier runs and receives new ones. ``say`` is called with the number of draws after each block.

    Examples
    --------
    >>> from ndpp.datasets import make_kernel
    >>> from ndpp.samplers import Exact
    >>> sampler = Exact.prepare(make_kernel(6, 4, rng=0), size=2)
    >>> bool((draw_masks(sampler, 5, seed=0) == masks_of(sampler.sample(5, rng=0).baskets)).all())
    True
    """
    masks = np.empty(0, np.int64) if file is None else _stored(sampler, file, seed)
    # Processes, because a draw from a small catalogue is mostly Python code, which holds the GIL.
    with joblib.parallel_config(backend="loky"):
        while len(masks) < n_draws:
            block = min(BLOCK, n_draws - len(masks))
            new = sampler.sample(block, rng=seed, first=len(masks), n_jobs=-1 if n_draws > BLOCK else 1)
            masks = np.concatenate([masks, masks_of(new.baskets)])
            if file is not None:
                _store(file, masks)
            say(len(masks))
    return masks[:n_draws]


def _stored(sampler: Sampler, path: Path, seed: int) -> IntArray:
    """Return the draws in the file, none if it does not exist or comes from a different sampler."""
    old = np.load(path).astype(np.int64) if path.is_file() else np.empty(0, np.int64)
    again = masks_of(sampler.sample(min(PROBE, len(old)), rng=seed).baskets)
    return old if np.array_equal(old[: len(again)], again) else old[:0]


def _store(path: Path, masks: IntArray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.save(file, masks.astype(np.min_scalar_type(int(masks.max(initial=0)))))
