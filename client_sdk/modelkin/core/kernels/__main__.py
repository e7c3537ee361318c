"""``python -m modelkin.core.kernels``: compile the fast kernels once, before several processes want
them.
"""

from __future__ import annotations

from modelkin.core.kernels.choice import kernels

if __name__ == "__main__":
    kernels().warm()
