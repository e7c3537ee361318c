"""Answers decoded by threads of one process, each form for the first time."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys, threading
from modelkin.client._protocol.calls.decoding import decode
from modelkin.client._transport.messages import Response
from modelkin.types.models import DuplicateWeights
from modelkin.types.paging import Page

sys.setswitchinterval(1e-6)
response = Response(200, {}, b'{"items": [{"digest": "a", "items": []}]}')
gate = threading.Barrier(8)

def read():
    gate.wait()
    assert "a" == decode(response, Page[DuplicateWeights]).items[0].digest

threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("number", range(4))
def test_threads_may_decode_a_form_first_at_once(number: int) -> None:
    """The process lives."""
    del number
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert (0, "") == (done.returncode, done.stderr)
