"""``python -m modelkin.core.kernels`` compiles the kernels, before many processes need them."""

from __future__ import annotations

from modelkin.core.kernels.choice import kernels

if __name__ == "__main__":
    kernels().warm()
