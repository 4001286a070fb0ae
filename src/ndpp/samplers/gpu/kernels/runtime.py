"""Triton, if it is there, and whether its kernels run on a device.

Without Triton the modules of kernels can still be imported: ``jit`` then leaves functions as they are, and nothing calls them.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton, tl = None, SimpleNamespace(constexpr=None)  # what the signatures of kernels name


def jit(function: Any = None, **options: Any) -> Any:
    """Compile a function with Triton, as ``triton.jit`` does."""
    if triton is not None:
        return triton.jit(function, **options)
    return function or jit


LARGEST = 64
"""Largest matrix that a kernel borders or inverts, and most of its rows that one judges at a time: what registers hold."""
TILE = 16
"""Rows of a tile of a matrix that the matrix units multiply. They take no fewer."""


def usable(device: torch.device) -> bool:
    """Tell whether kernels run on this device: a CUDA device, or any with Triton's interpreter (``TRITON_INTERPRET=1``)."""
    return triton is not None and (device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1")


def power_of_two(n: int, least: int) -> int:
    """Return the next power of two, as the length of a block must be one.

    Examples
    --------
    >>> power_of_two(5, 2), power_of_two(1, 2)
    (8, 2)
    """
    return max(least, 1 << (n - 1).bit_length())
