"""A push reads its files once, for all that it sends of them, and sends what they say."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from modelkin import Client, Support
from modelkin.checkpoints import fingerprint, open_checkpoint, weights_digest
from modelkin.core.importance import Importance
from tests.sdk.cli.conftest import Run
from tests.sdk.cli.files import save, save_sharded
from tests.support.models.counted_files import CountedFiles
from tests.support.servers.server_process import Server

LAYERS = 24
FIXED_K = 40_000
OF_BASE = ("--base", "base.safetensors")


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountedFiles:
    """Two models of the same tensors, one of which is also a folder of shards; reads count."""
    draw = torch.Generator().manual_seed(0)
    for name in ("m", "base"):
        layers = {f"{at}.weight": torch.randn(128, 192, generator=draw) for at in range(LAYERS)}
        save(tmp_path / f"{name}.safetensors", layers)
        save_sharded(tmp_path / f"{name}-shards", layers)
    files = CountedFiles((tmp_path / "m.safetensors").stat().st_size * 2 // 3)
    counted = partial(open_checkpoint, open_file=files.open)
    monkeypatch.setattr("modelkin.checkpoints.open_checkpoint", counted)
    return files


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("m.safetensors", ()),
        ("m-shards", ()),
        ("m.safetensors", OF_BASE),
        ("m.safetensors", ("--fraction", "0.05")),
    ],
)
def test_a_push_reads_its_files_once(
    run_here: Run,
    server: Server,
    client: Client,
    files: CountedFiles,
    tmp_path: Path,
    model: str,
    options: tuple[str, ...],
) -> None:
    """Whatever K the space fixes; what is stored is what each reading by itself gives."""
    name, base = f"one-{uuid.uuid4().hex[:8]}", open_checkpoint(tmp_path / "base.safetensors")
    delta = Importance.of("delta", weights_digest(base)) if options == OF_BASE else None
    client.ensure_space(
        name,
        layout=base.layout,
        importance=delta or Importance.of("weight"),
        support_size=FIXED_K,
    )
    where = ("--space", name, "--url", server.url)
    done = run_here("push", model, "--model", name, *where, *options)
    assert 0 == done.returncode, done.stderr
    opened = [open_checkpoint(tmp_path / model), *([] if delta is None else [base])]
    read = {tensor.path for each in opened for tensor in each.stored}
    assert files.came <= CountedFiles.most(*read)
    assert fingerprint(opened[0]) == client.fingerprints.get(name)
    stored = client.supports.get(name, name)
    size = options or ("--support-size", str(FIXED_K))
    size = (*size, "--support-size", str(FIXED_K)) if delta else size
    run_here("support", model, "-o", "m.mksp", *size)
    assert Support.load("m.mksp") == stored


def test_a_fingerprint_has_what_the_files_say_unless_the_command_does(
    run_here: Run, server: Server, client: Client, tmp_path: Path
) -> None:
    """Licence, bases and relation of the card, a date of the file; options replace them."""
    name = f"said-{uuid.uuid4().hex[:8]}"
    tensors = {"a.weight": torch.randn(128, 192, generator=torch.Generator().manual_seed(1))}
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "model.safetensors"
    save_file(tensors, path, {"modelspec.date": "2026-05-04"})
    card = "---\nlicense: mit\nbase_model: org/base\nbase_model_relation: finetune\n---\n"
    (path.parent / "README.md").write_text(card)
    pushed = ("push", "model", "--space", name, "--url", server.url, "--create", "--model")
    assert 0 == run_here(*pushed, name).returncode
    of_files = client.fingerprints.info(name)
    date = datetime(2026, 5, 4, tzinfo=UTC)
    said = (of_files.license, of_files.published_at, of_files.base_models, of_files.base_relation)
    assert ("mit", date, ("org/base",), "finetune") == said
    assert path.stat().st_size == of_files.file_bytes
    options = ("--license", "apache-2.0", "--published", "2026-06-01", "--base-model", "org/own")
    assert 0 == run_here(*pushed, f"{name}/told", *options).returncode
    told = client.fingerprints.info(f"{name}/told")
    assert ("apache-2.0", datetime(2026, 6, 1, tzinfo=UTC)) == (told.license, told.published_at)
    assert (("org/own",), None) == (told.base_models, told.base_relation)
    refused = run_here(*pushed, name, "--published", "in May")
    assert (1, True) == (refused.returncode, "write a date, such as 2026-05-04" in refused.stderr)
