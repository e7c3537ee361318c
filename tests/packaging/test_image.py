"""The image and compose.yaml, as an operator starts them, without Docker: what they say is done."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy.engine import make_url

from app.settings import Settings
from tests.packaging.image import Image, context, first_lines, read_compose, sh, write_docker
from tests.support.servers.ports import free_port
from tests.support.servers.postgres import Postgres, postgres_server

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCKERFILE = Image(ROOT / "Dockerfile", Path("/nowhere"))


COUNT = """
import numpy as np
from modelkin.core.kernels import fast
print(fast.and_count(np.ones(9, np.uint64), np.ones(9, np.uint64)))
"""


@dataclass(frozen=True)
class Deployed:
    """What an operator has after the first lines of compose.yaml.

    Attributes:
        checkout: the folder in which they were run, with ``.env``.
        image: built by them.
        compose: the file with all variables replaced.
    """

    checkout: Path
    image: Image
    compose: dict[str, Any]

    @property
    def secrets(self) -> dict[str, str]:
        """The variables of ``.env``."""
        lines = (self.checkout / ".env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)


def check_out(folder: Path) -> Path:
    """A copy of the sources in a folder, with what a build must not send."""
    ignored = shutil.ignore_patterns(".*_cache", ".git", ".venv", ".hypothesis", "modelkin-data")
    shutil.copytree(ROOT, folder, ignore=ignored)
    return folder


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    """The first lines of compose.yaml, carried out in the order written."""
    folder = tmp_path_factory.mktemp("deployed")
    checkout, state = check_out(folder / "checkout"), folder / "docker-state"
    (folder / "bin").mkdir()
    write_docker(folder / "bin", state)
    done = sh(first_lines(ROOT / "compose.yaml"), checkout, folder / "bin")
    assert done.returncode == 0, done.stderr.decode()
    return Deployed(checkout, Image(ROOT / "Dockerfile", state / "modelkin"), read_compose(state))


@dataclass(frozen=True)
class Served:
    """The containers of the service and of a worker: address and log of the one, both healthy."""

    url: str
    key: str
    health: dict[str, Any]
    log: Path


@pytest.fixture
def served(deployed: Deployed, tmp_path: Path) -> Iterator[Served]:
    """The service and a worker as compose.yaml starts them, on a real Postgres."""
    services = deployed.compose["services"]
    image, port = deployed.image, free_port()
    with postgres_server() as server:
        _first_start(server, deployed.compose)
        here = {
            "MODELKIN_DATABASE_URL": server.url("modelkin"),
            "MODELKIN_REDIS_URL": "redis://127.0.0.1:1",  # nothing waits for it
            "MODELKIN_PORT": str(port),
            "MODELKIN_WORKER_HEALTH_FILE": str(tmp_path / "worker"),
            "MODELKIN_KERNELS": "reference",  # the test below compiles a fast one
        }
        settings = {
            name: {key: image.within(value) for key, value in services[name]["environment"].items()}
            for name in ("service", "workers")
        }
        service = {**settings["service"], **here}
        with _running(image, image.command, service, tmp_path / "service.log"):
            _wait_for(f"http://127.0.0.1:{port}/readyz", tmp_path / "service.log")
            command = services["workers"]["command"]
            check = services["workers"]["healthcheck"]["test"]
            assert check[:2] == ["CMD", "python"]
            assert check[-1] == settings["workers"]["MODELKIN_WORKER_HEALTH_FILE"]
            worker = {**settings["workers"], **here}
            checks = {
                "service": (image.health_check, service),
                "workers": ([*check[1:-1], str(tmp_path / "worker")], worker),
            }
            with _running(image, command, worker, tmp_path / "workers.log"):
                key = settings["service"]["MODELKIN_INITIAL_KEY"]
                yield Served(f"http://127.0.0.1:{port}", key, checks, tmp_path / "service.log")


def _first_start(server: Postgres, compose: dict[str, Any]) -> None:
    """What the image of Postgres does with a new volume: it runs the files of a folder."""
    (mounted,) = compose["services"]["postgres"]["configs"]
    assert re.fullmatch(r"/docker-entrypoint-initdb\.d/\w+\.sql", mounted["target"])
    server.execute("ALTER DATABASE postgres OWNER TO postgres")
    server.execute("DROP ROLE modelkin")
    for statement in compose["configs"][mounted["source"]]["content"].strip().splitlines():
        server.execute(statement)


@contextmanager
def _running(
    image: Image, command: list[str], variables: dict[str, str], log: Path
) -> Iterator[None]:
    """A container, for as long as the block runs; it ends well."""
    with log.open("wb") as file:
        process = image.start(command, variables, stderr=file)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(60) == 0, log.read_text()


def _wait_for(url: str, log: Path) -> None:
    end = time.monotonic() + 240
    while time.monotonic() < end:
        try:
            if httpx.get(url, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(log.read_text())


def is_healthy(image: Image, check: tuple[list[str], dict[str, str]]) -> bool:
    """Whether a health check of a container succeeds, in a network that has a proxy."""
    command, variables = check
    proxied = {**variables, "http_proxy": "http://127.0.0.1:1"}
    with image.start(command, proxied, stderr=subprocess.DEVNULL) as process:
        return process.wait(60) == 0


@pytest.mark.long
@pytest.mark.postgres
def test_image_serves_on_postgres_with_the_first_key(deployed: Deployed, served: Served) -> None:
    """What the Dockerfile builds and compose starts is ready, keeps models, carries out jobs, and
    asks for keys; the health checks of both say so.
    """
    headers = {"Authorization": f"Bearer {served.key}"}
    with httpx.Client(base_url=served.url, headers=headers, trust_env=False) as http:
        assert 200 == http.get("/readyz").status_code
        assert 201 == http.post("/v1/spaces", json={"name": "s", "num_parameters": 9}).status_code
        for name, indices in (("a", [1, 2, 3]), ("b", [2, 3, 4])):
            put = http.put(f"/v1/spaces/s/supports/{name}", json={"indices": indices})
            assert 201 == put.status_code
        (near,) = http.get("/v1/spaces/s/neighbors?model=a").json()["items"]
        assert ("b", 2) == (near["model"], near["shared_indices"])
        job = http.post("/v1/spaces/s/clusterings", json={"algorithm": "leiden"}).json()
        with http.stream("GET", f"/v1/jobs/{job['id']}/events", timeout=60) as events:
            last = [line for line in events.iter_lines() if line.startswith("data:")][-1]
        assert "succeeded" == json.loads(last.removeprefix("data:"))["state"], last
        source = {"kind": "huggingface", "space": "h", "secret": "s", "poll_seconds": None}
        assert 201 == http.post("/v1/sources", json=source).status_code  # a key encrypts its secret
    assert 401 == httpx.get(f"{served.url}/v1/spaces", trust_env=False).status_code
    for check in served.health.values():
        assert is_healthy(deployed.image, check)
    assert "row-level security" not in served.log.read_text()  # it binds the role of compose.yaml


def test_the_image_keeps_kernels_beside_its_data(deployed: Deployed) -> None:
    """Its packages belong to root, and what it compiles lies where the next start finds it."""
    image = deployed.image
    with image.start(["python", "-c", COUNT], {}, stdout=subprocess.PIPE) as process:
        assert b"9\n" == process.communicate()[0]
    folder = Path(image.variables["NUMBA_CACHE_DIR"])
    assert 1 == len([*folder.glob("fast_*/*._and_count-*.nbc")])


def test_what_has_not_started_is_not_healthy(deployed: Deployed, tmp_path: Path) -> None:
    """Neither the service on a port where nothing listens, nor a worker without a sign of life."""
    closed = {"MODELKIN_PORT": str(free_port())}
    assert not is_healthy(deployed.image, (deployed.image.health_check, closed))
    check = ["python", "-m", "workers.health", str(tmp_path / "worker")]
    assert not is_healthy(deployed.image, (check, {}))


def test_the_first_lines_make_what_compose_asks_for(deployed: Deployed) -> None:
    """The secrets are in a file of their owner's, which later commands read and no build sends."""
    secrets = deployed.secrets
    names = {"MODELKIN_INITIAL_KEY", "POSTGRES_PASSWORD", "MODELKIN_ENCRYPTION_KEYS"}
    assert names == set(secrets)
    assert 0o600 == (deployed.checkout / ".env").stat().st_mode & 0o777
    assert secrets["MODELKIN_INITIAL_KEY"].startswith("mk_")
    services = deployed.compose["services"]
    password = secrets["POSTGRES_PASSWORD"]
    assert len(password) >= 32
    for name in ("service", "workers"):
        url = make_url(services[name]["environment"]["MODELKIN_DATABASE_URL"])
        assert ("modelkin", "postgres", password) == (url.username, url.host, url.password)
    assert password == services["postgres"]["environment"]["POSTGRES_PASSWORD"]
    assert f"LOGIN PASSWORD '{password}'" in deployed.compose["configs"]["role"]["content"]
    assert Path(".env") not in context(deployed.checkout)


def test_the_first_lines_keep_the_secrets_that_are_there(deployed: Deployed) -> None:
    """Run again after another build, they change nothing in ``.env``."""
    build, _, rest = first_lines(ROOT / "compose.yaml").partition("\n")
    assert build.startswith("docker build ")
    before = (deployed.checkout / ".env").read_bytes()
    done = sh(rest, deployed.checkout, deployed.checkout.parent / "bin")
    assert done.returncode == 0, done.stderr.decode()
    assert before == (deployed.checkout / ".env").read_bytes()
    assert 0o600 == (deployed.checkout / ".env").stat().st_mode & 0o777


def test_compose_without_the_first_lines_says_what_to_do(tmp_path: Path) -> None:
    """Without the variables nothing starts, and the message leads to the lines that make them."""
    shutil.copy(ROOT / "compose.yaml", tmp_path)
    (tmp_path / "bin").mkdir()
    write_docker(tmp_path / "bin", tmp_path / "state")
    done = sh("docker compose up --detach", tmp_path, tmp_path / "bin")
    assert done.returncode != 0
    message = rb"POSTGRES_PASSWORD is missing a value: make .env as the first lines of compose.yaml"
    assert message in done.stderr


def test_a_build_gets_what_it_copies_and_no_more() -> None:
    """Each COPY finds its source; neither tests nor data nor secrets are sent."""
    copied = {
        name
        for what, rest in DOCKERFILE.steps
        if what == "COPY" and not rest.startswith("--from")
        for name in rest.split()[:-1]
    }
    sent = {path.parts[0] for path in context(ROOT)}
    assert {"app", "client_sdk", "workers", "migrations"} <= copied
    # Docker sends its own two files, whatever the rules say.
    assert copied == sent - {"Dockerfile", ".dockerignore"}


def test_the_base_is_pinned_and_the_user_a_number() -> None:
    """Both stages begin with one digest; the service runs as the user that owns its data."""
    bases = {rest.split(" AS ")[0] for what, rest in DOCKERFILE.steps if what == "FROM"}
    (base,) = bases
    assert re.fullmatch(r"python:3\.12\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)
    user, group = DOCKERFILE.step("USER").split(":")
    made = making_the_user()
    assert user.isdecimal()
    assert f"groupadd --gid {group} " in made
    assert f"useradd --uid {user} --gid {group} " in made
    assert f"--owner {user} --group {group} /var/lib/modelkin" in made


def making_the_user() -> str:
    """The step that makes the user and its folder."""
    (made,) = (rest for what, rest in DOCKERFILE.steps if what == "RUN" and "useradd" in rest)
    return made


def test_a_fresh_volume_is_empty_and_its_owners_alone(tmp_path: Path) -> None:
    """So that a backup can be restored into it: no file of a skeleton lies there."""
    image = Image(ROOT / "Dockerfile", tmp_path)
    image.begin()
    image.run(making_the_user(), os.environ)
    home = tmp_path / "var/lib/modelkin"
    assert ([], 0o700) == ([*home.iterdir()], home.stat().st_mode & 0o777)


def test_image_has_no_torch(deployed: Deployed) -> None:
    """The service's image carries neither torch nor anything of the tests."""
    root = deployed.image.root
    (packages,) = root.glob("opt/venv/lib/python*/site-packages")
    names = {path.name for path in packages.iterdir()}
    assert set() == names & {"torch", "pytest", "hypothesis", "datasketch"}
    folders = {path.name for path in (root / "srv").iterdir() if path.is_dir()}
    assert {"app", "workers", "migrations"} == folders
    assert [] == list(packages.glob("**/tests")) + list(packages.glob("pip"))


def test_image_has_all_that_settings_ask_for(deployed: Deployed) -> None:
    """No setting ends a container with a package to install."""
    (packages,) = deployed.image.root.glob("opt/venv/lib/python*/site-packages")
    otel = [f"opentelemetry/instrumentation/{each}" for each in ("redis", "sqlalchemy")]
    needed = ["igraph", "obstore", "sklearn", "opentelemetry/exporter/otlp", *otel]
    assert [] == [each for each in needed if not (packages / each).is_dir()]


def test_image_has_its_bytecode(deployed: Deployed) -> None:
    """Each module of the service is compiled once for all starts; its user could not keep that."""
    service = deployed.image.root / "srv" / "app"
    sources = {path.stem for path in service.glob("*.py")}
    assert sources == {path.name.split(".")[0] for path in service.glob("__pycache__/*.pyc")}


def test_every_variable_is_a_setting(deployed: Deployed) -> None:
    """Dockerfile and compose.yaml set nothing that the service does not know."""
    services = deployed.compose["services"].values()
    names = {*DOCKERFILE.variables, *(n for each in services for n in each.get("environment", ()))}
    ours = {name.removeprefix("MODELKIN_").lower() for name in names if "MODELKIN" in name}
    assert ours <= set(Settings.model_fields)
