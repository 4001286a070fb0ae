"""The table of laws: every kind of distribution over awkward bases, changed in every way, beside its plain enumeration.

A :class:`Truth` is P(c) and P(S | c) of all components c and sets S of a small catalogue. It is made from the arguments of a law
without any code of the library: they are doubles, hence rational numbers, and so are all minors and sums over states
(:func:`oracles.exact_law`). Only then it is rounded, and since conditionals and marginals only add and divide positive numbers,
every entry keeps a relative error of about 1e-15, however small it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from itertools import product
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import block_diag

import oracles
from kernels import AWKWARD, BY_NAME, Array
from ndpp import FamilyMixture, Limit, LowRankKernel, Mixture

Items = tuple[int, ...]


# ---- the truth ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Truth:
    """P(c), shape (C,), and P(S | c), shape (C, 2^n), by bit mask; NaN of a component that cannot be."""

    weights: Array
    given_component: Array
    names: tuple[str, ...] = ("only",)
    left: tuple[int, ...] = ()
    """Items that the law does not leave out: not given and not excluded."""
    empty: Any = 0.0
    """The weight of the empty set in each component relative to that of all others, if it is left out."""

    CONDITIONS: ClassVar = ("given", "size", "exclude", "candidates", "boost", "limits")
    """Those of :meth:`under` that laws take by the same names."""

    @property
    def n_items(self) -> int:
        return self.given_component.shape[1].bit_length() - 1

    @cached_property
    def sets(self) -> list[Items]:
        return oracles.subsets(self.n_items)

    @cached_property
    def sizes(self) -> Array:
        return np.array([len(S) for S in self.sets])

    @cached_property
    def joint(self) -> Array:
        """P(c, S)."""
        return np.where(self.weights[:, None] > 0, self.weights[:, None] * self.given_component, 0.0)

    @cached_property
    def p(self) -> Array:
        """P(S)."""
        return self.joint.sum(axis=0)

    def containing(self, items: Iterable[int], size: int | None = None) -> Array:
        """Return which sets contain items and have a size."""
        mask = oracles.mask_of(items)
        chosen = np.arange(len(self.sets)) & mask == mask
        return chosen if size is None else chosen & (self.sizes == size)

    def mass(self, items: Iterable[int] = (), size: int | None = None) -> float:
        """P(items ⊆ S, |S| = size)."""
        return float(self.p[self.containing(items, size)].sum())

    def inclusions(self, size: int | None = None, given: Items = ()) -> Array:
        """P(a ∈ S | given ⊆ S, |S| = size) of every item."""
        total = self.mass(given, size)
        return np.array([self.mass({*given, a}, size) / total for a in range(self.n_items)])

    def size_distribution(self) -> Array:
        return np.bincount(self.sizes, self.p, self.n_items + 1)

    @cached_property
    def possible_sizes(self) -> list[int]:
        return [int(k) for k in np.flatnonzero(self.size_distribution())]

    def posterior(self, chosen: Array) -> Array:
        """P(c | S is one of the chosen)."""
        masses = self.joint[:, chosen].sum(axis=1)
        return masses / masses.sum()

    def next_scores(self, basket: Items) -> Array:
        """P(basket ∪ a) / P(basket) of every item, zero for those of the basket."""
        whole = self.p[oracles.mask_of(basket)]
        return np.array(
            [0.0 if a in basket else self.p[oracles.mask_of((*basket, a))] / whole for a in range(self.n_items)]
        )

    def condition(self, items: Items) -> Truth:
        """The distribution of the other items, given that these are in."""
        chosen, mask = self.containing(items), oracles.mask_of(items)
        rest = np.zeros_like(self.given_component)
        rest[:, np.flatnonzero(chosen) ^ mask] = self.given_component[:, chosen]
        return replace(self._normalized(rest, set(self.left) - set(items)), empty=0.0)

    def exclude(self, items: Items) -> Truth:
        """The distribution given that these items are not in."""
        without = np.arange(len(self.sets)) & oracles.mask_of(items) == 0
        return self._normalized(np.where(without, self.given_component, 0.0), set(self.left) - set(items))

    def without_empty(self, items: Items = ()) -> Truth:
        """The distribution given that there is an item."""
        found = self._normalized(np.where(self.sizes > 0, self.given_component, 0.0), self.left)
        with np.errstate(divide="ignore"):
            return replace(found, empty=self.given_component[:, 0] / (1 - self.given_component[:, 0]))

    def restrict(self, items: Items) -> Truth:
        """The distribution given that only these items are in."""
        return self.exclude(tuple(set(range(self.n_items)) - set(items)))

    def tilt(self, factors: dict[int, float]) -> Truth:
        """The distribution with the probability of every set times the factors of its items."""
        weights = np.array([prod(factors.get(a, 1.0) for a in S) for S in self.sets])
        never = {a for a, factor in factors.items() if factor == 0}
        return self._normalized(self.given_component * weights, set(self.left) - never)

    def under(
        self,
        *,
        given: Items = (),
        size: int | None = None,
        exclude: Items = (),
        candidates: Items | None = None,
        boost: Mapping[int, float] | None = None,
        limits: Iterable[Limit] = (),
        weights: Array | None = None,
        habits: Mapping[int, float] | None = None,
    ) -> Truth:
        """The distribution of whole sets under conditions: P(S) ∝ Σ_c w_c P_c(S) Π_{i∈S} s_i 1[given ⊆ S] 1[|S| = size] 1[limits].

        Factors of ``boost`` change the weights of components, as a tilt does. Those of ``habits`` act within components, whose weights
        stay; items with a factor of zero are left out after that. What is given is in, whatever the candidates and the factors of zero say.
        """
        found = self if weights is None else replace(self, weights=weights)
        boost = boost or {}
        if boost:
            found = found.tilt({a: s or 1.0 for a, s in boost.items()})
        if habits:
            found = replace(found.tilt(dict(habits)), weights=found.weights)
        others = set() if candidates is None else set(range(self.n_items)) - set(candidates)
        others = (others | {a for a, s in boost.items() if not s}) - set(given)
        found = found.exclude(tuple(others | set(exclude)))
        chosen = self.containing(given, size)
        for limit in limits:
            chosen = chosen & self.within(limit)
        return found._normalized(np.where(chosen, found.given_component, 0.0), found.left)

    def within(self, limit: Limit) -> Array:
        """Return which sets keep a limit on counts or on values with a few decimal places, which are added as written."""
        values = dict.fromkeys(limit.values, 1) if limit.counts else dict(limit.values)
        exact = {a: Fraction(str(value)) for a, value in values.items()}
        least, most = (None if bound is None else Fraction(str(bound)) for bound in (limit.least, limit.most))
        totals = [sum(exact.get(a, Fraction()) for a in S) for S in self.sets]
        return np.array([(least is None or t >= least) and (most is None or t <= most) for t in totals])

    def _normalized(self, table: Array, left: Iterable[int]) -> Truth:
        totals = table.sum(axis=1)
        weights = np.where(totals > 0, self.weights * totals, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return replace(
                self, weights=weights / weights.sum(), given_component=table / totals[:, None], left=tuple(sorted(left)),
                empty=self.empty / totals,
            )  # fmt: skip

    def has_kernel_given(self, items: Items) -> bool:
        """Return whether P_c(S = items) > 0 in every component in which the items can be."""
        here, chosen = oracles.mask_of(items), self.containing(items)
        return bool(np.all((self.joint[:, here] > 0) | (self.joint[:, chosen].sum(axis=1) == 0)))


def determinants(X: Array, W: Array, background: Array | None = None) -> list[Fraction]:
    """det(diag(background) + X W Xᵀ)_S of all sets, exactly."""
    if background is not None:
        X, W = np.hstack([X, np.eye(len(X))]), block_diag(W, np.diag(background))
    law = oracles.exact_law(X, W)
    return [Fraction(value, 1 << law.shift * i.bit_count()) for i, value in enumerate(law.minors)]


def normalized(weights: list[list[Fraction]]) -> Array:
    return np.array([[float(w / total) for w in row] for row in weights for total in [sum(row)]])


# ---- kinds of laws --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Base:
    """Arguments for a law of any kind over n items: each kind takes those it needs."""

    name: str
    X: Array
    W: Array
    background: Array
    odds: Array
    """Odds of the items in three components."""
    weights: Array
    item_odds: Array
    """Odds of the items in the first and second state of their family."""
    state_odds: Array
    """Odds of the five states in three components."""

    def __str__(self) -> str:
        return self.name

    @property
    def n_items(self) -> int:
        return len(self.X)

    @property
    def labels(self) -> list[str]:
        return [f"item {a} of {self.n_items}" for a in range(self.n_items)]

    @property
    def families(self) -> list[int]:
        return [0, 1, 0, 2, 1, 0][: self.n_items]

    @property
    def states(self) -> list[int]:
        return [g for g in (0, 0, 1, 1, 2) if g <= max(self.families)]


class Kind(NamedTuple):
    """A kind of law: how it is built, and its truth."""

    name: str
    build: Callable[[Base], Any]
    truth: Callable[[Base], Truth]
    is_mixture: bool = False
    may_lack_conditionals: bool = True
    """Items may be able to occur without a law of this kind for the others."""

    def __str__(self) -> str:
        return self.name


NAMES = ("one", "two", "three")


def symmetric(W: Array) -> Array:
    return (W + W.T) / 2


def symmetric_parts(base: Base) -> tuple[Array, Array]:
    """X, and the symmetric part of W, which may not use all of its columns."""
    return base.X, symmetric(base.W)


def general_parts(base: Base) -> list[tuple[Array, Array, Array | None]]:
    """X, W and background of three kernels: without a background, with one, and symmetric with another order of the items."""
    return [
        (base.X, base.W, None),
        (base.X, base.W, base.background),
        (symmetric_parts(base)[0][::-1] / 2, symmetric_parts(base)[1], base.odds[0]),
    ]


def build_mixture(base: Base) -> Mixture:
    kernels = [LowRankKernel(X, W, labels=base.labels, background=delta) for X, W, delta in general_parts(base)]
    return Mixture(kernels, base.weights, names=NAMES)


def build_families(base: Base) -> FamilyMixture:
    X, states = base.X[: max(base.families) + 1], base.states
    return FamilyMixture(
        base.state_odds[:, : len(states)], base.item_odds, base.families, states, X, base.W, base.weights,
        names=NAMES, labels=base.labels,
    )  # fmt: skip


def truth_of(base: Base, tables: list[list[Fraction]]) -> Truth:
    names, weights = (NAMES, base.weights) if len(tables) > 1 else (("only",), np.ones(1))
    return Truth(np.asarray(weights, float), normalized(tables), names, tuple(range(base.n_items)))


def tied_truth(base: Base) -> Truth:
    ties, sets = determinants(base.X, base.W, np.ones(base.n_items)), oracles.subsets(base.n_items)
    exact = [[Fraction(float(o)) for o in row] for row in base.odds]
    return truth_of(base, [[prod((o[a] for a in S), start=G) for S, G in zip(sets, ties)] for o in exact])


def families_truth(base: Base) -> Truth:
    """P_c(S) ∝ det(I + X W Xᵀ)_A Π_g Σ_s a_cs Π_{i∈S_g} r_is."""
    states, families = base.states, base.families
    ties = determinants(base.X[: max(families) + 1], base.W, np.ones(max(families) + 1))
    item_odds = [[Fraction(float(r)) for r in row] for row in base.item_odds]
    tables = []
    for row in base.state_odds:
        table = []
        for S in oracles.subsets(base.n_items):
            touched = sorted({families[i] for i in S})
            weight = ties[oracles.mask_of(touched)]
            for g in touched:
                own = [s for s, family in enumerate(states) if family == g]
                items = [i for i in S if families[i] == g]
                weight *= sum(Fraction(float(row[s])) * prod(item_odds[i][k] for i in items) for k, s in enumerate(own))
            table.append(weight)
        tables.append(table)
    return truth_of(base, tables)


MORE_NAMES = ("four", "five", "six")


def build_pooled(base: Base) -> Mixture:
    families = build_families(base)
    families = families.framed(families.frame._replace(names=MORE_NAMES))
    tied = Mixture.tied(base.odds, base.X, base.W, base.weights, names=NAMES, labels=base.labels)
    return Mixture.pooled([tied, families], [0.75, 0.25])


def pooled_truth(base: Base) -> Truth:
    first, second = tied_truth(base), families_truth(base)
    weights = np.concatenate([0.75 * first.weights, 0.25 * second.weights])
    tables = np.concatenate([first.given_component, second.given_component])
    return replace(first, weights=weights, given_component=tables, names=NAMES + MORE_NAMES)


KINDS: tuple[Kind, ...] = (
    Kind(
        "kernel",
        lambda base: LowRankKernel(base.X, base.W, labels=base.labels),
        lambda base: truth_of(base, [determinants(base.X, base.W)]),
    ),
    Kind(
        "symmetric kernel",
        lambda base: LowRankKernel(*symmetric_parts(base), labels=base.labels),
        lambda base: truth_of(base, [determinants(*symmetric_parts(base))]),
    ),
    Kind(
        "kernel with background",
        lambda base: LowRankKernel(base.X, base.W, labels=base.labels, background=base.background),
        lambda base: truth_of(base, [determinants(base.X, base.W, base.background)]),
    ),
    Kind("mixture", build_mixture, lambda base: truth_of(base, [determinants(*p) for p in general_parts(base)]), True),
    Kind(
        "tied mixture",
        lambda base: Mixture.tied(base.odds, base.X, base.W, base.weights, names=NAMES, labels=base.labels),
        tied_truth,
        True,
        False,
    ),
    Kind("families", build_families, families_truth, True, False),
    Kind("pooled", build_pooled, pooled_truth, True, False),
)
KIND = {kind.name: kind for kind in KINDS}


# ---- awkward bases --------------------------------------------------------------------------------------------------

ODDS = np.array([[0.5, 1, 0.25, 0.125, 2, 0.375], [0.125, 0.125, 3, 1, 0.25, 0.5], [1, 0.0625, 0.0625, 0.625, 0.5, 2]])
BACKGROUND = np.array([0.5, 0.125, 1, 0.25, 2, 0.75])
WEIGHTS = np.array([0.5, 0.125, 0.375])
ITEM_ODDS = np.array([[0.25, 3.0], [0.5, 2.0], [1.5, 0.125], [1.0, 0.0], [0.125, 4.0], [0.375, 0.375]])
STATE_ODDS = np.array(
    [[0.5, 0.125, 0.375, 0.125, 0.75], [0.125, 0.25, 0.0625, 0.25, 0.125], [2, 0.0625, 0.375, 0.0, 3]]
)


def base(name: str, X: Any, W: Any, **changes: Any) -> Base:
    n = len(X)
    values = {
        "background": BACKGROUND[:n], "odds": ODDS[:, :n], "weights": WEIGHTS, "item_odds": ITEM_ODDS[:n],
        "state_odds": STATE_ODDS,
    } | {key: np.asarray(value, float) for key, value in changes.items()}  # fmt: skip
    return Base(name, np.array(X, float), np.array(W, float), **values)


def cut(name: str, **changes: Any) -> Base:
    """The first six items of an awkward kernel."""
    case = BY_NAME[name]
    return base(name, case.X[:6], case.W, **changes)


def without(values: Array, *items: int) -> Array:
    """The same with zeros for some items."""
    out = np.array(values)
    out[..., items] = 0.0
    return out


def nearly_singular() -> Base:
    """Rows 0 and 1 differ by 2⁻⁸, and so hardly ever come together."""
    X = np.array(BY_NAME["generic"].X[:6, :4])
    # Not nearer: with 2⁻¹², conditioning twice gives a PrecisionWarning.
    X[1] = X[0] + np.array([0, 2.0**-8, 0, 0])
    return base("nearly equal rows", X, np.eye(4) + BY_NAME["generic"].W[:4, :4])


GENERIC = BY_NAME["generic"]
BASES: tuple[Base, ...] = (
    cut("generic"),
    cut("purely skew"),
    cut("zero diagonal", background=without(BACKGROUND, 0, 1, 5)),
    cut("duplicate rows"),
    cut("zero rows", background=without(BACKGROUND, 0), odds=without(ODDS, 0), item_odds=without(ITEM_ODDS.T, 0).T),
    cut("badly scaled rows"),
    cut("far from normal"),
    cut("broken pairs", background=without(BACKGROUND, 0, 1, 2, 3), weights=[0.75, 0.0, 0.25]),
    base("singular L_A", BY_NAME["singular L_A"].X, BY_NAME["singular L_A"].W, background=without(BACKGROUND[:5], 0, 1)),
    base("fewer items than columns", BY_NAME["fewer items than columns"].X, BY_NAME["fewer items than columns"].W),
    base("rank one", [[1.0], [0.5], [-2.0], [0.25], [0.0], [1.0]], [[1.5]]),
    nearly_singular(),
    cut("singular W", odds=ODDS * [[1], [0], [1]], state_odds=STATE_ODDS * [[1], [0], [1]], weights=[0.5, 0.25, 0.25]),
    base(
        "odds far apart", GENERIC.X[:6], GENERIC.W, background=BACKGROUND * 2.0 ** np.array([10, -10, 0, 5, -5, 0]),
        odds=ODDS * 2.0 ** np.array([10, -10, 0, 5, -5, 0]), state_odds=STATE_ODDS * 2.0 ** np.array([5, -5, 0, 2, -2]),
    ),
    base("two items", np.eye(2), [[0.5, 1.0], [-1.0, 0.25]], background=[0.0, 2.0], odds=[[1.0, 0.5], [0.0, 3.0], [2.0, 0.0]]),
    base("one item", [[1.5]], [[1.0]]),
)  # fmt: skip
HARSH: tuple[Base, ...] = (
    base("rows over twelve orders", GENERIC.X[:6] * 2.0 ** np.array([[20], [-20], [0], [8], [-8], [1]]), GENERIC.W),
    base("directions over twelve orders", GENERIC.X[:6] * 2.0 ** np.arange(20, -21, -40 / 6).round(), GENERIC.W),
    base(
        "odds of families over twelve orders", GENERIC.X[:6], GENERIC.W,
        item_odds=ITEM_ODDS * 2.0 ** np.array([[20], [-20], [10], [0], [-10], [15]]),
        state_odds=STATE_ODDS * 2.0 ** np.array([-10, 10, 0, 5, -5]),
    ),
    base("columns without use", GENERIC.X[:6], block_diag(GENERIC.W[:4, :4], np.zeros((3, 3)))),
)  # fmt: skip
"""Bases beyond double precision for some verbs, which may say so instead of an answer."""
KERNELS_ONLY = tuple(
    base(case.name, case.X[:6], case.W) for case in AWKWARD if case.name not in {base.name for base in BASES}
)
ALL_BASES = (*BASES, *KERNELS_ONLY, *HARSH)
HARD_FOR_ONE = ("duplicate rows", "far from normal", "rank one", "nearly equal rows")
"""Bases that are hard for a single kernel. The components of a mixture are the other kinds over them, and are not asked again."""
LAWS = (
    *((kind, base) for kind, base in product(KINDS, BASES) if kind.name != "mixture" or base.name not in HARD_FOR_ONE),
    *product([KIND["kernel"]], KERNELS_ONLY),
)
HARSH_LAWS = tuple(product(KINDS, HARSH))


# ---- changes --------------------------------------------------------------------------------------------------------

Change = tuple[tuple[str, Items], ...]
FACTORS = (4.0, 0.375, 0.0, 1.5)
"""Those of the first, second, … item of a tilt."""
N_CHANGES = 1
"""Changed laws of each kind over each base."""
CHANGES: tuple[Change, ...] = (
    (("condition", (1,)),),
    (("condition", (0, 3)),),
    (("restrict", (0, 2, 3, 5)),),
    (("exclude", (1,)),),
    (("condition", (2,)), ("exclude", (0, 4))),
    (("exclude", (3,)), ("condition", (1, 0))),
    (("restrict", (0, 1, 2, 4)), ("condition", (1,))),
    (("condition", (3,)), ("condition", (1,))),
    (("condition", (4,)), ("restrict", (1, 2, 3))),
    (("exclude", (0,)), ("restrict", (1, 2, 3, 5))),
)
TILTS: tuple[Change, ...] = (
    (("tilt", (1, 0)),),
    (("tilt", (2, 1, 0)), ("condition", (1,))),
    (("condition", (1,)), ("tilt", (0, 2, 3))),
    (("tilt", (0, 3)), ("tilt", (3, 1))),
)
"""Every third law is changed by one of these."""
NONEMPTY: tuple[Change, ...] = (
    (("without_empty", ()),),
    (("without_empty", ()), ("exclude", (4,))),
    (("without_empty", ()), ("tilt", (1, 0))),
    (("without_empty", ()), ("condition", (1,))),
    (("without_empty", ()), ("restrict", (0, 2, 3))),
    (("exclude", (4,)), ("without_empty", ())),
)
"""Laws take these in turn."""


class Entry(NamedTuple):
    """A law of the table, and the truth about it."""

    kind: Kind
    base: Base
    change: Change
    law: Any
    truth: Truth

    def __str__(self) -> str:
        done = " then ".join(f"{verb}{list(items)}" for verb, items in self.change) or "plain"
        return f"{self.kind} over {self.base}, {done}"


@cache
def entries(kind: Kind, base: Base) -> tuple[Entry, ...]:
    """A kind of law over a base: as it is, and after the next few changes that leave a law of this kind.

    Kinds and bases take the changes in turn.
    """
    law, truth = kind.build(base), kind.truth(base)
    plain, row, column = Entry(kind, base, (), law, truth), KINDS.index(kind), ALL_BASES.index(base)
    found = [plain]
    first, choices = row + column, TILTS if (row + 2 * column) % 3 == 0 else CHANGES
    for i in range(len(choices)):
        change = choices[(3 * first + i) % len(choices)]
        entry = changed(plain, change) if fits(change, base.n_items) else None
        found += [] if entry is None else [entry]
        if len(found) > N_CHANGES:
            break
    return tuple(found)


@cache
def nonempty_entries(kind: Kind, base: Base) -> tuple[Entry, ...]:
    """A kind of law over a base without the empty set, after one of the changes; over the first base also as it is."""
    plain, turn = entries(kind, base)[0], KINDS.index(kind) + ALL_BASES.index(base)
    # With an item excluded, laws over broken pairs warn of their precision.
    chosen = [NONEMPTY[0 if base.name == "broken pairs" else turn % len(NONEMPTY)]]
    chosen = [*NONEMPTY[:1], *chosen] if base is BASES[0] else chosen
    found = [changed(plain, change) for change in chosen if fits(change, base.n_items)]
    return tuple(entry for entry in found if entry is not None)


def factors_of(items: Items) -> dict[int, float]:
    return dict(zip(items, FACTORS))


def fits(change: Change, n_items: int) -> bool:
    return all(a < n_items for verb, items in change for a in items)


def changed(entry: Entry, change: Change) -> Entry | None:
    """The entry after a change; None where it has no law of this kind."""
    law, truth = entry.law, entry.truth
    for verb, items in change:
        if verb == "condition" and not (truth.mass(items) > 0 and truth.has_kernel_given(items)):
            return None
        if verb == "without_empty" and not truth.p[1:].any():
            return None
        what = [factors_of(items) if verb == "tilt" else items] if items else []
        law, truth = getattr(law, verb)(*what), getattr(truth, verb)(*what)
        if not truth.left or not truth.weights.any():
            return None
    return entry._replace(change=change, law=law, truth=truth)
