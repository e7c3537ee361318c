"""Tables as files, whole where a page shows a part: made while they are sent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from fastapi import Response

from app.infra.http.answers import streamed_answer
from app.infra.spreadsheets import Row, spreadsheet_pieces

__all__ = ["csv_file"]

_NO_LETTERS: Final = re.compile(r"[^A-Za-z0-9._-]+")


def csv_file(name: str, columns: Sequence[str], rows: Iterable[Row]) -> Response:
    """A table to keep.

    Args:
        name: of the file, without its ending; characters that some system refuses are replaced.
        rows: in the order of the file. They are asked for in a thread, after the page's own work.
    """
    safe = _NO_LETTERS.sub("-", name).strip("-.") or "modelkin"
    headers = {
        "Content-Disposition": f'attachment; filename="{safe}.csv"',
        "Cache-Control": "no-cache",
        "Vary": "Cookie",
    }
    return streamed_answer(spreadsheet_pieces(columns, rows), "text/csv; charset=utf-8", headers)
