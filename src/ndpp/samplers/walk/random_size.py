"""The paper's unconstrained walk [Han22, Alg. 4]: a size, then a chain on the sets of that size.

Law: P(S) ∝ det(L_S) over all sets. The size k is drawn exactly, ∝ e_k(L), computed without cancellation; given the
size, the set is the last of a walk of k² steps (or ``steps``), hence approximate. Sets of sizes 0 and 1 are exact.

Cost: that of the walks; one preparation serves all sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ndpp._types import FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.errors import ImpossibleSizeError, InvalidInputError
from ndpp.inference import greedy_map
from ndpp.items import LeverageTable
from ndpp.items.base import look_up_cdf
from ndpp.laws.kernel import LowRankKernel
from ndpp.samplers.base import Draw, Sampler
from ndpp.samplers.walk.sampler import Walk
from ndpp.samplers.walk.up import UpStep
from ndpp.samplers.walk.up_direct import DirectUp


@dataclass(frozen=True, eq=False)
class RandomSize(Sampler):
    """A random size, and then a walk on the sets of that size.

    Examples
    --------
    >>> import numpy as np, ndpp
    >>> kernel = ndpp.LowRankKernel(np.eye(2), [[0.0, 1.0], [-1.0, 0.0]])
    >>> draws = RandomSize.prepare(kernel).sample(50, rng=0)
    >>> sorted({tuple(basket.tolist()) for basket in draws.baskets})
    [(), (0, 1)]
    """

    kernel: LowRankKernel
    law: FloatArray = field(repr=False)
    walks: tuple[Walk, ...] = field(repr=False)

    @classmethod
    def prepare(
        cls,
        kernel: LowRankKernel,
        *,
        up: UpStep = DirectUp(),  # noqa: B008  frozen settings
        steps: int | None = None,
        start: str = "uniform",
    ) -> RandomSize:
        """Compute the size distribution and prepare the up-step. Parameters as in :meth:`Walk.prepare`.

        One greedy run serves all sizes: its first k items are the start of size k. If they have probability zero, the start is uniform.
        """
        if start not in ("uniform", "greedy"):
            raise InvalidInputError(f'start must be "uniform" or "greedy"; got {start!r}')
        rank = kernel.without_background().rank
        prepared = up.prepare(kernel, rank) if rank > 1 else None
        index = LeverageTable.prepare(kernel)
        starts = nested_starts(kernel) if start == "greedy" else (None,) * (rank + 1)
        steps = None if steps is None else check_count(steps, "steps")
        walks = (Walk(kernel, k, prepared, index, k**2 if steps is None else steps, starts[k]) for k in range(rank + 1))
        return cls(kernel, kernel.size_distribution(), tuple(walks))

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw a size, then the last set of a chain of that size."""
        return self.walks[look_up_cdf(np.cumsum(self.law), rng.random())].draw(rng)


def nested_starts(kernel: LowRankKernel) -> tuple[IntArray | None, ...]:
    """Return for each size 0..rank the first items of the longest greedy run, as rows; None if they cannot occur together."""
    run = np.empty(0, np.int64)
    for size in range(kernel.rank, 0, -1):
        try:
            run = greedy_map(kernel, size)
            break
        except ImpossibleSizeError:  # the run ends earlier, or skips this size by adding a pair at once
            continue
    possible = [k <= len(run) and kernel.is_possible(kernel.rows_of(run[:k])) for k in range(kernel.rank + 1)]
    return tuple(kernel.rows_of(run[:k]) if possible[k] else None for k in range(kernel.rank + 1))
