"""The native format of catalogues: fixed offsets, one form of each, and what it refuses."""

from __future__ import annotations

import hashlib
import random
import struct
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelkin import wire
from modelkin.core.catalogues.catalogue import Base, Catalogue
from modelkin.errors import InvalidCatalogue, InvalidParameter
from tests.sdk.wire.fingerprints import drawn
from tests.support.repetitions import repetitions

START = struct.Struct("<4sBBHIIQQ")
HEADER = 64
TABLE = np.dtype(
    [
        ("digest", "u1", (32,)),
        ("payload", "<u4"),
        ("keys", "<u4"),
        ("text", "<u4"),
        ("zero", "<u4"),
        ("parameters", "<u8"),
        ("file_bytes", "<u8"),
        ("published", "<i8"),
    ]
)
BASES = {
    Base(
        "org/b",
        "https://hub/org/b",
        "c0ffee",
        "mit",
        datetime(2024, 5, 1, 12, tzinfo=UTC),
        ("org/a", "org/z"),
        "merge",
        1_234,
    ): drawn(3),
    Base("org/a"): drawn(4, tensors=2),
    Base("Ω", published_at=datetime(1969, 1, 1, tzinfo=UTC)): drawn(5, tensors=20),
}
MADE = Catalogue.of(BASES.items())
DATA = MADE.to_bytes()
MUTANTS = repetitions(50_000, few=1_000)


class File:
    """A catalogue's bytes by their columns, with a digest that is right where it is asked for."""

    def __init__(self) -> None:
        self.start: list[Any] = list(START.unpack_from(DATA))
        _, _, _, _, bases, text, keys, _ = self.start
        self.table = np.frombuffer(DATA, TABLE, bases, HEADER).copy()
        at = HEADER + self.table.nbytes
        self.text = bytearray(DATA[at : at + text])
        self.keys = np.frombuffer(DATA, "<u8", keys, at + text).copy()
        self.owners = np.frombuffer(DATA, "<u4", keys, at + text + 8 * keys).copy()
        self.payloads = bytearray(DATA[at + text + 12 * keys :])

    def to_bytes(self) -> bytes:
        head = b"".join(
            [self.table.tobytes(), self.text, self.keys.tobytes(), self.owners.tobytes()]
        )
        start = START.pack(*self.start)
        return start + hashlib.sha256(start + head).digest() + head + self.payloads


def test_round_trip(tmp_path: Path) -> None:
    """What is written is read, whole and from a file, and written as the same bytes."""
    path = tmp_path / "a.mkct"
    MADE.save(path)
    for read in (wire.decode_catalogue(DATA), Catalogue.load(path)):
        assert ["org/a", "org/b", "Ω"] == list(read)
        assert dict(MADE) == dict(read)
        assert MADE.digest == read.digest
        assert len(DATA) == read.size
        for base, fingerprint in BASES.items():
            assert fingerprint == read.fingerprint(base.name)
        assert DATA == wire.encode_catalogue(read)
    assert DATA == path.read_bytes()
    assert ("org/b", "mit", ("org/a", "org/z"), 1_234) == (
        read["org/b"].name,
        read["org/b"].license,
        read["org/b"].base_models,
        read["org/b"].file_bytes,
    )


def test_the_order_of_bases_is_none() -> None:
    """Catalogues of the same bases are the same bytes, and so is one that is joined of parts."""
    assert DATA == Catalogue.of(reversed(BASES.items())).to_bytes()
    assert DATA == Catalogue.joined(Catalogue.of([each]) for each in BASES.items()).to_bytes()


def test_the_offsets_are_fixed() -> None:
    """Header, table, texts, keys and fingerprints stand where the specification says."""
    file = File()
    payloads = [BASES[base].to_bytes() for base in sorted(BASES, key=lambda base: base.name)]
    sizes = (len(file.text), file.keys.size, len(b"".join(payloads)))
    assert (b"MKCT", 1, 1, 0, 3, *sizes) == START.unpack_from(DATA)
    assert b"".join(payloads) == file.payloads
    assert list(map(len, payloads)) == file.table["payload"].tolist()
    texts = [
        "org/a\n\n\n\n",
        "org/b\nhttps://hub/org/b\nc0ffee\nmit\nmerge\norg/a\norg/z",
        "Ω\n\n\n\n",
    ]
    assert "".join(texts).encode() == file.text
    assert [len(text.encode()) for text in texts] == file.table["text"].tolist()
    assert [-(2**63), 1_714_564_800, -31_536_000] == file.table["published"].tolist()
    assert [0, 1_234, 0] == file.table["file_bytes"].tolist()
    for number, name in enumerate(MADE):
        found = MADE.fingerprint(name)
        assert file.table["digest"][number].tobytes().hex() == found.digest[7:]
        assert found.distinct.tolist() == file.keys[file.owners == number].tolist()
        sizes_of_tensors = (each.size * len(each.names) for each in found.tensors)
        assert sum(sizes_of_tensors) == file.table["parameters"][number]
    bound = DATA[: START.size] + DATA[HEADER : -len(file.payloads)]
    assert f"sha256:{hashlib.sha256(bound).hexdigest()}" == MADE.digest
    assert DATA == file.to_bytes()


def test_every_flipped_bit_is_refused() -> None:
    """No single flipped bit goes unnoticed where all is read."""
    for bit in range(0, 8 * len(DATA), 97):
        damaged = bytearray(DATA)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidCatalogue):
            wire.decode_catalogue(damaged)


def test_every_other_length_is_refused(tmp_path: Path) -> None:
    """A file that ends early or goes on is refused before its fingerprints are asked for."""
    path = tmp_path / "a.mkct"
    for wrong in [*(DATA[:size] for size in range(0, len(DATA), 97)), DATA + b"\0"]:
        path.write_bytes(wrong)
        with pytest.raises(InvalidCatalogue):
            Catalogue.load(path)
    path.write_bytes(b"MKFP" + bytes(99))
    with pytest.raises(InvalidCatalogue, match="another format"):
        Catalogue.load(path)


def with_start(place: int, value: Any) -> Callable[[File], None]:
    return lambda file: file.start.__setitem__(place, value)


def with_row(field: str, number: int, value: Any) -> Callable[[File], None]:
    return lambda file: file.table[field].__setitem__(number, value)


def with_text(old: str, new: str) -> Callable[[File], None]:
    def change(file: File) -> None:
        assert len(old) == len(new)
        file.text = file.text.replace(old.encode(), new.encode())

    return change


def swapped(file: File) -> None:
    file.keys[[0, 1]] = file.keys[[1, 0]]


def other_owner(file: File) -> None:
    file.owners[0] = 3


def other_key(file: File) -> None:
    file.keys[0] -= 1


def of_another(file: File) -> None:
    file.owners[0] = (file.owners[0] + 1) % 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (with_start(1, 2), "version 2"),
        (with_start(2, 2), r"scheme: 2 \(byte 5\) is unknown"),
        (with_start(3, 1), "flags: bytes 6 and 7 must be zero"),
        (with_start(4, 0), "bases: there are 0, and 1 to 100,000 are allowed"),
        (with_start(4, 100_001), "bases: there are 100,001"),
        (with_start(5, 2**32 - 1), "text: there are 4,294,967,295, and 3 to 49,152 are allowed"),
        (with_start(6, 3_070), "keys: there are 3,070, and 0 to 3,069"),
        (with_start(7, 2**62), "payloads: there are"),
        (with_start(4, 4), "its header says"),
        (with_row("zero", 1, 1), r"bases\[1\].zero: 1 is more than the 0"),
        (with_row("payload", 0, 2**23), r"bases\[0\].payload: 8,388,608 is more than"),
        (with_row("text", 0, 7), "text: the bases have"),
        (with_row("keys", 2, 900), "keys: the bases have"),
        (with_row("parameters", 0, 7), r"bases\[0\]: what is said of 'org/a' is not of its finge"),
        (with_row("digest", 0, 7), r"bases\[0\]: the fingerprint of 'org/a' is sha256:.*, and the"),
        (with_row("published", 0, 2**62), r"bases\[0\].published: .* is in no year"),
        (with_row("file_bytes", 0, 2**64 - 1), r"bases\[0\]: bases.file_bytes"),
        (with_text("org/a\n\n\n\n", "org/z\n\n\n\n"), r"bases\[1\].name: 'org/b' stands behind"),
        (with_text("org/a\n\n", "org//\n\n"), r"bases\[0\]: bases.name: segment 2"),
        (with_text("mit", "m\tt"), r"bases\[1\]: bases.license: 'org/b' has"),
        (with_text("merge", "marge"), r"bases\[1\]: bases.relation: 'org/b' has 'marge'"),
        (with_text("merge\n", "merge "), r"bases\[1\]: bases.relation"),
        (with_text("org/a\norg/z", "org/a\norg/a"), r"bases\[1\]: bases.name: .* repeated"),
        (lambda file: file.text.__setitem__(0, 0xFF), r"bases\[0\].text: it is not UTF-8"),
        (swapped, r"keys\[1\]: \d+ of base \d stands behind a later one"),
        (other_owner, "owners: a key is of base 3 of 3"),
        (of_another, r"bases\[\d\].keys: it has \d+ finding keys, and the table says"),
        (other_key, r"bases\[\d\]: what is said of '.*' is not of its fingerprint"),
        (
            lambda file: file.payloads.__setitem__(-9, 0),
            r"bases\[2\]: the fingerprint of '.*': the CRC-32",
        ),
    ],
)
def test_files_that_are_refused(change: Callable[[File], None], says: str) -> None:
    """Each by its field and its value, though the digest is right."""
    file = File()
    change(file)
    with pytest.raises(InvalidCatalogue, match=says):
        wire.decode_catalogue(file.to_bytes())


def test_a_header_allocates_nothing(tmp_path: Path) -> None:
    """One that declares more than its file has is refused before memory of that size."""
    path = tmp_path / "a.mkct"
    file = File()
    file.start[4:] = [100_000, 1_000_000, 100_000_000, 10**11]
    path.write_bytes(file.to_bytes())
    tracemalloc.start()
    with pytest.raises(InvalidCatalogue, match="truncated"):
        Catalogue.load(path)
    assert tracemalloc.get_traced_memory()[1] < 200_000
    tracemalloc.stop()


def test_a_file_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    """A fingerprint of another catalogue is not taken for that of the one that was opened."""
    path = tmp_path / "a.mkct"
    MADE.save(path)
    opened = Catalogue.load(path)
    Catalogue.of([(Base("org/a"), drawn(6))]).save(path)
    with pytest.raises(InvalidCatalogue, match="the fingerprint of 'org/a'"):
        opened.fingerprint("org/a")


@pytest.mark.parametrize(
    ("bases", "says"),
    [
        ([], "bases: there are 0, and 1 to 100,000 are allowed"),
        ([Base("a"), Base("a")], "two are named 'a'"),
        ([Base("a/../b")], "bases.name"),
        ([Base("a", license="x" * 2_001)], "bases.license"),
        ([Base("a", url="https://a\n/b")], "bases.url"),
        ([Base("a", published_at=datetime(2024, 1, 1))], "a date without a time zone"),
        ([Base("a", file_bytes=0)], "bases.file_bytes"),
        ([Base("a", base_models=("b", "b"))], "bases.name"),
    ],
)
def test_bases_that_are_not_written(bases: list[Base], says: str) -> None:
    """The error of one that has no place in the format names the field."""
    with pytest.raises(InvalidCatalogue, match=says):
        Catalogue.of((base, drawn(1)) for base in bases)


def test_an_unknown_base_is_named() -> None:
    """Who asks for one that is not there is told its name."""
    with pytest.raises(InvalidParameter, match="the catalogue has no base 'org/c'"):
        MADE.fingerprint("org/c")


@pytest.mark.slow
def test_mutants_are_refused_or_valid() -> None:
    """Whatever the columns are: the answer is the catalogue of these bytes, or its error."""
    draw, valid = random.Random(1), 0
    for _ in range(MUTANTS):
        file = File()
        for _ in range(draw.randint(1, 2)):
            columns = [file.table, file.keys, file.owners]
            part: Any = draw.choice(
                [*(each.view(np.uint8).reshape(-1) for each in columns), file.text, file.payloads]
            )
            part[draw.randrange(len(part))] = draw.choice((0, 1, 10, 255, draw.randrange(256)))
        data = file.to_bytes()
        try:
            found = wire.decode_catalogue(data)
        except InvalidCatalogue:
            continue
        valid += 1
        assert data == found.to_bytes()
    assert 0 < valid < MUTANTS
