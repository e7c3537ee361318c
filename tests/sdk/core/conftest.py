"""What the tests of the domain share."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from modelkin.core.kernels import fast, reference
from modelkin.core.kernels.choice import kernels

MODULES = (
    "modelkin.core.sketching.banding",
    "modelkin.core.kinship.cover",
    "modelkin.core.patch",
    "modelkin.core.similarity.edges",
    "modelkin.core.selection.entries",
    "modelkin.core.codecs.gaps",
    "modelkin.core.kinship.membership",
    "modelkin.core.similarity.ordered",
    "modelkin.core.similarity.overlap",
    "modelkin.core.packed",
    "modelkin.core.similarity.rarity",
    "modelkin.core.sketching.minima",
    "modelkin.core.sketching.probe_tables",
    "modelkin.core.sketching.sketch",
    "modelkin.core.selection.streaming",
)


@pytest.fixture(params=[reference, fast], ids=["reference", "fast"])
def implementation(request: pytest.FixtureRequest) -> ModuleType:
    """Each of the two modules of kernels."""
    module: ModuleType = request.param
    return module


@pytest.fixture
def each_kernels(implementation: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The domain run on the reference, then on the fast kernels."""
    for name in MODULES:
        monkeypatch.setattr(f"{name}.kernels", lambda: implementation)
    return implementation


@pytest.fixture(autouse=True)
def _fresh_choice() -> Iterator[None]:
    """No test inherits, or leaves behind, a choice of kernels made under another environment."""
    kernels.cache_clear()
    yield
    kernels.cache_clear()
