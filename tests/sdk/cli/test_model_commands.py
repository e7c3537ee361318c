"""Models, spaces, jobs and subscriptions from the command line, against a real service."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

import modelkin
from modelkin.cli.service.spaces import short_importance
from modelkin.client._sync.resources.models import Models
from modelkin.core.importance import Importance
from modelkin.core.support_files import origin_path
from tests.sdk.cli.conftest import Run
from tests.support.http_space import random_support, related
from tests.support.models.made_fingerprints import made_fingerprint
from tests.support.orders.family import importances, ordered_supports
from tests.support.servers.server_process import Server, environment

Ask = Callable[..., str]

M, K, SPACE = 4_000, 400, "cli-models"


@pytest.fixture(scope="module")
def space(server: Server) -> str:
    """Six models, two of them tagged, in a space with a layout."""
    rng = np.random.default_rng(3)
    layout = modelkin.Layout.of([("a", (M // 4,)), ("b", (3 * M // 4,))])
    with modelkin.Client(server.url) as client:
        client.ensure_space(SPACE, layout=layout, importance="weight")
        base = random_support(rng, M, K)
        for number in range(6):
            tags = ["even"] if number in {0, 2} else []
            client.put_support(SPACE, f"net/{number}", related(rng, base, 0.7), tags=tags)
        client.models.update(SPACE, "net/1", base_model="net/0", attributes={"epochs": 3})
    return SPACE


def rows(text: str) -> list[list[str]]:
    """The cells of the table at the end of a text, without its columns' names."""
    return [line.split() for line in text.rpartition("\n\n")[2].splitlines()[1:]]


def test_models_are_listed(space: str, ask_here: Ask, server: Server) -> None:
    """By name, with what is known of them; --tag narrows, --limit counts the rest."""
    said = ask_here("models", "--space", space)
    with modelkin.Client(server.url) as client:
        listed = list(client.models.list(space))
    assert [info.model for info in listed] == [row[0] for row in rows(said)]
    assert ["support", "400", "1"] == rows(said)[0][1:4]
    assert ["net/0", "-"] == rows(said)[1][-2:]
    names = ask_here("models", "--space", space, "--tag", "even", "--names")
    assert ["net/0", "net/2"] == names.splitlines()
    cut = ask_here("models", "--space", space, "--limit", "2").splitlines()
    assert (4, "and 4 more: --all shows them") == (len(cut), cut[-1])
    cut = ask_here("models", "--space", space, "--tag", "even", "--limit", "1").splitlines()
    assert "and 1 more: --all shows them" == cut[-1]
    printed = json.loads(ask_here("models", "--space", space, "--json"))
    assert 6 == len(printed["items"])


def test_a_model_is_shown(space: str, ask_here: Ask, server: Server) -> None:
    """With its content, its base and its attributes."""
    said = ask_here("show", "net/1", "--space", space)
    with modelkin.Client(server.url) as client:
        info = client.models.get(space, "net/1")
    assert f"digest   {info.digest}" in said
    assert "base     net/0" in said
    assert "content  support of 400 indices, revision 1" in said
    assert [["epochs", "3"]] == rows(said)
    assert (
        3
        == json.loads(ask_here("show", "net/1", "--space", space, "--json"))["attributes"]["epochs"]
    )


def test_tags_are_added_and_removed(
    space: str, ask_here: Ask, run_here: Run, server: Server
) -> None:
    """Others stay, an unknown one is named, and without any they are shown."""
    where = ("--space", space)
    assert "net/5: no tags\n" == ask_here("tag", "net/5", *where)
    assert "net/5: a, b\n" == ask_here("tag", "net/5", "b", "a", *where)
    assert "net/5: b, c\n" == ask_here("tag", "net/5", "c", "--remove", "a", *where)
    done = run_here("tag", "net/5", "--remove", "x", *where, "--url", server.url)
    assert "modelkin: --remove x: net/5 has no such tag, it has b, c\n" == done.stderr
    assert "net/5: d\n" == ask_here("tag", "net/5", "d", "--clear", *where)
    with modelkin.Client(server.url) as client:
        assert ("d",) == client.models.get(space, "net/5").tags


def test_a_matrix_is_the_clients(space: str, ask_here: Ask, server: Server, tmp_path: Path) -> None:
    """As a table, as CSV and as JSON, of some models and of all."""
    names = ["net/0", "net/3", "net/1"]
    with modelkin.Client(server.url) as client:
        expected = client.similarity(space, names).values
        kappa = client.similarity(space, names, measure="kappa").values
    matrix = ("matrix", *names, "--space", space)
    shown = [row[2:] for row in rows(ask_here(*matrix))]
    assert [[f"{s:.3f}" for s in line] for line in expected] == shown
    printed = list(csv.reader(io.StringIO(ask_here(*matrix, "-o", "-"))))
    assert ["model", *names] == printed[0]
    assert expected.tolist() == [[float(s) for s in line[1:]] for line in printed[1:]]
    ask_here(*matrix, "--measure", "kappa", "-o", "m.json")
    stored = json.loads((tmp_path / "m.json").read_text())
    assert (names, kappa.tolist()) == (stored["models"], stored["values"])
    assert 6 == len(rows(ask_here("matrix", "--space", space)))


def test_ranks_are_compared_in_an_ordered_space(ask_here: Ask, server: Server) -> None:
    """``spaces create --ordered``, and ``--measure ordered`` of neighbors and matrix."""
    name, kind = f"ordered-{uuid.uuid4().hex[:8]}", ("--importance", "fisher")
    said = ask_here("spaces", "create", name, "--num-parameters", "3000", "--ordered", *kind)
    assert "supports      ordered" in said
    supports = ordered_supports(importances(4, 3000, 4), 90)
    with modelkin.Client(server.url) as client:
        client.put_many(name, list(supports.items()))
        found = client.neighbors(name, "m001", measure="ordered")
        matrix = client.similarity(name, measure="ordered").values
    lines = ask_here("neighbors", "m001", "--space", name, "--measure", "ordered")
    assert lines.splitlines()[0].split()[-1] == "ORDERED"
    expected = [[each.model, f"{each.ordered_similarity:.3f}"] for each in found]
    assert expected == [[row[0], row[-1]] for row in rows(lines)]
    assert "ORDERED" not in ask_here("neighbors", "m001", "--space", name)
    shown = rows(ask_here("matrix", "--space", name, "--measure", "ordered"))
    assert [[f"{value:.3f}" for value in line] for line in matrix] == [row[2:] for row in shown]
    pair = ask_here("overlap", "m001", "m002", "--space", name)
    assert f"ordered similarity  {matrix[1, 2]:.3f}" in pair


def test_a_matrix_of_too_few(space: str, run_here: Run, server: Server) -> None:
    """It says how many it needs, and which files it writes."""
    where = ("--space", space, "--url", server.url)
    done = run_here("matrix", "net/0", *where)
    assert "modelkin: a matrix is of 2 to 1,000 models, and these are 1" in done.stderr
    done = run_here("matrix", "-o", "m.txt", *where)
    assert "modelkin: m.txt: end the name in .csv or .json\n" == done.stderr


def test_what_is_pulled_is_what_is_stored(
    space: str, ask_here: Ask, server: Server, tmp_path: Path
) -> None:
    """A support with its origin, which a push checks, and a signature."""
    ask_here("pull", "net/0", "--space", space, "-o", "m.mksp")
    support = modelkin.Support.from_bytes((tmp_path / "m.mksp").read_bytes())
    with modelkin.Client(server.url) as client:
        assert client.supports.get(space, "net/0") == support
        signature = client.signatures.get(space, "net/0")
    assert support.digest == json.loads(origin_path(f"{tmp_path}/m.mksp").read_text())["digest"]
    ask_here("push", "m.mksp", "--space", space, "--model", "net/0")  # no note, nothing changes
    ask_here("pull", "net/0", "--space", space, "-o", "m.mksg", "--signature")
    assert signature == modelkin.Signature.from_bytes((tmp_path / "m.mksg").read_bytes())


@pytest.mark.slow
def test_a_pull_into_a_pipe(space: str, server: Server, tmp_path: Path) -> None:
    """The bytes alone are on standard output."""
    line = ("pull", "net/0", "--space", space, "-o", "-")
    done = subprocess.run(
        [sys.executable, "-m", "modelkin", *line],
        capture_output=True,
        check=True,
        cwd=tmp_path,
        env=environment(MODELKIN_URL=server.url),
    )
    with modelkin.Client(server.url) as client:
        assert client.supports.get(space, "net/0").to_bytes() == done.stdout


def test_a_fingerprint_goes_with_its_model_or_alone(
    ask_here: Ask, run_here: Run, server: Server
) -> None:
    """What stays is said; what has gone already is not missed where the other is there."""
    with modelkin.Client(server.url) as client:
        client.ensure_space("cli-prints", num_parameters=M)
        for name in ("cli-prints/a", "cli-prints/b"):
            client.put_support("cli-prints", name, random_support(np.random.default_rng(1), M, K))
            client.fingerprints.put(name, made_fingerprint(1))
        where = ("--space", "cli-prints", "--yes")
        done = run_here("rm", "cli-prints/a", *where, "--url", server.url)
        assert "cli-prints/a: deleted\n" == done.stdout
        kept = "the fingerprint of cli-prints/a stays: --fingerprint deletes it, too"
        assert kept in done.stderr
        assert 2 == len([*client.fingerprints.list(prefix="cli-prints/")])
        gone = ask_here("rm", "cli-prints/a", "--fingerprint", *where)
        assert "cli-prints/a: fingerprint deleted\n" == gone
        both = ask_here("rm", "cli-prints/b", "--fingerprint", *where)
        assert "cli-prints/b: deleted, fingerprint deleted\n" == both
        client.fingerprints.put("cli-prints/c", made_fingerprint(1))
        alone = ask_here("rm", "cli-prints/c", "--fingerprint", "--yes")
        assert "cli-prints/c: fingerprint deleted\n" == alone
        assert [] == [*client.fingerprints.list(prefix="cli-prints/")]


def refused(*_: object) -> NoReturn:
    """The answer to a key that may not read."""
    raise modelkin.errors.PermissionDeniedError(403, "forbidden", "this key may not read")


def test_nothing_is_deleted_unasked(
    ask_here: Ask, run_here: Run, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a terminal --yes is needed; names come from standard input, too."""
    with modelkin.Client(server.url) as client:
        client.ensure_space("cli-rm", num_parameters=M)
        for name in ("cli-rm/a", "cli-rm/b", "cli-rm/c"):
            client.put_support("cli-rm", name, random_support(np.random.default_rng(1), M, K))
        where = ("--space", "cli-rm")
        done = run_here("rm", "cli-rm/a", *where, "--url", server.url)
        assert (1, "") == (done.returncode, done.stdout)
        asked = "this would delete cli-rm/a from space cli-rm, and there is no terminal to ask on"
        assert asked in done.stderr
        assert 3 == client.spaces.get("cli-rm").models
        assert "cli-rm/a: deleted\n" == ask_here("rm", "cli-rm/a", *where, "--yes")
        monkeypatch.setattr(sys, "stdin", io.StringIO("cli-rm/b\n\ncli-rm/b\n"))
        assert "cli-rm/b: deleted\n" == ask_here("rm", "-", *where, "--yes")
        assert ["cli-rm/c"] == [info.model for info in client.models.list("cli-rm")]
        late = run_here("rm", "cli-rm/c", "cli-rm/x", *where, "--yes", "--url", server.url)
        assert "no model 'cli-rm/x'" in late.stderr
        assert 1 == client.spaces.get("cli-rm").models
        absent = run_here("rm", "cli-rm/x", *where, "--url", server.url)
        assert "no model 'cli-rm/x'" in absent.stderr  # said before a terminal is asked for
        monkeypatch.setattr(Models, "get", refused)
        late = run_here("rm", "cli-rm/c", "cli-rm/x", *where, "--yes", "--url", server.url)
        assert "(1 was deleted before)" in late.stderr
        done = run_here("spaces", "rm", "cli-rm", "--url", server.url)
        assert "this would delete space cli-rm with 0 models" in done.stderr
        assert "cli-rm: deleted, with 0 models\n" == ask_here("spaces", "rm", "cli-rm", "--yes")
        assert "cli-rm" not in [each.name for each in client.spaces.list()]


def test_spaces_are_listed_shown_and_made(space: str, ask_here: Ask, server: Server) -> None:
    """With their counts and rules; the same one again changes nothing."""
    make = ("spaces", "create", "cli-made", "--num-parameters", "500", "--support-size", "0.1")
    said = ask_here(*make)
    assert said == ask_here(*make)
    assert said == ask_here("spaces", "show", "cli-made")
    with modelkin.Client(server.url) as client:
        made = client.spaces.get("cli-made")
    assert (500, 50) == (made.num_parameters, made.support_size.k)
    assert "support size  fixed, 50" in said
    (line,) = (row for row in rows(ask_here("spaces")) if row[0] == space)
    assert ["supports", "4,000", "6", "weight", "yes"] == line[1:6]
    assert {space, "cli-made"} <= set(ask_here("spaces", "--names").splitlines())
    printed = json.loads(ask_here("spaces", "show", space, "--json"))
    assert [{"name": "a", "shape": [1000]}, {"name": "b", "shape": [3000]}] == printed["layout"]
    ask_here("spaces", "rm", "cli-made", "--yes")


def test_jobs_are_followed(space: str, ask_here: Ask, run_here: Run, server: Server) -> None:
    """Listed, awaited and shown; one that has ended cannot be cancelled."""
    with modelkin.Client(server.url) as client:
        job = client.clusterings.create(space, "agglomerative", wait=False)
    waited = ask_here("jobs", "wait", job.id, "--timeout", "60")
    assert "state              succeeded" in waited
    assert waited == ask_here("jobs", "show", job.id)
    listed = [line.split() for line in ask_here("jobs", "--space", space).splitlines()]
    (line,) = (row for row in listed if row[:1] == [job.id])
    assert ["clustering", space, "-", "succeeded"] == line[1:5]
    assert "no jobs\n" == ask_here("jobs", "--space", space, "--state", "failed")
    done = run_here("jobs", "cancel", job.id, "--url", server.url)
    assert (1, 1) == (done.returncode, done.stderr.count("\n"))
    assert "job_finished" in done.stderr


def test_subscriptions_are_made_and_removed(
    space: str, ask_here: Ask, run_here: Run, server: Server
) -> None:
    """The secret is shown once; a delivery that does not exist is named."""
    make = ("subscriptions", "add", "https://8.8.8.8/hook", "--event", "support.stored")
    made = json.loads(ask_here(*make, "--space", space, "--json"))
    assert made["secret"].startswith("whsec_")
    (line,) = rows(ask_here("subscriptions", "--space", space))
    assert [made["id"], "https://8.8.8.8/hook", "support.stored", space, "enabled"] == line[:5]
    assert made["secret"] not in ask_here("subscriptions")
    assert "no deliveries\n" == ask_here("subscriptions", "deliveries", made["id"])
    done = run_here("subscriptions", "replay", made["id"], "none", "--url", server.url)
    assert "has no delivery none: `modelkin subscriptions deliveries" in done.stderr
    assert f"{made['id']}: removed\n" == ask_here("subscriptions", "remove", made["id"], "--yes")
    assert "no subscriptions\n" == ask_here("subscriptions", "--space", space)


@pytest.mark.parametrize(
    ("importance", "shown"),
    [
        (Importance("unstated"), None),
        (Importance("weight"), "weight"),
        (Importance("delta"), "delta"),
        (Importance("delta", f"org/base@sha256:{'ab' * 32}"), "delta against org/base"),
        (Importance("delta", f"sha256:{'ab' * 32}"), f"delta against sha256:{'ab' * 6}"),
        (Importance("delta", f"{'n' * 99}@sha256:{'ab' * 32}"), f"delta against {'n' * 37}..."),
    ],
)
def test_an_importance_is_short_in_a_table(importance: Importance, shown: str | None) -> None:
    """The digest of a base is for programs, and for a base without a name."""
    assert shown == short_importance(importance)
