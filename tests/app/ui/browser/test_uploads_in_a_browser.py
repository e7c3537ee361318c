"""Files dropped on a space: what is sent, what is not, and what is said of each."""

from __future__ import annotations

import base64
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect
from safetensors.numpy import save_file

from modelkin import Support
from modelkin.cli.run import main
from tests.app.ui.conftest import TENSORS, Explorer, M
from tests.support.http_space import Space, ok
from tests.support.servers.browser import Visit

pytestmark = pytest.mark.browser

DROP = """
([name, content]) => {
  const data = new DataTransfer();
  data.items.add(new File([Uint8Array.from(atob(content), (c) => c.charCodeAt(0))], name));
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
}
"""


@pytest.fixture
def own(explorer: Explorer) -> Space:
    """A space with a layout that a test may change."""
    return Space(explorer.http, M, layout=TENSORS)


def row(page: Page, name: str) -> Locator:
    """What the page says of a file."""
    return page.locator("#uploads > li").filter(has=page.get_by_text(name, exact=True))


def test_a_dropped_support_is_stored(explorer: Explorer, visit: Visit, own: Space) -> None:
    """It has the name and the tags of the page, and the page leads to it."""
    support = Support.from_indices(range(0, 900, 3), M)
    page = visit.open(explorer.address(f"/spaces/{own.name}/upload"))
    page.evaluate(DROP, ["bert.mksp", base64.b64encode(support.to_bytes()).decode()])
    page.get_by_label("Owner").fill("acme")
    page.get_by_label("Tags").fill("round-1, site 1")
    page.get_by_role("button", name="Send 1 file").press("Enter")
    page.get_by_role("link", name="acme/bert").press("Enter")
    page.wait_for_url(explorer.model("acme/bert", own.name))
    model = own.model("acme/bert")
    assert (support.digest, ["round-1", "site 1"]) == (model["digest"], model["tags"])


def test_each_file_has_its_own_outcome(
    explorer: Explorer, visit: Visit, own: Space, tmp_path: Path
) -> None:
    """A refusal names its reason beside the file; the others are stored all the same."""
    good, other = Support.from_indices(range(40), M), Support.from_indices(range(40), M + 1)
    contents = {
        "good.mksp": good.to_bytes(),
        "other.mksp": other.to_bytes(),
        "small.json": json.dumps({"indices": [1, 5, 9]}).encode(),
        "weights.pt": b"PK\x03\x04",
        "basis.npy": b"\x93NUMPY\x01\x00",
        "notes.txt": b"hello",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    page = visit.open(explorer.address(f"/spaces/{own.name}/upload"))
    page.get_by_label("Drop files here").set_input_files([tmp_path / name for name in contents])
    expect(row(page, "weights.pt")).to_contain_text("nothing here opens one")
    expect(row(page, "basis.npy")).to_contain_text("takes no indices as .npy")
    expect(row(page, "notes.txt")).to_contain_text("This is not a support")
    page.get_by_role("button", name="Send 3 files").press("Enter")
    expect(row(page, "good.mksp")).to_contain_text("Stored as good")
    expect(row(page, "small.json")).to_contain_text("Stored as small")
    expect(row(page, "other.mksp")).to_contain_text("Refused: ")
    names = {item["model"] for item in explorer.http.get(own.path("models")).json()["items"]}
    assert {"good", "small"} == names


def test_a_checkpoint_that_is_not_whole_gets_no_command(
    explorer: Explorer, visit: Visit, own: Space, tmp_path: Path
) -> None:
    """Its header is read; what is whole gets the command, by a name without the ending."""
    save_file({"w": np.zeros((20, 100), np.float32)}, tmp_path / "whole.safetensors")
    content = (tmp_path / "whole.safetensors").read_bytes()
    faults = {
        "empty.safetensors": (b"", "It is empty"),
        "cut.safetensors": (content[:-9], "Its tensors end at byte"),
        "header.safetensors": (content[:30], "Its header is longer than the file"),
        "other.safetensors": (b"\x04" + bytes(7) + b"{,}}", "Its header cannot be read"),
    }
    for name, (data, _) in faults.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "small.gguf").write_bytes(b"GGUF")
    page = visit.open(explorer.address(f"/spaces/{own.name}/upload"))
    names = [*faults, "whole.safetensors", "small.gguf"]
    page.get_by_label("Drop files here").set_input_files([tmp_path / name for name in names])
    for name, (_, said) in faults.items():
        expect(row(page, name)).to_contain_text(said)
        expect(row(page, name)).not_to_contain_text("modelkin push")
    for name in ("whole", "small"):
        ending = "safetensors" if name == "whole" else "gguf"
        expect(row(page, f"{name}.{ending}")).to_contain_text(f"--model {name} ")


def test_the_file_beside_a_support_is_checked(
    explorer: Explorer, visit: Visit, own: Space, tmp_path: Path
) -> None:
    """A support whose tensors stand in another order is refused, and nothing is sent."""
    support = Support.from_indices(range(40), M)
    (tmp_path / "m.mksp").write_bytes(support.to_bytes())
    origin = {"importance": None, "layout": TENSORS[::-1]}
    beside = {"digest": support.digest, "origin": origin}
    (tmp_path / "m.mksp.origin.json").write_text(json.dumps(beside))
    page = visit.open(explorer.address(f"/spaces/{own.name}/upload"))
    chosen = [tmp_path / "m.mksp", tmp_path / "m.mksp.origin.json"]
    page.get_by_label("Drop files here").set_input_files(chosen)
    page.get_by_role("button", name="Send 1 file").press("Enter")
    expect(row(page, "m.mksp")).to_contain_text("the first that differs is layers.4.weight")
    assert not explorer.http.get(own.path("models")).json()["items"]


def test_the_command_for_a_checkpoint_stores_its_support(
    explorer: Explorer,
    visit: Visit,
    own: Space,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No byte of it is sent; the command that is shown works, whatever the names hold."""
    rng = np.random.default_rng(0)
    shape = 20, 100  # of each of TENSORS
    tensors = {str(each["name"]): rng.normal(size=shape).astype("f4") for each in TENSORS}
    save_file(tensors, tmp_path / "it's one.safetensors")
    page = visit.open(explorer.address(f"/spaces/{own.name}/upload"))
    page.get_by_label("Drop files here").set_input_files(tmp_path / "it's one.safetensors")
    page.get_by_label("Model", exact=True).fill("acme/of one")
    page.get_by_label("Tags").fill("$(round)-1")
    assert not page.get_by_role("button", name="Send").is_visible()
    shown = page.get_by_label("command of it's one.safetensors", exact=True).inner_text()
    program, *words = shlex.split(shown)
    assert "modelkin" == program
    assert not [url for url in visit.requests if "/v1/" in url]
    monkeypatch.chdir(tmp_path)
    page.get_by_label("Tags").fill("round-1")
    shown = page.get_by_label("command of it's one.safetensors", exact=True).inner_text()
    assert [*words[:-1], "round-1"] == shlex.split(shown)[1:]
    assert 0 == main(shlex.split(shown)[1:])
    assert ["round-1"] == own.model("acme/of one")["tags"]


def test_a_checkpoint_is_refused_where_it_says_too_little(
    explorer: Explorer, visit: Visit, tmp_path: Path
) -> None:
    """Fisher information is not in a file: the page says where the support can be computed."""
    wanted = {"name": "by-fisher", "num_parameters": M, "importance": {"kind": "fisher"}}
    ok(explorer.http.post("/v1/spaces", json=wanted))
    (tmp_path / "m.safetensors").write_bytes(b"-")
    page = visit.open(explorer.address("/spaces/by-fisher/upload"))
    page.get_by_label("Drop files here").set_input_files(tmp_path / "m.safetensors")
    expect(row(page, "m.safetensors")).to_contain_text("compute the support where the model is")


def test_a_basis_is_stored_in_a_space_of_subspaces(
    explorer: Explorer, visit: Visit, tmp_path: Path
) -> None:
    """As ``.npy``, sent as it is; a checkpoint is not for this space, and the page says so."""
    wanted: dict[str, Any] = {"name": "dropped", "kind": "subspaces", "num_parameters": 16}
    wanted |= {"subspaces": {"constant": 0, "weighting": "flat"}}
    ok(explorer.http.post("/v1/spaces", json=wanted))
    np.save(tmp_path / "x.npy", np.eye(16, 3))
    (tmp_path / "m.safetensors").write_bytes(b"-")
    page = visit.open(explorer.address("/spaces/dropped/upload"))
    chosen = [tmp_path / "x.npy", tmp_path / "m.safetensors"]
    page.get_by_label("Drop files here").set_input_files(chosen)
    expect(row(page, "m.safetensors")).to_contain_text("choose a space of supports")
    page.get_by_role("button", name="Send 1 file").press("Enter")
    expect(row(page, "x.npy")).to_contain_text("Stored as x, revision 1.")
