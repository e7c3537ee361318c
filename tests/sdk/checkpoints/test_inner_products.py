"""Two checkpoints on disk are compared by the inner products of their lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from modelkin.checkpoints import fingerprint, inner_products, open_checkpoint
from modelkin.core.fingerprints.anatomy import anatomy
from modelkin.errors import InvalidCheckpoint
from tests.sdk.core.fingerprints.planted import Tensors, model
from tests.sdk.core.fingerprints.stored import STORED
from tests.support.models.checkpoints import safetensors


def written(folder: Path, name: str, tensors: Tensors) -> Path:
    path = folder / f"{name}.safetensors"
    path.write_bytes(safetensors({k: np.ascontiguousarray(v) for k, v in tensors.items()}))
    return path


def test_a_rotated_file_is_seen_where_no_line_is_found(tmp_path: Path) -> None:
    """It is evidence beside an anatomy that has nothing to say."""
    base, rotated, stranger = (
        written(tmp_path, name, tensors)
        for name, tensors in (
            ("base", model(0)),
            ("rotated", STORED["rotated"](model(0))),
            ("stranger", model(1)),
        )
    )
    assert () == anatomy(fingerprint(rotated), {"base": fingerprint(base)}).parents
    found = inner_products(rotated, open_checkpoint(base))
    assert (9, 9, True) == (found.compared, len(found.alike), found.is_evidence)
    layers = inner_products(rotated, base, exclude=["layers.[0-2]*", "embed"])
    assert ["layers.3.down", "layers.3.up"] == [each.tensor for each in layers.alike]
    assert () == inner_products(stranger, base).alike


def test_an_adapter_is_refused(tmp_path: Path) -> None:
    """Its factors are no layers of a model."""
    draw = model(0)["embed"]
    base = written(tmp_path, "base", model(0))
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 8, "lora_alpha": 8}')
    name = "base_model.model.layers.0.q_proj"
    factors = {f"{name}.lora_A.weight": draw[:8], f"{name}.lora_B.weight": draw[:, :8].copy()}
    (folder / "adapter_model.safetensors").write_bytes(safetensors(factors))
    with pytest.raises(InvalidCheckpoint, match="adapter: merge it into its base"):
        inner_products(folder, base)
