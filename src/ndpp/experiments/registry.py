"""The old name of :mod:`ndpp_experiments.registry`. It will be removed in version 0.3."""

from ndpp._lazy import moved

__getattr__ = moved("ndpp.experiments.registry", "ndpp_experiments.registry")
