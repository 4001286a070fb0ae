"""The base class of all distributions over sets of items: kernels and mixtures of kernels. It draws samples."""

from __future__ import annotations

from itertools import count
from typing import Any, ClassVar

from ndpp._lazy import load
from ndpp._show import html_table, some
from ndpp._types import Items, Jobs, RngLike
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError

RECOMMEND = "ndpp.inference.ranking:recommend"
"""Recommendations build on distributions, so they are loaded by name."""


class Law:
    """A distribution over sets of items. Samplers import this package, so a distribution names its sampler and loads it on first use."""

    _sampler: ClassVar[str]
    _memory: ClassVar[int] = 256 * 2**20
    """Default for the maximum number of bytes of cached matrices."""

    @staticmethod
    def of(model: Any) -> Any:
        """Return the law of a fitted estimator, or the model itself if it is a law; None for anything else."""
        law = getattr(model, "law_", getattr(model, "kernel_", model))
        return law if isinstance(law, Law) else None

    def component(self, which: int | str) -> int:
        """Return the number of a component of a mixture, given by number or name."""
        raise InvalidInputError(f"is for mixtures, and this is a single kernel; got {which!r}", argument="component")

    def _repr_html_(self) -> str:
        law: Any = self  # what is an attribute of a kernel may be a property of a mixture
        facts: list[tuple[str, Any]] = [("items", law.n_items), ("largest sample", law.max_size)]
        components = sorted(zip(law.weights, law.names or count()), reverse=True)
        facts += [(f"component {name}", f"{weight:.1%}") for weight, name in components if len(components) > 1]
        return html_table(repr(self).strip("<>"), ["labels", some(law.labels)], facts)

    def sampler(
        self,
        *,
        size: int | None = None,
        given: Items = (),
        exclude: Items = (),
        memory: int | None = None,
        device: str | None = None,
        component: int | str | None = None,
    ) -> Any:
        """Return the exact sampler that :meth:`sample` draws with, prepared: its ``sample`` draws again and again.

        Parameters as in :meth:`sample`.
        """
        options: dict[str, Any] = {} if component is None else {"component": self.component(component)}
        memory = self._memory if memory is None else memory
        return load(self._sampler).prepare(
            self, size=size, given=given, exclude=exclude, memory=memory, device=device, **options
        )

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
        memory: int | None = None,
        progress: bool = False,
        component: int | str | None = None,
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
        memory : int, optional
            Maximum bytes of cached matrices, by default 256 MB, of a mixture 2 GB. Peak memory in addition to X is this, a table of
            20n bytes, and about 130 r² √size bytes per worker.
        progress : bool
            Show a progress bar.
        component : int or str, optional
            Draw from one component of a mixture, given by number or name.

        Examples
        --------
        >>> import ndpp, numpy as np
        >>> kernel = ndpp.LowRankKernel(np.eye(4), np.eye(4))
        >>> kernel.sample(3, size=2, given=[1], rng=0).to_lists()
        [[0, 1], [1, 2], [0, 1]]
        >>> odds, ties = [[1.0, 9.0], [0.0, 1.0]], [[1.0], [1.0]]
        >>> mixture = ndpp.Mixture.tied(odds, ties, [[0.5]], [0.5, 0.5], names=["a", "b"])
        >>> mixture.sample(3, component="b", rng=0).to_lists()
        [[], [1], [1]]
        """
        sampler = self.sampler(
            size=size, given=given, exclude=exclude, memory=memory, device=device, component=component
        )
        baskets: Baskets = sampler.sample(n_samples, rng=rng, n_jobs=n_jobs, progress=progress).baskets
        return baskets

    def recommend(
        self,
        basket: Items,
        *,
        n: int = 10,
        candidates: Items | None = None,
        ranking: str = "continuation",
        damping: float = 0.25,
        support: float | None = None,
        unknown: str = "error",
    ) -> Any:
        """Return the ``n`` best items for a basket of ids or labels; see :func:`ndpp.recommend`.

        Examples
        --------
        >>> from ndpp.datasets import shelf_kernel
        >>> shelf_kernel().recommend(["bread"], n=2)
        item           score
        butter         0.615
        tomato sauce  0.3174
        """
        options: dict[str, Any] = {"n": n, "candidates": candidates, "unknown": unknown}
        return load(RECOMMEND)(self, basket, ranking=ranking, damping=damping, support=support, **options)
