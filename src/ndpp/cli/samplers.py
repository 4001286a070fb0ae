"""The one place where a sampler is a word."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from ndpp import samplers as s
from ndpp._types import IntArray
from ndpp.cli.files import need
from ndpp.kernel import LowRankKernel


class Start(StrEnum):
    """Where a walk begins."""

    uniform = "uniform"
    greedy = "greedy"


class Name(StrEnum):
    """The samplers."""

    exact = "exact"
    walk = "walk"
    rejection_walk = "rejection-walk"
    rejection = "rejection"
    cholesky = "cholesky"
    clock = "clock"


class Settings(NamedTuple):
    """What the samplers are prepared with."""

    size: int | None = None
    given: IntArray | tuple[int, ...] = ()
    steps: int | None = None
    start: Start = Start.uniform
    device: str = "cpu"
    max_proposals: float = 1e6


def _exact(kernel: LowRankKernel, use: Settings) -> s.Sampler:
    return s.Exact.prepare(kernel, size=use.size, given=use.given, device=use.device)


def _walk(up: s.DirectUp | s.RejectionUp | s.NaiveUp) -> Callable[[LowRankKernel, Settings], s.Sampler]:
    def prepare(kernel: LowRankKernel, use: Settings) -> s.Sampler:
        if use.size is None:
            return s.RandomSize.prepare(kernel, up=up, steps=use.steps, start=use.start.value)
        return s.Walk.prepare(kernel, size=use.size, up=up, steps=use.steps, start=use.start.value)

    return prepare


SAMPLERS: dict[Name, Callable[[LowRankKernel, Settings], s.Sampler]] = {
    Name.exact: _exact,
    Name.walk: _walk(s.DirectUp()),
    Name.rejection_walk: _walk(s.RejectionUp()),
    Name.rejection: lambda kernel, use: s.Rejection.prepare(kernel, size=use.size, max_proposals=use.max_proposals),
    Name.cholesky: lambda kernel, use: s.Cholesky.prepare(kernel),
    Name.clock: lambda kernel, use: s.Clock.prepare(kernel),
}
ANY_SIZE_ONLY = (Name.cholesky, Name.clock)
"""Samplers of the unconstrained law alone."""


def engine_of(sampler: s.Sampler) -> str:
    """Return what draws: "cpu" or "cuda". Each has draws of its own, whatever was asked for."""
    return "cpu" if sampler.engine is None else "cuda"


def prepare(name: Name, kernel: LowRankKernel, use: Settings) -> s.Sampler:
    """Return a prepared sampler; say which options it does not know."""
    walks = name in (Name.walk, Name.rejection_walk)
    need(name is Name.exact or not len(use.given), f"--given needs --sampler exact; {name} cannot hold items fixed")
    need(
        use.size is None or name not in ANY_SIZE_ONLY,
        f"{name} draws baskets of any size; leave --size out, or use exact",
    )
    need(
        walks or (use.steps is None and use.start is Start.uniform),
        f"--steps and --start are for walks; {name} is none",
    )
    need(use.device == "cpu" or name is Name.exact, "--device is for exact samples; others run on the CPU")
    return SAMPLERS[name](kernel, use)
