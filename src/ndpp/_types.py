"""Type aliases, and properties that are computed once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeAlias, TypeVar

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

Value = TypeVar("Value")


class cached_property(functools.cached_property[Value]):
    """``functools.cached_property`` without its lock, which all instances of a class share before Python 3.12.

    With it, two threads that compute properties of two laws, each in need of what the other computes, wait for each other forever.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        super().__init__(compute)
        self.lock = nullcontext()
