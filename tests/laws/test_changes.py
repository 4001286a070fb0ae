"""New items, items that leave, other names: every kind of law, beside enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import logit

import families
import mixtures
import ndpp
import oracles
from kernels import BY_NAME
from ndpp import LowRankKernel
from ndpp.errors import InvalidInputError, UnknownItemError, UnknownLabelError, ZeroProbabilityError
from ndpp.laws.frame import FeatureMap

OLD = ("a", "b", "c", "d", "e", "f")
LIKE = {"x": ["a", "c"], "y": {"b": 3.0, "e": 1.0}, "z": ["d"]}
SHARES = {"x": 0.3, "y": 0.02, "z": 0.6}


def _kernel(name, background=None):
    case = BY_NAME[name]
    return LowRankKernel(case.X[:6], case.W, background=background)


def _mixtures(average):
    """Return an average of a mixture with ties, one over families and a kernel."""
    laws = mixtures.tied("several", "generic"), families.CASES["several"].law(), _kernel("generic", DELTA)
    catalogue = ndpp.laws.catalogue.Catalogue(6)
    return average([law.named(catalogue) for law in laws], [0.5, 0.3, 0.2])


DELTA = [0.5, 0.2, 0.0, 1.0, 0.3, 0.1]
PLAIN = {
    "kernel": lambda: _kernel("generic"),
    "symmetric": lambda: LowRankKernel(BY_NAME["generic"].X[:6]),
    "background": lambda: _kernel("generic", DELTA),
    "skew background": lambda: _kernel("purely skew", [0.5, 0.2, 0.7, 1.0, 0.3, 0.1]),
    "part of the catalogue": lambda: _kernel("generic", DELTA).exclude([5]),
    "mixture": lambda: mixtures.general("several", "generic"),
    "tied": lambda: mixtures.tied("several", "generic"),
    "tied, excluded": lambda: mixtures.tied("several", "duplicate rows").exclude([5]),
    "families": lambda: families.CASES["several"].law(),
    "mixture of mixtures": lambda: _mixtures(ndpp.Mixture),
    "pooled": lambda: _mixtures(ndpp.Mixture.pooled),
}
KINDS = {
    f"{name}{', nonempty' * nonempty}": (make, nonempty)
    for (name, make), nonempty in product(PLAIN.items(), (False, True))
}


def law_of(kind):
    make, nonempty = KINDS[kind]
    law = make().named(ndpp.laws.catalogue.Catalogue(6, OLD))
    return law.without_empty() if nonempty else law


def probabilities(law):
    """P(S) of all sets, by bit mask."""
    return np.exp(law.log_probs([list(S) for S in oracles.subsets(law.n_items)]))


def shares(law):
    """P(a ∈ S), by enumeration."""
    found = probabilities(law)
    return np.array([sum(p for S, p in zip(oracles.subsets(law.n_items), found) if a in S) for a in range(law.n_items)])


every = pytest.mark.parametrize("kind", KINDS)


@every
def test_new_items_have_their_shares_and_leave_the_others_as_they_were(kind):
    law = law_of(kind)
    extended = law.add_items(LIKE, SHARES, keep="sets")
    assert type(extended) is type(law)
    assert extended.labels == (*OLD, "x", "y", "z")
    assert extended.nonempty == law.nonempty
    assert probabilities(extended).sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(shares(extended)[6:], list(SHARES.values()), rtol=1e-9)
    np.testing.assert_allclose(extended.inclusion_probabilities(), shares(extended), rtol=1e-9, atol=1e-12)
    back = extended.restrict(OLD)
    subsets = [list(S) for S in oracles.subsets(6)]
    np.testing.assert_allclose(np.exp(back.log_probs(subsets)), probabilities(law), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(
        np.exp(extended.remove(["x", "y", "z"]).log_probs(subsets)), probabilities(law), rtol=1e-9, atol=1e-14
    )


@every
def test_items_that_leave_are_excluded(kind):
    law = law_of(kind)
    left = law.remove(["b", "d"])
    assert left.labels == ("a", "c", "e", "f")
    subsets = [list(S) for S in oracles.subsets(4)]
    ids = np.array([0, 2, 4, 5])
    wanted = np.exp(law.exclude(["b", "d"]).log_probs([ids[S].tolist() for S in subsets]))
    np.testing.assert_allclose(np.exp(left.log_probs(subsets)), wanted, rtol=1e-9, atol=1e-14)
    assert law.remove([]) is law


@every
def test_other_names(kind):
    law = law_of(kind)
    law.sample(1, rng=0)  # keeps a sampler, whose baskets have the old labels
    renamed = law.rename({"a": "b", "b": "a", "c": "sea"})
    assert renamed.labels == ("b", "a", "sea", "d", "e", "f")
    assert law.labels == OLD
    np.testing.assert_array_equal(probabilities(renamed), probabilities(law))
    assert renamed.sample(3, rng=0).labels == renamed.labels
    assert [set(S) for S in renamed.sample(9, rng=0).to_lists()] == [set(S) for S in law.sample(9, rng=0).to_lists()]


def chances(law):
    """P_c(a ∈ S) of each component, the empty set included, by enumeration."""
    return np.array([shares(law.with_empty().components[c]) for c in range(len(law.weights))])


@pytest.mark.parametrize("kind", ["tied", "tied, nonempty", "families"])
def test_a_new_item_has_mean_log_odds_and_no_ties(kind):
    """In each component it is independent of the others, and its log-odds are means of those of P_c(a ∈ S), but for one number."""
    law = law_of(kind)
    extended = law.add_items({"x": {"a": 3.0, "b": 1.0}}, 0.2)
    before, after = logit(chances(law)), logit(chances(extended))
    levels = after[:, 6] - (0.75 * before[:, 0] + 0.25 * before[:, 1])
    np.testing.assert_allclose(levels, levels[0], rtol=1e-9)
    for c in range(len(law.weights)):
        one = extended.with_empty().components[c]
        both = np.array([np.exp(one.log_containment([a, "x"])) for a in OLD])
        alone = [np.exp(one.log_containment([a])) * np.exp(one.log_containment(["x"])) for a in OLD]
        np.testing.assert_allclose(both, alone, rtol=1e-9)


@pytest.mark.parametrize("kind", ["tied", "tied, nonempty", "families", "families, nonempty"])
def test_what_baskets_have_of_the_others_stays(kind):
    """The distribution of S ∩ old items, given that it is not empty if it could not be, from all sets."""
    law = law_of(kind)
    extended = law.add_items(LIKE, SHARES)
    np.testing.assert_allclose(shares(extended)[6:], list(SHARES.values()), rtol=1e-9)
    beside = dict.fromkeys([tuple(S) for S in oracles.subsets(6)], 0.0)
    for S, p in zip(oracles.subsets(9), probabilities(extended)):
        beside[tuple(i for i in S if i < 6)] += p
    found = np.array([*beside.values()])
    found[0] *= not law.nonempty
    np.testing.assert_allclose(found / found.sum(), probabilities(law), rtol=1e-9, atol=1e-14)
    # Negative control: if sets keep their probabilities, the others do not keep their shares.
    other = shares(law.add_items(LIKE, SHARES, keep="sets"))[:6]
    assert np.abs(other / shares(law) - 1).max() > 1e-2


@pytest.mark.parametrize("kind", ["kernel", "mixture"])
def test_mixtures_of_kernels_keep_the_weights_of_components(kind):
    law = law_of(kind)
    extended = law.add_items(LIKE, SHARES)
    np.testing.assert_allclose(shares(extended)[6:], list(SHARES.values()), rtol=1e-9)
    np.testing.assert_allclose(extended.weights, law.weights)
    with pytest.raises(InvalidInputError, match="'sets' or 'shares'"):
        law.add_items(LIKE, keep="weights")


@pytest.mark.parametrize("keep", ["sets", "shares"])
@pytest.mark.parametrize("kind", ["tied", "tied, nonempty", "families"])
def test_what_was_computed_before_is_right_for_new_items(kind, keep, tmp_path):
    """N_c, log Z_c and moments of sizes are carried over, not computed again: they are those of the same law made afresh."""
    plain, ready = law_of(kind), law_of(kind).prepared()
    found, wanted = (law.add_items(LIKE, SHARES, keep=keep) for law in (ready, plain))
    assert found._kept
    assert not wanted._kept
    ndpp.save(wanted, tmp_path / "law.safetensors")  # without what was computed
    afresh = ndpp.load(tmp_path / "law.safetensors").prepared()
    for name, error in (
        ("marginals", 1e-9),
        ("log_touched", 1e-9),
        ("size_moments", 1e-6),
        ("forms", 1e-9),
        ("gaps", 1e-5),
    ):
        np.testing.assert_allclose(found._kept[name], afresh._kept[name], rtol=error, atol=1e-12)
    np.testing.assert_allclose(probabilities(found), probabilities(wanted), rtol=1e-9)
    if kind != "families":
        known = plain.normalized().add_items(LIKE, SHARES, keep=keep)._kept["log_normalizers"]
        np.testing.assert_allclose(known, afresh.log_normalizers(), rtol=1e-9)


def test_many_new_items_are_one_small_problem():
    """Hundreds of items at once, in either way, without the correlations of all pairs under ties."""
    rng, C, n = np.random.default_rng(0), 20, 300
    odds = np.exp(rng.normal(-5, 1.5, (C, n)))
    law = ndpp.Mixture.tied(
        odds,
        rng.normal(0, 0.3, (n, 4)),
        np.kron(np.eye(2), [[0, 1], [-1, 0]]),
        np.full(C, 1 / C),
        labels=[f"old {i}" for i in range(n)],
    ).without_empty()
    law.mean_covariances = None  # would be called for correlations
    wanted = dict(zip([f"new {i}" for i in range(200)], rng.uniform(0.001, 0.05, 200).tolist()))
    like = {label: {f"old {j}": 1.0 for j in rng.permutation(n)[:3]} for label in wanted}
    for keep in ("sets", "shares"):
        extended = law.add_items(like, wanted, keep=keep)
        np.testing.assert_allclose(extended.inclusion_probabilities()[n:], list(wanted.values()), rtol=1e-9)


def test_a_kernel_item_is_the_mean_of_those_it_is_like():
    law = law_of("background")
    X, W, p = law.X, law.W, law.inclusion_probabilities()
    extended = law.add_items({"x": ["a", "d"]}, 0.1)
    odds = (p / (1 - p))[[0, 3]]
    sign = 1 if X[0] @ X[3] > 0 else -1
    row, delta = (X[0] / np.sqrt(odds[0]) + sign * X[3] / np.sqrt(odds[1])) / 2, np.mean(np.array(DELTA)[[0, 3]] / odds)
    factor = extended.background[6] / delta
    rows = np.vstack([X, np.sqrt(factor) * row])
    L = rows @ W @ rows.T + np.diag([*DELTA, factor * delta])
    np.testing.assert_allclose(probabilities(extended), [*oracles.enumerate_law(L).values()], rtol=1e-9, atol=1e-14)


def test_the_sign_of_a_row_means_nothing():
    odds, X, W, weights = mixtures.parts("several", "generic")
    flipped = X * np.array([1, 1, -1, 1, 1, 1])[:, None]
    laws = [ndpp.Mixture.tied(odds, x, W, weights, labels=OLD).add_items(LIKE, SHARES) for x in (X, flipped)]
    np.testing.assert_allclose(probabilities(laws[0]), probabilities(laws[1]), rtol=1e-9)


def test_new_items_are_alone_in_their_families():
    law = law_of("families")  # families {a, c, f}, {b, e} and {d}
    extended = law.add_items({"same": ["a", "f"], "alone": ["d"], "between": ["a", "b"]}, 0.1)
    np.testing.assert_array_equal(extended.patterns.families, [0, 1, 0, 2, 1, 0, 3, 4, 5])
    left = extended.remove(["b", "e", "between"])  # a family goes, and its states
    assert left.base.n_items == 4
    np.testing.assert_allclose(
        shares(left), shares(extended.exclude(["b", "e", "between"]))[[0, 2, 3, 5, 6, 7]], rtol=1e-9
    )


@every
def test_by_default_an_item_is_as_popular_as_those_it_is_like(kind):
    law = law_of(kind)
    p = shares(law)
    found = shares(law.add_items(LIKE, {"z": 0.05}))[6:]
    np.testing.assert_allclose(found, [(p[0] + p[2]) / 2, (3 * p[1] + p[4]) / 4, 0.05], rtol=1e-9)


@every
def test_other_shares(kind):
    law = law_of(kind)
    tilted = law.tilt_to({"d": 0.3, "a": 0.11})
    np.testing.assert_allclose(shares(tilted)[[3, 0]], [0.3, 0.11], rtol=1e-9)
    others = [list(S) for S in oracles.subsets(6) if not {0, 3} & set(S)]
    np.testing.assert_allclose(
        np.exp(tilted.exclude([0, 3]).log_probs(others)),
        np.exp(law.exclude([0, 3]).log_probs(others)),
        rtol=1e-9,
        atol=1e-14,
    )
    assert law.tilt_to({}) is law


def test_many_copies_of_one_item():
    """Items of one mission depend on each other strongly: the search still ends, and is exact."""
    odds = np.array([[9.0, 1e-3], [1e-3, 1e-3]])
    law = ndpp.Mixture.tied(odds, [[0.3, 0.1], [0.0, 0.5]], [[0, 1], [-1, 0]], [0.02, 0.98], labels=["a", "b"])
    wanted = np.linspace(0.01, 0.04, 8)
    extended = law.add_items({f"copy {i}": ["a"] for i in range(8)}, {f"copy {i}": p for i, p in enumerate(wanted)})
    np.testing.assert_allclose(shares(extended)[2:], wanted, rtol=1e-9)


def test_other_weights_would_not_do():
    """Negative control: with the weights of before, the law of the old items is another one."""
    law = law_of("tied")
    extended = law.add_items(LIKE, SHARES, keep="sets")
    wrong = extended.framed(extended.frame.weighted(law.weights))
    subsets = [list(S) for S in oracles.subsets(6)]
    assert np.abs(np.exp(wrong.restrict(OLD).log_probs(subsets)) - probabilities(law)).max() > 1e-3


def test_what_files_keep(tmp_path):
    for kind in ("tied", "families", "tied, nonempty", "kernel", "mixture"):
        law = law_of(kind).prepared()
        extended = law.add_items(LIKE, SHARES).remove(["b"]).rename({"x": "ex"})
        ndpp.save(extended, tmp_path / "law.safetensors")
        loaded = ndpp.load(tmp_path / "law.safetensors")
        assert loaded.labels == ("a", "c", "d", "e", "f", "ex", "y", "z")
        np.testing.assert_allclose(probabilities(loaded), probabilities(extended), rtol=1e-12)
        np.testing.assert_allclose(shares(loaded), loaded.inclusion_probabilities(), rtol=1e-9)
        assert bool(getattr(loaded, "_kept", False)) == bool(getattr(law, "_kept", False))


def test_context_stays():
    law = law_of("tied").with_context({"hour": ("8", "20")}, np.log([[4.0, 1.0, 2.0], [1.0, 4.0, 0.5]]))
    subsets = [list(S) for S in oracles.subsets(6)]
    added = law.add_items(LIKE, SHARES, keep="sets")
    for changed in (added, added.remove(["x"]), law.rename({"a": "A"})):
        back = changed.at(hour=8).restrict(range(6))
        np.testing.assert_allclose(np.exp(back.log_probs(subsets)), probabilities(law.at(hour=8)), rtol=1e-9)


@pytest.mark.parametrize("kind", ["tied", "tied, nonempty", "families"])
def test_items_by_features(kind, tmp_path):
    """Log-odds are those of an item with the row f · matrix and log-odds (f, 1) · matrix; also beside others, and from a file."""
    law, rng = law_of(kind), np.random.default_rng(0)
    ties = rng.standard_normal((3, len(law.base.X))) @ law.base.X  # rows that those of the others span
    law = law.with_features(FeatureMap(ties, rng.standard_normal((4, 3))))
    new = {"u": [1.0, 0.0, 2.0], "v": [0.0, 1.0, 1.0]}
    extended = law.add_items({"x": ["a"]}, {"x": 0.1, "u": 0.2, "v": 0.3}, features=new, keep="sets")
    assert extended.labels == (*OLD, "x", "u", "v")
    np.testing.assert_allclose(shares(extended)[6:], [0.1, 0.2, 0.3], rtol=1e-9)
    subsets = [list(S) for S in oracles.subsets(6)]
    np.testing.assert_allclose(
        np.exp(extended.restrict(OLD).log_probs(subsets)), probabilities(law), rtol=1e-9, atol=1e-14
    )
    ties, log_odds = law.features.of(new)
    X, W, alone = law.base.X, law.base.W, log_odds.copy()
    for c, odds in enumerate(law.touched.odds):
        N = W @ np.linalg.inv(np.eye(len(W)) + X.T @ np.diag(odds / (1 + odds)) @ X @ W)
        alone[c] += np.log1p(np.diag(ties @ N @ ties.T))
    levels = logit(chances(extended))[:, -2:] - alone
    np.testing.assert_allclose(levels, np.broadcast_to(levels[0], levels.shape), rtol=1e-7)
    ndpp.save(extended, tmp_path / "law.safetensors")
    again = ndpp.load(tmp_path / "law.safetensors").add_items(features={"w": [1.0, 1.0, 1.0]}, popularity=0.05)
    assert shares(again)[9] == pytest.approx(0.05)
    assert ndpp.laws.files.load_header(tmp_path / "law.safetensors").format_version == 7
    for features, popularity, words in [
        (new, None, "that of 'u' is None"),
        ({"u": [1.0]}, 0.1, "3 finite numbers"),
        ({"u": [1.0, np.nan, 0.0]}, 0.1, "3 finite numbers"),
        ([1.0], 0.1, "mapping"),
    ]:
        with pytest.raises(InvalidInputError, match=words):
            law.add_items(features=features, popularity=popularity)
    with pytest.raises(InvalidInputError, match="item_features"):
        law_of(kind).add_items(features=new, popularity=0.1)


def test_similar_items():
    labels = ["oat milk 1 l", "soy milk 1 l", "rye bread", "wheat bread", "tea"]
    law = LowRankKernel(np.eye(5), labels=labels)
    like = ndpp.similar_items(law, ["oat milk 2 l", "white bread"], n=2)
    assert next(iter(like["oat milk 2 l"])) == "oat milk 1 l"
    assert set(like["white bread"]) == {"rye bread", "wheat bread"}
    assert sum(like["white bread"].values()) == pytest.approx(1)
    kinds = dict(zip(labels, ["dairy", "dairy", "bread", "bread", "tea"])) | {"rolls": "bread", "soap": "drugs"}
    assert ndpp.similar_items(law, ["rolls"], by=kinds) == {"rolls": {"rye bread": 0.5, "wheat bread": 0.5}}
    vectors = dict(zip(labels, np.eye(5))) | {"chai": np.array([0, 0, 0, 0.5, 2.0])}
    assert list(ndpp.similar_items(law, ["chai"], by=vectors, n=1)["chai"]) == ["tea"]
    assert shares(law.add_items(like, 0.1))[5:] == pytest.approx([0.1, 0.1])
    assert ndpp.similar_items(law, []) == {}
    for new, by, words in [
        (["xyz"], "text", "no item is like 'xyz'"),
        (["soap"], kinds, "no item is like 'soap'"),
        (["mop"], kinds, "'mop' has none"),
        (["rolls"], "category", "must be 'text'"),
    ]:
        with pytest.raises(InvalidInputError, match=words):
            ndpp.similar_items(law, new, by)


def test_rows_that_are_not_in_memory(tmp_path):
    ndpp.save(law_of("background"), tmp_path / "law.safetensors")
    lazy, plain = (ndpp.load(tmp_path / "law.safetensors", lazy=lazy) for lazy in (True, False))
    found, wanted = (law.add_items(LIKE, SHARES).remove(["b"]) for law in (lazy, plain))
    np.testing.assert_allclose(probabilities(found), probabilities(wanted), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(
    ("like", "popularity", "error", "words"),
    [
        ({"x": ["aa"]}, None, UnknownLabelError, "aa"),
        ({"x": [17]}, None, UnknownItemError, "17"),
        ({"x": []}, None, InvalidInputError, "at least one item that 'x' is like"),
        ({"x": {}}, None, InvalidInputError, "at least one item that 'x' is like"),
        ({"x": {"a": -1.0}}, None, InvalidInputError, "weights > 0"),
        ({"x": {"a": float("nan")}}, None, InvalidInputError, "weights > 0"),
        ({"x": ["a", "a"]}, None, InvalidInputError, "repeat"),
        ({"a": ["b"]}, None, InvalidInputError, "'a' is in the catalogue already"),
        ({"": ["b"]}, None, InvalidInputError, "nonempty"),
        (["x"], None, InvalidInputError, "mapping"),
        ({"x": ["f"]}, None, ZeroProbabilityError, "'x' cannot be like 'f'"),
        ({"x": ["a", "f"]}, 0.1, ZeroProbabilityError, "'x' cannot be like 'f'"),
        ({"x": ["a"]}, 0.0, InvalidInputError, "above 0 and below 1; that of 'x' is 0.0"),
        ({"x": ["a"]}, 1, InvalidInputError, "above 0 and below 1"),
        ({"x": ["a"]}, float("nan"), InvalidInputError, "above 0 and below 1"),
        ({"x": ["a"]}, "often", InvalidInputError, "'often'"),
        ({"x": ["a"]}, {"y": 0.1}, InvalidInputError, "'y' is none of them"),
    ],
)
def test_bad_input(like, popularity, error, words):
    with pytest.raises(error, match=words):
        law_of("tied, excluded").add_items(like, popularity)


def test_more_bad_input():
    law = law_of("tied")
    with pytest.raises(InvalidInputError, match="no labels"):
        mixtures.tied("several", "generic").add_items({"x": ["a"]})
    with pytest.raises(InvalidInputError, match="all of them"):
        law.remove(OLD)
    with pytest.raises(UnknownLabelError, match="'aa'"):
        law.remove(["aa"])
    with pytest.raises(InvalidInputError, match="two items would be called 'b'"):
        law.rename({"a": "b"})
    with pytest.raises(InvalidInputError, match="two items would be called 'x'"):
        law.rename({"a": "x", "b": "x"})
    with pytest.raises(UnknownLabelError, match="'aa'"):
        law.rename({"aa": "x"})
    with pytest.raises(InvalidInputError, match="nonempty"):
        law.rename({"a": ""})
    disjoint = ndpp.Mixture.tied([[1.0, 0.0], [0.0, 1.0]], np.zeros((2, 1)), [[0.0]], [0.5, 0.5], labels=["a", "b"])
    with pytest.raises(ZeroProbabilityError, match="'x' would never occur"):
        disjoint.add_items({"x": ["a", "b"]})
    with pytest.raises(ZeroProbabilityError, match="'f' never occurs"):
        law_of("tied, excluded").tilt_to({"f": 0.1, "a": 0.2})
    with pytest.raises(InvalidInputError, match="below 1"):
        law.tilt_to({"a": 1.0})
    one = LowRankKernel([[1.0], [2.0]], labels=["a", "b"])  # no two items of a kernel of rank one occur together
    with pytest.raises(InvalidInputError, match="cannot be had together"):
        one.add_items({"x": ["a"], "y": ["b"]}, 0.7)
