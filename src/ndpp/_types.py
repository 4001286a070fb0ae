"""Type aliases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
ComplexArray: TypeAlias = npt.NDArray[np.complex128]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
KeyArray: TypeAlias = npt.NDArray[np.uint64]
"""What the random numbers of all samples of a call follow from."""
RealArray: TypeAlias = npt.NDArray[np.floating]
"""Single or double precision."""
NumberArray: TypeAlias = npt.NDArray[np.inexact]
"""Real or complex numbers."""
Which: TypeAlias = slice | Sequence[int] | IntArray
"""Some of several things, by number."""
WordArray: TypeAlias = npt.NDArray[np.str_]
TimeArray: TypeAlias = npt.NDArray[np.datetime64]
AnyArray: TypeAlias = npt.NDArray[Any]

Items: TypeAlias = Sequence[int] | Sequence[str] | IntArray
"""A set of items, as catalogue ids or as labels."""

RngLike: TypeAlias = int | Sequence[int] | np.random.SeedSequence | np.random.BitGenerator | np.random.Generator | None
"""Anything that :func:`numpy.random.default_rng` accepts."""

Jobs: TypeAlias = Any
"""A number of joblib workers, None (one), or a ``distributed.Client``."""
