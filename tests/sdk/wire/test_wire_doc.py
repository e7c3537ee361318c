"""``docs/wire-format.md`` is true: its examples are what is written, its reader reads it."""

from __future__ import annotations

import hashlib
import itertools
import json
import pathlib
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import zstandard
from hypothesis import given, settings

from modelkin import Base, Catalogue, wire
from modelkin.core.fingerprints.fingerprint import FingerprintMaker
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import coordinates
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from tests.sdk.core.ordered import ranked
from tests.sdk.wire.payloads import every, ordered_supports, scattered, supports

PAGE = (pathlib.Path(__file__).parents[3] / "docs" / "wire-format.md").read_text()
SUPPORT = Support.from_indices([0, 1, 5, 300, 999], 1000)
ORDERED = ranked([1, 5, 999, 0, 300], 1000)


def example(name: str) -> bytes:
    """The bytes of a hexadecimal example of the page."""
    (block,) = re.findall(rf"<!-- example: {name} -->\n```\n(.*?)```", PAGE, re.DOTALL)
    return bytes.fromhex("".join(line[6:53] for line in block.splitlines()))


def reader() -> Callable[[bytes], tuple[int, list[int], list[int] | None]]:
    """The page's own ``read_support``."""
    (block,) = re.findall(r"```python\n(import hashlib.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    read: Callable[[bytes], tuple[int, list[int], list[int] | None]] = names["read_support"]
    return read


def test_the_example_of_a_support() -> None:
    """The example is a payload of the support that the page names, with our header."""
    data = example("support")
    assert SUPPORT == wire.decode_support(data)
    assert data[:56] == SUPPORT.to_bytes()[:56]
    stream = re.search(r"the stream is `([0-9a-f ]+)`", PAGE)
    assert stream is not None
    assert bytes.fromhex(stream[1]) in data


def test_the_example_of_an_ordered_support() -> None:
    """The example is a payload of the order that the page names, with its octaves, also in JSON."""
    data = example("ordered support")
    assert ORDERED == wire.decode_support(data)
    assert data[:56] == ORDERED.to_bytes()[:56]
    named = re.search(r"falling importance 1, 5, 999, 0, 300 .* octaves are `([0-9a-f ]+)`", PAGE)
    assert named is not None
    assert ORDERED.octaves is not None
    assert ORDERED.octaves.tobytes() == bytes.fromhex(named[1])
    assert json.dumps(wire.support_to_json(ORDERED)) in PAGE


def test_the_example_of_a_signature() -> None:
    """The example is the signature of that support, and the JSON beside it is the same."""
    signature = SUPPORT.signature(num_perm=4)
    assert example("signature") == wire.encode_signature(signature)
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert json.loads(block) == wire.signature_to_json(signature)


def test_the_example_of_a_subspace() -> None:
    """The example is one direction of two features and a constant, with its noise."""
    subspace = Subspace.from_bytes(example("subspace"))
    assert example("subspace") == subspace.to_bytes()
    assert (2, 1.0, 8.0) == (subspace.num_features, subspace.constant, subspace.epsilon)
    assert 1 == subspace.num_columns


def test_the_example_of_a_sketch() -> None:
    """The example is the sketch of that support, with the indices that the page names in it."""
    sketch = SUPPORT.sketch(64, 48)
    assert example("sketch") == wire.encode_sketch(sketch)
    assert [0, 999] == coordinates(1000, 64, 48)[[0, 63]].tolist()
    assert (1 | 1 << 63) == int(sketch.words[0])


def test_the_example_of_a_fingerprint() -> None:
    """The example is the one tensor that the page names, with our header, digest and columns."""
    data = example("fingerprint")
    [tensor] = wire.decode_fingerprint(data).tensors
    assert (("w",), (64, 80), {64: 9, 80: 11}) == (tensor.names, tensor.shape, tensor.lines)
    written = wire.encode_fingerprint(wire.decode_fingerprint(data))
    assert data[:68] == written[:68]
    assert zstandard.decompress(written[68:-4]) in data


def test_the_example_of_a_catalogue() -> None:
    """The example is what stands before the fingerprint in a catalogue of that one; how well zstd
    compresses it decides two sizes, and so the digest.
    """
    fingerprint = wire.decode_fingerprint(example("fingerprint"))
    base = Base("org/w", license="mit", published_at=datetime(2024, 5, 1, tzinfo=UTC))
    made = Catalogue.of([(base, fingerprint)])
    data, written = example("catalogue"), made.to_bytes()[: -made["org/w"].size]
    assert len(data) == len(written)
    for begin, end in ((0, 24), (64, 96), (100, len(data))):
        assert data[begin:end] == written[begin:end]
    bound = hashlib.sha256(data[:32] + data[64:]).digest()
    assert data[32:64] == bound


def key_by_the_page(magnitudes: npt.NDArray[np.float64]) -> int:
    """The key of a line, step by step as the page has it."""
    n, most = magnitudes.size, 2**64 - 1
    r = 7 if n <= 95 else 6 if n <= 127 else 5 if n <= 255 else 4 if n <= 1023 else 5
    members = np.sort(np.argsort(-magnitudes)[: max(8, round(n / 50))]).astype(np.uint32)
    values = [Signature.of(np.array([i], np.uint32), n, num_perm=1, seed=1).values for i in members]
    key = n
    for value in sorted(int(each[0]) for each in values)[:r]:
        key = key * 0x9E3779B97F4A7C15 + value & most
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            key = (key ^ key >> 33) * factor & most
        key ^= key >> 33
    return key


def test_the_keys_of_the_scheme() -> None:
    """Whoever follows the page makes the keys that a fingerprint has, of rows and of columns."""
    matrix = np.random.default_rng(0).standard_normal((70, 110)).astype(np.float32)
    maker = FingerprintMaker()
    maker.add("w", matrix)
    expected = set[int]()
    for lines in (matrix.astype(np.float64), matrix.T.astype(np.float64)):
        scaled = np.abs(lines) / np.sqrt(np.square(lines).mean(axis=0))
        expected |= {key_by_the_page(line) for line in scaled}
    assert expected == set(maker.finish(1).keys.tolist())


def test_the_example_of_a_patch() -> None:
    """The example makes the support that the page names of the one above, with our header, and the
    two streams are those that it shows.
    """
    data, after = example("patch"), Support.from_indices([0, 5, 300, 700], 1000)
    assert after == wire.decode_patch(data, SUPPORT).apply(SUPPORT)
    assert data[:112] == wire.encode_patch(SUPPORT, after)[:112]
    streams = re.findall(r"indices is `([0-9a-f ]+)`, that of places `([0-9a-f ]+)`", PAGE)[0]
    assert bytes.fromhex("".join(streams)) in data


@given(supports() | ordered_supports())
@settings(max_examples=60)
def test_the_reader_reads_every_support(support: Support) -> None:
    """The reader on the page agrees with ours, at every size and with octaves."""
    octaves = None if support.octaves is None else support.octaves.tolist()
    expected = (support.num_parameters, support.indices.tolist(), octaves)
    assert expected == reader()(support.to_bytes())


@pytest.mark.parametrize("support", [every(3), scattered(10**6, 500), scattered(10**10, 500)])
def test_the_reader_reads_planes(support: Support) -> None:
    """The reader agrees on longer supports too, with none, one and more low bytes."""
    assert support.indices.tolist() == reader()(support.to_bytes())[1]


@pytest.mark.parametrize(
    "heading", ["A support", "A patch", "A signature", "A sketch", "A fingerprint"]
)
def test_the_offsets_add_up(heading: str) -> None:
    """In the tables of the headers each field begins where the one before it ends."""
    table = PAGE.split(f"\n## {heading}")[1].split("\n\n")[1]
    rows = [row.split(" | ") for row in table.splitlines()[2:]]
    fixed = [(int(offset.strip("| ")), size) for offset, size, *_ in rows if "+" not in offset]
    for (offset, size), (following, _) in itertools.pairwise(fixed):
        assert following == offset + int(size)


def test_the_media_types_are_all_there() -> None:
    """The page's first table names every media type that the code reads."""
    named = set(re.findall(r"^\| `(application/\S+)`", PAGE, re.MULTILINE))
    several = (*wire.SUPPORT_TYPES, *wire.SIGNATURE_TYPES, *wire.SUBSPACE_TYPES)
    others = (wire.SKETCH, wire.PATCH, wire.CELL, wire.FINGERPRINT, wire.CATALOGUE)
    assert {*several, *others} == named
