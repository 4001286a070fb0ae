"""Kernels with a background and mixtures of any kernels on a CUDA device, by the engines of their low-rank parts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ndpp._types import AnyArray, IntArray
from ndpp.items.base import look_up_cdf
from ndpp.samplers.base import Draw, Draws, joined, stream
from ndpp.samplers.laws import ComponentSource, LawSampler
from ndpp.samplers.unions import SizedUnion

PROPOSALS_FACTOR = 3
"""Proposals per sample, relative to their expected number. One sample in twenty (exp(−3)) then has to be drawn on the CPU."""
KEY_FLIPS = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
"""Bits of the key that differ between the streams of T and those of R and of samples drawn on the CPU."""
ENGINE_BATCH = 2**17
"""Samples of a mixture that are drawn together, component by component."""
COMPONENT_KEY = 0x9E3779B97F4A7C15
"""What tells the random numbers of the components, and of their choice, from one another."""


@dataclass(frozen=True, eq=False)
class UnionEngine:
    """Draws T on a GPU, by the engine of :class:`Exact`, and R on the CPU.

    Sets of one size: of each sample ``attempts`` proposals are made, and the first of the right size is taken. The few samples without one
    are drawn on the CPU.
    """

    sampler: LawSampler
    union: SizedUnion
    attempts: int

    @classmethod
    def prepare(cls, sampler: LawSampler, union: SizedUnion) -> UnionEngine:
        """Make enough proposals that most samples find one of the right size."""
        expected = 1.0 if union.size is None else PROPOSALS_FACTOR * sampler.expected_proposals
        return cls(sampler, union, int(np.ceil(expected)))

    def draws(self, key: AnyArray, first: int, n_samples: int) -> Iterator[Draws]:
        """Yield the samples first, first + 1, … in order, some at a time."""
        apart_key, cpu_key = (np.asarray(key, np.uint64) ^ np.array([0, flip], np.uint64) for flip in KEY_FLIPS)
        union, given = self.union, self.sampler.given
        assert union.ties.engine is not None
        waiting: list[Draw] = []
        found: Draw | None = None
        began = time.perf_counter()
        number = first * self.attempts
        for part in union.ties.engine.draws(key, number, n_samples * self.attempts):
            for together in part.baskets:
                index, attempt = divmod(number, self.attempts)
                if found is None:
                    apart = union.ties.kernel.catalogue_ids(union.alone.draw(stream(apart_key, number)))
                    ids = np.union1d(together, apart)
                    if union.size in (None, len(ids)):
                        counters = {"proposals": attempt + 1, "rejections": attempt}
                        found = Draw(np.sort(np.concatenate([given, ids])), counters)
                if attempt == self.attempts - 1:
                    waiting.append(found or self.sampler.draw(stream(cpu_key, index)))
                    found = None
                number += 1
            if waiting:
                seconds = (time.perf_counter() - began) / len(waiting)
                yield self.sampler._collect([Draw(draw.rows, {**draw.info, "seconds": seconds}) for draw in waiting])
                waiting, began = [], time.perf_counter()


@dataclass(frozen=True, eq=False)
class ComponentEngine:
    """Draws on a GPU from a mixture of any kernels: the samples of each component together, by the component's own engine.

    Sample i is number j of its component, where j of the samples before i have the same component; so it depends on seed and i alone.
    """

    sampler: LawSampler

    def draws(self, key: AnyArray, first: int, n_samples: int) -> Iterator[Draws]:
        """Yield the samples first, first + 1, … in order, some at a time."""
        uniforms = np.random.Generator(np.random.Philox(key=_flipped(key, 0))).random(first + n_samples)
        which, drawn = look_up_cdf(self.sampler.cdf, uniforms), np.zeros(len(self.sampler.cdf), np.int64)
        np.add.at(drawn, which[:first], 1)
        for start in range(first, first + n_samples, ENGINE_BATCH):
            yield self._together(key, which[start : min(start + ENGINE_BATCH, first + n_samples)], drawn)

    def _together(self, key: AnyArray, which: IntArray, drawn: IntArray) -> Draws:
        """Draw a sample of each of these components, of which as many as ``drawn`` says were drawn before; count them there."""
        source = self.sampler.store.make
        assert isinstance(source, ComponentSource)
        parts: list[Draws] = []
        present, counts = np.unique(which, return_counts=True)
        for c, count in zip(present.tolist(), counts.tolist()):
            sampler, own_key, before = source.sampler(c), _flipped(key, c + 1), int(drawn[c])
            if sampler.engine is not None:
                parts += sampler.engine.draws(own_key, before, count)
            else:
                parts.append(sampler._collect(sampler.draw_batch(own_key, range(before, before + count))))
            drawn[c] += count
        names = set.intersection(*(set(part.info) for part in parts))
        together = joined([Draws(part.baskets, {name: part.info[name] for name in names}) for part in parts])
        order = np.argsort(np.argsort(which, kind="stable"), kind="stable")
        return Draws(together.baskets[order], {name: values[order] for name, values in together.info.items()})


def _flipped(key: AnyArray, number: int) -> AnyArray:
    """Return the key of a family of streams of their own."""
    return np.asarray(key, np.uint64) ^ np.array([0, (number + 1) * COMPONENT_KEY % 2**64], np.uint64)
