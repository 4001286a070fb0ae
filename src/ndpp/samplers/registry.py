"""Every sampler, described once: the command, contract tests, benchmarks and tables of the documentation read this.

A new sampler is one more entry of ``SAMPLERS``. No code looks at the name of a sampler to decide what to do with it; every decision is a
field of its :class:`SamplerSpec`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, NamedTuple

from ndpp._types import Items
from ndpp.errors import InvalidInputError
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers.base import Sampler
from ndpp.samplers.cholesky import Cholesky
from ndpp.samplers.clock import Clock
from ndpp.samplers.exact import Exact
from ndpp.samplers.naive import Naive
from ndpp.samplers.proposer import Proposer
from ndpp.samplers.rejection import Rejection
from ndpp.samplers.walk import DirectUp, NaiveUp, RandomSize, RejectionUp, UpStep, Walk


class SetSizes(Enum):
    """Which sets a sampler draws, in the words of tables."""

    FIXED = "size k"
    ANY = "any size"
    BOTH = "size k, or any"


class Timing(Enum):
    """What benchmarks time."""

    DRAW = "a draw"
    STEP = "a step of a chain; a sample takes k² of them"
    PROPOSAL = "a draw, or a proposal times the expected number of proposals if a draw would take too long"


class Request(NamedTuple):
    """Settings to prepare a sampler with. Each sampler uses those that it knows, according to its :class:`SamplerSpec`."""

    size: int | None = None  #: Number of items per set; any number if None.
    given: Items = ()  #: Items that every set contains.
    steps: int | None = None  #: Steps of a chain; k² if None.
    start: Literal["uniform", "greedy"] = "uniform"  #: Where a chain starts.
    device: str = "cpu"  #: Where to draw.
    max_proposals: float = 1e6  #: Maximum expected number of proposals per draw of a rejection sampler.


@dataclass(frozen=True)
class SamplerSpec:
    """Everything about a sampler that can be known without running it.

    Costs are written with n items, rank r, size k, t steps and N nodes; κ and α depend on the kernel.
    """

    name: str  #: As the command calls it.
    cls: type[Sampler]  #: Its class.
    prepare: Callable[[LowRankKernel, Request], Sampler]  #: Returns the prepared sampler.
    sizes: SetSizes  #: Which sets it draws.
    summary: str  #: One line.
    cost: str  #: Cost of a sample.
    exact: bool = True  #: Whether its sets follow the law, and not only in the limit.
    unit_cost: str = ""  #: Cost of what ``timing`` says; that of a sample if empty.
    preparation: str = "O(n r²)"  #: Cost of ``prepare``.
    source: str = ""  #: Its origin, with a link to the references or the theory.
    remark: str = ""  #: Follows its name in the README.
    up: UpStep | None = None  #: The up-step of a walk.
    any_size_cls: type[Sampler] | None = None  #: The class that draws sets of any size, if it is not ``cls``.
    other_laws: tuple[type[Sampler], ...] = ()  #: Its classes for kernels with a background and for mixtures.
    timing: Timing = Timing.DRAW  #: What benchmarks time; ``Timing.STEP`` for chains and only for them.
    takes_given: bool = False  #: Whether sets can contain given items.
    on_gpu: bool = False  #: Whether it can draw on a GPU.
    max_items: int | None = None  #: Largest catalogue of an oracle, which is neither timed nor offered by the command.
    pictured: bool = True  #: Whether the tables of the README and the theory page include it.

    @property
    def label(self) -> str:
        """Its name in recorded results: ``Walk(DirectUp)``."""
        return self.cls.__name__ + ("" if self.up is None else f"({type(self.up).__name__})")

    @property
    def expression(self) -> str:
        """Its name as Python: ``Walk(up=DirectUp())``."""
        return self.cls.__name__ + ("" if self.up is None else f"(up={type(self.up).__name__}())")

    @property
    def law(self) -> str:
        """Which sets it draws, in words."""
        other = self.any_size_cls
        return self.sizes.value if other is None else f"{SetSizes.FIXED.value} (`{other.__name__}`: any)"

    @property
    def is_chain(self) -> bool:
        """Whether it takes ``steps`` and ``start``."""
        return self.timing is Timing.STEP

    @property
    def is_offered(self) -> bool:
        """Whether the command offers it and benchmarks time it: it works for every catalogue."""
        return self.max_items is None

    def draws(self, size: int | None) -> bool:
        """Whether it draws sets of this size, or of any size if None."""
        return self.sizes is SetSizes.BOTH or (self.sizes is SetSizes.ANY) == (size is None)


def offered(size: int | None) -> list[SamplerSpec]:
    """Return the samplers that draw sets of this size, or of any size if None, from every kernel; ``Exact`` comes first.

    Examples
    --------
    >>> [spec.name for spec in offered(3)]
    ['exact', 'walk', 'rejection-walk', 'rejection']
    """
    return [spec for spec in SAMPLERS if spec.is_offered and spec.draws(size)]


def find(name: str) -> SamplerSpec:
    """Return the sampler with this name.

    Examples
    --------
    >>> find("rejection-walk").expression
    'Walk(up=RejectionUp())'
    """
    known = {spec.name: spec for spec in SAMPLERS}
    if name not in known:
        raise InvalidInputError(f"there is no sampler {name!r}; choose from {', '.join(known)}")
    return known[name]


def walks(up: UpStep) -> Callable[[LowRankKernel, Request], Sampler]:
    """Return a function that prepares a walk with this up-step, of one size or of a random size."""

    def prepare(kernel: LowRankKernel, request: Request) -> Sampler:
        size, steps, start = request.size, request.steps, request.start
        if size is None:
            return RandomSize.prepare(kernel, up=up, steps=steps, start=start)
        return Walk.prepare(kernel, size=size, up=up, steps=steps, start=start)

    return prepare


EXACT = SamplerSpec(
    name="exact", cls=Exact, other_laws=(Proposer,), sizes=SetSizes.BOTH, takes_given=True, on_gpu=True,
    prepare=lambda kernel, request: kernel.sampler(size=request.size, given=request.given, device=request.device),
    summary="exact, and its cost does not grow with the number of items",
    cost="O(k N r² log k)", unit_cost="O(k N r² log k), whatever n", preparation="O(n r² + N r³)",
    source="Theorem 4", remark="what `kernel.sample` uses",
)  # fmt: skip
WALK = SamplerSpec(
    name="walk", cls=Walk, any_size_cls=RandomSize, sizes=SetSizes.BOTH, exact=False, timing=Timing.STEP,
    up=DirectUp(), prepare=walks(DirectUp()),
    summary="a Markov chain that rejects no pair of items",
    cost="O(k r² t), or O(r³ t) for large n", unit_cost="O(k r²) per step, or O(r³)",
    source="Theorem 7",
)  # fmt: skip
PAPERS_WALK = replace(
    WALK, name="rejection-walk", up=RejectionUp(), prepare=walks(RejectionUp()),
    summary="the paper's Markov chain; its rejections grow with the skew part",
    cost="O(r³ t + r² (1 + κ)² t)", unit_cost="O(r³) per step, O(r²) per proposal",
    source="[Han et al., ICML 2022](#han2022mcmc)", remark="the paper's",
)  # fmt: skip
REJECTION = SamplerSpec(
    name="rejection", cls=Rejection, sizes=SetSizes.BOTH, timing=Timing.PROPOSAL,
    prepare=lambda kernel, request: Rejection.prepare(kernel, size=request.size, max_proposals=request.max_proposals),
    summary="exact, for kernels with a small skew part",
    cost="O(k r² (1 + α)^r)", unit_cost="O(k r²) per proposal",
    source="[Han et al., ICLR 2022](#han2022sampling)",
)  # fmt: skip
CHOLESKY = SamplerSpec(
    name="cholesky", cls=Cholesky, sizes=SetSizes.ANY, prepare=lambda kernel, request: Cholesky.prepare(kernel),
    summary="exact, one pass over all items, nothing to prepare",
    cost="O(n r²)", preparation="–",
    source="[Poulson, 2020](#poulson2020); [Han et al., ICLR 2022](#han2022sampling)",
)  # fmt: skip
CLOCK = SamplerSpec(
    name="clock", cls=Clock, sizes=SetSizes.ANY, prepare=lambda kernel, request: Clock.prepare(kernel),
    summary="exact, in real arithmetic: a check of the exact sampler",
    cost="O(k r³)",
    source="this library",
)  # fmt: skip
NAIVE_WALK = replace(
    WALK, name="naive-walk", up=NaiveUp(), prepare=walks(NaiveUp()), max_items=NaiveUp().max_items,
    summary="a Markov chain that enumerates all pairs of items",
    cost="O(n² k³ t)", unit_cost="O(n² k³) per step", preparation="–",
    source="[Alimohammadi et al., 2021](#alimohammadi2021)",
)  # fmt: skip
NAIVE = SamplerSpec(
    name="naive", cls=Naive, sizes=SetSizes.BOTH, max_items=18, pictured=False,
    prepare=lambda kernel, request: Naive.prepare(kernel, size=request.size),
    summary="exact, by enumeration of all sets",
    cost="O(n)", preparation="O(2ⁿ n³)",
)  # fmt: skip

SAMPLERS: tuple[SamplerSpec, ...] = (EXACT, WALK, PAPERS_WALK, REJECTION, CHOLESKY, CLOCK, NAIVE_WALK, NAIVE)
"""All samplers, in the order of lists and tables."""
