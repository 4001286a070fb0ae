"""What all explanations start from: the law of a model, and its inclusion probabilities by mission."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ndpp._types import FloatArray
from ndpp.errors import InvalidInputError
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.law import Law
from ndpp.laws.mixture import Mixture


class Share(NamedTuple):
    """An item, and the probability that a basket contains it."""

    item: int
    label: str
    probability: float


def law_of(model: Any) -> LowRankKernel | Mixture:
    """Return the kernel or mixture of a fitted estimator, or the model itself."""
    law: LowRankKernel | Mixture | None = Law.of(model)
    if law is None:
        raise InvalidInputError(f"expected a kernel, a mixture or a fitted estimator; got {type(model).__name__}")
    return law


def label_of(law: LowRankKernel | Mixture, item: int) -> str:
    """Return the label of an item, or its id."""
    return str(item) if law.labels is None else law.labels[item]


class Inclusions(NamedTuple):
    """Weights of the components (C,) and their inclusion probabilities (C, n_items); a kernel is one component."""

    weights: FloatArray
    by_component: FloatArray

    @classmethod
    def of(cls, law: LowRankKernel | Mixture) -> Inclusions:
        """Return those of a law."""
        return cls(law.weights, law.component_inclusions())

    @property
    def overall(self) -> FloatArray:
        """P(a ∈ S) of every item."""
        return np.asarray(self.weights @ self.by_component)
