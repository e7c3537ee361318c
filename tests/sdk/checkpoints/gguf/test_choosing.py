"""Which GGUF files of a repository are read, by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from modelkin.checkpoints import open_checkpoint
from modelkin.checkpoints.repository import choose, choose_file
from modelkin.errors import InvalidCheckpoint
from tests.support.models.gguf_files import as_llama_cpp, llama, split_name, write_gguf

SPLIT = [f"Q8_0/m-Q8_0-{n:05d}-of-00003.gguf" for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("files", "first"),
    [
        (["model.gguf"], "model.gguf"),
        (["README.md", "a/SmolLM2-135M.Q4_1.gguf"], "a/SmolLM2-135M.Q4_1.gguf"),
        (["m-Q4_K_S.gguf", "m-Q4_K_M.gguf", "m-Q3_K_L.gguf"], "m-Q4_K_M.gguf"),
        (["m.Q6_K.gguf", "m.f16.gguf", "m.Q8_0.gguf"], "m.f16.gguf"),
        (["m-F16.gguf", "m-BF16.gguf"], "m-BF16.gguf"),
        (["m.i1-IQ3_XS.gguf", "m.i1-IQ3_M.gguf", "m.imatrix.gguf"], "m.i1-IQ3_M.gguf"),
        (["M-UD-Q4_K_XL.gguf", "M-IQ4_NL.gguf", "mmproj-F16.gguf"], "M-UD-Q4_K_XL.gguf"),
        (["m-Q4_0.gguf", "mmproj-model-f16.gguf", "imatrix_m.gguf"], "m-Q4_0.gguf"),
        (["m-Q4_0.gguf", *SPLIT], SPLIT[0]),
        (
            ["Q2_K/m-00001-of-00001.gguf", "BF16/m-00001-of-00001.gguf"],
            "BF16/m-00001-of-00001.gguf",
        ),
        (["m-Q4_0.gguf", *SPLIT[:2]], "m-Q4_0.gguf"),  # whose upload is not complete
        (["m-BF16.gguf", "sub/model.safetensors"], "sub/model.safetensors"),
        (["qwen-1.5b-q4_k_m.gguf", "qwen-1.5b-q8_0.gguf"], "qwen-1.5b-q8_0.gguf"),
    ],
)
def test_the_one_with_the_most_bits_is_read(files: list[str], first: str) -> None:
    """Safetensors come first; of one model's quantisations that of the most bits, which is said."""
    for given in (files, files[::-1]):
        choice = choose(given, "org/m")
        assert first == choice.first
        said = [note for note in choice.notes if "the one with the most bits of" in note]
        held = {f.rpartition("/")[0] + f.split("-0000")[0] for f in files if f.endswith(".gguf")}
        held -= {f for f in held if "mmproj" in f or "imatrix" in f}
        assert bool(said) == (len(held) > 1 and first.endswith(".gguf"))


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (["a-Q4_0.gguf", "b-Q4_0.gguf"], "GGUF files of several models, 'a-Q4_0.gguf', 'b-Q4_0"),
        (SPLIT[1:], "its upload is not complete"),
        (["mmproj-F16.gguf"], "holds no model: its GGUF files are projectors"),
        (["m.gguf.part1of2", ".gguf"], "holds no safetensors or GGUF file"),
    ],
)
def test_other_repositories_are_refused(files: list[str], why: str) -> None:
    """The refusal names what lies there."""
    with pytest.raises(InvalidCheckpoint) as caught:
        choose(files, "org/m")
    assert why in str(caught.value)


def test_parts_are_opened_by_the_first_or_their_folder(tmp_path: Path) -> None:
    """Another part names the first; a part that is missing is named."""
    tensors = as_llama_cpp(llama(1))
    first = write_gguf(tmp_path / "m.gguf", tensors, "Q8_0", tensors_a_split=8)
    whole = write_gguf(tmp_path / "other" / "m.gguf", tensors, "Q8_0")
    expected = open_checkpoint(whole).layout
    assert expected == open_checkpoint(first).layout == open_checkpoint(tmp_path).layout
    second = split_name(tmp_path / "m.gguf", 2, 3)
    with pytest.raises(InvalidCheckpoint, match="part 2 of 3: give m-00001-of-00003"):
        open_checkpoint(second)
    second.unlink()
    with pytest.raises(InvalidCheckpoint, match=r"part .m-00002-of-00003\.gguf. is missing"):
        choose_file(first.name, [path.name for path in tmp_path.iterdir()])
