"""Files of adapters made of a description, which mutants damage: names, shapes, types, bytes."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from modelkin.checkpoints import importance_chunks, open_checkpoint
from modelkin.core.adapters import CONFIG_NAME
from modelkin.core.safetensors_header import BITS
from modelkin.errors import InvalidCheckpoint

__all__ = ["DESCRIPTIONS", "read_described"]

_MAX_BYTES: Final = 1 << 18
_MAX_CHANGED: Final = 10_000_000
_Q: Final = "lora_unet_mid_block_attentions_0_transformer_blocks_0_attn1_to_q"
_PEFT: Final = "base_model.model.layers.0.q_proj"
_CONFIG: Final = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}


def _described(tensors: dict[str, list[Any]], **more: Any) -> bytes:
    return json.dumps({"name": "a.safetensors", "tensors": tensors, **more}).encode()


DESCRIPTIONS: Final = (
    _described(
        {
            f"{_Q}.lora_down.weight": ["F16", [2, 6], "0038"],
            f"{_Q}.lora_up.weight": ["F16", [5, 2], "003c"],
            f"{_Q}.alpha": ["F32", [], "0000803f"],
            "unet.conv_in.lora.down.weight": ["BF16", [2, 3, 3, 3], "803f"],
            "unet.conv_in.lora.up.weight": ["BF16", [4, 2, 1, 1], "803f"],
            "unet.conv_in.alpha": ["I64", [1], "0200000000000000"],
        }
    ),
    _described(
        {
            **{f"{_Q}.hada_{w}_a": ["F32", [6, 2], "0000803f"] for w in ("w1", "w2")},
            **{f"{_Q}.hada_{w}_b": ["F32", [2, 5], "0000803f"] for w in ("w1", "w2")},
            "lora_te1_x.lokr_w1": ["F32", [3, 2], "0000803f"],
            "lora_te1_x.lokr_w2_a": ["F32", [4, 2], "0000803f"],
            "lora_te1_x.lokr_w2_b": ["F32", [2, 5], "0000803f"],
            "lora_te1_x.alpha": ["BF16", [], "803f"],
        }
    ),
    _described(
        {
            f"{_PEFT}.lora_A.weight": ["F32", [2, 6], "0000803f"],
            f"{_PEFT}.lora_B.weight": ["F32", [5, 2], "0000803f"],
        },
        config=_CONFIG | {"base_model_name_or_path": "org/a", "rank_pattern": {"k": 3}},
    ),
    _described(
        {
            f"{_PEFT}.lokr_w1": ["F32", [2, 2], "0000803f"],
            f"{_PEFT}.lokr_w2": ["F32", [3, 2], "0000803f"],
        },
        config={"peft_type": "LOKR", "r": 2, "alpha": 4, "target_modules": ["q_proj"]},
    ),
    _described(
        {
            "transformer.x.lora_A.weight": ["F32", [2, 6], "0000803f"],
            "transformer.x.lora_B.weight": ["F32", [5, 2], "0000803f"],
        },
        metadata={
            "lora_adapter_metadata": json.dumps(
                {f"transformer.{k}": v for k, v in (_CONFIG | {"target_modules": ["x"]}).items()}
            )
        },
    ),
)
"""A file of kohya's trainers and diffusers' first names, of LyCORIS, of PEFT, and of diffusers."""


def read_described(data: bytes) -> object:
    """Write the file that is described, and read the differences that it makes.

    Raises:
        InvalidCheckpoint: it is no adapter that is read, or no description.
    """
    try:
        described = json.loads(data)
        header, body = _file(described["tensors"], described.get("metadata"))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        raise InvalidCheckpoint("it describes no file") from None
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        path = Path(folder) / "a.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + body)
        if described.get("config") is not None:
            (Path(folder) / CONFIG_NAME).write_text(json.dumps(described["config"]), "utf-8")
        checkpoint = open_checkpoint(path)
        if checkpoint.num_parameters > _MAX_CHANGED:
            raise InvalidCheckpoint("it changes more than a test waits for")
        largest = max(float(chunk.max()) for chunk in importance_chunks(checkpoint)())
        assert math.isfinite(largest), "what is infinite is refused"
        return checkpoint.num_parameters, checkpoint.notes


def _file(tensors: dict[str, list[Any]], metadata: Any) -> tuple[bytes, bytes]:
    """The header and the bytes of tensors, which are the given ones again and again."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    body = b""
    for name, (dtype, shape, filling) in tensors.items():
        size = int(np.prod(np.asarray(shape, np.float64))) * BITS[dtype] // 8
        if not 0 <= size <= _MAX_BYTES:
            raise ValueError("the tensor is too large")
        own = bytes.fromhex(filling) or b"\0"
        header[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [len(body), len(body) + size],
        }
        body += (own * (size // len(own) + 1))[:size]
    return json.dumps(header).encode(), body


def _memory() -> str | None:
    """A folder in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
