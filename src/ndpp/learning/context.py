"""Mission weights given context, w_c(x) ∝ w_c exp(Σ_f β_f[x_f, c]), learned with the components as they are (:mod:`ndpp.laws.gate`).

Maximised is Σ_n log Σ_c w_c(x_n) P_c(S_n) − Σ_f λ_f/2 ‖β_f‖² over the training baskets, by L-BFGS. The P_c(S_n) are a table; baskets of the
same context share their weights, so that a value with its gradient takes two passes over the table. The mean of β_f over the training
baskets is 0: a column tells how contexts differ, and cannot gain by mending w. Values with few baskets stay near 0.

Each column is fitted alone, with the λ_f with which the validation baskets gain most. Then columns are added one by one, the one that gains
most first, and kept if the validation baskets gain by ``MIN_GAIN_ERRORS`` standard errors beyond the columns kept before it.

An update begins with the β⁰ of the law and learns what changes, β − β⁰, of all columns together, with one λ; it is kept by the same rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from scipy import sparse

from ndpp._stop import look
from ndpp._types import FloatArray, IntArray, RealArray, WordArray
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.laws.gate import Gain, Gate
from ndpp.laws.law import Law
from ndpp.learning.run import OutOfTime
from ndpp.linalg.logs import shares

MIN_GAIN_ERRORS = 2.0
"""A column is kept if its gain exceeds this many standard errors."""
ROUNDING_GAIN = 1e-6
"""Gains that may be due to rounding."""
STRENGTHS = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3)
"""λ, strongest first; the search ends where validation baskets no longer gain."""
MAX_LEVELS = 1000
"""Maximum number of values of a column."""
MAX_ENTRIES = 2**25
"""Maximum number of entries of a table (128 MB); if not all baskets fit, a random sample of them is taken."""
MAX_LOG_LIKELIHOOD = 80.0
"""Logarithms of entries are clipped to this: only components of negligible weight exceed it."""
BLOCK = 512
"""Baskets whose weights are gathered at a time."""
STEPS, FTOL = 100, 1e-7
"""Maximum number of L-BFGS steps, and the relative gain below which it stops."""


def check_context(training: Baskets, held_out: Baskets | None) -> None:
    """Raise if context cannot be learned: too many values, or validation baskets without it."""
    check_values(training.context)
    if held_out is not None and held_out.context.keys() != training.context.keys():
        raise InvalidInputError(
            f"of validation baskets must have the columns {', '.join(training.context)}; it has "
            f"{', '.join(held_out.context) or 'none'}",
            argument="context",
        )


def check_values(context: Mapping[str, WordArray]) -> None:
    """Raise if a column of context has too many values."""
    for name, words in context.items():
        if (n_values := len(np.unique(words))) > MAX_LEVELS:
            raise InvalidInputError(
                f"has {n_values:,} different values of {name!r}, such as {str(words[0])!r}; at most {MAX_LEVELS:,} can be learned. "
                "Put them into groups, such as hours for times",
                argument="context",
            )


def learn_context(law: Law, training: Baskets, held_out: Baskets) -> tuple[Gate | None, tuple[Gain, ...]]:
    """Return how the weights of a mixture depend on the context of baskets, None if they do not, and what each column gained."""
    values = {name: _in_order(words) for name, words in training.context.items()}
    now, strengths, gains = dict[str, FloatArray](), dict[str, float](), dict[str, Gain]()
    try:
        tables = [_Table.of(law, baskets, values) for baskets in (training, held_out)]
        alone = {name: _best(tables, {}, {}, [name], STRENGTHS) for name in values}
        for name in sorted(alone, key=lambda name: -(alone[name][1].gain or 0.0)):
            shifts, gain = alone[name]
            if gain.strength and gain.kept and now:
                shifts, gain = _best(tables, now | shifts, strengths, [name], [gain.strength])
            if gain.strength and gain.kept:
                now, strengths = shifts, strengths | {name: gain.strength}
            gains[name] = gain
    except OutOfTime:
        gains |= {name: Gain(name, len(values[name]), None, 0.0, False) for name in values if name not in gains}
    gate = Gate({name: values[name] for name in now}, np.concatenate(list(now.values()))) if now else None
    return gate, tuple(gains.values())


def relearn_context(law: Law, training: Baskets, held_out: Baskets) -> tuple[Gate, Gain | None]:
    """Return the gate of a mixture after new baskets, new values included, and what that gained; the old one where it gains nothing.

    Changes have a mean of 0 over the new baskets, so a column of which these have one value says nothing. If no column says anything, the
    gain is None.
    """
    gate = law.gate
    assert gate is not None
    told = {name: _in_order(training.context[name]) for name in gate.levels if name in training.context}
    told = {name: words for name, words in told.items() if len(words) > 1 and name in held_out.context}
    if not told:
        return gate, None
    values = {name: tuple(dict.fromkeys([*gate.levels[name], *words])) for name, words in told.items()}
    begin = np.cumsum([0, *map(len, gate.levels.values())])
    old = {name: gate.shifts[start : start + len(gate.levels[name])] for name, start in zip(gate.levels, begin)}
    base = {name: np.pad(old[name], ((0, len(values[name]) - len(old[name])), (0, 0))) for name in told}
    tables = [_Table.of(law, baskets, values, base) for baskets in (training, held_out)]
    changes, gain = _best(tables, {}, {}, list(told), STRENGTHS)
    if not gain.kept:
        return gate, gain
    now = old | {name: base[name] + changes[name] for name in told}
    return Gate({**gate.levels, **values}, np.concatenate(list(now.values()))), gain


def _in_order(words: WordArray) -> tuple[str, ...]:
    """Return the different words, whole numbers by value; "" says nothing."""
    found = [word for word in np.unique(words).tolist() if word]
    return tuple(sorted(found, key=int) if all(word.isdecimal() for word in found) else found)


def _best(
    tables: Sequence[_Table],
    start: dict[str, FloatArray],
    strengths: dict[str, float],
    names: Sequence[str],
    tried: Sequence[float],
) -> tuple[dict[str, FloatArray], Gain]:
    """Return β of columns and of those that have a λ already, for the λ with which the validation baskets gain most; and that gain."""
    training, judged = tables
    name, n_values = ", ".join(names), sum(training.n_values[name] for name in names)
    before = judged.log_likelihoods({one: shifts for one, shifts in start.items() if one in strengths})
    found = shifts = {one: np.zeros((training.n_values[one], len(training.log_weights))) for one in names} | start
    best, share = Gain(name, n_values, 0.0, 0.0, False), judged.counts / judged.counts.sum()
    for strength in tried if n_values > 1 else ():
        shifts = _fitted(training, shifts, strengths | dict.fromkeys(names, strength))
        gains = judged.log_likelihoods(shifts) - before
        gain = float(share @ gains)
        if best.strength is not None and gain <= (best.gain or 0.0):
            break
        error = float(np.sqrt(np.sum((share * (gains - gain)) ** 2)))
        is_kept = gain > max(MIN_GAIN_ERRORS * error, ROUNDING_GAIN)
        best, found = Gain(name, n_values, gain, error, is_kept, strength), shifts
    return found, best


class _Table(NamedTuple):
    """P_c(S) of many baskets, in units of the largest w_c P_c(S); how often each counts; its values of context, by number, the last for
    others; and the β⁰ of columns that β adds to.
    """

    log_weights: FloatArray
    likelihoods: RealArray
    counts: FloatArray
    context: dict[str, IntArray]
    n_values: dict[str, int]
    base: Mapping[str, FloatArray] = {}

    @classmethod
    def of(
        cls, law: Law, baskets: Baskets, values: Mapping[str, Sequence[str]], base: Mapping[str, FloatArray] = {}
    ) -> Self:
        """Return the table of some baskets, of a random sample if they are too many."""
        if len(baskets) > (most := max(1, MAX_ENTRIES // len(law.weights))):
            baskets = baskets[np.sort(np.random.default_rng(0).permutation(len(baskets))[:most])]
        with np.errstate(divide="ignore"):
            log_weights = np.log(law.weights)
        table = np.empty((len(baskets), len(law.weights)), np.float32)
        for start in range(0, len(baskets), step := 20 * BLOCK):
            look()
            logs = law.component_log_probs(baskets[start : start + step])
            top = (logs + log_weights).max(axis=1, keepdims=True)
            relative = logs - np.where(top > -np.inf, top, np.inf)
            table[start : start + step] = np.exp(relative.clip(max=MAX_LOG_LIKELIHOOD))
        counts, possible = baskets.weights, table.any(axis=1)
        table[~possible] = 1.0
        places = {name: {word: i for i, word in enumerate(words)} for name, words in values.items()}
        context = {
            name: np.array([place.get(word, len(place)) for word in baskets.context[name].tolist()], np.int64)
            for name, place in places.items()
        }
        n_values = {name: len(place) for name, place in places.items()}
        counts = np.where(possible, 1.0 if counts is None else counts, 0.0)
        return cls(log_weights, table, counts, context, n_values, base)

    def grouped(self, names: Sequence[str]) -> tuple[sparse.csr_array, IntArray]:
        """Return which values each context has, as a sparse array (values of all columns, contexts) of ones, and that of each basket."""
        sizes = np.array([self.n_values[name] for name in names], np.int64)
        columns = np.stack([np.zeros(len(self.counts), np.int64), *(self.context[name] for name in names)])
        contexts, at = np.unique(columns, axis=1, return_inverse=True)
        numbers = contexts[1:]
        which, known = np.arange(numbers.shape[1]), numbers < sizes[:, None]
        rows = (numbers + (np.cumsum(sizes) - sizes)[:, None])[known]
        shape = int(sizes.sum()), at.max() + 1
        where = rows, np.broadcast_to(which, numbers.shape)[known]
        return sparse.csr_array((np.ones(len(rows)), where), shape=shape), at.reshape(-1)

    def weights(self, spread: sparse.csr_array, shifts: FloatArray) -> FloatArray:
        """Return w_c(x) of each context."""
        return shares(self.log_weights + spread.T @ shifts)

    def sums(self, weights: FloatArray, at: IntArray) -> FloatArray:
        """Return Σ_c w_c(x) P_c(S) of each basket, which has context ``at``."""
        out, weights = np.empty(len(at)), weights.astype(np.float32)
        for start in range(0, len(at), BLOCK):
            look()
            part = slice(start, start + BLOCK)
            out[part] = np.einsum("nc,nc->n", self.likelihoods[part], weights[at[part]])
        return out.clip(np.finfo(np.float32).tiny)

    def log_likelihoods(self, shifts: Mapping[str, FloatArray]) -> FloatArray:
        """Return log P(S | x) of each basket, up to a number of its own."""
        shifts = {**self.base, **{name: own + self.base.get(name, 0.0) for name, own in shifts.items()}}
        spread, at = self.grouped(list(shifts))
        nothing = np.zeros((0, len(self.log_weights)))
        return np.log(self.sums(self.weights(spread, np.concatenate([nothing, *shifts.values()])), at))


def _fitted(table: _Table, start: Mapping[str, FloatArray], strengths: Mapping[str, float]) -> dict[str, FloatArray]:
    """Return the best β of some columns, each (values, C), from a start."""
    spread, at = table.grouped(list(start))
    base = np.concatenate([table.base.get(name, np.zeros_like(own)) for name, own in start.items()])
    parts = np.split(np.arange(spread.shape[0]), np.cumsum([len(own) for own in start.values()])[:-1])
    total = np.bincount(at, table.counts, spread.shape[1])
    counts, each = spread @ total, np.arange(len(at))
    share = np.concatenate([counts[own] / counts[own].sum().clip(1e-300) for own in parts])[:, None]
    strength = np.repeat([strengths[name] for name in start], list(map(len, parts)))[:, None]
    unit = 1 / np.sqrt(counts[:, None] * np.exp(table.log_weights) + strength)  # in which curvatures are about the same

    def centred(values: FloatArray) -> FloatArray:
        return np.concatenate([values[own] - (share[own] * values[own]).sum(axis=0) for own in parts])

    def loss(scaled: FloatArray) -> tuple[float, FloatArray]:
        shifts = centred(scaled.reshape(unit.shape) * unit)
        weights = table.weights(spread, base + shifts)
        sums = table.sums(weights, at)
        gather = sparse.csr_array(((table.counts / sums).astype(np.float32), (at, each)), shape=(len(weights), len(at)))
        slope = spread @ (weights * (gather @ table.likelihoods) - total[:, None] * weights) - strength * shifts
        slope = np.concatenate([slope[own] - share[own] * slope[own].sum(axis=0) for own in parts])
        value = table.counts @ np.log(sums) - (strength * shifts**2).sum() / 2
        return -float(value), -(slope * unit).ravel()

    from scipy.optimize import minimize  # takes half a second to import

    begin = (np.concatenate(list(start.values())) / unit).ravel()
    found = minimize(loss, begin, jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "ftol": FTOL})
    best = centred(found.x.reshape(unit.shape) * unit)
    return {name: best[own] for name, own in zip(start, parts)}
