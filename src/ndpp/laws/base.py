"""What all distributions over sets share: drawing from them.

A *law* gives every set of items a probability: a kernel, or a mixture of kernels. All have the same methods.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ndpp._lazy import load
from ndpp._types import Items, Jobs, RngLike
from ndpp.baskets import Baskets

MEMORY = 256 * 2**20
"""Most bytes of cached matrices, unless a call says otherwise."""


class Law:
    """A distribution over sets of items. Samplers import laws, so a law names its sampler and loads it on first use."""

    _sampler: ClassVar[str]

    def sampler(
        self,
        *,
        size: int | None = None,
        given: Items = (),
        exclude: Items = (),
        memory: int = MEMORY,
        device: str | None = None,
    ) -> Any:
        """Return the exact sampler that :meth:`sample` draws with, prepared: its ``sample`` draws again and again.

        Parameters as in :meth:`sample`.
        """
        return load(self._sampler).prepare(self, size=size, given=given, exclude=exclude, memory=memory, device=device)

    def sample(
        self,
        n_samples: int = 1,
        *,
        size: int | None = None,
        given: Items = (),
        exclude: Items = (),
        rng: RngLike = None,
        n_jobs: Jobs = None,
        device: str | None = None,
        memory: int = MEMORY,
        progress: bool = False,
    ) -> Baskets:
        """Draw exact samples.

        Parameters
        ----------
        n_samples : int
            How many sets.
        size : int, optional
            Items of each, given ones included; None: the unconstrained law.
        given, exclude : items
            Items every set contains, and items no set contains.
        rng : anything ``numpy.random.default_rng`` takes
            Sample i depends on it and on i alone, whatever ``n_jobs``.
        n_jobs : int or distributed.Client, optional
            Workers, as joblib counts them, or a dask cluster; each holds BLAS to one thread.
        device : str, optional
            None or "cpu"; "cuda" or "cuda:1" draws on a GPU, thousands at a time.
        memory : int
            Most bytes of cached matrices. Peak memory beside X is this, 20n bytes of table and about 130 r² √size bytes per worker.
        progress : bool
            Show a progress bar.

        Examples
        --------
        >>> import ndpp, numpy as np
        >>> kernel = ndpp.LowRankKernel(np.eye(4), np.eye(4))
        >>> kernel.sample(3, size=2, given=[1], rng=0).to_lists()
        [[0, 1], [1, 2], [0, 1]]
        """
        sampler = self.sampler(size=size, given=given, exclude=exclude, memory=memory, device=device)
        baskets: Baskets = sampler.sample(n_samples, rng=rng, n_jobs=n_jobs, progress=progress).baskets
        return baskets
