"""Import the modules of services, workers and the command; the fork server imports this module
once.

What they import only when they need it is imported here, too: else each of hundreds of forks would.
"""

from __future__ import annotations

import gc
import threading

from scipy.cluster import hierarchy  # noqa: F401

import app.__main__
import app.server.command
import app.server.preloaded  # noqa: F401
import workers.__main__  # noqa: F401
from modelkin.cli import catalogue
from modelkin.core.kernels import choice, fast

for _, command in catalogue.leaves():
    command.load()
fast.warm()
choice.preload()
assert threading.active_count() == 1, "a fork would lack the other threads"
gc.freeze()  # as app.server.preloaded does, which came before some of it
