"""Triton, if it is installed; whether its kernels run on a device; and functions that kernels share.

Without Triton, the modules of kernels can still be imported: ``jit`` then returns functions unchanged, and nothing calls them.
"""

import os
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch

triton: Any
tl: Any
try:
    triton, tl = import_module("triton"), import_module("triton.language")
except ImportError:
    triton, tl = None, SimpleNamespace(constexpr=None)  # named in the signatures of kernels

LARGEST = 128
"""Largest matrix that a kernel borders, or inverts with row exchanges: what the registers of a program hold."""
TILE = 16
"""Smallest number of rows of a tile that the matrix units multiply."""


def jit(**options: Any) -> Callable[[Any], Any]:
    """Compile a function with Triton; options as for ``triton.jit``."""
    decorator: Callable[[Any], Any] = triton.jit(**options) if triton is not None else lambda function: function
    return decorator


def usable(device: torch.device) -> bool:
    """Tell whether kernels run on this device: a CUDA device, or any device with Triton's interpreter (``TRITON_INTERPRET=1``)."""
    return triton is not None and (device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1")


@jit()
def put(values, i: tl.constexpr, value):
    """Return the tuple with its i-th entry replaced. Registers have no addresses, so an array of tiles is a tuple."""
    return values[:i] + (value,) + values[i + 1 :]  # noqa: RUF005  Triton has no starred tuples


@jit()
def reciprocal(re, im):
    """Return 1/(re + i·im)."""
    square = re * re + im * im
    return re / square, -im / square


@jit()
def times(a_re, a_im, b_re, b_im):
    """Return the product of two complex tiles, by the matrix units."""
    re = tl.dot(a_re, b_re, input_precision="ieee", out_dtype=tl.float64)
    re -= tl.dot(a_im, b_im, input_precision="ieee", out_dtype=tl.float64)
    im = tl.dot(a_re, b_im, input_precision="ieee", out_dtype=tl.float64)
    im = tl.dot(a_im, b_re, im, input_precision="ieee", out_dtype=tl.float64)
    return re, im
