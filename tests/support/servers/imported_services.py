"""Import the modules of services and workers; the fork server imports this module once."""

from __future__ import annotations

import threading

import workers.__main__  # noqa: F401
from modelkin.core.kernels import fast

fast.warm()
assert threading.active_count() == 1, "a fork would lack the other threads"
