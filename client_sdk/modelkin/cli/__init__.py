"""The command ``modelkin``: supports of checkpoints, and questions to a service.

``arguments`` says what can be typed, ``commands`` does it, ``inputs`` reads files, ``output`` and
``progress`` show. Answers go to standard output and nothing else does; an error is one line on
standard error.
"""

from __future__ import annotations

from modelkin.cli.run import main

__all__ = ["main"]
