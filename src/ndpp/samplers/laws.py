"""What draws from any law under any conditions: :func:`prepare` returns the exact sampler.

A kernel without a background has :class:`~ndpp.samplers.Exact`, everything else a :class:`~ndpp.samplers.Proposer`, over the drawers of
kernels (:mod:`.kernels`) or of components with shared ties (:mod:`.shared`), perhaps tilted towards limits (:mod:`.limits`). What they
prepare stays with the law, in its memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ndpp._memory import Memory
from ndpp._types import IntArray, Items
from ndpp._validation import check_count, check_items
from ndpp.errors import ImpossibleLimitError, ZeroProbabilityError
from ndpp.laws.law import Law
from ndpp.laws.limits import Limit
from ndpp.laws.precision import check_given
from ndpp.samplers.base import Sampler, cuda_device, stream, stream_key
from ndpp.samplers.kernels import prepare_free
from ndpp.samplers.limits import is_of_ties, prepare_limited
from ndpp.samplers.proposer import Asked

MOST_DRAWN = 50
"""If the empty set is left out and others need more draws than this, they are drawn as sets within the limit of at least one item."""


def prepare(
    law: Law, *, given: Items = (), size: int | None = None, exclude: Items = (), limits: Limit | Sequence[Limit] | None = None,
    memory: int, device: str | None = None,
) -> Sampler:  # fmt: skip
    """Prepare the exact sampler of a distribution. Parameters as in ``law.sampler``.

    ``limits`` other than None has sets drawn within limits even if there are none: that of at least one item is one, if the law leaves
    out the empty set. So are sets that would be empty most of the time.
    """
    law = law.drawn_from
    ids, excluded, found = check_items(given, law, "given"), check_items(exclude, law, "exclude"), cuda_device(device)
    if law._is_left_out(ids, size):
        raise law._impossible(ids, size)
    budget = check_count(memory, "memory")
    kept = law.memory.within(budget) if found is None else Memory(budget)  # what a GPU draws with is not kept
    asked = Asked(size, ids, excluded, kept, None if found is None else str(found))
    if limits is None and size is not None and is_of_ties(law):
        # Exact weights of a size in all components would take longer than proposals by bounds.
        check_given(size, len(ids))
        try:
            return prepare_limited(law, [], asked)
        except ImpossibleLimitError:  # the only limit is the size
            raise law._impossible(ids, size) from None
    if limits is None:
        made = prepare_free(law, asked)
        is_rare = law.nonempty and size is None and not len(ids) and _is_mostly_empty(law, made, excluded)
        return prepare_limited(law, [], asked) if is_rare else made
    if len(both := np.intersect1d(ids, excluded)):
        raise ZeroProbabilityError(f"item {both[0]} is both given and excluded")
    if size is not None:
        check_given(size, len(ids))
    return prepare_limited(law, [limits] if isinstance(limits, Limit) else list(limits), asked)


def _is_mostly_empty(law: Law, made: Sampler, excluded: IntArray) -> bool:
    """Return whether hardly any set has an item; without some items, as far as a few sets show."""
    if not len(excluded):
        return bool(law._free_weights.sum() > MOST_DRAWN)
    return not any(len(made.draw(stream(stream_key(0), i)).rows) for i in range(MOST_DRAWN))
