"""The old place of :mod:`ndpp_experiments`. It will be removed in version 0.3."""
