"""R-hat, ESS, laws and tests, against arviz-stats, plain twins and enumeration; each can say no."""

from __future__ import annotations

import numpy as np
import pytest

import goodness
import oracles
from kernels import AWKWARD, BY_NAME, random_vbd
from ndpp import Baskets, LowRankKernel
from ndpp import diagnostics as dg
from ndpp.errors import InvalidInputError
from ndpp.samplers import Cholesky, Naive, Walk


def ar1(rho, shape, seed):
    """Chains with autocorrelation ρ^t and variance one."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    for t in range(1, shape[1]):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1 - rho**2) * x[:, t]
    return x


SERIES = {
    "independent": ar1(0.0, (4, 200), 0),
    "slow": ar1(0.95, (4, 300), 1),
    "alternating": ar1(-0.6, (3, 101), 2),
    "apart": ar1(0.3, (5, 64), 3) + np.arange(5)[:, None],
    "drifting": ar1(0.3, (2, 80), 4) + np.linspace(0, 3, 80),
    "indicators": (ar1(0.7, (4, 150), 5) > 1).astype(float),
    "short": ar1(0.5, (4, 10), 6),  # of shorter ones ArviZ looks at no lag at all
}


# ---- chains ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SERIES)
def test_chains_as_arviz_has_them(name):
    stats = pytest.importorskip("arviz_stats.base").array_stats
    x = SERIES[name]
    np.testing.assert_allclose(dg.psrf(x), stats.rhat(x, method="identity"), rtol=1e-12)
    np.testing.assert_allclose(dg.psrf(x, split=True), stats.rhat(x, method="split"), rtol=1e-12)
    np.testing.assert_allclose(dg.effective_sample_size(x), stats.ess(x, method="mean"), rtol=1e-9)


def test_psrf_in_the_words_of_its_definition():
    x = SERIES["apart"]
    within = np.mean([np.var(chain, ddof=1) for chain in x])
    between = np.var([np.mean(chain) for chain in x], ddof=1)
    n = x.shape[1]
    assert dg.psrf(x) == pytest.approx(np.sqrt(((n - 1) / n * within + between) / within))
    assert dg.psrf(x) > 1.5


def test_a_drift_is_seen_in_halves():
    together = np.tile(np.linspace(0, 3, 100), (2, 1)) + ar1(0.0, (2, 100), 7)
    assert dg.psrf(together) < 1.05
    assert dg.psrf(together, split=True) > 1.3


def test_functionals_are_taken_one_by_one():
    x = np.stack([SERIES["slow"], SERIES["slow"] ** 2], axis=2)
    for measure in (dg.psrf, dg.effective_sample_size):
        np.testing.assert_allclose(measure(x), [measure(x[:, :, 0]), measure(x[:, :, 1])])


def test_what_never_moves():
    still = np.full((3, 10), 0.1)
    assert dg.psrf(still) == 1
    assert dg.effective_sample_size(still) == 30
    assert dg.psrf(still + np.arange(3)[:, None]) == np.inf


def test_effective_size_of_a_known_chain():
    rho = 0.8
    x = ar1(rho, (8, 5000), 8)
    assert dg.effective_sample_size(x) == pytest.approx(x.size * (1 - rho) / (1 + rho), rel=0.1)


@pytest.mark.parametrize("n_draws", [8, 9, 10])
def test_the_shortest_chains_are_not_taken_for_independent_draws(n_draws):
    stuck = np.repeat(np.arange(4.0)[:, None], n_draws, axis=1)
    assert dg.effective_sample_size(stuck) <= 10
    drift = np.tile(np.arange(float(n_draws)), (4, 1))
    assert dg.effective_sample_size(drift) < 4 * n_draws / 3


@pytest.mark.parametrize(
    ("chains", "words"),
    [
        (np.zeros(5), "shape"),
        (np.zeros((1, 5)), "two chains"),
        ([[0.0, np.nan], [1.0, 2.0]], "finite"),
    ],
)
def test_bad_chains(chains, words):
    with pytest.raises(InvalidInputError, match=words):
        dg.psrf(chains)


def test_too_few_draws():
    with pytest.raises(InvalidInputError, match="eight draws"):
        dg.effective_sample_size(np.zeros((4, 7)))


# ---- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", AWKWARD, ids=str)
def test_exact_law(case):
    for size in (None, *oracles.possible_sizes(case.L)):
        law, truth = dg.exact_law(case.kernel, size), oracles.enumerate_law(case.L, size)
        assert dg.total_variation(law, truth) < 1e-9
        assert sum(law.values()) == pytest.approx(1)


def test_exact_law_of_a_restricted_kernel():
    case = BY_NAME["generic"]
    law = dg.exact_law(case.kernel.exclude([0, 3]), 2)
    assert dg.sup_distance(law, oracles.enumerate_law(case.L, 2, exclude=[0, 3])) < 1e-9


def test_exact_law_refuses_what_it_cannot_enumerate():
    kernel = LowRankKernel(np.eye(40), np.eye(40))
    with pytest.raises(InvalidInputError, match="enumerated"):
        dg.exact_law(kernel)
    assert len(dg.exact_law(kernel, 2)) == 780


def test_distances():
    p, q = {(0,): 0.5, (): 0.5}, {(0,): 0.1, (1,): 0.9}
    assert dg.total_variation(p, q) == pytest.approx(0.9)
    assert dg.sup_distance(p, q) == pytest.approx(0.9)
    assert dg.total_variation(p, p) == dg.sup_distance(p, p) == 0
    uniform, half = np.full(8, 1 / 8), np.repeat([1 / 4, 0], 4)
    assert dg.total_variation(uniform, half) == pytest.approx(0.5)
    assert dg.sup_distance(uniform, half) == pytest.approx(1 / 8)


@pytest.mark.parametrize(
    ("p", "q", "words"),
    [
        ({(): 1.0}, [1.0], "both"),
        ([0.5, 0.5], [1.0], "shape"),
        ([3, 5], [0.5, 0.5], "Divide"),
        ([1.5, -0.5], [0.5, 0.5], "sum to one"),
        ([np.nan, 1.0], [0.5, 0.5], "sum to one"),
    ],
)
def test_bad_laws(p, q, words):
    with pytest.raises(InvalidInputError, match=words):
        dg.total_variation(p, q)


def test_empirical_law_nears_the_exact_one():
    kernel = BY_NAME["generic"].kernel
    draws = Naive.prepare(kernel, size=3).sample(4000, rng=0).baskets
    law = dg.exact_law(kernel, 3)
    goodness.assert_law(draws, law)
    assert dg.total_variation(dg.empirical_law(draws), law) < 0.1
    with pytest.raises(InvalidInputError, match="at least one"):
        dg.empirical_law(draws[:0])


# ---- functionals -----------------------------------------------------------------------------------------------------


def test_functionals_of_interleaved_chains():
    kernel = BY_NAME["generic"].kernel
    draws = Naive.prepare(kernel).sample(24, rng=1).baskets
    names, values, is_item = dg.functionals(kernel, draws, n_chains=3, n_items=4)
    assert is_item.tolist() == [False, False, True, True, True, True]
    assert values.shape == (3, 8, len(names)) == (3, 8, 6)
    for i, basket in enumerate(draws):
        found = dict(zip(names, values[i % 3, i // 3]))
        assert found["log det"] == pytest.approx(kernel.log_det(basket))
        assert found["size"] == len(basket)
        for name in names[2:]:
            assert found[name] == (int(name.removeprefix("item ")) in basket)
    with pytest.raises(InvalidInputError, match="multiple of 5"):
        dg.functionals(kernel, draws, n_chains=5)


def test_the_size_is_left_out_where_it_is_fixed():
    kernel = BY_NAME["generic"].kernel
    draws = Naive.prepare(kernel, size=3).sample(20, rng=1).baskets
    found = dg.functionals(kernel, draws, n_items=2)
    assert "size" not in found.names
    assert found.is_item.tolist() == [False, True, True]


def test_items_are_called_by_their_labels():
    kernel = LowRankKernel(np.eye(2), np.eye(2), labels=["tea", "milk"])
    assert set(dg.functionals(kernel, kernel.sample(30, rng=0)).names[2:]) == {"item tea", "item milk"}


# ---- agreement -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def medium():
    return LowRankKernel.from_vbd(*random_vbd(60, 8, 6, np.random.default_rng(0)))


@pytest.fixture(scope="module")
def pool(medium):
    return draw(medium, 3000, 1)


@pytest.fixture(scope="module")
def samples(pool):
    return pool[:300], pool[300:600]


def draw(kernel, n_draws, seed):
    return Cholesky.prepare(kernel).sample(n_draws, rng=seed).baskets


def test_one_law_agrees(medium, samples):
    for found in (dg.compare_samples(medium, *samples), dg.compare_with_law(medium, samples[0])):
        assert found.agrees, str(found)
        assert "No difference" in str(found)


def test_z_scores_are_calibrated(medium, pool):
    """Over many repetitions, z has variance one: neither too sure nor too shy."""
    z = np.concatenate([dg.compare_with_law(medium, pool[i : i + 100]).z for i in range(0, 3000, 100)])
    assert 0.8 < np.sqrt(np.mean(z**2)) < 1.2


@pytest.mark.parametrize(
    ("odds", "size"), [([1e5, 1, 1, 1, 1, 1], 3), ([1e5, 1, 1, 1, 1, 1], None), ([1e-3] * 4, None), ([0.0] * 3, None)]
)
def test_what_nearly_always_or_nearly_never_comes_is_no_alarm(odds, size):
    """A sample whose draws all show the same says little about items with a probability next to one, or to zero."""
    kernel = LowRankKernel(np.diag(np.sqrt(odds)), np.eye(len(odds)))
    for seed in range(10):
        found = dg.compare_with_law(kernel, kernel.sample(40, size=size, rng=seed), size=size)
        assert found.agrees, str(found)


def test_what_ought_to_come_and_never_does_is_an_alarm():
    kernel = LowRankKernel(np.diag([1.0, 1.0, 1e-3]), np.eye(3))
    always = Baskets.from_lists([[0, 1]] * 40, n_items=3)
    assert not dg.compare_with_law(kernel, always).agrees


def test_other_laws_are_told_apart(medium, samples):
    tilt = np.where(np.arange(60) % 2, 2.0, 0.5)
    tilted = draw(LowRankKernel(medium.X * tilt[:, None], medium.W), 300, 3)
    smaller = draw(LowRankKernel(medium.X, 0.6 * medium.W), 300, 3)
    symmetric = draw(LowRankKernel(medium.X, (medium.W + medium.W.T) / 2), 300, 3)
    assert not dg.compare_samples(medium, smaller, samples[0]).agrees
    assert "size" in dg.compare_with_law(medium, smaller).worst
    for other in (tilted, smaller, symmetric):
        assert not dg.compare_with_law(medium, other).agrees
        assert "The distributions differ" in str(dg.compare_with_law(medium, other))


def test_bad_samples(medium, samples):
    with pytest.raises(InvalidInputError, match="at least 20"):
        dg.compare_samples(medium, samples[0][:5], samples[1])
    with pytest.raises(InvalidInputError, match="over 3 items"):
        dg.compare_with_law(medium, Baskets.from_lists([[0]] * 30, n_items=3))
    with pytest.raises(InvalidInputError, match="sets of 3 items"):
        dg.compare_with_law(medium, samples[0], size=3)
    with pytest.raises(InvalidInputError, match="probability zero"):
        dg.compare_samples(medium.exclude([0]), Baskets.from_lists([[0]] * 30, n_items=60), samples[0])


# ---- convergence -----------------------------------------------------------------------------------------------------


def test_independent_draws_have_converged(medium, pool):
    for start in range(0, 3000, 200):
        for n_chains in (1, 4):
            report = dg.diagnose_chains(medium, pool[start : start + 200], n_chains=n_chains)
            assert report.converged, str(report)
            assert "No problem found" in str(report)


def test_a_short_walk_is_said_to_be_one(medium):
    walk = Walk.prepare(medium, size=8, thin=1, chains=4)
    report = dg.diagnose_chains(medium, walk.sample(80, rng=0).baskets, n_chains=4)
    assert not report.converged
    assert str(report).startswith("NOT CONVERGED, 4 chains of 20 sets")
    assert "have not mixed" in str(report)


def test_items_that_stay_by_right_are_no_problem():
    """Item 0 is in nearly every set of the law itself."""
    kernel = LowRankKernel(np.eye(6), np.diag([1e6, 1, 1, 1, 1, 1]))
    report = dg.diagnose_chains(kernel, kernel.sample(200, rng=0), n_chains=4)
    assert report.never_left == pytest.approx(1)
    assert report.never_left_expected == pytest.approx(1, abs=0.01)
    assert report.converged, str(report)


def test_a_chain_of_a_foreign_kernel(medium, samples):
    with pytest.raises(InvalidInputError, match="probability zero"):
        dg.diagnose_chains(medium.exclude([int(samples[0].indices[0])]), samples[0], n_chains=4)
    with pytest.raises(InvalidInputError, match="eight sets per chain"):
        dg.diagnose_chains(medium, samples[0][:12], n_chains=3)
