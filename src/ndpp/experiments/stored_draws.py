"""Sets of a small catalogue drawn in their millions, kept as they come: a run that is interrupted goes on where it was.

Draw i depends on the seed and on i alone, so what an earlier run has drawn need not be drawn again. That the sampler is still
the one that drew it is shown, not believed: its first draws have to come out the same, or all are drawn afresh.
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
"""Draws that are made again to see that the sampler is the same."""


def masks_of(baskets: Baskets) -> IntArray:
    """Return each basket of a small catalogue as a bit mask.

    Examples
    --------
    >>> masks_of(Baskets.from_lists([[0, 2], [], [1]]))
    array([5, 0, 2])
    """
    bits = 1 << np.arange(baskets.n_items)
    return np.asarray(baskets.to_csr().astype(np.int64) @ bits)


def drawn(
    sampler: Sampler, n_draws: int, *, seed: int, keep: Path | None = None, say: Callable[[int], None] = lambda _: None
) -> IntArray:
    """Return the masks of ``n_draws`` sets, drawn by all cores, in processes.

    Parameters
    ----------
    sampler : Sampler
        Of a catalogue of at most 62 items.
    n_draws, seed : int
        As for ``sampler.sample``; neither blocks nor cores change a draw.
    keep : path, optional
        A file of masks that is read first and written as draws come.
    say : callable
        Is told the number of draws after each block.

    Examples
    --------
    >>> from ndpp.datasets import make_kernel
    >>> from ndpp.samplers import Exact
    >>> sampler = Exact.prepare(make_kernel(6, 4, rng=0), size=2)
    >>> bool((drawn(sampler, 5, seed=0) == masks_of(sampler.sample(5, rng=0).baskets)).all())
    True
    """
    masks = np.empty(0, np.int64) if keep is None else _kept(sampler, keep, seed)
    # Processes: most of a draw from a small catalogue is Python's, which threads do not share.
    with joblib.parallel_config(backend="loky"):
        while len(masks) < n_draws:
            block = min(BLOCK, n_draws - len(masks))
            new = sampler.sample(block, rng=seed, first=len(masks), n_jobs=-1 if n_draws > BLOCK else 1)
            masks = np.concatenate([masks, masks_of(new.baskets)])
            if keep is not None:
                _write(keep, masks)
            say(len(masks))
    return masks[:n_draws]


def _kept(sampler: Sampler, path: Path, seed: int) -> IntArray:
    """Return what the file holds, nothing if there is none or if the sampler draws something else now."""
    old = np.load(path).astype(np.int64) if path.is_file() else np.empty(0, np.int64)
    again = masks_of(sampler.sample(min(PROBE, len(old)), rng=seed).baskets)
    return old if np.array_equal(old[: len(again)], again) else old[:0]


def _write(path: Path, masks: IntArray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.save(file, masks.astype(np.min_scalar_type(int(masks.max(initial=0)))))
