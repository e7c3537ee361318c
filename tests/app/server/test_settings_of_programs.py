"""Settings that a program gives by name, as a client does with a service of its own."""

from __future__ import annotations

from typing import Any

import pytest

from app.setting_messages import settings_from_values
from app.settings import Settings
from modelkin.errors import InvalidParameter

FIXED = {"port": 1, "auth": "off"}


def test_values_are_read_as_the_settings_are() -> None:
    """Text for a number as well, and what is fixed beside them."""
    made = settings_from_values({"max_learngene_bytes": "5", "log_format": "json"}, FIXED)
    assert (5, "json", 1) == (made.max_learngene_bytes, made.log_format, made.port)


def test_an_empty_address_of_redis_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a compose file leaves it; an empty address of a database is refused all the same."""
    monkeypatch.setenv("MODELKIN_REDIS_URL", "")
    assert Settings().redis_url is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"max_learngenes_bytes": 1}, ["'max_learngenes_bytes'", "did you mean"]),
        ({"MODELKIN_LOG_LEVEL": "info"}, ["'MODELKIN_LOG_LEVEL'", "mean 'log_level'?"]),
        ({"port": 8000}, ["'port'", "the client sets port, auth itself"]),
        ({"log_format": "xml"}, ["settings['log_format']", "'text' or 'json'"]),
        ({"max_learngene_bytes": -1}, ["settings['max_learngene_bytes']", "at least"]),
        ({"max_learngene_bytes": None}, ["settings['max_learngene_bytes']", "whole number"]),
    ],
)
def test_what_cannot_be_is_named(given: dict[str, Any], said: list[str]) -> None:
    """With what there is instead."""
    with pytest.raises(InvalidParameter) as raised:
        settings_from_values(given, FIXED)
    assert [] == [each for each in said if each not in str(raised.value)]
    assert "settings" == raised.value.field


def test_a_name_that_is_near_no_other_gets_the_list() -> None:
    """All names but those that are fixed."""
    with pytest.raises(InvalidParameter) as raised:
        settings_from_values({"zzzz": 1}, FIXED)
    _, _, names = str(raised.value).partition("there are: ")
    assert names.split(", ") == sorted(Settings.model_fields.keys() - FIXED.keys())


def test_no_secret_is_repeated() -> None:
    """The message names the setting alone."""
    with pytest.raises(InvalidParameter, match="encryption_keys") as raised:
        settings_from_values({"encryption_keys": "hunter2"}, FIXED)
    assert "hunter2" not in str(raised.value)
