"""Fingerprints for the tests of their format: drawn, and payloads with damaged columns."""

from __future__ import annotations

import hashlib
import random
import struct
from collections import Counter
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import zstandard

from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.matrices import sides
from modelkin.core.fingerprints.tensors import LinesOfTensor, NotComparable
from tests.sdk.wire.payloads import compressed, sealed

START: Final = struct.Struct("<4sBBBB7I")
TABLE: Final = np.dtype(
    [
        ("names", "<u4"),
        ("axes", "u1"),
        ("reason", "u1"),
        ("signed", "u1"),
        ("zero", "u1"),
        ("shorter", "<u8"),
        ("longer", "<u8"),
    ]
)
SHAPES: Final = (
    (64, 64),
    (64, 80),
    (80, 64),
    (3, 3, 64, 96),
    (20, 64, 70),
    (7,),
    (),
    (64, 3),
    (96, 3, 16, 16),
    (0, 64),
)


def drawn(
    seed: int, tensors: int = 8, scale: int = 1, lines: int = 12, signed: float = 0.9
) -> Fingerprint:
    """A fingerprint of tensors of many shapes, some of which have keys in common."""
    draw = np.random.default_rng(seed)
    pools = dict[int, npt.NDArray[np.uint64]]()
    made, entries = list[LinesOfTensor](), list[tuple[int, int, int]]()
    for number in range(tensors):
        shape = SHAPES[int(draw.integers(len(SHAPES)))]
        names = tuple(f"τ.{number}.{place}" for place in range(int(draw.integers(1, 3))))
        lengths = sorted(set(sides(shape)))
        if lengths[0] < 64:
            made.append(LinesOfTensor(names, shape, {}, NotComparable.SHORT))
            continue
        held = {}
        for length in draw.permutation(lengths)[: int(draw.integers(len(lengths) + 1))].tolist():
            most = draw.integers(0, 2**64, 3 * lines, dtype=np.uint64)
            pool = pools.setdefault(length, np.unique(most))
            held[length] = draw.choice(pool, int(draw.integers(1, lines)), replace=False)
            entries += [(key, number, length) for key in held[length].tolist()]
        counts = {length: keys.size for length, keys in held.items()}
        signature = draw.bytes(128) if counts and draw.random() < signed else None
        reason = None if counts else list(NotComparable)[int(draw.integers(1, 4))]
        made.append(LinesOfTensor(names, shape, counts, reason, signature))
    table = np.array(sorted(entries), np.uint64).reshape(-1, 3)
    lines_of = Counter(length for _, length in {(key, length) for key, _, length in entries})
    return Fingerprint(
        1,
        tuple(made),
        dict(lines_of),
        table[:, 0].copy(),
        table[:, 1].astype(np.uint32),
        table[:, 2].astype(np.uint32),
    ).at(scale)


NONE = Fingerprint(
    1, (), {}, np.empty(0, np.uint64), np.empty(0, np.uint32), np.empty(0, np.uint32)
)


def of_names(names: list[str], per_tensor: int = 1) -> Fingerprint:
    """A fingerprint of tensors without lines."""
    tensors = tuple(
        LinesOfTensor(tuple(names[at : at + per_tensor]), (1,), {}, NotComparable.SHORT)
        for at in range(0, len(names), per_tensor)
    )
    return replace(NONE, tensors=tensors)


def of_keys(count: int) -> Fingerprint:
    """A fingerprint of one tensor with so many lines, all of one length."""
    tensor = LinesOfTensor(("w",), (1 << 20, 64), {64: count})
    keys = np.arange(count, dtype=np.uint64) << np.uint64(47)
    owners = np.zeros(count, np.uint32)
    return Fingerprint(1, (tensor,), {64: count}, keys, owners, np.full(count, 64, np.uint32))


class Payload:
    """The parts of a payload, to be changed and put together again.

    Attributes:
        start: the fields of the header before the digest.
        parts: the columns by name, each as an array of its dtype; planes of bytes as such.
    """

    def __init__(self, data: bytes) -> None:
        self.start: list[Any] = list(START.unpack_from(data))
        tensors, names, text, shapes, signatures, lines, keys = self.start[5:]
        content = zstandard.decompress(data[START.size + 32 : -4])
        width = ((tensors - 1).bit_length() + 7) // 8
        self.parts = dict[str, npt.NDArray[Any]]()
        at = 0
        for name, dtype, count in (
            ("tensors", TABLE, tensors),
            ("lengths", "<u2", names),
            ("text", "u1", text),
            ("sides", "<u8", shapes),
            ("signatures", "u1", 128 * signatures),
            ("lines", "<u8", lines),
            ("keys", "u1", 8 * keys),
            ("owners", "u1", width * keys),
            ("longer", "u1", -(-keys // 8)),
        ):
            self.parts[name] = np.frombuffer(content, dtype, count, at).copy()
            at += self.parts[name].nbytes
        assert at == len(content)

    def content(self) -> bytes:
        """The columns, one behind the other."""
        return b"".join(part.tobytes() for part in self.parts.values())

    def to_bytes(self, **options: Any) -> bytes:
        """The payload with a digest and a checksum that are right."""
        start, content = START.pack(*self.start), self.content()
        frame = compressed(content, **options)
        return sealed(start + hashlib.sha256(start + content).digest() + frame)


def damaged(draw: random.Random, data: bytes) -> bytes:
    """One or two bytes of the columns are others, or of the header; digest and checksum are right.

    Damage that these do not notice has to be found in the values.
    """
    payload = Payload(data)
    parts = [part for part in payload.parts.values() if part.size]
    for _ in range(draw.randint(1, 2)):
        part = draw.choice(parts).view(np.uint8)
        part[draw.randrange(part.size)] = draw.choice((0, 1, 64, 255, draw.randrange(256)))
    if draw.random() < 0.2:
        payload.start[3] = draw.randrange(66)
    if draw.random() < 0.1:
        place = draw.randrange(5, 12)
        payload.start[place] = max(0, payload.start[place] + draw.choice((-1, 1)))
    return payload.to_bytes()


def fields_of(fingerprint: Fingerprint) -> dict[str, Any]:
    """All that a fingerprint holds, as JSON has it."""
    return {
        "scale": fingerprint.scale,
        "tensors": [
            {
                "names": list(tensor.names),
                "shape": list(tensor.shape),
                "lines": {str(length): count for length, count in sorted(tensor.lines.items())},
                "reason": None if tensor.reason is None else tensor.reason.value,
                "signature": None if tensor.signature is None else tensor.signature.hex(),
            }
            for tensor in fingerprint.tensors
        ],
        "lines": {str(length): count for length, count in sorted(fingerprint.lines.items())},
        "keys": fingerprint.keys.tolist(),
        "owners": fingerprint.owners.tolist(),
        "lengths": fingerprint.lengths.tolist(),
    }
