"""What the integrations log of services and other clients."""

from __future__ import annotations

import logging

import pytest

import modelkin.integrations


@pytest.mark.parametrize("text", ["refused\x1b[2J", "one\nERROR forged", "\u202edrow", "\ud800"])
def test_no_text_of_others_is_logged_raw(text: str, caplog: pytest.LogCaptureFixture) -> None:
    """A reason that a node or a service gives is one printable line of a log."""
    log = logging.getLogger(modelkin.integrations.__name__)
    log.warning("node %d does not count: %s", 3, text)
    (message,) = caplog.messages
    assert f"node 3 does not count: {ascii(text)[1:-1]}" == message


def test_sound_messages_keep_their_arguments(caplog: pytest.LogCaptureFixture) -> None:
    """Handlers that group messages by their form find the form of all others."""
    log = logging.getLogger(modelkin.integrations.__name__)
    log.warning("node %d does not count: %s", 3, "na\u00efve")
    assert ("node %d does not count: %s", (3, "na\u00efve")) == (
        caplog.records[0].msg,
        caplog.records[0].args,
    )
