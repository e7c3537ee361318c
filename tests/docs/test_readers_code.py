"""Blocks marked ``no-run``, which need a model or data of the reader: they run with small ones.

A page's own test leaves such a block out. Here each has its test, or the reason why it has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import modelkin
import modelkin.torch
from modelkin import checkpoints
from tests.docs.pages import blocks, marked_blocks, run_python
from tests.support.servers.server_process import Server

ROOT = Path(__file__).parents[2]
README, OF_CLIENT = "README.md", "client_sdk/README.md"
PAGES = [README, OF_CLIENT, *(f"docs/{path.name}" for path in sorted(ROOT.glob("docs/*.md")))]
HERE = {
    README: ["from modelkin.torch import fisher_importance"],
    "docs/catalogue.md": ["import modelkin"],
    "docs/method.md": [
        "from modelkin.torch import GradientMoment",
        "importance, resamples = modelkin.torch.fisher_resamples",
        "support = modelkin.select_support(importance, fraction=0.1, ordered=True)",
    ],
    "docs/sdk.md": ["import modelkin"],
    "docs/sharing.md": ["import torch"],
}
"""How the blocks begin that a test below runs."""
ELSEWHERE = {
    "docs/anatomy.md": {
        "   import numpy as np": "needs ONNX: tests/docs/test_anatomy_page.py runs it without",
        "found = client.anatomy(": "needs models: tests/app/anatomy/test_anatomy_api.py asks so",
    },
    "docs/clients.md": {
        "echo '{": "needs npm: tests/e2e/generated_clients runs it",
        "npx -y tsx": "needs npm: tests/e2e/generated_clients runs it",
        "openapi-python-client": "needs its generator: tests/e2e/generated_clients runs it",
    },
    "docs/flower.md": {
        "from flwr.simulation import run_simulation": "needs Ray: tests/soak/federations",
        "('site-00', 'site-03'": "an app's output: tests/docs/test_federation_page.py runs it",
        "1\n('site-00'": "an app's output: tests/docs/test_federation_page.py runs it",
        "python -m venv federation": "installs Flower: tests/packaging/test_flower_requirements.py",
    },
    "docs/adapters.md": {
        "1 ('client-0'": "an app's output: tests/sdk/federation/adapters runs it",
    },
    "docs/flower-learngenes.md": {
        "3\n('site-00'": "an app's output: tests/docs/test_federation_page.py runs it",
    },
    "docs/flower-means.md": {
        "[0.0, 0.0": "an app's output: tests/docs/test_federation_page.py runs it",
        "1 0 site": "an app's output: tests/docs/test_federation_page.py runs it",
    },
    "docs/flower-shards.md": {
        "1 ('site-00'": "an app's output: tests/docs/test_federation_page.py runs it",
    },
    "docs/federation.md": {
        "import torch.distributed": "needs ranks: tests/sdk/torch/federation/test_sharded_mean.py",
    },
    "docs/nvflare.md": {
        "import nvflare": "needs NVFlare: tests/sdk/integrations/nvflare/test_simulator.py runs it",
        "import json": "needs NVFlare: tests/sdk/integrations/nvflare/test_simulator.py runs it",
        "['site-1'": "a job's output: tests/sdk/integrations/nvflare/test_guide.py prints it",
    },
    "docs/reports.md": {
        "import modelkin": "needs models: tests/app/kinship/reports/test_reports_api.py asks so",
    },
    "docs/starting.md": {
        "12 newcomers": "a command's output: tests/demo/test_demo_starting.py runs it",
    },
}
"""How the others begin, why no test of a page runs them, and which test stands in."""


def text_of(page: str) -> str:
    """A page's source."""
    return (ROOT / page).read_text()


def run(page: str, begin: str, names: dict[str, Any]) -> str:
    """What the marked block of a page prints that begins so; ``names`` are kept for the test."""
    [text] = [each for each in marked_blocks(text_of(page)) if each.startswith(begin)]
    return run_python(text, page, names)


@pytest.fixture
def reader() -> dict[str, Any]:
    """What a reader has, under the pages' names: a network of 25 parameters, a loss and data."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 5))
    samples = TensorDataset(torch.rand(64, 4), torch.randint(5, (64,)))
    loader: DataLoader[tuple[Tensor, ...]] = DataLoader(samples, batch_size=16)

    def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for inputs, targets in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            optimizer.step()

    return {
        "modelkin": modelkin,
        "model": model,
        "loss_fn": cross_entropy,
        "loader": loader,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.5),
        "train": train,
    }


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A service that clients find."""
    running = Server(tmp_path).start()
    monkeypatch.setenv("MODELKIN_URL", running.url)
    yield running
    assert running.stop() == 0


def test_every_block_that_no_page_runs_is_known() -> None:
    """Each has a test here, or a reason and the test in its place; a new one fails here."""
    for page in PAGES:
        marked = marked_blocks(text_of(page))
        begins = [*HERE.get(page, ()), *ELSEWHERE.get(page, ())]
        unknown = [text for text in marked if not text.startswith(tuple(begins))]
        assert ([], len(begins)) == (unknown, len(marked)), page
    for reason in (reason for each in ELSEWHERE.values() for reason in each.values()):
        [place] = re.findall(r"tests/[\w/.]+", reason)
        assert (ROOT / place).exists(), reason


def test_your_own_models(server: Server, reader: dict[str, Any]) -> None:
    """The README's last block stores the support of the reader's model, with kind and layout."""
    with modelkin.Client() as client:
        run(README, HERE[README][0], reader | {"client": client})
        space = client.spaces.get("digits-cnn")
        stored = client.supports.get("digits-cnn", "org/client-7")
    assert ("fisher", modelkin.layout_of(reader["model"])) == (space.importance.kind, space.layout)
    assert 0 < stored.k <= 5


def test_the_readme_of_the_client(server: Server, reader: dict[str, Any]) -> None:
    """Its Python prints the one other model of a space, which is the same."""
    [text] = [text for kind, text in blocks(text_of(OF_CLIENT)) if kind == "python"]
    model, loss_fn, loader = (reader[name] for name in ("model", "loss_fn", "loader"))
    importance = modelkin.torch.fisher_importance(model, loss_fn, loader)
    twin = modelkin.select_support(importance, coverage=0.8, k_max=0.2)
    with modelkin.Client() as client:
        layout = modelkin.layout_of(model)
        client.ensure_space("digits-cnn", layout=layout, importance="fisher")
        client.put_support("digits-cnn", "org/twin", twin)
    here = text.replace("http://127.0.0.1:8000", server.url)
    assert text != here
    assert "org/twin 1.0\n" == run_python(here, OF_CLIENT, reader)


def test_the_importance_of_a_training(reader: dict[str, Any]) -> None:
    """The method's first block selects from the gradients of the reader's own steps."""
    page = "docs/method.md"
    before = [parameter.clone() for parameter in reader["model"].parameters()]
    run(page, HERE[page][0], reader)
    assert "grad_moment" == reader["support"].origin.importance.kind
    assert any((a != b).any() for a, b in zip(before, reader["model"].parameters(), strict=True))


def test_the_stability_of_a_selection(reader: dict[str, Any]) -> None:
    """The method's second block has a support, its coverage, its stability, and a verdict."""
    page = "docs/method.md"
    run(page, HERE[page][1], reader)
    selection = reader["selection"]
    assert 8 == len(reader["resamples"])
    assert 0 < selection.coverage <= 1
    assert selection.met == (selection.stability >= 0.9)


def test_ordered_supports(reader: dict[str, Any]) -> None:
    """The method's third block has a support with octaves, its similarity, and a plain one."""
    page = "docs/method.md"
    reader |= {"importance": torch.rand(50), "other": None}
    reader["other"] = modelkin.select_support(reader["importance"], fraction=0.1, ordered=True)
    run(page, HERE[page][2], reader)
    assert [0, 1, 1, 2, 2] == sorted(reader["support"].octaves)
    assert reader["other"] == reader["support"]


def test_a_catalogue_of_bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's block opens a catalogue, and finds the base of a file in it."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    save_file({"w": draw.standard_normal((128, 128), np.float32)}, "model.safetensors")
    base = modelkin.Base("meta-llama/Llama-3.1-8B", license="llama3.1")
    made = modelkin.Catalogue.of([(base, checkpoints.fingerprint("model.safetensors"))])
    made.save("bases.mkct")
    names: dict[str, Any] = {}
    page = "docs/catalogue.md"
    assert f"{made.digest} 1 llama3.1\n" == run(page, HERE[page][0], names)
    assert ["copy"] == [parent.verdict for parent in names["found"].parents]


@pytest.mark.slow
def test_a_service_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's page starts a service in a folder, and says where it is."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = run("docs/sdk.md", HERE["docs/sdk.md"][0], names)
    with names["client"] as client:
        assert f"{client.url}\n" == printed
        assert ["m"] == [model.model for model in client.models.list("a")]
    assert (tmp_path / "my-models" / "modelkin.db").is_file()


@pytest.mark.slow
def test_the_privacy_report() -> None:
    """The AUCs of the page's table come out again, within their standard error."""
    page = "docs/sharing.md"
    names: dict[str, Any] = {}
    assert run(page, HERE[page][0], names).startswith("10 clients, batches of 24, 160 candidates")
    shown = re.findall(
        r"^\| (\d+) \| (\d+) \| (yes|no) \| (\S+) \| (\S+) \| (\S+) \|", text_of(page), re.MULTILINE
    )
    assert 6 == len(shown)
    for shards, one_in, conceal, *figures in shown:
        round_ = int(shards), int(one_in), conceal == "yes"
        rows = names["report"].membership
        found = [row.auc for row in rows if (row.shards, row.one_in, row.conceal) == round_]
        assert [float(figure) for figure in figures] == pytest.approx(found, abs=0.04)
