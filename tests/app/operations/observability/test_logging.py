"""The lines of the log, as a collector of logs reads them."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.operations.observability.logging import configure
from tests.support.app.harness import settings_of


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a log of JSON has written so far."""
    root, stream = logging.getLogger(), io.StringIO()
    level = root.level
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(sys, "stderr", stream)
    configure(settings_of(tmp_path, log_format="json"))
    yield stream
    root.setLevel(level)


def test_times_have_a_zone(written: io.StringIO) -> None:
    """They are in UTC with a Z, as RFC 3339 has them, to the millisecond."""
    logging.getLogger("app").warning("now")
    said = json.loads(written.getvalue())["time"]
    assert (said[10], said[-1], 24) == ("T", "Z", len(said))
    assert abs(datetime.fromisoformat(said) - datetime.now(UTC)) < timedelta(minutes=1)


def test_codes_for_colours_stay_out(written: io.StringIO) -> None:
    """uvicorn sends its messages once more with such codes, which no collector reads."""
    logging.getLogger("uvicorn.error").warning(
        "Started server process [%d]", 7, extra={"color_message": "[\x1b[36m%d\x1b[0m]"}
    )
    assert "Started server process [7]" == json.loads(written.getvalue())["message"]
    assert "u001b" not in written.getvalue()
