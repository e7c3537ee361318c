"""What a repository's weights are, by the names of its files: one rule for hub, SDK and shell."""

from __future__ import annotations

import pytest

from modelkin.checkpoints.repository import Choice, choose, choose_file, components
from modelkin.errors import InvalidCheckpoint

ONE, INDEX = "model.safetensors", "model.safetensors.index.json"


def shards(total: int, *, stem: str = "model", digits: str = "05/05", first: int = 1) -> list[str]:
    """The names of a numbered set."""
    number, of = digits.split("/")
    return [f"{stem}-{i:{number}}-of-{total:{of}}.safetensors" for i in range(first, total + first)]


@pytest.mark.parametrize(
    ("files", "first"),
    [
        ([ONE], ONE),
        ([ONE, INDEX, *shards(2)], ONE),
        ([INDEX, *shards(2)], INDEX),
        ([INDEX, "layers-0.safetensors", "layers-1.safetensors"], INDEX),
        (["weights.safetensors"], "weights.safetensors"),
        ([ONE, "model.fp16.safetensors", "adapter_model.safetensors"], ONE),
        (["model.fp16.safetensors"], "model.fp16.safetensors"),
        (["a.safetensors", "a.fp16.safetensors", "a.non_ema.safetensors"], "a.safetensors"),
        (["flux.safetensors", "flux-fp8.safetensors", "flux_bf16.safetensors"], "flux.safetensors"),
        ([INDEX, *shards(2), "consolidated.safetensors"], INDEX),
        (["consolidated.safetensors"], "consolidated.safetensors"),
        (["original/a.safetensors", "hf/a.safetensors"], "hf/a.safetensors"),
        (["x/y/model.safetensors", "x/model.safetensors"], "x/model.safetensors"),
        (["model-00001-of-00001.safetensors"], "model-00001-of-00001.safetensors"),
        (["model-1-of-000001.safetensors"], "model-1-of-000001.safetensors"),
        (["diffusion_pytorch_model.safetensors.index.fp16.json"], None),
        (["model.fp16.safetensors.index.json", "model.fp16-1-of-2.safetensors"], None),
        (["v.safetensors.index.json", *shards(2, stem="v"), "consolidated.safetensors"], None),
        (["pytorch_model.bin", "m/adapter_model.safetensors"], "m/adapter_model.safetensors"),
        (["a.safetensors", "._a.safetensors", f"._{INDEX}", "__MACOSX/._b.safetensors"], None),
        (["a.gguf", "._a.gguf"], None),
        (["pytorch_lora_weights.safetensors", "a.safetensors", "a_emb.safetensors"], None),
        (["adapter_model.safetensors", "extra.safetensors"], None),
        (["a.safetensors", "a-000002.safetensors", "a-step00000500.safetensors"], None),
    ],
)
def test_the_file_to_open(files: list[str], first: str | None) -> None:
    """The default name, one file before an index, plain before variants, the top before folders."""
    assert (first or files[0]) == choose(files, "org/a").first


@pytest.mark.parametrize(
    "files",
    [
        shards(2),
        shards(163, digits="05/06"),
        shards(9, digits="1/1"),
        shards(2, first=0),
        shards(2, stem="model.fp16"),
        [name.replace(".safe", ".fp16.safe") for name in shards(2, stem="diffusion_pytorch_model")],
        [f"transformer/{name}" for name in shards(2)],
        [name.replace("-", "_") for name in shards(2)],
        [name.replace("model-", "model.") for name in shards(2)],
    ],
)
def test_a_whole_set_needs_no_index(files: list[str]) -> None:
    """Shards that number themselves are a checkpoint, whatever the digits of their names."""
    choice = choose(files, "org/a")
    assert ("shards", tuple(files)) == (choice.kind, choice.shards)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (["model-00001-of-000002.safetensors"], "its upload is not complete"),
        (shards(163, digits="05/06")[:-1], "its upload is not complete"),
        ([*shards(3)[:2], "consolidated.safetensors"], "its upload is not complete"),
        ([*shards(2)[:1], *shards(2, digits="1/1")[1:]], "its upload is not complete"),
        ([*shards(2), *shards(3)], "holds 2 whole sets of shards, of 'model-00001-of-00002.safet"),
        (["m-1-of-2.safetensors", "m-01-of-2.safetensors"], "its upload is not complete"),
        (["m-1-of-2.safetensors", "m_2_of_2.safetensors"], "its upload is not complete"),
        (
            ["consolidated.00.safetensors", "consolidated.01.safetensors"],
            "whose names differ in their numbers alone: if they are parts of one model",
        ),
        (["a.safetensors", "b.safetensors"], "several checkpoints, 'a.safetensors', 'b.safetensor"),
        (["a.v1.safetensors", "a.v1.5.safetensors"], "several checkpoints"),
        (["x.fp16.safetensors", "x.fp8.safetensors"], "several checkpoints"),
        (["vae/model.safetensors", "unet/model.safetensors"], "in 'unet/', 'vae/': give one of"),
        (
            ["config.json"],
            "holds no safetensors or GGUF file: save the weights as model.safetensors",
        ),
        (
            ["config.json", "Bees.SAFETENSORS"],
            "endings are read in small letters, so rename or give 'Bees.SAFETENSORS'",
        ),
        (
            ["a.onnx", "b.h5", "pytorch_model.bin"],
            "'pytorch_model.bin' is a pickle, which is",
        ),
        (["model.h5", "README.md"], "'model.h5' is of Keras"),
        (["rwkv.tar.gz"], "'rwkv.tar.gz' is an archive"),
        (["model.onnx"], "'model.onnx' is ONNX"),
        ([".safetensors"], "no safetensors or GGUF file"),
        (["m" * 256 + ".safetensors"], "more than 255 bytes"),
    ],
)
def test_what_is_no_choice(files: list[str], says: str) -> None:
    """Half of an upload, several checkpoints and other formats are called that."""
    with pytest.raises(InvalidCheckpoint) as caught:
        choose(files, "org/a")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "beside", "remedy"),
    [
        ("model-00001-of-000002.safetensors", [], "1 of 2"),
        ("model-1-of-3.safetensors", [INDEX], INDEX),
        ("m.fp16-00001-of-00002.safetensors", ["m.safetensors.index.fp16.json"], "index.fp16.json"),
        ("m-00002-of-00002.fp16.safetensors", ["m.fp16.safetensors.index.json"], "fp16.safetens"),
        ("model_00001_of_00002.safetensors", [INDEX], INDEX),
        ("model.1-of-2.safetensors", [], "1 of 2"),
    ],
)
def test_a_shard_is_not_the_whole(name: str, beside: list[str], remedy: str) -> None:
    """A shard by any digits is refused as one, and the index that lies beside it is named."""
    with pytest.raises(InvalidCheckpoint) as caught:
        choose_file(name, [name, *beside])
    says = str(caught.value)
    assert "shards: give their folder" in says
    assert (remedy in says) == bool(beside)
    assert "file" == choose_file("model-00001-of-00001.safetensors", []).kind


def test_a_stale_index_gives_way_to_a_whole_set() -> None:
    """An index of files that are not there is passed over for the only set that lacks none."""
    old, new = shards(30), shards(15)
    followed = choose([INDEX, *new], "org/a").follow(old, "org/a")
    assert (tuple(new), True, True) == (followed.paths, followed.whole, followed.replaced)
    assert "names 30 files that are not there" in followed.notes[0]
    for lying in ([], new[1:], [*new, *shards(2)], old[:7], [*new, *old[:7]]):
        with pytest.raises(InvalidCheckpoint, match="upload is not complete, or the index is an"):
            choose([INDEX, *lying], "org/a").follow(old, "org/a")


@pytest.mark.parametrize(
    ("named", "whole"),
    [
        (shards(3), True),
        (shards(3)[:2], False),
        ([*shards(2), "model-overlay.safetensors"], False),
        (["layers-0.safetensors"], False),
    ],
)
def test_an_index_says_which_files(named: list[str], whole: bool) -> None:
    """Its files are read; whether they are one whole set says what counts of them."""
    files = {INDEX, *shards(2), *shards(3), "model-overlay.safetensors", "layers-0.safetensors"}
    followed = choose(files, "org/a").follow(named, "org/a")
    assert (tuple(sorted(named)), whole) == (followed.paths, followed.whole)


def test_what_lies_beside_says_how_to_read() -> None:
    """Configurations of quantisation and adapters come with weights of the same folder alone."""
    files = ["a/model.safetensors", "a/config.json", "quantize_config.json", "a/quant_config.json"]
    assert ("a/config.json", "a/quant_config.json") == choose(files, "org/a").beside


@pytest.mark.parametrize(
    ("files", "aside"),
    [
        ([ONE, INDEX, *shards(2)], [*shards(2), INDEX]),
        ([ONE, "model.fp16.safetensors"], ["model.fp16.safetensors"]),
        ([*shards(1), "consolidated.safetensors"], ["consolidated.safetensors"]),
        ([*shards(2), "other.safetensors"], ["other.safetensors"]),
        ([ONE], []),
    ],
)
def test_weights_that_are_left_aside_are_noted(files: list[str], aside: list[str]) -> None:
    """The answer names those in the folder of the weights that are read."""
    choice = choose(files, "org/a")
    named = ", ".join(map(repr, aside))
    note = f"'{choice.first}' is read, and {named} beside it left aside"
    assert ((note,) if aside else ()) == choice.notes


def test_weights_beside_an_index_are_noted() -> None:
    """They are those that the index does not name, whatever they are called."""
    choice = choose([INDEX, *shards(2), "consolidated.safetensors"], "org/a")
    assert () == choice.notes
    [note] = choice.follow(shards(2), "org/a").notes
    assert f"'{INDEX}' is read, and 'consolidated.safetensors' beside it left aside" == note


SDXL = [
    "model_index.json", "sd_xl_base_1.0.safetensors", "sd_xl_base_1.0_0.9vae.safetensors",
    "unet/diffusion_pytorch_model.safetensors", "unet/diffusion_pytorch_model.fp16.safetensors",
    "text_encoder/model.safetensors", "text_encoder/model.fp16.safetensors",
    "text_encoder_2/model.safetensors.index.json", *(f"text_encoder_2/{n}" for n in shards(2)),
    "vae/diffusion_pytorch_model.fp16.safetensors", "vae_1_0/diffusion_pytorch_model.safetensors",
    "tokenizer/vocab.json", "scheduler/scheduler_config.json", "unet/config.json",
]  # fmt: skip


def pipeline(files: list[str], listed: set[str]) -> dict[str, Choice]:
    return components(choose(files, "org/a"), listed, files, "org/a")


def test_a_pipeline_is_its_components() -> None:
    """Components are the folders that are listed and have weights; the rest is left aside."""
    choice = choose(SDXL, "org/a")
    assert ("pipeline", "model_index.json") == (choice.kind, choice.first)
    assert "'sd_xl_base_1.0.safetensors', 'sd_xl_base_1.0_0.9vae.safetensors'" in choice.notes[0]
    found = pipeline(SDXL, {"unet", "text_encoder", "text_encoder_2", "vae", "tokenizer"})
    assert {
        "text_encoder": "text_encoder/model.safetensors",
        "text_encoder_2": "text_encoder_2/model.safetensors.index.json",
        "unet": "unet/diffusion_pytorch_model.safetensors",
        "vae": "vae/diffusion_pytorch_model.fp16.safetensors",
    } == {name: choice.first for name, choice in found.items()}
    assert ("unet/config.json",) == found["unet"].beside


@pytest.mark.parametrize(
    ("files", "first"),
    [
        (["model_index.json", "a.safetensors", "unet/x.bin"], "a.safetensors"),
        (["model.safetensors", "p/model_index.json", "p/unet/model.safetensors"], ONE),
        (["p/model_index.json", "p/unet/model.safetensors"], "p/model_index.json"),
    ],
)
def test_a_pipeline_or_a_file(files: list[str], first: str) -> None:
    """A pipeline without weights of components is the file beside it; the top goes first."""
    assert first == choose(files, "org/a").first


def test_components_that_are_no_choice() -> None:
    """A pipeline of pickles, and a component of several checkpoints, are refused by their names."""
    with pytest.raises(InvalidCheckpoint, match="none of the components"):
        pipeline([*SDXL, "unet/x.bin"], {"scheduler"})
    two = ["model_index.json", "unet/a.safetensors", "unet/b.safetensors"]
    with pytest.raises(InvalidCheckpoint, match="org/a/unet holds several checkpoints"):
        pipeline(two, {"unet"})


def test_numbers_without_zeros() -> None:
    """Numbers of one digit and of two make one set."""
    names = [f"model-{i}-of-12.safetensors" for i in range(1, 13)]
    assert ("shards", 12) == (choose(names, "org/a").kind, len(choose(names, "org/a").shards))
