"""What a kernel is said to mean is what it does: planted pairs are found, probabilities are those of enumeration."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from kernels import AWKWARD, data_folder, learned
from ndpp import LowRankKernel, explain
from ndpp.datasets import load_baskets, make_baskets, make_kernel
from ndpp.errors import InvalidInputError, ZeroProbabilityError


@pytest.fixture(scope="module")
def planted():
    return make_baskets(0, 60, n_pairs=6, rng=0)


def ids(pairs):
    return {frozenset((pair.first.item, pair.second.item)) for pair in pairs}


def test_planted_pairs_are_the_strongest(planted):
    found = explain.strongest_pairs(planted.kernel, n=6)
    assert ids(found.complements) == {frozenset(pair) for pair in planted.complements.tolist()}
    assert ids(found.substitutes) == {frozenset(pair) for pair in planted.substitutes.tolist()}
    for pairs, lift in ((found.complements, 3.0), (found.substitutes, 0.2)):
        np.testing.assert_allclose([pair.lift for pair in pairs], lift)


def test_planted_partners_are_the_only_ones(planted):
    for a, b in planted.complements.tolist():
        found = explain.related(planted.kernel, a)
        assert [pair.second.item for pair in found.complements] == [b]
        assert found.substitutes == ()
    for a, b in planted.substitutes.tolist():
        found = explain.related(planted.kernel, b)
        assert [pair.second.item for pair in found.substitutes] == [a]
        assert found.complements == ()
    assert len(explain.strongest_pairs(planted.kernel, n=50).complements) == 6


def test_a_learned_kernel_of_planted_baskets_shows_the_pairs():
    """The kernel estimated from pair counts alone, as if only they were known."""
    made = make_baskets(30_000, 20, n_pairs=3, rng=1)
    matrix = made.baskets.to_csr().toarray().astype(float)
    p, together = matrix.mean(axis=0), matrix.T @ matrix / len(matrix)
    K, cross = np.diag(p), np.outer(p, p) - together  # K_ab K_ba
    for a, b in [*made.complements, *made.substitutes]:
        K[a, b], K[b, a] = np.sqrt(abs(cross[a, b])), np.sign(cross[a, b]) * np.sqrt(abs(cross[a, b]))
    kernel = LowRankKernel(np.eye(20), K @ np.linalg.inv(np.eye(20) - K))
    found = explain.strongest_pairs(kernel, n=3)
    assert ids(found.complements) == {frozenset(pair) for pair in made.complements.tolist()}
    assert ids(found.substitutes) == {frozenset(pair) for pair in made.substitutes.tolist()}


@pytest.mark.parametrize("case", [case for case in AWKWARD if case.n_items <= 12], ids=str)
def test_probabilities_are_those_of_the_kernel(case):
    p = case.kernel.inclusion_probabilities()
    if not p.any():
        pytest.skip("no item of this kernel occurs")
    a = int(p.argmax())
    given = case.kernel.inclusion_probabilities(given=[a])
    found = explain.related(case.kernel, a, n=20)
    assert found.item == (a, str(a), pytest.approx(p[a]))
    for pair in found.complements + found.substitutes:
        b = pair.second.item
        assert pair.together == pytest.approx(p[a] * given[b], rel=1e-6, abs=1e-9)
        spread = np.sqrt(p[a] * (1 - p[a]) * p[b] * (1 - p[b]))
        assert pair.correlation == pytest.approx((p[a] * given[b] - p[a] * p[b]) / spread, rel=1e-5, abs=1e-6)
    named = {pair.second.item for pair in found.complements + found.substitutes}
    for b in set(np.flatnonzero(p).tolist()) - named - {a}:
        assert given[b] == pytest.approx(p[b], rel=1e-5)


def test_order_and_sides():
    kernel = make_kernel(40, 10, rng=0)
    found = explain.strongest_pairs(kernel, n=15)
    ups, downs = ([pair.correlation for pair in pairs] for pairs in found)
    assert ups == sorted(ups, reverse=True)
    assert downs == sorted(downs)
    assert min(ups) > 0 > max(downs)
    assert all(pair.lift > 1 for pair in found.complements)
    assert all(pair.lift < 1 for pair in found.substitutes)


def test_all_pairs_against_a_plain_loop(monkeypatch):
    kernel = make_kernel(30, 8, rng=1)
    L = kernel.to_dense()
    K = L @ np.linalg.inv(np.eye(30) + L)
    spread = np.sqrt(np.diag(K) * (1 - np.diag(K)))
    values = {(a, b): -K[a, b] * K[b, a] / (spread[a] * spread[b]) for a in range(30) for b in range(a + 1, 30)}
    best = sorted(values, key=values.get)
    for pairs_at_once in (10**6, 100, 1):
        monkeypatch.setattr(explain, "CHUNK_PAIRS", pairs_at_once)
        found = explain.strongest_pairs(kernel, n=7)
        assert [(pair.first.item, pair.second.item) for pair in found.complements] == best[:-8:-1]
        assert [(pair.first.item, pair.second.item) for pair in found.substitutes] == best[:7]
        assert found.complements[0].correlation == pytest.approx(values[best[-1]])


def test_a_symmetric_kernel_has_no_complements():
    V = np.random.default_rng(0).standard_normal((15, 4))
    found = explain.strongest_pairs(LowRankKernel(V, np.eye(4)), n=5)
    assert (len(found.complements), len(found.substitutes)) == (0, 5)


def test_popularity():
    kernel = LowRankKernel(np.eye(3), np.diag([1.0, 3.0, 1.0]), labels=["x", "y", "z"])
    assert [tuple(share) for share in explain.popularity(kernel, 2)] == [
        (1, "y", pytest.approx(0.75)),
        (0, "x", pytest.approx(0.5)),
    ]
    assert len(explain.popularity(kernel, None)) == 3
    assert explain.popularity(SimpleNamespace(kernel_=kernel), 1)[0].label == "y"


def test_labels_and_text():
    L = [[0.5, 0.8, 0.4], [-0.8, 0.5, 0.0], [0.4, 0.0, 0.5]]
    kernel = LowRankKernel(np.eye(3), L, labels=["bread", "butter", "rolls"])
    assert explain.related(kernel, "bread") == explain.related(kernel, 0)
    text = str(explain.related(kernel, "butter"))
    assert text.splitlines()[0] == "butter: in 48.96% of baskets"
    assert "bread" in text
    assert text.splitlines()[-1].strip() == "–"  # nothing stands in for butter
    assert "bread + rolls" in str(explain.strongest_pairs(kernel))


def test_rare_items_and_others_can_be_left_out(planted):
    p = planted.kernel.inclusion_probabilities()
    (a, b), (c, d) = planted.complements[:2].tolist()
    assert ids(explain.strongest_pairs(planted.kernel, among=[a, b, c]).complements) == {frozenset((a, b))}
    assert explain.related(planted.kernel, a, least_probability=p[b] * 1.01).complements == ()
    assert explain.related(planted.kernel, a, least_probability=p[b]).complements != ()
    found = explain.strongest_pairs(planted.kernel, n=50, least_probability=float(np.median(p)))
    assert all(min(p[list(pair)]) >= np.median(p) for pair in ids(found.complements + found.substitutes))
    assert explain.strongest_pairs(planted.kernel, among=[d]) == ((), ())


def test_restricted_kernels(planted):
    a, b = planted.complements[0].tolist()
    kernel = planted.kernel.exclude([b])
    assert explain.related(kernel, a).complements == ()
    with pytest.raises(ZeroProbabilityError, match="never occurs"):
        explain.related(kernel, b)


def test_wrong_input(planted):
    for call in (explain.popularity, explain.strongest_pairs):
        with pytest.raises(InvalidInputError, match="fitted estimator"):
            call("model")
        with pytest.raises(InvalidInputError, match="n must be"):
            call(planted.kernel, n=0)
    with pytest.raises(InvalidInputError, match="unknown item id 60"):
        explain.related(planted.kernel, 60)
    with pytest.raises(InvalidInputError, match="no labels"):
        explain.related(planted.kernel, "bread")


@pytest.mark.data
def test_pairs_of_a_learned_kernel_are_pairs_of_the_data():
    kernel = learned("B").kernel
    baskets = load_baskets("uk_retail", folder=data_folder())
    matrix = baskets.to_csr().astype(float)
    p = np.asarray(matrix.sum(axis=0)).ravel() / len(baskets)
    found = explain.strongest_pairs(kernel, n=20, least_probability=0.005)
    for pair in found.complements:
        a, b = pair.first.item, pair.second.item
        together = (matrix[:, [a]].multiply(matrix[:, [b]])).sum() / len(baskets)
        assert together / (p[a] * p[b]) > 2
