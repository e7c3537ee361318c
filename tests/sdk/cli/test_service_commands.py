"""``push``, ``neighbors``, ``donors`` and ``overlap`` against a real service."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import modelkin
from modelkin import Client, Support
from modelkin.checkpoints import open_checkpoint
from modelkin.cli.commands.queries import caveats
from modelkin.types.search import Neighbors
from tests.sdk.cli.conftest import Run
from tests.sdk.cli.conftest import modelkin as command
from tests.sdk.cli.files import Tensors, random_tensors, save, save_sharded
from tests.support.http_space import random_support, related
from tests.support.servers.server_process import Server

Ask = Callable[..., str]

SIZE = ("--support-size", "130")


def blend(share: float) -> Tensors:
    """A model that is ``share`` one parent and the rest another."""
    one, other = random_tensors(1), random_tensors(2)
    return {name: share * one[name] + (1 - share) * other[name] for name in one}


def random_size() -> int:
    """How many parameters such models have."""
    return sum(tensor.numel() for tensor in random_tensors().values())


@pytest.fixture(scope="module")
def family(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A space of three blends, pushed as checkpoints; the first one gives it its layout."""
    folder = tmp_path_factory.mktemp("family")
    for share in (0.0, 0.3, 1.0):
        path = save(folder / "m.safetensors", blend(share))
        with modelkin.Client(server.url) as client:
            layout = open_checkpoint(path).layout
            client.ensure_space("family", layout=layout, importance="weight")
        named = ("--create", "--space", "family", "--model", f"acme/{round(100 * share)}")
        pushed = command(
            folder,
            "push",
            "m.safetensors",
            *named,
            *SIZE,
            MODELKIN_URL=server.url,
        )
        assert 0 == pushed.returncode, pushed.stderr
    return "family"


def test_push_tells_what_was_stored(ask: Ask, tmp_path: Path) -> None:
    """A pushed checkpoint is a support of its tags and first revision; again it changes nothing."""
    save(tmp_path / "m.safetensors", random_tensors())
    arguments = ("push", "m.safetensors", "--space", "push", "--model", "acme/m", *SIZE)
    said = "acme/m in space push: revision 1, a support of 130 indices, tags a, b\n"
    assert said == ask(*arguments, "--create", "--tag", "b", "--tag", "a")
    assert said == ask(*arguments)


def test_push_gives_the_space_the_layout(ask_here: Ask, server: Server, tmp_path: Path) -> None:
    """--create with a checkpoint makes a space that knows its tensors."""
    save(tmp_path / "m.safetensors", random_tensors())
    ask_here("push", "m.safetensors", "--create", "--space", "laid-out", "--model", "acme/m")
    with modelkin.Client(server.url) as client:
        layout = client.spaces.get("laid-out").layout
    assert layout is not None
    assert sorted(random_tensors()) == [spec.name for spec in layout.tensors]


def test_push_describes_the_model(ask_here: Ask, server: Server, tmp_path: Path) -> None:
    """--base-model, --attribute and --source are stored; pushed again they change nothing."""
    save(tmp_path / "m.safetensors", random_tensors())
    push = ("push", "m.safetensors", "--create", "--space", "told", "--model", "acme/m")
    about = ("--base-model", "acme/base", "--source", "https://hub.example/acme/m")
    values = ("epochs=3", "label=birds", "note=a=b", "public=true", "empty=")
    given = (*about, *(word for value in values for word in ("--attribute", value)))
    said = ask_here(*push, *given)
    assert said.endswith(" indices, base model acme/base\n")
    with modelkin.Client(server.url) as client:
        info = client.models.get("told", "acme/m")
        assert ("acme/base", "https://hub.example/acme/m") == (info.base_model, info.source)
        assert info.attributes == {
            "epochs": 3,
            "label": "birds",
            "note": "a=b",
            "public": True,
            "empty": "",
        }
        assert said == ask_here(*push, *given)
        assert info == client.models.get("told", "acme/m")
        ask_here(*push)
        assert info == client.models.get("told", "acme/m")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--attribute", "epochs"], "--attribute epochs: write KEY=VALUE, such as epochs=3"),
        (["--attribute", "=3"], "--attribute =3: write KEY=VALUE, such as epochs=3"),
        (["--base-model", "acme//base"], "segment 2 of model name 'acme//base' is empty"),
    ],
)
def test_a_wrong_description_stores_nothing(
    run_here: Run, server: Server, tmp_path: Path, options: list[str], message: str
) -> None:
    """It is refused before the service is asked for anything."""
    save(tmp_path / "m.safetensors", random_tensors())
    push = ("push", "m.safetensors", "--create", "--space", "untold", "--model", "acme/m")
    done = run_here(*push, *options, "--url", server.url)
    assert (1, f"modelkin: {message}\n") == (done.returncode, done.stderr)
    with modelkin.Client(server.url) as client, pytest.raises(modelkin.NotFoundError):
        client.spaces.get("untold")


def test_push_a_support_file(ask: Ask, server: Server, tmp_path: Path) -> None:
    """A support from `modelkin support` is stored as it is."""
    save_sharded(tmp_path, random_tensors())
    ask("support", ".", "--support-size", "99", "-o", "m.mksp")
    pushed = ask("push", "m.mksp", "--create", "--space", "file", "--model", "m", "--json")
    expected = modelkin.Support.from_bytes((tmp_path / "m.mksp").read_bytes())
    assert expected.digest == json.loads(pushed)["digest"]
    with modelkin.Client(server.url) as client:
        assert expected == client.supports.get("file", "m")


def test_push_takes_the_size_that_is_agreed(run: Run, server: Server, tmp_path: Path) -> None:
    """The client reports the K of its coverage and stores the median; an explicit K is kept."""
    with modelkin.Client(server.url) as client:
        client.ensure_space("agreed", num_parameters=random_size(), support_size="agreed")
        client.spaces.report_support_size("agreed", 90, client="other")
        save(tmp_path / "m.safetensors", random_tensors())
        push = ("push", "m.safetensors", "--space", "agreed", "--model", "acme/m")
        done = run(*push, "--coverage", "0.3", MODELKIN_URL=server.url)
        assert (0, 2) == (done.returncode, client.spaces.support_size("agreed").reports)
        assert "a support of 90 indices" in done.stdout
        assert "K is 90, which is the median of 2 reports; alone this file" in done.stderr
        named = run(*push, "--support-size", "70", MODELKIN_URL=server.url)
        assert ("", 70) == (named.stderr, client.models.get("agreed", "acme/m").support_size)


def test_push_a_signature_alone(ask: Ask, server: Server, tmp_path: Path) -> None:
    """--signature-only sends no index: the service has a signature, made as the space wants it."""
    support = modelkin.Support.from_indices(range(0, 900, 7), 900)
    (tmp_path / "m.mksp").write_bytes(support.to_bytes())
    with modelkin.Client(server.url) as client:
        spec = modelkin.SignatureSpec(num_perm=64, seed=5)
        client.ensure_space("secret", num_parameters=900, signature=spec)
        said = ask("push", "m.mksp", "--space", "secret", "--model", "m", "--signature-only")
        assert support.signature(num_perm=64, seed=5) == client.signatures.get("secret", "m")
    assert "m in space secret: revision 1, a signature of a support of 129 indices\n" == said


@pytest.mark.parametrize("option", ["-k", "--k"])
@pytest.mark.parametrize("query", ["neighbors", "donors"])
def test_k_is_how_many(family: str, ask_here: Ask, query: str, option: str) -> None:
    """Both spellings mean the number of models in the answer."""
    lines = ask_here(query, "--space", family, "--model", "acme/30", option, "1").splitlines()
    assert 2 == len(lines)


def test_the_size_of_a_query_has_a_name_of_its_own(
    family: str, run_here: Run, server: Server, tmp_path: Path
) -> None:
    """-k and --k count answers, of a checkpoint too; --support-size is the size of its support."""
    save(tmp_path / "q.safetensors", blend(0.3))
    asked = ("neighbors", "--space", family, "--file", "q.safetensors", "--url", server.url)
    sized = ("--support-size", "130")
    for count in (["-k", "2"], ["--k", "2"], ["--k=2"], ["-k2"]):
        done = run_here(*asked, *sized, *count)
        assert (0, 3) == (done.returncode, len(done.stdout.splitlines())), done.stderr
        assert ["acme/30", "1.000"] == done.stdout.splitlines()[1].split()[:2]
    support = modelkin.Support.from_indices(range(130), random_size())
    (tmp_path / "q.mksp").write_bytes(support.to_bytes())
    asked = ("neighbors", "--space", family, "--file", "q.mksp", "--url", server.url)
    assert 2 == len(run_here(*asked, "--k", "1").stdout.splitlines())
    done = run_here(*asked, "--support-size", "9")
    assert "modelkin: --support-size is for checkpoints, and q.mksp is a finished" in done.stderr


@pytest.mark.parametrize("command", ["support", "push"])
@pytest.mark.parametrize("option", ["-k", "--k"])
def test_k_is_no_size(run_here: Run, command: str, option: str) -> None:
    """Where nothing is counted, the option that was meant is named."""
    done = run_here(command, "m.safetensors", option, "130")
    assert (2, "") == (done.returncode, done.stdout)
    assert f"unknown option {option!r}; did you mean --support-size?" in done.stderr


def test_neighbors_beyond_chance(family: str, ask_here: Ask) -> None:
    """--min-kappa leaves out those below it."""
    asked = ("neighbors", "--space", family, "--model", "acme/30")
    kappas = [float(line.split()[3]) for line in ask_here(*asked).splitlines()[1:]]
    between = sum(kappas) / len(kappas)
    lines = ask_here(*asked, "--min-kappa", str(between)).splitlines()[1:]
    assert [k for k in kappas if k >= between] == [float(line.split()[3]) for line in lines]
    assert len(lines) < len(kappas)


@pytest.mark.parametrize("way", ["--model", "--file"])
def test_neighbors(family: str, ask: Ask, tmp_path: Path, way: str) -> None:
    """Neighbours of a stored model or of a checkpoint are a table, best first."""
    save(tmp_path / "q.safetensors", blend(0.3))
    file = [way, "q.safetensors", "--support-size", "130"]
    chosen = [way, "acme/30"] if way == "--model" else file
    lines = ask("neighbors", "--space", family, *chosen).splitlines()
    names = ["acme/0", "acme/100"] if way == "--model" else ["acme/30", "acme/0", "acme/100"]
    assert ["MODEL", "SIMILARITY", "ERROR", "KAPPA", "JACCARD", "SHARED"] == lines[0].split()
    assert names == [line.split()[0] for line in lines[1:]]
    assert ["exact"] * len(names) == [line.split()[2] for line in lines[1:]]


def test_neighbors_at_chance_and_copies_are_marked(server: Server, ask_here: Ask) -> None:
    """In a last column, which is left out where nothing is marked."""
    rng = np.random.default_rng(1)
    base = random_support(rng, 10_000, 400)
    models = {"base": base, "copy": base, "tuned": related(rng, base, 0.8)}
    strangers = {f"stranger{at}": random_support(rng, 10_000, 400) for at in range(6)}
    layout = modelkin.Layout.of([("body", (10_000,))])
    with modelkin.Client(server.url) as client:
        client.ensure_space("marked", layout=layout, importance="weight")
        for name, support in (models | strangers).items():
            client.put_support("marked", name, support)
    rows = ask_here("neighbors", "base", "--space", "marked").splitlines()[1:]
    ends = {row.split()[0]: row.split("  ")[-1].strip() for row in rows}
    assert "identical" == ends.pop("copy")
    assert ends.pop("tuned").isdigit()
    assert dict.fromkeys(strangers, "at chance") == ends
    [only] = ask_here("neighbors", "tuned", "--space", "marked", "-k", "1").splitlines()[1:]
    assert only.split()[-1].isdigit()


def test_a_model_without_an_option(family: str, ask: Ask, run: Run) -> None:
    """``neighbors MODEL`` and ``donors MODEL`` are the same as with ``--model``, and not both."""
    for name in ("neighbors", "donors"):
        said = ask(name, "acme/30", "--space", family)
        assert said == ask(name, "--space", family, "--model", "acme/30")
        done = run(name, "acme/30", "--model", "acme/0", "--space", family)
        assert 2 == done.returncode
        assert "not allowed with" in done.stderr


def test_answers_as_json_have_the_services_shape(family: str, ask: Ask, server: Server) -> None:
    """--json prints the fields that the service answered, and notes."""
    printed = json.loads(ask("neighbors", "--space", family, "--model", "acme/30", "--json"))
    with modelkin.Client(server.url) as client:
        found = client.neighbors(family, "acme/30")
    assert [n.similarity for n in found] == [item["similarity"] for item in printed["items"]]
    assert {"notes", *(field.name for field in fields(Neighbors))} == printed.keys()


def test_what_may_be_missing_is_a_note() -> None:
    """Another method, left-out buckets and ties, and a space of no stated importance."""
    found = Neighbors(items=(), method="lsh", candidates=9, degraded=False)
    assert () == caveats(found)
    worst = replace(
        found, degraded=True, truncated=True, ties_left_out=1234, similarity_slack=0.01, note="why"
    )
    another, buckets, ties, note = caveats(worst)
    assert another.startswith("found by another method")
    assert buckets.startswith("buckets with too many models")
    assert ties.startswith(
        "1,234 more models may be as near, and S of the last one too low by 0.010"
    )
    assert "why" == note


def test_donors(family: str, ask: Ask) -> None:
    """Donors are a table whose weights sum to 1."""
    lines = ask("donors", "--space", family, "--model", "acme/30", "-k", "2").splitlines()
    assert ["MODEL", "SIMILARITY", "ERROR", "KAPPA", "WEIGHT"] == lines[0].split()
    assert 1.0 == pytest.approx(sum(float(line.split()[4]) for line in lines[1:]), abs=0.002)


def test_donors_at_chance(run: Run, server: Server) -> None:
    """Donors without a relation are marked, and a note says that there is no other."""
    rng = np.random.default_rng(4)
    with Client(server.url) as client:
        client.ensure_space("chance", num_parameters=9_000)
        for name in ("a", "b", "c"):
            indices = np.sort(rng.choice(9_000, 900, replace=False))
            client.put_support("chance", name, Support.from_indices(indices, 9_000))
    query = ("donors", "--space", "chance", "--model", "a")
    done = run(*query, MODELKIN_URL=server.url)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [["-", "0.000", "unrelated"]] * 2 == [line[3:] for line in lines[1:]]
    assert "none of these 2 is related" in done.stderr
    assert "--include-unrelated weighs them" in done.stderr
    assert "include_unrelated=true" not in done.stderr
    asked = run(*query, "--include-unrelated", MODELKIN_URL=server.url).stdout.splitlines()
    assert 1.0 == pytest.approx(sum(float(line.split()[4]) for line in asked[1:]), abs=0.002)


def test_overlap_is_told_tensor_by_tensor(family: str, ask: Ask) -> None:
    """Two models' overlap has a row for each tensor of the layout; the rows sum to the whole."""
    lines = ask("overlap", "acme/0", "acme/30", "--space", family).splitlines()
    rows = [line.split() for line in lines[7:]]
    assert sorted(random_tensors()) == sorted(row[0] for row in rows)
    assert lines[4] == f"shared indices  {sum(int(row[4]) for row in rows)}"


def test_tensors_of_files_are_told_by_number(
    server: Server, ask_here: Ask, run_here: Run, tmp_path: Path
) -> None:
    """A table has ``layers.2`` before ``layers.10`` and a head last; JSON the layout's order."""
    wanted = ["embed", *(f"layers.{i}.w" for i in range(12)), "head"]
    file = save(tmp_path / "m.safetensors", {name: torch.ones(8, 8) for name in wanted})
    assert wanted == [row.split()[0] for row in ask_table(run_here("inspect", file.name).stdout)]
    space: Any = {"layout": open_checkpoint(file).layout, "importance": "weight"}
    with modelkin.Client(server.url) as client:
        client.ensure_space("by-number", **space)
        client.put_support("by-number", "m", modelkin.Support.from_indices([1], 14 * 64))
    query = ("overlap", "m", "m", "--space", "by-number")
    assert wanted == [row.split()[0] for row in ask_table(ask_here(*query))]
    kept = json.loads(ask_here(*query, "--json"))["tensors"]
    assert sorted(wanted) == [tensor["name"] for tensor in kept]


def ask_table(text: str) -> list[str]:
    """The rows of the table that ends a text."""
    return text.rpartition("\n\n")[2].splitlines()[1:]


def test_overlap_shows_chance(family: str, ask: Ask) -> None:
    """By chance, 2 Σ a b / n / (A + B); kappa is what is beyond it, of the pair and each tensor."""
    lines = ask("overlap", "acme/0", "acme/30", "--space", family).splitlines()
    summary = {line[:14].strip(): float(line[14:]) for line in lines[:5]}
    rows = [line.split() for line in lines[7:]]
    counts = [[int(cell.replace(",", "")) for cell in row[1:5]] for row in rows]
    chance = 2 * sum(a * b / n for n, a, b, _ in counts if n) / 260
    assert [chance] == pytest.approx([summary["by chance"]], abs=6e-4)
    beyond = (summary["similarity"] - chance) / (1 - chance)
    assert [beyond] == pytest.approx([summary["kappa"]], abs=2e-3)
    assert ["CHANCE", "KAPPA"] == lines[6].split()[-2:]
    for (n, a, b, shared), row in zip(counts, rows, strict=True):
        if a + b == 0:
            assert ["-", "-", "-"] == row[5:]
        else:
            within = 2 * a * b / n / (a + b)
            assert [2 * shared / (a + b), within] == pytest.approx(
                [*map(float, row[5:7])], abs=6e-4
            )


def test_no_neighbors(ask: Ask, server: Server, tmp_path: Path) -> None:
    """An only model has none, and that is said."""
    with modelkin.Client(server.url) as client:
        client.ensure_space("lonely", num_parameters=9, importance="weight")
        client.put_support("lonely", "m", modelkin.Support.from_indices([1], 9))
    assert "no neighbours\n" == ask("neighbors", "--space", "lonely", "--model", "m")


def test_refusals_of_the_service_are_one_line(run: Run, server: Server) -> None:
    """What the service refuses, and where no service is, ends in one line and exit code 1."""
    asked = ("neighbors", "--space", "nowhere", "--model", "m")
    refused = run(*asked, "--url", server.url)
    assert (1, "", 1) == (refused.returncode, refused.stdout, refused.stderr.count("\n"))
    assert refused.stderr.startswith("modelkin: 404 space_not_found: ")


def test_selection_options_are_not_for_finished_files(run: Run, tmp_path: Path) -> None:
    """A support has its size: options that would choose it again are an error."""
    support = modelkin.Support.from_indices([1, 2], 9)
    (tmp_path / "m.mksp").write_bytes(support.to_bytes())
    done = run("push", "m.mksp", "--space", "s", "--model", "m", "--fraction", "0.1")
    assert (
        "modelkin: --fraction is for checkpoints, and m.mksp is a finished support\n" == done.stderr
    )


def test_a_key_is_never_shown(run: Run, server: Server) -> None:
    """A malformed key is named as such, without its text."""
    done = run(
        *("neighbors", "--space", "s", "--model", "m", "--url", server.url),
        MODELKIN_API_KEY="secret words",
    )
    assert 1 == done.returncode
    assert "secret" not in done.stdout + done.stderr
