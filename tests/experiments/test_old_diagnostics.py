"""The energy test, against its definition and on samples that differ, and what the library had under its old names."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from kernels import random_vbd
from ndpp import Baskets, LowRankKernel
from ndpp import diagnostics as dg
from ndpp.errors import InvalidInputError, MissingExtraError
from ndpp.samplers import Cholesky
from ndpp_experiments import diagnostics as old
from ndpp_experiments.diagnostics import energy_test


def draw(kernel, n_draws, seed):
    return Cholesky.prepare(kernel).sample(n_draws, rng=seed).baskets


def test_one_distribution_and_another():
    kernel = LowRankKernel.from_vbd(*random_vbd(60, 8, 6, np.random.default_rng(0)))
    pool = draw(kernel, 600, 1)
    tilt = np.where(np.arange(60) % 2, 2.0, 0.5)
    tilted = draw(LowRankKernel(kernel.X * tilt[:, None], kernel.W), 300, 3)
    assert energy_test(pool[:300], pool[300:], rng=0).p_value > 0.01
    assert energy_test(tilted, pool[:300], rng=0).p_value < 0.01


def test_energy_sees_what_means_do_not():
    """Two items, each in half of all sets: together or apart."""
    rng = np.random.default_rng(0)
    together = Baskets.from_lists([[0, 1] if heads else [] for heads in rng.random(100) < 0.5], n_items=2)
    apart = Baskets.from_lists([[int(heads)] for heads in rng.random(100) < 0.5], n_items=2)
    assert energy_test(together, apart, rng=0) == (pytest.approx(1.0, abs=0.7), 0.001, 999)


def test_energy_is_that_of_the_definition():
    first, second = Baskets.from_lists([[0], [1, 2]], n_items=4), Baskets.from_lists([[3], [0, 1], []], n_items=4)

    def mean(one, other):
        return np.mean([np.sqrt(len(set(a.tolist()) ^ set(b.tolist()))) for a in one for b in other])

    expected = 2 * mean(first, second) - mean(first, first) - mean(second, second)
    assert energy_test(first, second, n_permutations=9, rng=0).statistic == pytest.approx(expected)


def test_bad_samples():
    two = Baskets.from_lists([[0], [1]], n_items=2)
    with pytest.raises(InvalidInputError, match="over the same items"):
        energy_test(two, Baskets.from_lists([[0], [1]], n_items=3))
    with pytest.raises(InvalidInputError, match="at least two sets"):
        energy_test(two, two[:1])


def test_autocorrelation_by_sums():
    x = np.random.default_rng(0).standard_normal(50).cumsum()
    y = x - x.mean()
    plain = [np.sum(y[: len(y) - t] * y[t:]) / np.sum(y * y) for t in range(len(y))]
    np.testing.assert_allclose(old.autocorrelation(x), plain, atol=1e-12)
    np.testing.assert_array_equal(old.autocorrelation(np.full(10, 0.1)), np.ones(10))
    stats = pytest.importorskip("arviz_stats.base").array_stats
    np.testing.assert_allclose(old.autocorrelation(x), stats.autocorr(x), atol=1e-12)


@pytest.mark.parametrize(
    "name", ["EnergyTest", "autocorrelation", "energy_test", "item_indicators", "log_dets", "to_arviz"]
)
def test_old_names_work_and_warn(name):
    with pytest.warns(DeprecationWarning, match=rf"diagnostics\.{name} is now ndpp_experiments\.diagnostics\.{name}"):
        assert getattr(dg, name) is getattr(old, name)


def test_log_dets_are_those_of_the_kernel():
    kernel = LowRankKernel(np.eye(2), [[1.0, 2.0], [-2.0, 1.0]])
    baskets = Baskets.from_lists([[], [1], [0, 1]], n_items=2)
    np.testing.assert_array_equal(old.log_dets(kernel, baskets), kernel.log_dets(baskets))
    with pytest.raises(InvalidInputError, match="over 3 items; the kernel has 2"):
        old.log_dets(kernel, Baskets.from_lists([[2]]))


@pytest.fixture(scope="module")
def medium():
    return LowRankKernel.from_vbd(*random_vbd(60, 8, 6, np.random.default_rng(0)))


@pytest.fixture(scope="module")
def samples(medium):
    return (draw(medium, 300, 1),)


class Recorder:
    """Stands in for arviz-base: returns what it was given."""

    @staticmethod
    def from_dict(data):
        return data


def test_export_to_arviz(medium, samples, monkeypatch):
    found = dg.functionals(medium, samples[0], n_chains=3, n_items=2)
    monkeypatch.setattr(importlib, "import_module", lambda name: Recorder)
    posterior = old.to_arviz(found)["posterior"]
    assert list(posterior) == list(found.names)
    np.testing.assert_array_equal(posterior["size"], found.values[:, :, 1])


def test_export_without_arviz(medium, samples, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(MissingExtraError, match="arviz-base"):
        old.to_arviz(dg.functionals(medium, samples[0]))


def test_the_export_is_what_arviz_reads(medium, samples):
    pytest.importorskip("arviz_base")
    stats = pytest.importorskip("arviz_stats")
    found = dg.functionals(medium, samples[0], n_chains=3, n_items=2)
    rhat = stats.rhat(old.to_arviz(found), method="identity")
    np.testing.assert_allclose([float(rhat[name]) for name in found.names], dg.psrf(found.values), rtol=1e-10)
