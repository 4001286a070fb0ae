"""Exact samples of a nonsymmetric DPP, unconstrained or of one size, at a cost independent of the number of items.

Law: P(S) ∝ det(L_S), over all sets or those of size k, with given and excluded items. Exact: no chain, no mixing time, no rejection
constant that depends on the kernel. Items are drawn one after another from their conditional probabilities

    P(a ∈ S | Y ⊆ S, |S| = k) = q_aᵀMq_a,        M = [t^k] w(t)Z(t) / [t^k] w(t)        (``docs/theory``)

where the coefficients come from the trapezoid rule on a circle, and conditioning on one more item is a rank-one update at each node. The
leverages ‖q_a‖² bound all these probabilities, so one static table serves every item, with r/(k − i) proposals on average, whatever n.

Samples are drawn by the first of five routes that suits (:mod:`.routes`); ``sampler.route`` names it. Cost per sample of k items:

* ``projection``, for symmetric kernels: O(k r²), or O(n k²) if the rank is near n (:mod:`.spectral`).
* ``cholesky``, if the rank is near n and sets are large: O(n³), one pass over all items; for one size, passes until the size is right
  (:mod:`.sweep`).
* ``clock``, for any size, if the kernel has an eigenbasis, as learned kernels do: O(k² r) per move of a clock (:mod:`.eigenclock`).
* ``ring``, for one size, with an eigenbasis: O(k² N r), and O(N m r) for each of r/(k − m) candidates of item m + 1, in one compiled call
  that releases the interpreter's lock (:mod:`.eigenchain`). N is about 8 standard deviations of the size and falls as items are drawn.
* ``nodes``, for all kernels and sizes, and for the rest of a sample that fails a monitor elsewhere: O(k N r²) (:mod:`.node_route`).

Preparing is one QR of X. Memory in addition to X: the leverage table, at most ``memory`` bytes of circles, routes and rows in
eigencoordinates (16r bytes per item; of the items that are proposed most often, if not all fit), and for ``nodes`` one set of node
matrices per thread, 8 N r² bytes.

The radius follows the sample: as items are added, the remaining size drifts from its mean at the old radius, and the sampler re-centres on
another rung of a geometric ladder. Monitors, on every item: tr M = k − |Y| (shows any bias of the rule), the surviving fraction
|Σ Re w|/Σ|w| (digits lost), acceptance probabilities within [0, 1]; on every sample, in eigencoordinates on every item: M q_Y = 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ndpp._memory import Memory, n_bytes_of
from ndpp._types import IntArray, Items
from ndpp._validation import check_count, check_items
from ndpp.errors import ZeroProbabilityError
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.precision import check_given
from ndpp.samplers.base import Draw, Engine, Sampler, with_engine
from ndpp.samplers.exact.eigenchain import EigenChain, is_clear
from ndpp.samplers.exact.eigenclock import EigenClock
from ndpp.samplers.exact.node_route import NodesRoute
from ndpp.samplers.exact.routes import CircleReport, Done, KernelParts, Ladder, Route, Target
from ndpp.samplers.exact.spectral import Projection
from ndpp.samplers.exact.sweep import Sweep

ROUTES: tuple[type[Route], ...] = (Projection, Sweep, EigenClock, EigenChain)
"""In order of speed: the first that suits is taken, and node matrices if none does."""
NOTHING = Done(np.empty(0, np.int64), 0, CircleReport())
"""No further item."""


@dataclass(frozen=True, eq=False)
class Exact(Target, Sampler):
    """The default sampler; ``route`` says how it draws.

    Examples
    --------
    >>> import numpy as np, ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(4), np.diag([1.0, 2.0, 3.0, 4.0]))
    >>> sampler = ndpp.samplers.Exact.prepare(kernel, size=2)
    >>> sampler.route, sampler.sample(1000, rng=0).baskets.sizes.max()
    ('projection', np.int64(2))
    """

    size: int | None = None
    engine: Engine | None = field(default=None, repr=False)

    @classmethod
    def prepare(
        cls,
        kernel: LowRankKernel,
        *,
        size: int | None = None,
        given: Items = (),
        exclude: Items = (),
        candidates: Items | None = None,
        memory: int = 256 * 2**20,
        device: str | None = None,
    ) -> Exact:
        """Check the request and compute what depends on the kernel alone.

        Parameters
        ----------
        kernel : LowRankKernel
        size : int, optional
            Number of items per sample, including given ones. If None, the unconstrained NDPP is sampled.
        given : items
            Items that every sample contains.
        exclude, candidates : items
            Items that no sample contains; the only items that a sample may contain in addition to the given ones.
        memory : int
            Maximum bytes of what is cached: circles, routes, and rows in eigencoordinates. A few matrices of order r are kept in any
            case. Peak memory in addition to X is this, a table of 20n bytes, and 16 N r² bytes per thread.
        device : str, optional
            "cuda" or "cuda:1": ``sample`` draws there, thousands at a time. Without a GPU, it warns and draws on the CPU.
        """
        kernel = _narrowed(kernel.without_background(), given, exclude, candidates)
        parts, nothing = KernelParts(kernel, check_count(memory, "memory")), np.empty(0, np.int64)
        ladder = Ladder(parts, nothing, Memory(memory, beside=parts))
        any_set = cls(kernel, nothing, ladder, np.ones(1), kernel.is_symmetric)
        return with_engine(any_set.to_complete(given, size), device)

    def to_complete(self, given: Items, size: int | None) -> Exact:
        """Return the sampler of sets with these items, for the same kernel and memory; they share what does not depend on the items."""
        kernel = self.kernel
        rows = np.sort(kernel.rows_of(given, "given"))
        ladder = Ladder(self.ladder.parts, rows, self.ladder.memory)
        made = replace(self, given=rows, ladder=ladder, size=size)
        if size is not None:
            wanted = check_given(size, len(rows)) - len(rows)
            if not (len(rows) and is_clear(made, wanted)):
                kernel.check_size(size, given=kernel.catalogue_ids(rows))
            return replace(made, size_law=np.eye(1, wanted + 1, wanted)[0])
        law = kernel.free_law(ladder.given)
        if law.log_weight == -np.inf:
            raise ZeroProbabilityError(f"the {len(rows)} given items never occur together; give fewer or other items")
        return replace(made, size_law=law.law)

    @property
    def n_bytes(self) -> int:
        """Bytes of its own; those of ``ladder.memory`` are those of all samplers of the kernel."""
        return n_bytes_of((self.given, self.size_law, self.ladder.given))

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set, as sorted rows of the kernel's support."""
        done = self._draw(rng, None if self.size is None else self.size - len(self.given))
        info: dict[str, float] = {"proposals": done.proposals, "rejections": done.proposals - len(done.rows)}
        if done.circles is not None:
            info |= done.circles._asdict()
        return Draw(np.sort(np.concatenate([self.given, done.rows])), info)

    def draw_rows(self, rng: np.random.Generator, wanted: int) -> IntArray:
        """Draw a set of ``wanted`` items in addition to the given ones, as rows in any order."""
        return np.concatenate([self.given, self._draw(rng, wanted).rows])

    def _draw(self, rng: np.random.Generator, wanted: int | None) -> Done:
        """Draw the items of one sample in addition to the given ones: ``wanted`` of them, or any number if None."""
        route = self.route_for(wanted)
        if route is None:
            return self._draw(rng, self.draw_count(rng)) if wanted is None else NOTHING
        found = route.draw(rng)
        return found if isinstance(found, Done) else route.finish(self, rng, found)

    @property
    def route(self) -> str:
        """How samples are drawn: "projection", "cholesky", "clock", "ring" or "nodes"."""
        route = self.route_for(None if self.size is None else self.size - len(self.given))
        return "nodes" if route is None else route.name

    def route_for(self, wanted: int | None) -> Route | None:
        """Return what draws ``wanted`` items in addition to the given ones, or any number if None.

        None if there is nothing to draw, or if the number of items has to be drawn first.
        """
        if self.kernel.rank == 0 or wanted == 0:
            return None
        fast = self.ladder.remember(("route", wanted, self.symmetric), lambda: first_route(self, wanted))
        return fast or NodesRoute.prepare(self, wanted)

    def nodes(self, wanted: int) -> NodesRoute:
        """Return the route that draws ``wanted`` items by node matrices, whatever the kernel."""
        return NodesRoute(self, wanted)


def first_route(target: Target, wanted: int | None) -> Route | None:
    """Return the first route that suits; None if only node matrices do."""
    prepared = (route.prepare(target, wanted) for route in ROUTES)
    return next((route for route in prepared if route is not None), None)


def _narrowed(kernel: LowRankKernel, given: Items, exclude: Items, candidates: Items | None) -> LowRankKernel:
    if candidates is not None:
        allowed = check_items(candidates, kernel, "candidates")
        kernel = kernel.restrict(np.union1d(allowed, check_items(given, kernel, "given")))
    excluded = check_items(exclude, kernel, "exclude")
    return kernel.exclude(excluded) if len(excluded) else kernel
