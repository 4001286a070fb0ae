"""What all operations share: Triton, if it is installed, and the memory layout of complex matrices.

Without Triton, the modules of kernels can still be imported: ``jit`` then returns functions unchanged, and nothing calls them.

The small matrices of a sample are (b, 2, capacity, capacity), b = S·h: for each node of each sample the real part, then the imaginary part,
with space for items to come. Kernels read 16 bytes (two numbers) at a time, so ``capacity`` is even.

Of VU, the n × n part in use is the upper left corner. G⁻¹ is read completely at every step, and a corner would be read with gaps; so its
rows lie n apart, or n + 1 if n is odd (:func:`tight`). They move as n grows, at no extra cost: bordering writes all of them anyway.
"""

import os
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

triton: Any
tl: Any
try:
    triton, tl = import_module("triton"), import_module("triton.language")
except ImportError:
    triton, tl = None, SimpleNamespace(constexpr=None)  # named in the signatures of kernels

LARGEST_MATRIX = 128
"""Largest matrix that a kernel borders, or inverts with row exchanges: what the registers of a program hold."""
TILE = 16
"""Smallest number of rows of a tile that the matrix units multiply."""
MAX_ENTRIES = 2**29
"""Largest number of entries of an intermediate array; samples are processed some at a time."""


def jit(**options: Any) -> Callable[[Any], Any]:
    """Compile a function with Triton; options as for ``triton.jit``."""
    decorator: Callable[[Any], Any] = triton.jit(**options) if triton is not None else lambda function: function
    return decorator


def usable(device: torch.device) -> bool:
    """Tell whether kernels run on this device: a CUDA device, or any device with Triton's interpreter (``TRITON_INTERPRET=1``)."""
    return triton is not None and (device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1")


def even(n: int) -> int:
    """Return n, or n + 1 if n is odd."""
    return n + n % 2


def tight(matrices: Tensor, n: int) -> Tensor:
    """Return a view of the n rows and columns in use, (b, 2, n, n), of matrices whose rows lie ``even(n)`` apart."""
    return matrices.flatten(2)[:, :, : n * even(n)].view(len(matrices), 2, n, even(n))[..., :n]


def split(matrices: Tensor, to: Tensor) -> None:
    """Write complex matrices (b, n, n) to their real and imaginary parts (b, 2, n, n)."""
    to[:, 0], to[:, 1] = matrices.real, matrices.imag


def pairs(parts: Tensor) -> Tensor:
    """Return complex numbers (b, …) from their real and imaginary parts (b, 2, …)."""
    return torch.complex(parts[:, 0].contiguous(), parts[:, 1].contiguous())


def swapped(rows: Tensor) -> Tensor:
    """Return rows (…, 2K) with columns 2k and 2k + 1 exchanged."""
    return rows.reshape(*rows.shape[:-1], -1, 2).flip(-1).flatten(-2)


def parts(S: int, entries: int) -> list[slice]:
    """Split S samples of ``entries`` entries each into parts of at most ``MAX_ENTRIES`` entries."""
    step = max(1, MAX_ENTRIES // max(1, entries))
    return [slice(first, min(S, first + step)) for first in range(0, S, step)]


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
