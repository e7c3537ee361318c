"""The log: lines for people or JSON for machines, each with the id of the request it belongs to."""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from app.infra.outages import WithoutOutages
from app.settings import Settings

__all__ = ["configure", "request_id"]

request_id: ContextVar[str] = ContextVar("request_id", default="-")
"""The id of the current request; threads that work for it inherit it."""

_PAINTED = "color_message"
"""The field that uvicorn adds for a terminal: its message again, with codes for colours."""
_FIELDS = "%(asctime)s %(levelname)s %(name)s %(request_id)s %(message)s"


class _RequestId(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.get()
        return True


class _JsonLines(JsonFormatter):
    """A JSON object a line, with times in UTC as RFC 3339 has them, and no codes for colours."""

    def __init__(self) -> None:
        super().__init__(
            _FIELDS,
            rename_fields={"asctime": "time", "levelname": "level"},
            reserved_attrs=[*RESERVED_ATTRS, _PAINTED],
        )

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        del datefmt
        moment = datetime.fromtimestamp(record.created, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def configure(settings: Settings) -> None:
    """Send the log to standard error as the settings say.

    What fails because a store is away is in the log at the level of debugging alone.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_RequestId())
    if settings.log_level != "debug":
        handler.addFilter(WithoutOutages())
    handler.setFormatter(
        _JsonLines() if settings.log_format == "json" else logging.Formatter(_FIELDS)
    )
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # They log whole URLs, and those of receivers and downloads may hold secrets.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
