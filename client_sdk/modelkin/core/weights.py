"""``WeightsDigest``: the digest by which weights are recognised, a base or an exact copy.

Deltas from different bases cannot be compared, and names of bases differ from place to place. The
digest depends on names, shapes and values: not on the order of tensors, the files or the framework
that hold them. That of an exact copy depends on the dtypes, too, and that of a base does not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["TensorDigest", "Weights", "WeightsDigest"]


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a checkpoint, described without a value of them.

    Attributes:
        digest: ``"sha256:..."``, the same for the same names, shapes, dtypes and values, whatever
            their order and shards.
        tensors: the digest of each tensor by name, in hex; of 64 digits the first 32 are kept.
        files: how many files hold them.
        size: the bytes that they take.
        dtypes: parameters by dtype.
    """

    digest: str
    tensors: Mapping[str, str] = field(hash=False)
    files: int
    size: int
    dtypes: Mapping[str, int] = field(hash=False)


class TensorDigest:
    """The digest of one tensor, whose values come in stretches.

    Args:
        name: the tensor's name.
        shape: the dimensions of the tensor.
        dtype: what the file says of its values, which are then digested as they are; None for a
            digest that is the same in every dtype.
    """

    def __init__(self, name: str, shape: Iterable[int], dtype: str | None = None) -> None:
        self.name = name
        self._as_they_are = dtype is not None
        facts = [name, list(shape), *([] if dtype is None else [dtype])]
        self._sha256 = hashlib.sha256(json.dumps(facts).encode() + b"\n")

    def add(self, values: Iterable[npt.NDArray[Any]]) -> None:
        """Add stretches of values, row by row; see :meth:`WeightsDigest.add`."""
        for stretch in values:
            form = stretch.dtype.newbyteorder("<") if self._as_they_are else "<f4"
            with np.errstate(over="ignore"):
                self._sha256.update(np.ascontiguousarray(stretch, form).data)

    def result(self) -> bytes:
        """The digest of the values that were added."""
        return self._sha256.digest()


class WeightsDigest:
    """A digest of weights, tensor by tensor in any order.

    The digest of a tensor is SHA-256 over the JSON of its name and shape, a newline, and its values
    as little-endian float32, row by row. The digest of the weights is SHA-256 over those of the
    tensors, in the order of their names by code point. That of an exact copy has the dtype beside
    the shape of each tensor.
    """

    def __init__(self) -> None:
        self._tensors: dict[str, bytes] = {}

    def add(self, name: str, shape: Iterable[int], values: Iterable[npt.NDArray[Any]]) -> None:
        """Add a tensor.

        Args:
            name: the tensor's name, which was not added before.
            shape: the dimensions of the tensor.
            values: the tensor's values in stretches, row by row, each a vector of any float dtype;
                float64 is rounded to float32, and smaller floats are widened.
        """
        digest = TensorDigest(name, shape)
        digest.add(values)
        self.take(digest)

    def take(self, digest: TensorDigest) -> None:
        """Add a tensor by its digest, all of whose values were added to that."""
        self._tensors[digest.name] = digest.result()

    @property
    def tensors(self) -> dict[str, str]:
        """The digest of each tensor in hex, by name and sorted."""
        return {name: self._tensors[name].hex() for name in sorted(self._tensors)}

    def restore(self, tensors: Mapping[str, str]) -> None:
        """Add tensors by their digests, as :attr:`tensors` has them."""
        self._tensors |= {name: bytes.fromhex(digest) for name, digest in tensors.items()}

    def result(self) -> str:
        """Return ``sha256:`` and the digest in hex."""
        ordered = b"".join(self._tensors[name] for name in sorted(self._tensors))
        return f"sha256:{hashlib.sha256(ordered).hexdigest()}"
