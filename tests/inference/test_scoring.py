"""What kernels and mixtures compute fast is what any law computes from its probabilities, set by set."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import ndpp
from ndpp.errors import ZeroProbabilityError
from ndpp.laws.law import Law
from ndpp.laws.scoring import Scoring

N = 6


def laws() -> dict[str, Law]:
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((N, 4)), np.eye(4)
    W[0, 1], W[1, 0] = 0.7, -0.7
    kernel, background = ndpp.LowRankKernel(X, W), ndpp.LowRankKernel(X, W, background=rng.uniform(0, 1, N))
    tied = ndpp.Mixture.tied(rng.uniform(0, 2, (3, N)), X / 2, W, [0.5, 0.3, 0.2])
    mixture = ndpp.Mixture([kernel, background], [0.4, 0.6])
    found = {"kernel": kernel, "background": background, "part": kernel.exclude([2]), "mixture": mixture, "tied": tied}
    return found | {f"{name}, not empty": law.without_empty() for name, law in found.items()}


@pytest.fixture(params=laws())
def law(request: pytest.FixtureRequest) -> Law:
    return laws()[request.param]


def test_scores_and_swaps(law: Law):
    fast, plain = law._scoring, Scoring(law)
    for size in range(4):
        for basket in combinations(range(N), size):
            ids = np.array(basket, np.int64)
            try:
                wanted = plain.next_scores_of(ids)
            except ZeroProbabilityError:
                with pytest.raises(ZeroProbabilityError):
                    fast.next_scores_of(ids)
                continue
            np.testing.assert_allclose(fast.next_scores_of(ids), wanted, rtol=1e-9, atol=1e-12)
            if size:
                swaps, others = fast.swap_ratios(ids), np.setdiff1d(range(N), ids)
                np.testing.assert_allclose(swaps[:, others], plain.swap_ratios(ids)[:, others], rtol=1e-8, atol=1e-10)


def test_bounds_hold(law: Law):
    sets = [list(S) for S in combinations(range(N), 3) if 4 in S]
    top = float((law.log_probs(sets) + law.log_normalizer()).max())
    for scoring in (law._scoring, Scoring(law)):
        assert scoring.bound(np.array([4]), 3) >= top - 1e-9
    assert law._scoring.bound(np.array([4]), 3) < np.inf


def test_greedy_runs_from_scores_alone(law: Law, monkeypatch: pytest.MonkeyPatch):
    """A law without a fast way takes the same steps, with limits, windows, candidates and given items."""
    asked = [
        {}, {"given": [1]}, {"candidates": [0, 3, 4, 5]}, {"window": 2}, {"limits": ndpp.Limit([0, 1, 3], most=1)},
        {"given": [4], "limits": ndpp.Limit([0, 1], least=1, most=1)},
    ]  # fmt: skip
    wanted = [ndpp.greedy_map(law, 3, **options).tolist() for options in asked]
    best = ndpp.best_set(law, 3, n_samples=20)
    monkeypatch.setattr(type(law), "_scoring", property(Scoring))
    assert [ndpp.greedy_map(law, 3, **options).tolist() for options in asked] == wanted
    assert ndpp.best_set(law, 3, n_samples=20).items.tolist() == best.items.tolist()
