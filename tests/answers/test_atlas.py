"""The map puts items that go with the same items next to each other, the same way every time."""

from __future__ import annotations

import numpy as np
import pytest

import ndpp
from ndpp.answers import map_of
from ndpp.answers.records import Map
from ndpp.datasets import make_kernel


def groups() -> ndpp.LowRankKernel:
    """Three groups of twenty items; those of a group have the same direction, but for a little noise."""
    rng = np.random.default_rng(0)
    X = np.repeat(np.eye(3), 20, axis=0) * rng.uniform(0.1, 0.4, (60, 1)) + 0.01 * rng.standard_normal((60, 3))
    return ndpp.LowRankKernel(X, np.array([[1.0, 1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))


def ids(found: Map) -> list[int]:
    return [one.item for one in found.items]


def test_groups_lie_apart():
    kernel = groups()
    found = map_of(kernel)
    places = np.array([(one.x, one.y) for one in found.items])[np.argsort(ids(found))].reshape(3, 20, 2)
    centres = places.mean(axis=1)
    within = np.linalg.norm(places - centres[:, None], axis=2).mean()
    between = np.linalg.norm(centres[0] - centres[1]), np.linalg.norm(centres[1] - centres[2])
    assert min(between) > 2 * within
    assert found == map_of(kernel)


def test_an_item_has_the_mission_whose_baskets_contain_it_most_often():
    odds, labels = [[3.0, 1.0, 0.1, 0.1], [0.1, 0.2, 2.0, 0.2]], ["pasta", "pesto", "beer", "crisps"]
    names = ["dinner", "party"]
    mixture = ndpp.Mixture.tied(odds, np.zeros((4, 2)), np.zeros((2, 2)), [0.9, 0.1], labels=labels, names=names)
    found = {one.item: one.mission for one in map_of(mixture).items}
    assert found == {"pasta": "dinner", "pesto": "dinner", "beer": "party", "crisps": "party"}
    assert {one.mission for one in map_of(groups()).items} == {None}


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_a_few_items(n):
    kernel = ndpp.LowRankKernel(np.eye(n), np.eye(n))
    found = map_of(kernel)
    assert sorted(ids(found)) == list(range(n))
    assert np.isfinite([(one.x, one.y) for one in found.items]).all()


def test_no_more_than_can_be_shown_and_only_what_occurs():
    kernel = make_kernel(350, 4, rng=0)
    assert (len(map_of(kernel).items), len(map_of(kernel, n=20).items)) == (300, 20)
    shelf = kernel.restrict([3, 4, 5, 6, 7])
    assert sorted(ids(map_of(shelf))) == [3, 4, 5, 6, 7]
