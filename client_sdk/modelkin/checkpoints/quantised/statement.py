"""What a checkpoint says of its quantisation: small JSON files beside it, and its own metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from modelkin.checkpoints.header import read_metadata
from modelkin.core.foreign_json import NULL, Raw, decode_json

__all__ = ["Statement", "count_in", "layers_in", "read_statement"]

_CONFIGURATIONS: Final = (
    "config.json",
    "quantize_config.json",
    "quant_config.json",
    "quantization_config.json",
    "hf_quant_config.json",
)
"""The files that may say how the weights beside them are quantised; earlier ones count first."""

_MAX_FILE_BYTES: Final = 8 << 20
_MAX_PART_BYTES: Final = 1 << 20
"""Bytes of JSON that are decoded to objects, which take many times as much."""
_MAX_COUNT: Final = 1 << 31


class _Config(msgspec.Struct):
    """What is read of a model's configuration."""

    model_type: Raw = NULL
    quantization_config: Raw = NULL
    quantization: Raw = NULL
    compression_config: Raw = NULL
    text_config: Raw = NULL


class _Layers(msgspec.Struct):
    """What is read of ComfyUI's entry."""

    layers: dict[str, Raw] = {}


@dataclass(frozen=True, slots=True)
class Statement:
    """What is said of a checkpoint's quantisation.

    Attributes:
        file: the file that says it; None where none does.
        fields: what it says.
        model_type: the architecture, as transformers names it.
    """

    file: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    model_type: str | None = None

    @property
    def method(self) -> str | None:
        """The method, in small letters, such as ``gptq``."""
        return self.text("quant_method")

    def text(self, name: str) -> str | None:
        """A text that it says, in small letters."""
        value = self.fields.get(name)
        return value.lower() if isinstance(value, str) else None

    def count(self, name: str) -> int | None:
        """A positive number that it says."""
        return count_in(self.fields, name)


def count_in(fields: Mapping[str, Any], name: str) -> int | None:
    """A positive number among fields."""
    value = fields.get(name)
    return value if type(value) is int and 0 < value < _MAX_COUNT else None


def read_statement(beside: Iterable[Path]) -> Statement:
    """What the files beside a checkpoint say; what is no JSON says nothing.

    Args:
        beside: the files, of which those of other names say nothing.

    Raises:
        OSError: a file cannot be read.
    """
    said, model_type = Statement(), None
    found = {path.name: path for path in beside if path.name in _CONFIGURATIONS}
    for name in _CONFIGURATIONS:
        path = found.get(name)
        if path is None or not path.is_file() or path.stat().st_size > _MAX_FILE_BYTES:
            continue
        data = path.read_bytes()
        config = _decoded(data)
        if name == _CONFIGURATIONS[0]:
            model_type = _text(config.model_type)
            fields = _of_model(config)
        else:
            fields = _fields(config.quantization) or _fields(data)
        if fields and said.file is None:
            said = Statement(name, fields)
    return Statement(said.file, said.fields, model_type)


def layers_in(path: Path) -> dict[str, bytes]:
    """What ComfyUI's entry in the metadata of a file says of modules, as JSON, by their names.

    Raises:
        OSError: the file cannot be read.
    """
    text = read_metadata(path).get("_quantization_metadata", "")
    if len(text) > _MAX_PART_BYTES:
        return {}
    try:
        layers = decode_json(text, _Layers).layers
    except ValueError:
        return {}
    return {name: bytes(layer) for name, layer in layers.items()}


def _of_model(config: _Config) -> dict[str, Any]:
    # MLX's converter adds `quantization`, and may leave what it was converted from beside it.
    parts = (config.quantization, config.quantization_config, config.compression_config)
    for part in parts:
        if fields := _fields(part):
            return fields
    inner = _decoded(bytes(config.text_config))
    return _fields(inner.quantization) or _fields(inner.quantization_config)


def _decoded(data: bytes) -> _Config:
    try:
        return decode_json(data, _Config)
    except ValueError:
        return _Config()


def _fields(part: bytes | Raw) -> dict[str, Any]:
    if len(bytes(part)) > _MAX_PART_BYTES:
        return {}
    try:
        return decode_json(part, dict[str, Any])
    except ValueError:
        return {}


def _text(part: Raw) -> str | None:
    try:
        return decode_json(part, str)
    except ValueError:
        return None
