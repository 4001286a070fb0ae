"""The map puts items that go with the same items next to each other, the same way every time."""

from __future__ import annotations

import numpy as np
import pytest

import ndpp
from ndpp.datasets import make_kernel
from ndpp.explain import Atlas, atlas


def groups() -> ndpp.LowRankKernel:
    """Three groups of twenty items; those of a group have the same direction, but for a little noise."""
    rng = np.random.default_rng(0)
    X = np.repeat(np.eye(3), 20, axis=0) * rng.uniform(0.1, 0.4, (60, 1)) + 0.01 * rng.standard_normal((60, 3))
    return ndpp.LowRankKernel(X, np.array([[1.0, 1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))


def ids(found: Atlas) -> list[int]:
    return [one.item for one in found.items]


def test_groups_lie_apart():
    kernel = groups()
    found = atlas(kernel)
    places = np.array(found.places)[np.argsort(ids(found))].reshape(3, 20, 2)
    centres = places.mean(axis=1)
    within = np.linalg.norm(places - centres[:, None], axis=2).mean()
    between = np.linalg.norm(centres[0] - centres[1]), np.linalg.norm(centres[1] - centres[2])
    assert min(between) > 2 * within
    assert found == atlas(kernel)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_a_few_items(n):
    kernel = ndpp.LowRankKernel(np.eye(n), np.eye(n))
    found = atlas(kernel)
    assert sorted(ids(found)) == list(range(n))
    assert np.isfinite(found.places).all()


def test_no_more_than_can_be_shown_and_only_what_occurs():
    kernel = make_kernel(350, 4, rng=0)
    assert (len(atlas(kernel).items), len(atlas(kernel, n=20).places)) == (300, 20)
    shelf = kernel.restrict([3, 4, 5, 6, 7])
    assert sorted(ids(atlas(shelf))) == [3, 4, 5, 6, 7]
