"""``python -m modelkin.core.kernels`` compiles the kernels once, before many want them."""

from __future__ import annotations

from modelkin.core.kernels.choice import kernels

if __name__ == "__main__":
    kernels().warm()
