"""The plan of a circle: the law it goes by is the right one, and the circle is as good as planned."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import AWKWARD, Case, random_ndpp
from ndpp.datasets import make_kernel
from ndpp.linalg.size_law import nodes, resolvent, tilt_for, tilted_law
from ndpp.samplers import Exact
from ndpp.samplers.exact import node_route
from ndpp.samplers.exact import plan as planning
from ndpp.samplers.exact import sampler as exact
from ndpp.samplers.exact.node_route import NodesRoute
from ndpp.samplers.exact.nodes import Nodes
from ndpp.samplers.exact.plan import NODE_COUNTS, RUNG_STEP


def circle(case: Case, radius: float, count: int, size: int) -> Nodes:
    t = nodes(radius, count)
    R, log_det = resolvent(case.kernel.coordinates, t)
    return Nodes(np.stack([R.real, R.imag]), log_det - size * np.log(t))


@pytest.mark.parametrize("case", [case for case in AWKWARD if case.kernel.rank > 1], ids=str)
def test_weights_give_the_law_of_the_number_still_to_come(case: Case):
    rank, radius = case.kernel.rank, 1 / float(np.median(case.kernel.coordinates.scale)) ** 2
    left = rank // 2
    expected = tilted_law(case.kernel.coordinates, radius).law
    log_w = circle(case, radius, 2 * (rank // 2 + 1), left).log_w
    law = planning.remaining_size_law(log_w, left)
    np.testing.assert_allclose(law[: rank + 1], expected, atol=1e-9)
    assert np.all(np.abs(law[rank + 1 :]) < 1e-9)
    mistaken = planning.remaining_size_law(log_w, left - 1)
    assert np.abs(mistaken[: rank + 1] - expected).max() > 1e-3


@pytest.mark.parametrize("known_from", ["weights", "law"])
@pytest.mark.parametrize("left", [4, 12, 20])
def test_a_planned_circle_is_as_good_as_planned_and_one_with_half_the_nodes_is_not(left: int, known_from: str):
    case = Case("random", *random_ndpp(80, 40, np.random.default_rng(left), spread=1.0))
    radius = 2 * tilt_for(case.kernel.coordinates, left)  # where more items than that are expected
    noise, law = planning.LEAST, tilted_law(case.kernel.coordinates, radius).law
    if known_from == "weights":
        noise, law = planning.NOISE, planning.remaining_size_law(circle(case, radius, 42, left).log_w, left)
    steps, count = planning.plan_steps(law, left, noise, planning.PLANNED)
    assert count in NODE_COUNTS
    assert steps % 2 == 0
    planned, half = (
        circle(case, radius * np.exp(steps * RUNG_STEP), n, left).inclusion() for n in (count, count // 4 * 2)
    )
    assert abs(planned.trace - left) < 1e-9
    assert planned.fraction > 1e-4
    assert abs(half.trace - left) > 1e-7


def test_weights_or_laws_of_no_use_give_no_plan():
    assert planning.plan_steps(np.array([0.5, 0.0, 0.5]), 1, planning.LEAST, planning.PLANNED)[1] == 0
    for log_w, left in ((np.empty(0, complex), 3), (np.array([-np.inf, 0.0], complex), 1), (np.zeros(4, complex), 8)):
        law = planning.remaining_size_law(log_w, left)
        assert planning.plan_steps(law, left, planning.NOISE, planning.PLANNED)[1] == 0


def test_draws_do_not_depend_on_the_circles(monkeypatch: pytest.MonkeyPatch):
    """Other circles round otherwise, in the last digits of tr M too: no draw may hang on those."""
    monkeypatch.setattr(exact, "ROUTES", (NodesRoute,))
    kernel = make_kernel(500, 40, rng=0)
    planned = Exact.prepare(kernel, size=11)
    drawn = planned.sample(100, rng=0).baskets
    for module in (planning, node_route):
        monkeypatch.setattr(module, "PLANNED", planning.Targets(1e-15, 1e-2))
    others = Exact.prepare(kernel, size=11)
    assert others.sample(100, rng=0).baskets == drawn
    assert len(others.nodes(11).start().nodes.log_w) != len(planned.nodes(11).start().nodes.log_w)
