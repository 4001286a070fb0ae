"""Statistical assertions: do these draws follow that law?

All tests are on counts of independent draws. The statistic is the likelihood-ratio chi-square (G, with Williams'
correction) and not Pearson's: at the tiny levels used here Pearson's is far too large for cells that expect few draws,
and would raise false alarms. Rare cells are pooled; an outcome of probability zero fails at once. Sets are also judged by
their sizes and by how many even-numbered items they have: these have few outcomes, in which a small error shows sooner.

Draws too few to show an error are an error: :func:`assert_law` refuses a number of draws at which a sampler with the odds
of one item tripled could pass. So each of its calls has a negative control of the same size.

One false-alarm rate holds for the whole suite: ``SUITE_ALPHA``, split evenly over ``SUITE_CHECKS`` checks.
``conftest.py`` fails the run when more checks than declared were made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc, chdtri, chndtr, ndtr, ndtri, xlogy

SUITE_ALPHA = 1e-5
SUITE_CHECKS = 5450
ALPHA = SUITE_ALPHA / SUITE_CHECKS
LEAST_EXPECTED = 10.0
TILT = 3.0
"""Error that every check of sets must be able to see: the odds of one item, times this."""
NEARLY_CERTAIN = 0.05
"""Variance of the presence of every item up to which one set has nearly all the probability, and odds do not show."""
POWER = 0.99
"""Probability with which it must see it."""
IMPOSSIBLE = 1e-13
"""Below this, a probability is zero: enumerations carry rounding, and no test here draws often enough to meet it."""

checks_made: Counter[str] = Counter()


def count_sets(draws: Any) -> Counter[tuple[int, ...]]:
    """How often each set was drawn. ``draws``: Baskets, a sequence of sets, or a mapping from sets to counts."""
    if isinstance(draws, Mapping):
        for key, count in draws.items():
            if count < 0 or count != int(count):
                raise ValueError(f"counts are needed, not proportions; {key} has {count}")
        return Counter({tuple(sorted(key)): int(count) for key, count in draws.items()})
    return Counter(tuple(sorted(int(a) for a in draw)) for draw in (draws[i] for i in range(len(draws))))


def assert_law(draws: Any, law: Mapping[tuple[int, ...], float], *, alpha: float = ALPHA) -> None:
    """Fail unless independent ``draws`` of sets look like ``law`` (set → probability, all others impossible), or if there are too few."""
    counts = count_sets(draws)
    unheard = [key for key in counts if counts[key] and key not in law]
    assert not unheard, f"{len(unheard)} sets of probability zero were drawn, such as {unheard[0]}"
    keys = list(law)
    observed, p = np.array([counts[key] for key in keys]), np.array([law[key] for key in keys])
    views = [(np.arange(len(keys)), keys), *_features(keys)]
    for groups, names in views:
        assert_counts(np.bincount(groups, observed), np.bincount(groups, p), alpha=alpha, names=names)
    is_in = np.array([[item in key for key in keys] for item in sorted({item for key in keys for item in key})])
    if len(is_in) and np.max((is_in @ p) * (1 - is_in @ p)) > NEARLY_CERTAIN:
        power = _best_power(is_in, p, [groups for groups, _ in views], int(observed.sum()), alpha)
        if power < POWER:
            raise ValueError(
                f"{observed.sum()} draws are too few: a sampler with the odds of an item times {TILT:g} would pass with "
                f"probability {1 - power:.2g}; draw more"
            )


def _features(keys: list[tuple[int, ...]]) -> list[tuple[NDArray[np.int64], list[str]]]:
    """Sets grouped by their sizes and by their even items, where that says something: (group of each set, names)."""
    out = []
    for feature in (len, evens):
        outcomes = sorted({feature(key) for key in keys})
        if 1 < len(outcomes) < len(keys):
            groups = np.searchsorted(outcomes, [feature(key) for key in keys])
            out.append((groups, [f"sets with {feature.__name__} = {i}" for i in outcomes]))
    return out


def _best_power(
    is_in: NDArray[np.bool_], p: NDArray[np.float64], views: list[NDArray[np.int64]], n: int, alpha: float
) -> float:
    """The largest power of these checks against the odds of one item, the one that shows best, times TILT.

    Under the tilted law the statistic is close to a noncentral chi-square; its noncentrality is 2n times the divergence.
    """
    best = 0.0
    for item in is_in[np.argsort(-(is_in @ p) * (1 - is_in @ p))]:
        tilted = p * np.where(item, TILT, 1.0)
        for groups in views:
            q, r = np.bincount(groups, tilted / tilted.sum()), np.bincount(groups, p)
            pooled = _pool(n * r)
            q, r = np.bincount(pooled, q), np.bincount(pooled, r)
            freedom, divergence = len(r) - 1, float(np.sum(xlogy(q, q / np.maximum(r, IMPOSSIBLE))))
            if freedom and divergence > 0:
                best = max(best, 1 - float(chndtr(chdtri(freedom, alpha), freedom, 2 * n * divergence)))
        if best >= POWER:
            break
    return best


def evens(items: Iterable[int]) -> int:
    """How many items of a set have an even number."""
    return sum(a % 2 == 0 for a in items)


def assert_counts(
    counts: ArrayLike, probabilities: ArrayLike, *, alpha: float = ALPHA, names: Iterable[Any] | None = None
) -> None:
    """Fail unless ``counts`` (of independent draws) look like a multinomial sample of ``probabilities``."""
    checks_made["law"] += 1
    p_value, worst = goodness_of_fit(counts, probabilities)
    name = (list(names) if names is not None else range(np.size(counts)))[worst]
    observed, expected = np.asarray(counts)[worst], np.sum(counts) * np.asarray(probabilities)[worst]
    assert p_value >= alpha, (
        f"draws do not follow the law: chi-square p-value {p_value:.2g} < {alpha:.2g} over {np.sum(counts)} draws; "
        f"furthest off: {name}, drawn {observed} times, expected {expected:.1f}"
    )


def assert_together(tables: Iterable[tuple[ArrayLike, ArrayLike]], *, alpha: float = ALPHA) -> None:
    """Fail unless all (counts, probabilities) together look right: a small error of each shows in the sum of them."""
    checks_made["together"] += 1
    fits = [_fit(counts, probabilities)[:2] for counts, probabilities in tables]
    p_value = _tail(*np.sum(fits, axis=0))
    assert p_value >= alpha, (
        f"draws do not follow the laws: chi-square p-value {p_value:.2g} < {alpha:.2g} over {len(fits)} samples together"
    )


def goodness_of_fit(counts: ArrayLike, probabilities: ArrayLike) -> tuple[float, int]:
    """(p-value, position of the cell furthest off). The p-value is zero where something impossible happened."""
    statistic, freedom, worst = _fit(counts, probabilities)
    return _tail(statistic, freedom), worst


def _fit(counts: ArrayLike, probabilities: ArrayLike) -> tuple[float, int, int]:
    """(statistic, degrees of freedom, position of the cell furthest off)."""
    observed, p = _checked_counts(counts), np.asarray(probabilities, np.float64)
    if observed.shape != p.shape or p.ndim != 1:
        raise ValueError(f"one probability per count is needed; got {p.shape} for {observed.shape}")
    if p.min() < -IMPOSSIBLE or abs(p.sum() - 1) > 1e-9:
        raise ValueError(f"not a law: probabilities sum to {p.sum()!r}, the least is {p.min()!r}")
    total = observed.sum()
    if total < 2 * LEAST_EXPECTED:
        raise ValueError(f"{total} draws over {p.size} outcomes show nothing; draw more")
    possible = p > IMPOSSIBLE
    if observed[~possible].any():
        return np.inf, 1, int(np.argmax(np.where(possible, 0, observed)))
    expected = total * np.where(possible, p, 0.0) / p[possible].sum()
    worst = int(np.argmax(np.abs(observed - expected) / np.sqrt(np.maximum(expected, LEAST_EXPECTED))))
    groups = _pool(expected)
    observed, expected = np.bincount(groups, observed), np.bincount(groups, expected)
    inverse_sum = float(np.sum(1 / expected) - 1 / total)
    freedom = len(expected) - 1
    return _statistic(observed, expected, freedom=freedom, inverse_sum=inverse_sum), freedom, worst


def assert_same_law(first: Any, second: Any, *, alpha: float = ALPHA) -> None:
    """Fail unless two samples of independent draws of sets look like samples of one law (chi-square of homogeneity)."""
    checks_made["same law"] += 1
    counts = [count_sets(draws) for draws in (first, second)]
    keys = sorted(counts[0].keys() | counts[1].keys())
    table = np.array([[count[key] for key in keys] for count in counts], np.float64)
    p_value = homogeneity(table)
    assert p_value >= alpha, (
        f"two samples ({table.sum(axis=1)} draws) do not follow one law: chi-square p-value {p_value:.2g} < {alpha:.2g}"
    )


def homogeneity(table: ArrayLike) -> float:
    """p-value that the rows of a table of counts are samples of one law."""
    table = _checked_counts(table)
    totals = table.sum(axis=1, keepdims=True)
    if totals.min() < 2 * LEAST_EXPECTED:
        raise ValueError(f"samples of {totals.ravel()} draws can show nothing; draw more")
    groups = _pool(totals.min() * table.sum(axis=0) / totals.sum())
    table = np.array([np.bincount(groups, row) for row in table])
    expected = totals * table.sum(axis=0) / totals.sum()
    n = totals.sum()
    inverse_sum = (n * np.sum(1 / totals) - 1) * (n * np.sum(1 / table.sum(axis=0)) - 1) / n
    freedom = (len(table) - 1) * (table.shape[1] - 1)
    statistic = _statistic(table.ravel(), expected.ravel(), freedom=freedom, inverse_sum=float(inverse_sum))
    return _tail(statistic, freedom)


def assert_mean(values: ArrayLike, expected: ArrayLike, *, sigmas: float = 4.0, rounding: float = 1e-12) -> None:
    """Fail unless the mean of independent ``values`` (draws, …) is within ``sigmas`` standard errors of ``expected``.

    With several components a draw, ``sigmas`` is widened so that the false-alarm rate of all of them together is that
    of one.
    """
    checks_made["mean"] += 1
    sample = np.asarray(values, np.float64)
    mean, error = sample.mean(axis=0), sample.std(axis=0, ddof=1) / np.sqrt(len(sample))
    allowed = -ndtri(ndtr(-sigmas) / max(mean.size, 1))
    excess = np.abs(mean - expected) - rounding * (1 + np.abs(expected))
    off = np.max(np.where(excess <= 0, 0.0, excess / np.maximum(error, np.finfo(float).tiny)))
    assert off <= allowed, (
        f"mean of {len(sample)} draws is {off:.1f} standard errors off (> {allowed:.1f}): {mean} and not {expected}"
    )


def _checked_counts(counts: ArrayLike) -> NDArray[np.float64]:
    observed = np.asarray(counts, np.float64)
    if observed.size == 0 or observed.min() < 0 or np.any(observed != np.round(observed)):
        raise ValueError("counts of draws are needed (whole numbers); proportions would hide any difference")
    return observed


def _pool(expected: NDArray[np.float64]) -> NDArray[np.int64]:
    """Group number of each cell: large cells stay alone, small ones share groups that expect LEAST_EXPECTED draws."""
    groups = np.empty(len(expected), np.int64)
    group, mass = 0, 0.0
    for cell in np.argsort(expected):
        if mass >= LEAST_EXPECTED:
            group, mass = group + 1, 0.0
        groups[cell] = group
        mass += expected[cell]
    if group and mass < LEAST_EXPECTED:
        groups[groups == group] = group - 1
    return groups


def _tail(statistic: float, freedom: float) -> float:
    return float(chdtrc(freedom, statistic)) if freedom else 1.0


def _statistic(
    observed: NDArray[np.float64], expected: NDArray[np.float64], *, freedom: int, inverse_sum: float
) -> float:
    """The likelihood-ratio chi-square, zero without freedom; ``inverse_sum`` is the sum in Williams' correction."""
    if freedom == 0:
        return 0.0
    g = 2 * np.sum(xlogy(observed, observed / expected) - observed + expected)
    return float(g / (1 + inverse_sum / (6 * freedom)))
