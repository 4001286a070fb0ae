"""Exact samples for requests: whole baskets and completions.

A seed gives the baskets that ``law.sample(n, …, rng=seed)`` gives.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ndpp._stop import look, stopping
from ndpp._types import IntArray
from ndpp.errors import NDPPError, PrecisionError
from ndpp.items.base import look_up_cdf
from ndpp.linalg.size_law import tilted_law
from ndpp.samplers import Exact
from ndpp.samplers.base import Draws, stream, stream_key
from ndpp.samplers.exact.eigenclock import EigenClock
from ndpp.samplers.exact.routes import Unfinished

MEMORY = 128 * 2**20
"""Most bytes of matrices that the sampler of a model keeps."""
WARM_SECONDS = 5.0
"""How long a model may take to warm up; what is slower than that is compiled and prepared when it is asked for."""


class Wanted(NamedTuple):
    """What to draw: items that are in, items that are not, the only other ones allowed, and how many in all."""

    given: IntArray
    exclude: IntArray
    candidates: IntArray | None
    size: int | None


class Drawer:
    """Draws from one law; what depends on the law alone is prepared once.

    The circles of the exact sampler depend on the law alone, too. A basket that is given is put into them item by item, O(N r²)
    each, where a sampler prepared for the basket would compute N inverses first.
    """

    def __init__(self, law: Any) -> None:
        self.law = law
        plain = getattr(law, "low_rank", None) is law  # a kernel without background: all of it is ties
        self._sampler = Exact.prepare(law, memory=MEMORY) if plain else None

    def warm(self, item: int) -> None:
        """Draw a little, so that the first request does not wait for the compiler. The item is one that occurs."""
        end, nothing = time.monotonic() + WARM_SECONDS, np.empty(0, np.int64)

        def check() -> None:
            if time.monotonic() > end:
                raise TimeoutError

        for size in (None, 3):
            # What cannot be drawn, or not soon, is told to those who ask for it.
            with contextlib.suppress(NDPPError, TimeoutError), stopping(check):
                self.draw(Wanted(np.array([item]), nothing, None, size), 1, 0)

    def draw(self, wanted: Wanted, n: int, seed: int) -> list[list[int]]:
        """Return ``n`` baskets as sorted ids."""
        given, exclude, candidates, size = wanted
        if self._sampler is None:
            law = self.law if candidates is None else self.law.restrict(np.union1d(candidates, given))
            sampler = law.sampler(size=size, given=given, exclude=exclude, memory=MEMORY)
            return _lists(sampler.sample(n, rng=seed))
        if len(exclude) or candidates is not None:
            asked: dict[str, Any] = {"size": size, "given": given, "exclude": exclude, "candidates": candidates}
            return _lists(Exact.prepare(self.law, **asked, memory=MEMORY).sample(n, rng=seed))
        if not self._sampler.symmetric and (size is None or len(given) < size <= self.law.rank):
            try:
                return _shared(self._sampler, given, size, n, seed)
            except PrecisionError:
                pass  # as for a basket that never occurs: the careful way knows, and says so
        # A symmetric kernel has no circles, and one decomposition per basket is soon made; the table is that of all baskets.
        return _lists(self._sampler.to_complete(given, size).sample(n, rng=seed))


def _shared(sampler: Exact, given: IntArray, size: int | None, n: int, seed: int) -> list[list[int]]:
    """Draw from the sampler of the whole law, whose chains begin with the given items. The draws are those of their own sampler."""
    kernel, key = sampler.kernel, stream_key(seed)
    rows = np.sort(kernel.rows_of(given, "given"))
    sizes = np.ones(1)
    if size is None:
        law = tilted_law(kernel.coordinates, 1.0, kernel.q_rows(rows))
        if law.log_weight == -np.inf:
            raise PrecisionError
        sizes = np.cumsum(law.law)
        clock = None if sampler.clock is None else replace(sampler.clock, given=rows)
        if clock is not None and clock.suits(law.law):
            return [_run_down(sampler, clock, stream(key, i)) for i in range(n)]
    states: dict[int, Any] = {}
    drawn = []
    for i in range(n):
        look()
        rng = stream(key, i)
        more = size - len(rows) if size is not None else look_up_cdf(sizes, rng.random())
        total, found = len(rows) + more, rows
        if more:
            if total not in states:
                states[total] = _begun(sampler, rows, total)
            found = np.sort(sampler.nodes(total).complete(rng, states[total])[0].rows)
        drawn.append(kernel.catalogue_ids(found).tolist())
    return drawn


def _run_down(sampler: Exact, clock: EigenClock, rng: np.random.Generator) -> list[int]:
    """Draw one basket of any size by the clock of the whole law, which begins with the given rows."""
    look()
    drawn = clock.draw(rng)
    if isinstance(drawn, Unfinished):
        drawn = clock.finish(rng, drawn)
    found: list[int] = sampler.kernel.catalogue_ids(np.sort(np.concatenate([clock.given, drawn.rows]))).tolist()
    return found


def _begun(sampler: Exact, rows: IntArray, total: int) -> Any:
    """Return the state of a sample of ``total`` items that has these rows already."""
    nodes = sampler.nodes(total)
    state = nodes.start()
    for row in rows.tolist():
        state = nodes.add(state, row)
    return state._replace(owned=False)  # several draws begin with it


def _lists(draws: Draws) -> list[list[int]]:
    found: list[list[int]] = draws.baskets.to_lists()
    return found
