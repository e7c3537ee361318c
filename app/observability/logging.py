"""The log: lines for people or JSON for machines, each with the id of the request it belongs to."""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar

from pythonjsonlogger.json import JsonFormatter

from app.settings import Settings

__all__ = ["configure", "request_id"]

request_id: ContextVar[str] = ContextVar("request_id", default="-")
"""The id of the current request; threads that work for it inherit it."""

_FIELDS = "%(asctime)s %(levelname)s %(name)s %(request_id)s %(message)s"


class _RequestId(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.get()
        return True


def configure(settings: Settings) -> None:
    """Send the log to standard error as the settings say."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_RequestId())
    handler.setFormatter(
        JsonFormatter(_FIELDS, rename_fields={"asctime": "time", "levelname": "level"})
        if settings.log_format == "json"
        else logging.Formatter(_FIELDS)
    )
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # They log whole URLs, and those of receivers and downloads may hold secrets.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
