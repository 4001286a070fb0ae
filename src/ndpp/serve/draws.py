"""Exact samples for requests: whole baskets and completions, one at a time, so that a request can be stopped between two.

A seed gives the baskets that ``law.sample(n, …, rng=seed)`` gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import ndpp
from ndpp._types import IntArray
from ndpp.samplers import Exact
from ndpp.samplers.base import stream, stream_key
from ndpp.serve.work import Stop

MEMORY = 128 * 2**20
"""Most bytes of matrices that the sampler of a model keeps."""


class Wanted(NamedTuple):
    """What to draw: items that are in, items that are not, the only other ones allowed, and how many in all."""

    given: IntArray
    exclude: IntArray
    candidates: IntArray | None
    size: int | None


class Drawer:
    """Draws from one law; what depends on the law alone is prepared once."""

    def __init__(self, law: Any) -> None:
        self.law = law
        plain = isinstance(law, ndpp.LowRankKernel) and getattr(law, "background", None) is None
        self._sampler = Exact.prepare(law, memory=MEMORY) if plain else None

    def draw(self, wanted: Wanted, n: int, seed: int, stop: Stop) -> list[list[int]]:
        """Return ``n`` baskets as sorted ids."""
        if self._sampler is None:
            law = self.law
            if wanted.candidates is not None:
                law = law.restrict(np.union1d(wanted.candidates, wanted.given))
            return law.sample(n, size=wanted.size, given=wanted.given, exclude=wanted.exclude, rng=seed).to_lists()
        return list(self._exact(self._prepared(self._sampler, wanted), n, seed, stop))

    def _prepared(self, sampler: Exact, wanted: Wanted) -> Exact:
        given, exclude, candidates, size = wanted
        if len(given) or len(exclude) or candidates is not None:
            return Exact.prepare(
                self.law, size=size, given=given, exclude=exclude, candidates=candidates, memory=MEMORY
            )
        return sampler if size is None else replace(sampler, size=self.law.check_size(size))

    @staticmethod
    def _exact(sampler: Exact, n: int, seed: int, stop: Stop) -> Iterator[list[int]]:
        key = stream_key(seed)
        for i in range(n):
            stop.check()
            yield sampler.kernel.catalogue_ids(sampler.draw(stream(key, i)).rows).tolist()
