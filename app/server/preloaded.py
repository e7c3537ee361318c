"""The imports of every server process, done once: processes fork from one that has them.

Imports are two of the two and a half seconds of processor time that a process takes to start.
"""

from __future__ import annotations

import gc
import threading

import alembic.config  # noqa: F401
import uvloop  # noqa: F401
from sqlalchemy.orm import configure_mappers

import app.infra.db.timeouts
import app.infra.storage.redis
import app.server.server  # noqa: F401
from app.main import make_routers
from modelkin.core.kernels.choice import preload

configure_mappers()
make_routers()
preload()
assert threading.active_count() == 1, "a fork would lack the other threads"
gc.freeze()  # a collection in a fork would write to, and so copy, all that it could share
