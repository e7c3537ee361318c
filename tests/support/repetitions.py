"""How often a test repeats what it draws at random: few times, or with ``SOAK=1`` all of them.

``make test-all`` has a tenth of the mutants, ``make soak`` runs the same tests with the whole.
"""

from __future__ import annotations

import os

__all__ = ["repetitions"]


def repetitions(whole: int, few: int | None = None) -> int:
    """The whole where ``SOAK=1`` is set, else the few, which are a tenth unless they are given."""
    if os.environ.get("SOAK") == "1":
        return whole
    return whole // 10 if few is None else few
