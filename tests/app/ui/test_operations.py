"""The words of the pages of operations."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.infra import errors
from app.ui import operations
from app.ui.operations import duration, kind_in_words, what_to_do
from modelkin import errors as sdk_errors
from modelkin.errors import ModelkinError


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0.0 s"),
        (0.31, "0.3 s"),
        (9.94, "9.9 s"),
        (61, "61 s"),
        (150, "2 minutes"),
        (7300, "2 hours"),
        (86400 * 3, "3 days"),
    ],
)
def test_a_duration_has_one_unit(seconds: float, words: str) -> None:
    """Of two, a minute, an hour or a day is one; the clock of another machine may be ahead."""
    assert words == duration(timedelta(seconds=seconds))


def test_advice_is_for_errors_that_there_are() -> None:
    """Each code with advice is that of an error; another, or no error, has none."""
    known = {"internal_error"}
    for module in (errors, sdk_errors):
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, ModelkinError):
                known.add(each.code)
    assert set(operations.ADVICE) <= known
    assert what_to_do({"code": "hub_refused", "detail": "no"})
    assert what_to_do({"code": "unheard-of", "detail": "no"}) is None
    assert what_to_do(None) is None


def test_a_kind_without_words_of_its_own_is_still_read() -> None:
    """A new kind of job shows without underscores."""
    assert ("sync of a model", "count tensors") == tuple(
        map(kind_in_words, ("ingest", "count_tensors"))
    )
