"""The old name of :mod:`ndpp_experiments.registry`. It will be removed in version 0.3."""

from ndpp._lazy import renamed

__getattr__ = renamed(__name__, moved_to="ndpp_experiments.registry")
