"""numba's ``njit`` with types: a compiled function keeps the signature of its source.

The name of the decorator, ``@njit``, is how coverage recognises functions whose lines Python never runs (``pyproject.toml``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import NativeValue, register_jitable, register_model, unbox
from numba.np.random.generator_core import NumPyRandomGeneratorTypeModel

Function = TypeVar("Function", bound=Callable[..., Any])

write = np.positive
"""``write(values, out)`` in compiled functions, instead of an assignment of an array to a slice.

The message of the error of such an assignment has shapes in it; to compile it takes seconds, and every caller's code is ten times as long.
"""


def njit(*, nogil: bool = True, **options: object) -> Callable[[Function], Function]:
    """Compile a function on its first call and cache the machine code on disk; ``options`` are those of ``numba.njit``.

    Python must not call one that returns a named tuple: with Ctrl-C pending, numba would crash when it makes one.
    """

    def decorator(function: Function) -> Function:
        compiled = numba.njit(cache=True, nogil=nogil, **options)(function)
        if usual := getattr(compiled, "typeof_pyval", None):  # there is none with NUMBA_DISABLE_JIT
            compiled.typeof_pyval = lambda value: GENERATOR if isinstance(value, np.random.Generator) else usual(value)
        found: Function = compiled
        return found

    return decorator


class _GeneratorType(types.NumPyRandomGeneratorType):
    """A random generator that becomes one of compiled code without Python code, in which signal handlers would run and raise.

    numba's own type calls ``ctypes.cast`` and looks into its result even if that is an exception, which ends the process. Machine code on
    disk is found by this name, too: what changes ``_unbox_generator`` changes it.
    """

    def __init__(self) -> None:
        super().__init__("ndpp.Generator")
        self.name = "ndpp.Generator"


GENERATOR = _GeneratorType()
register_model(_GeneratorType)(NumPyRandomGeneratorTypeModel)


def _unbox_generator(kind: Any, generator: Any, c: Any) -> Any:
    """Read the C structure ``bitgen_t`` of a generator: the address of its state, and of three functions."""
    builder, api, text = c.builder, c.pyapi, c.context.insert_const_string
    made = cgutils.create_struct_proxy(kind)(c.context, builder)
    bits = cgutils.create_struct_proxy(types.npy_bitgen)(c.context, builder)
    failed = cgutils.alloca_once_value(builder, cgutils.true_bit)
    with ExitStack() as stack:

        def checked(pointer: Any) -> Any:
            with cgutils.early_exit_if_null(builder, stack, pointer):
                pass
            return pointer

        bits.parent = checked(api.object_getattr_string(generator, "bit_generator"))
        api.decref(bits.parent)  # the generator keeps it
        capsule = checked(api.object_getattr_string(bits.parent, "capsule"))
        signature = ir.FunctionType(api.voidptr, [api.pyobj, api.voidptr])
        read = cgutils.get_or_insert_function(builder.module, signature, "PyCapsule_GetPointer")
        address = builder.call(read, [capsule, text(builder.module, "BitGenerator")])
        api.decref(capsule)
        fields = builder.bitcast(checked(address), c.context.get_value_type(types.uintp).as_pointer())
        names = "state", "fnptr_next_uint64", "fnptr_next_uint32", "fnptr_next_double"
        for i, name in enumerate(names):
            setattr(bits, name, builder.load(cgutils.gep_inbounds(builder, fields, i)))
        bits.state_address = bits.state
        made.bit_generator, made.parent = bits._getvalue(), generator
        made.meminfo = api.nrt_meminfo_new_from_pyobject(cgutils.voidptr_t(None), generator)
        builder.store(cgutils.false_bit, failed)
    return NativeValue(made._getvalue(), is_error=builder.load(failed))


unbox(_GeneratorType)(_unbox_generator)


def jitable(**options: object) -> Callable[[Function], Function]:
    """Compile a function where compiled functions call it; where Python does, it is interpreted, with arguments of any type."""
    decorator: Callable[[Function], Function] = register_jitable(**options)
    return decorator


def interpreted(function: Function) -> Function:
    """Return the source of a compiled function, which takes arguments of any type."""
    source: Function = getattr(function, "py_func", function)
    return source


INTERPRETED_STEPS, STEPS_PER_CALL = 1e6, 2e3
"""Steps that Python takes in up to a second, before a function is compiled; and those that a call counts for."""
_taken: defaultdict[object, float] = defaultdict(float)


def soon(function: Function, steps: float) -> Function:
    """Return a compiled function or, for its first calls of about ``steps`` steps each, its Python version if nothing is compiled yet.

    Compiling a sampler takes as long as drawing many samples in Python, so nothing is compiled for users who want only a few.
    """
    if getattr(function, "overloads", True) or _taken[function] + steps > INTERPRETED_STEPS or _is_cached(function):
        return function
    _taken[function] += STEPS_PER_CALL + steps
    found: Function = _in_python(function)
    return found


def _is_cached(function: Any) -> bool:
    """Return whether there is machine code of a compiled function on disk."""
    code = function.py_func.__code__
    names = f"{Path(code.co_filename).stem}.{function.__qualname__}-{code.co_firstlineno}.*.nbi"
    return next(Path(function.stats.cache_path).glob(names), None) is not None


@cache
def _in_python(function: Any) -> Any:
    """Return the source of a compiled function, with that of all functions that it calls."""
    twins: dict[FunctionType, FunctionType] = {}

    def twin(found: object) -> object:
        source = getattr(found, "py_func", found)
        if not (isinstance(source, FunctionType) and source.__module__.startswith("ndpp.")):
            return found
        if source not in twins:
            names = dict(source.__globals__)
            twins[source] = FunctionType(source.__code__, names, source.__name__, source.__defaults__)
            names.update({name: twin(names[name]) for name in source.__code__.co_names if name in names})
        return twins[source]

    source: Any = twin(function)
    return np.errstate(all="ignore")(source)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let what a signal handler raises, such as KeyboardInterrupt, leave a compiled function as it is, and not as numba's SystemError."""
    try:
        yield
    except SystemError as error:
        reason: BaseException | None = error
        while isinstance(reason, SystemError):
            reason = reason.__cause__ or reason.__context__
        if reason is None:
            raise
        raise reason from None
