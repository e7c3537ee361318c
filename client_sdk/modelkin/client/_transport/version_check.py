"""A warning if the service is of another version than this SDK.

Such a service is no error: it may well be able to answer.
"""

from __future__ import annotations

import inspect
import re
import threading
import warnings
from collections.abc import Mapping

from modelkin._version import __version__
from modelkin.client._transport.messages import printable

__all__ = ["HEADER", "ModelkinVersionWarning", "VersionNotice"]

HEADER = "modelkin-version"
"""The lower-case name of the response header with the version of the service."""

_RELEASE = re.compile(r"(\d{1,9})\.(\d{1,9})(?![0-9])", re.ASCII)


class ModelkinVersionWarning(UserWarning):
    """The service and this SDK are of different major or minor versions."""


class VersionNotice:
    """Warns once, at the first answer of a service whose major or minor version differs.

    Args:
        url: the service's address, for the message.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._first = threading.Lock()  # acquired by the first warning, and never released

    def check(self, headers: Mapping[str, str]) -> None:
        """Checks the headers of a response; a response without a version passes."""
        theirs = headers.get(HEADER)
        if theirs is None or _release(theirs) == _release(__version__):
            return
        if self._first.acquire(blocking=False):
            message = _message(self._url, theirs)
            warnings.warn(message, ModelkinVersionWarning, stacklevel=_caller_level())


def _release(version: str) -> tuple[int, int] | None:
    """The major and minor version; None for a text that is not a version."""
    found = _RELEASE.match(version)
    return None if found is None else (int(found[1]), int(found[2]))


def _caller_level() -> int:
    """The ``stacklevel`` that makes a warning point at the caller of this package."""
    frame, level = inspect.currentframe(), 0
    while frame and frame.f_back and frame.f_globals["__name__"].startswith("modelkin."):
        frame, level = frame.f_back, level + 1
    return level


def _message(url: str, theirs: str) -> str:
    found, here = _release(theirs), _release(__version__)
    remedy = "upgrade the service, or install the modelkin of its version"
    if found is not None and here is not None and found > here:
        remedy = f"pip install 'modelkin=={found[0]}.{found[1]}.*'"
    return (
        f"the service at {url} is modelkin {printable(theirs)}, this SDK is {__version__}: "
        f"some calls may be refused or answered in forms unknown here; {remedy}"
    )
