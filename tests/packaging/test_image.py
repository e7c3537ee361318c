"""The image without Docker: the Dockerfile's own steps, run in an empty folder, and served."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from app.auth.service import generate
from app.settings import Settings
from tests.support.servers.postgres import postgres

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
STEPS = [line.split(" ", 1) for line in TEXT.splitlines() if line and not line.startswith("#")]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
WITHIN = re.compile(r"(?<![\w./])/(opt|srv|var/lib/modelkin)\b")


def variables(root: Path) -> dict[str, str]:
    """The image's ENV, with its paths under ``root``."""
    (step,) = (rest for what, rest in STEPS if what == "ENV")
    pairs = dict(pair.split("=", 1) for pair in step.split())
    return {name: WITHIN.sub(rf"{root}/\1", value) for name, value in pairs.items()}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every COPY and RUN has been carried out, as in the image."""
    root = tmp_path_factory.mktemp("image")
    work = root / "srv"
    (root / "var/lib/modelkin").mkdir(parents=True)
    work.mkdir()
    (root / "bin").mkdir()
    (root / "bin" / "python").symlink_to(sys.executable)
    for what, rest in STEPS:
        if what == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            for source in sources:
                copy(ROOT / source, work / target if target != "./" else work / source)
        elif what == "RUN" and not rest.startswith("useradd"):
            run(WITHIN.sub(rf"{root}/\1", rest), work, root)
    shutil.rmtree(work / "client_sdk")  # it stays behind in the stage that builds
    return root


def copy(source: Path, target: Path) -> None:
    """Copy as COPY does: a source that .dockerignore leaves out is missing from the context."""
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    assert f"!{source.relative_to(ROOT)}" in sent, f".dockerignore leaves out {source}"
    ignored = shutil.ignore_patterns("__pycache__")
    if source.is_dir():
        shutil.copytree(source, target, ignore=ignored)
    else:
        shutil.copy(source, target)


def run(command: str, work: Path, root: Path) -> None:
    """What RUN does."""
    environment = {**os.environ, "PATH": f"{root}/bin:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-ec", command], cwd=work, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture
def served(image: Path, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The image's CMD and its workers as compose.yaml starts them, on a real Postgres: the address
    and the first key.
    """
    key = generate()
    with postgres() as url:
        settings = {
            "MODELKIN_DATABASE_URL": url,
            "MODELKIN_BLOB_URL": f"file://{image}/var/lib/modelkin/blobs",
            "MODELKIN_REDIS_URL": "redis://127.0.0.1:1",  # nothing waits for it
            "MODELKIN_INITIAL_KEY": key,
            "MODELKIN_ENCRYPTION_KEYS": "x" * 32,
        }
        for started in ("service", "workers"):
            assert settings.keys() == COMPOSE["services"][started]["environment"].keys()
        environment = {**variables(image), **settings, "MODELKIN_PORT": "0"}
        (command,) = (rest for what, rest in STEPS if what == "CMD")
        log = tmp_path / "log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [f"{image}/opt/venv/bin/python", *yaml.safe_load(command)[1:]],
                cwd=image / "srv",
                env=environment,
                stderr=file,
            )
        try:
            with carried_out(image, environment):
                yield address(process, log), key
        finally:
            process.terminate()
            assert process.wait(30) == 0


@contextmanager
def carried_out(image: Path, environment: dict[str, str]) -> Iterator[None]:
    """A worker, as compose.yaml starts it, for as long as the block runs."""
    command = COMPOSE["services"]["workers"]["command"]
    assert command[0] == "python"
    process = subprocess.Popen(
        [f"{image}/opt/venv/bin/python", *command[1:]], cwd=image / "srv", env=environment
    )
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(30) == 0


def address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where it serves, from its log."""
    for _ in range(1200):
        found = re.search(r"http://0\.0\.0\.0:(\d+)", log.read_text())
        if found:
            return f"http://127.0.0.1:{found[1]}"
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def test_image_serves_on_postgres_with_the_first_key(served: tuple[str, str]) -> None:
    """What the Dockerfile builds and compose starts is ready, keeps models, carries out jobs, and
    asks for keys.
    """
    url, key = served
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False) as http:
        assert 200 == http.get("/readyz").status_code
        assert 201 == http.post("/v1/spaces", json={"name": "s", "num_parameters": 9}).status_code
        for name, indices in (("a", [1, 2, 3]), ("b", [2, 3, 4])):
            put = http.put(f"/v1/spaces/s/supports/{name}", json={"indices": indices})
            assert 201 == put.status_code
        (near,) = http.get("/v1/spaces/s/neighbors?model=a").json()["items"]
        assert ("b", 2) == (near["model"], near["shared_indices"])
        job = http.post("/v1/spaces/s/jobs", json={"kind": "stop_list"}).json()  # without Redis
        with http.stream("GET", f"/v1/jobs/{job['id']}/events", timeout=60) as events:
            last = [line for line in events.iter_lines() if line.startswith("data:")][-1]
        assert "succeeded" == json.loads(last.removeprefix("data:"))["state"]
    assert 401 == httpx.get(f"{url}/v1/spaces", trust_env=False).status_code


def test_image_has_no_torch(image: Path) -> None:
    """The service's image carries neither torch nor anything of the tests."""
    (packages,) = image.glob("opt/venv/lib/python*/site-packages")
    names = {path.name for path in packages.iterdir()}
    assert set() == names & {"torch", "pytest", "hypothesis", "datasketch"}
    assert {"app", "workers", "migrations"} <= {path.name for path in (image / "srv").iterdir()}


def test_every_variable_is_a_setting() -> None:
    """Dockerfile and compose.yaml set nothing that the service does not know."""
    names = {*variables(Path("/")), *COMPOSE["services"]["service"]["environment"]}
    ours = {name.removeprefix("MODELKIN_").lower() for name in names if "MODELKIN" in name}
    assert ours <= set(Settings.model_fields)
