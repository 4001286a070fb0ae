"""The base class of all distributions over sets of items: kernels and mixtures of kernels. It draws samples."""

from __future__ import annotations

from itertools import count
from typing import Any, ClassVar

from ndpp._lazy import load
from ndpp._show import html_table, some
from ndpp._types import Items, Jobs, RngLike
from ndpp.baskets import Baskets

RECOMMEND = "ndpp.inference.ranking:recommend"
"""Recommendations build on distributions, so they are loaded by name."""
MEMORY = 256 * 2**20
"""Default for the maximum number of bytes of cached matrices."""


class Law:
    """A distribution over sets of items. Samplers import this package, so a distribution names its sampler and loads it on first use."""

    _sampler: ClassVar[str]

    def _repr_html_(self) -> str:
        law: Any = self  # what is an attribute of a kernel may be a property of a mixture
        facts: list[tuple[str, Any]] = [("items", law.n_items), ("largest sample", law.max_size)]
        for weight, name in sorted(
            zip(getattr(law, "weights", ()), getattr(law, "names", None) or count()), reverse=True
        ):
            facts.append((f"component {name}", f"{weight:.1%}"))
        return html_table(repr(self).strip("<>"), ["labels", some(law.labels)], facts)

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
            Number of sets.
        size : int, optional
            Number of items of each set, given ones included. None: any number.
        given, exclude : items
            Items every set contains, and items no set contains: ids or labels.
        rng : anything ``numpy.random.default_rng`` takes
            Sample i depends on it and on i alone, whatever ``n_jobs``.
        n_jobs : int or distributed.Client, optional
            Workers, as joblib counts them, or a dask cluster; each holds BLAS to one thread.
        device : str, optional
            None or "cpu"; "cuda" or "cuda:1" draws on a GPU, thousands at a time.
        memory : int
            Maximum bytes of cached matrices. Peak memory in addition to X is this, a table of 20n bytes, and about
            130 r² √size bytes per worker.
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

    def recommend(
        self,
        basket: Items,
        *,
        n: int = 10,
        candidates: Items | None = None,
        ranking: str = "completion",
        unknown: str = "error",
    ) -> Any:
        """Return the ``n`` items that best complete a basket of ids or labels; see :func:`ndpp.recommend`.

        Examples
        --------
        >>> from ndpp.datasets import shelf_kernel
        >>> shelf_kernel().recommend(["bread"], n=2)
        item     score
        butter   3.028
        jam     0.9346
        """
        return load(RECOMMEND)(self, basket, n=n, candidates=candidates, ranking=ranking, unknown=unknown)
