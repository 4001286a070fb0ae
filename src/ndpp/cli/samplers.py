"""Samplers by name: those of :mod:`ndpp.samplers.registry` that serve every kernel."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import typer

from ndpp.cli.files import need
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers import Sampler
from ndpp.samplers.registry import EXACT, SAMPLERS, Request, SamplerSpec

SPECS: dict[str, SamplerSpec] = {spec.name: spec for spec in SAMPLERS if spec.is_offered}
WALKS: dict[str, SamplerSpec] = {name: spec for name, spec in SPECS.items() if spec.is_chain}


class Start(StrEnum):
    """Where a walk begins."""

    uniform = "uniform"
    greedy = "greedy"


def names_option(specs: dict[str, SamplerSpec], *, help: str) -> Any:
    """Return an option that takes the name of one of these samplers; the shell completes it."""

    def complete(incomplete: str) -> list[tuple[str, str]]:
        return [(name, spec.summary) for name, spec in specs.items() if name.startswith(incomplete)]

    def check(name: str) -> str:
        need(name in specs, f"{name!r} is not one of {', '.join(specs)}")
        return name

    return typer.Option(metavar="NAME", help=f"{help}: {', '.join(specs)}.", autocompletion=complete, callback=check)


def engine_of(sampler: Sampler) -> str:
    """Return what draws: "cpu" or "cuda". Each has draws of its own, whatever was asked for."""
    return "cpu" if sampler.engine is None else "cuda"


def prepare(name: str, kernel: LowRankKernel, request: Request) -> Sampler:
    """Return a prepared sampler; say which options it does not know."""
    spec = SPECS[name]
    able = " or ".join(other.name for other in SPECS.values() if other.takes_given)
    need(spec.takes_given or not len(request.given), f"--given needs --sampler {able}; {name} cannot hold items fixed")
    need(
        spec.draws(request.size),
        f"{name} draws baskets of any size; leave --size out, or use {EXACT.name}"
        if request.size is not None
        else f"{name} draws baskets of one size; give --size, or use {EXACT.name}",
    )
    need(
        spec.is_chain or (request.steps is None and request.start == Start.uniform),
        f"--steps and --start are for walks; {name} is none",
    )
    able = " or ".join(other.name for other in SPECS.values() if other.on_gpu)
    need(spec.on_gpu or request.device == "cpu", f"--device needs --sampler {able}; others run on the CPU")
    return spec.prepare(kernel, request)
