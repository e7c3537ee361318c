"""The native format of fingerprints: fixed offsets, one form of each, and what it refuses."""

from __future__ import annotations

import hashlib
import random
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin import wire
from modelkin.core.fingerprints.fingerprint import Fingerprint, FingerprintMaker
from modelkin.core.fingerprints.tensor_lines import TensorLines
from modelkin.core.fingerprints.tensors import LinesOfTensor, NotComparable
from modelkin.errors import InvalidFingerprint
from tests.sdk.core.fingerprints.planted import fingerprint, model
from tests.sdk.wire.fingerprints import NONE, START, Payload, damaged, drawn, of_keys, of_names
from tests.sdk.wire.payloads import sealed
from tests.support.repetitions import repetitions

SMALL = drawn(3)
DATA = SMALL.to_bytes()
MUTANTS = repetitions(100_000, few=2_000)


@given(
    seed=st.integers(0, 2**32 - 1),
    tensors=st.sampled_from([1, 2, 3, 8, 20, 257]),
    scale=st.integers(0, 6),
)
@settings(max_examples=30)
def test_round_trip(seed: int, tensors: int, scale: int) -> None:
    """What is written is read, and written as the same bytes; its digest is the same."""
    made = drawn(seed, tensors, 1 << scale, lines=6)
    data = made.to_bytes()
    read = Fingerprint.from_bytes(data)
    assert made == read
    assert data == read.to_bytes()
    assert made.digest == read.digest


@given(seed=st.integers(0, 2**32 - 1), scale=st.integers(0, 5), coarser=st.integers(0, 5))
@settings(max_examples=30)
def test_a_fine_one_holds_the_coarse_ones(seed: int, scale: int, coarser: int) -> None:
    """Those of a coarser scale are the same bytes, whether before or after they were sent."""
    whole = drawn(seed)
    sent = Fingerprint.from_bytes(whole.at(1 << scale).to_bytes())
    assert whole.at(1 << scale + coarser).to_bytes() == sent.at(1 << scale + coarser).to_bytes()


def test_one_of_weights_is_read_as_it_was_made() -> None:
    """At each scale, with its tensors that are not compared and those of two names."""
    embed = model(0)["embed"]
    ends = {"head": embed.copy(), "norm": embed[0], "eye": np.eye(64, dtype=np.float32)}
    whole = fingerprint({"embed": embed, "part": embed[:200]} | ends)
    for scale in (1, 8, 64):
        made = whole.at(scale)
        assert made == wire.decode_fingerprint(wire.encode_fingerprint(made))
    assert ("embed", "head") == whole.tensors[0].names


def test_the_offsets_are_fixed() -> None:
    """Header, columns and checksum stand where the specification says."""
    tensors = SMALL.tensors
    names = [name.encode() for tensor in tensors for name in tensor.names]
    shapes = [side for tensor in tensors for side in tensor.shape]
    signatures = [tensor.signature for tensor in tensors if tensor.signature]
    counts = (
        *(len(tensors), len(names), len(b"".join(names)), len(shapes)),
        *(len(signatures), len(SMALL.lines), SMALL.keys.size),
    )
    assert (b"MKFP", 1, 1, 0, 0, *counts) == START.unpack_from(DATA)
    parts = Payload(DATA).parts
    assert [len(tensor.names) for tensor in tensors] == parts["tensors"]["names"].tolist()
    assert b"".join(names) == parts["text"].tobytes()
    assert shapes == parts["sides"].tolist()
    assert b"".join(signatures) == parts["signatures"].tobytes()
    assert [SMALL.lines[length] for length in sorted(SMALL.lines)] == parts["lines"].tolist()
    gaps = np.diff(SMALL.keys, prepend=np.uint64(0))
    planes = gaps.astype("<u8").view(np.uint8).reshape(-1, 8).T
    assert planes.tobytes() == parts["keys"].tobytes()
    assert SMALL.owners.astype(np.uint8).tobytes() == parts["owners"].tobytes()
    hashed = DATA[: START.size] + Payload(DATA).content()
    assert f"sha256:{hashlib.sha256(hashed).hexdigest()}" == SMALL.digest
    assert DATA[START.size :][:32].hex() == SMALL.digest.removeprefix("sha256:")


def test_a_key_takes_less_than_ten_bytes() -> None:
    """With its part of the names and shapes, and 128 bytes of each signature beside."""
    made = fingerprint(model(0), None)
    signed = sum(tensor.signature is not None for tensor in made.tensors)
    assert len(made.to_bytes()) < 8 * made.keys.size + 128 * signed


def test_files(tmp_path: Path) -> None:
    """A file has the bytes; one of another format, or of more than any fingerprint, is refused."""
    path = tmp_path / "a.mkfp"
    SMALL.save(path)
    assert path.read_bytes() == DATA
    assert SMALL == Fingerprint.load(path)
    path.write_bytes(b"MKSP" + bytes(99))
    with pytest.raises(InvalidFingerprint, match="another format"):
        Fingerprint.load(path)
    with path.open("wb") as file:
        file.write(DATA)
        file.truncate(1 << 40)
    with pytest.raises(InvalidFingerprint, match="which no fingerprint has"):
        Fingerprint.load(path)


def test_every_flipped_bit_is_refused() -> None:
    """No single flipped bit goes unnoticed."""
    for bit in range(0, 8 * len(DATA), 3):
        damaged = bytearray(DATA)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidFingerprint):
            Fingerprint.from_bytes(damaged)


def test_every_other_length_is_refused() -> None:
    """A payload that ends early or goes on is refused, also where its checksum is made right."""
    for wrong in [*(DATA[:size] for size in range(len(DATA) - 4)), DATA + b"\0", DATA * 2]:
        for payload in (wrong, sealed(wrong)):
            with pytest.raises(InvalidFingerprint):
                Fingerprint.from_bytes(payload)


def start_with(place: int, value: Any) -> bytes:
    payload = Payload(DATA)
    payload.start[place] = value
    return payload.to_bytes()


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (0, b"MKSP", "another format"),
        (1, 2, "version 2"),
        (2, 2, r"scheme: 2 \(byte 5\) is unknown, .* make the fingerprint again"),
        (3, 64, r"scale: its binary logarithm \(byte 6\) is 0 to 63, not 64"),
        (4, 1, "flags: byte 7 must be zero"),
        (5, 0, "tensors: .* has 0, and 1 to 100,000 are allowed"),
        (5, 100_001, "tensors: .* has 100,001, .*: make a fingerprint of each of its parts"),
        (6, 100_001, "names: .* has 100,001"),
        (7, 2**32 - 1, "text: .* has 4,294,967,295, .*: give the tensors shorter names"),
        (8, 200, "sides: .* has 200, and 0 to 128 are allowed"),
        (9, 9, "signatures: .* has 9, and 0 to 8"),
        (10, 17, "lines: .* has 17, and 0 to 16"),
        (11, 65_537, "keys: .* has 65,537, .*: take a coarser scale"),
        (11, SMALL.keys.size + 1, "the header before it allows"),
    ],
)
def test_headers_that_are_refused(place: int, value: Any, says: str) -> None:
    """Each by its field, its value, and what to do."""
    with pytest.raises(InvalidFingerprint, match=says):
        Fingerprint.from_bytes(start_with(place, value))


def test_a_header_allocates_nothing() -> None:
    """One that declares as much as it may, or more, is refused before memory of that size."""
    most = (100_000, 100_000, 6_000_000, 400_000, 90_000, 100, 65_536)
    for counts in (most, (2**32 - 1,) * 7, (100_000, 100_000, 99_000_000, 0, 0, 0, 0)):
        payload = Payload(DATA)
        payload.start[5:] = counts
        data = payload.to_bytes()
        tracemalloc.start()
        with pytest.raises(InvalidFingerprint):
            Fingerprint.from_bytes(data)
        assert tracemalloc.get_traced_memory()[1] < 20_000
        tracemalloc.stop()


def test_a_frame_of_another_size_is_not_decompressed() -> None:
    """A frame may declare exactly what the header says, so no small payload grows large."""
    payload = Payload(DATA)
    payload.parts["longer"] = np.zeros(20 << 20, np.uint8)
    data = payload.to_bytes()
    tracemalloc.start()
    with pytest.raises(InvalidFingerprint, match="the zstd frame declares"):
        Fingerprint.from_bytes(data)
    assert tracemalloc.get_traced_memory()[1] < 200_000
    tracemalloc.stop()


def part_with(name: str, place: int, value: Any, field: str | None = None) -> bytes:
    payload = Payload(DATA)
    part = payload.parts[name]
    (part if field is None else part[field])[place] = value
    return payload.to_bytes()


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (("tensors", 0, 2, "names"), "names: the tensors have 13, and the header says 12"),
        (("tensors", 0, 5, "axes"), "sides: the tensors have 21, and the header says 20"),
        (("tensors", 0, 1, "signed"), "signatures: the tensors have 4, and the header says 3"),
        (("tensors", 0, 1, "zero"), r"tensors\[0\].zero: it is out of its range"),
        (("tensors", 0, 9, "reason"), r"tensors\[0\].reason: 9 is unknown"),
        (("tensors", 0, 0, "reason"), r"tensors\[0\].reason: a tensor has either lines or"),
        (("tensors", 0, 1, "reason"), r"'short' does not fit a tensor of shape \[96, 3, 16, 16\]"),
        (("tensors", 4, 2, "reason"), r"'structured' does not fit a tensor of shape \[\]"),
        (("tensors", 2, 3, "reason"), r"tensors\[2\].reason: a tensor has either lines or"),
        (("tensors", 2, 577, "longer"), r"tensors\[2\].lines: .* has no 577 lines of length 96"),
        (("tensors", 2, 2, "longer"), r"lines: 8 of length 96 are not|has 2 lines .* and 3 keys"),
        (("tensors", 6, 1, "shorter"), r"shape \[7\] has no lines of that length"),
        (("lengths", 0, 9), "names: they have .* bytes, and the header says"),
        (("text", 0, 0xFF), "names: one is not UTF-8"),
        (("text", 2, 0x0A), r"tensors\[0\].names: .* has a control character"),
        (("sides", 0, 2**63), r"tensors\[0\].shape: .* has a side beyond 2\^63 - 1"),
        (("lines", 0, 12), "lines: 12 of length 64 are not 11 to 11"),
        (("lines", 2, 4), "lines: 4 of length 96 are not 5 to 8"),
        (("lines", 2, 7), "lines: there are 7 of length 96, and 8 keys of them"),
        (("keys", -22, 0xFF), "keys: they do not ascend"),
        (("owners", 0, 8), "owners: a key is of tensor 8 of 8"),
        (("owners", 0, 6), r"tensors\[3\].lines: it has 11 lines of length 64, and 10 keys"),
        (("owners", 1, 3), r"tensors\[3\].lines: it has 5 lines of length 96, and 6 keys"),
        (("longer", 0, 0), r"tensors\[\d\].lines: it has"),
        (("longer", -1, 0xFF), "longer: a bit behind that of the last key is set"),
    ],
)
def test_columns_that_are_refused(part: tuple[Any, ...], says: str) -> None:
    """Each by its field and its value, though digest and checksum are right."""
    with pytest.raises(InvalidFingerprint, match=says) as refused:
        Fingerprint.from_bytes(part_with(*part))
    assert str(refused.value).startswith(f"{refused.value.field}: ")


def only(tensor: LinesOfTensor, keys: list[int], lengths: list[int], scale: int = 1) -> Fingerprint:
    """A fingerprint of one tensor and one more of the same lines, or of as many as there are."""
    return Fingerprint(
        scale,
        (tensor,),
        dict(tensor.lines),
        np.array(keys, np.uint64),
        np.zeros(len(keys), np.uint32),
        np.array(lengths, np.uint32),
    )


WIDE = LinesOfTensor(("w",), (64, 80), {64: 1, 80: 2})
HUGE = LinesOfTensor(("huge",), (2**63 - 1,), {}, NotComparable.SHORT)
ONE = only(WIDE, [3, 7, 9], [64, 80, 80])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scale": 3}, r"scale: it must be a power of two up to 2\^63, not 3"),
        ({"scale": 0}, "scale: it must be a power of two"),
        ({"scale": 1 << 64}, "scale: it must be a power of two"),
        ({"scale": 1 << 62}, r"keys\[1\]: 7 is not below 2\^64 / 4611686018427387904, the scale"),
        ({"keys": np.array([3, 2, 9], np.uint64)}, r"keys\[1\]: 2 is less than the key before it"),
        ({"keys": np.array([3, 9, 9], np.uint64)}, r"owners\[2\]: 0: owners of one key ascend"),
        ({"keys": ONE.keys[:2]}, "keys, owners and lengths must be as many"),
        ({"owners": np.array([0, 1, 0], np.uint32)}, r"owners\[1\]: 1 is not below the 1 tensors"),
        ({"lengths": np.array([64, 80, 96], np.uint32)}, r"lengths\[2\]: 96 is no side of tensor"),
        ({"lengths": np.array([64, 64, 80], np.uint32)}, r"has 1 lines of length 64, and 2 keys"),
        ({"lines": {64: 1}}, r"lines: they are of the lengths \[64\], and .* of \[64, 80\]"),
        ({"lines": {64: 1, 80: 3}}, "lines: 3 of length 80 are not 2 to 2"),
        ({"tensors": ()}, "lines: they are of the lengths"),
        ({"tensors": (replace(WIDE, names=("",)),)}, "'' has 0 characters, 1 to 500 are allowed"),
        ({"tensors": (replace(WIDE, names=("w" * 501,)),)}, "501 .*: give the tensor a shorter"),
        ({"tensors": (replace(WIDE, names=("\ud800",)),)}, "is no text: give the tensor another"),
        ({"tensors": (replace(WIDE, names=("a\n",)),)}, "has a control character"),
        ({"tensors": (replace(WIDE, names=("a", "a")),)}, "'a' is there twice: name each tensor"),
        ({"tensors": (replace(WIDE, names=()),)}, r"tensors\[0\].names: a tensor has one name"),
        ({"tensors": (replace(WIDE, shape=(1,) * 17),)}, "has 17 axes, at most 16 are allowed"),
        ({"tensors": (replace(WIDE, shape=(64, -1)),)}, "has a side beyond"),
        ({"tensors": (WIDE, HUGE)}, r"tensors: they have .* parameters, more than 2\^63 - 1"),
        (
            {"tensors": (replace(WIDE, shape=(2**32, 64)),)},
            r"None does not fit .* \[4294967296, 64\]",
        ),
        ({"tensors": (replace(WIDE, lines={64: 0, 80: 2}),)}, "has no 0 lines of length 64"),
        ({"tensors": (replace(WIDE, lines={64: 81, 80: 2}),)}, "has no 81 lines of length 64"),
        ({"tensors": (replace(WIDE, lines={64: 1, 96: 2}),)}, "has no 2 lines of length 96"),
        ({"tensors": (replace(WIDE, lines={}),)}, "either lines or a reason why not"),
        ({"tensors": (replace(WIDE, reason=NotComparable.NO_KEYS),)}, "either lines or a reason"),
        ({"tensors": (replace(WIDE, signature=b"127"),)}, "a tensor has one of 128 bytes"),
    ],
)
def test_values_that_are_not_written(changes: dict[str, Any], says: str) -> None:
    """The error of one that is no fingerprint names field, value and what to do."""
    assert ONE == Fingerprint.from_bytes(ONE.to_bytes())
    with pytest.raises(InvalidFingerprint, match=says) as refused:
        replace(ONE, **changes).to_bytes()
    assert str(refused.value).startswith(f"{refused.value.field}: ")


def test_square_tensors_have_one_length() -> None:
    """Both their rows and their columns count as lines of it, and no key is of a longer side."""
    square = LinesOfTensor(("w",), (64, 64), {64: 128})
    keys, lengths = list(range(128)), [64] * 128
    data = only(square, keys, lengths).to_bytes()
    assert keys == Fingerprint.from_bytes(data).keys.tolist()
    payload = Payload(data)
    payload.parts["longer"][0] = 2
    with pytest.raises(InvalidFingerprint, match=r"longer\[1\]: it is set, and tensor 0 has no"):
        Fingerprint.from_bytes(payload.to_bytes())
    payload = Payload(data)
    payload.parts["tensors"]["longer"][0] = 1
    with pytest.raises(InvalidFingerprint, match=r"tensors\[0\].lines: .* has no lines of that"):
        Fingerprint.from_bytes(payload.to_bytes())


@pytest.mark.slow
def test_limits_of_tensors_and_names() -> None:
    """So many are written and read, and one more says what to do; equal tensors count each."""
    most = of_names([str(number) for number in range(100_000)])
    assert most == Fingerprint.from_bytes(most.to_bytes())
    with pytest.raises(InvalidFingerprint, match=r"names: .* 100,001, .*: make a fingerprint of"):
        of_names([str(number) for number in range(100_001)], 2).to_bytes()
    with pytest.raises(InvalidFingerprint, match=r"tensors: .* has 0, and 1 to 100,000"):
        NONE.to_bytes()
    with pytest.raises(InvalidFingerprint, match=r"text: names of .* give the tensors shorter"):
        of_names([f"{number:0500}" for number in range(70_000)], 7).to_bytes()


def test_the_limit_of_keys() -> None:
    """65,536 are written and read; of one more the error names the scale that would do."""
    whole = of_keys(65_537)
    with pytest.raises(InvalidFingerprint, match=r"keys: there are 65,537, .* as by \.at\(2\)"):
        whole.to_bytes()
    fewer = whole.at(2)
    assert fewer == Fingerprint.from_bytes(fewer.to_bytes())


def test_each_length_has_its_count() -> None:
    """Counts of the checkpoint's lines are as many as the lengths that its tensors' lines have."""
    for count, lines in ((2, [11, 3]), (4, [11, 3, 8, 1])):
        payload = Payload(DATA)
        payload.start[10], payload.parts["lines"] = count, np.array(lines, "<u8")
        with pytest.raises(InvalidFingerprint, match=f"lines: there are {count} counts, and .* 3"):
            Fingerprint.from_bytes(payload.to_bytes())


def test_the_usual_scale_leaves_what_the_format_takes() -> None:
    """At most 65,536 keys, however many tensors there are."""
    draw, maker = np.random.default_rng(0), FingerprintMaker()
    for number in range(2_300):
        keys = np.unique(draw.integers(0, 2**64, 60, np.uint64))
        maker.take(str(number), TensorLines((64, 64), {64: keys}, None, None))
    made = maker.finish()
    assert 65_536 < maker.finish(2).keys.size < 32 * len(made.tensors)
    assert 4 == made.scale
    assert made == Fingerprint.from_bytes(made.to_bytes())


@pytest.mark.parametrize(
    "options",
    [{"write_checksum": False}, {"write_content_size": False}],
)
def test_frames_that_are_refused(options: dict[str, bool]) -> None:
    """A frame states its size and has a checksum, as in the other formats."""
    with pytest.raises(InvalidFingerprint, match="zstd frame must"):
        Fingerprint.from_bytes(Payload(DATA).to_bytes(**options))


def test_another_digest_is_refused() -> None:
    """A writer that is at fault is told so, and which digest the content has."""
    data = bytearray(DATA[:-4])
    data[START.size] ^= 1
    with pytest.raises(InvalidFingerprint, match=rf"digest: .* the content has {SMALL.digest}"):
        Fingerprint.from_bytes(sealed(bytes(data)))


def test_a_tensor_takes_little_memory() -> None:
    """With as many axes as there may be, less than 1.5 kB: so 100,000 take 150 MB at most."""
    tensors = tuple(
        LinesOfTensor((str(number),), (1 + number, *(1,) * 15), {}, NotComparable.SHORT)
        for number in range(1_000)
    )
    data = replace(NONE, tensors=tensors).to_bytes()
    tracemalloc.start()
    Fingerprint.from_bytes(data)
    assert tracemalloc.get_traced_memory()[1] < 1_500 * len(tensors)
    tracemalloc.stop()


@pytest.mark.slow
def test_mutants_of_the_content_are_refused_or_valid() -> None:
    """Whatever the columns are: the answer is the one fingerprint of these bytes, or its error."""
    draw, valid = random.Random(1), 0
    originals = [drawn(seed, 5, lines=4).to_bytes() for seed in range(20)]
    for _ in range(MUTANTS):
        data = damaged(draw, draw.choice(originals))
        try:
            found = Fingerprint.from_bytes(data)
        except InvalidFingerprint:
            continue
        valid += 1
        assert data[: START.size + 32] == found.to_bytes()[: START.size + 32]
    assert 0 < valid < MUTANTS
