"""``modelkin anatomy`` and ``modelkin relatives`` of models that a service stores."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from modelkin import Client
from modelkin.wire import FINGERPRINT
from tests.sdk.cli.conftest import Run
from tests.sdk.core.fingerprints.planted import DERIVED, fingerprint, model
from tests.support.servers.server_process import Server

BASE = model(53)  # other tests keep other models in the same service
CHILD = fingerprint(DERIVED["more tokens"](BASE), None)


@pytest.fixture(scope="module")
def address(server: Server) -> str:
    """The service, with a base and its child."""
    for name, made in (("kin/base", fingerprint(BASE, None)), ("kin/child", CHILD)):
        httpx.put(
            f"{server.url}/v1/fingerprints/{name}",
            content=made.to_bytes(),
            headers={"Content-Type": FINGERPRINT},
        ).raise_for_status()
    return server.url


def test_a_name_that_is_no_file_is_a_stored_model(run_here: Run, address: str) -> None:
    """Its anatomy is that of the service, with the sentences; who stated the base is a note."""
    done = run_here("anatomy", "kin/child", "--url", address)
    assert 0 == done.returncode, done.stderr
    assert "vocabulary grown by 65 rows, all else of kin/base." in done.stdout
    assert "stated by clients, who may state anything: kin/base" in done.stderr
    found = json.loads(run_here("anatomy", "kin/child", "--url", address, "--json").stdout)
    assert (None, "kin/child", "derived") == (found["file"], found["model"], found["verdict"])


def test_a_file_that_is_stored_has_the_anatomy_of_its_model(
    run_here: Run, tmp_path: Path, address: str
) -> None:
    """Not itself in every row. A file with other lines, or other names, has its own."""
    CHILD.save(tmp_path / "child.mkfp")
    known = run_here("anatomy", "kin/child", "--url", address)
    said = "stored already as kin/child, whose anatomy this is:\n\n"
    done = run_here("anatomy", "child.mkfp", "--url", address)
    assert said + known.stdout == done.stdout
    answer = json.loads(run_here("anatomy", "child.mkfp", "--url", address, "--json").stdout)
    assert ("child.mkfp", "kin/child") == (answer["file"], answer["stored_as"])
    assert ("kin/child", "derived") == (answer["model"], answer["verdict"])
    fingerprint(DERIVED["8 bits"](BASE), None).save(tmp_path / "other.mkfp")
    fingerprint({f"new.{name}": each for name, each in BASE.items()}, None).save(
        tmp_path / "renamed.mkfp"
    )
    for name in ("other.mkfp", "renamed.mkfp"):
        assert "stored already" not in run_here("anatomy", name, "--url", address).stdout


def test_relatives_of_a_name_and_of_a_file(run_here: Run, tmp_path: Path, address: str) -> None:
    """A row each, with the sentence on the two; of a file nothing is stored."""
    stored = run_here("relatives", "kin/child", "--url", address)
    assert "kin/base" in stored.stdout
    assert "vocabulary grown by 65 rows" in stored.stdout
    CHILD.save(tmp_path / "child.mkfp")
    given = run_here("relatives", "child.mkfp", "--url", address, "--json")
    items = {each["model"]: each["verdict"] for each in json.loads(given.stdout)["items"]}
    assert ("copy", "derived") == (items["kin/child"], items["kin/base"])


@pytest.mark.slow
def test_an_answer_of_a_part_of_the_index_says_so(run_here: Run, tmp_path: Path) -> None:
    """A note of each command, a field of its JSON, and a line of what the client prints."""
    away = "the index that machines share is away"
    nobody = "redis://127.0.0.1:9"  # where nothing listens
    flags = f"--redis-url={nobody}", "--fingerprint-index=redis"
    CHILD.save(tmp_path / "child.mkfp")
    server = Server(tmp_path, *flags).start()
    try:
        for command in ("anatomy", "relatives"):
            done = run_here(command, "child.mkfp", "--url", server.url, "--json")
            assert 0 == done.returncode, done.stderr
            found = json.loads(done.stdout)
            assert found["degraded"]
            assert any(away in note for note in found["notes"])
        with Client(server.url) as client:
            for answer in (client.anatomy(CHILD), client.relatives(CHILD)):
                assert answer.degraded
                assert f"index: {away}" in repr(answer)
    finally:
        server.stop()


def test_what_is_neither_a_file_nor_a_model_is_said(run_here: Run, address: str) -> None:
    """Both places are named, with what to do."""
    for command in ("anatomy", "relatives"):
        done = run_here(command, "kin/chlid", "--url", address)
        assert 1 == done.returncode
        assert "'kin/chlid' is no file here, and the service at" in done.stderr
        assert "there is no fingerprint of model 'kin/chlid'" in done.stderr
