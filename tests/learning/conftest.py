"""Short epochs for tests that are not about what is learned."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


@pytest.fixture
def full_epochs() -> None:
    """Ask for epochs as long as a user's: for tests of what is learned, or of the number of steps itself."""


@pytest.fixture(autouse=True)
def _short_epochs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let epochs end after a pass of at least five steps, instead of repeating passes until there are fifty."""
    if find_spec("torch") is not None and "full_epochs" not in request.fixturenames:
        monkeypatch.setattr("ndpp.learning.fit.MIN_STEPS", 5)
