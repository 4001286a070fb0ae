"""Gains of the items of a kernel after a set Y, det L_{Y∪a} / det L_Y, as carefully as greedy runs may need them.

Without a background they are formed in coordinates in which the items of Y have been eliminated, with estimates of rounding errors: O(n r²)
from scratch and O(n r) for one more item. With a background δ they are (1 + δ)(p + qᵀCq), and one more item changes C by rank one; items
with δ > 0 always have a gain, and once none of them is left, what follows are the gains of the low-rank kernel of the others.
"""

from __future__ import annotations

import numpy as np

from ndpp._types import BoolArray, FloatArray, IntArray
from ndpp.errors import ZeroProbabilityError
from ndpp.laws.scoring import Gains, impossible
from ndpp.laws.union import WeighedSets
from ndpp.linalg.scaling import EPS, ROUNDING
from ndpp.linalg.schur import Remainder, eliminate

PAIR_ROWS, PAIR_BLOCK = 1024, 256
"""The search for the best pair reads at most this many rows of L, largest first, and this many at a time."""
TINY = float(np.finfo(np.float64).tiny)


def gains_after(kernel: WeighedSets, rows: IntArray, open: BoolArray) -> Gains:
    """Return the gains of all rows of the support after some of them; where there is a background, of the open ones only."""
    if kernel.background is None:
        given = eliminate(kernel.coordinates, kernel.q_rows(rows))
        if given is None or given.null.size:
            raise impossible(kernel.catalogue_ids(rows))
        return LowRankGains.fresh(kernel, given)
    rest: WeighedSets = kernel.condition(kernel.catalogue_ids(rows))
    at = np.searchsorted(kernel.support, rest.support)
    if rest.background is not None and (open[at] & (rest.odds > 0)).any():
        return BackgroundGains(rest, at, kernel.n_rows)
    at = np.flatnonzero(open)
    rest = rest.restrict(kernel.support[at])
    return RemainingGains(gains_after(rest, np.empty(0, np.int64), np.ones(len(at), bool)), at, kernel.n_rows)


class LowRankGains(Gains):
    """Gains L^Y_aa of a kernel without a background, L^Y = L − L_:Y L_Y⁻¹ L_Y:, from the remainder of L."""

    def __init__(
        self, kernel: WeighedSets, values: FloatArray, noise: FloatArray, given: Remainder, *, is_fresh: bool
    ) -> None:
        super().__init__(values, noise)
        self.kernel, self.given, self.is_fresh = kernel, given, is_fresh

    @classmethod
    def fresh(cls, kernel: WeighedSets, given: Remainder) -> LowRankGains:
        """Compute all gains from the remainder of L. O(n r²)."""
        values, noise = np.empty(kernel.n_rows), np.empty(kernel.n_rows)
        size, relative = len(given.M) + 1, (len(given.M) + 1) * ROUNDING + given.noise
        largest = max(np.abs(given.M).max(initial=0.0), given.magnitudes.max(initial=0.0) / size)
        absolute = ROUNDING * np.linalg.norm(given.to_z)
        for block, Q in kernel.q_blocks():
            Z = Q @ given.to_z
            values[block] = np.einsum("ij,ij->i", Z @ given.M, Z)
            error = np.linalg.norm(Z * relative, axis=1) + absolute
            noise[block] = largest * error * (np.linalg.norm(Z, axis=1) + error)
        return cls(kernel, values, noise, given, is_fresh=True)

    def after(self, row: int, open: BoolArray) -> LowRankGains:
        """Return the gains after adding an item, by a rank-one Schur complement. O(n r)."""
        to_z, M = self.given.to_z, self.given.M
        z = self.kernel.q_rows(np.array([row]))[0] @ to_z
        u, v = M @ z, z @ M
        pivot = float(z @ u)
        both = self.kernel.q_times(to_z @ np.column_stack([u, v]))
        change = both[:, 0] * (both[:, 1] / pivot)  # the product alone may overflow
        noise = self.noise + (4 * EPS + self.noise[row] / pivot) * np.abs(change)
        given = self.given._replace(M=M - np.outer(u, v / pivot))
        return LowRankGains(self.kernel, self.values - change, noise, given, is_fresh=False)

    def best_pair(self, open: BoolArray) -> tuple[int, ...]:
        """Return the pair with the largest det L^Y_ab = (L^Y_ab)²; () where all are zero."""
        kernel, to_z, M = self.kernel, self.given.to_z, self.given.M
        skew, scale = (M - M.T) / 2, np.abs(M).max(initial=0.0)
        reach, norms = np.zeros(len(open)), np.zeros(len(open))
        for block, Q in kernel.q_blocks():
            Z = Q @ to_z
            norms[block], reach[block] = np.linalg.norm(Z, axis=1), np.linalg.norm(Z @ skew, axis=1)
        noise = self.noise / (scale or 1.0)  # e(‖z‖ + e) for an error e of z
        error = 2 * noise / np.maximum(norms + np.sqrt(norms**2 + 4 * noise), TINY)
        norms, reach = norms * open, reach * open
        order = np.argsort(-reach, kind="stable")[: min(PAIR_ROWS, np.count_nonzero(reach))]
        pair: tuple[int, ...] = ()
        largest = 0.0
        for start in range(0, len(order), PAIR_BLOCK):
            rows = order[start : start + PAIR_BLOCK]
            if reach[rows[0]] * norms.max() <= largest:  # |z_a S z_b| ≤ ‖z_a S‖ ‖z_b‖: no later row can do better
                break
            left = kernel.q_rows(rows) @ to_z @ skew
            for block, Q in kernel.q_blocks():
                entries = np.abs(left @ (Q @ to_z).T) * open[block]
                doubt = np.outer(error[rows], norms[block] + error[block]) + np.outer(norms[rows], error[block])
                entries[(entries <= scale * doubt) | (rows[:, None] == np.arange(block.start, block.stop))] = 0.0
                i, j = np.unravel_index(np.argmax(entries), entries.shape)
                if entries[i, j] > largest:
                    largest, pair = float(entries[i, j]), tuple(sorted((int(rows[i]), block.start + int(j))))
        return pair


class BackgroundGains(Gains):
    """Gains of a kernel with a background, of which ``rest`` is what is left and ``at`` its rows: (1 + δ) times p + qᵀCq, ``forms``."""

    def __init__(self, rest: WeighedSets, at: IntArray, n_rows: int) -> None:
        super().__init__(np.zeros(n_rows), np.zeros(n_rows))
        self.rest, self.at, self.C, self.forms = rest, at, rest.coordinates.B.copy(), rest.form.own[0]
        self.values[at], self.noise[at] = (1 + rest.odds) * self.forms, rest.form.least * (rest.odds == 0)
        self.has_background = np.zeros(n_rows, bool)
        self.has_background[at] = rest.odds > 0

    def after(self, row: int, open: BoolArray) -> BackgroundGains | None:
        """Return the gains after adding an item, O(n r); None if the items that are left have no background."""
        if not (open & self.has_background).any():
            return None
        rest, best, p = self.rest, int(self.at.searchsorted(row)), self.rest.form.diagonal
        q = rest.q_rows(np.array([best]))[0]
        u, v = self.C @ q, q @ self.C
        pivot = float(p[best] + q @ u)
        both = rest.q_times(np.column_stack([u, v]))
        self.C -= np.outer(u, v / pivot)
        self.forms = np.maximum(self.forms - both[:, 0] * both[:, 1] / pivot, p)
        self.values[self.at] = (1 + rest.odds) * self.forms
        return self


class RemainingGains(Gains):
    """The gains of a kernel of some rows, ``at``, among ``n_rows``."""

    def __init__(self, own: Gains, at: IntArray, n_rows: int) -> None:
        super().__init__(np.zeros(n_rows), np.zeros(n_rows))
        self.values[at], self.noise[at], self.is_fresh = own.values, own.noise, own.is_fresh
        self.own, self.at = own, at

    def after(self, row: int, open: BoolArray) -> RemainingGains | None:
        """Return the gains after adding an item."""
        own = self.own.after(int(np.searchsorted(self.at, row)), open[self.at])
        return None if own is None else RemainingGains(own, self.at, len(open))

    def best_pair(self, open: BoolArray) -> tuple[int, ...]:
        """Return the best pair of these rows."""
        return tuple(self.at[list(self.own.best_pair(open[self.at]))].tolist())


def completion(kernel: WeighedSets, rows: IntArray, open: BoolArray) -> tuple[int, ...]:
    """Return the fewest items that give the given rows a positive determinant, the most strongly coupled first.

    L_Y x = 0 means that x has no symmetric part, so that L_aY x = −xᵀL_Ya for every a: adding a removes from the null
    space of L_Y the direction it is coupled to, and with one direction left det L_{Y∪a} is the square of that coupling.
    """
    added: list[int] = []
    while True:
        given = eliminate(kernel.coordinates, kernel.q_rows(np.array([*rows, *added], np.int64)))
        if given is not None and not given.null.size:
            return tuple(added)
        coupling = np.zeros(len(open))
        if given is not None:
            coupling = np.where(open, np.linalg.norm(kernel.q_times(given.null), axis=1), 0.0)
            coupling[coupling <= ROUNDING * np.abs(given.null).max()] = 0.0
            coupling[added] = 0.0
        best = int(np.argmax(coupling))
        if not coupling[best]:
            raise ZeroProbabilityError(
                f"the given items {kernel.catalogue_ids(rows).tolist()} have det L = 0, and no candidates change that; "
                "give fewer or other items, or allow more candidates"
            )
        added.append(best)
