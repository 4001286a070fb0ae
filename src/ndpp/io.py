"""The old name of :mod:`ndpp.laws.files`. It will be removed in version 0.3."""

from ndpp._lazy import renamed

__getattr__ = renamed(__name__, moved_to="ndpp.laws.files")
