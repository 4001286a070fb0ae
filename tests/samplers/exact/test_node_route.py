"""Items by node matrices: errors, states that samples share, and nodes that are retired."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from circles import plain_condition
from kernels import BY_NAME
from ndpp import LowRankKernel
from ndpp.errors import BudgetExceededError, PrecisionError, ZeroProbabilityError
from ndpp.samplers.base import stream, stream_key
from ndpp.samplers.exact import Exact
from ndpp.samplers.exact import sampler as exact
from ndpp.samplers.exact.node_route import NodesRoute
from ndpp.samplers.exact.nodes import RETIRED, Nodes


@pytest.fixture(autouse=True)
def by_node_matrices(monkeypatch: pytest.MonkeyPatch):
    """Kernels with eigencoordinates need none (``test_eigenchain.py``)."""
    monkeypatch.setattr(exact, "ROUTES", (NodesRoute,))


def test_what_is_wrong_is_reported():
    """A matrix that is no inclusion matrix, one without weight, and a budget that is too small."""
    case = BY_NAME["generic"]
    sampler, rng = Exact.prepare(case.kernel, size=3), np.random.default_rng(0)
    nodes = sampler.nodes(3)
    state, eye = nodes.start(), np.eye(case.kernel.rank)
    for M, message in ((3 * eye, r"outside \[0, 1\]"), (np.nan * eye, "NaN"), (0 * eye, "positive weight")):
        wrong = state._replace(inclusion=state.inclusion._replace(M=M))
        with pytest.raises((PrecisionError, ZeroProbabilityError), match=message):
            nodes.complete(rng, wrong)
    single = Exact.prepare(case.kernel, size=1)
    single.ladder.parts.table = replace(single.index, budget=1)
    with pytest.raises(BudgetExceededError, match="1 items were proposed by their leverage and rejected") as caught:
        single.sample(200, rng=0)
    assert caught.value.count == 1


def test_shared_states_are_left_alone():
    """Several samples begin with one state; ``ndpp serve`` relies on it."""
    sampler = Exact.prepare(BY_NAME["generic"].kernel, size=4)
    nodes = sampler.nodes(4)
    state = nodes.start()
    before = state.nodes.Z.copy(), state.nodes.log_w.copy(), state.inclusion.M.copy()
    first = nodes.complete(stream(stream_key(0), 3), state)[0].rows
    np.testing.assert_array_equal(nodes.complete(stream(stream_key(0), 3), state)[0].rows, first)
    for old, new in zip(before, (state.nodes.Z, state.nodes.log_w, state.inclusion.M)):
        np.testing.assert_array_equal(old, new)


def test_retired_nodes_leave_the_probabilities_as_they_are():
    """Along a sample, beside nodes that are all updated."""
    size, rng = 50, np.random.default_rng(3)
    A = rng.standard_normal((100, 100)) / 100
    sampler = Exact.prepare(LowRankKernel(rng.standard_normal((150, 100)), np.eye(100) + A - A.T), size=size)
    state = sampler.nodes(size).start()
    nodes, every = Nodes(state.nodes.Z.copy(), state.nodes.log_w), state.nodes
    M, retired = state.inclusion.M, 0
    for left in range(size - 1, size - 9, -1):
        q = sampler.kernel.q_rows(np.array([sampler.index.draw(rng, M)]))[0]
        nodes, inclusion = nodes.condition(q, keep=True)
        every, expected = plain_condition(every, q)
        M = inclusion.M
        np.testing.assert_allclose(M, expected.M, atol=1e-10)
        assert abs(inclusion.trace - left) < 1e-8
        retired = int((nodes.log_w.real == RETIRED).sum())
    assert 0 < retired < len(nodes.log_w)


def test_a_node_is_retired_only_where_its_neighbours_weigh_nothing():
    rng = np.random.default_rng(4)
    Z, q = rng.standard_normal((2, 5, 6, 6)), rng.standard_normal(6)

    def conditioned(*log_w: float):
        return Nodes(Z.copy(), np.array(log_w, complex)).condition(q, keep=True)

    nodes, inclusion = conditioned(0, -30, -60, -60, -60)
    np.testing.assert_array_equal(nodes.log_w.real == RETIRED, [False, False, True, True, True])
    np.testing.assert_array_equal(nodes.Z[:, 2:], Z[:, 2:])
    assert inclusion.fraction != 0
    np.testing.assert_array_equal(conditioned(0, -60, 0, -20, -60)[0].log_w.real == RETIRED, False)
    # A neighbour that has gained weight: the nodes retired cannot be trusted any more.
    assert conditioned(0, -20, RETIRED, RETIRED, RETIRED)[1].fraction == 0
    assert conditioned(0, -30, RETIRED, RETIRED, RETIRED)[1].fraction != 0
