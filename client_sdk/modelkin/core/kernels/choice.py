"""The choice of kernels: numba's if it is installed, else numpy's. The results are the same.

``MODELKIN_KERNELS=reference`` selects numpy's; with ``MODELKIN_KERNELS=fast`` a missing numba is an
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
    """The module of kernels to use; nothing of it is compiled or loaded yet."""
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
