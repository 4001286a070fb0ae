"""Laws that double precision does not suffice for: they say so, whatever their kind, or answer rightly. And laws that nobody can change."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuzz_laws
import ndpp
from ndpp import FamilyMixture, LowRankKernel, Mixture
from ndpp.errors import ImpossibleSizeError, InvalidInputError, InvalidKernelError, PrecisionError, RowsUnavailableError

ONE = [1.0]


def of_kind(kind: str, X: Any, W: Any) -> Any:
    """P(S) ∝ det(I + X W Xᵀ)_S as a law of each kind."""
    n = len(X)
    if kind == "background":
        return LowRankKernel(X, W, background=np.ones(n))
    if kind == "tied":
        return Mixture.tied(np.ones((1, n)), X, W, ONE)
    return FamilyMixture(np.ones((1, n)), np.ones((n, 1)), range(n), range(n), X, W, ONE)


every_kind = pytest.mark.parametrize("kind", ["background", "tied", "families"])


def right_or_said(ask: Callable[[], Any], truth: list[float]) -> None:
    """The answer is right to 1e-8, or it is refused, or it comes with a warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = ask()
        except PrecisionError:
            return
    assert caught or found == pytest.approx(truth, abs=1e-8)


@every_kind
def test_a_large_direction_hides_a_small_one(kind: str):
    law = of_kind(kind, np.array([[1, 1], [2, 1], [1, 3]]) * [2.0**26, 1], np.array([[1.0, 1.0], [-1.0, 1.0]]))
    right_or_said(lambda: ndpp.next_item_scores(law, [0]), [0, 7, 10])
    right_or_said(lambda: law.inclusion_probabilities(given=[0])[1:], [73 / 84, 76 / 84])
    right_or_said(lambda: law.condition([0]).size_distribution(), [1 / 84, 17 / 84, 66 / 84])


@every_kind
def test_a_limit_given_an_item_of_a_large_direction(kind: str):
    law = of_kind(kind, np.array([[3, 1], [1, 2], [2, -1]]) * [2.0**25, 1], np.array([[2.0, 1.0], [-1.0, 1.0]]))
    truth = 10133099161583617 / 262897628247752713
    try:
        found = law.probability(ndpp.Limit([0, 1, 2], 1, 1), given=[0])
    except PrecisionError:
        return
    assert abs(found.value - truth) <= 1e-8 + 5 * found.error  # it was 0.04839, with an error of 0


@every_kind
def test_large_terms_cancel(kind: str):
    d = 2.0**-22
    W = np.array([[(1 + d) ** 2 + 1, -(2 + d)], [-(2 + d), 2]]) / d**2
    law = of_kind(kind, np.array([[1, 1], [1, 1 + d]]), W)
    right_or_said(law.size_distribution, [1 / 9, 4 / 9, 4 / 9])


@pytest.mark.parametrize(
    "seed", [*range(6), 118, 228, 320, 1021, 1035, 1341, 5461, 10129, 10352, 20200]
)  # the last were wrong once
def test_random_laws_are_right_or_say_so(seed: int):
    fuzz_laws.law_case(seed)


@pytest.mark.parametrize("scale", [1e-140, 1e-30, 1e-12, 1e12, 1e30, 1e140])
def test_one_item_of_three_at_any_scale_of_odds(scale: float):
    odds = scale * np.array([[1.0, 2.0, 3.0]])
    law = FamilyMixture(odds, np.ones((3, 1)), [0, 1, 2], [0, 1, 2], np.zeros((3, 1)), [[0.0]], ONE)
    assert law.inclusion_probabilities(1) == pytest.approx([1 / 6, 1 / 3, 1 / 2], rel=1e-8)
    assert Mixture.tied(odds, np.zeros((3, 1)), [[0.0]], ONE).inclusion_probabilities(1) == pytest.approx(
        [1 / 6, 1 / 3, 1 / 2], rel=1e-8
    )


def test_impossible_sizes_of_given_items():
    law = LowRankKernel(np.eye(3), np.eye(3), background=np.ones(3))
    with pytest.raises(ImpossibleSizeError):
        law.inclusion_probabilities(7, [0, 1, 2])


@pytest.mark.parametrize(
    "make",
    [
        lambda: LowRankKernel(np.full((3, 1), 1e155), [[1.0]]),
        lambda: LowRankKernel(np.full((3, 1), 1e300), [[1.0]]),
        lambda: LowRankKernel(np.eye(3), 1e308 * np.eye(3)),
        lambda: LowRankKernel(np.full((3, 2), 1e160), np.eye(2), background=np.ones(3)),
    ],
)
def test_kernels_beyond_double_precision_are_refused(make: Callable[[], Any]):
    with pytest.raises(InvalidKernelError, match="within double precision"):
        make()


@pytest.mark.filterwarnings("error")
def test_odds_in_single_precision():
    """All of its numbers are within the range, and none is compared with one that it cannot hold."""
    odds = np.array([[1.0, 3e38, 0.0]], np.float32)
    assert ndpp.Mixture.tied(odds, np.eye(3), np.eye(3), [1.0]).odds.dtype == np.float32


@pytest.mark.parametrize("odds", [-1.0, 1e-160, 1e160, 1e308, 5e-324])
def test_odds_have_a_range(odds: float):
    values = [[1.0, odds, 0.0]]
    with pytest.raises(InvalidInputError, match="component 0 and item 1"):
        Mixture.tied(values, np.ones((3, 1)), [[1.0]], ONE)
    with pytest.raises(InvalidInputError, match="component 0 and state 1"):
        FamilyMixture(values, np.ones((3, 1)), [0, 1, 2], [0, 1, 2], np.ones((3, 1)), [[1.0]], ONE)
    with pytest.raises(InvalidInputError, match="item 1 and state 0"):
        FamilyMixture(np.ones((1, 3)), np.transpose(values), [0, 1, 2], [0, 1, 2], np.ones((3, 1)), [[1.0]], ONE)


def test_arrays_that_change_afterwards_change_no_law():
    X, odds, item_odds, background = np.ones((3, 1)), np.ones((1, 3)), np.ones((3, 1)), np.ones(3)
    families = FamilyMixture(odds, item_odds, [0, 1, 2], [0, 1, 2], X.copy(), [[1.0]], ONE)
    laws = Mixture.tied(odds, X.copy(), [[1.0]], ONE), LowRankKernel(X.copy(), [[1.0]], background=background), families
    before = [law.log_prob([0, 2]) for law in laws]
    odds *= 740
    item_odds *= 740
    background *= 740
    assert [law.log_prob([0, 2]) for law in laws] == before


def test_an_x_that_changes_afterwards_is_noticed():
    X = np.ones((3, 1))
    kernel = LowRankKernel(X, [[1.0]], background=np.ones(3))
    X *= 740
    for ask in (lambda: kernel.log_prob([0]), lambda: kernel.condition([0])):
        with pytest.raises(RowsUnavailableError, match="has changed"):
            ask()
