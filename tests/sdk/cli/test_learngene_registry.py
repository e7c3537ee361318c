"""``modelkin learngene publish`` and ``show`` against a real service and a hub on loopback."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import numpy as np
import pytest

from modelkin import Client, HubFile
from modelkin.errors import LearngeneMismatch
from tests.sdk.cli.conftest import Run
from tests.support.http_space import Space, random_support, related
from tests.support.models.learngene_files import COMMIT, gene, manifest_of
from tests.support.servers.fake_huggingface import TOKEN, Hub
from tests.support.servers.server_process import Server


@pytest.fixture
def space(server: Server) -> str:
    """A new space of the service that the tests share."""
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        return Space(http, 1000).name


@pytest.fixture
def run(run_here: Run, server: Server) -> Run:
    """The command, of the service that the tests share."""
    return lambda *arguments: run_here(*arguments, "--url", server.url)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gene.safetensors"
    path.write_bytes(gene())
    return path


def test_what_is_published_is_shown_and_fetched(
    run: Run, space: str, file: Path, hub: Hub, tmp_path: Path
) -> None:
    """From the publisher's hub to a reader's file, whose digest is the publisher's."""
    commit = hub.push("org/start", {file.name: file.read_bytes()})
    named = ("--space", space, "--cluster", "all")
    place = ("--repo", "org/start", "--revision", commit, "--hub", hub.url)
    said = ("--members", "5", "--rounds", "20", "--metric", "accuracy=0.91", "--note", "of July")
    published = run("learngene", "publish", file.name, *named, *place, *said)
    assert 0 == published.returncode, published.stderr
    assert "of cluster all, version 1" in published.stdout
    assert f"{hub.url}/org/start/resolve/{commit}/gene.safetensors" in published.stdout
    shown = run("learngene", "show", *named, "-o", "mine.safetensors", "--json")
    fields = json.loads(shown.stdout)
    assert ("mine.safetensors", 5, {"accuracy": 0.91}, "of July") == (
        fields["output"],
        fields["members"],
        fields["metrics"],
        fields["note"],
    )
    assert file.read_bytes() == (tmp_path / "mine.safetensors").read_bytes()
    listed = run("learngene", "show", "--space", space)
    assert "CLUSTER" in listed.stdout
    assert commit in listed.stdout
    assert {None} == hub.hub_tokens | hub.cdn_tokens


def test_a_learngene_of_other_members_is_noted(
    run: Run, server: Server, space: str, file: Path
) -> None:
    """The manifest beside the file says whose it is, and the clustering where they are."""
    rng = np.random.default_rng(3)
    with Client(server.url) as client:
        for family in "ab":
            base = random_support(rng, 1000, 100)
            for member in range(3):
                client.put_support(space, f"{family}/{member}", related(rng, base, 0.8))
        labels = client.clusterings.create(space, "agglomerative", n_clusters=2).labels
    file.with_suffix(".json").write_text(json.dumps({"models": ["a/0", "a/1", "a/2"]}))
    reference = ("--repo", "org/start", "--revision", COMMIT)
    for name, noted in (("a/0", False), ("b/0", True)):
        cluster = ("--space", space, "--cluster", str(labels[name]))
        said = run("learngene", "publish", file.name, *cluster, *reference)
        assert 0 == said.returncode, said.stderr
        assert noted == (f"3 are in cluster {labels['a/0']}: is it the right" in said.stderr)


def test_a_private_hub_needs_a_token(
    server: Server, space: str, file: Path, hub: Hub, tmp_path: Path
) -> None:
    """It goes to the hub alone, and the store behind it gets none."""
    commit = hub.push("org/secret", {file.name: file.read_bytes()}, private=True)
    reference = HubFile(repo="org/secret", revision=commit, file=file.name, url=hub.url)
    with Client(server.url) as client:
        made = client.learngenes.publish(space, "all", file, reference=reference)
        with pytest.raises(LearngeneMismatch, match="token"):
            client.learngenes.fetch(made, tmp_path / "mine")
        assert not (tmp_path / "mine").exists()
        path = client.learngenes.fetch(made, tmp_path / "mine", token=TOKEN)
    assert gene() == path.read_bytes()
    assert ({None, f"Bearer {TOKEN}"}, {None}) == (hub.hub_tokens, hub.cdn_tokens)


def test_another_file_at_the_hub(
    server: Server, space: str, file: Path, hub: Hub, tmp_path: Path
) -> None:
    """A commit of another file than was published is not written."""
    commit = hub.push("org/other", {file.name: gene(1)})
    reference = HubFile(repo="org/other", revision=commit, file=file.name, url=hub.url)
    with Client(server.url) as client:
        made = client.learngenes.publish(space, "all", file, reference=reference)
        with pytest.raises(LearngeneMismatch, match=manifest_of(gene())["digest"]):
            client.learngenes.fetch(made, tmp_path / "mine")
    assert ["gene.safetensors"] == [each.name for each in tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "say where readers get the file"),
        (("--repo", "org/start", "--revision", "main"), "is not a commit"),
        (("--repo", "org/start"), "is not a commit"),
        (
            ("--mlflow", "http://m.lan", "--model", "m", "--version", "latest"),
            "number of a version",
        ),
        (("--https", "http://h.example/gene"), "begins with https://"),
        (("--repo", "a/b", "--revision", COMMIT, "--https", "https://h.example/"), "not several"),
        (("--https", "https://h.example/", "--metric", "accuracy"), "NAME=NUMBER"),
        (("--keep",), "values_not_kept"),
        (("--https", "https://h.example/", "--cluster", "7"), "cluster_not_found"),
    ],
)
def test_mistakes_are_said_in_one_line(
    run: Run, space: str, file: Path, options: tuple[str, ...], why: str
) -> None:
    """With what to do instead; nothing is published."""
    cluster = () if "--cluster" in options else ("--cluster", "all")
    failed = run("learngene", "publish", file.name, "--space", space, *cluster, *options)
    assert (1, "") == (failed.returncode, failed.stdout)
    assert why in failed.stderr
    assert 1 == failed.stderr.count("\n")
    assert "no learngenes\n" == run("learngene", "show", "--space", space).stdout


def test_versions_are_of_a_cluster(run: Run, space: str) -> None:
    """A version or an output without a cluster is refused, and a missing learngene said."""
    for option in (("--version", "2"), ("-o", "x")):
        failed = run("learngene", "show", "--space", space, *option)
        assert "--cluster" in failed.stderr
    missing = run("learngene", "show", "--space", space, "--cluster", "all")
    assert "learngene_not_found" in missing.stderr
