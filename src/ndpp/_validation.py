"""Checks of arguments. Public functions call them once; internal code relies on the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeGuard, TypeVar

import numpy as np

from ndpp._types import AnyArray, BoolArray, FloatArray, IntArray, RealArray
from ndpp.errors import InvalidInputError, PrecisionError, UnknownItemError

if TYPE_CHECKING:
    import torch

Array = TypeVar("Array", bound=AnyArray)

PROBABILITY_TOLERANCE = 1e-8
"""How far outside [0, 1] a probability may be before it is an error rather than rounding."""

MIN_ODDS, MAX_ODDS = 1e-150, 1e150
"""Range of odds that are not zero."""


class Catalogued(Protocol):
    """A law, or another catalogue of items that may have labels."""

    @property
    def n_items(self) -> int:
        """The number of items."""

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Their names."""

    def ids(self, labels: Sequence[str]) -> IntArray:
        """Return the ids of these labels."""


class SeriesLike(Protocol):
    """What is asked of a pandas Series, whose index is its keys."""

    def __iter__(self) -> Iterator[object]: ...

    def items(self) -> Iterable[tuple[object, object]]:
        """Return keys with values."""

    def dropna(self) -> Self:
        """Return the values that are not missing."""


def _is_series(values: object) -> TypeGuard[SeriesLike]:
    index = getattr(values, "index", None)
    return index is not None and not callable(index)  # of a list it is a method


def _is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    return type(value).__module__.startswith("torch") and hasattr(value, "detach")


def plain_array(value: object, name: str) -> Any:
    """Return a torch tensor as an array, from any device, and anything else unchanged; raise if that would lose gradients or is sparse."""
    if not _is_tensor(value):
        return value
    if value.requires_grad:
        raise InvalidInputError(f"{name} must be a tensor without gradients; it requires them. Pass {name}.detach()")
    if str(value.layout) != "torch.strided":
        raise InvalidInputError(
            f"{name} must be a dense tensor or a SciPy sparse matrix; got a tensor of layout {value.layout}"
        )
    return (value.float() if str(value.dtype) in ("torch.bfloat16", "torch.float16") else value).cpu().numpy()


def real_array(value: object, name: str, kind: str = "an array") -> RealArray:
    """Return ``value``, which may be a tensor, as an array of real numbers in single or double precision."""
    if hasattr(value, "toarray"):
        raise InvalidInputError(f"{name} must be {kind} of real numbers; got a sparse matrix. Pass {name}.toarray()")
    value = plain_array(value, name)
    try:
        array = np.asarray(value)
        if array.dtype.kind == "c":
            raise TypeError("its entries are complex")
        return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
    except (TypeError, ValueError) as reason:
        raise InvalidInputError(
            f"{name} must be {kind} of real numbers; it could not be read as one: {reason}"
        ) from None


def check_matrix(value: object, name: str, *, shape: tuple[int | None, int | None] = (None, None)) -> RealArray:
    """Return ``value`` as a finite two-dimensional float32 or float64 array (other kinds become float64)."""
    array = real_array(value, name, "a matrix")
    if array.ndim != 2:
        raise InvalidInputError(f"{name} must have 2 dimensions; it has {array.ndim} (shape {array.shape})")
    for axis, (want, got) in enumerate(zip(shape, array.shape)):
        if want is not None and want != got:
            wanted = tuple("any" if s is None else s for s in shape)
            raise InvalidInputError(
                f"{name} must have shape {wanted}; it has {array.shape} (axis {axis}: {got}, not {want})"
            )
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum()  # one pass; entries are examined only if the sum is not finite
    if not np.isfinite(total) and (bad := np.argwhere(~np.isfinite(array))).size:
        i, j = bad[0]
        raise InvalidInputError(
            f"{name} must be finite; {len(bad)} of its entries are NaN or infinite, the first at [{i}, {j}]. "
            "Drop or repair those rows."
        )
    return array


def check_odds(
    value: object, name: str, *, of: tuple[str, str], shape: tuple[int | None, int | None] = (None, None)
) -> RealArray:
    """Return ``value`` as a matrix of odds: 0, or within a range that leaves room for products. ``of`` names its rows and columns."""
    odds = check_matrix(value, name, shape=shape)
    with np.errstate(over="ignore"):  # no number in single precision is too large
        bad = (odds < 0) | (odds > MAX_ODDS) | ((odds > 0) & (odds < MIN_ODDS))
    if bad.any():
        i, j = np.argwhere(bad)[0]
        raise InvalidInputError(
            f"{name} must be 0 or between {MIN_ODDS:g} and {MAX_ODDS:g}; those of {of[0]} {i} and {of[1]} {j} are {odds[i, j]:g}"
        )
    return odds


def check_items(items: object, catalogue: Catalogued | int, name: str = "items") -> IntArray:
    """Return ``items`` as distinct ids in the order given: ids or labels of a kernel or mixture, or ids below a number."""
    named = None if isinstance(catalogue, int | np.integer) else catalogue
    n_items = int(catalogue) if isinstance(catalogue, int | np.integer) else catalogue.n_items
    try:
        ids = np.atleast_1d(np.asarray(items if isinstance(items, Sized) else [items]))
    except ValueError:  # sequences of several lengths
        ids = np.ones((1, 1))
    if ids.size == 0:
        return np.empty(0, np.int64)
    if (
        named is not None
        and ids.dtype.kind in "UO"
        and isinstance(items, Iterable)
        and all(isinstance(i, str) for i in items)
    ):
        ids = named.ids(items if isinstance(items, str) else list(items))
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        kinds = "integer item ids or labels" if named is not None else "integer item ids"
        raise InvalidInputError(f"must be a flat sequence of {kinds}; got {items!r}", argument=name)
    ids = ids.astype(np.int64)
    unknown = ids[(ids < 0) | (ids >= n_items)]
    if unknown.size:
        raise UnknownItemError(int(unknown[0]), n_items, argument=name)
    if len(set(ids.tolist())) != ids.size:
        distinct, counts = np.unique(ids, return_counts=True)
        raise InvalidInputError(
            f"must not repeat an item; item {distinct[counts > 1][0]} occurs {counts.max()} times", argument=name
        )
    return ids


def by_name(
    values: Mapping[Any, Any] | Sequence[Any] | AnyArray | SeriesLike,
    names: Sequence[object] | None,
    count: int,
    argument: str,
) -> tuple[list[Any], BoolArray]:
    """Return a value for each of ``count`` things, and which of them have one.

    An array or list holds that of number 0, 1, …. A mapping, or a pandas Series, whose index is its keys, is looked up by name; whole
    numbers are positions where there are no ``names``, or where they are not names. Keys that are not there are ignored, and None and NaN
    are no values.
    """
    if isinstance(values, Mapping):
        pairs = list(values.items())
    elif _is_series(values):
        pairs = list(values.dropna().items())
    else:
        listed = list(values)
        if len(listed) != count:
            problem = f"must have {count} entries, or be a mapping from names; got {len(listed)}"
            raise InvalidInputError(problem, argument=argument)
        return listed, np.ones(count, bool)
    if len({key for key, _ in pairs}) < len(pairs):
        raise InvalidInputError("must have one entry per name; some of its keys occur twice", argument=argument)
    table = {key: value for key, value in pairs if value is not None and value == value}
    order: Sequence[object] = range(count)
    words, known = {str(key): value for key, value in table.items()}, set(map(str, names or ()))
    numbers = all(isinstance(key, (int, np.integer)) for key in table)
    if known and not (
        numbers and (known.isdisjoint(words) or (table.keys() == set(order) and not known <= words.keys()))
    ):
        order, table = list(map(str, names or ())), words
    has = np.array([key in table for key in order], bool)
    if count and not has.any():
        such_as = f", such as {next(iter(table))!r}," if table else ""
        there = f"names, such as {order[0]!r}" if known else f"numbers 0 to {count - 1}"
        raise InvalidInputError(f"must be by name; none of its keys{such_as} is among the {there}", argument=argument)
    return [table.get(key) for key in order], has


def check_values(values: object, catalogue: Catalogued, name: str, *, default: float) -> FloatArray:
    """Return a finite number ≥ 0 for every item of a law, from an array, or from a mapping or pandas Series by id or label.

    Items that a mapping does not name have the ``default``.
    """
    ids, numbers = np.arange(catalogue.n_items), values
    if isinstance(values, Mapping) or _is_series(values):
        pairs = list(values.items())
        ids, numbers = check_items([item for item, _ in pairs], catalogue, name), [number for _, number in pairs]
    try:
        found = np.array(numbers, np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"must be numbers, one per item; got {values!r:.60}", argument=name) from None
    if found.shape != ids.shape:
        problem = f"must have {catalogue.n_items} entries, one per item, or be a mapping from items"
        raise InvalidInputError(f"{problem}; got {' × '.join(map(str, found.shape)) or 'a number'}", argument=name)
    bad = ~(np.isfinite(found) & (found >= 0))
    if bad.any():
        first = int(np.argmax(bad))
        item = int(ids[first]) if catalogue.labels is None else catalogue.labels[ids[first]]
        raise InvalidInputError(f"must be finite and ≥ 0; that of item {item!r} is {found[first]:g}", argument=name)
    out = np.full(catalogue.n_items, default)
    out[ids] = found
    return out


def check_count(value: object, name: str, *, least: int = 0, most: int | None = None) -> int:
    """Return ``value`` as an integer in least..most."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidInputError(f"must be an integer; got {value!r}", argument=name)
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"between {least} and {most}"
        raise InvalidInputError(f"must be {bounds}; got {value}", argument=name)
    return int(value)


def check_choice(value: object, name: str, choices: Sequence[str]) -> str:
    """Return ``value`` if it is one of the ``choices``."""
    if value not in choices:
        raise InvalidInputError(f"must be one of {', '.join(choices)}; got {value!r}", argument=name)
    return str(value)


def owned(array: Array) -> Array:
    """Return a read-only array that nobody else can change: a copy, unless it is read-only already."""
    return frozen(array.copy()) if array.flags.writeable else array


def frozen(array: Array) -> Array:
    """Return a read-only view."""
    view = array.view()
    view.flags.writeable = False
    return view


def clip_probabilities(values: FloatArray, what: str, *, tolerance: float = PROBABILITY_TOLERANCE) -> FloatArray:
    """Return ``values`` clipped to [0, 1]; raise if one is outside by more than ``tolerance``."""
    low, high = (values.min(), values.max()) if values.size else (0.0, 0.0)
    if not (low >= -tolerance and high <= 1 + tolerance):
        raise PrecisionError(
            f"{what}: probabilities are in [{low:.3g}, {high:.12g}], outside [0, 1] by more than {tolerance:g}. "
            "The kernel is too badly scaled for double precision at this size; "
            "rescale X, drop its smallest directions, or ask for a smaller size."
        )
    return np.clip(values, 0.0, 1.0)
