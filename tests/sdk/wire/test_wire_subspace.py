"""The native format of data subspaces: fixed offsets, bounded decoding, and harmless mutants."""

from __future__ import annotations

import io
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin import wire
from modelkin.core.subspaces.fit import fit_subspace
from modelkin.core.subspaces.subspace import Block, Subspace
from modelkin.errors import InvalidSubspace, ModelkinError, PayloadTooLarge, UnsupportedMediaType
from tests.sdk.wire.payloads import sealed
from tests.support.repetitions import repetitions

RNG = np.random.default_rng(0)
SUBSPACE = fit_subspace(
    RNG.normal(size=(60, 6)), np.repeat([0, 7], 30), rank=2, whole_rank=3, samples_per_direction=1
)
DATA = SUBSPACE.to_bytes()
TABLE, WEIGHTS, COLUMNS = 32, 32 + 3 * 6, 32 + 3 * 6 + 7 * 4
MUTANTS = repetitions(100_000)


@given(
    seed=st.integers(0, 2**32 - 1),
    features=st.integers(2, 40),
    labelled=st.booleans(),
    constant=st.sampled_from([0.0, 0.3, 0.5, 2.0]),
    weighting=st.sampled_from(["spectrum", "flat"]),
)
@settings(max_examples=80)
def test_round_trip(
    seed: int, features: int, labelled: bool, constant: float, weighting: Any
) -> None:
    """Any subspace survives float32 as it is, and float16 as what its digest is of."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2**31, 30) if labelled else None
    found = fit_subspace(
        rng.normal(size=(30, features)),
        labels,
        constant=constant,
        weighting=weighting,
        samples_per_direction=1,
    )
    assert found == Subspace.from_bytes(found.to_bytes("float32"))
    sent = Subspace.from_bytes(found.to_bytes())
    assert sent.digest == found.digest
    assert sent.to_bytes() == found.to_bytes()


def test_the_offsets_are_fixed() -> None:
    """Header, blocks, weights, columns and checksum stand where the specification says."""
    assert len(DATA) == COLUMNS + 7 * 7 * 2 + 4
    assert struct.unpack_from("<4sBBBBI", DATA) == (b"MKSB", 1, 1, 0, 0, 6)
    assert struct.unpack_from("<fffHHI", DATA, 12) == (0.5, 0.0, 0.0, 3, 0, 7)
    table = [struct.unpack_from("<iH", DATA, TABLE + 6 * at) for at in range(3)]
    assert table == [(-1, 3), (0, 2), (7, 2)]
    weights = np.frombuffer(DATA, "<f4", 7, WEIGHTS)
    assert weights.tolist() == [w for block in SUBSPACE.blocks for w in block.weights.tolist()]
    first = np.frombuffer(DATA, "<f2", 7, COLUMNS)
    assert first.tolist() == SUBSPACE.blocks[0].columns[0].astype(np.float16).tolist()


def test_a_value_takes_two_bytes() -> None:
    """And all else one percent, where there are features enough to matter."""
    found = fit_subspace(RNG.normal(size=(900, 512)))
    assert len(found.to_bytes()) <= 1.01 * 2 * found.num_columns * 513


def test_every_flipped_bit_is_refused() -> None:
    """No single flipped bit goes unnoticed."""
    for bit in range(8 * len(DATA)):
        damaged = bytearray(DATA)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ModelkinError):
            Subspace.from_bytes(damaged)


def test_every_other_length_is_refused() -> None:
    """A payload that ends early or goes on is refused, also where its checksum is made right."""
    for wrong in [*(DATA[:size] for size in range(len(DATA) - 4)), DATA + b"\0", DATA * 2]:
        for payload in (wrong, sealed(wrong)):
            with pytest.raises(InvalidSubspace):
                Subspace.from_bytes(payload)


def changed(offset: int, value: bytes) -> bytes:
    data = bytearray(DATA[:-4])
    data[offset : offset + len(value)] = value
    return sealed(bytes(data))


@pytest.mark.parametrize(
    ("offset", "value", "says"),
    [
        (0, b"MKSP", "another format"),
        (4, b"\x02", "version 2"),
        (5, b"\x03", "dtype 3"),
        (6, b"\x02", "weighting 2"),
        (7, b"\x01", "must be zero"),
        (26, b"\x01", "must be zero"),
        (8, b"\x01\0\0\0", r"m \(bytes 8-11\) must be 2 to 65535, it is 1"),
        (8, b"\0\0\1\0", r"m \(bytes 8-11\) must be 2 to 65535, it is 65536"),
        (12, struct.pack("<f", float("nan")), "constant must be 0 to 100"),
        (12, struct.pack("<f", 101.0), "constant must be 0 to 100"),
        (16, struct.pack("<f", 1.0), "epsilon and delta are given together"),
        (16, struct.pack("<ff", float("inf"), 1e-5), "promise nothing"),
        (16, struct.pack("<ff", 1.0, 1.0), "promise nothing"),
        (TABLE, struct.pack("<i", 0), "blocks must ascend"),
        (TABLE + 6, struct.pack("<i", 8), "blocks must ascend"),
        (TABLE + 6, struct.pack("<i", -2), "a label is 0 to"),
        (TABLE + 4, b"\x02\0\0\0\0\0\x03", "must have 1 to 7 columns|the weights"),
        (TABLE + 4, b"\0\0", "the blocks have 4 columns, the header says 7"),
        (WEIGHTS, struct.pack("<f", float("nan")), "not finite"),
        (WEIGHTS + 8, struct.pack("<f", 0.0), "must be above 0 and descend"),
        (WEIGHTS + 4, struct.pack("<f", 1.0), "must be above 0 and descend"),
        (WEIGHTS, struct.pack("<f", 1.0), "must sum to 1"),
        (COLUMNS, b"\x00\x7c", "not finite"),
        (COLUMNS, b"\xff\x7b", "not orthonormal"),
        (COLUMNS, b"\x00\x00" * 7, "not orthonormal"),
    ],
)
def test_payloads_that_are_not_subspaces(offset: int, value: bytes, says: str) -> None:
    """The error says which byte or value is wrong."""
    with pytest.raises(InvalidSubspace, match=says):
        Subspace.from_bytes(changed(offset, value))


def test_flat_weights_are_equal() -> None:
    """A payload that says flat and weighs by energy is refused."""
    with pytest.raises(InvalidSubspace, match="the weighting is flat"):
        Subspace.from_bytes(changed(6, b"\1"))


def test_columns_above_the_limit_are_refused() -> None:
    """By the header, before anything is allocated."""
    with pytest.raises(PayloadTooLarge, match=r"7 columns .*, at most 6"):
        Subspace.from_bytes(DATA, max_columns=6)
    assert Subspace.from_bytes(DATA, max_columns=7).num_columns == 7


def test_a_large_count_allocates_nothing() -> None:
    """A header that declares 2^32 columns is refused before any memory of that size."""
    for count in (2**20, 2**32 - 1):
        tracemalloc.start()
        with pytest.raises(InvalidSubspace, match="make a payload of"):
            Subspace.from_bytes(changed(28, struct.pack("<I", count)))
        assert tracemalloc.get_traced_memory()[1] < 20_000
        tracemalloc.stop()


@pytest.mark.slow
def test_mutants_are_refused_or_valid() -> None:
    """Whatever the bytes are, the answer is a subspace or one of the package's errors."""
    rng = np.random.default_rng(1)
    valid = 0
    for _ in range(MUTANTS):
        data = bytearray(DATA[:-4])
        for _ in range(int(rng.integers(1, 4))):
            data[int(rng.integers(len(data)))] = int(rng.integers(256))
        if rng.random() < 0.05:
            del data[int(rng.integers(len(data))) :]
        try:
            found = Subspace.from_bytes(sealed(bytes(data)), max_columns=64)
        except ModelkinError:
            continue
        valid += 1
        assert Subspace.from_bytes(found.to_bytes("float32")) == found
    assert 0 < valid < MUTANTS


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (np.ones(3), "a basis is a matrix"),
        (np.array([["a"]]), "a basis is a matrix"),
        (np.zeros((0, 2)), "a basis is a matrix"),
        (np.full((3, 1), np.nan), "not finite"),
        (np.full((3, 1), 0x7F800001, np.uint32).view(np.float32), "not finite"),  # one that signals
        (np.ones((3, 2)), "not independent"),
        (np.ones((2, 3)), "not independent"),
    ],
)
def test_matrices_that_are_not_bases(columns: Any, says: str) -> None:
    """A basis made elsewhere is checked before it is made orthonormal."""
    with pytest.raises(InvalidSubspace, match=says):
        Subspace.of_basis(columns)


def test_arrays_are_read_only_and_blocks_are_checked() -> None:
    """A subspace stays what its digest is of."""
    with pytest.raises(ValueError, match="read-only"):
        SUBSPACE.blocks[0].columns[0, 0] = 0
    wrong = Block(True, SUBSPACE.blocks[0].columns, SUBSPACE.blocks[0].weights)
    with pytest.raises(InvalidSubspace, match="a label is 0 to"):
        Subspace(6, 0.5, "spectrum", (wrong,))
    with pytest.raises(InvalidSubspace, match="one block at least"):
        Subspace(6, 0.5, "spectrum", ())
    with pytest.raises(InvalidSubspace, match="columns of shape"):
        Subspace(8, 0.5, "spectrum", SUBSPACE.blocks)


@pytest.mark.parametrize("media_type", wire.SUBSPACE_TYPES)
def test_media_types_hold_the_same(media_type: str) -> None:
    """A flat basis survives each of them; JSON and the native format keep all blocks."""
    flat = Subspace.of_basis(RNG.normal(size=(9, 3)))
    sent = wire.load_subspace(wire.dump_subspace(flat, media_type), media_type)
    assert flat.labels == sent.labels
    assert np.abs(flat.blocks[0].columns - sent.blocks[0].columns).max() < 1e-3
    if media_type != wire.NPY:
        again = wire.load_subspace(wire.dump_subspace(SUBSPACE, media_type), media_type)
        assert again.digest == SUBSPACE.digest


def npy(array: Any, **header: Any) -> bytes:
    """An ``.npy`` file whose header may lie."""
    file = io.BytesIO()
    described = {"descr": "<f8", "fortran_order": False, "shape": np.shape(array)} | header
    np.lib.format.write_array_header_1_0(file, described)
    return file.getvalue() + np.asarray(array, np.float64).tobytes()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not a .npy file"),
        (b"\x93NUMPY\x03\x00" + bytes(20), "not a .npy file"),
        (b"\x93NUMPY\x01\x00\x02\x00" + npy(np.eye(3))[10:], "longer than it says"),
        (npy(np.eye(3))[:-1], "the header makes a file of"),
        (npy(np.eye(3), shape=(1 << 40, 1 << 20)), "columns, at most"),
        (npy(np.eye(3), descr="|O"), "not a .npy file"),
        (npy(np.eye(3), descr="<i8"), "not a .npy file"),
        (npy(np.eye(3), shape=(9,)), "not a .npy file"),
        (npy(np.eye(3), shape=(3, 0)), "rows and columns"),
        (npy(np.ones((3, 2))), "not independent"),
        (b"\x93NUMPY\x01\x00\xff\x0f" + b"{" * 4095, "not a .npy file"),
    ],
)
def test_arrays_that_are_not_bases(data: bytes, says: str) -> None:
    """No pickle is loaded, and nothing is allocated by what a header says."""
    with pytest.raises((InvalidSubspace, PayloadTooLarge), match=says):
        wire.load_subspace(data, wire.NPY, max_columns=64)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "a JSON object"),
        ('{"label": 1}', "no field 'label'"),
        ("{}", "blocks must be a list"),
        ('{"blocks": [1]}', r"blocks\[0\] has label, weights and columns"),
        ('{"blocks": [{"columns": [[1], [1, 2]], "weights": [1]}]}', r"blocks\[0\].columns"),
        ('{"blocks": [{"columns": [[1, 0]], "weights": 1}]}', r"blocks\[0\].weights"),
        ('{"blocks": [{"columns": [[1e99, 0]], "weights": [1]}]}', "num_features"),
        ('{"blocks": [], "constant": "x"}', "constant must be a number"),
        ('{"blocks": [], "constant": 1' + "0" * 400 + "}", "too large a number"),
        ('{"num_features": 2, "blocks": [], "weighting": 7}', "weighting must be"),
        (
            '{"num_features": 2, "constant": 0, "blocks": '
            '[{"columns": [[1, NaN]], "weights": [1]}]}',
            "not finite",
        ),
    ],
)
def test_documents_that_are_not_subspaces(text: str, says: str) -> None:
    """Each with the field that is wrong."""
    with pytest.raises(InvalidSubspace, match=says):
        wire.load_subspace(text.encode(), wire.JSON)


def test_a_media_type_that_is_not_a_subspaces() -> None:
    """The error names those that are."""
    for call in (wire.load_subspace, wire.dump_subspace):
        with pytest.raises(UnsupportedMediaType, match=r"vnd\.modelkin\.subspace"):
            call(SUBSPACE if call is wire.dump_subspace else b"", "text/plain")  # type: ignore
