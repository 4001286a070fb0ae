"""Samplers of kernels, and of mixtures of any laws component by component.

Kernels without a background are drawn from by :class:`~ndpp.samplers.Exact` itself, others as S = T ∪ R (:mod:`.backgrounds`). What draws
from a component of a mixture is prepared when it is first needed; those used last stay in memory.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ndpp._memory import Memory, n_bytes_of
from ndpp._types import FloatArray
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law
from ndpp.samplers.backgrounds import prepare_background
from ndpp.samplers.base import Sampler, with_engine
from ndpp.samplers.exact import Exact
from ndpp.samplers.item_by_item import ItemByItem
from ndpp.samplers.proposer import Asked, Proposer, of_component
from ndpp.samplers.shared import prepare_ties
from ndpp.samplers.unions import kernel_bytes


def prepare_free(law: Law, asked: Asked) -> Sampler:
    """Prepare the sampler of a law without limits."""
    if law._as_ties is not None:
        return prepare_ties(law._as_ties, asked)
    kernel = law.as_kernel
    if kernel is None:
        return _mixture(law, asked)
    return _plain(kernel, asked) if kernel.background is None else prepare_background(kernel, asked)


@dataclass(frozen=True, eq=False)
class AnySet:
    """The sampler of all sets of a kernel without a background, which those with given items share most with; bytes of its kernel."""

    sampler: Exact
    n_kernel: int
    grows: ClassVar[bool] = True

    @property
    def n_bytes(self) -> int:
        """Bytes of all that is kept."""
        return n_bytes_of((self.sampler, self.sampler.ladder.memory)) + self.n_kernel


def _plain(kernel: LowRankKernel, asked: Asked) -> Sampler:
    """Prepare a kernel without a background. What does not depend on the given items is prepared once."""
    if asked.device is not None:
        return Exact.prepare(kernel, **asked._asdict() | {"memory": asked.memory.budget})
    key = "any set", kernel.nonempty, np.sort(asked.exclude).tobytes()

    def any_set() -> AnySet:
        # What the kernel's memory keeps must not refer to it; a copy shares everything but the memory.
        made = Exact.prepare(copy.copy(kernel), exclude=asked.exclude, memory=asked.memory.budget)
        return AnySet(made, kernel_bytes(made.kernel, kernel))

    def complete() -> Exact:
        return asked.memory.remember(key, any_set).sampler.to_complete(asked.given, asked.size)

    found = asked.memory.remember((*key, *asked.key), complete)
    asked.memory.remember(key, any_set)  # used last, as all of these samplers refer to it
    return found


@dataclass(frozen=True, eq=False)
class ComponentSamplers:
    """The samplers of the components of any mixture, which reject nothing; those used last are kept."""

    laws: Sequence[Law]
    asked: Asked

    def __getitem__(self, c: int) -> Sampler:
        asked = of_component(self.asked, c)
        key = "sampler", self.laws[c].nonempty, self.laws[c].weights.tobytes(), *asked.key
        return asked.memory.remember(key, lambda: prepare_free(self.laws[c], asked))


@dataclass(frozen=True, eq=False)
class WithoutItems:
    """A law without excluded items, and what draws from it."""

    law: Law
    memory: Memory
    shared: int
    """Bytes of what the law with these items has as well."""
    grows: ClassVar[bool] = True

    @classmethod
    def of(cls, law: Law, asked: Asked) -> WithoutItems:
        """Take items out."""
        rest = law.exclude(asked.exclude)
        shared = _kernel_bytes(rest._plain_components) - _kernel_bytes(rest._plain_components, law._plain_components)
        return cls(rest, Memory(asked.memory.budget), shared)

    @property
    def n_bytes(self) -> int:
        """Bytes of both."""
        return self.memory.n_bytes + _kernel_bytes(self.law._plain_components) - self.shared


def _kernel_bytes(parts: Sequence[Law], originals: Sequence[Law] = ()) -> int:
    """Return the bytes of the kernels among components, but for what the originals have as well."""
    known = [original.as_kernel for original in originals] or [None] * len(parts)
    kernels = zip((part.as_kernel for part in parts), known)
    return sum(kernel_bytes(kernel, original) for kernel, original in kernels if kernel is not None)


def _mixture(law: Law, asked: Asked) -> Sampler:
    """Prepare a mixture of any laws, whose components draw what is asked for and reject nothing, or a law without components."""
    free = law.with_empty()
    if free._plain_components[0] is free:  # it has no other components, and offers probabilities alone
        return ItemByItem.prepare(law, size=asked.size, given=asked.given, exclude=asked.exclude)
    ids, rest = asked.given, law
    if len(asked.exclude):
        key = "without", *_weights_of(law), np.sort(asked.exclude).tobytes()
        found = asked.memory.remember(key, lambda: WithoutItems.of(law, asked))
        rest, asked = found.law, asked._replace(exclude=ids[:0], memory=found.memory)

    def weigh() -> FloatArray:
        rest.responsibilities(ids, size=asked.size)  # raises if there is no such set
        return np.asarray(rest._log_weights + rest._log_started(ids, asked.size))

    log_weights = asked.memory.remember(("weights", *_weights_of(rest), *asked.key), weigh)
    drawers = ComponentSamplers(rest._plain_components, asked)
    return with_engine(Proposer(law, ids[:0], log_weights, drawers), asked.device)


def _weights_of(law: Law) -> tuple[Hashable, ...]:
    """Return what tells laws of one memory apart: their weights, and those that components have for theirs."""
    return law.nonempty, law.weights.tobytes(), *(part.weights.tobytes() for part in law._plain_components)
