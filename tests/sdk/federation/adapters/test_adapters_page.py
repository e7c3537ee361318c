"""The page of adapters: its code runs, and prints what the page says; its apps find the groups."""

from __future__ import annotations

import contextlib
import io
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Context, RecordDict

from tests.docs.pages import blocks, marked_blocks, run_python
from tests.sdk.integrations.flower.federation import LocalGrid

PAGE = Path(__file__).parents[4] / "docs" / "adapters.md"


@pytest.fixture
def one_thread() -> Any:
    """The models are small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_page(caplog: pytest.LogCaptureFixture) -> None:
    """Trained adapters of the ranks 2, 4, 8 and 16 find their kin, in a loop and in Flower."""
    caplog.set_level(logging.ERROR, "flwr")
    names: dict[str, Any] = {}
    code = blocks(PAGE.read_text())
    printed = [run_python(text, "a page", names) for kind, text in code if kind == "python"]
    promised = [text for kind, text in code if kind == "text"]
    for said, text in zip(filter(None, printed), promised, strict=True):
        assert near(said, text), said
    with contextlib.redirect_stdout(io.StringIO()) as out:
        contexts = {n: Context(1, n, {"partition-id": n}, RecordDict(), {}) for n in range(8)}
        grid = LocalGrid(dict.fromkeys(contexts, names["app"]), contexts)
        names["server"](grid, Context(1, 1, {}, RecordDict(), {}))
    (shown,) = marked_blocks(PAGE.read_text())
    assert shown == out.getvalue()


def near(said: str, text: str) -> bool:
    """Whether words are the same, and figures within 0.04."""
    figure = re.compile(r"\b0\.\d+")
    pairs = zip(figure.findall(said), figure.findall(text), strict=True)
    close = all(abs(float(one) - float(other)) <= 0.04 for one, other in pairs)
    return close and figure.sub("", said) == figure.sub("", text)


def rows_of(page: str, head: str) -> dict[str, list[str]]:
    """The cells of the table whose head begins so, by the first; rows may go on below."""
    lines = page.partition(f"| {head} |")[2].split("\n\n")[0].splitlines()[2:]
    found: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        first, *cells = (cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|")))
        if any(cells):
            name = first
            found[name] = cells
        else:
            found[f"{name} {first}"] = found.pop(name)
            name = f"{name} {first}"
    return found


def test_the_figures_are_the_benchmarks() -> None:
    """Each cell of the page's tables is in the benchmark's, and so is each figure of its words."""
    page = PAGE.read_text()
    measured = (PAGE.parent / "benchmarks" / "federation.md").read_text()
    kin, means = rows_of(measured, "importance"), rows_of(measured, "mean | the mean itself")
    errors = rows_of(measured, "mean | relative error")
    for what, cells in rows_of(page, "support of").items():
        assert cells == kin[what][:2]
    found = rows_of(page, "mean of a cluster")
    assert found.keys() == means.keys() - {"exact, of all clients", "the dialects themselves"}
    for name, (error, *perplexities) in found.items():
        assert perplexities == means[name][:2]
        assert error == errors.get(name, [""])[0]
    exact, alone = (
        means[each] for each in ("exact (stacked), each client in its rank", "each alone")
    )
    assert f"rank 2 has {exact[2]}, alone {alone[2]}" in page
    assert f"lacks {errors['cut to rank 2'][0].split()[0]} of the mean" in page
    assert f"have {means['the dialects themselves'][0].split()[0]})" in page
