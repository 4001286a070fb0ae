"""Samplers by name: those of :mod:`ndpp.samplers.registry` that serve every kernel."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, cast

import typer

from ndpp.cli.files import Law, require
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers import Sampler
from ndpp.samplers.registry import EXACT, SAMPLERS, Request, SamplerSpec

SPECS: dict[str, SamplerSpec] = {spec.name: spec for spec in SAMPLERS if spec.is_offered}
WALKS: dict[str, SamplerSpec] = {name: spec for name, spec in SPECS.items() if spec.is_chain}


class WalkStart(StrEnum):
    """Where a walk starts."""

    uniform = "uniform"
    greedy = "greedy"


def sampler_option(help: str, specs: dict[str, SamplerSpec]) -> Any:
    """Declare an option that takes the name of one of these samplers, with shell completion."""

    def complete(incomplete: str) -> list[tuple[str, str]]:
        return [(name, spec.summary) for name, spec in specs.items() if name.startswith(incomplete)]

    def check(name: str) -> str:
        require(name in specs, f"{name!r} is not one of {', '.join(specs)}")
        return name

    return typer.Option(metavar="NAME", help=f"{help}: {', '.join(specs)}.", autocompletion=complete, callback=check)


def prepare(name: str, law: Law, request: Request) -> Sampler:
    """Return a prepared sampler; a request that it cannot meet is a usage error."""
    spec = SPECS[name]
    # The samplers of the literature are defined for a single kernel.
    serves = isinstance(law, LowRankKernel) or bool(spec.other_laws)
    require(serves, f"mixtures are drawn by --sampler {EXACT.name}; {name} needs a single kernel")
    able = " or ".join(other.name for other in SPECS.values() if other.takes_given)
    require(spec.takes_given or not len(request.given), f"--given needs --sampler {able}; {name} cannot condition")
    instead = f"or use --sampler {EXACT.name}"
    wrong = (
        f"of any size; omit --size, {instead}" if request.size is not None else f"of one size; give --size, {instead}"
    )
    require(spec.draws(request.size), f"{name} draws baskets {wrong}")
    is_plain = request.steps is None and request.start == WalkStart.uniform
    require(spec.is_chain or is_plain, f"--steps and --start are for walks; {name} is not a walk")
    able = " or ".join(other.name for other in SPECS.values() if other.on_gpu)
    require(spec.on_gpu or request.device == "cpu", f"--device needs --sampler {able}; others run on the CPU")
    return spec.prepare(cast(LowRankKernel, law), request)
