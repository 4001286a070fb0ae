"""What all samplers share: counters and monitors of draws, and what an error leaves of them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import threadpoolctl

import only_posix
from ndpp import Baskets, LowRankKernel
from ndpp._compiled import interruptible, njit
from ndpp.errors import BudgetExceededError, DeviceError, PartialResultError, PrecisionError
from ndpp.samplers import SpanningTrees, trees
from ndpp.samplers._dispatch import ONE_BLAS_THREAD
from ndpp.samplers.base import Draw, Draws, Monitor, Sampler, stream, stream_key, streams
from patience import HANG_SECONDS

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


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------------

INTERRUPTS = """
import faulthandler, os, signal, threading
faulthandler.dump_traceback_later(600, exit=True)  # an interrupt was lost: where are we?
import numpy as np
import ndpp
from ndpp.samplers import Cholesky, Exact, RejectionUp, Walk

kernel = ndpp.LowRankKernel(np.random.default_rng(0).normal(size=(300, 20)), np.eye(20) / 10)
skew = np.triu(np.ones((20, 20)), 1)
other = ndpp.LowRankKernel(kernel.X, np.eye(20) / 10 + (skew - skew.T) / 5)

works = {
    "Exact": Exact.prepare(kernel).sample,
    "Cholesky": Cholesky.prepare(kernel).sample,
    "RejectionUp": Walk.prepare(other, size=4, up=RejectionUp(), steps=1).sample,
    "ring": lambda n, rng: [Exact.prepare(other, size=9, given=[rng]) for _ in range(n)],
}
for name, work in works.items():
    work(20, rng=0)  # compiles
    for i in range(15):
        timer = threading.Timer(0.004 * i, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            work(10**6, rng=i)
        except KeyboardInterrupt:
            print(name)
        timer.join()
"""


@only_posix.signals
def test_an_interrupt_inside_compiled_code_is_a_keyboard_interrupt():
    done = subprocess.run([sys.executable, "-c", INTERRUPTS], capture_output=True, text=True, check=False)
    names = [name for name in ("Exact", "Cholesky", "RejectionUp", "ring") for _ in range(15)]
    assert (done.stdout.split(), done.returncode) == (names, 0), done.stderr


@only_posix.signals
def test_an_interrupt_while_libraries_are_searched_is_not_lost(monkeypatch):
    """threadpoolctl searches in a callback from C, where Python only reports an exception and goes on."""
    controller = threadpoolctl.ThreadpoolController

    def search():
        @ctypes.CFUNCTYPE(None)
        def callback() -> None:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):
                pass

        callback()
        return controller()

    monkeypatch.setattr(threadpoolctl, "ThreadpoolController", search)
    monkeypatch.setattr(ONE_BLAS_THREAD, "_modules", 0)  # as if modules had been imported since the last search
    users = ONE_BLAS_THREAD._users
    with pytest.raises(KeyboardInterrupt):
        LowRankKernel(np.eye(3), np.eye(3)).sample(3, rng=0)
    assert ONE_BLAS_THREAD._users == users
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class OutOfTimeError(Exception):
    """What somebody's signal handler raises."""


def test_numbas_disguise_of_an_interrupt_is_seen_through():
    """numba returns a value although an interrupt is pending; Python complains of that, once for each function on the way."""
    for reason, seen in (
        (KeyboardInterrupt(), KeyboardInterrupt),
        (OutOfTimeError(), OutOfTimeError),
        (None, SystemError),
    ):
        inner, outer = SystemError("inner returned a result"), SystemError("outer returned a result")
        inner.__cause__, outer.__cause__ = reason, inner
        with pytest.raises(seen), interruptible():
            raise outer


def test_it_is_seen_through_while_a_sampler_is_prepared(monkeypatch):
    def disguised(*_):
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr(trees, "soon", lambda *_: disguised)
    with pytest.raises(KeyboardInterrupt):
        SpanningTrees.prepare(np.ones((3, 3)))


ALARMS = """
import signal
import numpy as np
from ndpp import LowRankKernel
from ndpp.samplers.exact import eigenchain

class OutOfTimeError(Exception): pass

def ring(*_): raise OutOfTimeError

rng = np.random.default_rng(0)
V, B, D = rng.normal(size=(300, 10)), rng.normal(size=(300, 10)), rng.normal(size=(10, 10))
kernel = LowRankKernel.from_vbd(V, B, D)
while not eigenchain._run.overloads:
    kernel.sample(100, size=10, rng=rng)
signal.signal(signal.SIGALRM, ring)
for i in range(30):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01 + 0.001 * i)
        while True:
            kernel.sample(1000, size=10, rng=rng)
    except OutOfTimeError:
        print(i)
"""


@only_posix.signals
def test_what_a_signal_handler_raises_during_draws_arrives():
    """Handlers run in Python code, and none may run while compiled code takes its generator."""
    done = subprocess.run([sys.executable, "-c", ALARMS], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert (done.returncode, done.stdout.split()) == (0, [str(i) for i in range(30)]), done.stderr


class Broken:
    """PCG64(0) that may raise whenever it is asked for its functions."""

    def __init__(self):
        self.bits, self.error = np.random.PCG64(0), None
        self.lock = self.bits.lock

    @property
    def capsule(self):
        if self.error:
            raise self.error
        return self.bits.capsule


def test_what_a_generator_raises_arrives():
    @njit()
    def draw(rng: np.random.Generator) -> tuple[float, float, np.int64]:
        return rng.random(), rng.standard_normal(), rng.integers(0, 9)

    rng = np.random.Generator(Broken())
    same = np.random.default_rng(0)
    assert draw(rng) == (same.random(), same.standard_normal(), same.integers(0, 9))
    references = sys.getrefcount(rng.bit_generator), sys.getrefcount(rng)
    draw(rng)
    rng.bit_generator.error = OutOfTimeError()
    with pytest.raises(OutOfTimeError):
        draw(rng)
    rng.bit_generator.error = None
    assert (sys.getrefcount(rng.bit_generator), sys.getrefcount(rng)) == references


def test_streams_are_those_of_single_samples():
    """Also after draws that leave half a word over."""
    key, indices = stream_key(3), [5, 0, 2**40, 7, 2**64 - 1]
    for index, rng in zip(indices, streams(key, indices)):
        own = stream(key, index)
        for draw in (lambda g: g.random(5), lambda g: g.integers(0, 9, 3, dtype=np.int32), lambda g: g.bytes(5)):
            np.testing.assert_array_equal(draw(rng), draw(own))
