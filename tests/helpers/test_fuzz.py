"""Some cases of :mod:`fuzz`; ``make fuzz`` runs as many as there is time for."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import fuzz
import fuzz_kernels
import fuzz_laws
import only_posix
from fuzz_laws import Tally
from law_conditions import Case
from law_questions import QUESTIONS
from ndpp import LowRankKernel

ONCE_WRONG = [68, 109, 151, 199, 214, 216, 223, 6032]
"""Kernels that earlier versions were silently wrong about."""


ASKED_IN_VAIN = [0, 1, 51, 57]
"""Laws under conditions, about which earlier versions raised errors, or guessed without a word."""


WRONG_ONCE = {
    1013: "log_prob", 1329: "log_containment", 2309: "log_prob", 2599: "sizes_with", 3998: "log_prob", 4293: "pair_probabilities",
    4675: "log_containment", 4961: "log_containment", 5126: "sizes_with", 5283: "log_prob", 6484: "log_prob", 7463: "sizes_with",
    20417: "component_inclusions",
}  # fmt: skip
"""Questions about laws under conditions that earlier versions answered wrongly without a word, or not at all."""


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings(action="ignore"):
        yield


@pytest.mark.parametrize(
    ("kind", "count"),
    [("models", 400), ("crafted", 150), ("folders", 200), ("customers", 300), ("baskets", 300), ("commands", 25)],
)
def test_cases(kind: str, count: int):
    failures = [failure for seed in range(count) if (failure := fuzz.run_case(kind, seed))]
    assert not failures


@pytest.mark.parametrize("seed", ONCE_WRONG)
def test_kernels_that_were_wrong_once(seed: int):
    assert fuzz.run_case("kernels", seed) is None


@pytest.mark.parametrize("seed", ASKED_IN_VAIN)
def test_conditions_that_had_no_answer_once(seed: int):
    assert fuzz.run_case("conditions", seed) is None


@pytest.mark.parametrize("seed", WRONG_ONCE)
def test_questions_that_were_answered_wrongly_once(seed: int):
    made, name = fuzz_laws.random_case(seed), WRONG_ONCE[seed]
    assert made is not None
    fuzz_laws.checked(name, lambda: QUESTIONS[name].check(made[0]), 1e-7)


def test_draws_under_conditions_have_uniform_p_values(monkeypatch: pytest.MonkeyPatch):
    """A negative control: samples of another law under the same conditions."""
    monkeypatch.setattr(Tally, "p_values", [])
    monkeypatch.setattr(fuzz_laws, "N_DRAWN", 200)
    for seed in (*range(12), 31):
        assert fuzz.run_case("draws", seed) is None
    assert len(Tally.p_values) > 6
    right = Case.ask

    def wrong(case: Case, verb: str, *args: Any, **options: Any) -> Any:
        return right(case._replace(forgets=frozenset(case.said)), verb, *args, **options)

    monkeypatch.setattr(Case, "ask", wrong)
    assert any(fuzz.run_case("draws", seed) for seed in range(12))


@only_posix.signals
@pytest.mark.parametrize(("kind", "count"), [("kills", 1), ("interrupts", 1), ("writers", 1)])
def test_processes(kind: str, count: int):
    pytest.importorskip("torch")
    failures = [failure for seed in range(count) if (failure := fuzz.run_case(kind, seed))]
    assert not failures


def test_slow_cases_fail_by_hand_but_not_in_tests(monkeypatch: pytest.MonkeyPatch):
    """A limit that every case exceeds."""
    monkeypatch.setattr(fuzz, "SLOW", -1.0)
    assert fuzz.run_case("baskets", 0) is None
    _, failures = fuzz.run(["baskets"], first=0, seconds=np.inf, count=2)
    assert [failure.seed for failure in failures] == [0, 1]
    assert all(failure.problem.endswith("s of the processor") for failure in failures)


def test_wrong_answers_are_found(monkeypatch: pytest.MonkeyPatch):
    """A negative control: a size distribution that is off by a millionth, and a kernel that warns without need."""
    right = LowRankKernel.size_distribution

    def wrong(kernel: LowRankKernel) -> np.ndarray:
        sizes = right(kernel)
        sizes[0] += 1e-6
        return sizes

    monkeypatch.setattr(LowRankKernel, "size_distribution", wrong)
    failures = [failure for seed in range(8) if (failure := fuzz.run_case("kernels", seed))]
    assert failures
    assert all("size_distribution" in failure.problem for failure in failures)


def test_kernels_are_right_and_few_harmless_ones_are_warned_about(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fuzz_kernels.Tally, "warned", [])
    monkeypatch.setattr(fuzz_kernels.Tally, "harmless", 0)
    for seed in range(60):
        assert fuzz.run_case("kernels", seed) is None
    assert fuzz_kernels.Tally.harmless > 10
    assert not [seed for seed, harmless, _ in fuzz_kernels.Tally.warned if harmless]
