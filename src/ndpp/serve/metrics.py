"""Counters for Prometheus. Several worker processes keep theirs in files of one folder, and any of them adds all up."""

from __future__ import annotations

import os

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable that names the folder; it must be set before this module is imported."""
MEDIA_TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """What one application counts."""

    def __init__(self) -> None:
        self._shared = FOLDER in os.environ
        self._registry = CollectorRegistry()
        own = None if self._shared else self._registry
        self.requests = Counter("ndpp_requests", "Requests answered", ["route", "method", "status"], registry=own)
        self.seconds = Histogram(
            "ndpp_request_seconds", "Time to the end of the answer", ["route"], buckets=SECONDS, registry=own
        )
        self.reloads = Counter(
            "ndpp_model_reloads", "Replaced model files, loaded or refused", ["outcome"], registry=own
        )
        self.items = Gauge("ndpp_model_items", "Items in the catalogue", registry=own, multiprocess_mode="mostrecent")

    def text(self) -> bytes:
        """Return all of them in the text format of Prometheus."""
        if self._shared:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
            return generate_latest(registry)
        return generate_latest(self._registry)
