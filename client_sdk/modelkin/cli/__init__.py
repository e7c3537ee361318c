"""The command ``modelkin``: supports of checkpoints, and requests to a service.

``catalogue`` names the commands, each in the module of its family, and ``arguments`` parses the
options of one. ``inputs`` and ``files`` read, ``output``, ``style`` and ``progress`` format, and
``run`` prints. Only answers go to standard output; an error is one line on standard error.
"""

from __future__ import annotations

from modelkin.cli.run import main

__all__ = ["main"]
