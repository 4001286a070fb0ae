"""The paper's unconstrained walk [Han22, Alg. 4]: a size, then a chain on the sets of that size.

Law: P(S) ∝ det(L_S) over all sets. The size k has its exact law ∝ e_k(L), computed without cancellation; given it, the set is the
last of a walk of k² steps (or ``steps``), and so approximate. Sets of sizes 0 and 1 are drawn directly.

Cost: that of the walks; what depends on the kernel alone is prepared once and serves every size.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ndpp._checks import check_count
from ndpp._types import FloatArray, IntArray
from ndpp.errors import ImpossibleSizeError, InvalidInputError
from ndpp.inference import greedy_map
from ndpp.items import LeverageTable
from ndpp.kernel import LowRankKernel
from ndpp.samplers.base import Draw, Sampler
from ndpp.samplers.up import UpStep
from ndpp.samplers.up_direct import DirectUp
from ndpp.samplers.walk import Walk


@dataclass(frozen=True, eq=False)
class RandomSize(Sampler):
    """A walk of random size.

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
    walk: Walk = field(repr=False)
    steps: int | None
    sequence: IntArray | None = field(repr=False)

    @classmethod
    def prepare(
        cls,
        kernel: LowRankKernel,
        *,
        up: UpStep = DirectUp(),  # noqa: B008  frozen settings
        steps: int | None = None,
        start: str = "uniform",
    ) -> RandomSize:
        """Compute the law of the size and prepare the up-step.

        Parameters
        ----------
        kernel : LowRankKernel
        up : UpStep
            How two items are put back: ``DirectUp()``, ``RejectionUp()`` or ``NaiveUp()``.
        steps : int, optional
            Steps of every chain; the square of its size if None.
        start : "uniform" or "greedy"
            Greedy starts are nested: one greedy run serves every size, its first k items being the start of size k. A size at which
            the run has no set of positive probability begins at a uniform one.
        """
        if start not in ("uniform", "greedy"):
            raise InvalidInputError(f'start must be "uniform" or "greedy"; got {start!r}')
        rank = kernel.rank
        walk = Walk(
            kernel,
            rank,
            up.prepare(kernel, rank) if rank > 1 else None,
            LeverageTable.prepare(kernel) if rank else None,
            0 if steps is None else check_count(steps, "steps"),
            None,
        )
        return cls(kernel, kernel.size_distribution(), walk, steps, _greedy_run(kernel) if start == "greedy" else None)

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw a size, then the last set of a chain of that size."""
        cdf = np.cumsum(self.law)
        return self.of_size(int(np.searchsorted(cdf, rng.random() * cdf[-1], side="right"))).draw(rng)

    def of_size(self, size: int) -> Walk:
        """Return the walk on sets of one size, 0..rank."""
        steps = size**2 if self.steps is None else self.steps
        return replace(self.walk, size=size, steps=steps, start=self._start(size))

    def _start(self, size: int) -> IntArray | None:
        if self.sequence is None or size > len(self.sequence):
            return None
        rows = self.sequence[:size]
        return rows if self.kernel.log_det(self.kernel.catalogue_ids(rows)) > -np.inf else None


def _greedy_run(kernel: LowRankKernel) -> IntArray:
    """Return the longest greedy sequence, as rows."""
    for size in range(kernel.rank, 0, -1):
        try:
            return kernel.rows_of(greedy_map(kernel, size))
        except ImpossibleSizeError:  # it ends before, or steps over this size: rounding, or pairs added at once
            continue
    return np.empty(0, np.int64)
