"""Diverse items from embeddings and scores, in one call: the best set, exact samples, or what other rules choose."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from math import isfinite
from numbers import Real
from types import ModuleType
from typing import NamedTuple

import numpy as np

from ndpp._types import FloatArray, IntArray, Items, RngLike
from ndpp._validation import check_choice, check_count, check_items, plain_array, real_array
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.inference.greedy import gains_of, greedy_batch, greedy_map
from ndpp.inference.pursuit import DOUBLED_ENTRIES, RowFactors, squares_of
from ndpp.inference.rivals import rival_list
from ndpp.inference.volume import Features, Volume, default_ridge
from ndpp.laws.kernel import LowRankKernel
from ndpp.laws.limits import Limit, listed
from ndpp.linalg.operations import Array

SMALLEST_SINGLE = 1e-20
"""Rows whose factors are smaller are multiplied in double precision, lest they underflow."""


class Diversified(NamedTuple):
    """What :func:`diversify` returns: items in order, their gains and, of samples, probabilities (None: no samples)."""

    items: Array
    gains: Array
    probabilities: Array = None


def diversify(
    embeddings: Array,
    scores: Array = None,
    k: int = 10,
    *,
    diversity: float = 0.5,
    given: Items | Sequence[Items] = (),
    window: int | None = None,
    limits: Limit | Sequence[Limit] | None = None,
    method: str = "map",
    n_samples: int = 1,
    rng: RngLike = None,
    device: str | None = None,
    standardise: bool = False,
) -> Diversified:
    """Return ``k`` items that score high and differ from each other.

    The kernel is L_ij = q_i q_j ⟨x_i, x_j⟩ with embeddings x of norm one and q_i = exp(α s_i), α = (1 − diversity) / (2 · diversity),
    so that diversity · log P(S) is, up to a constant, diversity · log det(⟨x_i, x_j⟩)_S + (1 − diversity) · Σ s_i
    [Chen et al., NeurIPS 2018]. Scores therefore count by their differences: those of order one, such as standardised or log scores, suit a
    diversity of 0.5.

    No set of more than d items has det L_S > 0. With more, the given ones included, the kernel is δI + L, where δ is the mean of the
    squared entries q_i x_i / ‖x_i‖, the default ridge of :func:`ndpp.select.subset`, which has more to choose.

    Parameters
    ----------
    embeddings : (n, d) or (batch, n, d) array_like or tensor
        A vector per item, of any length but zero; with a batch, per query and item.
    scores : (n,) or (batch, n) array_like or tensor, optional
        How good each item is; larger is better. None: all are equally good.
    k : int
        Number of items to return, beside the given ones.
    diversity : float
        Above 0, where scores decide alone, up to 1, where they do not count.
    given : sequence of int, or one per query
        Items that are there already, such as those shown before: what is returned differs from them.
    window : int, optional
        How many items in a row are to be diverse (``method="map"``); see :func:`greedy_map`.
    limits : Limit or sequence of Limit, optional
        Limits that the returned and given items keep together ("map" and "sample").
    method : {"map", "sample", "mmr", "max-sum"}
        The greedy set, best item first; exact samples of the process, for which P(S) is known; or, to compare, the lists of maximal
        marginal relevance and of max-sum diversification, whose ``gains`` are (1 − diversity) s_i less diversity times the largest
        cosine with an item before, or plus 2 diversity / (k − 1) times the sum of the distances from these.
    n_samples : int
        Number of samples.
    rng : anything ``numpy.random.default_rng`` takes
        For samples. Each query of a batch has a stream of its own: its sample i depends on the seed, on its place in the batch and on i.
    device : str, optional
        "cuda" for arrays to be worked on by a GPU. Tensors are worked on where they are.
    standardise : bool
        Subtract the mean of the scores, of each query, and divide by their standard deviation.

    Returns
    -------
    Diversified
        ``items`` (k,), with a batch (batch, k), and their ``gains``, det L_{Y∪a} / det L_Y for scores less the largest one. Samples
        have an axis (n_samples,) before the last, their items are in greedy order, and ``probabilities`` are those of the sets, with
        limits up to the error of :meth:`LowRankKernel.probability`. All are tensors if embeddings are one.

    Examples
    --------
    >>> x = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]
    >>> diversify(x, [1.0, 0.9, 0.2], k=2).items, diversify(x, [1.0, 0.9, 0.2], k=2, diversity=0.05).items
    (array([0, 2]), array([0, 1]))
    """
    check_choice(method, "method", ["map", "sample", "mmr", "max-sum"])
    check_count(k, "k", least=1)
    check_count(n_samples, "n_samples", least=1)
    if window is not None:
        check_count(window, "window", least=1)
    if not isinstance(diversity, Real) or not 0 < diversity <= 1:
        raise InvalidInputError(f"must be above 0 and at most 1; got {diversity!r}", argument="diversity")
    if method != "map" and window is not None:
        reason = "; sets have no order" if method == "sample" else ""
        raise InvalidInputError(f'is for method="map"{reason}', argument="window")
    kept = listed(limits)
    if kept and method in ("mmr", "max-sum"):
        raise InvalidInputError(f'are for method="map" and "sample"; got {method!r}', argument="limits")
    if standardise and scores is not None:
        scores = _standardised(scores)
    is_tensor = type(embeddings).__module__.startswith("torch") and getattr(embeddings, "detach", None) is not None
    X, factors = _rows(embeddings, scores, (1 - diversity) / (2 * diversity), device, is_tensor=is_tensor)
    is_batch = X.ndim == 3
    if not is_batch:
        X, factors = X[None], RowFactors(*(part[None] for part in factors))
    queries, n = X.shape[:2]
    if len(given):
        first = [check_items(own, n, "given") for own in (given if is_batch else [given])]
        if len({len(own) for own in first}) > 1 or len(first) != queries:
            raise InvalidInputError(f"must be a list per query, {queries}, of the same length each", argument="given")
        start = np.array(first, np.int64).reshape(queries, -1)
    else:
        start = np.empty((queries, 0), np.int64)
    g = start.shape[1]
    if k + g > n:
        raise InvalidInputError(
            f"must be at most {n - g}, the number of items that are not given; got {k}", argument="k"
        )
    probabilities = None
    is_beyond = k + g > X.shape[2] and window is None
    if method in ("mmr", "max-sum"):
        units = np.asarray(plain_array(X / factors.squares[..., None] ** 0.5, "embeddings"))
        own = (
            np.zeros(X.shape[:2]) if scores is None else np.asarray(plain_array(scores, "scores")).reshape(X.shape[:2])
        )
        lists = [rival_list(*one, k, first, diversity, method) for *one, first in zip(units, own, start)]
        items, gains = (np.array(part) for part in zip(*lists))
    elif method == "map" and not kept and is_beyond:
        runs = [_beyond(*one, k, own) for *one, own in zip(X, *factors, start)]
        items, gains = (np.array(part) for part in zip(*runs))
    elif method == "map" and not kept:
        items, gains = (part[:, g:] for part in greedy_batch(X, k + g, start, window, factors=factors))
    else:
        rows = np.asarray(plain_array(_scaled(X, factors.f, method), "embeddings"))
        kernels = [LowRankKernel(x, background=_ridges(x) if is_beyond else None) for x in rows]
        if method == "map":
            each = zip(kernels, start)
            runs = [greedy_map(kernel, k + g, given=own, window=window, limits=kept) for kernel, own in each]
            items, gains = np.array(runs)[:, g:], np.array([gains_of(*one, g, window) for one in zip(kernels, runs)])
        else:
            streams = np.random.default_rng(rng).spawn(queries) if is_batch else [rng]  # drawn independently
            draws = [
                kernel.sample(n_samples, size=k + g, given=own, limits=kept, rng=one, device=device)
                for kernel, own, one in zip(kernels, start, streams)
            ]
            found = [_in_order(*one, kept) for one in zip(kernels, draws, start)]
            items, gains, probabilities = (np.array(part) for part in zip(*found))
    out = [items, gains] if probabilities is None else [items, gains, probabilities]
    if is_tensor:
        out = [import_module("torch").as_tensor(part, device=embeddings.device) for part in out]
    elif not isinstance(items, np.ndarray):
        out = [part.cpu().numpy() for part in out]
    return Diversified(*(out if is_batch else [part[0] for part in out]))


def _standardised(scores: Array) -> Array:
    """Return scores less their mean, over their standard deviation, unless all are equal."""
    is_plain = not hasattr(scores, "detach")
    s = np.asarray(real_array(scores, "scores"), np.float64) if is_plain else scores
    if not s.ndim:
        return s  # refused later, as any shape that is not that of the items
    s = s - s.mean(-1)[..., None]
    deviation = (s**2).mean(-1)[..., None] ** 0.5
    return s / (deviation + (deviation == 0))


def _scaled(X: Array, f: Array, method: str) -> Array:
    """Return the rows of the kernels; for samples, those of X in single precision stay so if their factors do not reach its limits."""
    is_single = method == "sample" and isinstance(X, np.ndarray) and X.dtype == np.float32
    if is_single and f.min() > SMALLEST_SINGLE:
        return X * f[..., None].astype(np.float32)
    return X * f[..., None]


def _ridges(x: FloatArray) -> FloatArray:
    return np.full(len(x), default_ridge(np.vecdot(x, x), x.shape[1]))


def _beyond(
    X: Array, f: Array, squares: Array, k: int, given: IntArray, ridge: float | None = None
) -> tuple[IntArray, FloatArray]:
    """Return ``k`` greedy items of one query after the given ones, of δI + L, and their gains."""
    f, squares = plain_array(f, "factors"), plain_array(squares * f * f, "squares")
    is_plain = isinstance(X, np.ndarray)
    features = Features(X, f, np if is_plain else import_module("torch"), None if is_plain else X.device)
    ridge = default_ridge(squares, X.shape[1]) if ridge is None else ridge
    run = Volume(features, ridge, squares, items=given.tolist())
    run.extend(k)
    return np.array(run.items[len(given) :]), np.array(run.values)


def _in_order(
    kernel: LowRankKernel, draws: Baskets, given: IntArray, limits: list[Limit]
) -> tuple[list[IntArray], list[FloatArray], list[float]]:
    """Return the items of each draw in greedy order, without the given ones, their gains, and the probabilities of the draws."""
    size, g = draws.sizes[0], len(given)
    items, gains, log_weights = [], [], []
    for draw in map(np.sort, draws):
        rows, first = kernel.known_rows(draw), np.searchsorted(draw, given)
        if kernel.background is None:
            (run,), (gain,) = greedy_batch(rows[None], size, first[None])
            run, gain = run[g:], gain[g:]
        else:
            ones, squares = np.ones(size), np.vecdot(rows, rows)
            run, gain = _beyond(rows, ones, squares, size - g, first, float(kernel.background[0]))
        items.append(draw[run])
        gains.append(gain)
        log_weights.append(kernel.log_det(draw))
    log_mass = kernel.log_mass(given, size)
    if limits:
        likely = kernel.rescale(size - 0.5)  # sets of this size have the same distribution, and are not rare
        log_mass += np.log(float(likely.probability(limits, given, size=size)))
    return items, gains, [float(np.exp(one - log_mass)) for one in log_weights]


def _rows(
    embeddings: Array, scores: Array, alpha: float, device: str | None, *, is_tensor: bool
) -> tuple[Array, RowFactors]:
    """Return embeddings x, on the device, and factors q / ‖x‖ in double precision with ‖x‖²."""
    if is_tensor and embeddings.device.type != "cpu":
        real_array(embeddings[:0], "embeddings")  # raises for gradients
        X, xp = embeddings, import_module("torch")
    else:
        X, xp = real_array(embeddings, "embeddings"), np
        X = X.astype(np.float64, copy=False) if X.size <= DOUBLED_ENTRIES else X
    if X.ndim not in (2, 3) or 0 in X.shape:
        raise InvalidInputError(
            f"embeddings must have shape (n, d) or (batch, n, d), none of them 0; got {tuple(X.shape)}"
        )
    if device not in (None, "cpu") and xp is np:
        xp = import_module("torch")
        X = xp.as_tensor(X, device=device)
    if xp is np:
        squares = squares_of(X)
        low, high = squares.item(squares.argmin()), squares.item(squares.argmax())  # less overhead than min and max
    else:
        squares = xp.linalg.vector_norm(X if X.is_floating_point() else X.double(), dim=-1, dtype=xp.float64) ** 2
        low, high = xp.stack(xp.aminmax(squares)).tolist()
    if not 0 < low <= high < np.inf:
        bad = np.argwhere(~np.asarray(plain_array((squares > 0) & (squares < np.inf), "embeddings")))[0]
        value = float(squares[tuple(bad)])
        what = "is zero and has no direction" if value == 0 else "has entries that are NaN or infinite"
        raise InvalidInputError(
            f"embeddings must be finite vectors other than zero; that of item {bad[-1]} {what}. Drop such items"
        )
    factors = 1 / xp.sqrt(squares)
    if scores is not None:
        s = _scores(scores, X, xp)
        top = s[s.argmax()] if xp is np and s.ndim == 1 else xp.amax(s, -1)[..., None]
        factors *= xp.exp(alpha * (s - top))
    return X, RowFactors(factors, squares)


def _scores(scores: Array, X: Array, xp: ModuleType) -> Array:
    """Return scores in double precision, where X is; raise if they are not a finite number per item."""
    if xp is not np and isinstance(scores, xp.Tensor) and scores.device == X.device:
        real_array(scores[:0], "scores")  # raises for gradients
        s = scores.double()
    else:
        s = np.asarray(real_array(scores, "scores"), np.float64)
        s = s if xp is np else xp.as_tensor(s, device=X.device)
    if s.shape != X.shape[:-1] or not (isfinite(np.vdot(s, s) if xp is np else s.sum()) or bool(xp.isfinite(s).all())):
        raise InvalidInputError(
            f"must be {tuple(X.shape[:-1])} finite numbers, one per item; got shape {tuple(s.shape)}", argument="scores"
        )
    return s
