"""Samples of one size in eigencoordinates: the algebra and the draws of node matrices, the laws, and what follows a failure."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest

import goodness
import oracles
from circles import plain_condition
from kernels import AWKWARD, BY_NAME, Case, eighths, learned, skew
from ndpp import LowRankKernel
from ndpp._memory import Memory
from ndpp._validation import frozen
from ndpp.errors import BudgetExceededError
from ndpp.linalg.size_law import resolvent
from ndpp.rows.scaled import Multiplied
from ndpp.samplers import Exact
from ndpp.samplers.exact import eigenchain, eigenring
from ndpp.samplers.exact import sampler as exact
from ndpp.samplers.exact.eigenchain import EigenChain
from ndpp.samplers.exact.eigenring import RUNG_STEP, TARGETS, RingRequest, Tolerances
from ndpp.samplers.exact.node_route import NodesRoute
from ndpp.samplers.exact.nodes import RETIRED, Nodes
from ndpp.samplers.exact.routes import CircleReport, Ladder, Unfinished
from ndpp.samplers.exact.rows import Sides

DRAWS = 1_000
RNG = np.random.default_rng(40)
GENERIC = Case("generic", eighths(RNG, 8, 5), np.eye(5) + skew(eighths(RNG, 5, 5)))
SKEW = Case("skew", eighths(RNG, 8, 4), skew(eighths(RNG, 4, 4)))
DEFECTIVE = Case("defective", np.eye(3), np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))


def wide(n: int = 60, rank: int = 24, seed: int = 0) -> Case:
    """A kernel with real and complex eigenvalues."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((rank, rank))
    A[:6] = A[:, :6] = 0.0
    return Case("wide", rng.standard_normal((n, rank)), np.diag(np.linspace(0.2, 3.0, rank)) + 0.3 * (A - A.T))


def chain_of(case: Case, size: int, given=()) -> tuple[Exact, EigenChain]:
    sampler = Exact.prepare(case.kernel, size=size, given=given)
    chain = ring_of(sampler)
    assert chain is not None
    return sampler, chain


def ring_of(sampler: Exact) -> EigenChain | None:
    """The route of a sampler, if it is a ring."""
    route = sampler.route_for(sampler.size - len(sampler.given))
    assert (sampler.route == "ring") == isinstance(route, EigenChain)
    return route if isinstance(route, EigenChain) else None


def draws_of(kernel: LowRankKernel, size: int, n: int, *, by_nodes: bool = False, **given):
    with pytest.MonkeyPatch.context() as patch:
        if by_nodes:
            patch.setattr(exact, "ROUTES", (NodesRoute,))
        return Exact.prepare(kernel, size=size, **given).sample(n, rng=11)


# -- the algebra -----------------------------------------------------------------------------------------------------------------


def node_matrices(case: Case, rung: int, count: int, power: int) -> Nodes:
    log_t = rung * RUNG_STEP + 2j * np.pi * (np.arange(count // 2) + 0.5) / count
    R, log_det = resolvent(case.kernel.coordinates, np.exp(log_t))
    return Nodes(np.stack([R.real, R.imag]), log_det - power * log_t)


@pytest.mark.parametrize("case", [wide(), GENERIC, SKEW], ids=str)
@pytest.mark.parametrize("reopened", [False, True])
def test_forms_and_weights_are_those_of_node_matrices(case: Case, reopened: bool):
    """Along a sample, item after item, and on a circle that is opened for the items so far."""
    size = 10 if case.name == "wide" else 4
    _, chain = chain_of(case, size)
    kernel, rng, eigen = case.kernel, np.random.default_rng(1), chain.eigen
    rung, count = chain.ring.rung, 2 * (kernel.rank // 2 + 1)
    ring, weights, good = eigenring.begin(eigen.values, chain.request, rung, count, chain.left, chain.right, size)
    ring, nodes = eigenring.with_space(ring, 0, size), node_matrices(case, rung, count, size)
    every, Q = eigen.sides(np.arange(case.n_items)), kernel.q_rows(np.arange(case.n_items))
    items, inclusion = np.empty(0, np.int64), nodes.inclusion()
    m = -1
    while good:
        m = len(items)
        np.testing.assert_allclose(weights.trace, inclusion.trace, atol=1e-9)
        np.testing.assert_allclose(weights.fraction, inclusion.fraction, rtol=1e-7)
        forms, u, x = eigenring.forms_of(ring, weights, m, *every)
        expected = np.einsum("ia,ab,ib->i", Q, inclusion.M, Q)
        np.testing.assert_allclose(forms, expected, atol=1e-9)
        if m == size - 1:
            break
        row = int(rng.choice(case.n_items, p=expected.clip(0) / expected.clip(0).sum()))
        items = np.append(items, row)
        nodes, inclusion = plain_condition(nodes, Q[row])
        left, right = (side[items] for side in every)
        if reopened:
            ring, weights, good = eigenring.begin(eigen.values, chain.request, rung, count, left, right, size - m - 1)
        else:
            eigenring._add(ring, m, left[-1], right[-1], u[row], x[row])
            weights = eigenring.weigh(ring)
        log_w = ring.log_w - ring.log_w[0] + nodes.log_w[0]
        np.testing.assert_allclose(np.exp(log_w), np.exp(nodes.log_w), rtol=1e-6)
    assert m == size - 1


def test_retired_nodes_are_dropped():
    """On a circle with far more nodes than needed, and the forms stay."""
    case = wide(300, 100, seed=2)
    _, chain = chain_of(case, 40)
    arguments = (chain.eigen.values, chain.request, chain.ring.rung + 2)
    ring, weights, good = eigenring.begin(*arguments, 96, chain.left, chain.right, 40)
    few, its_weights, is_good = eigenring.begin(*arguments, 64, chain.left, chain.right, 40)
    assert good
    assert is_good
    assert 0 < (ring.log_w.real == RETIRED).sum() == len(ring.log_w) - len(ring.live)
    sides = chain.eigen.sides(np.arange(50))
    expected = eigenring.forms_of(few, its_weights, 0, *sides)[0]
    np.testing.assert_allclose(eigenring.forms_of(ring, weights, 0, *sides)[0], expected, atol=1e-10)


def test_compacting_keeps_the_dyads_of_live_nodes():
    case = wide()
    _, chain = chain_of(case, 10)
    items = np.arange(5)
    sides = chain.eigen.sides(items)
    ring, weights, _ = eigenring.begin(chain.eigen.values, chain.request, 0, 26, *sides, 5)
    forms = eigenring.forms_of(ring, weights, 5, *chain.eigen.sides(np.arange(60)))[0]
    ring = eigenring.with_space(ring, 5, 10)
    without = ring.log_w.copy()
    without[[3, 6]] = RETIRED
    small = eigenring._compact(ring._replace(log_w=without), 5)
    np.testing.assert_array_equal(small.live, np.delete(np.arange(13), [3, 6]))
    lighter = weights.w.copy()
    lighter[[3, 6]] = 0
    total = lighter.real.sum()
    found = eigenring.forms_of(small, eigenring.weigh(small), 5, *chain.eigen.sides(np.arange(60)))[0]
    ring, _, _ = eigenring.begin(chain.eigen.values, chain.request, 0, 26, *sides, 5)
    diagonal = np.einsum("j,jk->k", lighter.real / total, ring.F[:, 0]) - np.einsum(
        "j,jk->k", lighter.imag / total, ring.F[:, 1]
    )
    by_hand = weights._replace(w=lighter / total, diagonal=diagonal)
    expected = eigenring.forms_of(ring, by_hand, 5, *chain.eigen.sides(np.arange(60)))[0]
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert np.abs(found - forms).max() > 1e-6


# -- the same draws --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [case for case in AWKWARD if not case.kernel.is_symmetric], ids=str)
def test_the_draws_of_node_matrices(case: Case):
    for size in (size for size in oracles.possible_sizes(case.L) if size):
        ours, theirs = (draws_of(case.kernel, size, 25, by_nodes=by_nodes) for by_nodes in (False, True))
        assert ours.baskets == theirs.baskets
        assert ours.totals["proposals"] == theirs.totals["proposals"]


def test_most_kernels_have_one():
    cases = [case for case in AWKWARD if not case.kernel.is_symmetric]
    sizes = [max(oracles.possible_sizes(case.L)) // 2 * 2 for case in cases]
    have = [ring_of(Exact.prepare(c.kernel, size=k)) is not None for c, k in zip(cases, sizes) if k]
    assert np.mean(have) > 0.6


@pytest.mark.parametrize("size", [12, 30])
def test_the_draws_of_node_matrices_on_several_circles(size: int):
    case = wide(300, 60, seed=3)
    ours, theirs = (draws_of(case.kernel, size, 20, by_nodes=by_nodes) for by_nodes in (False, True))
    assert ours.baskets == theirs.baskets
    assert ours.info["recentred"].min() > 0
    assert ours.info["trace_error"].max() < 2e-8
    assert ours.info["fraction"].min() > 1e-5


@pytest.mark.data
@pytest.mark.parametrize(("name", "size", "n"), [("A", 50, 1), ("B", 10, 6)])
def test_the_draws_of_node_matrices_on_learned_kernels(name: str, size: int, n: int):
    """``benchmarks/bench_exact.py`` compares 10⁴ of each."""
    kernel = learned(name).kernel
    ours, theirs = (draws_of(kernel, size, n, by_nodes=by_nodes) for by_nodes in (False, True))
    assert ours.baskets == theirs.baskets


def test_draws_do_not_depend_on_the_circles(monkeypatch: pytest.MonkeyPatch):
    kernel = wide(300, 60, seed=3).kernel
    planned = draws_of(kernel, 15, 50)
    monkeypatch.setattr(eigenchain, "TARGETS", TARGETS._replace(bias=1e-14, fraction=1e-2))
    others = draws_of(kernel, 15, 50)
    assert others.baskets == planned.baskets
    assert not np.array_equal(others.info["trace_error"], planned.info["trace_error"])


@pytest.mark.parametrize("case", [*AWKWARD, GENERIC, SKEW, wide()], ids=str)
def test_sizes_that_are_clear_without_a_further_look_are_possible_and_certain(case: Case):
    """Whether sizes are possible is otherwise up to the law, which warns or raises where rounding matters."""
    n, rng = case.n_items, np.random.default_rng(2)
    any_set, n_clear = Exact.prepare(case.kernel), 0
    for n_given in (1, 2, 3):
        given = rng.permutation(n)[:n_given]
        for size in range(n_given + 1, min(n, n_given + 6)):
            target = dataclasses.replace(any_set, ladder=Ladder(any_set.ladder.parts, np.sort(given), Memory(10**7)))
            if eigenchain.is_clear(target, size - n_given):
                n_clear += 1
                assert case.kernel.check_size(size, given=given) == size  # pytest fails where it warns
    assert n_clear or case not in (GENERIC, SKEW)


def test_completions_of_common_sizes_ask_the_law_nothing(monkeypatch: pytest.MonkeyPatch):
    kernel = wide().kernel
    planned = draws_of(kernel, 8, 20, given=[3, 5])
    monkeypatch.setattr(exact, "is_clear", lambda *_: False)
    assert draws_of(kernel, 8, 20, given=[3, 5]).baskets == planned.baskets
    monkeypatch.undo()
    monkeypatch.setattr(LowRankKernel, "check_size", lambda *_, **__: pytest.fail("the law was asked"))
    assert draws_of(kernel, 8, 20, given=[3, 5]).baskets == planned.baskets


def test_given_items_that_nearly_coincide():
    """In an orthonormal basis of their rows, they cost no digits."""
    case = wide()
    X = case.X.copy()
    X[1] = X[0] + 1e-6 * X[1]
    kernel = LowRankKernel(X, case.W)
    assert ring_of(Exact.prepare(kernel, size=6, given=[0, 1])) is not None
    ours, theirs = (draws_of(kernel, 6, 100, by_nodes=by_nodes, given=[0, 1, 7]) for by_nodes in (False, True))
    assert ours.baskets == theirs.baskets


@pytest.mark.parametrize("kind", ["array", "scaled", "float32", "memory map"])
def test_rows_that_are_not_kept(kind, monkeypatch, tmp_path):
    case = wide(300, 60, seed=3)
    X = case.X.astype(np.float32) if kind == "float32" else case.X
    kept = draws_of(LowRankKernel(X, case.W), 12, 60).baskets
    monkeypatch.setattr(sys.modules["ndpp.linalg.coordinates"], "DENSE_ENTRIES", 0)
    if kind == "memory map":
        np.save(tmp_path / "X.npy", X)
        X = np.load(tmp_path / "X.npy", mmap_mode="r")
    kernel = LowRankKernel(Multiplied(X / 2, np.full(len(X), 2.0)) if kind == "scaled" else X, case.W)
    sampler = Exact.prepare(kernel, size=12)
    chain = ring_of(sampler)
    assert chain is not None
    assert isinstance(chain.eigen.source.rows, LowRankKernel) == (kind == "memory map")
    draws = sampler.sample(60, rng=11)
    assert draws.baskets == kept
    assert draws.info["recentred"].min() > 0


# -- the laws --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [GENERIC, SKEW], ids=str)
@pytest.mark.parametrize(("given", "exclude"), [((2,), ()), ((2, 1), (3,))], ids=str)
def test_law(case: Case, given, exclude):
    sampler = Exact.prepare(case.kernel, size=4, given=given, exclude=exclude)
    assert ring_of(sampler) is not None
    draws = sampler.sample(DRAWS, rng=2).baskets
    goodness.assert_law(draws, oracles.enumerate_law(case.L, 4, given=given, exclude=exclude))


@pytest.mark.parametrize("broken", ["ties left out", "another size"])
def test_wrong_chains_are_rejected(broken: str):
    _, chain = chain_of(GENERIC, 3)
    values, request = chain.eigen.values, chain.request
    if broken == "ties left out":
        values = np.abs(values).astype(complex)
    else:  # the coefficient of the next power
        request = RingRequest(request.power + 1, 3, TARGETS, Tolerances(trace=2.0, fraction=0.0, chance=1.0))
    ring = eigenring.begin(values, request, chain.ring.rung, 6, chain.left, chain.right, 3)[0]
    chain = dataclasses.replace(chain, eigen=chain.eigen._replace(values=values), request=request, ring=ring)
    runs = [chain.draw(np.random.default_rng(i)) for i in range(2 * DRAWS)]
    with pytest.raises(AssertionError):
        goodness.assert_law([np.sort(run.rows) for run in runs], oracles.enumerate_law(GENERIC.L, 3))


def test_too_small_a_leverage_fails_the_monitor():
    sampler, chain = chain_of(GENERIC, 3)
    index = dataclasses.replace(sampler.index, leverage=frozen(sampler.index.leverage / 1e6))
    runs = [dataclasses.replace(chain, index=index).draw(np.random.default_rng(i)) for i in range(20)]
    assert all(isinstance(run, Unfinished) and len(run.rows) == 0 for run in runs)


# -- failures --------------------------------------------------------------------------------------------------------------------


def test_kernels_that_need_node_matrices():
    sampler = Exact.prepare(DEFECTIVE.kernel, size=2)
    assert ring_of(sampler) is None
    goodness.assert_law(sampler.sample(DRAWS, rng=4).baskets, oracles.enumerate_law(DEFECTIVE.L, 2))


@pytest.mark.parametrize("done", [0, 2])
def test_a_sample_that_fails_a_monitor_is_completed(done: int, monkeypatch: pytest.MonkeyPatch):
    """As if every sample had failed after some items: node matrices draw the rest, and the law stays."""
    sampler, _ = chain_of(GENERIC, 3)
    draw = EigenChain.draw

    def failing(self, rng):
        run = draw(self, rng)
        return Unfinished(draw(self, rng).rows[:done], 7, run.circles)

    monkeypatch.setattr(EigenChain, "draw", failing)
    draws = sampler.sample(500, rng=5)
    assert (draws.info["proposals"] >= 7 + 3 - done).all()
    goodness.assert_law(draws.baskets, oracles.enumerate_law(GENERIC.L, 3))


@pytest.mark.parametrize("store", [False, True])
def test_items_that_m_does_not_map_to_zero_fail_the_monitor(store: bool, monkeypatch: pytest.MonkeyPatch):
    """Dyads that are off by 10⁻⁵: the next item is not drawn. Off by rounding, it is."""
    if store:
        monkeypatch.setattr(sys.modules["ndpp.linalg.coordinates"], "DENSE_ENTRIES", 0)
    _, chain = chain_of(GENERIC, 4, given=(2, 5))
    if store:
        source = Sides.of(GENERIC.kernel, np.ones(1), *chain.eigen.to_sides, np.empty(0, np.int64))
        chain = dataclasses.replace(chain, eigen=chain.eigen._replace(source=source))
    for error, expected in ((1e-5, 0), (1e-14, 2)):
        wrong = dataclasses.replace(chain, ring=chain.ring._replace(eta=chain.ring.eta * (1 + error)))
        run = wrong.draw(np.random.default_rng(0))
        assert len(run.rows) == expected
        assert isinstance(run, Unfinished) == (expected < 2)


def test_sizes_beyond_half_the_rank_are_left_to_node_matrices():
    kernel = wide(100, 40).kernel
    have = {size: ring_of(Exact.prepare(kernel, size=size)) is not None for size in (19, 20, 21)}
    assert have == {19: True, 20: True, 21: False}
    given = Exact.prepare(kernel, size=21, given=[4])
    assert given.route == "nodes"
    assert isinstance(given.route_for(19), EigenChain)


def test_a_spent_budget_is_an_error():
    sampler = Exact.prepare(GENERIC.kernel, size=3)
    sampler.ladder.parts.table = dataclasses.replace(sampler.index, budget=1)
    assert ring_of(sampler) is not None
    with pytest.raises(BudgetExceededError, match="1 items were proposed by their leverage and rejected") as caught:
        sampler.sample(200, rng=0)
    assert caught.value.count == 1


@pytest.mark.filterwarnings("ignore::ndpp.errors.PrecisionWarning")
def test_sizes_beyond_what_circles_can_tell_need_node_matrices():
    """Single items of a nearly skew kernel: no first circle passes, and the last item needs none."""
    case = BY_NAME["generic"]
    rank = case.kernel.rank
    kernel = LowRankKernel(np.eye(6), 1e-9 * np.eye(6) + skew(np.random.default_rng(0).standard_normal((6, 6))))
    assert ring_of(Exact.prepare(kernel, size=1)) is None
    assert ring_of(Exact.prepare(case.kernel, size=rank)) is not None


def test_two_parts_of_a_sample_report_the_worst_of_their_monitors():
    nodes = Exact.prepare(GENERIC.kernel, size=3).nodes(3)
    for rows, circles in (([], 0), ([5], 1)):
        for report in (CircleReport(2, 0.1, 1e-9), CircleReport(2, 0.0, 1.0)):
            begun = Unfinished(np.array(rows, np.int64), 4, report)
            done, plain = (
                nodes.finish(nodes.target, np.random.default_rng(0), start)
                for start in (begun, begun._replace(circles=None))
            )
            assert plain.circles.recentred >= circles
            assert done.circles.recentred == 2 + plain.circles.recentred
            assert done.circles.trace_error == max(report.trace_error, plain.circles.trace_error)
            assert done.circles.fraction == min(report.fraction, plain.circles.fraction)
