"""A learngene's file is read in parts: a file that is cut meanwhile is refused."""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from modelkin.client._transport import learngene_files
from modelkin.core.learngenes import manifest
from modelkin.errors import InvalidLearngene
from tests.support.models.learngene_files import gene


def test_a_file_that_is_cut_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever cuts it does not end the program, as a mapped file would."""
    path, check = tmp_path / "gene.safetensors", manifest.check_finite_parts
    data = gene(0, w=(100_000, 1))
    path.write_bytes(data)

    def cut(read: Any, entries: Iterable[Any]) -> None:
        os.truncate(path, 100)
        check(read, entries)

    assert f"sha256:{sha256(data).hexdigest()}" == learngene_files.examine(path).digest
    monkeypatch.setattr(learngene_files, "check_finite_parts", cut)
    with pytest.raises(InvalidLearngene, match="cut while it was read"):
        learngene_files.examine(path)
