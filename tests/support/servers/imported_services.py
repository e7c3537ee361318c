"""Imports what a service or a worker imports at its start; the fork server imports this once."""

from __future__ import annotations

import threading

import workers.__main__  # noqa: F401
from modelkin.core.kernels import fast

fast.warm()
assert threading.active_count() == 1, "a fork would lack the other threads"
