"""What all samplers share: counters and monitors of draws, and what an error leaves of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from ndpp import Baskets, LowRankKernel
from ndpp.errors import BudgetExceededError, DeviceError, PartialResultError, PrecisionError
from ndpp.samplers.base import Draw, Draws, Monitor, Sampler

KERNEL = LowRankKernel(np.eye(3), np.eye(3))


@dataclass(frozen=True)
class Failing(Sampler):
    """Draws {0} a few times, and then fails."""

    kernel: LowRankKernel
    left: list[int]
    error: PartialResultError

    def draw(self, rng: np.random.Generator) -> Draw:
        if not self.left:
            raise self.error
        self.left.pop()
        return Draw(np.array([0]), {})


@pytest.mark.parametrize(
    "error", [BudgetExceededError("spins", count=3), DeviceError("lost"), PrecisionError("no digits")]
)
def test_errors_carry_what_was_drawn(error):
    with pytest.raises(type(error)) as raised:
        Failing(KERNEL, [1] * 7, error).sample(30, rng=0)
    assert raised.value.partial.baskets.to_lists() == [[0]] * 7


def test_counters_are_summed_and_monitors_are_not():
    baskets = Baskets.from_lists([[0], [1]], n_items=3)
    info = {"steps": np.array([3, 4]), "fraction": np.array([0.5, 0.25]), "trace_error": np.array([1e-9, 3e-9])}
    draws = Draws(baskets, info)
    assert draws.totals == {"steps": 7.0}
    assert draws.worst == {Monitor.FRACTION: 0.25, Monitor.TRACE_ERROR: 3e-9} == {"fraction": 0.25, "trace_error": 3e-9}
    nothing = Draws(baskets[:0], {name: values[:0] for name, values in info.items()})
    assert (nothing.totals, nothing.worst) == ({"steps": 0.0}, {})


def test_parts_that_a_device_returns_are_joined():
    lists = [[[0], [1, 2]], [[]], [[2], [0, 1], []]]
    parts = [Draws(Baskets.from_lists(part, n_items=3), {"steps": np.arange(len(part))}) for part in lists]

    class Engine:
        def draws(self, key, first, n_samples):
            yield from parts

    class OnDevice(Failing):
        engine = Engine()

    draws = OnDevice(KERNEL, [], DeviceError("lost")).sample(6, rng=0)
    assert draws.baskets.to_lists() == [basket for part in lists for basket in part]
    assert draws.info["steps"].tolist() == [0, 1, 0, 0, 1, 2]
