"""ncnn: a text of layers (``.param``) and their weights one after another (``.bin``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from studies.real.errors import InvalidFile
from studies.real.readers.cursor import Cursor, Tensor, Tensors, shaped

__all__ = ["read_ncnn"]

_MAGIC: Final = "7767517"
_HALF: Final = 0x01306B47
"""The tag of weights that are float16."""
_PLAIN: Final = 0
_WEIGHTLESS: Final = {"BatchNorm", "MemoryData", "Scale", "Embed", "LSTM", "GRU", "RNN", "Gemm"}
"""Layers that have weights, and that no model read here has."""

_Options = Mapping[int, str]


def read_ncnn(param: bytes, weights: bytes) -> Tensors:
    """The weights of all layers, by number, kind and role; layers without weights do not count.

    Raises:
        InvalidFile: one of the files is not of ncnn, or they do not belong together.
    """
    reading, found, number = Cursor(weights), Tensors(), 0
    for kind, options in _layers(param):
        for role, tensor in _LAYERS.get(kind, _nothing)(kind, options, reading):
            found[f"{number:03d}.{kind}.{role}"] = tensor
        number += kind in _LAYERS
    if reading.left:
        raise InvalidFile(f"{reading.left:,} bytes of weights belong to no layer")
    if not found:
        raise InvalidFile("no layer has weights")
    return found


def _layers(param: bytes) -> Iterator[tuple[str, _Options]]:
    lines = param.decode("utf-8", "replace").split("\n")
    if lines[0].strip() != _MAGIC:
        raise InvalidFile("the first line is not that of an ncnn network")
    for line in lines[2:]:
        words = line.split()
        if len(words) >= 4:
            skipped = 4 + _natural(words[2]) + _natural(words[3])
            yield words[0], dict(map(_option, words[skipped:]))


def _option(word: str) -> tuple[int, str]:
    name, _, value = word.partition("=")
    try:
        return int(name[:12]), value
    except ValueError:
        raise InvalidFile(f"{word[:40]!r} is not an option of a layer") from None


def _natural(text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 12:
        raise InvalidFile(f"{(text or 'nothing')[:40]!r} where a number is expected")
    return int(text)


_Layer = Iterator[tuple[str, Tensor]]


def _nothing(kind: str, options: _Options, reading: Cursor) -> _Layer:
    del reading
    if kind in _WEIGHTLESS and options.get(0) != "-233":  # that Scale has its weights as an input
        raise InvalidFile(f"layers of the kind {kind} are not read")
    yield from ()


def _convolution(kind: str, options: _Options, reading: Cursor) -> _Layer:
    """Weights, and biases where option 5 is set."""
    out, count = _natural(options.get(0)), _natural(options.get(6))
    values = _tagged(reading, count)
    if kind == "Convolution" and out:
        values = shaped(values, (out, count // out), kind)
    yield "weight", values
    if options.get(5, "0") == "1":
        yield "bias", reading.array("<f4", out)


def _linear(kind: str, options: _Options, reading: Cursor) -> _Layer:
    out, count = _natural(options.get(0)), _natural(options.get(2))
    values = _tagged(reading, count)
    yield "weight", shaped(values, (out, count // out if out else 0), kind)
    if options.get(1, "0") == "1":
        yield "bias", reading.array("<f4", out)


def _slopes(kind: str, options: _Options, reading: Cursor) -> _Layer:
    del kind
    yield "slope", reading.array("<f4", _natural(options.get(0)))


def _tagged(reading: Cursor, count: int) -> Tensor:
    """Weights after the tag of their type; those of two bytes are padded to four."""
    tag = reading.number(4)
    if tag == _HALF:
        values = reading.array("<f2", count)
        reading.take(-2 * count % 4)
        return values
    if tag != _PLAIN:
        raise InvalidFile(f"weights of the unknown kind {tag:#010x} before {reading.at:,}")
    return reading.array("<f4", count)


_LAYERS: Final[dict[str, Callable[[str, _Options, Cursor], _Layer]]] = {
    "Convolution": _convolution,
    "ConvolutionDepthWise": _convolution,
    "Deconvolution": _convolution,
    "DeconvolutionDepthWise": _convolution,
    "InnerProduct": _linear,
    "PReLU": _slopes,
}
