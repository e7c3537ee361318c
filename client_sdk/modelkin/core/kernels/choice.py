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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import ModuleType

from modelkin.errors import InvalidParameter, MissingExtra, ModelkinError

__all__ = ["kernels", "preload", "prepare"]

log = logging.getLogger(__name__)

_standing_in = False
"""Whether a thread loads or compiles numba's kernels: until it has them, numpy's stand in."""
_all_loaded = False


@cache
def kernels() -> ModuleType:
    """The module of kernels to use; nothing of it is compiled or loaded yet."""
    if _is_fast_wanted() and not _standing_in:
        from modelkin.core.kernels import fast

        return fast
    from modelkin.core.kernels import reference

    return reference


def _is_fast_wanted() -> bool:
    wanted = os.environ.get("MODELKIN_KERNELS", "auto")
    if wanted not in {"auto", "fast", "reference"}:
        raise InvalidParameter(f"MODELKIN_KERNELS must be auto, fast or reference, not {wanted!r}")
    installed = importlib.util.find_spec("numba") is not None
    if wanted == "fast" and not installed:
        raise MissingExtra("numba", "fast")
    return installed and wanted != "reference"


def preload() -> None:
    """Load all kernels that are kept, for the processes that are forked from this one.

    Where one would have to be compiled, each process has a thread do that, see :func:`prepare`.
    """
    global _all_loaded
    with suppress(ModelkinError):  # of a setting, which each process says itself
        if _is_fast_wanted():
            from modelkin.core.kernels import fast

            _all_loaded = fast.warm(may_compile=lambda: False)


@contextmanager
def prepare(loaded: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Load or compile all kernels in a thread; until it has them, numpy's stand in.

    So a service answers from its first second, also on a new machine. With
    ``MODELKIN_KERNELS=fast`` it waits for them instead: half a minute of a core, once for a
    machine. A process that is forked meanwhile stays with numpy's, as the thread of its parent may
    hold numba's lock.

    Args:
        loaded: called by the thread once it has loaded all.
    """
    if _all_loaded or not _is_fast_wanted():
        yield
    elif os.environ.get("MODELKIN_KERNELS") == "fast":
        kernels().warm()
        yield
    else:
        _stand_in(True)
        ended = threading.Event()
        thread = threading.Thread(target=_load, args=(ended, loaded), name="kernels")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()  # it ends before the next loop that it would compile
            _stand_in(False)


def _load(ended: threading.Event, loaded: Callable[[], object]) -> None:
    global _all_loaded
    began = time.monotonic()
    try:
        from modelkin.core.kernels import fast

        _all_loaded = fast.warm(may_compile=lambda: not ended.is_set())
    except Exception:
        log.exception("no kernels could be compiled: numpy's, which are slower, go on")
        return
    if _all_loaded:
        _stand_in(False)
        loaded()
        log.info("kernels are loaded, after %.1f s", time.monotonic() - began)


def _stand_in(begins: bool) -> None:
    global _standing_in
    _standing_in = begins
    kernels.cache_clear()
