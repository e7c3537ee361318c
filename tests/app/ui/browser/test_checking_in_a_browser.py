"""Checkpoints that a browser reads: what it sends is what the SDK makes of the same file."""

from __future__ import annotations

import itertools
import json
import os
import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from playwright.sync_api import Locator, Page, Request, Route, expect

from modelkin import Client, Support
from modelkin.checkpoints import fingerprint, open_checkpoint, select_from_checkpoint
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.layout import Layout
from modelkin.core.selection.rule import SelectionRule
from tests.app.ui.conftest import Explorer
from tests.support.http_space import Space
from tests.support.models.gguf_files import as_llama_cpp, llama, write_blocks, write_gguf
from tests.support.servers.browser import Visit

pytestmark = pytest.mark.browser

Tensors = dict[str, npt.NDArray[np.float64]]
EXPERTS = "blk.1.ffn_up_exps.weight"
ENCODED = ("F64", "F32", "F16", "BF16")
TENSORS = {"b.weight": (80, 96), "a.weight": (70, 80), "c.bias": (70,), "c.running": (70,)}


def planted(seed: int = 1) -> Tensors:
    """Weights of a small network."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 0.05, shape) for name, shape in TENSORS.items()}


def unusual() -> Tensors:
    """Tensors of all shapes that lines are read of, or not, with many ties and odd names."""
    rng = np.random.default_rng(2)
    wave = np.sin(np.arange(128)[:, None] / np.arange(1, 97))
    return planted() | {
        "conv": rng.normal(0, 0.05, (80, 66, 3, 3)),
        "stem": rng.normal(0, 0.05, (90, 3, 5, 5)),
        "experts": rng.normal(0, 0.05, (2, 70, 96)),
        "wide": rng.normal(0, 0.05, (66, 1030)) * 10.0 ** rng.integers(-4, 4, 1030),
        "rounded": np.round(rng.normal(0, 2, (90, 100))) / 4,
        "ternary": np.sign(rng.normal(size=(70, 70))),
        "wave": wave,
        "zeros": np.zeros((64, 64)),
        "constant": np.full((64, 70), 0.25),
        "twins": np.repeat(rng.normal(size=(8, 75)), 12, axis=0),
        "é😀": rng.normal(0, 0.05, (65, 65)),
        "\uff5e": rng.normal(0, 0.05, (3,)),
        "empty": np.zeros((0, 4)),
    }


def encoded(values: npt.NDArray[np.float64], dtype: str) -> bytes:
    """Values as a file has them; those of bfloat16 are cut, not rounded."""
    if dtype == "BF16":
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return values.astype({"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype]).tobytes()


def saved(path: Path, tensors: Mapping[str, npt.NDArray[Any]], dtype: str = "F32") -> Path:
    """A safetensors file."""
    header, content = dict[str, Any](), b""
    for name, values in tensors.items():
        raw = encoded(values, dtype)
        offsets = [len(content), len(content) + len(raw)]
        header[name] = {"dtype": dtype, "shape": values.shape, "data_offsets": offsets}
        content += raw
    return with_header(path, json.dumps(header).encode(), content)


def with_header(path: Path, header: bytes, content: bytes = b"") -> Path:
    """A file of a header and what follows it."""
    path.write_bytes(struct.pack("<Q", len(header)) + header + content)
    return path


def of_layout(layout: Layout, **more: Any) -> dict[str, Any]:
    """What makes a space of a layout."""
    return {"m": layout.num_parameters, "layout": layout.to_json(), **more}


@pytest.fixture
def sent(visit: Visit) -> list[Request]:
    """The requests that a page sends."""
    found = list[Request]()
    visit.page.on("request", lambda each: found.append(each))  # Playwright asks for its parameters
    return found


def checked(page: Page, path: Path) -> Locator:
    """What the page says of a file."""
    heading = page.get_by_role("heading", name=path.name, exact=True)
    return page.locator("#checks > li").filter(has=heading)


def drop(explorer: Explorer, visit: Visit, *paths: Path) -> Page:
    """The page, once it has said all of some files."""
    page = visit.open(explorer.address("/check"))
    page.get_by_label("Drop checkpoints here").set_input_files(paths)
    for path in paths:
        expect(checked(page, path).get_by_role("button", name="Remove")).to_be_visible()
    return page


def bodies(sent: list[Request], path: str) -> list[bytes]:
    """What was sent to a path."""
    found = [each.post_data_buffer for each in sent if path in each.url]
    return [each for each in found if each is not None]


def test_fingerprints_and_supports_are_those_of_the_sdk(
    explorer: Explorer, visit: Visit, sent: list[Request], tmp_path: Path
) -> None:
    """Files of each type of floats: every index, key and signature, written as the same bytes."""
    tensors = unusual()
    files = [saved(tmp_path / f"{each}.safetensors", tensors, each) for each in ENCODED]
    space = Space(explorer.http, **of_layout(open_checkpoint(files[0]).layout))
    drop(explorer, visit, *files)
    supports = bodies(sent, f"/v1/spaces/{space.name}/neighbors")
    prints = bodies(sent, "/v1/anatomy")
    for path, support, lines in zip(files, supports, prints, strict=True):
        checkpoint = open_checkpoint(path)
        expected = select_from_checkpoint(checkpoint).to_bytes()
        assert expected == Support.from_bytes(support).to_bytes(), path.name
        assert fingerprint(checkpoint).to_bytes() == Fingerprint.from_bytes(lines).to_bytes()


def test_gguf_files_are_those_of_the_sdk(
    explorer: Explorer, visit: Visit, sent: list[Request], tmp_path: Path
) -> None:
    """All types that are read, q and k in their order, norms that are shifted, experts apart."""
    kinds = itertools.cycle(["F16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q6_K", "BF16"])
    whole, draw = as_llama_cpp(llama(7)), np.random.default_rng(7)
    files = [
        write_gguf(tmp_path / "mixed.gguf", whole, lambda *_: next(kinds)),
        write_gguf(tmp_path / "shifted.gguf", whole, "F32", "gemma"),
        write_gguf(tmp_path / "moe.gguf", {EXPERTS: draw.normal(size=(3, 70, 96))}, "F16", "llama"),
        *(
            write_blocks(tmp_path / f"{kind}.gguf", blocks_of(kind, halves), kind, kind)
            for kind, halves in {"Q2_K": (80, 82), "Q3_K": (108,), "Q5_K": (0, 2)}.items()
        ),
    ]
    layouts = [open_checkpoint(path).layout for path in files]
    spaces = [Space(explorer.http, **of_layout(each)) for each in layouts]
    drop(explorer, visit, *files)
    for path, space, lines in zip(files, spaces, bodies(sent, "/v1/anatomy"), strict=True):
        checkpoint = open_checkpoint(path)
        [support] = bodies(sent, f"/v1/spaces/{space.name}/neighbors")
        assert select_from_checkpoint(checkpoint) == Support.from_bytes(support), path.name
        assert fingerprint(checkpoint) == Fingerprint.from_bytes(lines), path.name


def blocks_of(kind: str, halves: Iterable[int]) -> npt.NDArray[np.uint8]:
    """Rows of drawn blocks, 70 of 512 values; halves stand at these bytes of each."""
    draw, size = np.random.default_rng(8), gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][1]
    blocks = draw.integers(0, 256, (140, size), dtype=np.uint8)
    for at in halves:
        scales = draw.uniform(0.01, 0.02, (140, 1)).astype("<f2")
        blocks[:, at : at + 2] = scales.view(np.uint8)
    return blocks.reshape(70, -1)


def test_a_space_decides_order_size_and_what_counts(
    explorer: Explorer, visit: Visit, sent: list[Request], tmp_path: Path
) -> None:
    """Ties go to the lower index in the order of the space, whose K may need bytes of planes.

    Spaces in which nothing of this page is compared stand behind it.
    """
    tensors = planted(3)
    tensors["a.weight"] = np.sign(tensors["a.weight"])
    path = saved(tmp_path / "tied.safetensors", tensors)
    layout = Layout.of(TENSORS.items())
    size = {"policy": "fixed", "k": 11}
    whole = of_layout(layout, exclude=["*.ru?[!z-a]ing"], support_size=size)
    whole["m"] -= 70
    for _ in range(8):  # as many as are looked at, were these the first
        Space(explorer.http, **whole, ordered=True)
    space = Space(explorer.http, **whole)
    drop(explorer, visit, path)
    [support] = bodies(sent, f"/v1/spaces/{space.name}/neighbors")
    checkpoint = open_checkpoint(path, exclude=["*.running"]).in_order(layout.without(["c.run*"]))
    expected = select_from_checkpoint(checkpoint, rule=SelectionRule.of(13_350, k=11))
    assert expected == Support.from_bytes(support)


def test_it_is_stored_under_a_new_name_alone(
    explorer: Explorer, visit: Visit, tmp_path: Path
) -> None:
    """Nothing is stored before; a name that is taken stays what it is."""
    path = saved(tmp_path / "new.safetensors", planted(4))
    layout = open_checkpoint(path).layout
    space = Space(explorer.http, **of_layout(layout))
    page = drop(explorer, visit, path)
    assert [] == explorer.http.get(space.path("models")).json()["items"]
    row = checked(page, path)
    row.get_by_label("Where").select_option(space.name)
    row.get_by_label("Store it as").fill("checked/new")
    row.get_by_role("button", name="Store").press("Enter")
    expect(row).to_contain_text("Stored as checked/new in")
    stored = explorer.http.get(space.path("models/checked/new")).json()
    assert select_from_checkpoint(open_checkpoint(path)).digest == stored["digest"]
    assert explorer.http.get("/v1/fingerprints/checked/new").is_success
    again = drop(explorer, visit, path)
    row = checked(again, path)
    expect(row.locator("table").first).to_contain_text("checked/new")
    row.get_by_label("Store it as").fill("checked/new")
    row.get_by_role("button", name="Store").press("Enter")
    expect(row.get_by_role("alert")).to_contain_text("There is a model checked/new already")


def test_a_fingerprint_that_was_there_stays(
    explorer: Explorer, visit: Visit, tmp_path: Path
) -> None:
    """A support is stored beside it, which the page says; alone it is refused."""
    path = saved(tmp_path / "half.safetensors", planted(5))
    before = saved(tmp_path / "before.safetensors", planted(6))
    space = Space(explorer.http, **of_layout(open_checkpoint(path).layout))
    kept = fingerprint(before)
    with Client(str(explorer.http.base_url)) as client:
        client.fingerprints.put("half/there", kept)
    row = checked(drop(explorer, visit, path), path)
    row.get_by_label("Store it as").fill("half/there")
    row.get_by_label("Where").select_option("")
    row.get_by_role("button", name="Store").press("Enter")
    expect(row.get_by_role("alert")).to_contain_text("There is a model half/there already")
    row.get_by_label("Where").select_option(space.name)
    row.get_by_role("button", name="Store").press("Enter")
    expect(row).to_contain_text("fingerprint of that name was there before, and stays")
    assert explorer.http.get(space.path("models/half/there")).is_success
    assert kept.digest == explorer.http.get("/v1/fingerprints/half/there").json()["digest"]


def test_a_file_that_is_stopped_holds_up_no_other(
    explorer: Explorer, visit: Visit, tmp_path: Path
) -> None:
    """Also while the service is asked about it; nothing more of it is sent."""
    first = saved(tmp_path / "first.safetensors", planted(7))
    second = saved(tmp_path / "second.safetensors", planted(8))
    held = list[Route]()
    page = visit.open(explorer.address("/check"))
    page.route("**/v1/spaces?*", lambda route: held.append(route), times=1)
    page.get_by_label("Drop checkpoints here").set_input_files([first, second])
    row = checked(page, first)
    expect(row).to_contain_text("tensors,")
    row.get_by_role("button", name="Stop").press("Enter")
    expect(checked(page, first)).to_have_count(0)
    expect(checked(page, second)).to_contain_text("nothing of it is kept")
    assert 1 == len(held)


def test_a_bad_file_gets_a_sentence(explorer: Explorer, visit: Visit, tmp_path: Path) -> None:
    """It says what is wrong, nothing of the file is sent, and the next file is read."""
    good = saved(tmp_path / "good.safetensors", planted())
    whole = good.read_bytes()
    entry = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    twice = json.dumps({"a": entry, "b": {**entry, "data_offsets": [8, 24]}}).encode()
    holed = planted()
    holed["b.weight"][79, 95] = np.nan
    cases = {
        "cut.safetensors": (whole[:-1], "truncated: get it again"),
        "more.safetensors": (whole + b"x", "followed by other bytes"),
        "none.safetensors": (b"", "It has 0 bytes"),
        "cut off.safetensors": (struct.pack("<Q", 60 << 20) + b"{" * 99, "it is truncated"),
        "hostile.safetensors": (
            struct.pack("<Q", 60 << 20) + b"{" * 99,
            "at most 16777216 are read",
        ),
        "text.safetensors": (b"hello, this is no model", "no length of a header"),
        "deep.safetensors": (struct.pack("<Q", 1 << 16) + b"[" * (1 << 16), "not valid JSON"),
        "over.safetensors": (struct.pack("<Q", len(twice)) + twice + bytes(24), '"b" overlaps'),
        "zip.safetensors": (b"PK\x03\x04" + bytes(90), "whatever its maker wants"),
        "old.bin": (b"\x80\x02", "It is a pickle by its name"),
        "model-00001-of-00002.safetensors": (whole, "It is a part of a checkpoint"),
    }
    small = write_gguf(tmp_path / "small.gguf", as_llama_cpp(llama(1))).read_bytes()
    cases |= {
        "cut.gguf": (small[:-40], "truncated: get it again"),
        "begun.gguf": (small[:900], "It ends within its header"),
        "greedy.gguf": (small[:8] + b"\xff" * 8 + small[16:], "more than are read"),
        "old.gguf": (small[:4] + b"\x01" + small[5:], "GGUF of version 1"),
        "text.gguf": (b"hello, this is no model", "not a GGUF file"),
    }
    paths = [tmp_path / name for name in cases]
    for path in paths:
        path.write_bytes(cases[path.name][0])
    os.truncate(tmp_path / "hostile.safetensors", 61 << 20)
    nan = saved(tmp_path / "nan.safetensors", holed)
    lora = saved(tmp_path / "lora.safetensors", {"q.lora_A.weight": np.ones((2, 2))})
    page = drop(explorer, visit, *paths, nan, lora, good)
    for path in paths:
        expect(checked(page, path).get_by_role("status")).to_contain_text(cases[path.name][1])
    expect(checked(page, nan)).to_contain_text('"b.weight" has')
    expect(checked(page, nan)).to_contain_text(re.compile("NaN"))
    expect(checked(page, lora)).to_contain_text("It is an adapter")
    expect(checked(page, good)).to_contain_text("nothing of it is kept")
    checked(page, good).get_by_role("button", name="Remove").press("Enter")
    expect(checked(page, good)).to_have_count(0)
