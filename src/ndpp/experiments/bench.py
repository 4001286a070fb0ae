"""How fast are the samplers here? A short benchmark on one kernel; ratios within one run are what it is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ndpp.errors import NDPPError
from ndpp.experiments.timing import Stopwatch, sample_times
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
            watch = Stopwatch()
            with watch:
                sampler = prepare()
            times, count = sample_times(sampler, seed=seed, seconds=seconds)
        except NDPPError as reason:
            timings.append(Timing(name, None, None, None, 0, str(reason)))
            continue
        first = next((timing.seconds for timing in timings if timing.seconds), times.wall)
        timings.append(Timing(name, watch.wall[0], times.wall, times.wall / first, count))
    return timings
