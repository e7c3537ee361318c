"""``modelkin.anatomy``: what it takes as models, and how its answer prints."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import modelkin
from modelkin import checkpoints
from modelkin.errors import InvalidCheckpoint, InvalidParameter
from tests.sdk.core.fingerprints.planted import DERIVED, Tensors, fingerprint, model


def small(seed: int) -> Tensors:
    """A model with one layer of the planted ones."""
    return {k: v for k, v in model(seed).items() if k[:8] in ("embed", "norm", "layers.0")}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The file of a base."""
    save_file(small(0), tmp_path / "base.safetensors")
    return tmp_path / "base.safetensors"


@pytest.fixture
def child() -> modelkin.Fingerprint:
    return fingerprint(DERIVED["8 bits"](small(0)), 4)


def test_a_model_is_a_path_a_fingerprint_or_an_opened_checkpoint(
    base: Path, child: modelkin.Fingerprint
) -> None:
    """All of them give the same answer, under the name of the file or the one that is given."""
    made = checkpoints.fingerprint(base)
    made.save(base.parent / "saved.mkfp")
    opened = checkpoints.open_checkpoint(base)
    found = {
        "by name": modelkin.anatomy(child, {"m": made}),
        "path": modelkin.anatomy(child, base),
        "text": modelkin.anatomy(child, [str(base)]),
        "opened": modelkin.anatomy(child, opened),
        "saved": modelkin.anatomy(child, base.parent / "saved.mkfp"),
        "fingerprint": modelkin.anatomy(child, made),
    }
    names = ["m", "base", "base", "base", "saved", "model 1"]
    assert names == [each.parents[0].model for each in found.values()]
    assert 1 == len({each.parents[0].share_of_lines for each in found.values()})
    assert "copy" == modelkin.anatomy(base, opened).parents[0].verdict


def test_a_scale_says_how_many_lines_are_compared(base: Path) -> None:
    """1 compares all of them; the coarser of two scales counts."""
    whole = modelkin.anatomy(base, base, scale=1)
    assert 1 == whole.scale
    tenth = modelkin.anatomy(base, checkpoints.fingerprint(base, scale=16), scale=1)
    assert 16 == tenth.scale
    assert whole.parents[0].keys > 12 * tenth.parents[0].keys


WRONG: dict[str, tuple[Any, str]] = {
    "none": ({}, "give at least one model to compare with"),
    "an empty list": ([], "give at least one model to compare with"),
    "one name twice": (["a/b.mkfp", "c/b.gguf"], "two models are named 'b'"),
    "no model": ({"m": 3}, "must be a Fingerprint, an opened checkpoint or a path, not int"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_models_are_refused_by_name(case: str, child: modelkin.Fingerprint) -> None:
    """With the argument, and what to do."""
    given, said = WRONG[case]
    with pytest.raises(InvalidParameter, match=said) as refused:
        modelkin.anatomy(child, given)
    assert "parents" == refused.value.field


def test_an_adapter_is_refused_with_what_to_do(tmp_path: Path, child: modelkin.Fingerprint) -> None:
    """It has no lines of a model: the merged one has."""
    factors = {"q.lora_A.weight": (4, 64), "q.lora_B.weight": (64, 4)}
    save_file(
        {f"base_model.model.{k}": np.ones(v, np.float32) for k, v in factors.items()},
        tmp_path / "adapter_model.safetensors",
    )
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidCheckpoint, match="merge it into its base"):
        modelkin.anatomy(child, tmp_path)


class Texts(HTMLParser):
    """The texts of a page, by the tag around them."""

    def __init__(self) -> None:
        super().__init__()
        self.tag, self.found = "", list[tuple[str, str]]()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tag = tag

    def handle_data(self, data: str) -> None:
        self.found.append((self.tag, data))


def test_an_answer_prints_as_rows_and_sentences(child: modelkin.Fingerprint) -> None:
    """On a terminal and in a notebook, where names are no markup."""
    found = modelkin.anatomy(child, {"<b>base</b>": fingerprint(small(0))})
    lines = repr(found).splitlines()
    assert "Anatomy, 8 tensors, 1 parent" == lines[0]
    assert lines[1].startswith("<b>base</b>: shares weights, ")
    assert any(line.startswith("layers.0.up") for line in lines)
    assert len(lines) <= 20
    page = Texts()
    page.feed(found._repr_html_())
    assert ("td", "<b>base</b>") in page.found
    assert ("td", "layers.0.up") in page.found
    assert "b" not in {tag for tag, _ in page.found}


def test_hostile_names_move_no_cursor() -> None:
    """Those of tensors and models are escaped, on a terminal and in a notebook."""
    hostile = {f"{k}\x1b[2J": v for k, v in small(0).items()}
    found = modelkin.anatomy(fingerprint(hostile), {"base\x1b[2J\n": fingerprint(hostile)})
    assert "\x1b" not in repr(found)
    assert "\x1b" not in found._repr_html_()


def test_an_answer_is_json(child: modelkin.Fingerprint) -> None:
    """All of it, by the names of its attributes."""
    found = modelkin.anatomy(child, {"base": fingerprint(small(0))})
    answer = json.loads(json.dumps(found.to_json()))
    assert {"scale", "verdict", "parents", "relations", "tensors"} == answer.keys()
    assert found.parents[0].log10_p == answer["parents"][0]["log10_p"]
    first = answer["tensors"][0]
    assert (["embed"], [600, 128], None) == (
        first["names"],
        first["shape"],
        first["not_comparable"],
    )
    assert {"base"} == first["shares"].keys()
    assert "short" == answer["tensors"][1]["not_comparable"]
