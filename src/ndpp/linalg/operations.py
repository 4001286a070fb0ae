"""Operations that NumPy and torch spell differently, so that an algorithm is written once for both.

Shared algorithms otherwise use what both spell alike: arithmetic, ``@``, ``abs``, indexing, ``.sum(axis)``, ``.clip(least)``, ``.mT``,
``.real``. The default is ``NUMPY``; :mod:`ndpp.samplers.gpu.arrays` has torch's operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ndpp._types import NumberArray
from ndpp.linalg.scaling import inverted

Array: TypeAlias = Any
"""A NumPy array or a torch tensor."""


class Operations(NamedTuple):
    """Functions of arrays. The last two axes are those of matrices; axes before them are a batch.

    ``array(values, like)`` moves a NumPy array to the device of ``like``, as a type that mixes with it, and ``numpy(A)`` moves an array
    back; ``eye(n, like)`` is the identity on the device. ``largest(A)`` is the largest entry of each matrix, ``eigh(A)`` has eigenvalues
    and eigenvectors of Hermitian ones. ``log_det(A)`` returns log|det A| and the logarithm of det A/|det A|, which is imaginary;
    ``inverse(A)`` returns A⁻¹ and these.
    """

    array: Callable[[NumberArray, Array], Array]
    numpy: Callable[[Array], NumberArray]
    eye: Callable[[int, Array], Array]
    log: Callable[[Array], Array]
    trace: Callable[[Array], Array]
    largest: Callable[[Array], Array]
    eigh: Callable[[Array], tuple[Array, Array]]
    solve: Callable[[Array, Array], Array]
    log_det: Callable[[Array], tuple[Array, Array]]
    inverse: Callable[[Array], tuple[Array, Array, Array]]


def _log_det(A: NumberArray) -> tuple[NumberArray, NumberArray]:
    # Singular matrices have a log determinant of −inf. OpenBLAS also divides by imaginary parts that are zero, which is harmless.
    with np.errstate(divide="ignore", invalid="ignore"):
        sign, log_abs = np.linalg.slogdet(A)
        return log_abs, np.log(sign.astype(complex))


NUMPY = Operations(
    array=lambda values, like: values,  # NumPy mixes real and complex arrays
    numpy=np.asarray,
    eye=lambda n, like: np.eye(n),
    log=np.log,
    trace=lambda A: np.trace(A, axis1=-2, axis2=-1),
    largest=lambda A: A.max(axis=(-2, -1)),
    eigh=np.linalg.eigh,
    solve=np.linalg.solve,
    log_det=_log_det,
    inverse=lambda A: (inverted(A), *_log_det(A)),
)
