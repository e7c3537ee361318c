"""docs/recipes/kubernetes.yaml: settings, names, probes, memory and connections fit each other."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import modelkin
from app.operations.cli import COMMANDS
from app.settings import Settings
from tests.docs.recipes import files as recipes
from tests.docs.recipes.files import FOLDER, pods
from tests.support.declared_problems import OPERATIONS

PAGE = FOLDER.parent / "recipes.md"
ROUTES = {operation.path for operation in OPERATIONS.values()}
MAX_CONNECTIONS = 97
"""What Postgres takes unless it is set up otherwise, without those of its superusers."""


def test_a_pod_has_the_settings_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are valid with the secret of the page, and no service's address stands in for one."""
    kinds = {(each["kind"], each["metadata"]["name"]): each for each in recipes.objects()}
    secret = dict(re.findall(r"--from-literal=(\w+)=(\S+)", PAGE.read_text()))
    secret["MODELKIN_ENCRYPTION_KEYS"] = 64 * "0"
    secret["MODELKIN_INITIAL_KEY"] = "mk_" + 49 * "x"
    for name, value in (kinds["ConfigMap", "modelkin"]["data"] | secret).items():
        monkeypatch.setenv(name, value)
    assert not Settings(_env_file=None, host="0.0.0.0").migrate
    for pod in pods().values():
        assert pod["enableServiceLinks"] is False
        [container] = pod["containers"]
        for source in container["envFrom"]:
            [(kind, named)] = source.items()
            assert kind == "secretRef" or ("ConfigMap", named["name"]) in kinds
    assert {"MODELKIN_DATABASE_URL", "MODELKIN_REDIS_URL"} < set(secret)


def test_memory_and_connections_of_the_cluster_are_enough() -> None:
    """The budgets stay below the limit of a container, and all pools below Postgres' default."""
    kinds = {each["kind"]: each for each in recipes.objects()}
    config = kinds["ConfigMap"]["data"]
    defaults = Settings.model_construct()
    scanned = int(config["MODELKIN_INDEX_MEMORY_BYTES"])
    bodies = int(config["MODELKIN_MAX_INFLIGHT_BODY_BYTES"])
    ingested = 8 * defaults.max_ingested_indices * defaults.job_concurrency // 2
    budgets = 1.25 * (scanned + bodies) + int(config["MODELKIN_SUPPORT_CACHE_BYTES"]) + ingested
    deployed = [each for each in recipes.objects() if each["kind"] == "Deployment"]
    connections = 0
    for each in deployed:
        [container] = each["spec"]["template"]["spec"]["containers"]
        limit = container["resources"]["limits"]["memory"]
        assert budgets + (1 << 30) < int(limit.removesuffix("Gi")) << 30
        pool = int(config["MODELKIN_DATABASE_POOL_SIZE"])
        of_jobs = 8 + defaults.job_concurrency if "workers" in container["command"] else 0
        connections += each["spec"]["replicas"] * (pool + of_jobs)
    assert connections <= MAX_CONNECTIONS


def test_the_parts_of_the_cluster_find_each_other() -> None:
    """Labels, ports, volumes and the migration's name are those of another part, or the version."""
    kinds = {(each["kind"], each["metadata"]["name"]): each for each in recipes.objects()}
    for (kind, name), each in kinds.items():
        if kind != "Deployment":
            continue
        template = each["spec"]["template"]
        assert each["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
        [container] = template["spec"]["containers"]
        mounted = {volume["name"] for volume in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in template["spec"]["volumes"]}, name
        assert container["image"].endswith(f":{modelkin.__version__}")
    service = kinds["Service", "modelkin"]["spec"]
    served = kinds["Deployment", "modelkin"]["spec"]["template"]
    assert service["selector"] == served["metadata"]["labels"]
    [port] = served["spec"]["containers"][0]["ports"]
    assert [port["name"]] == [each["targetPort"] for each in service["ports"]]
    job = f"modelkin-migrate-{modelkin.__version__.replace('.', '-')}"
    assert ("Job", job) in kinds
    assert f"job/{job}" in PAGE.read_text()


def test_every_probe_is_answered() -> None:
    """Paths are routes, and commands begin a module or a command of the service."""
    asked = []
    for pod in pods().values():
        [container] = pod["containers"]
        commands = [container["command"]]
        for name, probe in container.items():
            if name.endswith("Probe"):
                asked.append(name)
                if "exec" in probe:
                    commands.append(probe["exec"]["command"])
                else:
                    assert probe["httpGet"]["path"] in ROUTES
        for _, _, module, *words in commands:
            assert find_spec(module) is not None, module
            assert not words or words[0] in COMMANDS or module == "workers.health"
    assert 5 == len(asked)


def test_a_worker_touches_the_file_that_its_probe_reads() -> None:
    """The setting and the command name one file, in a folder that can be written."""
    [container] = pods()["modelkin-workers"]["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    *_, read = container["livenessProbe"]["exec"]["command"]
    assert env["MODELKIN_WORKER_HEALTH_FILE"] == read
    mounts = [each["mountPath"] for each in container["volumeMounts"]]
    assert str(Path(read).parent) in mounts
