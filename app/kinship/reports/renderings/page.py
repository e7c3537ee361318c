"""A report as one page: it loads nothing, runs nothing, and prints.

Names come from strangers. Jinja escapes every value, and characters that cannot be seen, or turn
the direction of a line, are written out.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.kinship.reports.wording import (
    bytes_text,
    count_text,
    moment_text,
    period_text,
    share_text,
)
from modelkin._terminal_text import one_line
from modelkin.core.fingerprints.chance import power_of_ten
from modelkin.types.reports import Report

__all__ = ["MAX_SHOWN", "STYLE_SOURCE", "page"]

_TEMPLATES: Final = Path(__file__).parent / "templates"
_STYLE: Final = (_TEMPLATES / "report.css").read_text().removesuffix("\n")
_DIGEST: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
STYLE_SOURCE: Final = f"'sha256-{_DIGEST}'"
"""The one style that a page may have, as a content security policy names it."""

MAX_SHOWN: Final = 500
"""Rows of each table that the page shows: a longer one is read by a program."""


def page(report: Report, rows: Mapping[str, int]) -> bytes:
    """The page of a report, in UTF-8.

    Args:
        report: with the first rows of each table, or with all.
        rows: how many rows each table has.
    """
    text = _environment.get_template("report.html").render(
        report=report,
        period=period_text(report.since, report.until),
        most=MAX_SHOWN,
        rows=rows,
    )
    return text.encode()


def _clean(value: Any) -> Any:
    """A value of a template as it is written: texts with what cannot be seen made visible."""
    return one_line(value) if type(value) is str else value


def _made_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_clean,
    )
    environment.filters |= {
        "bytes": bytes_text,
        "moment": moment_text,
        "share": share_text,
        "chance": power_of_ten,
    }
    environment.globals["count"] = count_text
    return environment


_environment: Final = _made_environment()
