"""What the whole suite shares."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from hypothesis import HealthCheck, settings

import goodness
from ndpp.errors import MissingExtraError

pytest.register_assert_rewrite("contract", "law_questions", "law_verbs")

# Examples that depend on the test alone, like every other seed of the suite; `make fuzz` looks for new ones.
settings.register_profile(
    "suite", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")

# A shell starts background jobs with Ctrl-C ignored, and the commands that the tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


DRAWING = ("tests/experiments/", "tests/rows/", "tests/samplers/")
QUIET = ("tests/laws/", "tests/linalg/", "tests/inference/", "tests/baskets/", "tests/datasets/")


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Let ``-n auto`` be a process more than there are processors: many tests wait for a server, a browser or another command."""
    usual = yield
    return usual if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else usual + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that draw, among them the longest, go on with those that do not, and end with all others.

    These are about a third each, and on two processors three processes take a third each. In a new checkout they would compile the same
    functions at the same time; so one compiles while the others have something else to do. The one that is done first takes over the
    last tests of another: what stands in front is not taken apart, and its fixtures are made once.
    """
    items.sort(key=lambda item: (not item.nodeid.startswith(DRAWING), not item.nodeid.startswith(QUIET)))


def pytest_collection_finish() -> None:
    """Leave what has been imported and collected, millions of objects that stay, out of every garbage collection from here on."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip what needs torch where it is not installed, and nothing else."""
    try:
        return (yield)
    except MissingExtraError as error:
        if error.package != "torch" or find_spec("torch") is not None:
            raise
        pytest.skip("needs torch: pip install 'ndpp[learn]'")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run when more law checks were made than the false-alarm rate was split over."""
    made = sum(goodness.checks_made.values())
    if hasattr(session.config, "workeroutput"):  # one of several processes: the one that started it adds up
        session.config.workeroutput["law_checks"] = made
    elif made > goodness.SUITE_CHECKS:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(
                f"{made} law checks were made; raise goodness.SUITE_CHECKS ({goodness.SUITE_CHECKS})", red=True
            )
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the law checks of a process that has ended."""
    goodness.checks_made["of another process"] += getattr(node, "workeroutput", {}).get("law_checks", 0)


@pytest.fixture(autouse=True, scope="session")
def _one_blas_thread():
    """The matrices here are small: more threads only wait for each other."""
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(autouse=True)
def _global_state_is_untouched():
    """Nothing that a test calls may use numpy's global random state, or give torch more threads, with which it may hang."""
    before = _global_random_state()
    yield
    assert before == _global_random_state(), "numpy's global random state was changed"
    if "torch" in sys.modules:
        assert sys.modules["torch"].get_num_threads() == 1, "torch was given more threads"


@pytest.fixture
def full_epochs() -> None:
    """Ask for epochs as long as a user's, where they are short: for tests of what is learned, or of the steps themselves."""


@pytest.fixture
def short_epochs(request, monkeypatch) -> None:
    """Let an epoch end after a pass of at least five steps, instead of repeating passes until there are fifty."""
    if find_spec("torch") is not None and "full_epochs" not in request.fixturenames:
        monkeypatch.setattr("ndpp.learning.trainer.MIN_STEPS", 5)


def _global_random_state() -> tuple[bytes, int]:
    _, keys, position, *_ = np.random.get_state()  # noqa: NPY002
    return keys.tobytes(), position
