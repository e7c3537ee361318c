"""A cell of lines from its networks to its gates and its page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from studies.lines.command import figures_of
from studies.lines.comparing import fingerprints_of, found
from studies.lines.derivatives import Derivative
from studies.lines.gates import gates_of_lines
from studies.lines.networks.others import DIFFUSION, GRAPH
from studies.lines.results import held, keep
from studies.lines.section import claims, section
from studies.lines.trained import Trained, relayered
from studies.lines.zoo import Tensors, Zoo


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A graph network whose children are trained for no step."""
    return Trained(GRAPH, Zoo(tmp_path_factory.mktemp("zoo")), longest=0)


def test_a_cell_is_made_of_an_untrained_network(untrained: Trained, tmp_path: Path) -> None:
    """What was not trained further has all of its lines, at their places, and strangers none."""
    figures = keep("graph network", figures_of(untrained), tmp_path)
    assert {"graph network": figures} == held(["graph network", "audio"], tmp_path)
    for name in ("light", "fine-tune", "heavy", "LoRA", "same seed, other order"):
        assert 1 == figures[name]["lines"]
        assert 6 == figures[name]["found"] == figures[name]["tensors at 32"]
    assert figures["Q8_0"]["lines"] > figures["Q4_0"]["lines"] > figures["nf4"]["lines"] > 0
    assert 0 == sum(row.get("wrong", 0) + row.get("beside", 0) for row in figures.values())
    assert figures["stranger"]["keys"] < 5
    page = "\n".join(section({"graph network": figures}))
    assert "| graph network | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 |" in page
    assert "nearer than a heavily trained child in 0 of 1" in [*claims({"a": figures})][-1]
    (sought, wrong) = gates_of_lines({"graph network": figures})
    assert (False, True) == (sought.met, wrong.met)


def test_a_tensor_at_a_wrong_place_is_counted(untrained: Trained) -> None:
    """Two tensors that changed names, and nobody said so, are wrong at each of four scales."""
    base = untrained.base()
    swapped = base | {"own.1.weight": base["own.2.weight"], "own.2.weight": base["own.1.weight"]}
    made = fingerprints_of(base)
    told = {"own.1.weight": ("own.2.weight",), "own.2.weight": ("own.1.weight",)}
    assert 8 == found(Derivative("unsaid", swapped), made, {})["wrong"]
    assert 0 == found(Derivative("said", swapped, told), made, {})["wrong"]
    assert 4 == found(Derivative("a stranger's", base), made, {"stranger": made})["wrong"]


def test_layers_are_renumbered_with_their_origins() -> None:
    """A layer may be repeated; what is outside of all layers stays."""
    base: Tensors = {f"layers.{i}.up.weight": np.full((1, 1), i, np.float32) for i in range(3)}
    base["head.weight"] = np.zeros((1, 1), np.float32)
    tensors, origins = relayered(base, DIFFUSION.layers, [2, 0, 2])
    assert [2, 0, 2] == [tensors[f"layers.{i}.up.weight"].item() for i in range(3)]
    assert ("layers.2.up.weight",) == origins["layers.0.up.weight"] == origins["layers.2.up.weight"]
    assert "head.weight" in tensors
    assert "head.weight" not in origins


def test_weights_are_trained_once(tmp_path: Path) -> None:
    """What a folder has is read, also by another run."""
    made: list[int] = []

    def make() -> Tensors:
        made.append(1)
        return {"a": np.ones(3, np.float32)}

    first = Zoo(tmp_path).weights("LLaMA-like/base 0", make)
    np.testing.assert_equal(first, Zoo(tmp_path).weights("LLaMA-like/base 0", make))
    assert [1] == made
    assert (tmp_path / "llama-like" / "base-0.safetensors").exists()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"figures": 3}'])
def test_a_damaged_cell_is_named(tmp_path: Path, text: str) -> None:
    """What is not a cell is an error that says which file to delete."""
    path = tmp_path / "lines" / "hub.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ValueError, match=r"hub\.json is not a cell of lines"):
        held(["hub"], tmp_path)
