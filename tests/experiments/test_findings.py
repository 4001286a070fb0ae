"""What experiments conclude: running R-hat, gaps and arrivals, gains, and bounds that can fail."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from ndpp import Baskets
from ndpp.datasets import make_kernel
from ndpp.diagnostics import psrf
from ndpp.linalg.skew import dominating
from ndpp.samplers import Exact
from ndpp_experiments import fig1, fig2, map_init, theorem4
from ndpp_experiments import psrf as mixing
from ndpp_experiments.chains import log_det_gap, noise_of_gap
from ndpp_experiments.claims import Claim
from ndpp_experiments.samplers_timed import SamplerTime, times_exact


def test_running_psrf_is_psrf_of_every_beginning():
    values = np.random.default_rng(0).standard_normal((5, 30)).cumsum(axis=1) + 1e3
    running = mixing.running_psrf(values)
    assert len(running) == 29
    np.testing.assert_allclose(running, [psrf(values[:, :t]) for t in range(2, 31)], rtol=1e-9)


def test_the_factor_is_the_textbooks():
    values = np.random.default_rng(0).standard_normal((6, 40)) + np.arange(6)[:, None] / 5
    C, N = values.shape
    within, between = values.var(axis=1, ddof=1).mean(), values.mean(axis=1).var(ddof=1)
    brooks = (C + 1) / C * ((N - 1) / N * within + between) / within - (N - 1) / (C * N)
    assert mixing.factor(mixing.running_psrf(values), C)[-1] == pytest.approx(brooks)


def test_mixing_time_is_where_it_stays_below():
    assert mixing.mixing_time(np.array([1.0, 1.0])) == 1
    assert mixing.mixing_time(np.array([1.0, 1.2, 1.0])) == 3
    assert mixing.mixing_time(np.array([1.0, 1.2])) is None
    assert mixing.mixing_time(np.array([np.nan, 1.0])) == 2


def test_a_gap_is_in_standard_deviations_of_exact_draws():
    kernel, sets = make_kernel(9, 4, rng=0), Baskets.from_lists([[0, 1], [2, 3], [4, 5]], n_items=9)
    mean = np.mean([kernel.log_det(items) for items in sets])
    exact = mean + np.array([1.0, 5.0, 3.0])  # three above, with a deviation of two
    assert log_det_gap(kernel, sets, exact) == pytest.approx(1.5)
    draws = np.random.default_rng(0).standard_normal((20_000, 30))
    gaps = np.abs(draws[:, :10].mean(axis=1) - draws[:, 10:].mean(axis=1))
    assert np.mean(gaps > noise_of_gap(10, 20)) == pytest.approx(0.05, abs=0.01)


def test_a_walk_has_arrived_where_it_stays_within_twice_the_noise():
    def arrived(*gaps):
        return map_init.arrival([map_init.Gap("", 2, "", 3 * i, gap, 0.1, 1) for i, gap in enumerate(gaps)])

    assert arrived(0.9, 0.19, 0.5, 0.19, 0.01) == 9
    assert arrived(0.1, 0.1) == 0
    assert arrived(0.1, 0.5) is None


def test_exact_is_compared_with_the_papers_walk_on_the_same_task():
    times = [
        SamplerTime("a", "b", 9, 4, task, None, sampler, seconds)
        for task, sampler, seconds in (
            ("k = 5", "Exact", 9.0),
            ("k = 10", "Exact", 0.1),
            ("k = 10", "Walk(RejectionUp)", 3.0),
        )
    ]
    assert times_exact(times, times[-1]) == pytest.approx(30)


def test_a_sampler_of_another_distribution_does_not_hold():
    law, sampler = np.full(4, 0.25), Exact.prepare(make_kernel(4, 2, rng=0))
    runs = [
        fig1.PlannedDraws("Walker", sampler, 1000),
        fig1.PlannedDraws("Exact", sampler, 1000, is_walk=True),
    ]  # names decide nothing
    task = fig1.Column("task", "file", np.arange(4), law, [], runs)
    for off, holds in (([0.0, 0.0], True), ([0.3, 0.0], False), ([0.0, 0.3], False)):
        records = [
            fig1.DistanceRecord("task", run.label, 1000, distance.name, value + 0.01)
            for run in runs
            for distance, value in zip(fig1.DISTANCES, off)
        ]
        assert [finding.holds for finding in fig1._findings(task, records, 0)] == [holds, None]


POINT = fig2.Point(
    n=10, prepare_kernel=1.0, prepare_exact=1.0, prepare_tree=1.0, prepare_papers_tree=1.0, leaf=9, papers_leaf=1, k=10, exact=1.0,
    direct_walk=1.0, direct_step=1.0, rejection_walk=1.0, rejection_step=1.0, papers_walk=1.0, papers_step=1.0, proposals=1.0,
    proposals_error=0.1, proposals_expected=1.0, steps=9,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({}, []),
        (
            {"prepare_kernel": 1e6},
            ["preparation, coordinates"],
        ),
        ({"prepare_exact": 1e6}, ["preparation of `Exact`"]),
        ({"prepare_tree": 1e6}, ["preparation with the tree"]),
        ({"prepare_papers_tree": 1e6}, ["preparation with the paper's leaves", "the same, three largest n"]),
        ({"exact": 3.0}, ["`Exact`, one sample"]),
        ({"rejection_walk": 3.0}, ["`Walk(RejectionUp)`, one sample"]),
        ({"papers_walk": 3.0}, ["the same with the paper's leaves"]),
        ({"papers_step": 2.5}, ["a step of the paper's walk"]),
        ({"proposals": 1.5}, ["proposals per step"]),
        (
            {"power": 0.9},
            ["slope of `Walk(RejectionUp)` against k", "slope of `Walk(RejectionUp), the paper's leaves` against k"],
        ),
    ],
    ids=lambda value: next(iter(value), "nothing") if isinstance(value, dict) else "",
)
def test_bounds_of_figure_2_can_fail(change, failed):
    power = change.pop("power", 2.0)
    points = [POINT._replace(n=n, k=n) for n in (10, 100, 1000)]
    points[-1] = points[-1]._replace(**change)
    by_k = [POINT._replace(k=k, rejection_walk=k**power, papers_walk=k**power) for k in (10, 100, 1000)]
    found = [finding.what for finding in fig2._findings(points, by_k) if finding.holds is False]
    assert len(found) == len(failed)
    assert all(what in text for what, text in zip(failed, found))


def test_proposals_of_theorem_4_are_those_of_all_pairs():
    kernel = make_kernel(9, 6, rng=0)
    X, W = np.asarray(kernel.X), kernel.W
    for kept in ([], [4], [0, 7]):
        W_A = W - W @ X[kept].T @ np.linalg.inv(X[kept] @ W @ X[kept].T) @ X[kept] @ W
        others = [pair for pair in combinations(range(9), 2) if not set(pair) & set(kept)]
        minors = [[np.linalg.det(X[[*pair]] @ M @ X[[*pair]].T) for pair in others] for M in (dominating(W_A), W_A)]
        expected = sum(minors[0]) / sum(minors[1])
        assert theorem4.in_the_papers_coordinates(X, W, np.array(kept, np.int64)) == pytest.approx(expected)


def test_bounds_of_theorem_4_can_fail():
    one = theorem4.Proposals(
        10, 4, 4, 9, papers=3.0, papers_most=4.0, orthonormal=3.0, bound=9.0, bound_least=8.0, least_slack=2.0
    )
    assert theorem4._bounded("", [one, one]).holds
    assert theorem4._bounded("", [one, one._replace(least_slack=0.99)]).holds is False
    assert theorem4._growth("n", [10, 100], [one, one], Claim.NO_N).holds
    assert theorem4._growth("n", [10, 100], [one, one._replace(papers=6.0)], Claim.NO_N).holds is False
