"""``python -m tests.support.explorer.no_hub``: the service where huggingface.co is this machine.

So an address of the hub can be given as a page shows it, and no test asks the internet.
"""

from __future__ import annotations

import runpy
import socket
from typing import Any, Final

_resolve: Final = socket.getaddrinfo


def _of_this_machine(host: Any, *more: Any, **options: Any) -> Any:
    return _resolve("127.0.0.1" if host == "huggingface.co" else host, *more, **options)


if __name__ == "__main__":
    socket.getaddrinfo = _of_this_machine
    runpy.run_module("app", run_name="__main__", alter_sys=True)
