"""The walk as a table has the transition probabilities of the samplers' own steps, and figure 1 rests on it."""

from __future__ import annotations

import numpy as np
import pytest

import goodness
from kernels import BY_NAME
from ndpp.datasets import make_kernel
from ndpp.diagnostics import exact_law, total_variation
from ndpp.errors import InvalidInputError
from ndpp.samplers import DirectUp, NaiveUp, RejectionUp, Walk
from ndpp_experiments.enumerated import enumerate_random_size, enumerate_walk
from ndpp_experiments.stored_draws import masks_of


def plain_transition(kernel, masks, size):
    """The definition, set by set: two items out uniformly, a pair in by ``NaiveUp``'s law."""
    up = NaiveUp().prepare(kernel, size)
    at = {int(mask): i for i, mask in enumerate(masks)}
    P = np.zeros((len(masks), len(masks)))
    for mask, i in at.items():
        rows = np.array([a for a in range(len(kernel.support)) if mask >> a & 1])
        out = [(a, b) for a in range(size) for b in range(a)]
        for a, b in out:
            kept = np.delete(rows, [a, b])
            for pair, p in zip(*up.law(kept)):
                if p > 0:
                    P[i, at[int((1 << kept).sum() + (1 << pair).sum())]] += p / len(out)
    return P


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_table_is_the_walk(size):
    kernel = make_kernel(7, 6, rng=1)
    walk = enumerate_walk(kernel, size)
    np.testing.assert_allclose(walk.transition, plain_transition(kernel, walk.masks, size), atol=1e-12)
    np.testing.assert_allclose(walk.law @ walk.transition, walk.law, atol=1e-14)
    law = exact_law(kernel, size)
    got = {tuple(a for a in range(7) if mask >> a & 1): p for mask, p in zip(walk.masks.tolist(), walk.law)}
    assert total_variation(law, got) < 1e-12


@pytest.mark.parametrize("up", [DirectUp(), RejectionUp(), NaiveUp()], ids=lambda up: type(up).__name__)
def test_every_up_step_draws_from_the_table(up):
    kernel, size, steps = make_kernel(6, 4, rng=3), 3, 2
    walk = enumerate_walk(kernel, size)
    start = np.array([0, 1, 2])
    draws = Walk.prepare(kernel, size=size, up=up, steps=steps, start=start).sample(600, rng=5).baskets
    counts = np.array([(masks_of(draws) == mask).sum() for mask in walk.masks])
    goodness.assert_counts(counts, walk.after(steps, walk.at(start)))
    with pytest.raises(AssertionError):  # one step is another law, and the check can see it
        goodness.assert_counts(counts, walk.after(1, walk.at(start)))


def test_total_variation_to_the_law_never_grows():
    walk = enumerate_walk(make_kernel(8, 6, rng=0), 4)
    distances = [total_variation(walk.after(t), walk.law) for t in range(12)]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-3 < distances[0]


def test_the_walk_of_random_size_is_near_the_law_of_all_sets():
    kernel = make_kernel(6, 4, rng=0)
    masks, law, walked = enumerate_random_size(kernel)
    truth = exact_law(kernel)
    assert len(masks) == len(truth)
    np.testing.assert_allclose(law.sum(), 1.0)
    np.testing.assert_allclose(walked.sum(), 1.0)
    assert 1e-9 < total_variation(law, walked) < 0.1
    sizes = np.array([mask.bit_count() for mask in masks.tolist()])
    for size in np.unique(sizes).tolist():  # the size has its exact law
        share = law[sizes == size].sum()
        np.testing.assert_allclose(walked[sizes == size].sum(), share, rtol=1e-10)
        if size > 1:  # and the set that of a walk of k² steps
            walk = enumerate_walk(kernel, size)
            last = dict(zip(walk.masks.tolist(), share * walk.after(size**2)))
            np.testing.assert_allclose(walked[sizes == size], [last[mask] for mask in masks[sizes == size].tolist()])


@pytest.mark.parametrize("name", ["purely skew", "broken pairs", "zero rows", "singular L_A"])
def test_awkward_kernels_have_tables(name):
    kernel = BY_NAME[name].kernel
    walk = enumerate_walk(kernel, 2)
    assert (walk.law > 0).all()
    np.testing.assert_allclose(walk.transition.sum(axis=1), 1.0)
    np.testing.assert_allclose(walk.transition, plain_transition(kernel, walk.masks, 2), atol=1e-12)


@pytest.mark.parametrize(("n", "size"), [(30, 10), (6, 1)])
def test_what_has_no_table_is_refused(n, size):
    with pytest.raises(InvalidInputError, match="at most 5000 sets to enumerate"):
        enumerate_walk(make_kernel(n, 12, rng=0), size)
