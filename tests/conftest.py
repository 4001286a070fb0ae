"""What the whole suite shares."""

from __future__ import annotations

import numpy as np
import pytest
import threadpoolctl

import laws


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run when more law checks were made than the false-alarm rate was split over."""
    made = sum(laws.checks_made.values())
    if made > laws.SUITE_CHECKS:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"{made} law checks were made; raise laws.SUITE_CHECKS ({laws.SUITE_CHECKS})", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True, scope="session")
def _one_blas_thread():
    """The matrices here are small: more threads only wait for each other."""
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(autouse=True)
def _global_random_state_is_untouched():
    """Nothing that a test calls may use numpy's global random state."""
    before = _global_random_state()
    yield
    assert before == _global_random_state(), "numpy's global random state was changed"


def _global_random_state() -> tuple[bytes, int]:
    _, keys, position, *_ = np.random.get_state()  # noqa: NPY002
    return keys.tobytes(), position
