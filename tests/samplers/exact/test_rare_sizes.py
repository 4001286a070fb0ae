"""Sizes that are rare at every scale of a kernel: drawn as long as their probabilities can be computed, and refused with them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import goodness
import oracles
from kernels import Case, nearly_skew, pair_blocks, uneven_pairs
from ndpp import Baskets, LowRankKernel, Mixture
from ndpp.errors import ImpossibleSizeError, PrecisionError, PrecisionWarning
from ndpp.laws.precision import REFUSE_ERROR
from ndpp.linalg.size_law import tilt_for, tilted_law
from ndpp.samplers import backgrounds, proposer, shared
from ndpp.samplers.exact import Exact, node_route
from ndpp.samplers.exact.node_route import bounded
from ndpp.samplers.item_by_item import ItemByItem

RARE = [
    (nearly_skew(1e-6), 3),
    (uneven_pairs(1e4, 1e-4), 4),
    (nearly_skew(1e-6, rank=7), 5),
    (uneven_pairs(1e6, 1e-6), 4),
]


@pytest.mark.parametrize(("case", "size"), RARE[:2], ids=str)
def test_rare_sizes_are_drawn(case: Case, size: int):
    sampler, law = Exact.prepare(case.kernel, size=size), oracles.exact_law(case.X, case.W).of_size(size)
    drawn = [sampler.sample(200, rng=seed).baskets for seed in range(10)]
    goodness.assert_law([basket for baskets in drawn for basket in baskets], law)
    assert drawn[7] == Exact.prepare(case.kernel, size=size).sample(200, rng=7).baskets


@pytest.mark.parametrize(("case", "size"), RARE[:1] + RARE[2:], ids=str)
def test_every_probability_is_within_its_bound(case: Case, size: int, monkeypatch: pytest.MonkeyPatch):
    bounds: list[float] = []

    def noted(*arguments):
        found = bounded(*arguments)
        bounds.append(found.bound)
        return found

    monkeypatch.setattr(node_route, "bounded", noted)
    kernel, law = case.kernel, oracles.exact_law(case.X, case.W)
    nodes, rng, Q = (
        Exact.prepare(kernel, size=size).nodes(size),
        np.random.default_rng(0),
        kernel.q_rows(kernel.support),
    )
    for _ in range(5):
        state = nodes.start()
        while len(state.rows) < size:
            expected = np.array([float(p) for p in law.inclusion(state.rows)[size]])
            expected[state.rows] = 0.0
            found = np.einsum("ia,ab,ib->i", Q, state.inclusion.M, Q)
            np.testing.assert_allclose(found, expected, atol=max([1e-9, *bounds[-1:]]))
            state = nodes.add(state, nodes.target.index.draw(rng, state.inclusion.M))
    assert bounds
    assert max(bounds) < 1e-5


def skew_ties(rank: int = 6, n_items: int = 9, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows and a skew W."""
    rng = np.random.default_rng(seed)
    X, W = rng.standard_normal((n_items, rank)), rng.standard_normal((rank, rank))
    return X, W - W.T


def with_background(X: np.ndarray, W: np.ndarray, odds: np.ndarray) -> LowRankKernel:
    return LowRankKernel(X, W, background=odds)


def with_ties(X: np.ndarray, W: np.ndarray, odds: np.ndarray) -> Mixture:
    return Mixture.tied(odds[None], X / np.sqrt(odds)[:, None], W, [1.0])


def of_size(dense: np.ndarray, size: int) -> np.ndarray:
    """Determinants of all sets of a size, in lexicographic order."""
    return np.array([np.linalg.det(dense[np.ix_(S, S)]) for S in combinations(range(len(dense)), size)])


@pytest.mark.filterwarnings("ignore::ndpp.errors.PrecisionWarning")
@pytest.mark.parametrize("form", [with_background, with_ties])
def test_rare_sizes_of_other_forms_are_drawn(form: Callable, monkeypatch: pytest.MonkeyPatch):
    """A skew matrix and a small diagonal: its sets of three items are much rarer than those of two and of four."""
    monkeypatch.setattr(proposer, "FINER_AFTER", 2)
    monkeypatch.setattr(shared, "MAX_EXPECTED", 20.0)  # of the sets with given items, too
    for level, given in [(1e-6, ()), (1e-3, (8,))]:
        (X, W), odds = skew_ties(), level * np.arange(1.0, 10.0)
        law, dense = form(X, W, odds), X @ W @ X.T + np.diag(odds)
        assert law.size_distribution()[3] < 1e-3
        draws = law.sample(2000, size=3, given=given, rng=1)
        goodness.assert_law(draws, oracles.enumerate_law(dense, 3, given))


def test_rare_sizes_of_several_components(monkeypatch: pytest.MonkeyPatch):
    """Components come as often as sets of this size do in them; a negative control exchanges their probabilities."""
    (X, W), odds = skew_ties(), np.array([np.full(9, 1e-6), np.geomspace(1e-5, 1e-7, 9)])
    law, weights = Mixture.tied(odds, X * 1e3, W, [0.3, 0.7]), []
    for c, w in enumerate(law.weights):
        root = np.sqrt(odds[c])[:, None] * X * 1e3
        dense = np.diag(odds[c]) + root @ W @ root.T
        weights.append(w * of_size(dense, 3) / np.linalg.det(np.eye(9) + dense))
    chances = np.sum(weights, axis=0) / np.sum(weights)
    expected = {S: float(p) for S, p in zip(combinations(range(9), 3), chances)}
    sampler = law.sampler(size=3)
    assert sampler.sample(1, rng=0).baskets.sizes.tolist() == [3]
    cdf, drawers = sampler.drawers.checked(sampler.cdf)
    assert isinstance(drawers, backgrounds.SizedComponents)
    logs = np.log(np.diff(cdf, prepend=0.0))
    goodness.assert_law(replace(sampler, log_weights=logs, drawers=drawers).sample(2000, rng=3).baskets, expected)
    wrong = replace(sampler, log_weights=logs[::-1], drawers=drawers)
    with pytest.raises(AssertionError):
        goodness.assert_law(wrong.sample(2000, rng=3).baskets, expected)


@pytest.mark.filterwarnings("ignore::ndpp.errors.PrecisionWarning")
def test_what_both_rules_reject_is_drawn_item_by_item(monkeypatch: pytest.MonkeyPatch):
    """All strong ties are with the only item with a large background: T and R nearly always meet, and other sizes are more probable."""
    W = np.triu([[0, 100, 100, 90], [0, 0, 1e-3, 1.1e-3], [0, 0, 0, 0.7e-3], [0, 0, 0, 0]])
    law = LowRankKernel(np.eye(4), W - W.T, background=[100, 1e-6, 1e-6, 1e-6])
    assert law.sampler(size=3).expected_proposals > 200
    monkeypatch.setattr(backgrounds, "MAX_EXPECTED", 200)
    sampler = law.sampler(size=3)
    assert isinstance(sampler, ItemByItem)  # which has tests of its own
    assert set(map(tuple, sampler.sample(20, rng=0).baskets.to_lists())) <= {(0, 1, 2), (0, 1, 3), (0, 2, 3)}


def family() -> list[LowRankKernel | Mixture]:
    """Kernels that are skew but for 1e-13 to 1e-3, and pairs of strengths 1e-7 to 1e7, of odd and even rank; a skew W and a background."""
    out = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rank = int(rng.integers(3, 7))
        X, strengths = rng.standard_normal((rank + 3, rank)), 10.0 ** rng.uniform(-7, 7, (rank + 1) // 2)
        out += [nearly_skew(10.0 ** rng.uniform(-13, -3), rank + 3, rank, seed).kernel]
        out += [LowRankKernel(X, pair_blocks(strengths)[:rank, :rank] + np.eye(rank) * 10.0 ** rng.uniform(-12, 0))]
        odds = 10.0 ** rng.uniform(-8, -1) * rng.uniform(0.3, 1.0, rank + 3)
        out += [form(*skew_ties(rank, rank + 3, seed), odds) for form in (with_background, with_ties)]
    return out


def test_what_has_probabilities_is_drawn(monkeypatch: pytest.MonkeyPatch):
    """Where probabilities of items come, draws come. Without a background, both come with a warning, or neither comes."""
    monkeypatch.setattr(proposer, "FINER_AFTER", 2)
    n_rare = 0
    for kernel in family():
        for size in range(1, kernel.n_items - 2):  # n − 3 is the rank
            said, drawn = [], Baskets.from_lists([], n_items=kernel.n_items)
            for ask in (lambda: kernel.inclusion_probabilities(size), lambda: kernel.sample(3, size=size, rng=size)):  # noqa: B023
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    try:
                        drawn = ask()
                        said.append({w.category for w in caught} & {PrecisionWarning})
                    except (PrecisionError, ImpossibleSizeError) as error:
                        said.append(type(error))
            is_plain = isinstance(kernel, LowRankKernel) and kernel.background is None
            if is_plain:
                assert said[0] == said[1], (kernel, size)
            if not isinstance(said[0], type):
                assert (drawn.sizes == size).all()
                if is_plain:
                    coords = kernel.coordinates
                    n_rare += tilted_law(coords, tilt_for(coords, size)).law[size] < 1e-5
    assert n_rare > 10


def test_sizes_beyond_double_precision_are_refused():
    """By the size, before a draw; and by the items so far, within one."""
    kernel = nearly_skew(2e-12, 8, 5).kernel
    with pytest.raises(PrecisionError, match=r"double precision.*rescaling X does not help"):
        kernel.sample(1, size=3, rng=0)
    nodes = Exact.prepare(nearly_skew(1e-6).kernel, size=3).nodes(3)
    lost = nodes.start().inclusion._replace(fraction=1e-13)
    found = bounded(nodes.target.ladder.coords, np.empty((0, 6)), 0, lost, 3)
    assert not found.is_drawn_from(REFUSE_ERROR)
    assert "no more than about 1e-13 have size 3, however X is scaled" in str(found.refusal(3, 0))
    assert "that contain the 2 items so far" in str(found.refusal(3, 2))


def test_monitors_beyond_the_bound_are_not_drawn_from():
    """An M that breaks what holds for every M by more than rounding explains."""
    nodes = Exact.prepare(nearly_skew(1e-6).kernel, size=3).nodes(3)
    state, coords = nodes.start(), nodes.target.ladder.coords
    nothing = np.empty((0, 6))
    assert bounded(coords, nothing, state.rung, state.inclusion, 3).is_drawn_from(REFUSE_ERROR)
    for M in (state.inclusion.M - 1e-3 * np.eye(6), np.full((6, 6), np.nan)):
        wrong = state.inclusion._replace(M=M, trace=float(np.trace(M)))
        assert not bounded(coords, nothing, state.rung, wrong, 3).is_drawn_from(REFUSE_ERROR)
    q = nodes.target.kernel.q_rows(np.array([0]))
    assert not bounded(coords, q, state.rung, state.inclusion, 3).is_drawn_from(REFUSE_ERROR)
