"""The old name of :mod:`ndpp.laws.kernel`. It will be removed in version 0.3."""

from ndpp._lazy import moved

__getattr__ = moved("ndpp.kernel", "ndpp.laws.kernel")
