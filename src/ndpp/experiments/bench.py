"""How fast are the samplers here? A short benchmark on one kernel; ratios within one run are what it is for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ndpp.errors import NDPPError
from ndpp.samplers import Sampler


class Timing(NamedTuple):
    """One sampler: seconds to prepare and per sample, time per sample against the first sampler's, or why there is none."""

    sampler: str
    prepare: float | None
    seconds: float | None
    ratio: float | None
    n_samples: int
    note: str = ""


def measure(
    samplers: Mapping[str, Callable[[], Sampler]],
    *,
    seconds: float = 2.0,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> list[Timing]:
    """Return a timing of each sampler, drawing for about ``seconds`` seconds from each once it is warm.

    Parameters
    ----------
    samplers : mapping
        Names, and functions that prepare the sampler. Ratios are against the first.
    seconds : float
        Drawing time of each; one draw at least is made.
    seed : int
        Of the draws.
    say : callable
        Is told which sampler's turn it is.

    Examples
    --------
    >>> from ndpp.datasets import make_kernel
    >>> from ndpp.samplers import Exact
    >>> kernel = make_kernel(100, 10, rng=0)
    >>> timing = measure({"exact": lambda: Exact.prepare(kernel, size=4)}, seconds=0.01)[0]
    >>> timing.ratio, timing.n_samples > 0
    (1.0, True)
    """
    timings: list[Timing] = []
    for name, prepare in samplers.items():
        say(name)
        try:
            began = time.perf_counter()
            sampler = prepare()
            prepared = time.perf_counter() - began
            each, count = _draw(sampler, seconds, seed)
        except NDPPError as reason:
            timings.append(Timing(name, None, None, None, 0, str(reason)))
            continue
        first = next((timing.seconds for timing in timings if timing.seconds), each)
        timings.append(Timing(name, prepared, each, each / first, count))
    return timings


def _draw(sampler: Sampler, seconds: float, seed: int) -> tuple[float, int]:
    """Return the seconds per draw, and how many draws that is the mean of."""
    began = time.perf_counter()
    sampler.sample(1, rng=seed)  # compiles, fills caches
    if (spent := time.perf_counter() - began) > seconds:
        return spent, 1
    count, made, began = 1, 1, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        sampler.sample(count, rng=seed, first=made)
        made, count = made + count, 2 * count if spent < seconds / 4 else count
    return spent / (made - 1), made - 1
