"""Checks of a service that is installed on this machine, by the settings it would start with.

The service makes the checks in a process of its own. So no module of the service is imported here,
nor a module of the user's with the same name.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from modelkin._diagnosis import Check
from modelkin._server_folder import server_command, server_environment, server_folder
from modelkin.errors import MissingExtra

__all__ = ["local_checks"]

_LOOPBACK: Final = {"127.0.0.1", "localhost", "::1"}
_TIMEOUT_S: Final = 60.0
_WHOSE: Final = (
    "next, those that a service would have from this shell and folder; one that runs may have "
    "others, and its data elsewhere"
)


def local_checks(url: str) -> Iterator[Check]:
    """The data folder, the secret key and the worker of a service on this machine.

    The checks follow this shell's ``MODELKIN_*`` variables; a running service may have others.
    A service elsewhere has no checks, and neither has one that is not installed.

    Args:
        url: the service's address.
    """
    if urlsplit(url).hostname not in _LOOPBACK:
        return
    try:
        found = _service_checks()
    except MissingExtra:
        return
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        remedy = "install the service again, in the version of this command"
        yield Check("settings", "warn", f"the service did not check its own: {error}", remedy)
        return
    yield Check("settings", "ok", _WHOSE)
    for each in found:
        yield Check(each["check"], each["state"], each["detail"], each["remedy"])


def _service_checks() -> list[dict[str, Any]]:
    folder = server_folder()
    done = subprocess.run(  # noqa: S603
        server_command("app", "check", "--json"),
        env=server_environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if not done.stdout.strip():  # the last line of its error gives the reason
        raise ValueError((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
    checks: list[dict[str, Any]] = json.loads(done.stdout)["checks"]
    return checks
