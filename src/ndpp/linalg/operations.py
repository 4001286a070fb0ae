"""The operations that NumPy and torch spell differently, so that an algorithm is written once for the arrays of either.

Everything else that the shared algorithms use has one spelling: arithmetic, ``@``, ``abs``, indexing, ``.sum(axis)``, ``.clip(least)``,
``.mT``, ``.real``. NumPy's operations are here and are the default everywhere; those of torch are in :mod:`ndpp.samplers.gpu.arrays`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from ndpp._types import AnyArray, FloatArray

Array: TypeAlias = Any
"""A NumPy array or a torch tensor."""


class Operations(Protocol):
    """What an algorithm asks of its arrays. Matrices are the last two axes; any axes before them are a batch."""

    def array(self, values: FloatArray, like: Array) -> Array:
        """Return ``values`` where ``like`` lies, of a type that mixes with it."""

    def eye(self, n: int, like: Array) -> Array:
        """Return the identity where ``like`` lies."""

    def sqrt(self, x: Array) -> Array:
        """Return √x."""

    def log(self, x: Array) -> Array:
        """Return log x."""

    def concat(self, arrays: Sequence[Array], axis: int) -> Array:
        """Return the arrays joined along an axis."""

    def trace(self, A: Array) -> Array:
        """Return tr A."""

    def solve(self, A: Array, B: Array) -> Array:
        """Return A⁻¹B."""

    def log_det(self, A: Array) -> tuple[Array, Array]:
        """Return log|det A| and the logarithm of det A/|det A|, which is imaginary."""

    def inverse(self, A: Array) -> tuple[Array, Array, Array]:
        """Return A⁻¹ and, as :meth:`log_det` does, log det A."""


class NumpyOperations:
    """NumPy's."""

    def array(self, values: FloatArray, like: AnyArray) -> FloatArray:
        """Return ``values``: NumPy mixes real and complex arrays."""
        return values

    def eye(self, n: int, like: AnyArray) -> FloatArray:
        """Return the identity."""
        return np.eye(n)

    def sqrt(self, x: AnyArray) -> AnyArray:
        """Return √x."""
        return np.sqrt(x)

    def log(self, x: AnyArray) -> AnyArray:
        """Return log x."""
        return np.log(x)

    def concat(self, arrays: Sequence[AnyArray], axis: int) -> AnyArray:
        """Return the arrays joined along an axis."""
        return np.concatenate(arrays, axis)

    def trace(self, A: AnyArray) -> AnyArray:
        """Return tr A."""
        return np.trace(A, axis1=-2, axis2=-1)

    def solve(self, A: AnyArray, B: AnyArray) -> AnyArray:
        """Return A⁻¹B."""
        return np.linalg.solve(A, B)

    def log_det(self, A: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return log|det A| and the logarithm of det A/|det A|."""
        sign, log_abs = np.linalg.slogdet(A)
        return log_abs, np.log(sign.astype(complex))

    def inverse(self, A: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Return A⁻¹ and log det A."""
        return np.linalg.inv(A), *self.log_det(A)


NUMPY = NumpyOperations()
