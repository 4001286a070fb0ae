"""What the server tells those who run it: logs, one JSON object per line on standard error, and counters for Prometheus."""

from __future__ import annotations

import json
import logging
import os
import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

LOG = logging.getLogger("ndpp.serve")
FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable that names the folder of the counters of several processes; it must be set before this module is imported."""
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, event, and the fields passed as ``extra={"fields": …}``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


CONFIG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "ndpp.serve.operations.JsonLines"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stderr"}},
    "loggers": {
        name: {"handlers": ["stderr"], "level": "INFO", "propagate": False}
        for name in ("uvicorn", "asyncio", "ndpp.serve", "py.warnings")
    },
}
"""The logging of a server process."""


def event(name: str, *, level: int = logging.INFO, error: BaseException | None = None, **fields: object) -> None:
    """Log an event."""
    LOG.log(level, name, extra={"fields": fields}, exc_info=error)


class Metrics:
    """What one application counts. Several processes keep their counts in files of one folder, and any of them adds all up."""

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
        registry = self._registry
        if self._shared:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
