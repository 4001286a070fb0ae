"""Every sampler, described once: the command, the contract tests, the benchmarks and the tables of the documentation read this.

A new sampler is one more entry of ``SAMPLERS``. Nothing looks at a sampler's name to decide what to do with it: what there
is to decide is a field of its :class:`SamplerSpec`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, NamedTuple

from ndpp._types import Items
from ndpp.errors import InvalidInputError
from ndpp.items import ItemIndex
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers.base import Sampler
from ndpp.samplers.cholesky import Cholesky
from ndpp.samplers.clock import Clock
from ndpp.samplers.exact import Exact
from ndpp.samplers.naive import Naive
from ndpp.samplers.rejection import Rejection
from ndpp.samplers.symmetric import SymmetricTree
from ndpp.samplers.walk import DirectUp, NaiveUp, RandomSize, RejectionUp, UpStep, Walk


class Sizes(Enum):
    """Which sets a sampler draws. The values are the words of tables."""

    FIXED = "size k"
    ANY = "any size"
    BOTH = "size k, or any"


class Timing(Enum):
    """What is timed of a sampler."""

    DRAW = "a draw"
    STEP = "a step of a chain; a sample takes k² of them"
    PROPOSAL = "a draw, or a proposal times their mean number where a draw would take too long"


class Request(NamedTuple):
    """What a sampler is prepared with. Each takes what it knows; its :class:`SamplerSpec` says what that is."""

    size: int | None = None
    """Items of each set; any number if None."""
    given: Items = ()
    """Items that are in every set."""
    steps: int | None = None
    """Steps of a chain; k² if None."""
    start: Literal["uniform", "greedy"] = "uniform"
    """Where a chain begins."""
    device: str = "cpu"
    max_proposals: float = 1e6
    """Largest mean number of proposals per draw that a sampler by rejection accepts."""
    tree: ItemIndex | None = None
    """A tree that is there already, for samplers that would build their own."""


@dataclass(frozen=True)
class SamplerSpec:
    """What there is to know of a sampler without running it.

    Attributes
    ----------
    name : str
        What the command calls it.
    cls : type
        Its class.
    prepare : callable
        Takes a kernel and a :class:`Request` and returns the prepared sampler.
    exact : bool
        Whether its sets follow the law, and not only in a limit.
    sizes : Sizes
        Which sets it draws.
    summary : str
        What it is, in a line.
    cost : str
        Of one sample: n items, rank r, size k, t steps, N nodes; κ and α depend on the kernel.
    unit_cost : str
        Of what ``timing`` says; that of a sample if empty.
    preparation : str
        Cost of ``prepare``.
    source : str
        Where it comes from, with a link into the references or the theory.
    remark : str
        Follows its name in the README.
    up : UpStep, optional
        How a walk puts two items back.
    any_size_cls : type, optional
        The class that draws sets of any size, where that is not ``cls``.
    timing : Timing
        What benchmarks time. The steps of a chain, and nothing else, are ``Timing.STEP``.
    takes_given : bool
        Whether it can hold given items fixed.
    on_gpu : bool
        Whether it draws on a GPU, too.
    max_items : int, optional
        Largest catalogue of an oracle, a sampler that enumerates. Oracles are neither timed nor offered by the command.
    symmetric_only : bool
        Whether it draws from symmetric kernels alone.
    pictured : bool
        Whether it has a row in the tables of the README and of the theory page.
    """

    name: str
    cls: type[Sampler]
    prepare: Callable[[LowRankKernel, Request], Sampler]
    exact: bool
    sizes: Sizes
    summary: str
    cost: str
    unit_cost: str = ""
    preparation: str = "O(n r²)"
    source: str = ""
    remark: str = ""
    up: UpStep | None = None
    any_size_cls: type[Sampler] | None = None
    timing: Timing = Timing.DRAW
    takes_given: bool = False
    on_gpu: bool = False
    max_items: int | None = None
    symmetric_only: bool = False
    pictured: bool = True

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
        return self.sizes.value if other is None else f"{Sizes.FIXED.value} (`{other.__name__}`: any)"

    @property
    def is_chain(self) -> bool:
        """Whether it takes ``steps`` and ``start``."""
        return self.timing is Timing.STEP

    @property
    def is_offered(self) -> bool:
        """Whether the command offers it and benchmarks time it: it serves every kernel."""
        return self.max_items is None and not self.symmetric_only

    def draws(self, size: int | None) -> bool:
        """Whether it draws sets of this size, or of any if None."""
        return self.sizes is Sizes.BOTH or (self.sizes is Sizes.ANY) == (size is None)


def offered(size: int | None) -> list[SamplerSpec]:
    """Return the samplers that draw sets of this size, or of any if None, from every kernel; ``Exact`` comes first.

    Examples
    --------
    >>> [spec.name for spec in offered(3)]
    ['exact', 'walk', 'rejection-walk', 'rejection']
    """
    return [spec for spec in SAMPLERS if spec.is_offered and spec.draws(size)]


def find(name: str) -> SamplerSpec:
    """Return the sampler of this name.

    Examples
    --------
    >>> find("rejection-walk").expression
    'Walk(up=RejectionUp())'
    """
    for spec in SAMPLERS:
        if spec.name == name:
            return spec
    raise InvalidInputError(f"there is no sampler {name!r}; there are {', '.join(spec.name for spec in SAMPLERS)}")


def _walk(up: UpStep) -> Callable[[LowRankKernel, Request], Sampler]:
    """Return what prepares a walk with this up-step, of one size or of a random one."""

    def prepare(kernel: LowRankKernel, request: Request) -> Sampler:
        tree = request.tree
        step = up if tree is None or not isinstance(up, RejectionUp) else replace(up, index=lambda _: tree)
        if request.size is None:
            return RandomSize.prepare(kernel, up=step, steps=request.steps, start=request.start)
        return Walk.prepare(
            kernel, size=request.size, up=step, steps=request.steps, start=request.start, device=request.device
        )

    return prepare


EXACT = SamplerSpec(
    name="exact",
    cls=Exact,
    prepare=lambda kernel, request: kernel.sampler(size=request.size, given=request.given, device=request.device),
    exact=True,
    sizes=Sizes.BOTH,
    summary="exact, and its cost does not grow with the number of items",
    cost="O(k N r² + r³ log k)",
    unit_cost="O(k N r² + r³ log k), whatever n",
    preparation="O(n r² + N r³)",
    source="Theorem 4",
    remark="what `kernel.sample` uses",
    takes_given=True,
    on_gpu=True,
)
WALK = SamplerSpec(
    name="walk",
    cls=Walk,
    any_size_cls=RandomSize,
    up=DirectUp(),
    prepare=_walk(DirectUp()),
    exact=False,
    sizes=Sizes.BOTH,
    summary="a Markov chain that rejects no pair of items",
    cost="O(k r² t), or O(r³ t) for large n",
    unit_cost="O(k r²) per step, or O(r³)",
    source="Theorem 7",
    timing=Timing.STEP,
)
PAPERS_WALK = SamplerSpec(
    name="rejection-walk",
    cls=Walk,
    any_size_cls=RandomSize,
    up=RejectionUp(),
    prepare=_walk(RejectionUp()),
    exact=False,
    sizes=Sizes.BOTH,
    summary="the paper's Markov chain; its rejections grow with the skew part",
    cost="O((r² log n + r³)(1 + κ)² t)",
    unit_cost="O(r³ + r² log n) per step",
    source="[Han et al., ICML 2022](#han2022mcmc)",
    remark="the paper's",
    timing=Timing.STEP,
)
REJECTION = SamplerSpec(
    name="rejection",
    cls=Rejection,
    prepare=lambda kernel, request: Rejection.prepare(
        kernel, size=request.size, max_proposals=request.max_proposals, index=request.tree
    ),
    exact=True,
    sizes=Sizes.BOTH,
    summary="exact, for kernels with a small skew part",
    cost="O((k³ log n + k⁴ + r)(1 + α)^r)",
    unit_cost="k·O(r² log n) per proposal",
    source="[Han et al., ICLR 2022](#han2022sampling)",
    timing=Timing.PROPOSAL,
)
CHOLESKY = SamplerSpec(
    name="cholesky",
    cls=Cholesky,
    prepare=lambda kernel, request: Cholesky.prepare(kernel),
    exact=True,
    sizes=Sizes.ANY,
    summary="exact, one pass over all items, nothing to prepare",
    cost="O(n r²)",
    preparation="–",
    source="[Poulson, 2020](#poulson2020); [Han et al., ICLR 2022](#han2022sampling)",
)
CLOCK = SamplerSpec(
    name="clock",
    cls=Clock,
    prepare=lambda kernel, request: Clock.prepare(kernel),
    exact=True,
    sizes=Sizes.ANY,
    summary="exact, in real arithmetic: a check of the exact sampler",
    cost="O(k r³)",
    source="this library",
)
NAIVE_WALK = SamplerSpec(
    name="naive-walk",
    cls=Walk,
    any_size_cls=RandomSize,
    up=NaiveUp(),
    prepare=_walk(NaiveUp()),
    exact=False,
    sizes=Sizes.BOTH,
    summary="a Markov chain that looks at all pairs of items",
    cost="O(n² k³ t)",
    unit_cost="O(n² k³) per step",
    preparation="–",
    source="[Alimohammadi et al., 2021](#alimohammadi2021)",
    timing=Timing.STEP,
    max_items=NaiveUp().max_items,
)
NAIVE = SamplerSpec(
    name="naive",
    cls=Naive,
    prepare=lambda kernel, request: Naive.prepare(kernel, size=request.size),
    exact=True,
    sizes=Sizes.BOTH,
    summary="exact, by enumeration of all sets",
    cost="O(n)",
    preparation="O(2ⁿ n³)",
    max_items=18,
    pictured=False,
)
SYMMETRIC = SamplerSpec(
    name="symmetric-tree",
    cls=SymmetricTree,
    prepare=lambda kernel, request: SymmetricTree.prepare(kernel, size=request.size, index=request.tree),
    exact=True,
    sizes=Sizes.BOTH,
    summary="exact, for symmetric kernels: a mixture of elementary DPPs",
    cost="O(k r² log n)",
    source="[Han et al., ICML 2022](#han2022mcmc)",
    symmetric_only=True,
    pictured=False,
)

SAMPLERS: tuple[SamplerSpec, ...] = (
    EXACT,
    WALK,
    PAPERS_WALK,
    REJECTION,
    CHOLESKY,
    CLOCK,
    NAIVE_WALK,
    NAIVE,
    SYMMETRIC,
)
"""All samplers, in the order of lists and tables."""
