"""The size of a random set S whose items come by themselves, together, or in families: one law for all of them.

Items come in *groups*. With the odds of all items multiplied by z, the weight of all sets is the generating function

    E z^|S| = Π_g f_g(z) · det(I + Σ_g u_g(z) v_g v_gᵀ M),        f_g(1) = 1,  u_g(1) = 0.

If S = T ∪ R, where T is a low-rank NDPP with the marginal kernel q_iᵀ M q_j and R holds each item i by itself with probability p_i,
independent of T, then every item is a group, with v_i = (1 − p_i)^½ q_i, f_i = 1 + (z − 1)p_i and u_i = (z − 1)/f_i (:class:`Coins`).
Families of items are groups with other f and u (:class:`ndpp.laws.patterns.FamilyGroups`).

A sum over all groups takes O(n r²) for each z. *Light* groups, those that come rarely, enter through u_g(z) = (z − 1) Σ_k c_gk z^k, whose
sums are computed once. The rarer a group, the fewer terms matter. The few other groups are added one by one. Probabilities are Fourier
coefficients on a circle, with an absolute error of a few roundings. They are computed inside a window that a Chernoff bound shows to miss
less than ``MAX_MISSED``. For a single size, the odds are multiplied by a ρ under which this size is typical.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from ndpp._stop import look
from ndpp._types import BoolArray, FloatArray, IntArray, NumberArray
from ndpp.errors import PrecisionError
from ndpp.linalg.logs import log1p
from ndpp.linalg.operations import NUMPY
from ndpp.linalg.scaling import EPS, quadratic_forms
from ndpp.linalg.size_law import nodes

N_TERMS = 20
"""Maximum number of terms of light groups."""
SMALL_P = 0.05
"""Items with a larger p are not light."""
LEFT_OUT = 1e-17
"""Terms of light items below this part of the first one are left out."""
MAX_MISSED = 1e-17
"""Maximum probability of all sizes outside the window."""
JOINT_ERROR = 1e-6
"""The same where an item and a size are asked for together; what takes so long serves charts."""
THETAS, MAX_THETA = np.array([0.5, 0.65, 0.8, 1.0]), 1.5
"""log z of the Chernoff bound, relative to the best one for a normal distribution; and the largest, where the series still converge."""
THETA_STEP, SIZES_STEP = 0.25, 8
"""Components share points z: log z of the bound is rounded to this part of itself, and numbers of sizes to multiples of an even number."""
LOG_RADIUS = 1e-3
"""Off the unit circle, on which f(z) may have a root."""
WIDE = 4000
"""For more sizes, the circle is nearer to the unit circle: |z|^sizes stays below e⁴."""
STEP = 1e-3
"""Step of log z for the derivatives of log E z^|S|."""
ROUNDED = 64 * EPS
"""Probabilities and relative coefficients below this are rounding errors."""
CHUNK, HEAVY = 64, 512
"""Groups that are looked at, or added, one by one, at a time."""


class Series(NamedTuple):
    """Coefficients of Σ log f over the light groups (N_TERMS,), and c (n, N_TERMS); the number of terms of each group, 0 if it is heavy."""

    logs: FloatArray
    terms: FloatArray
    counts: IntArray


class Groups(Protocol):
    """Some groups, with rows v (n, r): ``values`` are log f(z), up to multiples of 2πi, and u(z), each of shape (n, m).

    ``inclusions`` are Σ_z w P_z(i ∈ S) of the ``n_items`` items of all groups, from M(z) = M (I + Σ_g u_g(z) v_g v_gᵀ M)⁻¹, and
    ``chances`` are P_z(i ∈ S) of some of them, shape (items, m).
    """

    @property
    def rows(self) -> FloatArray: ...  # noqa: D102
    @property
    def n_items(self) -> int: ...  # noqa: D102
    def take(self, which: IntArray) -> Self: ...  # noqa: D102
    def series(self) -> Series: ...  # noqa: D102
    def values(self, z: NumberArray) -> tuple[NumberArray, NumberArray]: ...  # noqa: D102
    def inclusions(self, z: NumberArray, weights: NumberArray, inner: NumberArray) -> FloatArray: ...  # noqa: D102
    def chances(self, z: NumberArray, inner: NumberArray, items: IntArray) -> NumberArray: ...  # noqa: D102


class Coins(NamedTuple):
    """Groups of one item i each, with probability ``p`` of coming by itself.

    P_z(i ∈ S) = z (p + vᵀM(z)v / f) / f, and the powers of 1/f = Σ_k (−p/q)^k z^k / q with q = 1 − p are series for light items, too.
    """

    p: FloatArray
    rows: FloatArray

    @property
    def n_items(self) -> int:
        """The number of items."""
        return len(self.p)

    def take(self, which: IntArray) -> Coins:
        """Return some of the items."""
        return Coins(self.p[which], self.rows[which])

    def series(self) -> Series:
        """Return the power series of the light items."""
        light = self.p <= SMALL_P
        q = np.where(light, 1 - self.p, 1.0)
        ratio = np.where(light, self.p, 0.0) / q
        with np.errstate(divide="ignore"):
            counts = 1 + np.floor(np.log(LEFT_OUT) / np.log(ratio)).clip(0, N_TERMS - 1).astype(np.int64)
        powers = np.cumprod(np.broadcast_to(-ratio[:, None], (len(q), N_TERMS)), axis=1)
        logs = -powers.sum(axis=0) / np.arange(1, N_TERMS + 1)
        terms = np.hstack([np.ones((len(q), 1)), powers[:, :-1]]) / q[:, None]
        return Series(np.append(np.log(q).sum(), logs[:-1]), terms, np.where(light, counts, 0))

    def values(self, z: NumberArray) -> tuple[NumberArray, NumberArray]:
        """Return log f(z) and u(z)."""
        change = self.p[:, None] * (z - 1)
        return log1p(change), (z - 1) / (1 + change)

    def inclusions(self, z: NumberArray, weights: NumberArray, inner: NumberArray) -> FloatArray:
        """Return Σ_z w P_z(i ∈ S); z may be that of each item, shape (n, m). For light items, the sums over z come first."""
        if z.ndim == 2:
            return self._inclusions_of_each(z, weights, inner)
        out, k, series = np.empty(len(self.p)), np.arange(N_TERMS), self.series()
        heavy = np.flatnonzero(series.counts == 0)
        out[heavy] = (self.chances(z, inner, heavy) @ weights).real
        powers = weights * z ** (k + 1)[:, None]
        flat = inner.reshape(len(z), inner.shape[1] ** 2)
        sums = (powers.real @ flat.real - powers.imag @ flat.imag).reshape(N_TERMS, *inner.shape[1:])
        order = np.argsort(-series.counts, kind="stable")[: len(out) - len(heavy)]
        p, rows, terms = self.p[order], self.rows[order], series.terms[order]
        found = p * (terms @ powers.real.sum(axis=1))
        for j, count in enumerate(_counts(series)):
            found[:count] += (j + 1) * terms[:count, j] / (1 - p[:count]) * quadratic_forms(rows[:count], sums[j])
        out[order] = found
        return out

    def chances(self, z: NumberArray, inner: NumberArray, items: IntArray) -> NumberArray:
        """Return P_z(i ∈ S) of some items; z may be that of each item, shape (n, m)."""
        z = z if z.ndim == 1 else z[items]
        p, rows = self.p[items, None], self.rows[items].astype(inner.real.dtype)
        f = 1 + p * (z - 1)
        return np.asarray(z * (p + np.stack([complex_forms(rows, M) for M in inner], axis=1) / f) / f)

    def moved(self, items: BoolArray) -> BoolArray:
        """Return which groups have one of these items."""
        return items

    def _inclusions_of_each(self, z: NumberArray, weights: NumberArray, inner: NumberArray) -> FloatArray:
        """Return the same for z of each item: the mean of M(z) serves where z = 1."""
        moves = np.flatnonzero((z != 1).any(axis=1))
        mean = np.einsum("z,zab->ab", weights, inner).real
        out: FloatArray = self.p * weights.real.sum() + quadratic_forms(self.rows, mean)
        for start in range(0, len(moves), CHUNK):
            part = moves[start : start + CHUNK]
            out[part] = (self.chances(z, inner, part) @ weights).real
        return out


class Stepped(NamedTuple):
    """Groups whose items count ``steps`` each, and not one: z becomes z^steps, of each group of one item, or of each item of families."""

    groups: Any
    steps: FloatArray

    @property
    def rows(self) -> FloatArray:
        """The rows of the groups."""
        return np.asarray(self.groups.rows)

    def take(self, which: IntArray) -> Stepped:
        """Return some of the groups."""
        is_coins = isinstance(self.groups, Coins)  # one item each
        return Stepped(self.groups.take(which), self.steps[which] if is_coins else self.steps)

    def series(self) -> Series:
        """Return none: steps of different lengths share no series."""
        n = len(self.groups.rows)
        return Series(np.zeros(N_TERMS), np.zeros((n, N_TERMS)), np.where(self.groups.moved(self.steps > 0), 0, 1))

    def values(self, z: NumberArray) -> tuple[NumberArray, NumberArray]:
        """Return log f and u."""
        found: tuple[NumberArray, NumberArray] = self.groups.values(z ** self.steps[:, None])
        return found

    @property
    def n_items(self) -> int:
        """The number of items."""
        return len(self.steps)

    def chances(self, z: NumberArray, inner: NumberArray, items: IntArray) -> NumberArray:
        """Return P_z(i ∈ S) of some items."""
        return np.asarray(self.groups.chances(z ** self.steps[:, None], inner, items))

    def inclusions(self, z: NumberArray, weights: NumberArray, inner: NumberArray) -> FloatArray:
        """Return Σ_z w P_z(i ∈ S) of the items."""
        found: FloatArray = self.groups.inclusions(z ** self.steps[:, None], weights, inner)
        return found


class SizeLaw(NamedTuple):
    """What E z^|S| is computed from, whatever z.

    ``blocks()`` yields all groups, some at a time. ``logs`` are those of all light groups, ``light`` (N_TERMS, r²) are Σ c_k v vᵀM, and
    ``heavy`` are the other groups. No set has more than ``most`` items. No item counts more than ``longest``.
    """

    marginal: FloatArray
    blocks: Callable[[], Iterable[Groups]]
    logs: FloatArray
    light: FloatArray
    heavy: list[Groups]
    most: int
    longest: float = 1.0

    @classmethod
    def prepare(
        cls, marginal: FloatArray, blocks: Callable[[], Iterable[Groups]], most: int, longest: float = 1.0
    ) -> SizeLaw:
        """Sum over all groups. O(n r²)."""
        r, heavy = len(marginal), []
        logs, grams = np.zeros(N_TERMS), np.zeros((N_TERMS, r, r))
        for groups in blocks():
            look()
            series = groups.series()
            order, logs = np.argsort(-series.counts, kind="stable"), logs + series.logs
            rows, terms = groups.rows[order], series.terms[order]
            for gram, term, count in zip(grams, terms.T, _counts(series)):
                gram += (rows[:count] * term[:count, None]).T @ rows[:count]
            which = np.flatnonzero(series.counts == 0)
            heavy += [groups.take(which[i : i + HEAVY]) for i in range(0, len(which), HEAVY)]
        return cls(marginal, blocks, logs, (grams @ marginal).reshape(N_TERMS, r * r), heavy, most, longest)

    def _factors(self, z: NumberArray) -> tuple[NumberArray, NumberArray]:
        """Return Σ_g log f_g(z) and I + Σ_g u_g(z) v_g v_gᵀ M for each z of an array (m,), shapes (m,) and (m, r, r)."""
        r, powers = len(self.marginal), z[:, None] ** np.arange(N_TERMS)
        logs, out = powers @ self.logs, _product((z - 1)[:, None] * powers, self.light)
        out = out.reshape(len(z), r, r)
        for groups in self.heavy:
            own, u = groups.values(z)
            logs, right = logs + own.sum(axis=0), groups.rows @ self.marginal
            for system, weights in zip(out, u.T):
                np.add(system, _product(weights * groups.rows.T, right), out=system)
        out[:, np.arange(r), np.arange(r)] += 1.0
        return logs, out

    def log_mean(self, z: NumberArray) -> NumberArray:
        """Return log E z^|S| for each z of an array (m,), up to multiples of 2πi."""
        logs, system = self._factors(z)
        return logs + sum(NUMPY.log_det(system))

    def mean_and_variance(self) -> tuple[float, float]:
        """Return the mean and the variance of |S|: the first derivatives of log E z^|S| by log z at z = 1."""
        step = STEP / self.longest
        below, at, above = self.log_mean(np.exp([-step, 0.0, step])).real.tolist()
        return (above - below) / (2 * step), (above + below - 2 * at) / step**2

    def window(self, missed: float = MAX_MISSED) -> tuple[int, int]:
        """Return the first size and an even number of sizes outside of which there is less than ``missed``.

        P(|S| ≥ b) ≤ z^(−b) E z^|S| for every z ≥ 1, and P(|S| ≤ a) ≤ z^(−a) E z^|S| for every z ≤ 1.
        """
        room, variance = np.log(2 / missed), self.mean_and_variance()[1]
        least = 1e-3 * self.longest**2
        best = (
            np.log(2 * room / max(variance, least)) / 2
        )  # a few values, so that components share what they compute of them
        theta = THETAS * min(MAX_THETA / self.longest, float(np.exp(THETA_STEP * round(best / THETA_STEP))))
        upper, lower = np.split(self.log_mean(np.exp(np.concatenate([theta, -theta]))).real, 2)
        if not np.isfinite([*upper, *lower]).all():
            raise PrecisionError("the odds of items are beyond double precision; sizes cannot be computed")
        high = min(self.most, int(np.min((upper + room) / theta)) + 1)
        low = max(0, int(np.max(-(lower + room) / theta)))
        return low, SIZES_STEP * ((high - low) // SIZES_STEP + 1)

    def distribution(self) -> FloatArray:
        """Return P(|S| = k) for k = 0..most."""
        return self.rounded().clip(0.0)

    def rounded(self) -> FloatArray:
        """Return the same with rounding errors of either sign, which cancel in sums."""
        low, count = self.window()
        z, out = circle(count), np.zeros(self.most + 1)
        half = np.exp(self.log_mean(z))
        sums = np.fft.fft(np.concatenate([half, half[::-1].conj()]))  # the lower half of the circle has the conjugates
        sizes = np.arange(low, min(low + count, len(out)))
        out[sizes] = (sums[sizes % count] * _unit(count, sizes)).real / count
        return out

    def inclusions(self, *sizes: int) -> FloatArray:
        """Return P(i ∈ S | |S| is one of these sizes) of all items.

        It is Σ_z w P_z(i ∈ S) with the weights E z^|S| Σ_k z^−k of the points z, in units of their sum.
        """
        count, wanted = self.window()[1], np.array(sizes, np.int64)
        z, powers = circle(count), np.zeros(count, complex)
        np.add.at(powers, wanted % count, _unit(count, wanted))
        logs, system = self._factors(z)
        weights = np.exp(logs + sum(NUMPY.log_det(system))) * np.fft.fft(powers)[: len(z)]
        weights /= weights.real.sum()
        inner = self._inner(system)
        return np.concatenate([groups.inclusions(z, weights, inner) for groups in self.blocks()])

    def _inner(self, system: NumberArray) -> NumberArray:
        """Return M(z) from :meth:`_factors`."""
        return np.linalg.solve(system.swapaxes(1, 2), self.marginal.T).swapaxes(1, 2)

    def joint(self, items: IntArray) -> tuple[int, FloatArray]:
        """Return the first size k of a window, and P(i ∈ S, |S| = k) of some items for the sizes from it on; items are ascending.

        It is the coefficient of z^k in E z^|S| P_z(i ∈ S), up to about ``JOINT_ERROR``: points z where the mean is small do not matter, and
        single precision suffices for the rest.
        """
        low, count = self.window(JOINT_ERROR)
        z = circle(count)
        logs, system = self._factors(z)
        means = np.exp(logs + sum(NUMPY.log_det(system)))
        # Those from some angle on; one of few, so that components share what they compute of the points before it.
        last = int(np.flatnonzero(np.abs(means) > 0.1 * JOINT_ERROR)[-1])
        large = slice(SIZES_STEP * (last // SIZES_STEP + 1))
        z, means, inner = z[large], means[large], self._inner(system[large]).astype(np.complex64)
        sizes = np.arange(low, min(low + count, self.most + 1))
        coefficients = means[:, None] * z[:, None] ** -sizes.astype(float) * 2 / count
        out, start = np.empty((len(items), len(sizes))), 0
        for groups in self.blocks():
            look()
            first, last = np.searchsorted(items, [start, start + groups.n_items])
            chances = groups.chances(z, inner, items[first:last] - start)
            out[first:last] = (chances @ coefficients).real.clip(0.0)
            start += groups.n_items
        return low, out


def circle(count: int) -> NumberArray:
    """Return the points z for ``count`` sizes, on the upper half of a circle."""
    return nodes(float(np.exp(_log_radius(count))), count)


def _log_radius(count: int) -> float:
    """Return that of the circle: the more sizes there are, the nearer to the unit circle, or z^size would cost digits."""
    return LOG_RADIUS * min(1.0, WIDE / count)


def _unit(count: int, sizes: IntArray) -> NumberArray:
    """Return z^−k of the first point z of the circle for these sizes k, but for what a Fourier transform adds."""
    return np.asarray(np.exp(-sizes * (_log_radius(count) + 1j * np.pi / count)))


def complex_forms(rows: FloatArray, M: NumberArray) -> NumberArray:
    """Return vᵀMv of every row v, for complex M."""
    return np.asarray(quadratic_forms(rows, M.real) + 1j * quadratic_forms(rows, M.imag))


def _counts(series: Series) -> list[int]:
    """Return how many groups have a first term, a second one, and so on."""
    return [int(np.count_nonzero(series.counts > k)) for k in range(series.counts.max(initial=0))]


def _product(left: NumberArray, right: FloatArray) -> NumberArray:
    """Return left @ right without making the second a complex matrix."""
    if not np.iscomplexobj(left):
        return left @ right
    out = np.empty((len(left), right.shape[1]), complex)
    out.real, out.imag = left.real @ right, left.imag @ right
    return out
