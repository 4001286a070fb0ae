"""A short benchmark of the samplers on one kernel. Compare ratios within one run; seconds depend on the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from ndpp.datasets import make_kernel
from ndpp.errors import NDPPError
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers import Sampler
from ndpp.samplers.registry import Request, SamplerSpec, offered
from ndpp_experiments.record import Say
from ndpp_experiments.timing import Stopwatch, afresh, sample_times

MAX_PROPOSALS = 100
"""Proposals per basket above which the rejection sampler is skipped."""


class SamplerTiming(NamedTuple):
    """Seconds to the first sample and per further one, and the ratio to the first sampler; or a note on why there are none."""

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
    say: Say = lambda text: None,
) -> list[SamplerTiming]:
    """Time samplers, given as functions that prepare them: to the first sample, and then for about ``seconds`` seconds, once warm.

    Examples
    --------
    >>> from ndpp.datasets import make_kernel
    >>> from ndpp.samplers import Exact
    >>> kernel = make_kernel(100, 10, rng=0)
    >>> timing = measure({"exact": lambda: Exact.prepare(kernel, size=4)}, seconds=0.01)[0]
    >>> timing.ratio, timing.n_samples > 0
    (1.0, True)
    """
    timings: list[SamplerTiming] = []
    for name, prepare in samplers.items():
        say(name)
        try:
            watch = Stopwatch()
            with watch:
                sampler = prepare()
                sampler.sample(1, rng=seed)  # some of what it needs is computed only now
            times, count = sample_times(sampler, seed=seed, seconds=seconds)
        except NDPPError as reason:
            timings.append(SamplerTiming(name, None, None, None, 0, str(reason)))
            continue
        first = next((timing.seconds for timing in timings if timing.seconds), times.wall)
        timings.append(SamplerTiming(name, watch.wall[0], times.wall, times.wall / first, count))
    return timings


def measure_all(
    kernel: LowRankKernel, size: int | None, *, device: str, seconds: float, seed: int, say: Say
) -> list[SamplerTiming]:
    """Time every sampler that the command offers for baskets of this size, None for any size, each from the factors of the kernel."""
    request = Request(size, max_proposals=MAX_PROPOSALS)

    def prepare(spec: SamplerSpec) -> Sampler:
        return spec.prepare(afresh(kernel), request._replace(device=device) if spec.on_gpu else request)

    ready = {spec.name: partial(prepare, spec) for spec in offered(size)}
    # A tiny kernel first, so that no sampler's time includes compiling and importing.
    tiny, small = make_kernel(20, 4, rng=seed), Request(None if size is None else min(2, size))
    measure({spec.name: partial(spec.prepare, tiny, small) for spec in offered(size)}, seconds=0.0)
    return measure(ready, seconds=seconds, seed=seed, say=say)
