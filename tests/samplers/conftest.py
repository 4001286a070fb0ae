"""What tests of walks share."""

from __future__ import annotations

from functools import wraps

import pytest

from ndpp.samplers.walk import up, up_direct, up_rejection


@pytest.fixture
def remembered(monkeypatch):
    """Make up-steps compute what depends on the kernel and the items kept once: few sets are kept, and draws do not change."""
    known = {}

    def remember(owner, name):
        original = getattr(owner, name)

        @wraps(original)
        def call(first, *args):
            key = (name, id(first), *(arg if isinstance(arg, int) else arg.tobytes() for arg in args))
            if key not in known:
                known[key] = original(first, *args), first  # holding ``first`` keeps its id from being used again
            return known[key][0]

        monkeypatch.setattr(owner, name, call)

    remember(up_direct, "condition")
    remember(up, "inclusion_matrix")
    remember(up_rejection.PreparedRejectionUp, "_step")
