"""Averages of laws, as one law or as mixtures of mixtures: what is asked of one object in turn follows the law each time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from goodness import assert_law
from law_table import BASES, KIND, Base, Truth
from limit_cases import EVEN, Case, law_under
from ndpp import Baskets, Limit, Mixture
from ndpp.errors import ImpossibleLimitError

BASE = BASES[0]


def _average(names: tuple[str, ...], shares: list[float], base: Base = BASE) -> tuple[list[Any], Truth]:
    """Return laws of these kinds, and the truth of their average."""
    truths = [KIND[name].truth(base) for name in names]
    weights = np.concatenate([share * truth.weights for share, truth in zip(shares, truths)])
    tables = np.concatenate([truth.given_component for truth in truths])
    names_ = tuple(f"component {c}" for c in range(len(weights)))
    return [KIND[name].build(base) for name in names], replace(
        truths[0], weights=weights, given_component=tables, names=names_
    )


MIXTURES = "tied mixture", "families"
MADE: dict[str, tuple[Any, tuple[str, ...], list[float]]] = {
    "pooled": (Mixture.pooled, MIXTURES, [0.7, 0.3]),
    "mixture of mixtures": (Mixture, MIXTURES, [0.7, 0.3]),
    "kernel and mixture": (Mixture, ("kernel", "tied mixture"), [0.4, 0.6]),
    "pooled with a kernel": (Mixture.pooled, ("kernel", "mixture", "tied mixture"), [0.2, 0.3, 0.5]),
}
every = pytest.mark.parametrize("name", MADE)


def made(name: str) -> tuple[Any, Truth]:
    average, names, shares = MADE[name]
    laws, truth = _average(names, shares)
    return average(laws, shares), truth


def check(law: Any, truth: Truth, **options: Any) -> None:
    """Judge draws, together with further ones while they are too few to see an error."""
    said = {name: value for name, value in options.items() if name != "limits"}
    wanted, drawn = law_under(truth, Case("", options.get("limits", []), said)), law.sample(800, rng=0, **options)
    for seed in range(1, 8):
        try:
            return assert_law(drawn, wanted)
        except ValueError:
            drawn = Baskets.concat([drawn, law.sample(800, rng=seed, **options)])
    return assert_law(drawn, wanted)


ASKED: tuple[dict[str, Any], ...] = (
    {}, {"size": 3}, {"given": [1]}, {"size": 3, "given": [1], "exclude": [0]},
    {"limits": [Limit(EVEN, 1, 1)], "size": 3, "exclude": [4]}, {"limits": [Limit(range(6), least=4)], "exclude": [0], "given": [2]},
)  # fmt: skip


@every
def test_one_question_after_the_other(name: str):
    law, truth = made(name)
    nonempty = name in ("pooled", "kernel and mixture")
    if nonempty:
        law, truth = law.without_empty(), truth.without_empty()
    for options in ASKED[::-1] if nonempty else ASKED:
        check(law, truth, **options)


@every
def test_weights_share_a_memory_and_nothing_else(name: str):
    """Weights of laws and of their components differ, some are zero, and samplers for others are there already."""
    law, truth = made(name)
    if not name.startswith("pooled"):
        truth = _by_law(truth, name)
    n = len(law.weights)
    shifts = np.array([np.zeros(n), np.where(np.arange(n) % 3, -3.0, 3.0)])
    told, last = law.with_context({"store": ["usual", "other"]}, shifts), law.ask(mission=[n - 1])
    usual, other = (told.at(store=name) for name in ("usual", "other"))
    of_last = law.under(last)
    assert of_last.weights[:-1].max() == 0 < other.weights.min()
    for here, k in [(usual, 0), (other, 0), (of_last, 0), (of_last, 5), (other, 3), (usual, 3)]:
        check(here, replace(truth, weights=here.weights), **ASKED[k])


def _by_law(truth: Truth, name: str) -> Truth:
    """Return the same with a component for each law."""
    _, names, shares = MADE[name]
    sizes = [len(KIND[one].truth(BASE).weights) for one in names]
    tables = [part.sum(axis=0) / share for part, share in zip(np.split(truth.joint, np.cumsum(sizes)[:-1]), shares)]
    return replace(truth, weights=np.array(shares), given_component=np.stack(tables))


@every
def test_limits_that_no_set_keeps(name: str):
    law, _ = made(name)
    with pytest.raises(ImpossibleLimitError):
        law.sample(1, limits=Limit(EVEN, least=3), exclude=[0])


def test_limits_that_only_one_law_can_keep():
    """A kernel of rank 2 has no sets of five items; all of those that are drawn come from the other law."""
    kernel = KIND["kernel"].build(BASE)
    small = type(kernel)(kernel.X[:, :2], labels=kernel.labels)
    tied, truth = KIND["tied mixture"].build(BASE), KIND["tied mixture"].truth(BASE)
    law = Mixture([small, tied], [0.9, 0.1])
    check(law, truth, limits=[Limit(range(6), least=5)])
    check(law, truth, limits=[Limit(EVEN, least=2)], size=5)
