"""The choice of kernels: numba's if it is installed, else numpy's. The results are the same.

``MODELKIN_KERNELS=reference`` selects numpy's; with ``MODELKIN_KERNELS=fast`` a missing numba is an
error.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import threading
import time
from collections.abc import Callable
from functools import cache
from types import ModuleType

from modelkin.core.kernels import machine_code
from modelkin.errors import InvalidParameter, MissingExtra

__all__ = ["kernels", "prepare"]

log = logging.getLogger(__name__)

_compiling = False
"""Numba's are chosen, and a thread has them compiled: until then numpy's stand in."""


@cache
def kernels() -> ModuleType:
    """The module of kernels to use; nothing of it is compiled or loaded yet."""
    wanted = os.environ.get("MODELKIN_KERNELS", "auto")
    if wanted not in {"auto", "fast", "reference"}:
        raise InvalidParameter(f"MODELKIN_KERNELS must be auto, fast or reference, not {wanted!r}")
    installed = importlib.util.find_spec("numba") is not None
    if wanted == "fast" and not installed:
        raise MissingExtra("numba", "fast")
    if wanted == "reference" or not installed or _compiling:
        from modelkin.core.kernels import reference

        return reference
    from modelkin.core.kernels import fast

    return fast


def prepare(then: Callable[[], object] = lambda: None) -> None:
    """Load all kernels; where they are not compiled yet, numpy's stand in until a thread has them.

    So a service answers from its first second on a new machine. With ``MODELKIN_KERNELS=fast`` this
    waits for the compiler instead: most of a minute of a core, once for a machine.

    Args:
        then: called once all are loaded, perhaps by that thread.
    """
    chosen = kernels()
    try:
        with machine_code.kept_only():
            chosen.warm()
    except machine_code.NotKept:
        if os.environ.get("MODELKIN_KERNELS") != "fast":
            _stand_in(True)
            threading.Thread(
                target=_compile, args=(chosen, then), name="kernels", daemon=True
            ).start()
            return
        chosen.warm()
    then()


def _compile(chosen: ModuleType, then: Callable[[], object]) -> None:
    began = time.monotonic()
    try:
        chosen.warm()
    except Exception:
        log.exception("no kernels could be compiled: numpy's, which are slower, go on")
        return
    _stand_in(False)
    log.info("kernels are compiled, after %.0f s", time.monotonic() - began)
    then()


def _stand_in(begins: bool) -> None:
    global _compiling
    _compiling = begins
    kernels.cache_clear()


if hasattr(os, "register_at_fork"):  # the thread is not in the child, which compiles for itself
    os.register_at_fork(after_in_child=lambda: _stand_in(False))
