"""The guide to anatomies runs line by line, on small models in the place of real packages."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from modelkin.cli import main
from tests.docs.pages import run_python

PAGE = Path(__file__).parents[2] / "docs" / "anatomy.md"
BLOCK = re.compile(
    r"^( *)```(console|python no-run|python|text)\n(.*?)^ *```", re.DOTALL | re.MULTILINE
)
NUMBER = re.compile(r"[0-9][0-9,.]*")

Tensors = dict[str, npt.NDArray[Any]]

LAYERS, WIDTH, HIDDEN, TOKENS = 6, 64, 128, 300
KINDS = {
    "attention.self.query": (WIDTH, WIDTH),
    "attention.self.key": (WIDTH, WIDTH),
    "attention.self.value": (WIDTH, WIDTH),
    "attention.output.dense": (WIDTH, WIDTH),
    "intermediate.dense": (HIDDEN, WIDTH),
    "output.dense": (WIDTH, HIDDEN),
}
NAMED = [
    [49, 57, 65, 105, 109, 118],
    *([122 + 71 * i + step for step in (0, 8, 16, 54, 58, 67)] for i in range(LAYERS - 1)),
]
"""What the packaged int8 model calls its matrices: by numbers of its graph."""


def all_minilm_l6() -> Tensors:
    """A model with the names of the packaged one, and narrow layers."""
    draw = np.random.default_rng(0)
    angles = np.arange(TOKENS)[:, None] / 100 ** (np.arange(WIDTH) / WIDTH)
    tensors: Tensors = {
        "embeddings.position_embeddings.weight": np.sin(angles).astype(np.float32),
        "embeddings.position_ids": np.arange(TOKENS),
        "embeddings.LayerNorm.bias": np.zeros(WIDTH, np.float32),
        "embeddings.LayerNorm.weight": np.ones(WIDTH, np.float32),
        "embeddings.word_embeddings.weight": draw.standard_normal((TOKENS, WIDTH), np.float32),
        "pooler.dense.weight": draw.standard_normal((WIDTH, WIDTH), np.float32),
    }
    return tensors | {
        f"encoder.layer.{layer}.{kind}.weight": draw.standard_normal(shape, np.float32)
        for layer in range(LAYERS)
        for kind, shape in KINDS.items()
    }


def arrays_of_onnx(base: Tensors) -> Tensors:
    """What the file of the other package holds: int8, transposed, with scales, by other names."""
    embeddings = {
        f"inner.{name.removesuffix('.weight')}.weight_q": values
        for name, values in base.items()
        if name.startswith("embeddings.") and values.ndim == 2
    }
    matrices = {
        f"val_{number}_q": base[f"encoder.layer.{layer}.{kind}.weight"].T
        for layer, numbers in enumerate(NAMED)
        for kind, number in zip(KINDS, numbers, strict=True)
    }
    arrays: Tensors = {
        f"inner.embeddings.LayerNorm.{end}": np.ones(WIDTH, np.float32)
        for end in ("bias", "weight")
    }
    for name, values in {**embeddings, **matrices}.items():
        scale = np.float32(np.abs(values).max() / 127)
        arrays[name] = np.ascontiguousarray(np.round(values / scale).astype(np.int8))
        arrays[name.removesuffix("_q") + "_scale"] = np.array(scale)
    return arrays


def onnx_with(arrays: Tensors) -> dict[str, ModuleType]:
    """Modules in the place of ONNX's, whose model holds these arrays."""
    onnx, helper = ModuleType("onnx"), ModuleType("onnx.numpy_helper")
    initializer = [SimpleNamespace(name=name, array=values) for name, values in arrays.items()]
    onnx.load = lambda _: SimpleNamespace(graph=SimpleNamespace(initializer=initializer))  # type: ignore[attr-defined]
    helper.to_array = lambda each: each.array  # type: ignore[attr-defined]
    return {"onnx": onnx, "onnx.numpy_helper": helper}


def blocks() -> list[tuple[str, str]]:
    """Kind and content of all blocks, also of those within steps, without their indents."""
    return [
        (kind, re.sub(rf"(?m)^{indent}", "", text))
        for indent, kind, text in BLOCK.findall(PAGE.read_text())
    ]


def without_figures(text: str) -> list[str]:
    """The lines of an output, with 0 for each number and one space for several."""
    return [" ".join(NUMBER.sub("0", line).split()) for line in text.splitlines()]


def output(command: str) -> str:
    """What a terminal shows of a command; it succeeds."""
    program, *arguments = shlex.split(command)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        assert ("modelkin", 0) == (program, main(arguments)), shown.getvalue()
    return shown.getvalue()


@pytest.mark.slow
def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command and each line of Python says what stands below it, but for the figures."""
    monkeypatch.chdir(tmp_path)
    base = all_minilm_l6()
    save_file(base, "all-minilm-l6.safetensors")
    for name, module in onnx_with(arrays_of_onnx(base)).items():
        monkeypatch.setitem(sys.modules, name, module)
    unrun = [text for kind, text in blocks() if kind == "python no-run"]
    [conversion] = [text for text in unrun if "import numpy" in text]
    run_python(conversion, PAGE.name, {})
    printed = ""
    for kind, text in blocks():
        if kind == "console":
            command, _, shown = text.partition("\n")
            found = without_figures(output(command.removeprefix("$ ")))
            begin, _, end = shown.partition("...\n")
            first, last = without_figures(begin), without_figures(end)
            assert first == found[: len(first)]
            assert last == found[len(found) - len(last) :]
            assert not last or len(first) + len(last) < len(found)
        elif kind == "python":
            printed = run_python(text, PAGE.name, {})
        elif kind == "text":
            assert text == printed
    kinds = ["console", "python no-run", "console", "python", "text", "python no-run"]
    assert kinds == [kind for kind, _ in blocks()]
