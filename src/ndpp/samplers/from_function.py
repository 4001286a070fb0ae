"""Exact samples of a kernel function on points, L_ij = f(x_i, x_j), whose matrix is never formed.

Distribution: P(S) ∝ det(L_S) for a symmetric positive semidefinite L, over sets of any size or of one. Exact. Let Z(A) be det(I + A), or
e_k(A) for sets of k items: log Z is concave. A pivoted Cholesky decomposition L = FᵀF + E of rank m, and the trace of E spread evenly over
the n − m directions that are left, give a matrix C near L whose gradient G of log Z is known, hence l_i, G's value at point i, and
s = Σ l_i = tr(GC), the number of items that C expects. Then [Dereziński 2019; Dereziński, Calandriello & Valko 2019]:

1. Draw t ~ Poisson(r e^{s/r}) points σ with p_i = l_i / s each, and evaluate L̃_ab = L_{σ_a σ_b} / (r √(p_{σ_a} p_{σ_b})).
2. Accept them with probability Z(L̃) e^{s − ts/r} / Z(C), which is at most one as log Z is below its tangent at C; else go back to 1.
3. Draw a set from L̃. It has exactly the distribution of L, whatever r, C and m (Theorem 12 of ``docs/theory``).

The expected number of proposals is e^{r(e^{s/r} − 1) − s} Z(C)/Z(L), about e^{s²/2r} if C is near L.

Cost: m columns of L and O(n m²) to prepare; u² values of f and O(u³) per proposal of u ≤ min(t, n) distinct points, whatever n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ndpp._compiled import interpreted, soon
from ndpp._stop import look
from ndpp._types import AnyArray, FloatArray, IntArray
from ndpp._validation import check_count
from ndpp.errors import BudgetExceededError, ImpossibleSizeError, PrecisionError
from ndpp.items.table import alias_table, look_up
from ndpp.laws.catalogue import Catalogue
from ndpp.linalg.scaling import EPS, ROUNDING
from ndpp.linalg.tilts import tilt_of_coins
from ndpp.samplers.base import Draw, Sampler
from ndpp.samplers.exact.spectral import draw_among_all, given_heads, heads_table
from ndpp.samplers.points import KernelLike, Pivoted, PointKernel, not_definite

FIRST_RANK = 32
"""Rank of the first decomposition; it is doubled as long as C may be far from L."""
GOOD_GAP = 0.1
"""log Z(C) − log Z(L), as far as the last pivot shows it, at which the rank is large enough."""
OVERHEAD = 100.0
"""Points whose eigenvalues take as long as the rest of a proposal."""
PICK, CHOLESKY, VECTORS = 400.0, 0.25, 2.5
"""Times, in units of u³ for the eigenvalues of u points: to draw one of the points σ, and, times u³, log det(I + L̃) and eigenvectors."""
MOST_POINTS = 4000
"""Largest mean number of distinct points of a proposal."""
CHECKED_AFTER = 20
"""Proposals after which a draw gives up if their mean chance is far too small."""
CHANCE_TOLERANCE = 1e-6
"""How far rounding may raise the chance of accepting a proposal above one."""


class Tangent(NamedTuple):
    """The gradient of log Z at ρC, for the points: ``leverage`` l, log Z, log Z of the part FᵀF alone, and the odds of E_ii = 1."""

    tilt: float
    leverage: FloatArray
    log_weight: float
    log_low_rank: float
    rest: float

    @classmethod
    def at(cls, found: Pivoted, size: int | None) -> Tangent:
        """Decompose FFᵀ, and choose ρ such that ``size`` items are expected. O(n m²)."""
        m, n = found.F.shape
        values, vectors = np.linalg.eigh(found.F @ found.F.T)
        values, vectors = values[values > 0], vectors[:, values > 0]
        spread = float(found.residual.sum()) / max(n - m, 1)
        rho = 1.0
        if size is not None:
            positive = np.concatenate([values, np.full((n - m) * (spread > 0), spread)])
            if size > len(positive):
                raise ImpossibleSizeError(
                    f"no set of {size} points has positive probability: the rank of their kernel is {len(positive)}, up to rounding"
                )
            rho = float(np.exp(tilt_of_coins(np.log(positive), min(max(size, 0.3), len(positive) - 0.3))))
        odds, even = rho * values, rho * spread
        chance, one = odds / (1 + odds), even / (1 + even) if even else 1.0
        low = float(np.log1p(odds).sum())
        log_weight = low + (n - m) * float(np.log1p(even))
        if size is not None:
            others = _heads_of_equal(even, n - m, size)
            before, after = (
                heads_table(chance, 1 - chance, size, others),
                heads_table(chance[::-1], 1 - chance[::-1], size),
            )
            total = before[-1, -1]
            left = after[::-1, ::-1]  # left[i, a]: size − a heads among the coins from i on
            low, log_weight = low + _log(after[-1, -1]), log_weight + _log(total)
            one = float(np.arange(size + 1) @ (others * left[0])) / total / max(n - m, 1)
            chance = chance * np.einsum("ia,ia->i", before[:-1, :-1], left[1:, 1:]) / total
            one = one if spread or not size else before[-1, -2] / total  # over ``even``, which is zero
        rest = one / spread if spread else one * rho
        leverage = np.einsum("ij,ij,i->j", *[vectors.T @ found.F] * 2, chance / values) + rest * found.residual
        return cls(rho, leverage, log_weight, low, rest)

    def gap(self, found: Pivoted) -> float:
        """Estimate log Z(C) − log Z(L) to second order, as if what the last pivot took were an eigenvalue of E that all its trace has."""
        m, n = found.F.shape
        total = float(found.residual.sum())
        return 0.0 if found.is_complete else self.rest**2 * total * max(found.last - total / max(n - m, 1), 0.0) / 2


@dataclass(frozen=True, eq=False)
class FromFunction(Sampler):
    """Exact samples of the points of a kernel function, without their matrix.

    ``rank`` is m, ``mean_points`` is r, and the expected number of proposals is between ``least_proposals`` and ``most_proposals``.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> from sklearn.metrics.pairwise import rbf_kernel
    >>> points = np.random.default_rng(0).normal(size=(4000, 2))
    >>> sampler = FromFunction.prepare(partial(rbf_kernel, gamma=0.5), points, size=5)
    >>> sampler.sample(3, rng=0).baskets.sizes
    array([5, 5, 5])
    """

    kernel: PointKernel
    size: int | None
    rank: int
    mean_points: float
    least_proposals: float
    most_proposals: float
    max_proposals: int
    tangent: Tangent = field(repr=False)
    threshold: FloatArray = field(repr=False)
    alias: AnyArray = field(repr=False)

    @classmethod
    def prepare(
        cls,
        function: KernelLike,
        points: Any,
        *,
        size: int | None = None,
        diagonal: Any = None,
        labels: Sequence[str] | None = None,
        max_rank: int = 512,
        max_proposals: int = 10_000,
    ) -> FromFunction:
        """Approximate the matrix from some of its columns; no sample depends on how well, only the number of proposals.

        Parameters
        ----------
        function : callable
            ``function(A, B)`` returns the (len(A), len(B)) matrix of f for two arrays of points, as the kernels of
            ``sklearn.metrics.pairwise`` and ``sklearn.gaussian_process.kernels`` do. f is symmetric and positive semidefinite. Workers in
            processes (``n_jobs`` with joblib's "loky") and clusters pickle it: use ``functools.partial``, not a lambda.
        points : array of shape (n, …)
            Items are its rows: anything with a shape that takes an array of row numbers as an index, or a sequence of points.
        size : int, optional
            Number of items per set; any number if None. f and 2f have the same sets of one size.
        diagonal : array of shape (n,), optional
            f(x, x) of every point, or larger numbers, such as f(x, x) plus a noise: it is the diagonal of L. If missing, it is
            ``function.diag(points)``, or else evaluated in blocks.
        labels : sequence of str, optional
            Names of the points.
        max_rank : int
            Maximum number of columns of L that are evaluated, which are kept while preparing, ``8 n max_rank`` bytes.
        max_proposals : int
            Maximum number of proposals per draw.

        Raises
        ------
        BudgetExceededError
            More than ``max_proposals`` proposals are expected, as far as that is known before the first.
        InvalidKernelError
            The function has shown that it is not symmetric, or not positive semidefinite.
        """
        max_rank, max_proposals = (
            check_count(max_rank, "max_rank"),
            check_count(max_proposals, "max_proposals", least=1),
        )
        kernel = PointKernel.of(function, points, diagonal, labels)
        if size is not None and check_count(size, "size") > kernel.n_items:
            raise ImpossibleSizeError(f"no set has {size} points: there are {kernel.n_items}")
        found, rank = Pivoted.begin(kernel), min(FIRST_RANK, max_rank, kernel.n_items)
        while True:
            found = found.extended(kernel, rank)
            tangent = Tangent.at(found, size)
            if tangent.gap(found) <= GOOD_GAP or rank == min(max_rank, kernel.n_items):
                break
            rank = min(2 * rank, max_rank, kernel.n_items)
        return cls._of(kernel, size, found, tangent, max_proposals)

    @classmethod
    def _of(
        cls, kernel: PointKernel, size: int | None, found: Pivoted, tangent: Tangent, max_proposals: int
    ) -> FromFunction:
        if not tangent.rest * found.noise * kernel.n_items <= CHANCE_TOLERANCE:
            raise PrecisionError(
                f"sets of {'any size' if size is None else f'{size} points'} depend on digits of the function that double precision does "
                f"not have: on these points it is nearly of rank {len(found.F)}. Ask for a smaller size, or use a rougher function."
            )
        s, n = float(tangent.leverage.sum()), kernel.n_items
        mean = _cheapest_mean(s, n, size)
        log_least = float(_log_loss(s, np.array(mean)))
        log_most = log_least + tangent.log_weight - tangent.log_low_rank
        if log_least > np.log(max_proposals):
            raise BudgetExceededError(
                f"at least 10^{log_least / np.log(10):.1f} proposals are expected per draw of about {s:.0f} items, above max_proposals = "
                f"{max_proposals}. {ADVICE}",
                count=0,
            )
        threshold, alias = alias_table(tangent.leverage) if s else (np.empty(0), np.empty(0, np.int32))
        with np.errstate(over="ignore"):
            least, most = float(np.exp(log_least)), float(np.exp(log_most))
        return cls(kernel, size, len(found.F), mean, least, most, max_proposals, tangent, threshold, alias)

    @property
    def expected_size(self) -> float:
        """s: the number of items that C expects, ``size`` if there is one; at least as many as L expects otherwise."""
        return float(self.tangent.leverage.sum())

    @property
    def catalogue(self) -> Catalogue:
        """The points and their labels."""
        return self.kernel

    def items_of(self, rows: IntArray) -> IntArray:
        """Return the points of a draw, which are what is drawn."""
        return rows

    def draw(self, rng: np.random.Generator) -> Draw:
        """Draw one set."""
        chances = 0.0
        for proposals in range(1, self.max_proposals + 1):
            look()
            rows, L, log_factor = self.propose_points(rng)
            chance = self._checked(float(np.exp(log_weight(L, self.size) + log_factor)))
            if rng.random() < chance:
                items = np.sort(rows[draw_from(rng, L, self.size)])
                return Draw(items, {"proposals": proposals, "rejections": proposals - 1, "points": len(rows)})
            chances += chance
            if proposals == min(CHECKED_AFTER, self.max_proposals) and chances * self.max_proposals < proposals:
                break
        expected = f"about {proposals / chances:.3g}" if chances else "many more"
        raise BudgetExceededError(
            f"{proposals} proposals were all rejected; {expected} are expected per draw of about {self.expected_size:.0f} items, at least "
            f"{self.least_proposals:.3g} and at most {self.most_proposals:.3g}. {ADVICE}",
            count=proposals,
        )

    def propose_points(self, rng: np.random.Generator) -> tuple[IntArray, FloatArray, float]:
        """Return the distinct points of σ, ρL̃ for them, and the log of e^{s − ts/r} / Z(C)."""
        s, r = self.expected_size, self.mean_points
        t = int(rng.poisson(r * np.exp(s / r))) if s else 0
        coins = rng.random((2, t))
        hits = soon(look_up, coins.size)(self.threshold, self.alias, coins) if t else np.empty(0, np.int64)
        rows, counts = np.unique(hits, return_counts=True)
        # Equal rows and columns of L̃, c of them, are one with c times the weight: FᵀF is the same.
        scale = np.sqrt(self.tangent.tilt * counts * s / (r * self.tangent.leverage[rows]))
        L = self.kernel.block(rows) * np.multiply.outer(scale, scale) if t else np.empty((0, 0))
        return rows, L, s - t * s / r - self.tangent.log_weight

    def _checked(self, chance: float) -> float:
        if not chance <= 1 + CHANCE_TOLERANCE:
            raise not_definite(
                f"a proposal has the acceptance probability {chance:.6g}, which is at most 1 for such functions"
            )
        return chance


ADVICE = "Ask for smaller sets (size=), raise max_rank, or form the matrix: LowRankKernel.from_dense(function(points, points)).sample(…)."


def log_weight(L: FloatArray, size: int | None) -> float:
    """Return log Z of a matrix: log det(I + L), or log e_k(L)."""
    if size is None:
        try:
            return 2 * float(np.log(np.linalg.cholesky(np.eye(len(L)) + L).diagonal()).sum())
        except np.linalg.LinAlgError:
            raise not_definite(f"the matrix of {len(L)} points has a negative eigenvalue") from None
    chance, log_det, _ = _coins(np.asarray(np.linalg.eigvalsh(L), np.float64))
    return log_det + _log(heads_table(chance, 1 - chance, size)[-1, -1])


def draw_from(rng: np.random.Generator, L: FloatArray, size: int | None) -> IntArray:
    """Draw a set from the matrix L, by its eigenvectors [Hough et al. 2006; Kulesza & Taskar 2012, Algs. 1 and 8]."""
    values, vectors = np.linalg.eigh(L)
    chance, _, kept = _coins(values)
    coins = rng.random(len(chance))
    if size is None:
        chosen = np.flatnonzero(coins < chance)
    else:
        chosen = interpreted(given_heads)(chance, heads_table(chance, 1 - chance, size), coins)
    return draw_among_all(rng, np.ascontiguousarray(vectors.T[kept][chosen]))


def _coins(values: FloatArray) -> tuple[FloatArray, float, AnyArray]:
    """Return the chances of the eigenvectors with these eigenvalues λ, log det(I + L), and which are kept: rounding is not."""
    largest = values.max(initial=0.0)
    if values.min(initial=0.0) < -np.sqrt(EPS) * largest:
        raise not_definite(
            f"the matrix of {len(values)} points has the eigenvalues {values.min():.3g} and {largest:.3g}"
        )
    values = np.maximum(values, 0.0)
    chance = values / (1 + values)
    kept = chance > len(chance) * ROUNDING
    return chance[kept], float(np.log1p(values).sum()), kept


def _heads_of_equal(odds: float, count: int, most: int) -> FloatArray:
    """Return P(j heads of ``count`` coins with these odds) for 0 ≤ j ≤ ``most``."""
    j = np.arange(1, most + 1)
    with np.errstate(divide="ignore"):
        steps = np.log(np.maximum(count - j + 1, 0) / j * odds)
    return np.asarray(np.exp(np.concatenate([[0.0], np.cumsum(steps)]) - count * np.log1p(odds)))


def _log_loss(s: float, mean: FloatArray) -> FloatArray:
    """Return r(e^{s/r} − 1) − s: what r points σ in place of all add to the log of the number of proposals."""
    return np.asarray(mean * np.expm1(s / mean) - s)


def _cheapest_mean(s: float, n: int, size: int | None) -> float:
    """Return r: few points are rejected more often, many take longer."""
    grid = max(s, 1.0) * 2 ** np.arange(0.0, 16.0, 0.25)
    points = n * -np.expm1(-grid * np.exp(s / grid) / n)  # distinct ones, if all are as likely
    proposal = OVERHEAD**3 + PICK * grid + points**3 * (CHOLESKY if size is None else 1.0)
    log_cost = np.logaddexp(_log_loss(s, grid) + np.log(proposal), np.log(VECTORS * points**3))
    return float(grid[np.argmin(np.where((points <= MOST_POINTS) | (grid == grid[0]), log_cost, np.inf))])


def _log(value: float) -> float:
    return float(np.log(value)) if value > 0 else -np.inf
