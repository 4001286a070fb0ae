"""What kernels share: complex numbers as pairs of real ones, and tuples whose entries are replaced.

Triton compiles these into the kernels that call them; nothing here is launched.
"""

from ndpp.samplers.gpu.kernels.runtime import jit, tl


@jit
def put(values, i: tl.constexpr, value):
    """Return the tuple with its i-th entry replaced. Registers have no addresses: an array of tiles is a tuple."""
    return values[:i] + (value,) + values[i + 1 :]  # noqa: RUF005  Triton has no starred tuples


@jit
def reciprocal(re, im):
    """Return 1/(re + i·im)."""
    size = re * re + im * im
    return re / size, -im / size


@jit
def times(a_re, a_im, b_re, b_im):
    """Return the product of two complex tiles, by the matrix units."""
    re = tl.dot(a_re, b_re, input_precision="ieee", out_dtype=tl.float64)
    re -= tl.dot(a_im, b_im, input_precision="ieee", out_dtype=tl.float64)
    im = tl.dot(a_re, b_im, input_precision="ieee", out_dtype=tl.float64)
    im = tl.dot(a_im, b_re, im, input_precision="ieee", out_dtype=tl.float64)
    return re, im
