"""Mixtures of kernels, in general and with shared ties: what ``test_contract`` does not ask of every law."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import ndpp
import oracles
from kernels import BY_NAME
from mixtures import (
    TOLERANCE,
    N,
    assert_close,
    dense,
    enumerate_mixture,
    enumerated,
    every,
    general,
    inclusion,
    parts,
    tied,
)
from ndpp import Baskets, FamilyMixture, LowRankKernel, Mixture
from ndpp.errors import (
    ImpossibleSizeError,
    InvalidInputError,
    ModelFileError,
    PrecisionError,
    PrecisionWarning,
    ZeroProbabilityError,
)
from ndpp.laws import begun
from ndpp.laws.mixture import RARE_SIZE
from ndpp.laws.tied import TiedMixture
from ndpp.linalg.schur import MAX_LOSS
from ndpp.linalg.size_law import law_of_sum


@pytest.mark.parametrize("kind", [tied, general])
@every
def test_probabilities(odds: str, ties: str, kind):
    mixture, (kernels, weights) = kind(odds, ties), dense(odds, ties)
    law = enumerate_mixture(kernels, weights)
    assert_close(enumerated(mixture), law)
    sizes = np.bincount([len(S) for S in law], list(law.values()), N + 1)
    assert mixture.size_distribution() == pytest.approx(sizes[: mixture.max_size + 1], abs=TOLERANCE)
    assert mixture.inclusion_probabilities() == pytest.approx(inclusion(law), abs=TOLERANCE)
    assert_close(enumerated(mixture, 2), enumerate_mixture(kernels, weights, lambda S: len(S) == 2))
    by_size = inclusion(enumerate_mixture(kernels, weights, lambda S: len(S) == 2))
    assert mixture.inclusion_probabilities(2) == pytest.approx(by_size, abs=TOLERANCE)


def test_lost_precision_is_said():
    """Three rare items with strong skew ties: the minor of all three cancels."""

    def asked(strength: float) -> np.ndarray:
        X, W = np.sqrt(strength) * np.array([[1.0, 0], [0, 1], [1, 1]]), [[0.0, 1.0], [-1.0, 0.0]]
        odds = np.full((2, 3), 1 / strength) * [[1.0], [0.5]]
        return Mixture.tied(odds, X, W, [0.5, 0.5]).responsibilities([0, 1, 2])

    assert asked(10.0).sum() == pytest.approx(1)
    with pytest.warns(PrecisionWarning, match="probabilities given these items"):
        asked(1e9)
    with pytest.raises(PrecisionError, match="probabilities given these items"):
        asked(1e14)


def test_a_probability_of_the_wrong_sign_is_refused(monkeypatch: pytest.MonkeyPatch):
    mixture = tied("several", "generic")
    started = begun.started
    monkeypatch.setattr(begun, "started", lambda forms, odds, noise: started(forms - 1e6, odds, noise))
    with pytest.raises(PrecisionError, match="beyond double precision"):
        mixture.responsibilities([1])


def test_components_without_weight_are_no_mixture():
    mixture = Mixture.tied([[1.0], [2.0], [3.0]], [[0.0]], [[0.0]], [1.0, 0.0, 0.0])
    with pytest.raises(ZeroProbabilityError, match="probability zero"):
        mixture.only([1, 2])
    assert mixture.only([1]).inclusion_probabilities() == pytest.approx([2 / 3])


def test_normalizers_at_hand(tmp_path):
    """They are kept in the file, and nothing is computed anew."""
    mixture = tied("several", "generic")
    prepared = mixture.normalized()
    baskets = Baskets.from_lists(oracles.subsets(N), n_items=N)
    assert np.array_equal(prepared.log_probs(baskets), mixture.log_probs(baskets))
    ndpp.save(prepared, tmp_path / "prepared.safetensors")
    ndpp.save(mixture, tmp_path / "plain.safetensors")
    again, plain = ndpp.load(tmp_path / "prepared.safetensors"), ndpp.load(tmp_path / "plain.safetensors")
    assert not plain._kept
    assert np.array_equal(again.log_normalizers(), mixture.log_normalizers())
    assert np.array_equal(again.log_probs(baskets), mixture.log_probs(baskets))
    assert "_state" not in vars(again)
    prepared._kept = {"log_normalizers": np.ones(1)}
    ndpp.save(prepared, tmp_path / "wrong.safetensors")
    with pytest.raises(ModelFileError, match="log_normalizers should be"):
        ndpp.load(tmp_path / "wrong.safetensors")


def test_kernels_without_background_can_be_mixed():
    """A purely skew kernel, with sets of even size only, and a symmetric one."""
    skew, symmetric = BY_NAME["purely skew"], BY_NAME["symmetric"]
    mixture = Mixture([LowRankKernel(case.X[:N], case.W) for case in (skew, symmetric)], [0.5, 0.5])
    kernels = [case.L[:N, :N] for case in (skew, symmetric)]
    assert_close(enumerated(mixture), enumerate_mixture(kernels, [0.5, 0.5]))
    assert mixture.responsibilities([0], whole=True).tolist() == [0.0, 1.0]
    law = enumerate_mixture(kernels, [0.5, 0.5], lambda S: 0 in S)
    assert mixture.inclusion_probabilities(given=[0]) == pytest.approx(inclusion(law), abs=TOLERANCE)


def test_ties_are_kept_once():
    """Components read X through factors of their own; none of them holds a copy."""
    X = np.random.default_rng(0).standard_normal((50, 3))
    mixture = Mixture.tied(np.ones((4, 50)), X, np.eye(3), np.full(4, 0.25))
    assert len(mixture.components) == 4
    for kernel in mixture.components[1:3]:
        assert kernel.X.source is mixture.base.X
        assert kernel.to_dense() == pytest.approx(np.eye(50) + X @ X.T)


def test_many_components_and_items_at_once():
    """Against the components one by one, whose routines are others."""
    rng = np.random.default_rng(1)
    odds = np.exp(rng.normal(-3, 2, (7, 200)))
    X, W = rng.standard_normal((200, 6)) / 3, np.eye(6) / 4 + np.triu(np.ones((6, 6)), 1) - np.tril(np.ones((6, 6)), -1)
    mixture = Mixture.tied(odds, X, W, np.full(7, 1 / 7))
    general = Mixture(list(mixture.components), mixture.weights)
    baskets = general.sample(20, rng=0)
    assert mixture.log_probs(baskets) == pytest.approx(general.log_probs(baskets), rel=1e-10)
    assert mixture.log_normalizers() == pytest.approx([kernel.log_normalizer() for kernel in mixture.components])
    given = baskets[0][:3]
    for name, call in {
        "inclusion": lambda law: law.inclusion_probabilities(given=given),
        "contained": lambda law: law.responsibilities(given),
        "sizes": lambda law: law.size_distribution()[:60],
        "weights": lambda law: law.exclude(given).weights,
    }.items():
        assert call(mixture) == pytest.approx(call(general), abs=1e-10), name
    assert mixture.log_normalizer(150) == pytest.approx(general.log_normalizer(150), abs=1e-8)


def several_of_60() -> TiedMixture:
    """Three components over 60 items, two of which are excluded; the first one lacks half of them."""
    rng = np.random.default_rng(1)
    X, W = rng.standard_normal((60, 6)) / 3, np.eye(6) / 4 + np.triu(np.ones((6, 6)), 1) - np.tril(np.ones((6, 6)), -1)
    odds = np.exp(rng.normal(-4, 2, (3, 60)))
    odds[0, :30] = 0.0
    mixture = Mixture.tied(odds, X, W, [0.5, 0.25, 0.25]).exclude([7, 40])
    assert isinstance(mixture, TiedMixture)
    return mixture


def test_sets_of_one_size_that_contain_items_of_many_components():
    """Against the components one by one: usual sizes, rare ones, and no other items."""
    mixture = several_of_60()
    general = Mixture(list(mixture.components), mixture.weights)
    for given, size in (([45], 6), ([3, 50], 9), ([45, 50], 2), ([3, 50], 40)):
        posterior = general.responsibilities(given, size=size)
        assert mixture.responsibilities(given, size=size) == pytest.approx(posterior, abs=1e-9)
        assert (posterior[0] == 0) == (3 in given)
        expected = general.inclusion_probabilities(size, given)
        assert mixture.inclusion_probabilities(size, given) == pytest.approx(expected, abs=1e-9)
    assert -22 > mixture.log_normalizer(40) > -np.inf
    two = Mixture.tied([[1.0, 2.0], [0.5, 0.5]], [[1.0], [0.5]], [[1.0]], [0.5, 0.5])
    assert two.inclusion_probabilities(2, [0, 1]).tolist() == [1.0, 1.0]
    assert two.responsibilities([0, 1], size=2) == pytest.approx(two.responsibilities([0, 1]))


@pytest.mark.parametrize("case", ["usual", "the guess of the tilt is far off", "rounding matters"])
def test_sets_of_one_size_of_many_components(case: str, monkeypatch):
    """Against the components one by one. Where rounding matters, they are computed that way, too."""
    mixture = several_of_60()
    general, asked = Mixture(list(mixture.components), mixture.weights), []
    if case == "the guess of the tilt is far off":
        monkeypatch.setattr(TiedMixture, "tilts", lambda self, size: np.full(3, 14.0))
    single = TiedMixture.single
    monkeypatch.setattr(TiedMixture, "single", lambda self, c, *rest: asked.append(c) or single(self, c, *rest))
    for size in (0, 1, 6, 20):
        expected, post = np.zeros(60), mixture.responsibilities([], size=size)
        for kernel, share in zip(general.components, post):
            expected += share * kernel.inclusion_probabilities(size)
        asked.clear()
        with monkeypatch.context() as context:
            context.setattr("ndpp.laws.hooks.MAX_LOSS", -1.0 if case == "rounding matters" else MAX_LOSS)
            found = mixture._mean_inclusions(np.empty(0, np.int64), size, np.arange(3), post)
        assert sorted(set(asked)) == ([0, 1, 2] if case == "rounding matters" and size else [])
        assert found == pytest.approx(expected, abs=1e-10)
        assert mixture.inclusion_probabilities(size) == pytest.approx(expected, abs=1e-10)
        assert found.sum() == pytest.approx(size, abs=1e-9)
        assert not found[[7, 40]].any()


def test_sizes_of_shared_ties_from_the_eigenvalues_of_the_whole_kernel():
    """|S| is a sum of independent variables, one per eigenvalue of K: items of all probabilities, from 1e-6 to 0.99."""
    rng = np.random.default_rng(4)
    odds = np.exp(rng.normal(-4, 3, (3, 300)).clip(-14, 5))
    X, W = rng.standard_normal((300, 8)) / 3, np.kron(np.eye(4), [[0.2, 1.0], [-1.0, 0.0]])
    mixture = Mixture.tied(odds, X, W, [0.2, 0.3, 0.5])
    expected = np.zeros(301)
    for weight, row in zip(mixture.weights, odds):
        L = np.sqrt(row[:, None] * row) * (np.eye(300) + X @ W @ X.T)
        expected += weight * law_of_sum(np.linalg.eigvals(np.eye(300) - np.linalg.inv(np.eye(300) + L)))
    assert mixture.size_distribution() == pytest.approx(expected, abs=3e-14)


def test_files_and_pickles(tmp_path):
    values, X, W, weights = parts("several", "generic")
    labels, names = list("abcdef"), ["one", "two", "three"]
    shared = Mixture.tied(values, X, W, weights, names=names, labels=labels)
    for mixture in (shared, shared.condition([1]), Mixture(list(shared.components)[:2], [0.5, 0.5])):
        ndpp.save(mixture, tmp_path / "m.safetensors", metadata={"note": 1})
        for again in (ndpp.load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(mixture))):
            assert type(again) is type(mixture)
            assert (again.names, again.labels) == (mixture.names, mixture.labels)
            assert again.weights.tolist() == mixture.weights.tolist()
            assert again.log_prob([0, 2]) == pytest.approx(mixture.log_prob([0, 2]), rel=1e-13)  # sums in another order
        assert ndpp.load_metadata(tmp_path / "m.safetensors") == {"note": 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": [0.5, 0.6]}, "sum to one; these sum to 1.1"),
        ({"weights": [1.5, -0.5]}, "the least is -0.5"),
        ({"weights": [0.5, np.nan]}, "must be finite"),
        ({"weights": [1.0]}, "one weight per component; got 1 for 2"),
        ({"names": ["a"]}, "names must be 2"),
        ({"names": ["a", "a"]}, "distinct"),
    ],
)
def test_bad_mixtures(arguments: dict, message: str):
    kernel = LowRankKernel(np.eye(3), np.eye(3))
    weights = arguments.get("weights", [0.5, 0.5])
    with pytest.raises(InvalidInputError, match=message):
        Mixture([kernel, kernel], weights, names=arguments.get("names"))
    with pytest.raises(InvalidInputError, match=message):
        Mixture.tied(np.ones((2, 3)), np.eye(3), np.eye(3), weights, names=arguments.get("names"))


def test_bad_components():
    kernel = LowRankKernel(np.eye(3), np.eye(3))
    with pytest.raises(InvalidInputError, match="one catalogue; component 0 has 3 items, component 1 has 2"):
        Mixture([kernel, LowRankKernel(np.eye(2), np.eye(2))], [0.5, 0.5])
    with pytest.raises(InvalidInputError, match="with other labels"):
        Mixture([kernel, LowRankKernel(np.eye(3), np.eye(3), labels=list("abc"))], [0.5, 0.5])
    with pytest.raises(InvalidInputError, match="component 0 is a ndarray"):
        Mixture([np.eye(3)], [1.0])
    with pytest.raises(InvalidInputError, match="one weight per component; got 0 for 0"):
        Mixture([], [])
    with pytest.raises(InvalidInputError, match="component 1 and item 0 are -1"):
        Mixture.tied([[1.0, 1.0], [-1.0, 1.0]], np.eye(2), np.eye(2), [0.5, 0.5])
    for bad in ([[1.0, np.inf], [1.0, 1.0]], [[1.0, 1.0, 1.0]] * 2):
        with pytest.raises(InvalidInputError, match="odds must"):
            Mixture.tied(bad, np.eye(2), np.eye(2), [0.5, 0.5])


def test_what_cannot_be():
    mixture = tied("disjoint items", "generic")
    with pytest.raises(ZeroProbabilityError, match="probability zero of being in a sample together"):
        mixture.inclusion_probabilities(given=[0, 2])
    with pytest.raises(ImpossibleSizeError, match="no set is larger than 2 items; size 3"):
        mixture.responsibilities([0], size=3)
    with pytest.raises(ImpossibleSizeError, match="no set is larger than 2 items; size 3"):
        mixture.log_prob([0, 1, 2], 3)
    with pytest.raises(ImpossibleSizeError, match="2 are given, but size is 1"):
        mixture.inclusion_probabilities(1, [0, 1])
    assert mixture.log_prob([0, 2]) == -np.inf
    with pytest.raises(InvalidInputError, match="component is for mixtures, and this is a single kernel; got 'party'"):
        mixture.base.sample(1, component="party")


def test_a_mission_without_weight_and_a_catalogue_of_one_item():
    mixture = Mixture.tied([[1.0], [3.0]], [[0.0]], [[1.0]], [1.0, 0.0], names=["used", "unused"])
    assert mixture.inclusion_probabilities().tolist() == [0.5]
    assert mixture.responsibilities([0]).tolist() == [1.0, 0.0]
    assert mixture.condition([]).weights.tolist() == [1.0, 0.0]
    with pytest.raises(InvalidInputError, match="nothing is left"):
        mixture.condition([0])
    assert mixture.sample(3, size=1, rng=0).to_lists() == [[0]] * 3
    assert mixture.sample(2, given=[0], component="unused", rng=0).to_lists() == [[0], [0]]
    with pytest.raises(InvalidInputError, match="unknown label 'other'"):
        mixture.sample(component="other")


@pytest.mark.parametrize("kind", [TiedMixture, FamilyMixture])
def test_a_rare_size_is_computed_once_and_its_precision_said_each_time(kind, monkeypatch):
    rng, weights = np.random.default_rng(0), [0.2, 0.3, 0.5]
    odds, X = np.exp(rng.normal(-3, 1, (3, 20))), rng.normal(size=(20, 4)) / 4
    law = Mixture.tied(odds, X, np.eye(4), weights)
    if kind is FamilyMixture:
        law = FamilyMixture(
            odds[:, :10], np.ones((20, 1)), np.arange(20) // 2, np.arange(10), X[:10], np.eye(4), weights
        )
    first = law.log_prob(range(14), 14)
    assert law.size_distribution()[14] < RARE_SIZE
    monkeypatch.delattr(kind, "single" if kind is TiedMixture else "_log_chances")
    assert law.log_prob(range(14), 14) == first
    law._rare_sizes[14][1] = 1e-7
    for _ in range(2):
        with pytest.warns(PrecisionWarning, match="sets of size 14"):
            law.log_prob(range(14), 14)


def test_a_component_in_which_a_size_is_lost_in_rounding_does_not_stop_the_others():
    D = np.random.default_rng(0).normal(size=(6, 6))
    plain = LowRankKernel(np.eye(6), np.eye(6))
    mixture = Mixture([LowRankKernel(np.eye(6), D - D.T + 1e-15 * np.eye(6)), plain], [0.5, 0.5])
    assert mixture.log_normalizer(3) == pytest.approx(np.log(0.5) + np.log(20 / 64))
    assert mixture.inclusion_probabilities(3) == pytest.approx(np.full(6, 0.5))
    assert mixture.sample(5, size=3, rng=0).sizes.tolist() == [3] * 5
