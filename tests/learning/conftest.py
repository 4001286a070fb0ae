"""Short epochs for tests that are not about what is learned."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _short(short_epochs: None) -> None:
    """Train in short epochs unless the test asks for full ones."""
