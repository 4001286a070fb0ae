"""Subsets of any size out of many items, from their vectors."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from importlib import import_module
from math import ceil, floor, isfinite
from numbers import Real
from os import PathLike, fspath
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ndpp._atomic import check_same, check_writable, write_text
from ndpp._progress import progress_bar
from ndpp._types import FloatArray, IntArray, Items, RealArray, RngLike
from ndpp._validation import check_choice, check_count, check_items, check_values, plain_array, real_array
from ndpp.errors import ImpossibleLimitError, InvalidInputError, ModelFileError
from ndpp.inference.coverage import cover
from ndpp.inference.volume import Features, Quotas, Volume, default_ridge, one_pass
from ndpp.laws.catalogue import Catalogue
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.limits import Limit, listed
from ndpp.linalg.operations import Array
from ndpp.rows import Rows, as_rows
from ndpp.rows.scaled import Multiplied

REFUSED = {
    "sample": ("chunks", "checkpoint"),
    "coverage": ("ridge", "limits", "device", "chunks", "checkpoint"),
    "chunks": ("limits", "checkpoint"),
    "map": (),
}
"""What cannot be asked for together."""
WORDS = {"sample": 'method="sample"', "coverage": 'objective="coverage"', "chunks": "chunks="}


def subset(
    F: Array,
    k: int,
    *,
    quality: Array = None,
    ridge: float | None = None,
    objective: str = "logdet",
    limits: Limit | Sequence[Limit] | None = None,
    given: Items = (),
    method: str = "map",
    device: str | None = None,
    chunks: int | None = None,
    rng: RngLike = None,
    progress: bool | Callable[[str], None] = False,
    checkpoint: str | PathLike[str] | None = None,
) -> Array:
    """Return ``k`` items that differ from each other, in the order in which they were chosen, for any k up to the number of items.

    The objective is log det(δI + F_S F_Sᵀ), which is submodular for every δ > 0: the greedy set, the default, is found exactly, without
    computing all gains for every item. O(n d²) for each look at all rows; there are some dozen of them.

    Parameters
    ----------
    F : (n, d) array_like, row source, tensor or column of vectors
        A vector per item. Memory maps and other row sources (:mod:`ndpp.rows`) are read in blocks; a column of a Parquet file is what
        pyarrow, pandas or polars reads. A tensor on a GPU is worked on there.
    k : int
        Number of items, beside the given ones.
    quality : (n,) array_like, optional
        How good each item is, ≥ 0; its vector is multiplied by it. By default 1.
    ridge : float, optional
        δ. Small values spread the items over all directions; with large ones, long vectors matter more than different ones. By default
        the mean of the squared entries of F, with the quality.
    objective : {"logdet", "coverage"}
        "coverage" is facility location: every item should be similar to one that is chosen, by the cosine and among a block of up to 2,048
        neighbours. The greedy set has at least 1 − 1/e of the best total similarity within blocks. It takes F into memory.
    limits : Limit or sequence of Limit, optional
        Least and most numbers of items of groups that do not overlap, given items included.
    given : sequence of int
        Items that are there already.
    method : {"map", "sample"}
        The greedy set, or an exact sample of that size with P(S) ∝ det(δI + F_S F_Sᵀ), whose items are sorted.
    device : str, optional
        "cuda" for a GPU.
    chunks : int, optional
        Read F once, in about this many parts: the greedy items of each part, together 4 k, are what the items are chosen
        from. Memory does not depend on n, but for eight bytes per item if a quality is given. This is a heuristic
        whose loss is small if the parts are alike. None: read F as often as exact greedy steps take.
    rng : anything ``numpy.random.default_rng`` takes
        For samples.
    progress : bool or callable
        Show a progress bar, or call a function with lines.
    checkpoint : path, optional
        A file for the items so far, renewed with every look at all rows. A run that was interrupted goes on from it. It is removed in
        the end.

    Returns
    -------
    (k,) array of ids
        A tensor if F is one.

    Examples
    --------
    >>> import numpy as np
    >>> F = np.random.default_rng(0).standard_normal((1000, 8))
    >>> items = subset(F, 100)
    >>> len(set(items.tolist()))
    100
    >>> subset(F, 3, given=items[:97]).tolist() == items[97:].tolist()
    True
    """
    check_choice(method, "method", ["map", "sample"])
    check_choice(objective, "objective", ["logdet", "coverage"])
    if method == "sample" and objective == "coverage":
        raise InvalidInputError('is for objective="logdet"; got "sample"', argument="method")
    kind = "sample" if method == "sample" else "coverage" if objective == "coverage" else "map"
    kind = "chunks" if kind == "map" and chunks is not None else kind
    asked = {"ridge": ridge, "limits": limits, "device": device, "chunks": chunks, "checkpoint": checkpoint}
    for name in REFUSED[kind]:
        if asked[name] is not None:
            raise InvalidInputError(f"cannot be combined with {WORDS[kind]}; leave it out", argument=name)
    features = _features(F, quality, None if kind == "sample" else device)
    n = len(features.factors)
    first = check_items(given, n, "given").tolist()
    check_count(k, "k", most=n - len(first))
    if chunks is not None:
        check_count(chunks, "chunks", least=1, most=n)
    if ridge is not None and not (isinstance(ridge, Real) and isfinite(ridge) and ridge > 0):
        raise InvalidInputError(f"must be a number above 0; got {ridge!r}", argument="ridge")
    with progress_bar(k, "items", show=progress) as bar:
        if kind == "chunks":
            items = one_pass(features, k, ridge, n // check_count(chunks, "chunks"), first, bar.advance)
        elif kind == "map":
            items = _greedy(features, k, ridge, listed(limits), first, checkpoint, bar.advance)
        elif kind == "sample":
            squares = features.squares()
            background = np.full(n, default_ridge(squares, features.X.shape[1]) if ridge is None else float(ridge))
            kernel = LowRankKernel(Multiplied(features.X, features.factors), background=background)
            size = k + len(first)
            drawn = kernel.sample(1, size=size, given=first, limits=listed(limits), rng=rng, device=device)[0]
            items = np.setdiff1d(drawn, first)
        else:
            features.squares()  # raises unless all are finite
            items = cover(np.asarray(plain_array(features.X, "F")), k, features.factors, first)
    if type(F).__module__.startswith("torch") and hasattr(F, "detach"):
        return import_module("torch").as_tensor(items, device=F.device)
    return items


def _greedy(
    F: Features,
    k: int,
    ridge: float | None,
    limits: list[Limit],
    given: list[int],
    checkpoint: str | PathLike[str] | None,
    advance: Callable[[int], None],
) -> IntArray:
    """Return the greedy set, and keep what is known of it in a file."""
    squares = F.squares()
    ridge = default_ridge(squares, F.X.shape[1]) if ridge is None else float(ridge)
    quotas = _quotas(limits, len(squares), k, given) if limits else None
    done = given
    if checkpoint is not None:
        check_writable(checkpoint)
        check = b"".join(map(np.ndarray.tobytes, [squares, *(quotas or ())]))
        settings = {"data": zlib.crc32(check), "k": k, "ridge": ridge, "given": given}
        done = given + _known(checkpoint, settings)
    run = Volume(F, ridge, squares, quotas, done)
    told = len(given)

    def after(run: Volume) -> None:
        nonlocal told
        advance(len(run.items) - told)
        told = len(run.items)
        if checkpoint is not None:
            record = settings | {"items": run.items[len(given) :]}
            write_text(Path(checkpoint), json.dumps(record))

    run.extend(k + len(given) - len(done), after)
    if checkpoint is not None:
        Path(checkpoint).unlink(missing_ok=True)
    return np.array(run.items[len(given) :], np.int64)


def _known(checkpoint: str | PathLike[str], settings: dict[str, object]) -> list[int]:
    """Return the items of an interrupted run with the same settings."""
    if not Path(checkpoint).exists():
        return []
    try:
        record = json.loads(Path(checkpoint).read_text(encoding="utf-8"))
        items = list(map(int, record.pop("items")))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ModelFileError(
            f"{fspath(checkpoint)!r} is not a checkpoint of a subset, or is damaged", advice="Delete it."
        ) from None
    check_same(checkpoint, record, settings)
    return items


def _features(F: Array, quality: Array, device: str | None) -> Features:
    """Return vectors where they are to be worked on, with the quality of each item."""
    xp: ModuleType = np
    X: Any = as_rows(F)
    if X is None and type(F).__module__.startswith("torch") and hasattr(F, "detach") and F.device.type != "cpu":
        real_array(F[:0], "F")  # raises for gradients
        X, xp, device = F, import_module("torch"), F.device
    elif X is None:
        is_column = any(hasattr(F, name) for name in ("to_arrow", "null_count", "to_list"))
        X = _column(F) if is_column else real_array(F, "F")
    if len(X.shape) != 2 or 0 in X.shape:
        raise InvalidInputError(f"must have shape (n, d), neither of them 0; got {tuple(X.shape)}", argument="F")
    if xp is np and device not in (None, "cpu"):
        xp = import_module("torch")
        X = X if isinstance(X, Rows) else xp.as_tensor(X, device=device)
    n = len(X)
    factors: FloatArray = np.broadcast_to(1.0, n)
    if quality is not None:
        factors = check_values(plain_array(quality, "quality"), Catalogue(n), "quality", default=1.0)
    return Features(X, factors, xp, device if xp is not np else None)


def _column(column: Any) -> RealArray:
    """Return a column of vectors, of pyarrow, pandas or polars, as a matrix."""
    column = column.to_arrow() if hasattr(column, "to_arrow") else column
    try:
        if not hasattr(column, "null_count"):
            return real_array(np.stack(column.to_list()), "F")
        chunks = getattr(column, "chunks", [column])
        parts = [real_array(chunk.flatten().to_numpy(zero_copy_only=False), "F") for chunk in chunks]
        widths = set(np.concatenate([chunk.value_lengths() for chunk in chunks]).tolist())
        if column.null_count or len(widths) != 1:
            raise ValueError(f"{column.null_count} are missing, and lengths are {sorted(widths)[:3]}")
        return np.concatenate(parts).reshape(len(column), -1)
    except (AttributeError, TypeError, ValueError) as reason:
        raise InvalidInputError(f"must be a column of vectors of one length: {reason}", argument="F") from None


def _quotas(limits: list[Limit], n: int, k: int, given: list[int]) -> Quotas:
    """Return limits as quotas of groups; raise if groups overlap or no set of ``k`` further items keeps them."""
    groups, bounds = np.full(n, -1), []
    for j, limit in enumerate(limits):
        values = limit.over(Catalogue(n))
        inside = values > 0
        if (values[inside] != 1).any() or (groups[inside] >= 0).any():
            raise InvalidInputError(
                f"must count the items of groups that do not overlap; {limit.text} does not. ndpp.greedy_map takes any limits",
                argument="limits",
            )
        groups[inside] = j
        size = int(inside.sum())
        bounds.append((ceil(limit.least or 0), size if limit.most is None else min(size, floor(limit.most)), size))
    least, most, _ = np.array(bounds).T
    quotas = Quotas(groups, least, most)
    counts, free = quotas.counts(given), np.count_nonzero(groups < 0) - np.count_nonzero(groups[given] < 0)
    for j, limit in enumerate(limits):
        if least[j] > most[j] or counts[j] > most[j]:
            raise ImpossibleLimitError(
                f"no set with the given items keeps the limit {limit.text}", limits=(limit.text,)
            )
    need, room = np.maximum(least - counts, 0).sum(), (most - counts).sum() + free
    if not need <= k <= room:
        texts = tuple(limit.text for limit in limits)
        raise ImpossibleLimitError(
            f"sets that keep all limits have between {need} and {room} further items; got k = {k}", limits=texts
        )
    return quotas
