"""Sizes that are rare at every scale of a kernel: drawn as long as their probabilities can be computed, and refused with them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import goodness
import oracles
from kernels import Case, nearly_skew, pair_blocks, uneven_pairs
from ndpp import Baskets, LowRankKernel
from ndpp.errors import ImpossibleSizeError, PrecisionError, PrecisionWarning
from ndpp.laws.precision import REFUSE_ERROR
from ndpp.linalg.size_law import tilt_for, tilted_law
from ndpp.samplers.exact import Exact, node_route
from ndpp.samplers.exact.node_route import bounded

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


def family() -> list[LowRankKernel]:
    """Kernels that are skew but for 1e-13 to 1e-3, and pairs of strengths 1e-7 to 1e7, of odd and even rank."""
    out = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rank = int(rng.integers(3, 7))
        X, strengths = rng.standard_normal((rank + 3, rank)), 10.0 ** rng.uniform(-7, 7, (rank + 1) // 2)
        out += [nearly_skew(10.0 ** rng.uniform(-13, -3), rank + 3, rank, seed).kernel]
        out += [LowRankKernel(X, pair_blocks(strengths)[:rank, :rank] + np.eye(rank) * 10.0 ** rng.uniform(-12, 0))]
    return out


def test_what_has_probabilities_is_drawn():
    """Where probabilities of items come without a warning, draws come; where they are refused, draws are refused."""
    n_rare = 0
    for kernel in family():
        for size in range(1, kernel.rank + 1):
            said, drawn = [], Baskets.from_lists([], n_items=kernel.n_items)
            for ask in (lambda: kernel.inclusion_probabilities(size), lambda: kernel.sample(3, size=size, rng=size)):  # noqa: B023
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    try:
                        drawn = ask()
                        said.append({w.category for w in caught} & {PrecisionWarning})
                    except (PrecisionError, ImpossibleSizeError) as error:
                        said.append(type(error))
            assert said[0] == said[1], (kernel, size)
            if not isinstance(said[0], type):
                assert (drawn.sizes == size).all()
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
