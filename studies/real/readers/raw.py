"""Raw float32: values and nothing else, so that the shape comes from elsewhere."""

from __future__ import annotations

from studies.real.errors import InvalidFile
from studies.real.readers.cursor import Tensor, floats, shaped

__all__ = ["read_layer", "read_raw"]


def read_raw(data: bytes) -> Tensor:
    """All values of a file, ``(n,)``.

    Raises:
        InvalidFile: it is empty, or not a whole number of values.
    """
    if not data:
        raise InvalidFile("empty")
    return floats(data, "<f4")


def read_layer(weights: bytes, biases: bytes) -> tuple[Tensor, Tensor]:
    """A linear layer of two files: weights ``(out, in)`` and biases ``(out,)``.

    Raises:
        InvalidFile: one of them cannot be read, or the weights are not whole rows.
    """
    values, bias = read_raw(weights), read_raw(biases)
    return shaped(values, (bias.size, values.size // bias.size), "weights"), bias
