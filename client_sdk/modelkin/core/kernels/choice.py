"""Which kernels run: numba's where it is installed, else numpy's. The answers are the same.

``MODELKIN_KERNELS=reference`` forces numpy's, ``MODELKIN_KERNELS=fast`` makes a missing numba an
error.
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from types import ModuleType

from modelkin.errors import InvalidParameter, MissingExtra

__all__ = ["kernels"]


@cache
def kernels() -> ModuleType:
    """The module whose functions do the work; numba, slow to import, waits for first use."""
    wanted = os.environ.get("MODELKIN_KERNELS", "auto")
    if wanted not in {"auto", "fast", "reference"}:
        raise InvalidParameter(f"MODELKIN_KERNELS must be auto, fast or reference, not {wanted!r}")
    installed = importlib.util.find_spec("numba") is not None
    if wanted == "fast" and not installed:
        raise MissingExtra("numba", "fast")
    if wanted == "reference" or not installed:
        from modelkin.core.kernels import reference

        return reference
    from modelkin.core.kernels import fast

    return fast
