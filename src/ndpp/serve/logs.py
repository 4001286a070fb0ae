"""Structured logs: one JSON object per line on standard error."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

LOG = logging.getLogger("ndpp.serve")


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
    "formatters": {"json": {"()": "ndpp.serve.logs.JsonLines"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stderr"}},
    "loggers": {
        name: {"handlers": ["stderr"], "level": "INFO", "propagate": False} for name in ("uvicorn", "ndpp.serve")
    },
}
"""The logging of a server process."""


def event(name: str, *, level: int = logging.INFO, error: BaseException | None = None, **fields: Any) -> None:
    """Log an event."""
    LOG.log(level, name, extra={"fields": fields}, exc_info=error)
