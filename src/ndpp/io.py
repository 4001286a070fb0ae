"""The old name of :mod:`ndpp.laws.files`. It will be removed in version 0.3."""

from ndpp._lazy import moved

__getattr__ = moved("ndpp.io", "ndpp.laws.files")
