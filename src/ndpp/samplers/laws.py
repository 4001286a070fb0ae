"""What draws from any law under any conditions: :func:`prepare` returns the exact sampler.

A kernel without a background has :class:`~ndpp.samplers.Exact`, everything else a :class:`~ndpp.samplers.Proposer`, over the drawers of
kernels (:mod:`.kernels`) or of components with shared ties (:mod:`.shared`), perhaps tilted towards limits (:mod:`.limits`). What they
prepare stays with the law, in its memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ndpp._memory import Memory
from ndpp._types import Items
from ndpp._validation import check_count, check_items
from ndpp.errors import ZeroProbabilityError
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit
from ndpp.laws.precision import check_given
from ndpp.samplers.base import Sampler, cuda_device
from ndpp.samplers.kernels import prepare_free
from ndpp.samplers.limits import prepare_limited
from ndpp.samplers.proposer import Asked


def prepare(
    law: Law, *, given: Items = (), size: int | None = None, exclude: Items = (), limits: Limit | Sequence[Limit] | None = None,
    memory: int, device: str | None = None,
) -> Sampler:  # fmt: skip
    """Prepare the exact sampler of a distribution. Parameters as in ``law.sampler``.

    ``limits`` other than None has sets drawn within limits even if there are none: that of at least one item is one, if the law leaves
    out the empty set.
    """
    ids, excluded, found = check_items(given, law, "given"), check_items(exclude, law, "exclude"), cuda_device(device)
    if law._is_left_out(ids, size):
        raise law._impossible(ids, size)
    budget = check_count(memory, "memory")
    kept = law.memory.within(budget) if found is None else Memory(budget)  # what a GPU draws with is not kept
    asked = Asked(size, ids, excluded, kept, None if found is None else str(found))
    if limits is None:
        return prepare_free(law, asked)
    if len(both := np.intersect1d(ids, excluded)):
        raise ZeroProbabilityError(f"item {both[0]} is both given and excluded")
    if size is not None:
        check_given(size, len(ids))
    return prepare_limited(law, [limits] if isinstance(limits, Limit) else list(limits), asked)
