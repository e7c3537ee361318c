"""Mutants of all that a hub sends, through the whole of a sync: never a bug, on either database.

A hub of the tests serves good documents, each with one mutation: a header, an index, a
configuration, an answer. A source polls it, and a worker carries out the jobs. What is then shown
can be encoded.
"""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import select

from app.hubs.records import SourceRecord
from app.infra.db.tables.jobs import JobRow
from tests.app.hubs.test_adapters import BASE
from tests.app.hubs.test_adapters import files as adapter_files
from tests.faults.mutants import mutant_of
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import Backend
from tests.support.fixtures import Figure
from tests.support.models.checkpoints import random_tensors, safetensors, sharded
from tests.support.repetitions import repetitions
from tests.support.servers.fake_huggingface import Handler, Hub

SEED: Final = 1906
NAME, BESIDE = "org/a", "org/b"
AT_ONCE: Final = 17
"""Mutants that one poll finds, each as a repository of its own."""
GOOD: Final = safetensors(random_tensors(1, {"a.weight": (4, 4), "b.weight": (3,)}))
PIPELINE: Final = b'{"_v": "1", "unet": ["diffusers", "U"], "vae": ["diffusers", "V"]}'
INDEX: Final = "model.safetensors.index.json"
CONFIG: Final = "adapter_config.json"
_LONG: Final = "x" * 1_000_000
TEXTS: Final = (
    *("\ud800", "org/a\udfff", "\udc00\ud800", "\0", "org/a\0b", "\x1b[2J", "\x7f", "\x85"),
    *("\u202eorg/a", "\u200f", "\ufeff", "\ufffd", "\U0001f600", "", " ", ".", "..", "../a"),
    *("a/../b.safetensors", _LONG, f"org/{_LONG}", "%00", "%", "\n", "LORA", "1", "@", "a@\ud800"),
)
VALUES: Final[tuple[Any, ...]] = (
    *(None, True, -1, 0, 1.5, 2**63, 2**64, 10**400, -(10**30), [], {}, [[]], {"a": []}),
    *([None], ["\ud800"], {"\ud800": "\udfff"}, {"": {}}, [{"a": 1}] * 50),
)
LITERALS: Final = (b"NaN", b"-Infinity", b"1e400", b"9" * 5000, b"[" * 100_000, b"'a'", b"01", b"")

Document = Any
Bodies = dict[str, bytes]
Serve = Callable[[Hub, str, bytes], Bodies]
"""Stores the repository of a mutant by a name; what the hub answers in place of its own answers."""


def header_of(data: bytes) -> bytes:
    """The header of a file."""
    return data[8 : 8 + int.from_bytes(data[:8], "little")]


def places_of(document: Document, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values of a document."""
    yield at
    items: Any = ()
    if isinstance(document, dict):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document)
    for key, value in items:
        yield from places_of(value, (*at, key))


def mutated(draw: random.Random, original: bytes) -> bytes:
    """A document with one mutation: a text, a name, a type, a repetition, or bytes."""
    if draw.random() < 0.25:
        return mutant_of(draw, original, has_checksum=False)
    document = copy.deepcopy(json.loads(original))
    [*outer, last] = draw.choice([at for at in places_of(document) if at])
    inner = document
    for key in outer:
        inner = inner[key]
    mark = "the place of the mutation"
    kind = draw.choice(("text", "text", "name", "value", "literal", "twice", "number"))
    if kind == "name" and isinstance(inner, dict):
        inner[draw.choice(TEXTS)] = inner.pop(last)
    elif kind == "value":
        inner[last] = draw.choice(VALUES)
    elif kind == "number":
        return json.dumps(document).encode().replace(json.dumps(last).encode() + b":", b"7:", 1)
    elif kind in {"literal", "twice"}:
        value = inner[last]
        inner[last] = mark
        literal = draw.choice(LITERALS)
        if kind == "twice":
            literal = json.dumps(value).encode() + b"," + json.dumps(str(last)).encode() + b": 0"
        return json.dumps(document).encode().replace(json.dumps(mark).encode(), literal)
    else:
        inner[last] = draw.choice(TEXTS)
    return json.dumps(document).encode()


# --- Hugging Face: a repository, with one document of it mutated ----------------------------------


def serve_header(hub: Hub, name: str, mutant: bytes) -> Bodies:
    """A checkpoint of one file."""
    weights = GOOD[8 + len(header_of(GOOD)) :]
    hub.push(name, {"model.safetensors": len(mutant).to_bytes(8, "little") + mutant + weights})
    return {}


def serve_index(hub: Hub, name: str, mutant: bytes) -> Bodies:
    """A checkpoint of shards."""
    hub.push(name, {**sharded(random_tensors(2)), INDEX: mutant})
    return {}


def serve_pipeline(hub: Hub, name: str, mutant: bytes) -> Bodies:
    """A repository whose list of components is a mutant."""
    files = {f"{part}/model.safetensors": GOOD for part in ("unet", "vae")}
    hub.push(name, {**files, "model_index.json": mutant})
    return {}


def serve_config(hub: Hub, name: str, mutant: bytes) -> Bodies:
    """An adapter."""
    hub.push(name, {**adapter_files(3), CONFIG: mutant})
    return {}


def serve_answer(hub: Hub, name: str, mutant: bytes) -> Bodies:
    """The description of a good repository."""
    hub.push(name, {"model.safetensors": GOOD})
    return {f"/api/models/{name}": mutant}


def serve_listing(hub: Hub, name: str, mutant: bytes) -> Bodies:
    """The listing of models, which is that of a poll."""
    hub.push(name, {"model.safetensors": GOOD})
    return {"/api/models": mutant}


def answers(bodies: Bodies) -> Callable[[Handler], bool]:
    """A hub that answers these bodies to paths of these beginnings."""

    def answer(request: Handler) -> bool:
        path = request.path.partition("?")[0]
        if path not in bodies:
            return False
        request.say(200, bodies[path], Content_Type="application/json")
        return True

    return answer


_DESCRIBED: Final = {
    "id": NAME,
    "sha": "1" * 40,
    "private": False,
    "disabled": False,
    "tags": ["license:mit", "base_model:org/base"],
    "pipeline_tag": "text-generation",
    "library_name": "transformers",
    "lastModified": "2026-01-01T00:00:00.000Z",
    "cardData": {"base_model": "org/base", "tags": ["a"]},
    "siblings": [
        {"rfilename": "README.md", "size": 3, "blobId": "0" * 40},
        {"rfilename": "model.safetensors", "size": len(GOOD), "lfs": {"size": len(GOOD)}},
    ],
}
HUGGINGFACE: Final[dict[str, tuple[bytes, Serve]]] = {
    "header": (b'{"__metadata__": {"a": "b"},' + header_of(GOOD)[1:], serve_header),
    "index": (sharded(random_tensors(2))[INDEX], serve_index),
    "pipeline": (PIPELINE, serve_pipeline),
    "config": (adapter_files(3)[CONFIG], serve_config),
    "answer": (json.dumps(_DESCRIBED).encode(), serve_answer),
    "listing": (json.dumps([_DESCRIBED, {"id": BESIDE, "sha": "2"}]).encode(), serve_listing),
}

# --- MLflow ---------------------------------------------------------------------------------------

_API: Final = "/api/2.0/mlflow"
_TAGS: Final = [{"key": "base_model", "value": "base@1"}, {"key": "region", "value": "eu"}]
_VERSION: Final = {"version": "1", "status": "READY", "run_id": "r", "source": "s", "tags": _TAGS}
_MODEL: Final = {
    "name": "a",
    "latest_versions": [_VERSION],
    "tags": _TAGS,
    "aliases": [{"alias": "champion", "version": "1"}],
}
_ARTIFACT: Final = {"path": "model.safetensors", "is_dir": False, "file_size": f"{len(GOOD)}"}
_REGISTRY: Final[dict[str, Document]] = {
    f"{_API}/registered-models/search": {"registered_models": [_MODEL]},
    f"{_API}/registered-models/get": {"registered_model": _MODEL},
    f"{_API}/model-versions/get": {"model_version": _VERSION},
    f"{_API}/model-versions/get-download-uri": {"artifact_uri": "runs:/r/model"},
    f"{_API}/runs/get": {"run": {"info": {"artifact_uri": "mlflow-artifacts:/0/r"}}},
    "/api/2.0/mlflow-artifacts/artifacts": {"files": [_ARTIFACT]},
}


def serve_registry(hub: Hub, path: str, mutant: bytes) -> None:
    """A registry one of whose answers is a mutant."""
    bodies = {each: json.dumps(document).encode() for each, document in _REGISTRY.items()}
    bodies["/api/2.0/mlflow-artifacts/artifacts/0/r/model/model.safetensors"] = GOOD
    hub.on_hub = answers({**bodies, path: mutant})


# --- the tests ------------------------------------------------------------------------------------


@pytest.fixture
def app(tmp_path: Path, backend: Backend) -> Iterator[AppHarness]:
    """A service on each database."""
    with open_app(tmp_path, backend, hub_timeout_seconds=5.0) as opened:
        yield opened


def polled(app: AppHarness, source: SourceRecord) -> dict[str, str]:
    """Carry out a source's first poll and its syncs; how each job ended, by its model."""
    app.worker.run_all()
    with app.database.reading() as session:
        jobs = session.scalars(select(JobRow)).all()
    own = [job for job in jobs if job.parameters.get("source") == source.id]
    return {
        f"{job.kind} {job.parameters.get('model')}": job.error["code"] if job.error else job.state
        for job in own
    }


def forget(app: AppHarness, source: SourceRecord) -> None:
    """Delete a source and all spaces, so that the next one finds nothing."""
    assert app.http.delete(f"/v1/sources/{source.id}").is_success
    for space in app.hubs.spaces():
        assert app.http.delete(f"/v1/spaces/{space}").is_success


def has_model(app: AppHarness, prefix: str, name: str) -> bool:
    """Whether a source has stored a model in one of its spaces."""
    return any(
        app.hubs.model(name, space)
        for space in app.hubs.spaces()
        if space.partition("-")[0] == prefix
    )


def check(
    app: AppHarness,
    source: SourceRecord,
    ends: Mapping[str, str],
    log: str,
    mutants: Mapping[str, bytes],
) -> None:
    """No job ended by a bug, and all that is shown can be encoded."""
    shown = f"{ends} {[(name, mutant[:300]) for name, mutant in mutants.items()]}"
    assert "internal_error" not in ends.values(), f"{shown} {log[-3000:]}"
    assert "Traceback" not in log, f"{shown} {log[-3000:]}"
    for path in (f"/v1/sources/{source.id}", "/v1/spaces", "/v1/jobs"):
        assert 200 == app.http.get(path).status_code, f"{path} {shown}"
    for space in app.http.get("/v1/spaces").json()["items"]:
        assert app.http.get(f"/v1/spaces/{space['name']}").is_success
        assert app.http.get(f"/v1/spaces/{space['name']}/models").is_success


@pytest.mark.slow
@pytest.mark.parametrize("kind", HUGGINGFACE)
def test_mutants_of_a_hub(
    hub: Hub, app: AppHarness, caplog: pytest.LogCaptureFixture, figure: Figure, kind: str
) -> None:
    """Whatever one document of a repository is, its sync ends with an error that has a code, or
    stores the model; the repository beside it is stored, unless the listing itself is damaged.
    """
    original, serve = HUGGINGFACE[kind]
    draw, ended = random.Random(f"{SEED}/{kind}"), Counter[str]()
    whole, at_once = repetitions(400, few=17), 1 if kind == "listing" else AT_ONCE
    for first in range(0, whole, at_once):
        names = [f"{NAME}{number}" for number in range(first, min(first + at_once, whole))]
        if kind == "listing":
            names = [NAME]
        hub.repos.clear()
        hub.push("org/base", {"model.safetensors": safetensors(random_tensors(9, BASE))})
        hub.push(BESIDE, {"model.safetensors": GOOD})
        mutants, bodies = dict[str, bytes](), Bodies()
        for name in names:
            mutants[name] = mutated(draw, original.replace(NAME.encode(), name.encode()))
            bodies |= serve(hub, name, mutants[name])
        hub.on_hub = answers(bodies)
        source = app.hubs.follow(hub.url, space=f"kin{first}", poll_seconds=60)
        caplog.clear()
        ends = polled(app, source)
        check(app, source, ends, caplog.text, mutants)
        if kind != "listing":
            assert {f"ingest {name}" for name in (*names, BESIDE, "org/base")} <= set(ends)
            assert has_model(app, f"kin{first}", BESIDE), f"{ends} {mutants}"
        forget(app, source)
        ended.update(ends.values())
    figure(f"{kind}: {dict(ended)}")


@pytest.mark.slow
@pytest.mark.parametrize("path", _REGISTRY)
def test_mutants_of_a_registry(
    hub: Hub, app: AppHarness, caplog: pytest.LogCaptureFixture, figure: Figure, path: str
) -> None:
    """The same of each answer of an MLflow registry."""
    draw, ended = random.Random(f"{SEED}/{path}"), Counter[str]()
    for number in range(repetitions(400, few=15)):
        mutant = mutated(draw, json.dumps(_REGISTRY[path]).encode())
        serve_registry(hub, path, mutant)
        source = app.hubs.follow(hub.url, kind="mlflow", space=f"kin{number}", poll_seconds=60)
        caplog.clear()
        ends = polled(app, source)
        check(app, source, ends, caplog.text, {path: mutant})
        forget(app, source)
        ended.update(ends.values())
    figure(f"{path}: {dict(ended)}")
