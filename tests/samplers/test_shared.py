"""Components that are prepared once and drawn from whatever is given, against enumeration and against components prepared anew."""

from __future__ import annotations

import dataclasses
import pickle
from functools import reduce

import numpy as np
import pytest

import goodness
from families import CASES, law_of, mixed
from mixtures import dense, enumerate_mixture, tied
from ndpp import Baskets, Mixture
from ndpp.linalg.schur import condition_inner_with_background
from ndpp.samplers import shared
from ndpp.samplers.clock import Clock
from ndpp.samplers.components import Counts, Union
from ndpp.samplers.exact.eigenclock import EigenClock, remaining
from ndpp.samplers.exact.rows import LEFT, apply
from ndpp.samplers.shared import TiedParts
from ndpp.samplers.unions import independent_sizes

MEMORY = 2**26


def parts_of(law: Mixture) -> TiedParts:
    return TiedParts(law, law.memory.within(MEMORY))


def random_mixture(n: int = 40, d: int = 6, n_components: int = 5, seed: int = 0) -> Mixture:
    rng = np.random.default_rng(seed)
    skew = rng.normal(size=(d, d))
    odds = np.exp(rng.normal(-2.5, 1.5, (n_components, n)))
    return Mixture.tied(
        odds, rng.normal(size=(n, d)) / 2, np.eye(d) + skew - skew.T, rng.dirichlet(np.ones(n_components))
    )


@pytest.mark.parametrize("ties", ["generic", "purely skew", "symmetric"])
@pytest.mark.parametrize("given", [(1,), (4, 0, 2)], ids=str)
def test_the_rates_are_those_of_the_conditional(ties: str, given: tuple[int, ...]):
    """R'(s), by both clocks, is the resolvent of B' = B − B q̃ᵀ(δ + q̃ B q̃ᵀ)⁻¹ q̃ B."""
    mixture = tied("several", ties)
    kernel, rows = mixture.single(0), np.array(given)
    union = Union.prepare(mixture, 0, MEMORY)
    low_rank = union.clock.index.kernel
    B, scale = low_rank.coordinates.B, low_rank.coordinates.scale
    q = low_rank.q_rows(rows) * np.sqrt((1 + kernel.odds[rows]) / kernel.odds[rows])[:, None]
    conditional = condition_inner_with_background(B, q, scale**2)[0]
    begun = union.given(rows)
    plain = dataclasses.replace(
        Clock.prepare(low_rank, index=union.clock.index), given=rows, alone=begun.clock.alone
    )  # fmt: skip
    for x in (0.0, 0.4, 3.0):
        sB = np.exp(-x) * conditional
        expected = sB @ np.linalg.inv(np.eye(len(B)) + sB)
        assert np.allclose(plain._remaining(x, rows[:0]), expected, atol=1e-10)
    assert isinstance(begun.clock, EigenClock)
    mean = np.trace(conditional @ np.linalg.inv(np.eye(len(B)) + conditional))
    assert begun.clock.suits(np.array([1 - mean / 10] + [0] * 9 + [mean / 10]))


def log_contained(union: Union, J: np.ndarray) -> float:
    """Return log P(J ⊆ S) = log det(p + (1 − p)^½ q R qᵀ (1 − p)^½)_J."""
    eigen, p = union.clock.eigen, union.alone.odds[J] / (1 + union.alone.odds[J])
    left, right = eigen.sides(J)
    f, applied = remaining(0.0, *eigen[:2], left[:0], right[:0], np.empty(0))[0], np.empty_like(left)
    for i, side in enumerate(left):
        apply(f, len(eigen.values), LEFT, side, applied[i])
    return np.linalg.slogdet(np.diag(p) + (applied @ right.T) * np.sqrt(np.outer(1 - p, 1 - p)))[1]


def test_a_component_given_hundreds_of_baskets_is_that_prepared_anew():
    """Its weight of all sets that contain a basket follows from what was prepared once."""
    law, rng = random_mixture(), np.random.default_rng(1)
    store, kernels = parts_of(law), [law.single(c) for c in range(len(law.weights))]
    for _ in range(400):
        J, c = rng.choice(law.n_items, rng.integers(0, 6), replace=False), int(rng.integers(len(kernels)))
        found = log_contained(store.union(c, 0), J) + kernels[c].log_normalizer()
        assert found == pytest.approx(kernels[c].log_mass(J), abs=1e-9)
    assert all((c, 0) in store.memory for c in range(len(kernels)))


@pytest.mark.parametrize(
    ("size", "common", "given"),
    [(None, 0.0, (0, 4)), (2, 0.0, (3,)), (2, 1e9, ()), (4, 0.0, (0, 4)), (4, 1e9, (3,))],
)
@pytest.mark.parametrize("kind", ["items", "families"])
def test_one_mixture_completes_every_basket(
    size: int | None, common: float, given: tuple[int, ...], kind: str, monkeypatch: pytest.MonkeyPatch
):
    """Never tilted, and always; sets of any size never are."""
    monkeypatch.setattr(shared, "MIN_SIZE_ACCEPTANCE", common)

    def fits(S: tuple[int, ...]) -> bool:
        return set(given) <= set(S) and size in (None, len(S))

    law = tied("several", "generic") if kind == "items" else law_of("several")
    expected = enumerate_mixture(*dense("several", "generic"), fits) if kind == "items" else mixed("several", fits)
    law.sample(20, given=[1], rng=0)  # prepares components, for another basket
    goodness.assert_law(
        law.sample(600 if size is None or kind == "items" else 400, size=size, given=given, rng=4), expected
    )


def test_control_given_items_come_by_themselves(monkeypatch: pytest.MonkeyPatch):
    """If they came with T alone, T would follow another law; and if T may have them again, so would the rest."""
    law, given = tied("several", "generic"), (0, 4)
    expected = enumerate_mixture(*dense("several", "generic"), lambda S: set(given) <= set(S))
    conditioned = Union.given

    def together(self: Union, rows: np.ndarray) -> Union:
        found = conditioned(self, rows)
        return found._replace(clock=dataclasses.replace(found.clock, alone=np.zeros(len(rows))))

    monkeypatch.setattr(Union, "given", together)
    with pytest.raises(AssertionError):
        goodness.assert_law(law.sample(2000, given=given, rng=4), expected)


def chance(counts: Counts, count: int, removed: np.ndarray) -> float:
    return counts.untilted(counts.tilted_chance(count, removed), count, removed)


def test_the_number_of_items_by_themselves():
    """Whatever ρ they are drawn with."""
    rng = np.random.default_rng(0)
    for odds in (
        np.exp(rng.normal(-4, 1.5, 500)),
        np.exp(rng.normal(0, 2, 30)),
        np.array([0.0, 1.0, 3.0]),
        np.ones(300),
    ):
        for log_rho in (0.0, -0.5, 1.0):
            counts, rest = Counts.of_items(odds, log_rho, 1024), odds.copy()
            for removed in ([], [2], [0, 2]):
                rest[removed] = 0.0
                sizes = reduce(np.convolve, np.stack([1 / (1 + rest), rest / (1 + rest)], axis=1))
                typical = np.flatnonzero(independent_sizes(rest * np.exp(log_rho)) > 1e-3)
                found = [chance(counts, int(k), np.array(removed, np.int64)) for k in typical]
                assert np.allclose(found, sizes[typical], rtol=1e-9, atol=0)


def counts_of_families(law, c: int, removed: np.ndarray) -> np.ndarray:
    """P(|R| = m) from the elementary symmetric polynomials of each state."""
    out, patterns = np.ones(1), law.patterns
    for family in np.delete(np.arange(patterns.n_families), removed):
        weights = np.zeros(law.n_items + 1)
        for k, slot in enumerate(patterns.slots[family]):
            if slot < len(patterns.states):
                own = np.ones(1)
                for r in patterns.odds[patterns.families == family, k]:
                    own = np.convolve(own, [1.0, r])
                weights[: len(own)] += law.odds[c, slot] * own
        weights[0] = 1.0
        out = np.convolve(out, weights / weights.sum())
    return out


@pytest.mark.parametrize("name", CASES)
def test_the_number_of_items_of_families(name: str):
    law = law_of(name)
    store = parts_of(law)
    for c in range(len(law.weights)):
        for removed in (np.arange(0), np.array([0]), np.arange(1, law.patterns.n_families)[:2]):
            expected = np.append(counts_of_families(law, c, removed), np.zeros(5))
            found = [chance(store.counts(c, 0, m, removed), m, removed) for m in range(5)]
            assert np.allclose(found, expected[:5], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("kind", ["items", "families"])
def test_chances_of_numbers_stay_below_their_bounds(kind: str):
    """Whatever rows are taken out of R, the most probable ones in particular, of components as they are and of tilted ones."""
    law = random_mixture(n=30) if kind == "items" else law_of("several")
    store, rng = parts_of(law), np.random.default_rng(3)
    for left in (1, 2, 4):
        tilted = store.tilted(left)
        of_tied = [
            (t, 0 * tilted.rungs, store.bounds(left, 1), left - t) for t in range(left + 1)
        ]  # T has t items at least
        for t, rungs, bounds, most in (*of_tied, (left, tilted.rungs, tilted.bounds(left + 1), left)):
            for c in range(len(law.weights)):
                rung = int(rungs[c])
                odds = store.union(c, rung).alone.odds
                n_out = min(t + 1, len(odds))
                removed = [np.argsort(-odds)[:n_out], *(rng.choice(len(odds), n_out, replace=False) for _ in range(5))]
                for rows in removed:
                    chances = [chance(store.counts(c, rung, m, rows), m, rows) for m in range(most + 1)]
                    assert max(chances) <= bounds[c] * (1 + 1e-12)
    assert (store.bounds(shared.MOST_REMOVED, 1) == 1).all()


def test_control_a_bound_that_is_none(monkeypatch: pytest.MonkeyPatch):
    """Chances above the bound are cut, and the law is another."""
    law = tied("several", "generic")
    expected = enumerate_mixture(*dense("several", "generic"), lambda S: len(S) == 3)
    monkeypatch.setattr(TiedParts, "bounds", lambda self, left, n_given: np.full(len(law.weights), 0.01))
    law.memory.within(0)  # what is kept has the right ones
    with pytest.raises(AssertionError):
        goodness.assert_law(law.sample(2000, size=3, rng=5), expected)
    law.memory.within(0)


def test_memory_stays_within_its_bound():
    """A hundred baskets, of many sizes, with room for a few components: the least recently used ones go."""
    law = random_mixture(n_components=12)
    one = parts_of(law).union(0, 0).n_bytes
    rng, memory = np.random.default_rng(2), 4 * one
    for i in range(100):
        size = None if i % 3 else int(rng.integers(3, 9))
        law.sample(1, given=rng.choice(law.n_items, 2, replace=False), size=size, rng=i, memory=memory)
        assert law.memory.n_bytes <= memory
    assert len(law.memory) >= 1


@pytest.mark.parametrize("name", CASES)
def test_the_largest_set_beside_given_items(name: str):
    """Without conditioning a whole mixture of families."""
    law = law_of(name)
    for J in ([0], [1, 2], [0, 3, 5]):
        possible = np.isfinite(law._log_contained(np.array(J)))
        assert (law.largest_given(np.array(J)) == law._given(np.array(J)).largest)[possible].all()


def test_extreme_sizes_are_tilted():
    """Sizes that no component has by itself are proposed from tilted ones, at a stated cost."""
    law = random_mixture()
    for size in (1, 15, 30, 40):
        draws = law.sampler(size=size).sample(10, rng=0)
        assert (draws.baskets.sizes == size).all()
        assert draws.info["proposals"].mean() < 60


@pytest.mark.parametrize("size", [None, 3])
def test_sets_with_items_that_are_excluded_are_rejected(size: int | None):
    """Few of them: nothing is prepared anew. Many: the mixture without them is."""
    law = tied("several", "generic")
    rare = int(np.argmin(law.inclusion_probabilities()))
    given = int(np.argmax(law.inclusion_probabilities()))
    sampler = law.sampler(size=size, given=[given], exclude=[rare])
    assert np.flatnonzero(sampler.limits.values[0]).tolist() == [rare]
    assert sampler.drawers.parts.memory is law.memory

    def keeps(S: tuple[int, ...]) -> bool:
        return given in S and rare not in S and size in (None, len(S))

    expected = enumerate_mixture(*dense("several", "generic"), keeps)
    goodness.assert_law(sampler.sample(600, rng=3).baskets, expected)
    with pytest.raises(AssertionError):
        goodness.assert_law(law.sample(600, size=size, given=[given], rng=3), expected)
    others = [item for item in range(law.n_items) if item not in (given, rare)]
    assert law.sampler(given=[given], exclude=others).left is None


@pytest.mark.parametrize("kind", ["items", "families"])
def test_items_of_many_baskets_are_prepared_together(kind: str):
    """They are those that each basket would prepare by itself."""
    law = random_mixture() if kind == "items" else law_of("several")
    lists = [[i % law.n_items, (i + 3) % law.n_items] for i in range(0, 30, 2)]
    shared.prepare_given(law, Baskets.from_lists(lists, n_items=law.n_items), MEMORY)
    together = parts_of(law).rows._kept
    law.memory.within(0)
    for basket in lists:
        shared.begin(parts_of(law), np.array(sorted(set(basket))), None)
    apart = parts_of(law).rows._kept
    assert set(together) == set(apart)
    assert all(np.allclose(together[row], apart[row], rtol=0, atol=1e-12) for row in apart)


def test_numbers_of_further_items_share_their_tilts():
    """Those that differ by less than a deviation do; a drawer that has been to another process finds them again."""
    store = parts_of(law := random_mixture())
    assert store.aim(4) == store.aim(8) != store.aim(9)
    assert store.tilted(store.aim(4)) is store.tilted(store.aim(8))
    sampler = law.sampler(size=30, given=[1], memory=MEMORY)
    assert sampler.drawers.rungs.any()
    copied = pickle.loads(pickle.dumps(sampler))
    assert copied.sample(5, rng=0).baskets.to_lists() == sampler.sample(5, rng=0).baskets.to_lists()


def test_components_that_were_prepared_for_a_number_of_items_draw_the_same_sets():
    law, other = random_mixture(), random_mixture()
    shared.prepare_components(law, MEMORY, 29)
    store = parts_of(law)
    rungs = store.rungs(store.aim(29))
    assert rungs.any()
    assert all((c, float(rung)) in store.memory for c, rung in enumerate(rungs))
    drawn = [one.sampler(size=30, given=[1], memory=MEMORY).sample(5, rng=0).baskets.to_lists() for one in (law, other)]
    assert drawn[0] == drawn[1]
