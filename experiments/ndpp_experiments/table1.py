"""Table 1: the cost of one sample, in theory and as measured exponents of n, of the rank d and of k [Han22].

Exponents are slopes on log-log axes, each over a sweep of one variable with the others held fixed. At small sizes constant overhead
hides part of an exponent, so a measured one is a lower bound for large sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from ndpp.datasets import make_kernel
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers import NaiveUp, Rejection, Walk, registry
from ndpp.samplers.registry import CHOLESKY, NAIVE_WALK, PAPERS_WALK, REJECTION, Request, SamplerSpec, Timing, offered
from ndpp.samplers.walk.up import UpStep
from ndpp_experiments.claims import Claim
from ndpp_experiments.plots import Curve, Panel, fitted_slope, runtimes
from ndpp_experiments.record import Finding, Result, Say, grouped, number
from ndpp_experiments.samplers_timed import PREPARATION
from ndpp_experiments.timing import afresh, draw_times, prepared, proposal_times, step_times
from ndpp_experiments.tree import Tree, TreeUp, through_tree

PAPER = {
    CHOLESKY.label: "O(n d²)",
    REJECTION.label: "O((log n·k³ + k⁴ + d)(1 + α)^d)",
    NAIVE_WALK.label: "O(n² k³ t)",
    PAPERS_WALK.label: "O((log n·d² + d³)(1 + κ)² t)",
    PREPARATION: "O(n d²)",
}
"""The paper's cost of one sample, for the samplers it covers."""
Variable = Literal["n", "d", "k"]
NAMES: dict[Variable, str] = {"n": "items n", "d": "rank d", "k": "size k"}


FULL: dict[Variable, tuple[int, ...]] = {"n": (1000, 4000, 16000, 64000), "d": (20, 40, 80, 160), "k": (4, 8, 16, 32)}
QUICK: dict[Variable, tuple[int, ...]] = {"n": (200, 800), "d": (8, 16), "k": (2, 4)}
"""Values of the variable that is swept."""


class Dimensions(NamedTuple):
    """The number of items, the rank and the size."""

    n: int
    d: int
    k: int


class UnitTime(NamedTuple):
    """Seconds of one draw, step or proposal of a sampler, at one point of a sweep."""

    sweep: Variable
    sampler: str
    n: int
    d: int
    k: int
    seconds: float

    @property
    def x(self) -> int:
        """The value of the variable that is swept."""
        return {"n": self.n, "d": self.d, "k": self.k}[self.sweep]


def measure(*, quick: bool, seed: int, say: Say) -> Result:
    """Time every sampler along every sweep and fit exponents."""
    sweeps, held, seconds = (QUICK, Dimensions(400, 8, 4), 0.02) if quick else (FULL, Dimensions(4000, 40, 8), 0.5)
    times: list[UnitTime] = []
    for variable, values in sweeps.items():
        for problem in (held._replace(**{variable: value}) for value in values):
            kernel = make_kernel(problem.n, problem.d, rng=seed)
            found = unit_times(kernel, problem.k, seed=seed, seconds=seconds, only_of_size=variable == "k")
            times += [UnitTime(variable, sampler, *problem, took) for sampler, took in found.items()]
            say(f"n = {problem.n:,}, d = {problem.d}, k = {problem.k}")
    for n in (12, 24) if quick else (50, 100, 200, 400):
        took = _step(make_kernel(n, 8, rng=seed), 4, NaiveUp(), seed=seed, seconds=seconds)
        times.append(UnitTime("n", NAIVE_WALK.label, n, 8, 4, took))
    naive = Dimensions(60, 8, 4) if quick else Dimensions(1000, 100, 10)
    findings = [*_findings(times), _naive_finding(*naive, seed=seed, seconds=seconds)]
    settings = {str(variable): values for variable, values in sweeps.items()}
    return Result(settings, findings, {"": times}, runtimes(list(_panels(times))), NOTES)


NOTES = (
    "Walks are timed per step and `Rejection` per proposal, so that the numbers of steps and proposals, which depend on the kernel, do "
    "not matter. The paper's column is the cost of a whole sample of t steps; our r is its d. Exponents are of n, d and k; constant "
    "overhead keeps them below the theoretical ones at these sizes.",
    "`Exact` re-centres its circle at most once per draw, depending on the spectrum of the kernel. At small ranks this shows as jumps in "
    "its curves, which a fitted exponent takes for growth. Figure 2, over four decades of n, has no such trend.",
)


def unit_times(kernel: LowRankKernel, size: int, *, seed: int, seconds: float, only_of_size: bool) -> dict[str, float]:
    """Return seconds of one draw, step or proposal of every sampler, or only of those that draw sets of one size."""
    tree, preparation = prepared(lambda: Tree.prepare(afresh(kernel)))
    request = Request(size, max_proposals=float("inf"))
    specs = offered(size) + ([] if only_of_size else [spec for spec in offered(None) if not spec.draws(size)])
    found = {
        spec.label: _unit(through_tree(spec, tree), tree.kernel, request, seed=seed, seconds=seconds) for spec in specs
    }
    return found if only_of_size else {**found, PREPARATION: preparation}


def _unit(spec: SamplerSpec, kernel: LowRankKernel, request: Request, *, seed: int, seconds: float) -> float:
    sampler = spec.prepare(kernel, request if spec.draws(request.size) else request._replace(size=None))
    if spec.timing is Timing.STEP:
        assert isinstance(sampler, Walk)
        start = kernel.sample(1, size=request.size, rng=seed)[0]
        return step_times(sampler, start, seed=seed, seconds=seconds).times.median
    if spec.timing is Timing.PROPOSAL:
        assert isinstance(sampler, Rejection)
        return proposal_times(sampler, kernel, seed=seed, seconds=seconds).median
    return draw_times(sampler, seed=seed, seconds=seconds).median


def _step(kernel: LowRankKernel, size: int, up: UpStep, *, seed: int, seconds: float, least: int = 10) -> float:
    start = kernel.sample(1, size=size, rng=seed)[0]
    walk = Walk.prepare(kernel, size=size, up=up, start=start)
    return step_times(walk, start, seed=seed, seconds=seconds, least=least).times.median


def _naive_finding(n: int, d: int, k: int, *, seed: int, seconds: float) -> Finding:
    kernel, ups = make_kernel(n, d, rng=seed), (NaiveUp(max_items=n), TreeUp())
    naive, papers = (_step(kernel, k, up, seed=seed, seconds=seconds, least=3) for up in ups)
    what = f"a step of the naive walk over one of the paper's, n = {n:,}, d = {d}, k = {k}"
    found = Finding(what, "over 1,000 at n = 1,000", number(naive / papers))
    return found._replace(holds=naive / papers > 1000, claim=Claim.NAIVE) if n == 1000 else found


def _findings(times: Sequence[UnitTime]) -> Iterator[Finding]:
    costs = {spec.label: spec.unit_cost or spec.cost for spec in registry.SAMPLERS} | {PREPARATION: "O(n r²)"}
    for sampler, own in grouped(times, lambda time: time.sampler).items():
        slopes = {
            variable: fitted_slope([time.x for time in points], [time.seconds for time in points])
            for variable, points in grouped(own, lambda time: time.sweep).items()
        }
        exponents = ", ".join(f"{variable}^{slope:.2f}" for variable, slope in slopes.items())
        last = own[-1]
        example = f"{number(1e3 * last.seconds)} ms at n = {last.n:,}, d = {last.d}, k = {last.k}"
        yield Finding(f"`{sampler}`", PAPER.get(sampler, ""), f"{costs[sampler]}; measured {exponents}; {example}")


def _panels(times: Sequence[UnitTime]) -> Iterator[Panel]:
    for variable, own in grouped(times, lambda time: time.sweep).items():
        curves = [
            Curve(sampler, *zip(*((time.x, time.seconds) for time in points)))
            for sampler, points in grouped(own, lambda time: time.sampler).items()
        ]
        held = ", ".join(f"{name} = {getattr(own[0], name):,}" for name in NAMES if name != variable)
        yield Panel(f"One draw, step or proposal; {held}", NAMES[variable], "seconds", curves)
