"""``lineage``, ``clusters``, ``graph`` and ``revisions`` against a real service."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import modelkin
from modelkin import wire
from modelkin.core.fingerprints.chance import power_of_ten
from tests.sdk.cli.conftest import Run
from tests.sdk.core.fingerprints.planted import DERIVED, fingerprint, model
from tests.support.http_space import random_support, related
from tests.support.servers.server_process import Server

Ask = Callable[..., str]

M, K = 4_000, 400
SPACE = "cli-kin"
XML = "{http://graphml.graphdrawing.org/xmlns}"


@pytest.fixture(scope="module")
def kin(server: Server) -> str:
    """Two families of six; every member but the first declares the first as its base."""
    rng = np.random.default_rng(7)
    layout = modelkin.Layout.of([("a", (M // 4,)), ("b", (3 * M // 4,))])
    with modelkin.Client(server.url) as client:
        client.ensure_space(SPACE, layout=layout, importance="weight")
        for family in ("birds", "roads"):
            base = random_support(rng, M, K)
            client.put_support(SPACE, f"{family}/base", base, tags=[family])
            for member in range(5):
                model = f"{family}/{member}"
                client.put_support(SPACE, model, related(rng, base, 0.7), tags=[family])
                client.models.update(SPACE, model, base_model=f"{family}/base")
        client.put_support(SPACE, "birds/4", related(rng, base, 0.9))
    return SPACE


@pytest.fixture(scope="module")
def clustered(kin: str, server: Server) -> str:
    """The same with a clustering."""
    with modelkin.Client(server.url) as client:
        client.clusterings.create(kin, "agglomerative", timeout=60)
    return kin


def rows(text: str) -> list[list[str]]:
    """The cells of the table at the end of a text, without its columns' names."""
    return [line.split() for line in text.rpartition("\n\n")[2].splitlines()[1:]]


def test_lineage_gives_the_verdict_and_the_kin(kin: str, ask_here: Ask, server: Server) -> None:
    """A summary, and the nearest models with what makes them stand out."""
    said = ask_here("lineage", "roads/0", "--space", kin)
    with modelkin.Client(server.url) as client:
        found = client.lineage(kin, "roads/0")
    first = said.splitlines()
    assert ["verdict", found.verdict] == first[0].split()
    assert found.summary in first[1]
    assert ["declared", "base", "roads/base"] == first[2].split()
    assert f"chain            roads/0 < roads/base ({found.chain[0].similarity:.3f})" in first
    listed = rows(said)
    assert [k.model for k in found.kin] == [row[0] for row in listed]
    assert [f"{k.similarity:.3f}" for k in found.kin] == [row[1] for row in listed]
    assert [f"{k.kappa:.3f}" for k in found.kin] == [row[3] for row in listed]
    assert "yes base" == " ".join(listed[0][4:])


def test_among_kin_alone_kappa_says_what_stands_out(ask_here: Ask, server: Server) -> None:
    """The limit of S is above all of them there, and would deny what the table says."""
    rng = np.random.default_rng(8)
    base, layout = random_support(rng, M, K), modelkin.Layout.of([("a", (M,))])
    with modelkin.Client(server.url) as client:
        client.ensure_space("cli-family", layout=layout, importance="weight")
        for member in range(6):
            client.put_support("cli-family", f"family/{member}", related(rng, base, 0.7))
        found = client.lineage("cli-family", "family/0")
    assert found.limit > found.kin[0].similarity
    assert found.kin[0].stands_out
    said = ask_here("lineage", "family/0", "--space", "cli-family")
    assert "stands out from  kappa 0.3\n" in said


def test_lineage_of_a_fingerprint_needs_no_space(
    ask_here: Ask, run_here: Run, server: Server
) -> None:
    """It is asked for, or no space is known; and a script learns whether a base is contradicted."""
    base = model(51)  # other tests keep other models in the same service
    made = {"lines/base": base, "lines/made": DERIVED["up-scaled"](base), "lines/wrong": model(52)}
    bases = {"lines/made": "lines/base", "lines/wrong": "lines/none"}
    for name, tensors in made.items():
        httpx.put(
            f"{server.url}/v1/fingerprints/{name}",
            content=fingerprint(tensors, 8).to_bytes(),
            headers={"Content-Type": wire.FINGERPRINT},
            params={"base_model": bases[name], "base_relation": "finetune"}
            if name in bases
            else {},
        ).raise_for_status()
    said = ask_here("lineage", "lines/made", "--fingerprint", "--space", "nowhere")
    assert said == ask_here("lineage", "lines/made")
    lines = said.splitlines()
    assert "verdict        consistent" == lines[0]
    assert "relation       finetune" in lines  # as in a space: what is declared
    assert "measured       depth_up_scaled" in lines
    assert "chain          lines/made < lines/base (1.000)" in lines
    told = json.loads(ask_here("lineage", "lines/made", "--json"))
    assert 1.0 == told["lines"]["share_of_lines"]
    assert f"P              {power_of_ten(told['log10_p'])}" in lines
    assert "P              none: nothing was measured that a P could be of" in ask_here(
        "lineage", "lines/wrong", "--fingerprint"
    )

    def code(name: str) -> int:
        return run_here("lineage", name, "--exit-code", "--url", server.url).returncode

    assert (0, 1, 0) == tuple(map(code, ("lines/made", "lines/wrong", "lines/base")))
    refused = run_here("lineage", "--url", server.url)
    assert "name a model, or a space with --space" in refused.stderr


def test_answers_say_over_which_share_of_a_space_they_are(ask_here: Ask, server: Server) -> None:
    """Tables have a column for it where a pair has a part in common, and only there."""
    space = "cli-parts"
    layout = modelkin.Layout.of([("a", (M // 4,)), ("b", (3 * M // 4,))])
    whole = random_support(np.random.default_rng(9), M, K)
    part = modelkin.Support(whole.indices[whole.indices >= M // 4], M, gaps=[(0, M // 4)])
    with modelkin.Client(server.url) as client:
        client.ensure_space(space, layout=layout, importance="weight")
        for name, support in (("whole", whole), ("copy", whole)):
            client.put_support(space, name, support)
        asked = [("neighbors", "whole"), ("donors", "whole"), ("lineage", "whole")]
        assert not any("COVERED" in ask_here(*words, "--space", space) for words in asked)
        client.put_support(space, "part", part)
    for words in asked:
        shares = [row[4] for row in rows("\n\n" + ask_here(*words, "--space", space))]
        assert ["-", "75.0%"] == sorted(shares)
    pair = ask_here("overlap", "whole", "part", "--space", space)
    assert "compared over   75.0% of the parameters" in pair


def test_duplicates_of_a_model_are_of_the_usual_space(
    kin: str, run_here: Run, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MODELKIN_SPACE stands in for --space, and without either the command says so."""
    monkeypatch.delenv("MODELKIN_SPACE", raising=False)
    asked = ("duplicates", "roads/0", "--url", server.url)
    assert "(or set MODELKIN_SPACE)" in run_here(*asked).stderr
    monkeypatch.setenv("MODELKIN_SPACE", kin)
    assert "no other model is known to have its weights\n" == run_here(*asked).stdout


def test_lineage_as_json(kin: str, ask_here: Ask) -> None:
    """--json prints the service's fields."""
    printed = json.loads(ask_here("lineage", "roads/0", "--space", kin, "--json"))
    assert ("roads/0", "roads/base") == (printed["model"], printed["declared_base"])
    assert {"verdict", "kin", "usual", "limit", "chain", "cycle", "notes"} <= printed.keys()


@pytest.mark.slow
def test_lineage_of_a_whole_space(kin: str, ask_here: Ask, server: Server) -> None:
    """Without a model: every finding as a row, narrowed by verdict and base, as the client has it.

    The client's listing prints as a table.
    """
    with modelkin.Client(server.url) as client:
        found = client.lineages(kin).read()
        of_birds = client.lineages(kin, verdict="consistent", base_model="birds/base")
        assert {f"birds/{n}" for n in range(4)} == {each.model for each in of_birds}
        [wrong] = client.lineages(kin, verdict=["mismatch", "cycle"])
        assert ("birds/4", "birds/base") == (wrong.model, wrong.declared_base)
    assert "birds/0" in repr(found)
    said = ask_here("lineage", "--space", kin, "--all")
    assert [each.model for each in found] == [row[0] for row in rows(said)]
    assert [each.verdict for each in found] == [row[1] for row in rows(said)]
    assert "S TO BASE" in said
    assert [f"{each.nearest_similarity:.3f}" for each in found] == [row[6] for row in rows(said)]
    told = json.loads(ask_here("lineage", "--space", kin, "--verdict", "consistent", "--json"))
    assert {each.model for each in found if each.verdict == "consistent"} == {
        each["model"] for each in told["items"]
    }
    said = ask_here("lineage", "--space", kin, "--verdict", "cycle")
    assert "no findings" == said.strip()


@pytest.mark.slow
def test_a_script_asks_whether_a_lineage_is_suspicious(
    kin: str, run_here: Run, server: Server
) -> None:
    """It exits with 1 for findings that are not consistent, the rows that are left out included."""

    def code(*words: str) -> int:
        return run_here("lineage", *words, "--space", kin, "--url", server.url).returncode

    assert (1, 0) == (code("--exit-code"), code())
    assert 1 == code("--exit-code", "--limit=1")
    assert 0 == code("--exit-code", "--verdict=consistent")
    assert 0 == code("--exit-code", "--verdict=cycle", "--verdict=unknown_base")
    assert (0, 1) == (code("birds/0", "--exit-code"), code("birds/4", "--exit-code"))


@pytest.mark.slow
def test_a_merge_and_a_space_of_differences(run_here: Run, server: Server) -> None:
    """All bases of a merge are shown with their relation and verdicts. A space of differences is
    not suspicious where its models declare its own base.
    """
    rng, space = np.random.default_rng(3), "cli-differences"
    digest = "sha256:" + 64 * "0"
    with modelkin.Client(server.url) as client:
        of = modelkin.Importance("delta", f"org/base@{digest}")
        client.ensure_space(space, num_parameters=M, importance=of)
        for name in ("org/one", "org/two"):
            client.put_support(space, name, random_support(rng, M, K))
            client.models.update(space, name, base_model="org/base")

    def run(command: str, *words: str) -> Any:
        return run_here(command, *words, "--space", space, "--url", server.url)

    assert [0, 0] == [
        run("lineage", *words, "--exit-code").returncode for words in ((), ("org/one",))
    ]
    with modelkin.Client(server.url) as client:
        bases = ("org/base", "org/other")
        client.models.update(space, "org/two", base_models=bases, base_relation="merge")
    assert 1 == run("lineage", "--exit-code").returncode
    assert "org/base, org/other (merge)" in run("show", "org/two").stdout
    said = run("lineage", "org/two").stdout
    assert "org/base inconclusive, org/other unknown base" in said.replace("_", " ")


@pytest.mark.parametrize(("option", "value"), [("n_clusters", 4), ("distance_threshold", 0.97)])
def test_a_cut_needs_no_algorithm(option: str, value: float, kin: str, ask_here: Ask) -> None:
    """The option names it: agglomerative clustering."""
    flag = "--" + option.replace("_", "-")
    said = json.loads(ask_here("cluster", "--space", kin, flag, str(value), "--json"))
    assert "agglomerative" == said["algorithm"]
    assert value == said["parameters"][option]


def test_clusters_of_a_space(clustered: str, ask_here: Ask, server: Server) -> None:
    """The newest clustering: its clusters by size, with their exemplars and members."""
    with modelkin.Client(server.url) as client:
        found = client.clusterings.get(clustered)
    said = ask_here("clusters", "--space", clustered)
    lines = said.splitlines()
    assert lines[0].startswith(f"clustering  {found.number}, ")
    assert lines[0].endswith(", by agglomerative")
    assert f"models      12 in {found.num_clusters} clusters, {found.noise} in none" == lines[2]
    shown = [[str(c.cluster), str(c.size), c.exemplar, *c.members] for c in found.clusters]
    assert shown == [[cell.rstrip(",") for cell in row] for row in rows(said)]
    assert (
        found.labels == json.loads(ask_here("clusters", "--space", clustered, "--json"))["labels"]
    )


def test_the_id_of_a_clustering_can_be_copied(
    clustered: str, ask_here: Ask, run_here: Run, server: Server, tmp_path: Path
) -> None:
    """What stands beside ``id`` is what ``assign --clustering`` wants."""
    support = random_support(np.random.default_rng(3), M, K)
    support.save(tmp_path / "new.mksp")
    head = dict(
        line.split(maxsplit=1)
        for line in ask_here("clusters", "--space", clustered).split("\n\n")[0].splitlines()
    )
    with modelkin.Client(server.url) as client:
        assert head["id"] == client.clusterings.get(clustered).id
    where = ("--space", clustered, "--url", server.url, "--clustering", head["id"])
    done = run_here("assign", str(tmp_path / "new.mksp"), *where, "--json")
    assert head["id"] == json.loads(done.stdout)["items"][0]["clustering"]


def test_members_fit_on_the_terminal(
    clustered: str, ask_here: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A narrow one gets fewer names and how many are left; of many models there are none."""
    clusters = import_module("modelkin.cli.commands.clusters")
    monkeypatch.setattr(clusters, "is_wide_open", lambda: False)
    monkeypatch.setenv("COLUMNS", "60")
    table = ask_here("clusters", "--space", clustered).rpartition("\n\n")[2]
    assert "birds/0, birds/1 and 3 more" in table
    assert max(map(len, table.splitlines())) <= 60
    monkeypatch.setattr(clusters, "_MOST_LISTED", 11)
    assert "MEMBERS" not in ask_here("clusters", "--space", clustered)


def test_the_cluster_of_a_model(clustered: str, ask_here: Ask, server: Server) -> None:
    """--model names its cluster, the exemplar and the members, the model among them."""
    with modelkin.Client(server.url) as client:
        found = client.clusterings.get(clustered)
    (cluster,) = (c for c in found.clusters if "roads/2" in c.members)
    said = ask_here("clusters", "--space", clustered, "--model", "roads/2")
    lines = said.splitlines()
    assert [f"cluster   {cluster.cluster}", f"size      {cluster.size}"] == lines[:2]
    assert f"exemplar  {cluster.exemplar}" == lines[2]
    assert [[member] for member in cluster.members] == rows(said)
    printed = json.loads(ask_here("clusters", "--space", clustered, "--model", "roads/2", "--json"))
    assert ("roads/2", list(cluster.members)) == (printed["model"], printed["members"])


@pytest.mark.slow
def test_a_model_in_no_cluster_and_one_that_is_new(
    clustered: str, run_here: Run, server: Server
) -> None:
    """The one is said, the other is an error that says how to cluster again."""
    rng = np.random.default_rng(8)
    with modelkin.Client(server.url) as client:
        outlier = random_support(rng, M, K)
        client.put_support(clustered, "other", outlier, tags=["odd"])
        for name, support in (("x", related(rng, outlier, 0.9)), ("y", random_support(rng, M, K))):
            client.put_support(clustered, name, support, tags=["odd"])
    where = ("--space", clustered, "--url", server.url)
    new = run_here("clusters", *where, "--model", "y")
    assert new.stderr.startswith("modelkin: 'y' is not in clustering ")
    assert new.stderr.endswith("make another one with `modelkin cluster`\n")
    with modelkin.Client(server.url) as client:
        made = client.clusterings.create(clustered, "hdbscan", timeout=60, min_cluster_size=4)
        lonely = [name for name, label in made.labels.items() if label == -1]
        assert {"x", "y", "other"} <= set(lonely)
        said = run_here("clusters", *where, "--model", "y")
        assert (0, "y is in no cluster\n") == (said.returncode, said.stdout)
        for name in ("x", "y", "other"):
            client.models.delete(clustered, name)


def test_cluster_makes_a_new_one(clustered: str, ask_here: Ask, run_here: Run) -> None:
    """The models are clustered now, with parameters of the algorithm; `clusters` names it."""
    before = json.loads(ask_here("clusters", "--space", clustered, "--json"))
    make = ("cluster", "--space", clustered, "--algorithm", "agglomerative")
    after = json.loads(ask_here(*make, "--set", "n_clusters=4", "--json"))
    assert (before["number"] + 1, "agglomerative") == (after["number"], after["algorithm"])
    assert 4 == after["num_clusters"]
    assert after["id"] == json.loads(ask_here("clusters", "--space", clustered, "--json"))["id"]
    done = run_here("clusters", "--space", clustered, "--run")
    assert "unknown option '--run'; did you mean modelkin cluster?" in done.stderr
    done = run_here("cluster", "--space", clustered, "--set", "n_clusters")
    assert "modelkin: --set n_clusters: write NAME=VALUE" in done.stderr


def test_graph_is_a_table(kin: str, ask_here: Ask, server: Server) -> None:
    """A line counts models and edges; each edge is a row."""
    with modelkin.Client(server.url) as client:
        found = client.spaces.graph(kin, k=2)
    said = ask_here("graph", "--space", kin, "-k", "2")
    assert f"{len(found.nodes)} models, {len(found.edges)} edges" == said.splitlines()[0]
    shown = [[e.a, e.b, f"{e.similarity:.3f}", "exact", f"{e.kappa:.3f}"] for e in found.edges]
    assert shown == rows(said)
    none = ask_here("graph", "--space", kin, "--threshold", "1", "--tag", "birds")
    assert none.endswith(" models, no edges\n")


def test_graph_as_node_link_data(kin: str, ask_here: Ask, server: Server, tmp_path: Path) -> None:
    """--json, --format json and a file in .json hold what networkx reads."""
    with modelkin.Client(server.url) as client:
        expected = json.loads(json.dumps(client.spaces.graph(kin, k=3).to_node_link()))
    graph = ("graph", "--space", kin, "-k", "3")
    assert {**expected, "notes": []} == json.loads(ask_here(*graph, "--json"))
    assert expected == json.loads(ask_here(*graph, "--format", "json"))
    size = len(json.dumps(expected))
    assert f"kin.json: json, {size:,} bytes\n" == ask_here(*graph, "-o", "kin.json")
    assert expected == json.loads((tmp_path / "kin.json").read_text())


def test_graph_as_graphml(kin: str, ask_here: Ask, server: Server, tmp_path: Path) -> None:
    """--format graphml and a file in .graphml hold the service's GraphML."""
    graph = ("graph", "--space", kin, "--threshold", "0.5")
    printed = ask_here(*graph, "--format", "graphml")
    told = json.loads(ask_here(*graph, "-o", "kin.graphml", "--json"))
    assert {
        "file": "kin.graphml",
        "format": "graphml",
        "bytes": len(printed) - 1,
        "notes": [],
    } == told
    assert printed == (tmp_path / "kin.graphml").read_text() + "\n"
    with modelkin.Client(server.url) as client:
        found = client.spaces.graph(kin, threshold=0.5)
    drawn = ElementTree.fromstring(printed).find(f"{XML}graph")
    assert drawn is not None
    assert [node.model for node in found.nodes] == [n.get("id") for n in drawn.iter(f"{XML}node")]
    edges = [(e.get("source"), e.get("target")) for e in drawn.iter(f"{XML}edge")]
    assert [(edge.a, edge.b) for edge in found.edges] == edges


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "kin.txt"], "kin.txt: end the name in .json or .graphml, or give --format"),
        (["--json", "--format", "graphml"], "--json prints JSON: write GraphML to a file"),
    ],
)
def test_a_graph_of_no_known_form(run_here: Run, options: list[str], message: str) -> None:
    """It is an error before the service is asked."""
    done = run_here("graph", "--space", "s", *options)
    assert (1, "") == (done.returncode, done.stdout)
    assert message in done.stderr


def test_revisions_show_the_drift(kin: str, ask_here: Ask, server: Server) -> None:
    """The newest first, each with S to the revision before and to the first."""
    said = ask_here("revisions", "birds/4", "--space", kin)
    with modelkin.Client(server.url) as client:
        newest, first = client.revisions.list(kin, "birds/4")
    assert (
        "REVISION  TIME              INDICES  KEPT  S TO PREVIOUS  S TO FIRST"
        == (said.splitlines()[0])
    )
    drift = f"{newest.similarity_previous:.3f}"
    shown = [line.split() for line in said.splitlines()[1:]]
    assert ["2", "400", "yes", drift, drift] == [shown[0][0], *shown[0][3:]]
    assert ["1", "400", "yes", "-", "1.000"] == [shown[1][0], *shown[1][3:]]
    assert first.created_at.strftime("%Y-%m-%d %H:%M") == " ".join(shown[1][1:3])
    printed = json.loads(ask_here("revisions", "birds/4", "--space", kin, "--json"))
    assert [2, 1] == [item["revision"] for item in printed["items"]]


def test_a_space_without_a_clustering_suggests_run(run_here: Run, server: Server) -> None:
    """The command names its own option, not a request."""
    with modelkin.Client(server.url) as client:
        client.ensure_space("cli-unclustered", num_parameters=M)
    done = run_here("clusters", "--space", "cli-unclustered", "--url", server.url)
    assert (1, 1) == (done.returncode, done.stderr.count("\n"))
    assert "has no clustering of all its models: make one with `modelkin cluster`" in done.stderr


def test_an_acknowledgement_repeats_its_note(ask_here: Ask, kin: str) -> None:
    """So whoever writes it sees what others will read; without one there is none."""
    about = ("acknowledge", "birds/4", "--space", kin)
    assert "noted: a typo, asked the owner\n" in ask_here(
        *about, "--note", "a typo, asked the owner"
    )
    assert "noted" not in ask_here(*about)
    ask_here(*about, "--withdraw")
