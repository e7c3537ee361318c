"""The command ``modelkin``: supports of checkpoints, and requests to a service.

``arguments`` parses, ``commands`` executes, ``inputs`` reads files, ``output`` and ``progress``
format. Only answers go to standard output; an error is one line on standard error.
"""

from __future__ import annotations

from modelkin.cli.run import main

__all__ = ["main"]
