"""Features of items in training: what is minimised, what rare items gain, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("torch", reason="needs torch: pip install 'ndpp[learn]'")

import torch

import ndpp
from ndpp.baskets import Baskets
from ndpp.errors import InvalidInputError
from ndpp.learning import MixtureNDPP
from ndpp.learning.families import FamilyData
from ndpp.learning.mixture import read_features
from ndpp.learning.mixture_objective import MixtureObjective
from ndpp.learning.tied import MixtureParameters

LABELS = tuple(f"{kind} {i}" for kind in ("sweet", "sour") for i in range(6))
KIND = np.repeat(np.eye(2), 6, axis=0)


def draw(n: int, seed: int) -> Baskets:
    """Two missions of six items each; the last item of each is rare."""
    rng = np.random.default_rng(seed)
    p = np.tile([0.35, 0.35, 0.35, 0.35, 0.35, 0.01], 2) * np.where(KIND[:, rng.integers(2, size=n)].T > 0, 1.0, 0.03)
    sets = [S for row in rng.random(p.shape) < p if len(S := np.flatnonzero(row))]
    made = Baskets.from_lists(sets, n_items=12)
    return Baskets._trusted(made.indptr, made.indices, 12, LABELS)


def test_the_gradient_is_that_without_features_by_the_chain_rule():
    rng, f, r, d, C = np.random.default_rng(0), 3, 2, 4, 3
    shapes = [(12,), (12, r), (12, d), (C, r), (C,), (C,), (f, r), (f, d)]
    at = MixtureParameters(*(torch.from_numpy(0.5 * rng.standard_normal(shape)) for shape in shapes))
    F = torch.from_numpy(rng.standard_normal((12, f)))
    baskets = draw(40, 0)
    data = FamilyData.of(None, baskets)
    goal = MixtureObjective(None, [0.7, 0.3], at, data, data, (F, F))
    which, n = np.arange(len(baskets)), len(baskets)
    found = goal.loss(at, which, 0)
    whole = MixtureParameters(*goal.whole(at)[:6])
    plain = MixtureObjective(None, [0.0, 0.0], whole, data, data).loss(whole, which, 0)
    for name, penalty in (("factors", 0.7), ("X", 0.3)):
        rows, free, matrix = (
            getattr(one, name) for one in (plain.gradient, at, at._replace(X=at.in_X, factors=at.in_factors))
        )
        torch.testing.assert_close(getattr(found.gradient, name), rows + 2 * penalty / n * free)
        torch.testing.assert_close(getattr(found.gradient, f"in_{name}"), F.T @ rows + 2 * penalty / n * matrix)
    torch.testing.assert_close(found.gradient.bias, plain.gradient.bias)
    sums = [(one**2).sum() for one in (at.factors, at.in_factors, at.X, at.in_X)]
    torch.testing.assert_close(found.value, plain.value + (0.7 * (sums[0] + sums[1]) + 0.3 * (sums[2] + sums[3])) / n)


@pytest.fixture(scope="module")
def fitted() -> tuple[MixtureNDPP, MixtureNDPP]:
    options = {"n_missions": 2, "rank": 2, "max_epochs": 3, "random_state": 0, "families": None}
    return MixtureNDPP(**options).fit(draw(300, 1)), MixtureNDPP(**options, item_features=KIND).fit(draw(300, 1))


def test_rare_and_new_items_follow_their_features(fitted, tmp_path):
    plain, featured = fitted
    test = draw(2000, 2)
    assert featured.score(test) > plain.score(test) - 0.01
    given = [model.law_.inclusion_probabilities(given=["sweet 0"]) for model in fitted]
    lifts = [p[5] / p[11] for p in given]  # of two rare items, one goes with sweet 0
    assert lifts[1] > 3 * lifts[0]
    ndpp.save(featured, tmp_path / "law.safetensors")
    law = ndpp.load(tmp_path / "law.safetensors")
    assert "item_features" not in ndpp.load_metadata(tmp_path / "law.safetensors")["settings"]
    new = law.add_items(features={"candy": [1.0, 0.0], "lemon": [0.0, 1.0]}, popularity=0.05)
    p = new.inclusion_probabilities(given=["sweet 0"])
    assert new.inclusion_probabilities()[12:] == pytest.approx([0.05, 0.05])
    assert p[12] > 5 * p[13]
    assert plain.law_.features is None


def test_an_updated_model_still_knows_what_features_mean(fitted):
    """A model that is updated every night still adds items by their features."""
    model, before = fitted[1], fitted[1].law_.features
    night = draw(60, 5)
    for epochs in (0, 1):
        found = ndpp.update(model, night, max_epochs=epochs, force=True)
        for kept, own in zip(found.law_.features, before):
            np.testing.assert_array_equal(kept, own)
        new = found.law_.add_items(features={"candy": [1.0, 0.0], "lemon": [0.0, 1.0]}, popularity=0.05)
        candy, lemon = new.inclusion_probabilities(given=["sweet 0"])[12:]
        assert candy > 5 * lemon


def test_kinds_of_features():
    frame = pytest.importorskip("pandas").DataFrame(KIND, index=LABELS).iloc[::-1]
    for value in (KIND, sparse.csr_array(KIND), frame, dict(zip(LABELS, KIND))):
        np.testing.assert_array_equal(read_features(value, LABELS, 12), KIND)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (KIND[:5], r"must have shape \(12, any\)|shape"),
        (KIND * np.nan, "finite"),
        (KIND * 0, "all zero"),
        (dict(zip(LABELS[:-1], KIND)), "'sour 5' has none"),
        ({label: [1.0] * (1 + (label == "sweet 1")) for label in LABELS}, "one length"),
    ],
)
def test_bad_features(features, words):
    with pytest.raises(InvalidInputError, match=words):
        MixtureNDPP(n_missions=1, item_features=features).fit(draw(30, 0))


def test_families_have_the_mean_of_their_features():
    families = dict.fromkeys(LABELS[:2], "one family")
    options = {"n_missions": 2, "rank": 2, "max_epochs": 1, "random_state": 0}
    model = MixtureNDPP(**options, families=families, item_features=KIND).fit(draw(200, 3))
    law = model.law_.add_items(features={"candy": [1.0, 0.0]}, popularity=0.1)
    assert law.base.n_items == 12
    assert law.inclusion_probabilities()[-1] == pytest.approx(0.1)


def test_a_run_is_continued(tmp_path):
    options = {"n_missions": 2, "rank": 2, "random_state": 0, "families": None, "item_features": KIND}
    whole = MixtureNDPP(**options, max_epochs=2).fit(draw(100, 4))
    path = tmp_path / "checkpoint"
    MixtureNDPP(**options, max_epochs=2, checkpoint=path).fit(draw(100, 4))
    again = MixtureNDPP(**options, max_epochs=2, checkpoint=path).fit(draw(100, 4), resume=True)
    np.testing.assert_array_equal(whole.law_.odds, again.law_.odds)


def test_single_kernels_have_none():
    with pytest.raises(InvalidInputError, match="item_features are for mixtures"):
        ndpp.fit(draw(30, 0), "ndpp", item_features=KIND)
