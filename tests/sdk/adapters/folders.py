"""Folders of small LoRA adapters, as PEFT saves them, and the differences that they make."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

__all__ = ["CONFIG", "adapter_folder", "difference", "factors", "random_factors"]

Matrix = npt.NDArray[Any]
Pairs = dict[str, tuple[Matrix, Matrix]]

CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "base_model_name_or_path": "org/base",
    "task_type": "CAUSAL_LM",
    "bias": "none",
    "fan_in_fan_out": False,
    "init_lora_weights": True,
    "inference_mode": True,
    "lora_alpha": 16,
    "lora_dropout": 0.05,
    "modules_to_save": None,
    "r": 4,
    "rank_pattern": {},
    "alpha_pattern": {},
    "target_modules": ["q_proj", "v_proj", "down"],
    "use_dora": False,
    "use_rslora": False,
    "loftq_config": {},
    "runtime_config": {"ephemeral_gpu_offload": False},
}
"""The fields of a plain adapter."""

SHAPES = {"layers.0.q_proj": (24, 16), "layers.0.v_proj": (8, 16), "mlp.down": (16, 40)}


def random_factors(
    seed: int, shapes: Mapping[str, tuple[int, int]] = SHAPES, rank: int = 4
) -> Pairs:
    """A and B of each module, normally distributed."""
    generator = np.random.default_rng(seed)
    return {
        module: (
            generator.normal(size=(rank, inner)).astype("f4"),
            generator.normal(size=(out, rank)).astype("f4"),
        )
        for module, (out, inner) in shapes.items()
    }


def factors(pairs: Pairs, adapter: str = "") -> dict[str, Matrix]:
    """The tensors of an adapter under the names that PEFT gives them."""
    middle = f".{adapter}" if adapter else ""
    tensors = {}
    for module, (a, b) in pairs.items():
        tensors[f"base_model.model.{module}.lora_A{middle}.weight"] = np.ascontiguousarray(a)
        tensors[f"base_model.model.{module}.lora_B{middle}.weight"] = np.ascontiguousarray(b)
    return tensors


def adapter_folder(path: Path, tensors: Mapping[str, Matrix], **fields: Any) -> Path:
    """A folder with the tensors and a configuration in which some fields differ from the plain."""
    path.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors), path / "adapter_model.safetensors")
    (path / "adapter_config.json").write_text(json.dumps({**CONFIG, **fields}))
    return path


def difference(pairs: Pairs, scale: float) -> Matrix:
    """|scale BA| in float64, flat, in the order of the names of the base's tensors: the oracle."""
    whole = [
        np.abs(scale * (b.astype("f8") @ a.astype("f8"))).reshape(-1)
        for _, (a, b) in sorted(pairs.items())
    ]
    return np.concatenate(whole)
