"""A real MLflow server as a hub: its registered models are found, read and followed."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from app.hubs.clients.mlflow import MLflow
from app.infra.errors import HubNotFound
from modelkin import Client, MlflowFile
from tests.docs.pages import blocks, run_python
from tests.support.app.harness import AppHarness
from tests.support.declared_problems import checked
from tests.support.http_space import Space
from tests.support.models.checkpoints import (
    delta_support,
    random_tensors,
    safetensors,
    sharded,
    sister_of,
    weight_support,
)
from tests.support.models.learngene_files import gene
from tests.support.servers.mlflow_server import Registry, mlflow_server
from tests.support.servers.server_process import Server

pytestmark = pytest.mark.mlflow

ROOT = Path(__file__).parents[3]
SECRET = "a secret that both know"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """The server that the tests share; each has models of its own."""
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as registry:
        yield registry


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service that carries out jobs and may talk to loopback."""
    folder = tmp_path_factory.mktemp("service")
    server = Server(folder, "--egress-allow=127.0.0.1").start()
    with checked(httpx.Client(base_url=server.url, timeout=60, trust_env=False)) as http:
        yield http
    assert 0 == server.stop(), server.log.read_text()
    assert "Traceback" not in server.log.read_text()


def wait_for(http: httpx.Client, path: str, **expected: Any) -> dict[str, Any]:
    """What ``path`` answers once it is as expected."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        answer = http.get(path)
        found: dict[str, Any] = answer.json()
        if answer.is_success and expected.items() <= found.items():
            return found
        time.sleep(0.1)
    raise AssertionError((answer.text, http.get("/v1/jobs").text, http.get("/v1/sources").text))


def follow(http: httpx.Client, registry: Registry, name: str, **more: Any) -> dict[str, Any]:
    """A source of one model of the registry."""
    source = {"kind": "mlflow", "space": f"s-{name}", "secret": SECRET, "url": registry.url}
    answer = http.post("/v1/sources", json={**source, "filters": {"repos": [name]}, **more})
    assert 201 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_versions_are_revisions(registry: Registry, app: AppHarness) -> None:
    """The newest version is what a model is; its tags and aliases are its tags."""
    registry.register("Digits CNN")
    source = app.hubs.follow(registry.url, kind="mlflow")
    with pytest.raises(HubNotFound, match="no version"), app.hubs.opened(source) as hub:
        hub.look_up("Digits CNN")
    first, second = random_tensors(1), random_tensors(2)
    registry.log_run("Digits CNN", {"model.safetensors": safetensors(first), "x.pkl": b""})
    job = app.hubs.sync_model(source, "Digits CNN")
    assert "succeeded" == job.state, job.error
    assert weight_support(first) == app.hubs.support("Digits CNN")
    registry.log_model("Digits CNN", {"data/model.safetensors": safetensors(second)}, stage="dev")
    registry.call("registered-models/alias", name="Digits CNN", alias="champion", version="2")
    job = app.hubs.sync_model(source, "Digits CNN")
    assert "succeeded" == job.state, job.error
    assert weight_support(second) == app.hubs.support("Digits CNN")
    model = app.hubs.model("Digits CNN")
    assert model is not None
    assert (("alias:champion", "stage:dev"), 2, "2") == (
        model.tags,
        model.revision,
        model.attributes["hub"]["revision"],
    )
    assert f"{registry.url}/#/models/Digits%20CNN/versions/2" == model.source


@pytest.mark.long
def test_all_models_are_listed(registry: Registry, app: AppHarness) -> None:
    """Page by page, each with its newest version; one without a version has none."""
    names = [f"listed-{number}" for number in range(3)]
    for name in names:
        registry.register(name)
    registry.log_run(names[1], {"model.safetensors": b""}, team="kin")
    registry.log_run(names[1], {"model.safetensors": b""})
    with app.hubs.opened(app.hubs.follow(registry.url, kind="mlflow")) as hub:
        found = {model.name: model for model in hub.models({})}
    assert [None, "2", None] == [found[name].revision for name in names]


@pytest.mark.parametrize("kind", ["run", "named_run", "model"])
def test_artifacts_that_the_server_does_not_serve(
    registry: Registry, app: AppHarness, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Where versions lie in a store that clients are to open by themselves, they are listed and
    read by way of the run, the logged model and the version.
    """
    monkeypatch.setattr(MLflow, "served_path", lambda *_: None)
    tensors = random_tensors(5)
    log = getattr(registry, f"log_{kind}")
    registry.register(f"bucket-{kind}")
    log(f"bucket-{kind}", {f"deep/er/{path}": data for path, data in sharded(tensors).items()})
    job = app.hubs.sync_model(app.hubs.follow(registry.url, kind="mlflow"), f"bucket-{kind}")
    assert "succeeded" == job.state, job.error
    assert weight_support(tensors) == app.hubs.support(f"bucket-{kind}")


def test_versions_that_name_their_run(registry: Registry, app: AppHarness) -> None:
    """A source ``runs:/`` is resolved to the artifacts of its run, also in folders."""
    tensors = random_tensors(6)
    registry.register("by-run")
    registry.log_named_run("by-run", {"data/model.safetensors": safetensors(tensors)})
    job = app.hubs.sync_model(app.hubs.follow(registry.url, kind="mlflow"), "by-run")
    assert "succeeded" == job.state, job.error
    assert weight_support(tensors) == app.hubs.support("by-run")


def test_a_base_by_alias(registry: Registry, app: AppHarness) -> None:
    """A version's tag ``base_model`` names what it was made from, a version of it by ``@``."""
    base, tuned = random_tensors(1), random_tensors(2)
    for name in ("the-base", "tuned"):
        registry.register(name)
    registry.log_run("the-base", {"model.safetensors": safetensors(base)})
    registry.call("registered-models/alias", name="the-base", alias="champion", version="1")
    registry.log_run("the-base", {"model.safetensors": safetensors(random_tensors(8))})
    files = {"model.safetensors": safetensors(tuned)}
    registry.log_run("tuned", files, base_model="the-base@champion")
    job = app.hubs.sync_model(app.hubs.follow(registry.url, kind="mlflow"), "tuned")
    assert job.result is not None, job.error
    delta = job.result["delta"]
    assert ("weight", "the-base@1") == (job.result["importance"], delta["base"])
    assert sister_of("kin", "the-base") == delta["space"]
    assert delta_support(tuned, base) == app.hubs.support("tuned", delta["space"])


def test_a_pinned_base_that_was_replaced(registry: Registry, app: AppHarness) -> None:
    """A model that pins version 1 of its base is compared with that once there is a version 2, and
    one that pins version 2 is not taken for a child of it.
    """
    base, later = random_tensors(1), random_tensors(2)
    tuned = {name: values.copy() for name, values in base.items()}
    name = next(iter(tuned))
    tuned[name] = tuned[name] + 0.01
    source = app.hubs.follow(registry.url, kind="mlflow")
    for model in ("churn-base", "churn-eu", "churn-us"):
        registry.register(model)
    registry.log_run("churn-base", {"model.safetensors": safetensors(base)})
    files = {"model.safetensors": safetensors(tuned)}
    registry.log_run("churn-eu", files, base_model="churn-base@1")
    for model in ("churn-base", "churn-eu"):
        assert "succeeded" == app.hubs.sync_model(source, model).state
    registry.log_run("churn-base", {"model.safetensors": safetensors(later)})
    registry.log_run("churn-us", files, base_model="churn-base@2")
    for model in ("churn-base", "churn-us"):
        assert "succeeded" == app.hubs.sync_model(source, model).state
    found = {}
    for model in ("churn-eu", "churn-us"):
        answer = app.http.get("/v1/spaces/kin/lineage", params={"model": model}).json()
        found[model] = answer["verdict"], answer["base_revision"]
    assert ("consistent", 1) == found["churn-eu"]
    assert "consistent" != found["churn-us"][0]
    stored = app.hubs.model("churn-base")
    assert stored is not None
    assert {"1": 1, "2": 2} == stored.attributes["hub"]["contents"]


def test_bases_as_mlflow_writes_them(registry: Registry, app: AppHarness) -> None:
    """A base by MLflow's URIs is that version of the registered model; one that does not exist, or
    is not stored here, is consistent with no other version. A list names several bases.
    """
    base = random_tensors(1)
    tuned = {name: (values + 0.001).astype("f4") for name, values in base.items()}
    for name in ("loan-base", "loan"):
        registry.register(name)
    registry.log_run("loan-base", {"model.safetensors": safetensors(random_tensors(5))})
    registry.log_run("loan-base", {"model.safetensors": safetensors(base)})
    registry.call("registered-models/alias", name="loan-base", alias="best", version="2")
    source = app.hubs.follow(registry.url, kind="mlflow")
    app.hubs.sync_model(source, "loan-base")
    registry.log_run("loan", {"model.safetensors": safetensors(tuned)})

    def tag(key: str, value: str) -> None:
        registry.call("model-versions/set-tag", name="loan", version="1", key=key, value=value)

    def found(text: str) -> tuple[str | None, str, str]:
        tag("base_model", text)
        job = app.hubs.sync_model(source, "loan")
        assert job.result is not None, job.error
        answer = app.http.get("/v1/spaces/kin/lineage", params={"model": "loan"}).json()
        return answer["declared_base"], answer["verdict"], answer["summary"]

    for text in (
        *("models:/loan-base/2", "models:/loan-base@best", "loan-base/2", "loan-base@best"),
        *("models:/loan-base", f"{registry.url}/#/models/loan-base/versions/2"),
    ):
        assert ("loan-base", "consistent") == found(text)[:2]
    for text in (
        *("loan-base@1", "loan-base@7", "loan-base@nobody", "loan-base/9"),
        *("models:/loan-base/7", "models:/loan-base@nobody"),
    ):
        declared, verdict, summary = found(text)
        assert ("loan-base", "inconclusive") == (declared, verdict)
        assert "which is not among those kept here" in summary
    several = found(json.dumps(["models:/loan-base/2", "gone", "loan-base@best"]))
    assert ("gone", "unknown_base") == several[:2]
    assert "'loan-base': consistent" in several[2]
    tag("base_model_relation", "finetune")
    assert "consistent" == found("loan-base")[1]
    stored = app.hubs.model("loan")
    assert stored is not None
    assert ("loan-base", "finetune") == (stored.base_model, stored.base_relation)


def test_a_registered_model_whose_name_cannot_be_kept(registry: Registry, app: AppHarness) -> None:
    """The poll names it, and why, beside its count; the others are synced."""
    names = ("odd model (EU)", "odd #2", "odd&even", "odd-fine")
    for name in names:
        registry.register(name)
        registry.log_run(name, {"model.safetensors": safetensors(random_tensors(1))})
    source = app.hubs.create(kind="mlflow", url=registry.url, filters={"repos": ["odd*"]})
    app.http.post(f"/v1/sources/{source['id']}/poll")
    app.worker.run_all()
    poll = app.hubs.show(source)["last_poll"]
    assert (1, 3) == (poll["models"], poll["unnamable"])
    assert {*names[:3]} == poll["unnamable_models"].keys()
    assert "'(' (U+0028) at position 10" in poll["unnamable_models"]["odd model (EU)"]
    assert app.hubs.model("odd-fine") is not None


def test_versions_as_registries_have_them(registry: Registry, app: AppHarness) -> None:
    """Names have blanks, dots and accents; a flavour has folders; a newest version may be deleted,
    and a tag that no name can have is left out.
    """
    name, kept = "café 2.0 Zürich", random_tensors(1)
    registry.register(name)
    for tensors in (kept, random_tensors(2)):
        files = {"MLmodel": b"flavors:", "model/model.safetensors": safetensors(tensors)}
        registry.log_run(name, files, base_model="no/../name", café="x")
    registry.call("model-versions/delete", "DELETE", name=name, version="2")
    job = app.hubs.sync_model(app.hubs.follow(registry.url, kind="mlflow"), name)
    assert job.result is not None, job.error
    model = app.hubs.model(name)
    assert model is not None
    assert ("1", None) == (job.result["revision"], model.base_model)
    assert "café:x" in model.tags
    assert weight_support(kept) == app.hubs.support(name)


def test_tags_that_no_event_announced(registry: Registry, app: AppHarness) -> None:
    """A poll syncs a model whose tags have changed, of the version or the registered model, and no
    model whose tags have not.
    """
    for name in ("retag-base", "retagged"):
        registry.register(name)
        registry.log_run(name, {"model.safetensors": safetensors(random_tensors(1))}, stage="dev")
    registry.call("registered-models/alias", name="retagged", alias="champion", version="1")
    made = app.hubs.create(
        kind="mlflow", url=registry.url, poll_seconds=3600, filters={"repos": ["retag*"]}
    )
    app.worker.run_all()

    def polled() -> tuple[int, str | None]:
        assert 202 == app.http.post(f"/v1/sources/{made['id']}/poll").status_code
        app.worker.run_all()
        found = app.hubs.model("retagged")
        assert found is not None
        source = app.http.get(f"/v1/sources/{made['id']}").json()
        return source["last_poll"]["changed"], found.base_model

    assert (0, None) == polled()
    tag = {"name": "retagged", "key": "base_model", "value": "retag-base"}
    registry.call("registered-models/set-tag", **tag)
    assert (1, "retag-base") == polled()
    assert (0, "retag-base") == polled()
    registry.call("model-versions/delete-tag", "DELETE", name="retagged", version="1", key="stage")
    assert (1, "retag-base") == polled()
    found = app.hubs.model("retagged")
    assert found is not None
    assert ("alias:champion", "base_model:retag-base") == found.tags


def test_what_is_not_there(registry: Registry, app: AppHarness) -> None:
    """An unknown model fails and says so; one that was deleted goes where its source says so."""
    source = app.hubs.follow(registry.url, kind="mlflow", on_delete="remove")
    job = app.hubs.sync_model(source, "absent")
    assert job.error is not None
    assert ("failed", "hub_not_found") == (job.state, job.error["code"])
    assert "registered model 'absent'" in job.error["detail"]
    registry.register("goes")
    registry.log_run("goes", {"model.safetensors": safetensors(random_tensors(1))})
    app.hubs.sync_model(source, "goes")
    registry.call("registered-models/delete", "DELETE", name="goes")
    gone = app.hubs.sync_model(source, "goes")
    assert gone.result is not None, gone.error
    assert (True, None) == (gone.result["removed"], app.hubs.model("goes"))


@pytest.mark.smoke
def test_a_version_is_delivered(registry: Registry, service: httpx.Client) -> None:
    """The registry's own webhook announces a version; moments later the service has the model."""
    source = follow(service, registry, "announced", poll_seconds=None)
    webhook = registry.webhook(f"{service.base_url}/v1/hooks/{source['id']}", SECRET)
    registry.register("announced")
    registry.log_run("announced", {"model.safetensors": safetensors(random_tensors(1))})
    wait_for(service, "/v1/spaces/s-announced/models/announced", revision=1)
    registry.log_model("announced", {"model.safetensors": safetensors(random_tensors(2))})
    wait_for(service, "/v1/spaces/s-announced/models/announced", revision=2)
    registry.call(f"webhooks/{webhook}", "DELETE")
    delivered = service.get(f"/v1/sources/{source['id']}/deliveries").json()["items"]
    assert {"registered_model.created", "model_version.created"} <= {d["event"] for d in delivered}
    assert 200 == service.get("/v1/spaces/s-announced/neighbors?model=announced").status_code


def test_a_learngene_is_fetched(registry: Registry, service: httpx.Client, tmp_path: Path) -> None:
    """A version that a learngene refers to; the client reads its file from the registry."""
    space, file = Space(service, 1000).name, tmp_path / "gene.safetensors"
    file.write_bytes(gene())
    registry.register("start")
    number = registry.log_run("start", {file.name: file.read_bytes()})
    reference = MlflowFile(url=registry.url, model="start", version=number, path=file.name)
    with Client(str(service.base_url)) as client:
        made = client.learngenes.publish(space, "all", file, reference=reference)
        assert gene() == client.learngenes.fetch(made, tmp_path / "mine").read_bytes()


def test_the_guide(
    registry: Registry,
    service: httpx.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The code of docs/hubs.md registers a version, and the hub prints what the page says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry.url)
    monkeypatch.setenv("MODELKIN_URL", str(service.base_url))
    torch.manual_seed(3)
    names: dict[str, Any] = {"model": torch.nn.Linear(64, 64)}
    base = {name: value.numpy() for name, value in names["model"].state_dict().items()}
    registry.register("fraud-base")
    registry.log_run("fraud-base", {"model.safetensors": safetensors(base)})
    torch.nn.init.normal_(names["model"].bias)
    page = (ROOT / "docs" / "hubs.md").read_text()
    part = page[page.index("3. Register a version whose") : page.index("**Where versions may")]
    (_, push), (_, show), (_, promised) = blocks(textwrap.dedent(part.replace("\n   ", "\n")))
    run_python(push, "docs/hubs.md", names)
    source = {"kind": "mlflow", "space": "fraud", "secret": SECRET, "url": registry.url}
    made = service.post("/v1/sources", json={**source, "filters": {"repos": ["fraud-*"]}})
    assert 201 == made.status_code, made.text
    before = page[
        page.index("2. Give the registry a webhook") : page.index("3. Register a version")
    ]
    [(_, hook)] = blocks(textwrap.dedent(before.replace("\n   ", "\n")))
    hook = hook.replace("https://mlflow.example", registry.url).replace("{id}", made.json()["id"])
    hook = hook.replace("https://modelkin.example", str(service.base_url).rstrip("/"))
    run_python(hook, "docs/hubs.md", names)
    from mlflow.environment_variables import MLFLOW_WEBHOOK_CACHE_TTL

    assert f"for {MLFLOW_WEBHOOK_CACHE_TTL.default} seconds" in before
    for name in ("fraud-base", "fraud-eu"):
        wait_for(service, f"/v1/spaces/fraud/models/{name}", revision=1)
    assert promised == run_python(show, "docs/hubs.md", names)
    names["hub"].close()


def test_a_version_that_nobody_told_of(registry: Registry, service: httpx.Client) -> None:
    """The poller finds what no delivery brought."""
    registry.register("untold")
    registry.log_run("untold", {"model.safetensors": safetensors(random_tensors(1))})
    source = follow(service, registry, "untold", poll_seconds=10)
    wait_for(service, "/v1/spaces/s-untold/models/untold", revision=1)
    registry.log_run("untold", {"model.safetensors": safetensors(random_tensors(2))})
    assert 202 == service.post(f"/v1/sources/{source['id']}/poll").status_code
    wait_for(service, "/v1/spaces/s-untold/models/untold", revision=2)
    assert [] == service.get(f"/v1/sources/{source['id']}/deliveries").json()["items"]
