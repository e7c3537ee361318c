"""Import the modules of services and workers; the fork server imports this module once.

What a service imports only when it needs it is imported here, too: else each of hundreds of forks
would.
"""

from __future__ import annotations

import threading

import dbos  # noqa: F401

import app.__main__
import app.server.command
import app.server.preloaded  # noqa: F401
import workers.__main__  # noqa: F401
from modelkin.core.kernels import fast

fast.warm()
assert threading.active_count() == 1, "a fork would lack the other threads"
